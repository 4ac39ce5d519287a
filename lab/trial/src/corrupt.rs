//! Corrupts one replica at a steady rate through its injector, until it is stopped.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crosscheck::admin::client::connect;
use crosscheck::admin::{AdminCommand, AdminStream, Corruption, Endpoint, Inject, Injected, line};
use node::cluster::ReplicaHandle;
use wire::SplitMix64;

use crate::client::SharedRun;
use crate::draw::stream;
use crate::plan::CorruptionPlan;

/// Connections used in turn: a replica answers one command of a connection after the other. It takes
/// [`crosscheck::limits::ADMIN_CONNECTIONS`], and other threads connect too.
const LANES: usize = 24;
const _: () = assert!(LANES + 4 <= crosscheck::limits::ADMIN_CONNECTIONS);
/// How long a replica may take to accept.
const CONNECT: Duration = Duration::from_millis(500);
/// Pause between two checks of the connections.
const LOOK: Duration = Duration::from_millis(2);
/// Pause between two attempts to reach a replica that is down.
const RECONNECT: Duration = Duration::from_millis(200);
/// How long the last answers are waited for.
const LAST_ANSWERS: Duration = Duration::from_secs(20);
/// The most armed faults while no ordered turn has come. In a replica that executes nothing none takes effect, and all
/// would take effect at once afterwards.
const MOST_ARMED: u64 = 16;

/// Counts of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Faults that were due, by the rate.
    pub due: u64,
    /// Faults that the replica confirmed to be in place.
    pub placed: u64,
}

/// Places faults until it is finished or dropped.
#[derive(Debug)]
pub struct Corrupter {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Placed>>,
}

impl Corrupter {
    /// Begins to corrupt a replica. Every second fault in an object hits one that clients use.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        victim: &ReplicaHandle,
        corruption: &CorruptionPlan,
        shared: &Arc<SharedRun>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let series = CorruptionSeries {
            victim: victim.admin.clone(),
            kinds: corruption.kinds.clone(),
            shared: Arc::clone(shared),
            draw: stream(seed, 0xFA17),
            lanes: (0..LANES).map(|_| Lane::default()).collect(),
            retry_at: Instant::now(),
            armed: 0,
            placed: Placed::default(),
        };
        let gap = Duration::from_secs_f64(1.0 / corruption.per_second);
        let pending = Arc::clone(&over);
        let thread =
            thread::Builder::new().name("corrupter".into()).spawn(move || series.run(gap, &pending))?;
        Ok(Corrupter { over, thread: Some(thread) })
    }

    /// Stops placing faults, waits until the pending ones are in place, and returns the counts.
    pub fn finish(mut self) -> Placed {
        self.over.store(true, Ordering::Relaxed);
        let placed = self.thread.take().map(JoinHandle::join);
        // A panic of the thread is a bug of this program; its message is on stderr.
        placed.map_or_else(Placed::default, |placed| placed.unwrap_or_default())
    }
}

impl Drop for Corrupter {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Whether a fault of this kind is placed at an ordered turn, and is confirmed then.
fn takes_a_turn(kind: Corruption) -> bool {
    use Corruption::{Checksum, Doubled, Flip, Id, Length, Lost, MultiFlip};
    matches!(kind, Flip | MultiFlip | Checksum | Id | Length | Lost | Doubled)
}

struct CorruptionSeries {
    victim: Endpoint,
    kinds: Vec<Corruption>,
    shared: Arc<SharedRun>,
    draw: SplitMix64,
    lanes: Vec<Lane>,
    retry_at: Instant,
    /// Armed since the last ordered turn.
    armed: u64,
    placed: Placed,
}

/// One connection to the victim's admin socket, with at most one pending command.
#[derive(Debug, Default)]
struct Lane {
    stream: Option<AdminStream>,
    pending: Option<Corruption>,
    answer: Vec<u8>,
}

impl CorruptionSeries {
    fn run(mut self, gap: Duration, over: &AtomicBool) -> Placed {
        let begin = Instant::now();
        while !over.load(Ordering::Relaxed) {
            self.listen();
            let due = (begin.elapsed().as_secs_f64() / gap.as_secs_f64()) as u64;
            // Faults that could not be placed in time are not placed later.
            if self.placed.due < due {
                self.placed.due += 1;
                self.place();
            } else {
                thread::sleep(LOOK);
            }
        }
        let deadline = Instant::now() + LAST_ANSWERS;
        while self.lanes.iter().any(|lane| lane.pending.is_some()) && Instant::now() < deadline {
            self.listen();
            thread::sleep(LOOK);
        }
        self.placed
    }

    fn place(&mut self) {
        let kind = self.kinds[self.draw.below(self.kinds.len() as u64) as usize];
        let seed = self.draw.next_u64();
        if !takes_a_turn(kind) && self.armed >= MOST_ARMED {
            return;
        }
        let Some(free) = self.lanes.iter().position(|lane| lane.pending.is_none()) else { return };
        if self.lanes[free].stream.is_none() {
            if Instant::now() < self.retry_at {
                return;
            }
            match connect(&self.victim, CONNECT) {
                Ok(stream) => self.lanes[free].stream = Some(stream),
                Err(_) => {
                    self.retry_at = Instant::now() + RECONNECT;
                    return;
                }
            }
        }
        let object = self.object(kind);
        let inject = Inject { kind, object, bit: None, member: None, seed };
        if self.lanes[free].ask(kind, &AdminCommand::Inject(inject)) && !takes_a_turn(kind) {
            self.armed += 1;
        }
    }

    /// An object that clients use now, every second time; otherwise the replica chooses from all objects. A fault
    /// that waits for a request names no object: with a key that no client uses any more, it would wait until another
    /// replica is wrong.
    fn object(&mut self, kind: Corruption) -> Option<String> {
        if !takes_a_turn(kind) || self.draw.below(2) == 0 {
            return None;
        }
        let shared = &self.shared;
        let keys = (shared.generation_now(), shared.run);
        Some(shared.service.object(&mut self.draw, keys, shared.accounts))
    }

    fn listen(&mut self) {
        for lane in &mut self.lanes {
            let Some(kind) = lane.pending else { continue };
            let Some(done) = lane.listen() else { continue };
            self.placed.placed += u64::from(done);
            if done && takes_a_turn(kind) {
                self.armed = 0;
            }
        }
    }
}

impl Lane {
    fn ask(&mut self, kind: Corruption, command: &AdminCommand) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let sent = stream
            .set_nonblocking(true)
            .and_then(|()| stream.write_all(line::of_command(command).as_bytes()));
        if sent.is_err() {
            self.stream = None;
            return false;
        }
        self.pending = Some(kind);
        true
    }

    /// Whether the fault is in place; none while there is no answer.
    fn listen(&mut self) -> Option<bool> {
        let mut bytes = [0; 4096];
        let stream = self.stream.as_mut()?;
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => self.answer.extend_from_slice(&bytes[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return None;
            }
            // The replica has ended, and the fault with it.
            _ => {
                *self = Lane::default();
                return Some(false);
            }
        }
        if !self.answer.ends_with(b"\n") {
            return None;
        }
        let done = serde_json::from_slice::<Injected>(&self.answer).is_ok_and(|injected| injected.done);
        self.answer.clear();
        self.pending = None;
        Some(done)
    }
}
