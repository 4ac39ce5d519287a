//! The corruptions that a replica can do to itself on request: one list for the admin protocol, the command line, and
//! every program that injects faults.

use std::fmt;
use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};

/// What a running replica can do to itself on request, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Corruption {
    /// One bit of a resting object.
    Flip,
    /// Several bits of a resting object.
    MultiFlip,
    /// One bit of an object between a handler's check and the seal: the seal then covers the wrong content.
    InRequest,
    /// An object's stored checksum.
    Checksum,
    /// An object's own id.
    Id,
    /// A length: a member sequence loses or gains an element.
    Length,
    /// An object is removed from its store.
    Lost,
    /// An object is in its store twice.
    Doubled,
    /// The digest of the next request, in the state delta.
    Digest,
    /// The digest that the next CHECK message carries; in verified mode, a bit of the next VERIFY.
    Check,
    /// The reply of the next request with a reply, after it was rendered and before it was digested.
    Reply,
    /// The next frame to a peer, before it is sent.
    Message,
    /// The next REPAIR packet that this replica sends.
    Repair,
    /// The next ordered request, between its delivery and its execution.
    Request,
    /// The checksum of the next client request, before it is ordered: wrong for every replica.
    Asked,
    /// One bit of a resting object, whose checksum is made to fit: no check finds it.
    Reseal,
    /// Some bytes of a resting object, as if a write to another object had hit this one.
    Stray,
    /// The handler of the next request does nothing.
    Skip,
    /// The handler of the next request runs twice.
    Twice,
    /// Every n-th request changes a bit of what it has written, some times in a row: a core that is wrong in
    /// a fixed way.
    Sticky,
    /// As [`Corruption::Sticky`], at irregular intervals: a core that is wrong sometimes.
    Erratic,
    /// The locks that the next request gets tickets for, between its decoding and the dispatcher.
    Footprint,
    /// The worker's count of positions: one too high from the next request on.
    Position,
    /// A bit of the before-images of the next request that has kept some; its handler then fails, and is undone from
    /// them.
    Image,
    /// A copy of the state that is being made forgets that an object has changed since it was packed.
    Unnamed,
    /// A bit of the position that a copy of the state has come to in a region.
    Cursor,
    /// A bit of the next objects that this replica packs for a copy of the state, before they are digested.
    Part,
    /// A bit of the next piece of a state that this replica sends to one that lacks it.
    Piece,
    /// In verified mode: a bit of what the next request would be rolled back with.
    Kept,
    /// In verified mode: two parallel batches of the next plan become one.
    Groups,
    /// In verified mode: the next batch that is to run one request at a time runs as any other.
    Flag,
}

impl fmt::Display for Corruption {
    /// Its name in the admin protocol.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Corruption {
    type Err = serde::de::value::Error;

    /// Reads its name in the admin protocol.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Corruption::deserialize(name.into_deserializer())
    }
}
