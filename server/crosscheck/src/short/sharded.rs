//! The service that a state in short form makes: as many parts of it as there are locks, and the requests on them.

use bytes::Bytes;
use object::{Critical, ObjectId, Region, RegionId, Shape, Summed, genesis};
use schedule::{DetMutex, Footprint, Locks, Retry};
use wire::Malformed;

use super::{Answer, Language};
use crate::connections::{ConnectionId, ConnectionsOfReplica};
use crate::cx::Cx;
use crate::later::Owed;
use crate::service::Service;

/// The context of a method of `T`: time, random numbers, timers, and replies that come later ([`crate::Cx`]).
pub type Ctx<'a, T> = Cx<'a, Sharded<T>>;

/// Connections that have ended: for the method that is marked `#[closed]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub enum Ended {
    /// This one.
    One(ConnectionId),
    /// Those of a replica whose process has ended.
    OfReplica(ConnectionsOfReplica),
}

impl Ended {
    /// Whether this connection is one of them.
    pub fn contains(&self, connection: ConnectionId) -> bool {
        match self {
            Ended::One(id) => *id == connection,
            Ended::OfReplica(connections) => connections.contains(connection),
        }
    }
}

/// The part of the state that is behind one lock, and its requests. The macros [`service`](object::service) and
/// [`handlers`](object::handlers) write it.
pub trait StatePart: PartSettings + Critical + Region {
    /// The requests.
    type Request: Summed + Clone + Send + Sync + 'static;

    /// The request that a client's command is: its name in small letters, and its further words.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    fn request(name: &[u8], arguments: &[&[u8]], client: ConnectionId) -> Result<Self::Request, String>;

    /// The request for the end of connections; none if no method is marked `#[closed]`.
    fn closed(ended: Ended) -> Option<Self::Request>;

    /// The key of a request, as bytes; none for one that runs on every part.
    fn key(request: &Self::Request) -> Option<Vec<u8>>;

    /// Runs a request on this part.
    fn run(&mut self, cx: &Ctx<'_, Self>, request: &Self::Request) -> Answer;

    /// The name of its own object.
    fn name(&self) -> ObjectId;

    /// The number of its kind.
    fn kind(request: &Self::Request) -> u16;

    /// The name of a kind.
    fn kind_name(kind: u16) -> Option<&'static str>;
}

/// What the struct of a service in short form says.
pub trait PartSettings: Sized + Send + 'static {
    /// How its clients speak.
    type Language: Language;
    /// The program's name.
    const NAME: &'static str;
    /// The version of its package.
    const VERSION: &'static str;
    /// What it is, in one line: the comment above the struct.
    const ABOUT: &'static str;
    /// Client port of the first replica.
    const PORT: u16;
    /// How many parts there are, each behind a lock.
    const SHARDS: u32;

    /// A part without contents.
    fn first() -> Self;
}

/// A service whose state is in a number of equal parts.
#[derive(Locks)]
pub struct Sharded<T: StatePart> {
    parts: Vec<DetMutex<T>>,
}

impl<T: StatePart> Sharded<T> {
    /// A service without contents.
    pub fn new() -> Self {
        let part = |region_id| DetMutex::new(region_id, genesis(region_id, T::first));
        Sharded { parts: (0..T::SHARDS).map(part).collect() }
    }
}

impl<T: StatePart> Default for Sharded<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The part that a key belongs to.
fn part_of(key: &[u8], parts: u32) -> RegionId {
    wire::crc32c(key) % parts.max(1)
}

impl<T: StatePart> Cx<'_, Sharded<T>> {
    /// Answers a request that owes its reply ([`Cx::owe_reply`]).
    pub fn answer(&self, owed: Owed, answer: impl Into<Answer>) {
        let mut reply = Vec::new();
        T::Language::write(&answer.into(), &mut reply);
        self.reply_to(owed, &reply);
    }
}

impl<T: StatePart> Service for Sharded<T> {
    type Request = T::Request;

    fn decode(&self, ordered: &Bytes) -> Result<T::Request, Malformed> {
        object::from_bytes(ordered)
    }

    fn encode(&self, request: &T::Request) -> Vec<u8> {
        object::to_bytes(request)
    }

    fn shape_of_requests(shape: &mut Shape) {
        shape.add::<T::Request>();
    }

    fn footprint(&self, request: &T::Request, footprint: &mut Footprint) {
        match T::key(request) {
            Some(key) => footprint.write(part_of(&key, T::SHARDS)),
            None => (0..T::SHARDS).for_each(|part| footprint.write(part)),
        }
    }

    fn execute(&self, cx: &Ctx<'_, T>, request: &T::Request, reply: &mut Vec<u8>) -> Result<(), Retry> {
        let mut answer = Answer::Done;
        match T::key(request) {
            Some(key) => {
                if let Some(part) = self.parts.get(part_of(&key, T::SHARDS) as usize) {
                    answer = cx.lock(part)?.run(cx, request);
                }
            }
            None => {
                for part in &self.parts {
                    answer = cx.lock(part)?.run(cx, request);
                }
            }
        }
        T::Language::write(&answer, reply);
        Ok(())
    }

    fn panicked(&self, _request: &T::Request, reply: &mut Vec<u8>) {
        T::Language::write(&Answer::Error("internal error; nothing was changed".to_owned()), reply);
    }

    fn closed(&self, connections: ConnectionsOfReplica) -> Option<T::Request> {
        T::closed(Ended::OfReplica(connections))
    }

    fn kind(&self, request: &T::Request) -> u16 {
        T::kind(request)
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        T::kind_name(kind)
    }

    /// `key:NAME` is the part that this key belongs to, and `part:N` the part with this number.
    fn region_id_of(&self, name: &str) -> Option<RegionId> {
        match name.split_once(':')? {
            ("key", key) => Some(part_of(&object::to_bytes(&key.to_owned()), T::SHARDS)),
            ("part", number) => number.parse().ok().filter(|part| *part < T::SHARDS),
            _ => None,
        }
    }

    fn find(&self, cx: &Ctx<'_, T>, name: &str) -> Option<ObjectId> {
        let part = self.parts.get(self.region_id_of(name)? as usize)?;
        Some(cx.lock(part).ok()?.name())
    }
}
