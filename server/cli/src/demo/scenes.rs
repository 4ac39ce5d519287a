//! The faults that the demonstration shows, as data: the text, the fault and its victim, and the expected outcome.

use crosscheck::admin::{Corruption, Inject};

/// Length of the long value: several pieces of a value that is summed in pieces.
const LONG_VALUE: usize = 3000;

/// One fault of the demonstration.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// For the summary.
    pub title: &'static str,
    /// The text shown before the fault is injected.
    pub tale: &'static str,
    /// The kind of corruption.
    pub kind: Corruption,
    /// The object, by the service's name.
    pub object: Option<Object>,
    /// The part of the item with the fault; none = any bit of the object.
    pub part: Option<Part>,
    /// Whether the object is stored again first: a fault in an object in use takes effect only at a request that
    /// writes.
    pub stores: bool,
    /// The expected outcome.
    pub proof: Proof,
}

/// A part of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its key.
    Key,
    /// Its value.
    Value,
}

impl Part {
    /// Number of the member that has both, the value behind the key, and its name.
    const MEMBER: (u8, &'static str) = (0, "content");
    /// Bits of the member before the key: its length.
    const LENGTH: u64 = 32;

    /// A bit of this part of `object`.
    fn bit(self, object: Object, seed: u64) -> u64 {
        let (key, value) = (8 * object.key().len() as u64, 8 * object.value().len() as u64);
        Self::LENGTH
            + match self {
                Part::Key => seed % key,
                Part::Value => key + seed % value,
            }
    }
}

/// An object of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// The item with the long value.
    LongValue,
    /// The item with the long key.
    LongKey,
    /// The table slot of the item with the long value.
    Slot,
}

/// The evidence that a fault was detected and handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// An evidence record names the replica, and its object was replaced.
    Repaired,
    /// An evidence record names the replica; no object needs a repair.
    Named,
    /// A peer dropped a frame.
    FrameDropped,
}

/// The scenes of the demonstration.
pub const SCENES: [Scene; 7] = [
    Scene {
        title: "a bit of a value",
        tale: "A bit flips in a stored value while no request uses it. The next request that enters the item checks it \
               first, and does not use the value.",
        kind: Corruption::Flip,
        object: Some(Object::LongValue),
        part: Some(Part::Value),
        stores: false,
        proof: Proof::Repaired,
    },
    Scene {
        title: "a bit of a key",
        tale: "A bit flips in a key. Without a check the item would no longer be found, or be found under a key that \
               no client stored.",
        kind: Corruption::Flip,
        object: Some(Object::LongKey),
        part: Some(Part::Key),
        stores: false,
        proof: Proof::Repaired,
    },
    Scene {
        title: "a table slot",
        tale: "A bit flips in the hash table itself: the entry of an item now refers to another place. The table is \
               protected like the data.",
        kind: Corruption::Flip,
        object: Some(Object::Slot),
        part: None,
        stores: false,
        proof: Proof::Repaired,
    },
    Scene {
        title: "a bit while a request runs",
        tale: "A bit flips after the check and before the seal: the replica itself cannot detect it. Its \
               result differs from the others', which outvote it before its reply leaves.",
        kind: Corruption::InRequest,
        object: Some(Object::LongValue),
        part: None,
        stores: true,
        proof: Proof::Repaired,
    },
    Scene {
        title: "a digest",
        tale: "The replica's state is right, but a bit of its digest flips. The replica is outvoted, and \
               no object needs a repair.",
        kind: Corruption::Digest,
        object: None,
        part: None,
        stores: false,
        proof: Proof::Named,
    },
    Scene {
        title: "a reply",
        tale: "A bit of a reply flips after it was rendered, on its way to the client. It never leaves; the client \
               receives the reply of the majority.",
        kind: Corruption::Reply,
        object: None,
        part: None,
        stores: false,
        proof: Proof::Named,
    },
    Scene {
        title: "a message to a peer",
        tale: "A bit of a frame between replicas flips on the wire. The receiver drops the frame, and the sender sends \
               it again.",
        kind: Corruption::Message,
        object: None,
        part: None,
        stores: false,
        proof: Proof::FrameDropped,
    },
];

impl Scene {
    /// The fault, for the admin socket.
    pub fn fault(&self, seed: u64) -> Inject {
        let member = self.part.map(|_| Part::MEMBER.0);
        let bit = self.part.zip(self.object).map(|(part, object)| part.bit(object, seed));
        Inject { kind: self.kind, object: self.object.map(Object::name), bit, member, seed }
    }

    /// Whether a fault that was injected is the wanted one, by its description.
    pub fn is_hit(&self, injected: &str) -> bool {
        self.part.is_none() || injected.contains(Part::MEMBER.1)
    }
}

impl Object {
    /// The key of the item it belongs to.
    pub fn key(self) -> String {
        match self {
            Object::LongValue | Object::Slot => "demo:long-value".to_owned(),
            // 240 of the 250 bytes a key may have.
            Object::LongKey => format!("demo:long-key:{}", "k".repeat(226)),
        }
    }

    fn name(self) -> String {
        let table = if self == Object::Slot { "slot" } else { "item" };
        format!("{table}:{}", self.key())
    }

    /// The value stored under [`Object::key`].
    pub fn value(self) -> Vec<u8> {
        match self {
            Object::LongValue | Object::Slot => {
                (0..LONG_VALUE).map(|place| b'a' + (place % 26) as u8).collect()
            }
            Object::LongKey => b"found".to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_covers_what_it_promises() {
        let has = |kind, part| SCENES.iter().any(|scene| scene.kind == kind && scene.part == part);
        let parts = [Some(Part::Value), Some(Part::Key), None];
        assert!(parts.into_iter().all(|part| has(Corruption::Flip, part)));
        assert!(
            [Corruption::Digest, Corruption::Reply, Corruption::Message]
                .into_iter()
                .all(|kind| has(kind, None))
        );
    }

    #[test]
    fn keys_are_legal_and_names_lead_to_them() {
        for object in [Object::LongValue, Object::LongKey, Object::Slot] {
            assert!(object.key().len() <= 250);
            assert!(object.name().ends_with(&object.key()));
        }
        assert_eq!(Object::LongKey.key().len(), 240);
    }
}
