//! A small replicated service with real objects and real checksums, for the tests of this crate.

use std::collections::BTreeMap;

use bytes::Bytes;
use object::{ObjectId, Pair, RegionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Content, Failure, Packed, Pairs, Recover, RequestInfo, RequestResult, digest};

pub(crate) const REGION_IDS: RegionId = 2;

/// One object: a value and the checksum it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub value: u64,
    pub sum: u64,
}

impl Object {
    fn sealed(id: ObjectId, value: u64) -> Object {
        Object { value, sum: sum(id, value) }
    }
}

fn sum(id: ObjectId, value: u64) -> u64 {
    let mut bytes = [0u8; 16];
    bytes[..8].copy_from_slice(&id.to_bits().to_le_bytes());
    bytes[8..].copy_from_slice(&value.to_le_bytes());
    xxh3_64(&bytes).max(1)
}

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Sets and answers the value.
    Set(u8, u64),
    /// Adds to one key the value of another and answers the result.
    Add(u8, u8),
    Get(u8),
    Remove(u8),
    /// Answers so many bytes and touches nothing.
    Long(u32),
    /// Counts a key up and sets a timer.
    Start(u8),
}

/// Checksum of the ordered request.
pub(crate) fn checksum(op: Op) -> u32 {
    xxh3_64(format!("{op:?}").as_bytes()) as u32
}

/// An entry of the order.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    Op(Op),
    Recover(Recover),
}

/// The state of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub objects: BTreeMap<(RegionId, ObjectId), Object>,
    /// The keys of the timers that are set.
    pub timers: Vec<u8>,
}

pub(crate) fn key(key: u8) -> (RegionId, ObjectId) {
    (key as RegionId % REGION_IDS, ObjectId::new(1, key as u16))
}

/// An error while a request runs, after the checks and before the seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slip {
    None,
    /// A value is wrong when it is sealed.
    Value(u64),
    /// The reply is wrong when it is digested.
    Reply,
    /// The handler panics.
    Panic,
    /// The handler removes the object it should have written.
    Removes,
    /// The handler creates an object that the request does not need.
    Creates,
    /// The handler sets no timer.
    Starts,
}

impl State {
    /// Runs one request; a failed entry check abandons it without a trace.
    pub(crate) fn run(&mut self, op: Op, mine: bool, slip: Slip) -> RequestResult {
        let before = self.clone();
        let request_info = RequestInfo {
            checksum: checksum(op),
            mine,
            of_client: true,
            kind: kind(op),
            ..RequestInfo::default()
        };
        match self.attempt(op, slip) {
            Ok((pairs, reply)) => {
                let pairs: Pairs =
                    pairs.into_iter().map(|((region_id, id), sum)| Pair { region_id, id, sum }).collect();
                let started = match (op, slip) {
                    (Op::Start(_), Slip::Starts) => 0,
                    (Op::Start(key), _) => {
                        self.timers.push(key);
                        digest::started(0, Some(u64::from(key)), &[key])
                    }
                    _ => 0,
                };
                let mut result = RequestResult::new(request_info, pairs, Bytes::from(reply));
                result.set_started(started);
                result
            }
            Err(failure) => {
                *self = before;
                RequestResult::abandoned(request_info, failure)
            }
        }
    }

    #[allow(clippy::type_complexity)]
    fn attempt(
        &mut self,
        op: Op,
        slip: Slip,
    ) -> Result<(BTreeMap<(RegionId, ObjectId), u64>, Vec<u8>), Failure> {
        let mut pairs = BTreeMap::new();
        let mut read = |state: &State, at: (RegionId, ObjectId)| -> Result<Option<u64>, Failure> {
            let Some(object) = state.objects.get(&at) else { return Ok(None) };
            if sum(at.1, object.value) != object.sum {
                return Err(Failure::Check { region_id: at.0, id: at.1 });
            }
            pairs.insert(at, object.sum);
            Ok(Some(object.value))
        };
        if slip == Slip::Panic {
            return Err(Failure::Panic);
        }
        let (target, value) = match op {
            Op::Get(k) => (key(k), read(self, key(k))?),
            Op::Set(k, value) => {
                read(self, key(k))?;
                (key(k), Some(value))
            }
            Op::Start(k) => (key(k), Some(read(self, key(k))?.unwrap_or(0).wrapping_add(1))),
            Op::Add(k, other) => {
                let (a, b) = (read(self, key(k))?, read(self, key(other))?);
                (key(k), Some(a.unwrap_or(0).wrapping_add(b.unwrap_or(1))))
            }
            Op::Remove(k) => {
                read(self, key(k))?;
                (key(k), None)
            }
            Op::Long(length) => {
                let wrong = u8::from(slip == Slip::Reply);
                return Ok((pairs, (0..length).map(|at| at as u8 ^ wrong).collect()));
            }
        };
        let mut reply = format!("{value:?}").into_bytes();
        if slip == Slip::Reply {
            reply[0] ^= 4;
        }
        if !matches!(op, Op::Get(_)) {
            let value = match slip {
                Slip::Value(flip) => value.map(|value| value ^ flip),
                Slip::Removes => None,
                _ => value,
            };
            self.write(target, value, &mut pairs);
        }
        if slip == Slip::Creates {
            self.write((target.0, ObjectId::new(9, 9)), Some(7), &mut pairs);
        }
        Ok((pairs, reply))
    }

