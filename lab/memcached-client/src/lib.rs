//! The laboratory's one memcached client: requests and replies, the model of right replies, a load that checks every
//! byte, and the check of histories; and where hardened programs are for it.

mod blocking;
mod connection;
pub mod hardened;
pub mod history;
pub mod load;
pub mod model;
pub mod pattern;
pub mod reply;
pub mod request;
pub mod testing;

pub use blocking::{CasReply, Client, Failure, Value};
pub use connection::BufferedStream;
pub use model::{CachedItem, States};
pub use pattern::Pattern;
pub use reply::{TakenReply, TextReply};
pub use request::{KeyCommand, KeyRequest, StoreVerb, Syntax};
