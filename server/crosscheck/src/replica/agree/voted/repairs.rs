//! Repairs at this replica: workers that wait for the right objects, and the duration of repairs.

use std::collections::BTreeMap;
use std::sync::mpsc;

use object::{RegionId, ScrubFinding};
use vote::{Packed, Place};

use crate::ordered::Control;
use crate::overwrite::Overwritten;
use crate::replica::environment::Environment;
use crate::world::{Observation, World};
use crate::{ReplaceReason, Stop, evidence, limits};

/// The repairs that this replica needs, and their durations.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Workers that hold the turn of a RECOVER until its objects have arrived.
    awaited: BTreeMap<Place, Awaited>,
    /// The number of repairs that did not arrive since the last one that did.
    given_up: u32,
    /// When this replica learned that it was wrong at a place.
    verdicts_us: BTreeMap<Place, u64>,
    /// The same, by the place at which the repair has its turn.
    repairing_us: BTreeMap<Place, u64>,
    /// How long the last repair took.
    last_us: u64,
}

/// A worker that waits for the right objects.
#[derive(Debug)]
struct Awaited {
    install: mpsc::Sender<Vec<Packed>>,
    since_us: u64,
}

impl Repairs {
    /// A worker holds the turn of a RECOVER until the objects have arrived.
    pub(super) fn wait_for(
        &mut self,
        turn: Place,
        cause: Place,
        install: mpsc::Sender<Vec<Packed>>,
        since_us: u64,
    ) {
        // A replica that is behind reaches the turn before it receives the verdict; then the time of the turn counts.
        let verdict_us = self.verdicts_us.get(&cause).copied();
        keep_time(&mut self.repairing_us, turn, verdict_us.unwrap_or(since_us));
        self.awaited.insert(turn, Awaited { install, since_us });
    }

    /// Whether a worker waits.
    pub(super) fn are_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// The turn of a repair that was waited for too long.
    pub(super) fn overdue(&self, now_us: u64) -> Option<Place> {
        let patience_us = limits::REPAIR_PATIENCE.as_micros() as u64;
        let overdue = |awaited: &Awaited| now_us > awaited.since_us + patience_us;
        self.awaited.iter().find(|(_, awaited)| overdue(awaited)).map(|(turn, _)| *turn)
    }

    /// The objects have arrived: passes them to the worker that waits for them.
    pub(super) fn install<W: World>(&mut self, turn: Place, objects: Vec<Packed>, env: &mut Environment<W>) {
        if let Some(awaited) = self.awaited.remove(&turn) {
            env.world.see(Observation::Installing { turn, objects: &objects });
            // A worker that is gone took the process's service with it.
            env.lockstep.hand_over(|| awaited.install.send(objects).is_ok());
        }
    }

    /// Nothing is to be installed: the worker passes its turn.
    pub(super) fn pass<W: World>(&mut self, turn: Place, env: &Environment<W>) {
        if let Some(awaited) = self.awaited.remove(&turn) {
            stop_waiting(awaited.install, env);
        }
    }

    /// A repair did not arrive: the waiting worker passes its turn. Objects that are still wrong are detected again and
    /// repaired again, since donors may have had to be repaired themselves. The number of such attempts is bounded.
    pub(super) fn give_up<W: World>(&mut self, turn: Place, has_donors: bool, env: &mut Environment<W>) {
        let Some(awaited) = self.awaited.remove(&turn) else { return };
        let waited_ms = (env.world.now_us() - awaited.since_us) / 1000;
        if has_donors {
            env.world.say(format_args!(
                "the repair ordered at {turn} did not arrive within {waited_ms} ms. It is ordered again \
                    when a request enters the object"
            ));
        } else if self.given_up == 0 {
            // Reported once: every request on the wrong objects leads here until another replica is back.
            env.world.say(format_args!(
                "the repair ordered at {turn} needs f+1 healthy replicas, and fewer are up. Start the \
                    others; it is ordered again when a request enters the object"
            ));
        }
        stop_waiting(awaited.install, env);
        self.given_up += 1;
        if self.given_up >= limits::REPAIRS_GIVEN_UP && has_donors {
            env.stop_with(Ok(Stop::Replace(ReplaceReason::RepairsMissing)));
        }
    }

