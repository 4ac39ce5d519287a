//! Ordered requests: those of clients, and those of the pipeline itself, which get a position in the same way.

use bytes::Bytes;
use object::{ObjectId, RegionId};
use order::SizeWish;
use vote::{Place, Recover};
use wire::{Put, Reader};

/// First byte of the pipeline's own requests; the first bytes of a service's encodings are lower.
pub const CONTROL: u8 = 0xf0;

/// A request with the checksum that goes with it until it is executed.
pub fn summed(bytes: Bytes) -> order::Request {
    order::Request { checksum: order::batch::checksum(&bytes), stream: 0, bytes }
}

/// A request of the pipeline itself. Each has a footprint, so it only delays requests on the same locks
/// (docs/design.md, section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// RECOVER: at this position some replicas pack the named objects, and the others replace theirs.
    Recover(Recover),
    /// A turn on one lock and nothing else: at this turn a fault is injected into a resting object.
    Noop {
        /// The lock.
        region_id: RegionId,
        /// Identifies the waiting caller at the replica that submitted it.
        ticket: u64,
    },
    /// Check every object of one region, and let the vote compare the whole region.
    Scrub {
        /// The region's lock.
        region_id: RegionId,
    },
    /// Digest of one region. Those of all regions make a digest of the whole state; each has a position of its own, so
    /// that no request waits for more than one region.
    Digest {
        /// Identifies the waiting caller at the replica that submitted it.
        ticket: u64,
        /// Batch of the digest of the first region, with which it begins; 0 in that one itself.
        begun: u64,
        /// The region's lock.
        region_id: RegionId,
    },
    /// A replica checks its own objects, because there was no majority for a request that touched them.
    Recheck {
        /// The replica that checks; the others only pass the turn.
        by: u8,
        /// The request in question.
        place: Place,
        /// The objects, sorted.
        objects: Vec<(RegionId, ObjectId)>,
    },
    /// A replica can shorten its log only after a copy of the whole state: the leader begins one. In logs of version
    /// 0.2.0, the checkpoint itself.
    CopyWanted,
    /// The parts of this copy, and what is left, are the state as of this position; at most `limit` objects may be
    /// left.
    Checkpoint {
        /// The copy.
        session: u64,
        /// Objects that may be left. If there are more, further parts are ordered first.
        limit: u32,
    },
    /// A part of a copy of the state: the next objects of some regions.
    CopyPart {
        /// The copy.
        session: u64,
        /// Number of the part, from 0.
        number: u32,
        /// The first of the regions.
        region_id: RegionId,
        /// How many there are.
        count: u16,
    },
    /// A replica knows that all can act as this: with the f+1-th that says so, the group does. Once it is delivered, it
    /// has what the group acts as from here on.
    ActAs {
        /// The behavior ([`crate::behavior`]).
        behavior: u16,
    },
    /// A setting of the pipeline itself has this value from here on (`pipeline_settings.rs`).
    Set {
        /// Its number.
        number: u8,
        /// Its value.
        value: u8,
        /// It is the value of the founding: it counts only if there is none yet.
        founds: bool,
    },
    /// A replica has seen that another one, whose machine was replaced, is at this address: with the f+1-th that says
    /// so, it is there for all.
    Move {
        /// The one that has moved.
        replica: u8,
        /// Its address.
        address: String,
    },
    /// A replica wants the group to grow or shrink, or a change of its size to end (`replica/sizing.rs`).
    Size(SizeWish),
    /// A replica holds a process of another one for gone (`replica/departures.rs`).
    Gone {
        /// The other one.
        replica: u8,
        /// The incarnation that the batches of that process name.
        incarnation: u64,
    },
    /// Requests that the service has started itself have made replies with these digests at a replica
    /// (`replica/started_replies.rs`).
    Answered {
        /// The digests.
        digests: Vec<u128>,
    },
}

impl Control {
    /// Passes time, and nothing else: nobody waits for its ticket.
    pub const PASS_TIME: Control = Control::Noop { region_id: 0, ticket: 0 };

