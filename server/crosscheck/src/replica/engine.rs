//! The engines that may order a replica's requests, as one type: the mode decides which one when the replica starts.
//! The rest of a replica is compiled once, not once for each engine.

use std::time::Duration;

use bytes::Bytes;
use order::{
    BeginningState, Blame, Decision, DecisionError, Encoded, EngineOut, EngineStatus, FrameKind, GroupSize,
    Leadership, LogError, LogStore, NotNow, OrderEngine, PrimaryEngine, PrimaryView, RaftConfig, RaftEngine,
    Record, SingleEngine, Tolerance,
};

use crate::{Settings, limits};

/// Randomness for the stamps of the batches that this replica leads: an input of the order, never a decision.
pub(crate) fn seed() -> u64 {
    crate::world::wall_us().rotate_left(20) ^ u64::from(std::process::id())
}

/// The engine of a replica.
pub enum Engine {
    /// The only replica numbers its requests itself.
    Single(SingleEngine),
    /// Positions are agreed on before execution.
    Raft(Box<RaftEngine<Box<dyn LogStore>>>),
    /// In verified mode: a primary numbers batches.
    Primary(Box<PrimaryEngine>),
}

/// Each method of the trait, by the engine that there is. In line: a round asks a dozen times, and most answers of the
/// only replica are constants.
macro_rules! by_variant {
    (
        reads { $($read:ident($($arg:ident: $type:ty),*) -> $found:ty;)* }
        changes { $($change:ident($($with:ident: $of:ty),*) -> $result:ty;)* }
    ) => {
        impl OrderEngine for Engine {
            $(#[inline]
            fn $read(&self $(, $arg: $type)*) -> $found {
                match self {
                    Engine::Single(engine) => engine.$read($($arg),*),
                    Engine::Raft(engine) => engine.$read($($arg),*),
                    Engine::Primary(engine) => engine.$read($($arg),*),
                }
            })*
            $(#[inline]
            fn $change(&mut self $(, $with: $of)*) -> $result {
                match self {
                    Engine::Single(engine) => engine.$change($($with),*),
                    Engine::Raft(engine) => engine.$change($($with),*),
                    Engine::Primary(engine) => engine.$change($($with),*),
                }
            })*
        }
    };
}

by_variant! {
    reads {
        needs_persist() -> bool;
        engine_status() -> EngineStatus;
        leadership() -> Leadership;
        hands_on() -> bool;
        backlog() -> u64;
        tolerance() -> Option<Tolerance>;
        compaction_floor() -> u64;
        successor(among: u16) -> Option<u8>;
        admitted_incarnation(slot: u8) -> Option<u32>;
    }
    changes {
        propose(entry: Encoded) -> Result<(), NotNow>;
        on_frame(from: u8, kind: FrameKind, body: Bytes) -> Result<(), Blame>;
        handed_over(batch: &Encoded) -> ();
        tick() -> ();
        peer_up(peer: u8) -> ();
        peer_down(peer: u8) -> ();
        resize(size: GroupSize) -> ();
        rest() -> ();
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
        decide(decision: Decision) -> Result<(), DecisionError>;
        accept_stamps(until_us: u64) -> ();
        begin_view(view: PrimaryView) -> bool;
        rewind_to(index: u64) -> ();
        stable(number: u64) -> ();
    }
}

impl Engine {
    /// The consensus engine over its log. The pipeline's state includes the entries up to `applied`; a group that is
    /// founded begins with this state.
    ///
    /// # Errors
    /// When the log cannot be used.
    pub(crate) fn raft(
        settings: &Settings,
        log: impl LogStore + 'static,
        records: Vec<Record>,
        (applied, begins_with): (u64, BeginningState),
    ) -> Result<Self, LogError> {
        let replicas = settings.peers.len() as u8;
        let ticks = |time: Duration| (time.as_micros() / limits::TICK.as_micros()).max(2) as usize;
        let mut config = RaftConfig::new(settings.me, replicas, seed(), seed().rotate_left(7));
        config.found = settings.begins || replicas == 1;
        config.begins_with = begins_with;
        config.scale.kept_bytes = settings.buffer_limit as u64 / 4;
        config.election_ticks =
            (ticks(settings.election.0), ticks(settings.election.1).max(ticks(settings.election.0) + 1));
        let log: Box<dyn LogStore> = Box::new(log);
        Ok(Engine::Raft(Box::new(RaftEngine::new(config, log, records, applied)?)))
    }
}

#[cfg(feature = "inject")]
impl Engine {
    /// Where a simulation injects faults.
    pub fn faults(&mut self) -> &mut dyn order::EngineFaults {
        match self {
            Engine::Single(engine) => engine,
            Engine::Raft(engine) => &mut **engine,
            Engine::Primary(engine) => &mut **engine,
        }
    }
}