    fn write(
        &mut self,
        at: (RegionId, ObjectId),
        value: Option<u64>,
        pairs: &mut BTreeMap<(RegionId, ObjectId), u64>,
    ) {
        match value {
            Some(value) => {
                let object = Object::sealed(at.1, value);
                pairs.insert(at, object.sum);
                self.objects.insert(at, object);
            }
            None => {
                if self.objects.remove(&at).is_some() {
                    pairs.insert(at, Pair::REMOVED);
                }
            }
        }
    }

    pub(crate) fn is_intact(&self, at: (RegionId, ObjectId)) -> bool {
        self.objects.get(&at).is_none_or(|object| object.sum == sum(at.1, object.value))
    }

    /// The result of a RECOVER for the vote: the objects that it lists, with their present values.
    pub(crate) fn recovered(&self, recover: &Recover) -> RequestResult {
        let request_info = RequestInfo::default();
        if let Some((region_id, id)) = recover.objects.iter().copied().find(|at| !self.is_intact(*at)) {
            return RequestResult::abandoned(request_info, Failure::Check { region_id, id });
        }
        let pair = |at: &(RegionId, ObjectId)| {
            let sum = self.objects.get(at).map_or(Pair::REMOVED, |object| object.sum);
            Pair { region_id: at.0, id: at.1, sum }
        };
        RequestResult::new(request_info, recover.objects.iter().map(pair).collect(), Bytes::new())
    }

    /// Packs the objects of a RECOVER.
    pub(crate) fn pack(&self, recover: &Recover) -> Vec<Packed> {
        recover
            .targets()
            .map(|(region_id, id)| Packed { region_id, id, content: self.pack_one(region_id, id) })
            .collect()
    }

    fn pack_one(&self, region_id: RegionId, id: ObjectId) -> Content {
        let one = |(at, object): (&(RegionId, ObjectId), &Object)| {
            let mut bytes = at.1.to_bits().to_le_bytes().to_vec();
            bytes.extend_from_slice(&object.value.to_le_bytes());
            bytes
        };
        if id.is_none() {
            let region = self.objects.iter().filter(|(at, _)| at.0 == region_id);
            return Content::Present(Bytes::from(region.flat_map(one).collect::<Vec<u8>>()));
        }
        match self.objects.get_key_value(&(region_id, id)) {
            Some(_) if !self.is_intact((region_id, id)) => Content::Damaged,
            Some(object) => Content::Present(Bytes::from(one(object))),
            None => Content::Absent,
        }
    }

    /// Overwrites, creates and drops objects.
    pub(crate) fn install(&mut self, objects: &[Packed]) {
        for packed in objects {
            if packed.id.is_none() {
                self.objects.retain(|at, _| at.0 != packed.region_id);
            }
            let Content::Present(bytes) = &packed.content else {
                self.objects.remove(&(packed.region_id, packed.id));
                continue;
            };
            for one in bytes.chunks_exact(16) {
                let id = ObjectId::from_bits(u64::from_le_bytes(one[..8].try_into().expect("8 bytes")));
                let value = u64::from_le_bytes(one[8..].try_into().expect("8 bytes"));
                self.objects.insert((packed.region_id, id), Object::sealed(id, value));
            }
        }
    }
}

fn kind(op: Op) -> u16 {
    match op {
        Op::Set(..) => 1,
        Op::Add(..) => 2,
        Op::Get(..) => 3,
        Op::Remove(..) => 4,
        Op::Long(..) => 5,
        Op::Start(..) => 6,
    }
}
