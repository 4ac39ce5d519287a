//! A state that is packed in parts while requests run (`replica/copies.rs`), and is put in place while its pieces come.
//!
//! After the version, one record after the other: a region, whether the part belongs to the region's first round, and
//! the packed objects. The last record is the position: only at the end it is known. In verified mode the proof is
//! behind it.

use std::collections::BTreeMap;

use bytes::Bytes;
use execute::Regions;
use object::{CopiedPart, Orphans, RegionId};
use schedule::Turn;
use wire::Malformed;

use super::{
    Base, CheckpointHead, StateProof, VERSION_IN_PARTS, put_head, take_base, take_head, take_proof, text,
    visit,
};
use crate::boundary::OwnedRegions;
use crate::job::Job;
use crate::packed_state::{ENDS_EARLY, PackReader, PackWriter, PackedState};
use crate::service::Service;

/// In place of a region: the position follows.
const END: RegionId = RegionId::MAX;

/// Begins the state; [`put_parts`] appends the parts in the order of their numbers, and [`put_end`] ends it.
pub(crate) fn begin_parts(out: &mut PackWriter) {
    out.put(&[VERSION_IN_PARTS]);
}

/// Appends a part of a copy.
pub(crate) fn put_parts(part: &[(RegionId, CopiedPart)], out: &mut PackWriter) {
    for (region_id, CopiedPart { bytes, is_first, .. }) in part {
        if !bytes.is_empty() {
            out.put(&region_id.to_le_bytes());
            out.put(&[u8::from(*is_first)]);
            out.put_block(bytes);
        }
    }
}

/// The end: everything but the regions, of an exclusive turn.
///
/// # Errors
/// When turns are not ordered.
pub(crate) fn put_end<R>(
    turn: &mut Turn<'_, Job<R>>,
    head: &CheckpointHead,
) -> Result<PackedState, &'static str> {
    let mut out = PackWriter::default();
    out.put(&END.to_le_bytes());
    put_head(turn, head, &mut out)?;
    Ok(out.finish())
}

/// Passes over a state whose pieces come one after the other, and that no service loads: it is one as far as its
/// records show, and its position is known at its end.
#[derive(Default)]
pub(crate) struct PartsScan {
    unread: PackReader,
    /// Bytes of a record that are passed over as they come.
    skipped: u64,
    is_begun: bool,
    /// The position follows, and is read once all has come.
    is_at_end: bool,
}

impl PartsScan {
    /// The next piece.
    ///
    /// # Errors
    /// When this is no state.
    pub(crate) fn put(&mut self, piece: Bytes) -> Result<(), String> {
        self.unread.push(piece);
        if !self.is_begun && !self.unread.is_empty() {
            self.is_begun = self.unread.array().is_ok_and(|version| version == [VERSION_IN_PARTS]);
            if !self.is_begun {
                return Err("its state has another version".into());
            }
        }
        while !self.is_at_end {
            let now = self.skipped.min(self.unread.remaining());
            self.unread.skip(now).map_err(text)?;
            self.skipped -= now;
            if self.skipped > 0 {
                break;
            }
            let mut ahead = self.unread.clone();
            let Ok(region_id) = ahead.array().map(RegionId::from_le_bytes) else { break };
            self.is_at_end = region_id == END;
            if !self.is_at_end {
                let (Ok([is_first]), Ok(length)) = (ahead.array(), ahead.array().map(u64::from_le_bytes))
                else {
                    break;
                };
                if is_first > 1 {
                    return Err("a record of its state is none".into());
                }
                (self.skipped, self.unread) = (length, ahead);
            }
        }
        Ok(())
    }

    /// The position, when all pieces have come.
    ///
    /// # Errors
    /// When something is missing.
    pub(crate) fn finish(mut self) -> Result<CheckpointHead, String> {
        if !self.is_at_end {
            return Err(text(ENDS_EARLY));
        }
        self.unread.array::<4>().map_err(text)?;
        let head = take_head(&mut self.unread)?;
        // Of the schedule.
        self.unread.block().map_err(text)?;
        Ok(head)
    }
}

/// Passes over the parts, to the position.
pub(super) fn skip(reader: &mut PackReader) -> Result<(), Malformed> {
    pass_over(reader).map(|_| ())
}

/// How many regions the parts are of: each has an object at least.
pub(super) fn count(mut parts: PackReader) -> Result<RegionId, Malformed> {
    pass_over(&mut parts)
}

fn pass_over(reader: &mut PackReader) -> Result<RegionId, Malformed> {
    let mut count = 0;
    loop {
        let region_id = RegionId::from_le_bytes(reader.array()?);
        if region_id == END {
            return Ok(count);
        }
        count = count.max(region_id + 1);
        reader.skip(1)?;
        let length = u64::from_le_bytes(reader.array()?);
        reader.skip(length)?;
    }
}

/// The region of the next part; none where the position follows, or nothing has come yet.
fn next_region(unread: &PackReader) -> Option<RegionId> {
    let region_id = unread.clone().array().map(RegionId::from_le_bytes).ok()?;
    (region_id != END).then_some(region_id)
}

/// The parts that have come, put in place.
#[derive(Default)]
struct InstalledParts {
    /// For each region, objects that have come before the ones that they are inside of.
    orphans: BTreeMap<RegionId, Orphans>,
}

impl InstalledParts {
    /// Puts the next part in place, if it has come as a whole. False if it has not, or the position follows.
    fn put_next(&mut self, unread: &mut PackReader, regions: &mut dyn Regions) -> Result<bool, String> {
        let mut ahead = unread.clone();
        let Ok(region_id) = ahead.array().map(RegionId::from_le_bytes) else { return Ok(false) };
        if region_id == END {
            return Ok(false);
        }
        let (Ok([is_first]), Ok(packed)) = (ahead.array(), ahead.block()) else { return Ok(false) };
        *unread = ahead;
        let waiting = self.orphans.entry(region_id).or_default();
        visit(region_id, regions, |region| region.install_part(&packed, is_first == 1, waiting))
            .map_err(|why| format!("region {region_id}: {why}"))?;
        Ok(true)
    }

