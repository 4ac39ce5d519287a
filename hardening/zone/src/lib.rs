//! A DNS zone for tools and tests: what it knows about a name is a function of the name, so that the right reply to
//! every query is known. [`serve`] answers for it with authority; [`check`] decides whether a resolver's reply is
//! right.

mod question;
mod reply;
mod server;

pub use question::{A, CNAME, DATAGRAM, KnownRecords, MX, NS, Question, SOA, TTL, TXT, ZoneRecord};
pub use reply::{WrongAnswer, check, id};
pub use server::serve;
