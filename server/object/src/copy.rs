//! The local copy of `#[critical(copy)]`: repairs a flipped passive object on the spot (workshop paper, Fig. 5b).

use crate::checksum;
use crate::critical::Members;
use crate::id::ObjectId;
use crate::protected::Redundancy;
use crate::request;
use crate::version::{self, recompute};
use std::fmt;
use std::sync::OnceLock;

/// Packed members as they were when the object was sealed, with a checksum of their own.
///
/// A reader has only shared access, so it stores the repaired members next to the damaged ones, where every later
/// reader finds them; the next writer moves them into place. The copy is as large as the packed object and is renewed
/// at each seal.
pub struct LocalCopy<M> {
    bytes: Vec<u8>,
    sum: u64,
    repaired: OnceLock<Box<M>>,
}

impl<M> Default for LocalCopy<M> {
    fn default() -> Self {
        LocalCopy { bytes: Vec::new(), sum: 0, repaired: OnceLock::new() }
    }
}

impl<M> fmt::Debug for LocalCopy<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a local copy of {} bytes", self.bytes.len())
    }
}

impl<M: Members + Sync> Redundancy<M> for LocalCopy<M> {
    fn keep(&mut self, members: &M) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&members.header().id().to_bits().to_le_bytes());
        request::locally(|| version::pack_image(members, &mut self.bytes));
        self.sum = checksum::of(&self.bytes);
    }

    fn repair(&self) -> bool {
        let Some((id, body)) = self.bytes.split_first_chunk::<8>() else { return false };
        if checksum::of(&self.bytes) != self.sum {
            return false;
        }
        let mut members = M::blank(ObjectId::from_bits(u64::from_le_bytes(*id)));
        if request::locally(|| version::replace_image(&mut members, body)).is_err() {
            return false;
        }
        let sum = recompute(&members);
        members.header_mut().seal(sum);
        // If another reader was faster, its repair is the same.
        let _ = self.repaired.set(Box::new(members));
        true
    }

    #[inline]
    fn repaired(&self) -> Option<&M> {
        self.repaired.get().map(|members| &**members)
    }

    #[inline]
    fn adopt(&mut self) -> Option<M> {
        self.repaired.take().map(|members| *members)
    }
}