    /// All have come.
    fn finish(&self) -> Result<(), String> {
        match self.orphans.iter().find(|(_, waiting)| !waiting.is_empty()) {
            Some((region_id, _)) => {
                Err(format!("region {region_id}: objects inside of one that did not come"))
            }
            None => Ok(()),
        }
    }
}

/// Puts the parts of a whole state in the place of the regions of a service that has so many.
pub(super) fn install(
    mut packed: PackReader,
    region_ids: RegionId,
    to: &mut dyn Regions,
) -> Result<(), String> {
    (0..region_ids).for_each(|region_id| to.visit(region_id, &mut |region| region.empty()));
    let (mut unread, mut installed) = (PackReader::default(), InstalledParts::default());
    while let Some(piece) = packed.take_piece() {
        unread.push(piece);
        while installed.put_next(&mut unread, to)? {}
    }
    installed.finish()
}

/// A state that has come as a whole.
pub(crate) struct LoadedState<S: Service> {
    /// The position.
    pub(crate) base: Base<S>,
    /// In verified mode: what proves its version.
    pub(crate) proof: Option<StateProof>,
}

/// A state that is put in place while its pieces come. Each is freed as soon as its objects are there.
pub(crate) struct LoadingState<S: Service> {
    /// What has come and was not read: less than a record, after each piece.
    unread: PackReader,
    is_begun: bool,
    installed: InstalledParts,
    /// Of a whole state: how many regions have come.
    regions: Option<RegionId>,
    /// The end, once its record has begun.
    loaded: Option<Result<LoadedState<S>, String>>,
}

impl<S: Service> LoadingState<S> {
    /// Empties the service, which no other thread can reach.
    pub(crate) fn new(service: &mut S) -> Self {
        service.locks_mut().iter_mut().for_each(|lock| lock.region_mut().empty());
        LoadingState { regions: Some(0), ..LoadingState::of_changes() }
    }

    /// Puts the changes of a later checkpoint into a service that has the state before.
    pub(super) fn of_changes() -> Self {
        let (unread, installed) = (PackReader::default(), InstalledParts::default());
        LoadingState { unread, is_begun: false, installed, regions: None, loaded: None }
    }

    /// The next piece.
    ///
    /// # Errors
    /// The part that does not fit; the service is then not usable.
    pub(crate) fn put(&mut self, service: &mut S, piece: Bytes) -> Result<(), String> {
        self.unread.push(piece);
        self.advance(service)
    }

    /// All pieces at once.
    ///
    /// # Errors
    /// As [`LoadingState::put`].
    pub(super) fn put_all(&mut self, service: &mut S, mut packed: PackReader) -> Result<(), String> {
        while let Some(piece) = packed.take_piece() {
            self.put(service, piece)?;
        }
        Ok(())
    }

    /// The position and the proof, when all pieces have come.
    ///
    /// # Errors
    /// When something is missing.
    pub(crate) fn finish(self) -> Result<LoadedState<S>, String> {
        self.installed.finish()?;
        self.loaded.unwrap_or_else(|| Err(text(ENDS_EARLY)))
    }

    /// Reads every whole record.
    fn advance(&mut self, service: &mut S) -> Result<(), String> {
        if !self.is_begun && !self.unread.is_empty() {
            match self.unread.array() {
                Ok([VERSION_IN_PARTS]) => self.is_begun = true,
                _ => return Err("it is of another version".into()),
            }
        }
        while self.put_all_known(service)? {}
        let mut ahead = self.unread.clone();
        if ahead.array().is_ok_and(|region_id| RegionId::from_le_bytes(region_id) == END) {
            self.regions.iter().for_each(|count| service.take_locks(*count));
            // It may not have come as a whole; then the next piece is read with it.
            self.loaded = Some(take_end(service, &mut ahead));
        }
        Ok(())
    }

    /// Puts parts in place up to one of a region that the service does not have yet: then it gets so many locks. False
    /// if no further part has come.
    fn put_all_known(&mut self, service: &mut S) -> Result<bool, String> {
        let locks = service.locks().len() as RegionId;
        let mut regions = OwnedRegions(service.locks_mut());
        let new = loop {
            let next = next_region(&self.unread);
            if let Some(region_id) = next.filter(|region_id| *region_id >= locks) {
                break region_id;
            }
            if !self.installed.put_next(&mut self.unread, &mut regions)? {
                return Ok(false);
            }
            if let (Some(count), Some(region_id)) = (&mut self.regions, next) {
                *count = (*count).max(region_id + 1);
            }
        };
        drop(regions);
        if self.regions.is_some() {
            service.take_locks(new + 1);
            service.locks_mut().iter_mut().skip(locks as usize).for_each(|lock| lock.region_mut().empty());
        }
        match service.locks().len() as RegionId > new {
            true => Ok(true),
            false => Err(format!("it has a region {new}, and the service {locks} regions")),
        }
    }
}

/// The end of a state: its position, and in verified mode its proof.
fn take_end<S: Service>(service: &S, reader: &mut PackReader) -> Result<LoadedState<S>, String> {
    let base = take_base(service, reader)?;
    let proof = match reader.take(reader.remaining()).map_err(text)? {
        proof if proof.is_empty() => None,
        proof => Some(take_proof(&proof)?),
    };
    Ok(LoadedState { base, proof })
}
