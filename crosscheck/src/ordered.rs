//! What an ordered request can be: a client's, or one of the pipeline's own, which take their position like any other.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use object::{Home, ObjectId};
use vote::{Place, Recover};

/// First byte of the pipeline's own requests; a service's encodings begin below it.
pub const CONTROL: u8 = 0xf0;

/// A request with the checksum that goes with it until it is executed.
pub fn summed(bytes: Bytes) -> order::Request {
    order::Request { checksum: order::batch::checksum(&bytes), bytes }
}

/// A request of the pipeline itself. Each has a footprint, so it holds up nothing but what it concerns
/// (docs/design.md, section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// RECOVER: at this position some replicas pack the named objects, and the others replace theirs.
    Recover(Recover),
    /// A turn on one lock and nothing else: where an injected fault strikes a resting object.
    Noop {
        /// The lock.
        home: Home,
        /// Tells the replica that asked for it which of its waiting callers this serves.
        ticket: u64,
    },
    /// Check every object of one region, and let the vote compare the whole region.
    Scrub {
        /// The region's lock.
        home: Home,
    },
    /// Digest of the whole state, alone at its position.
    Digest {
        /// Tells the replica that asked for it which of its waiting callers this serves.
        ticket: u64,
    },
    /// A replica looks at objects of its own, because no majority was found about a request that touched them.
    Recheck {
        /// Who looks; the others only pass the turn.
        by: u8,
        /// The request in question.
        place: Place,
        /// The objects, sorted.
        objects: Vec<(Home, ObjectId)>,
    },
    /// Every healthy replica keeps a copy of the whole state as of this position, for whoever needs it.
    Checkpoint,
}

impl Control {
    /// The request as ordered bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(16);
        match self {
            Control::Recover(recover) => {
                let mut recover_bytes = Vec::new();
                recover.encode(&mut recover_bytes);
                out.put_u8(CONTROL);
                out.extend_from_slice(&recover_bytes);
            }
            Control::Noop { home, ticket } => {
                out.put_u8(CONTROL + 1);
                out.put_u32_le(*home);
                out.put_u64_le(*ticket);
            }
            Control::Scrub { home } => {
                out.put_u8(CONTROL + 2);
                out.put_u32_le(*home);
            }
            Control::Digest { ticket } => {
                out.put_u8(CONTROL + 3);
                out.put_u64_le(*ticket);
            }
            Control::Checkpoint => out.put_u8(CONTROL + 4),
            Control::Recheck { by, place, objects } => {
                out.put_u8(CONTROL + 5);
                out.put_u8(*by);
                out.put_u64_le(place.batch);
                out.put_u16_le(place.request);
                for (home, id) in objects {
                    out.put_u32_le(*home);
                    out.put_u64_le(id.to_bits());
                }
            }
        }
        out.freeze()
    }

    /// Whether these ordered bytes are the pipeline's own.
    pub fn is_control(ordered: &[u8]) -> bool {
        ordered.first().is_some_and(|first| *first >= CONTROL)
    }

    /// Whether it may wait or take long at replica `me`: at a RECOVER only those wait whose objects are overwritten.
    pub fn is_long(&self, me: u8) -> bool {
        match self {
            Control::Recover(recover) => recover.overwrites_at(me) || !recover.regions.is_empty(),
            Control::Noop { .. } => false,
            Control::Recheck { by, .. } => *by == me,
            Control::Scrub { .. } | Control::Digest { .. } | Control::Checkpoint => true,
        }
    }

    /// The request in `ordered`; `None` if it is none.
    pub fn decode(ordered: &Bytes) -> Option<Control> {
        let mut rest = ordered.clone();
        let control = match rest.try_get_u8().ok()?.checked_sub(CONTROL)? {
            0 => return Recover::decode(&rest).ok().map(Control::Recover),
            1 => Control::Noop { home: rest.try_get_u32_le().ok()?, ticket: rest.try_get_u64_le().ok()? },
            2 => Control::Scrub { home: rest.try_get_u32_le().ok()? },
            3 => Control::Digest { ticket: rest.try_get_u64_le().ok()? },
            4 => Control::Checkpoint,
            5 => {
                let by = rest.try_get_u8().ok()?;
                let place = Place::new(rest.try_get_u64_le().ok()?, rest.try_get_u16_le().ok()?);
                let mut objects = Vec::with_capacity(rest.len() / 12);
                while !rest.is_empty() {
                    objects.push((
                        rest.try_get_u32_le().ok()?,
                        ObjectId::from_bits(rest.try_get_u64_le().ok()?),
                    ));
                }
                Control::Recheck { by, place, objects }
            }
            _ => return None,
        };
        rest.is_empty().then_some(control)
    }
}

#[cfg(test)]
mod tests {
    use vote::Scope;

    use super::*;

    fn samples() -> Vec<Control> {
        let recover = Recover {
            id: 9,
            proposer: 1,
            scope: Scope::Faulty(2),
            cause: Place::new(7, 3),
            objects: vec![(4, ObjectId::new(5, 6))],
            regions: vec![8],
        };
        vec![
            Control::Recover(Recover { scope: Scope::SettleOn(0), ..recover.clone() }),
            Control::Recover(recover),
            Control::Noop { home: 3, ticket: 4 },
            Control::Scrub { home: 5 },
            Control::Digest { ticket: 6 },
            Control::Checkpoint,
            Control::Recheck { by: 1, place: Place::new(3, 2), objects: vec![(1, ObjectId::new(2, 3))] },
        ]
    }

    #[test]
    fn every_request_of_the_pipeline_survives_its_encoding() {
        for control in samples() {
            let bytes = control.encode();
            assert!(Control::is_control(&bytes));
            assert_eq!(Control::decode(&bytes), Some(control));
        }
    }

    #[test]
    fn truncated_and_extended_bytes_are_no_request() {
        for control in samples() {
            let bytes = control.encode();
            for cut in 0..bytes.len() {
                let shorter = Control::decode(&bytes.slice(..cut));
                // A shorter list of objects to look at is a request of its own.
                assert!(
                    shorter.is_none() || matches!(shorter, Some(Control::Recheck { .. })),
                    "{control:?} at {cut}"
                );
            }
            let longer = Bytes::from([&bytes[..], &[0]].concat());
            assert_eq!(Control::decode(&longer), None, "{control:?}");
        }
    }
}
