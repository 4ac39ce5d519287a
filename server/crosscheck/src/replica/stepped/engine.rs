//! The two engines that order what a stepped replica runs, as one type: its mode decides when it starts.

use bytes::Bytes;
use order::{
    Blame, Decision, Declined, Encoded, EngineOut, FrameKind, Leadership, LogError, LogStore, NotNow,
    OrderEngine, PrimaryEngine, PrimaryView, RaftEngine, Standing, Tolerance,
};

/// The engine of a stepped replica.
pub enum SteppedEngine {
    /// Positions are agreed on before execution.
    Raft(Box<RaftEngine<Box<dyn LogStore>>>),
    /// With V: a primary numbers batches.
    Primary(Box<PrimaryEngine>),
}

/// Each method of the trait, by the engine that there is.
macro_rules! by_either {
    (
        reads { $($read:ident($($arg:ident: $type:ty),*) -> $found:ty;)* }
        changes { $($change:ident($($with:ident: $of:ty),*) -> $result:ty;)* }
    ) => {
        impl OrderEngine for SteppedEngine {
            $(fn $read(&self $(, $arg: $type)*) -> $found {
                match self {
                    SteppedEngine::Raft(engine) => engine.$read($($arg),*),
                    SteppedEngine::Primary(engine) => engine.$read($($arg),*),
                }
            })*
            $(fn $change(&mut self $(, $with: $of)*) -> $result {
                match self {
                    SteppedEngine::Raft(engine) => engine.$change($($with),*),
                    SteppedEngine::Primary(engine) => engine.$change($($with),*),
                }
            })*
        }
    };
}

by_either! {
    reads {
        needs_persist() -> bool;
        standing() -> Standing;
        leadership() -> Leadership;
        hands_on() -> bool;
        backlog() -> u64;
        tolerance() -> Option<Tolerance>;
        compaction_floor() -> u64;
        life_of(slot: u8) -> Option<u32>;
    }
    changes {
        propose(entry: Encoded) -> Result<(), NotNow>;
        on_frame(from: u8, kind: FrameKind, body: Bytes) -> Result<(), Blame>;
        tick() -> ();
        peer_up(peer: u8) -> ();
        peer_down(peer: u8) -> ();
        pump(out: &mut EngineOut) -> ();
        persist(out: &mut EngineOut) -> ();
        delivered(index: u64) -> ();
        state_available(checkpoint: u64) -> ();
        state_freed(checkpoint: u64) -> ();
        installed(checkpoint: u64) -> bool;
        state_lost(checkpoint: u64) -> ();
        want_state_after(number: u64) -> ();
        forget() -> Result<(), LogError>;
        compact_to(index: u64) -> bool;
        transfer_leader(slot: u8) -> ();
        campaign() -> ();
        decide(decision: Decision) -> Result<(), Declined>;
        accept_stamps(until_us: u64) -> ();
        begin_view(view: PrimaryView) -> bool;
        rewind_to(index: u64) -> ();
        stable(number: u64) -> ();
    }
}

#[cfg(feature = "inject")]
impl SteppedEngine {
    /// Where a simulation injects faults.
    pub fn faults(&mut self) -> &mut dyn order::EngineFaults {
        match self {
            SteppedEngine::Raft(engine) => &mut **engine,
            SteppedEngine::Primary(engine) => &mut **engine,
        }
    }
}
