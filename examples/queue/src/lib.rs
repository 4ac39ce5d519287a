//! A work queue that beanstalkd's clients use, as a protected, replicated service: the first one on collections.
//!
//! - `job`, `tube`, `tubes`: what is protected from corruption, as critical structs: [`QueuedJob`], [`Tube`], and
//!   [`Tubes`], the state behind one lock.
//! - `request`: the requests, and their encoding in the log.
//! - `service`: the locks, the footprints and the handlers.
//! - `protocol`: beanstalkd's protocol; `stats`: the text of `stats`.
//! - `settings`: what an operator sets.
//! - `program`: what makes a program of these.

mod job;
mod program;
mod protocol;
mod request;
mod service;
mod settings;
mod stats;
mod tube;
mod tubes;

pub use job::{JobId, JobState, QueuedJob};
pub use program::QueueProgram;
pub use protocol::BeanstalkConnection;
pub use request::{QueueCommand, QueueRequest, Sender};
pub use service::WorkQueue;
pub use settings::Setting;
pub use tube::Tube;
pub use tubes::Tubes;

/// Locks of the service: tubes are hashed over so many regions. At most 16, the locks of a footprint.
pub const REGIONS: u32 = 16;
/// The tube that every connection uses and watches at first.
pub const DEFAULT_TUBE: &str = "default";
/// Longest body of a job, in bytes: beanstalkd's default.
pub const MAX_JOB_BYTES: u32 = 65_535;
/// Longest name of a tube, in bytes.
pub const MAX_NAME_BYTES: usize = 200;
/// Tubes that one connection may watch at a time.
pub const MAX_WATCHED: usize = 256;
/// Tubes of one region; with more, `put` answers `OUT_OF_MEMORY`.
pub const MAX_TUBES: usize = 1_000;
/// Jobs that one `kick` moves at most.
pub const MAX_KICKED: u32 = 1_000;

/// FNV-1a of the name of a tube.
fn hash_of(name: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step)
}

/// The region of a tube.
pub fn region_of_tube(name: &str) -> u32 {
    let hash = hash_of(name);
    (hash ^ hash >> 16) % REGIONS
}

/// The region of a job: that of its tube is a part of its id.
pub fn region_of_job(id: JobId) -> u32 {
    (id % u64::from(REGIONS)) as u32
}

/// The regions in a set of them, which has a bit for each.
pub fn regions_in(set: u16) -> impl Iterator<Item = u32> {
    (0..REGIONS).filter(move |region| set >> region & 1 == 1)
}
