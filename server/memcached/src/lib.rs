//! The memcached service: memcached's protocols, and its items, table and eviction as protected objects.
//!
//! [`Connection`] turns a client's bytes into ordered requests or local answers; [`Memcached`] executes the ordered
//! requests on shards of protected objects, each behind its own lock, and renders the exact bytes of the reply. Nothing
//! here depends on replication.

pub mod command;
pub mod config;
mod handlers;
pub mod limits;
pub mod protocol;
mod service;
pub mod settings;
pub mod sizes;
pub mod stats;
pub mod store;
pub mod watch;
#[cfg(feature = "lab")]
pub mod work;

pub use config::Config;
pub use protocol::Connection;
pub use service::Memcached;
pub use store::CLASSES;
#[cfg(feature = "lab")]
pub use store::protect_only;
