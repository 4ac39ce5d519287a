//! A state that is packed in parts while requests run (`replica/copies.rs`), and is put in place while its pieces come.
//!
//! After the version, one record after the other: a region, whether the part belongs to the region's first round, and
//! the packed objects. The last record is the position: only at the end it is known.

use std::collections::BTreeMap;

use bytes::Bytes;
use object::{CopiedPart, Orphans, RegionId};
use schedule::Turn;
use wire::Malformed;

use super::{Base, CheckpointHead, VERSION_IN_PARTS, put_head, take_base, text};
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

/// Passes over everything before the position.
pub(super) fn skip(reader: &mut PackReader) -> Result<(), Malformed> {
    reader.skip(1)?;
    while RegionId::from_le_bytes(reader.array()?) != END {
        reader.skip(1)?;
        let length = u64::from_le_bytes(reader.array()?);
        reader.skip(length)?;
    }
    Ok(())
}

fn too_long() -> String {
    "it goes on after its end".into()
}

/// A state that is put in place while its pieces come. Each is freed as soon as its objects are there.
pub(crate) struct LoadingState<S: Service> {
    /// What has come and was not read: less than a record, after each piece.
    unread: PackReader,
    is_begun: bool,
    /// For each region, objects that have come before the ones that they are inside of.
    orphans: BTreeMap<RegionId, Orphans>,
    /// The position, once its record has begun.
    base: Option<Result<Base<S>, String>>,
}

impl<S: Service> LoadingState<S> {
    /// Empties the service, which no other thread can reach.
    pub(crate) fn new(service: &mut S) -> Self {
        service.locks_mut().iter_mut().for_each(|lock| lock.region_mut().empty());
        LoadingState { unread: PackReader::default(), is_begun: false, orphans: BTreeMap::new(), base: None }
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

    /// The position, when all pieces have come.
    ///
    /// # Errors
    /// When something is missing.
    pub(crate) fn finish(self) -> Result<Base<S>, String> {
        if let Some((region_id, _)) = self.orphans.iter().find(|(_, waiting)| !waiting.is_empty()) {
            return Err(format!("region {region_id}: objects inside of one that did not come"));
        }
        self.base.unwrap_or_else(|| Err(text(ENDS_EARLY)))
    }

    /// Reads every whole record.
    fn advance(&mut self, service: &mut S) -> Result<(), String> {
        if !self.is_begun && !self.unread.is_empty() {
            match self.unread.array() {
                Ok([VERSION_IN_PARTS]) => self.is_begun = true,
                _ => return Err("it is of another version".into()),
            }
        }
        while !self.unread.is_empty() {
            let mut ahead = self.unread.clone();
            let Ok(region_id) = ahead.array().map(RegionId::from_le_bytes) else { return Ok(()) };
            if region_id == END {
                // It may not have come as a whole; then the next piece is read with it.
                let base = take_base(service, &mut ahead);
                self.base = Some(base.and_then(|base| ahead.is_empty().then_some(base).ok_or(too_long())));
                return Ok(());
            }
            let (Ok([is_first]), Ok(packed)) = (ahead.array(), ahead.block()) else { return Ok(()) };
            self.unread = ahead;
            let region = |why| format!("region {region_id}: {why}");
            let mut locks = service.locks_mut();
            let lock =
                locks.get_mut(region_id as usize).ok_or_else(|| region("there is no such lock".into()))?;
            let waiting = self.orphans.entry(region_id).or_default();
            lock.region_mut().install_part(&packed, is_first == 1, waiting).map_err(text).map_err(region)?;
        }
        Ok(())
    }
}
