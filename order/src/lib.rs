//! Gives every request, and every repair, one agreed position; the only room that knows the consensus engine.
//!
//! Nothing here owns a socket, a thread or a clock: the pipeline brings frames and time, and performs the outputs (design
//! sections 5 and 8). The one thing that touches the disk is the log, behind the `LogStore` trait.
//!
//! - [`frame`]: the envelope of every message between replicas, for all rooms.
//! - [`batch`]: the unit that gets a position.
//! - [`Orderer`]: what the pipeline drives; exactly-once from any origin to every replica.
//! - [`OrderEngine`]: what may be exchanged below it: [`SingleEngine`], [`FanoutEngine`].

pub mod batch;
mod engine;
mod fanout;
pub mod frame;
pub mod limits;
mod log;
mod orderer;
mod own;
mod queue;
mod raft;
mod sessions;
mod single;
mod wire;

pub use batch::{Batch, Encoded, Request};
pub use engine::{Blame, Committed, EngineOut, FailStop, Members, NotNow, OrderEngine, Output, Standing};
pub use fanout::FanoutEngine;
pub use frame::{Decoder, Frame, FrameError, Kind};
pub use log::{FileLog, FileOptions, LogError, LogStore, MemoryLog, Record};
pub use orderer::{Config, Counters, Delivered, Orderer};
pub use own::{Batching, Refused};
pub use raft::{RaftConfig, RaftEngine};
pub use sessions::{Rule, Session, State};
pub use single::SingleEngine;
pub use wire::Malformed;
