//! The short form of a service: state behind some locks, by a key, and methods that are its requests. Footprints,
//! codec, names, kinds and the protocol follow from them.
//!
//! ```
//! use crosscheck::short::{Answer, Ctx, Map, Resp, handlers, service};
//!
//! /// Counters by name.
//! #[service(port = 6379, protocol = Resp)]
//! pub struct Counters {
//!     counts: Map<String, u64>,
//! }
//!
//! #[handlers]
//! impl Counters {
//!     /// Adds to a counter, and answers with what it is then.
//!     fn add(&mut self, _cx: &Ctx<'_, Counters>, #[key] name: String, more: u64) -> Answer {
//!         let count = self.counts.get(&name).copied().unwrap_or(0).saturating_add(more);
//!         self.counts.insert(name, count);
//!         count.into()
//!     }
//! }
//!
//! let mut replica = crosscheck::testing::Replica::new(crosscheck::short::Sharded::<Counters>::new());
//! let mut client = crosscheck::short::connection::<Counters>();
//! assert_eq!(replica.talk(&mut client, b"ADD visits 2\r\nadd visits 3\r\n"), b":2\r\n:5\r\n");
//! ```
//!
//! The struct is what is behind *one* of a number of locks (16 unless `shards` says another number), a critical type
//! ([`object::critical`]). Each method is a request, in capitals; the method runs on the part of the state that the key
//! belongs to. A method without a key runs on every part, one after the other, and its last answer is the client's. An
//! argument of type [`ConnectionId`] is the client's connection, and no word of the command. A method that is marked
//! `#[closed]` is no command: it runs on every part when connections have ended ([`Ended`]).
//!
//! What this generates is what docs/first-service.md says in the long form: a [`Service`](crate::Service) that is
//! [`Sharded`], whose requests are an enum (`CountersRequest::Add { name, more }`), and a
//! [`Protocol`]. A service that outgrows this form writes these itself; its state can stay as it is.

mod answer;
mod frames;
mod lines;
mod resp;
mod sharded;
mod word;

use std::marker::PhantomData;

pub use answer::Answer;
pub use frames::Frames;
pub use lines::Lines;
pub use object::{Map, Queue, Set, Summed, Table, handlers, service};
pub use resp::{Resp, Unread, words};
pub use sharded::{Ctx, Ended, PartSettings, Sharded, StatePart};
pub use word::Word;
#[doc(hidden)]
pub use word::argument as argument_of;

use crate::connections::ConnectionId;
use crate::service::{Action, Progress, Protocol};

/// How the clients of a service in short form speak.
pub trait Language: Send + Sync + 'static {
    /// The command at the beginning of `input`, and how many bytes it takes; without words it is to be passed over.
    ///
    /// # Errors
    /// Why there is none, or none yet.
    fn read(input: &[u8]) -> Result<(usize, Vec<&[u8]>), Unread>;

    /// Appends an answer as a client gets it.
    fn write(answer: &Answer, reply: &mut Vec<u8>);

    /// Answers what is no command of the service: `PING`, for example.
    fn answers(_words: &[&[u8]]) -> Option<Action> {
        None
    }
}

/// The client's end of a service in short form: one connection.
pub struct ShortConnection<T> {
    id: ConnectionId,
    /// It has sent a request, so the service may keep something for it.
    has_asked: bool,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for ShortConnection<T> {
    fn clone(&self) -> Self {
        ShortConnection { ..*self }
    }
}

impl<T> PartialEq for ShortConnection<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.has_asked) == (other.id, other.has_asked)
    }
}

impl<T> std::fmt::Debug for ShortConnection<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

/// A connection for tests, as that of a client of replica 1.
pub fn connection<T: StatePart>() -> ShortConnection<T> {
    ShortConnection::new(ConnectionId::new(0, 1, 0))
}

impl<T: StatePart> ShortConnection<T> {
    /// The connection with this name.
    pub fn new(id: ConnectionId) -> Self {
        ShortConnection { id, has_asked: false, of: PhantomData }
    }
}

impl<T: StatePart> Protocol for ShortConnection<T> {
    fn next(&mut self, input: &[u8]) -> Progress {
        let said = |answer: Answer| {
            let mut reply = Vec::new();
            T::Language::write(&answer, &mut reply);
            reply
        };
        let (used, words) = match T::Language::read(input) {
            Ok(read) => read,
            Err(Unread::NeedMore(bytes)) => return Progress::NeedMore(bytes),
            // Where the next command begins is not known any more.
            Err(Unread::Broken(why)) => {
                let reply = said(Answer::Error(format!("protocol error: {why}")));
                return Progress::Done { used: input.len(), action: Action::Close(reply) };
            }
        };
        let action = match words.split_first() {
            None => Action::Nothing,
            Some((name, arguments)) => T::Language::answers(&words).unwrap_or_else(|| {
                match T::request(&name.to_ascii_lowercase(), arguments, self.id) {
                    Ok(request) => {
                        self.has_asked = true;
                        Action::Order(object::to_bytes(&request))
                    }
                    Err(why) => Action::Reply(said(Answer::Error(why))),
                }
            }),
        };
        Progress::Done { used, action }
    }

    fn closed(&mut self) -> Option<Vec<u8>> {
        let ended = T::closed(Ended::One(self.id)).filter(|_| self.has_asked)?;
        Some(object::to_bytes(&ended))
    }
}