    /// The RECOVER at `turn` is done at this replica. Objects that could not be replaced are still wrong, and a replica
    /// that cannot be repaired time and again takes the whole state of the others.
    pub(super) fn on_installed<W: World>(
        &mut self,
        turn: Place,
        Overwritten { repaired, failed }: Overwritten,
        has_donors: bool,
        env: &mut Environment<W>,
    ) {
        let verdict_us = self.repairing_us.remove(&turn);
        let took_us = verdict_us.map(|verdict_us| env.world.now_us() - verdict_us);
        if !repaired.is_empty() {
            self.given_up = 0;
            env.tally.repairs += repaired.len() as u64;
            env.tally.own_faults += 1;
            self.last_us = took_us.unwrap_or(self.last_us);
            env.keep_evidence(evidence::repaired(env.settings.me, turn, repaired, took_us));
        }
        // Without either, the objects were only suspected: all of them were correct.
        if !failed.is_empty() {
            self.given_up += 1;
            env.keep_evidence(evidence::not_repaired(env.settings.me, turn, failed));
            if self.given_up >= limits::REPAIRS_GIVEN_UP && has_donors {
                env.stop_with(Ok(Stop::Replace(ReplaceReason::RepairsFailed)));
            }
        }
    }

    /// This replica was wrong at `place`: the time of its repair begins.
    pub(super) fn note_verdict(&mut self, place: Place, now_us: u64) {
        keep_time(&mut self.verdicts_us, place, now_us);
    }

    /// This replica found errors in objects at rest: it blames itself. Returns the request to repair them.
    pub(super) fn on_scrubbed<W: World>(
        &mut self,
        place: Place,
        region_id: RegionId,
        findings: &[ScrubFinding],
        env: &mut Environment<W>,
    ) -> Control {
        env.tally.failed_checks += findings.len() as u64;
        self.note_verdict(place, env.world.now_us());
        let me = env.settings.me;
        env.keep_evidence(evidence::scrubbed(me, place, region_id, findings));
        let known: Option<Vec<_>> =
            findings.iter().map(|finding| finding.object().map(|id| (region_id, id))).collect();
        let is_named = findings.len() <= vote::limits::MAX_OBJECTS_PER_RECOVER;
        let (mut objects, regions) = match known.filter(|_| is_named) {
            Some(objects) => (objects, Vec::new()),
            None => (Vec::new(), vec![region_id]),
        };
        objects.sort_unstable();
        objects.dedup();
        // The upper half of the ids is for repairs that no vote requested.
        let id = 1 << 63 | u64::from(me) << 56 | place.batch;
        let scope = vote::Scope::Faulty(me);
        Control::Recover(vote::Recover { id, proposer: me, scope, cause: place, objects, regions })
    }

    /// How long the last repair took.
    pub(super) fn last_us(&self) -> u64 {
        self.last_us
    }

    /// The number of verdicts, and of repairs, whose time is known.
    pub(super) fn timed(&self) -> (usize, usize) {
        (self.verdicts_us.len(), self.repairing_us.len())
    }
}

/// Without its sender a worker stops waiting for objects, and passes its turn.
pub(super) fn stop_waiting<W: World>(install: mpsc::Sender<Vec<Packed>>, env: &Environment<W>) {
    env.lockstep.hand_over(|| {
        drop(install);
        true
    });
}

/// Keeps the first time of a place; forgets the oldest places.
fn keep_time(times: &mut BTreeMap<Place, u64>, place: Place, us: u64) {
    times.entry(place).or_insert(us);
    if times.len() > limits::REPAIRS_TIMED {
        times.pop_first();
    }
}
