//! What a verifier writes to disk before it speaks, for groups whose verifiers keep their memory when they crash.

use wire::{Malformed, Put, Reader};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::message::{TokenRecord, put_record, read_record};
use crate::slots::{CrashVector, Slot};

/// Bytes of the saved form.
pub const SAVED_BYTES: usize = 64;
/// Verifiers whose incarnations fit: the crash configurations up to u = 2.
const SAVED_VERIFIERS: usize = 5;
/// Version of the format, and the checksum's seed.
const FORMAT: u64 = 0x4556_4552_4946_5901;

/// Promise and record of a verifier. The host keeps two places and writes them in turn, so that one is always whole;
/// of two valid ones, the one that is greater counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SavedRecord {
    /// No earlier view is taken part in.
    pub promised: u64,
    /// The record.
    pub record: TokenRecord,
    /// The incarnations that the verifier knows of.
    pub crashes: CrashVector,
    /// The verifier.
    pub verifier: Slot,
}

impl SavedRecord {
    /// The saved form, with its checksum at the end; none for more verifiers than fit.
    pub fn encode(&self) -> Option<[u8; SAVED_BYTES]> {
        let mut out = Vec::with_capacity(SAVED_BYTES);
        let counts = self.crashes.counts();
        if counts.len() > SAVED_VERIFIERS {
            return None;
        }
        out.put64(self.promised);
        put_record(&mut out, &self.record);
        out.put8(self.verifier << 4 | counts.len() as u8);
        for index in 0..SAVED_VERIFIERS {
            out.put16(counts.get(index).copied().unwrap_or(0));
        }
        out.resize(SAVED_BYTES - 8, 0);
        let sum = xxh3_64_with_seed(&out, FORMAT);
        out.put64(sum);
        out.try_into().ok()
    }

    /// Reads the saved form.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not what was written.
    pub fn decode(bytes: &[u8; SAVED_BYTES]) -> Result<SavedRecord, Malformed> {
        let (body, sum) = bytes.split_at(SAVED_BYTES - 8);
        if Reader::new(sum).u64()? != xxh3_64_with_seed(body, FORMAT) {
            return Err(Malformed("the checksum of a saved record does not fit"));
        }
        let mut reader = Reader::new(body);
        let (promised, record, who) = (reader.u64()?, read_record(&mut reader)?, reader.u8()?);
        let (verifier, verifiers) = (who >> 4, (who & 15) as usize);
        let mut counts = [0; SAVED_VERIFIERS];
        for count in &mut counts {
            *count = reader.u16()?;
        }
        let counts = counts.get(..verifiers).ok_or(Malformed("more verifiers than fit"))?;
        let crashes = CrashVector::of(counts).ok_or(Malformed("more verifiers than fit"))?;
        Ok(SavedRecord { promised, record, crashes, verifier })
    }
}