    /// The request as ordered bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(16);
        match self {
            Control::Recover(recover) => {
                out.put8(CONTROL);
                recover.encode(&mut out);
            }
            Control::Noop { region_id, ticket } => {
                out.put8(CONTROL + 1).put32(*region_id).put64(*ticket);
            }
            Control::Scrub { region_id } => {
                out.put8(CONTROL + 2).put32(*region_id);
            }
            Control::Digest { ticket, begun, region_id } => {
                out.put8(CONTROL + 3).put64(*ticket).put64(*begun).put32(*region_id);
            }
            Control::CopyWanted => {
                out.put8(CONTROL + 4);
            }
            Control::Checkpoint { session, limit } => {
                out.put8(CONTROL + 4).put64(*session).put32(*limit);
            }
            Control::CopyPart { session, number, region_id, count } => {
                out.put8(CONTROL + 6).put64(*session).put32(*number).put32(*region_id).put16(*count);
            }
            Control::ActAs { behavior } => {
                out.put8(CONTROL + 7).put16(*behavior);
            }
            Control::Set { number, value, founds } => {
                out.put8(CONTROL + 8).put8(*number).put8(*value).put8(u8::from(*founds));
            }
            Control::Move { replica, address } => {
                out.put8(CONTROL + 9).put8(*replica).put16(address.len() as u16).put(address.as_bytes());
            }
            Control::Size(wish) => {
                out.put8(CONTROL + 10);
                wish.encode(&mut out);
            }
            Control::Gone { replica, incarnation } => {
                out.put8(CONTROL + 12).put8(*replica).put64(*incarnation);
            }
            Control::Answered { digests } => {
                out.put8(CONTROL + 11);
                digests.iter().for_each(|digest| _ = out.put128(*digest));
            }
            Control::Recheck { by, place, objects } => {
                out.put8(CONTROL + 5).put8(*by).put64(place.batch).put16(place.request);
                for (region_id, id) in objects {
                    out.put32(*region_id).put64(id.to_bits());
                }
            }
        }
        out.into()
    }

    /// Whether these ordered bytes are a request of the pipeline itself.
    pub fn is_control(ordered: &[u8]) -> bool {
        ordered.first().is_some_and(|first| *first >= CONTROL)
    }

    /// Whether it may wait or take long at replica `me`: at a RECOVER only those wait whose objects are overwritten.
    pub fn is_long(&self, me: u8) -> bool {
        match self {
            Control::Recover(recover) => recover.overwrites_at(me) || !recover.regions.is_empty(),
            Control::Noop { .. }
            | Control::CopyPart { .. }
            | Control::CopyWanted
            | Control::Set { .. }
            | Control::Move { .. }
            | Control::Size(_)
            | Control::Gone { .. }
            | Control::Answered { .. } => false,
            Control::Recheck { by, .. } => *by == me,
            Control::Scrub { .. }
            | Control::Digest { .. }
            | Control::Checkpoint { .. }
            | Control::ActAs { .. } => true,
        }
    }

    /// The request in `ordered`; `None` if it is none.
    pub fn decode(ordered: &Bytes) -> Option<Control> {
        let mut reader = Reader::shared(ordered);
        let control = match reader.u8().ok()?.checked_sub(CONTROL)? {
            0 => return Recover::decode(&reader.rest_bytes()).ok().map(Control::Recover),
            1 => Control::Noop { region_id: reader.u32().ok()?, ticket: reader.u64().ok()? },
            2 => Control::Scrub { region_id: reader.u32().ok()? },
            3 => Control::Digest {
                ticket: reader.u64().ok()?,
                begun: reader.u64().ok()?,
                region_id: reader.u32().ok()?,
            },
            4 if reader.is_empty() => Control::CopyWanted,
            4 => Control::Checkpoint { session: reader.u64().ok()?, limit: reader.u32().ok()? },
            6 => Control::CopyPart {
                session: reader.u64().ok()?,
                number: reader.u32().ok()?,
                region_id: reader.u32().ok()?,
                count: reader.u16().ok()?,
            },
            7 => Control::ActAs { behavior: reader.u16().ok()? },
            8 => {
                let (number, value, founds) = (reader.u8().ok()?, reader.u8().ok()?, reader.u8().ok()?);
                Control::Set { number, value, founds: [false, true].get(usize::from(founds)).copied()? }
            }
            9 => {
                let (replica, length) = (reader.u8().ok()?, reader.u16().ok()?);
                let address = reader.take(usize::from(length)).ok()?.to_vec();
                Control::Move { replica, address: String::from_utf8(address).ok()? }
            }
            10 => Control::Size(SizeWish::decode(&mut reader).ok()?),
            12 => Control::Gone { replica: reader.u8().ok()?, incarnation: reader.u64().ok()? },
            11 => {
                let mut digests = Vec::with_capacity(reader.remaining() / 16);
                while !reader.is_empty() {
                    digests.push(reader.u128().ok()?);
                }
                Control::Answered { digests }
            }
            5 => {
                let by = reader.u8().ok()?;
                let place = Place::new(reader.u64().ok()?, reader.u16().ok()?);
                let mut objects = Vec::with_capacity(reader.remaining() / 12);
                while !reader.is_empty() {
                    objects.push((reader.u32().ok()?, ObjectId::from_bits(reader.u64().ok()?)));
                }
                Control::Recheck { by, place, objects }
            }
            _ => return None,
        };
        reader.is_empty().then_some(control)
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
            Control::Noop { region_id: 3, ticket: 4 },
            Control::Scrub { region_id: 5 },
            Control::Digest { ticket: 6, begun: 7, region_id: 8 },
            Control::Checkpoint { session: 9, limit: 10 },
            Control::CopyWanted,
            Control::CopyPart { session: 9, number: 10, region_id: 11, count: 12 },
            Control::ActAs { behavior: 13 },
            Control::Set { number: 1, value: 14, founds: true },
            Control::Move { replica: 2, address: "db-3:7".into() },
            Control::Size(SizeWish::Begin { size: 5, addresses: vec!["d:1".into(), "e:1".into()] }),
            Control::Size(SizeWish::End { change: 3 }),
            Control::Size(SizeWish::GiveUp { change: 4 }),
            Control::Answered { digests: vec![5, u128::MAX] },
            Control::Gone { replica: 2, incarnation: 6 },
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
                // A shorter list is a valid request as well, and so is a checkpoint of before.
                let is_valid = matches!(
                    shorter,
                    Some(Control::Recheck { .. } | Control::CopyWanted | Control::Answered { .. })
                );
                assert!(shorter.is_none() || is_valid, "{control:?} at {cut}");
            }
            let longer = Bytes::from([&bytes[..], &[0]].concat());
            assert_eq!(Control::decode(&longer), None, "{control:?}");
        }
    }
}
