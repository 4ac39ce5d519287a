//! Execute → Vote → Externalize: results go into the voter, and what it decides is performed.

use std::sync::mpsc;

use object::ScrubFinding;
use order::OrderEngine;
use vote::{Command, Event, Failure, Message, Place, Reexecution, To};

use super::group::Awaited;
use super::{PendingReply, Replica};
use crate::hooks::Hooks;
use crate::job::{Executed, RunNotes, Runs};
use crate::ordered::Control;
use crate::peers;
use crate::service::Service;
use crate::worker::Report;
use crate::world::{Observation, World};
use crate::{Corrupted, ReplaceReason, Stop, evidence, limits};

impl<S: Service, E: OrderEngine, W: World> Replica<S, E, W> {
    /// What a worker has to say.
    pub(super) fn on_report(&mut self, report: Report) {
        match report {
            Report::Executed(executed) => self.on_executed(executed),
            Report::RecoverTurn { turn, time_us, recover, packed, install } => {
                let is_replayed = self.group.is_replayed(turn.batch);
                match install {
                    // Without its sender the worker does not wait.
                    Some(install) if is_replayed => self.lockstep.hand_over(|| {
                        drop(install);
                        true
                    }),
                    Some(install) => self.await_repair(turn, recover.cause, install),
                    None => {}
                }
                self.world.see(Observation::Packed { turn, objects: &packed });
                // What an earlier life knew to be undecided is gone with it: this one cannot judge who settled it.
                if !(is_replayed && matches!(recover.scope, vote::Scope::SettleOn(_))) {
                    self.vote(Event::RecoverTurn { turn, time_us, recover, packed });
                }
            }
            Report::Installed { turn, notes } => {
                self.note_repaired(turn, notes);
            }
            Report::Checkpoint { head, state } => self.on_checkpoint(&head, state),
            Report::Digest { ticket, batch, digest, objects } => {
                let position = crate::admin::Position { index: batch, ticket };
                self.world.see(Observation::Digest { position, digest });
                self.calls.on_digest(ticket, batch, digest, objects)
            }
            Report::Nudged { ticket, injected } => self.calls.on_nudged(ticket, injected),
            Report::Rechecked { place, corrupt } => self.vote(Event::Rechecked { place, corrupt }),
            Report::Scrubbed { place, home, findings } => self.on_scrubbed(place, home, &findings),
            Report::Returned => {
                if let Some(execution) = &mut self.execution {
                    execution.on_returned();
                }
            }
            Report::Corrupted(what) => self.replace(what),
            // A worker that found the schedule corrupted ends, too.
            Report::Ended if self.execution.as_ref().is_some_and(|execution| execution.is_corrupted()) => {
                self.replace(Corrupted::Schedule);
            }
            // Workers end when the replica stops; one that ends before was struck where nothing could catch it.
            Report::Ended if self.outcome.is_none() && self.execution.is_some() => {
                self.stop_with(Ok(Stop::Replace(ReplaceReason::WorkerEnded)));
            }
            Report::Ended => {}
            Report::ScrubTook(time) => self.group.on_scrub_took(self.world.scrub_took(time)),
            Report::Masked { place, core, kind } => {
                self.tally.failed_checks += 1;
                let kind = evidence::kind::<S>(kind);
                self.keep_evidence(evidence::masked(self.settings.me, place, core, kind));
            }
            Report::Named(names) => {
                // Records that are kept have the names that were known before.
                if self.names.learn(names) {
                    self.evidence.amend(|text| self.names.put_into(text));
                }
            }
            Report::Large { home, objects } => objects.iter().for_each(|large| self.on_large(home, large)),
        }
    }

    fn on_executed(&mut self, executed: Executed) {
        let Executed { batch, origin, mut results, runs } = executed;
        for (place, reply) in self.hooks.on_executed(batch, &mut results) {
            self.release(place, reply, None);
        }
        self.world.see(Observation::Executed { batch, results: &results });
        self.runs.insert(batch, Runs { origin, of_requests: runs });
        if self.runs.len() > limits::RUNS_KEPT && self.hooks.forgets_runs() {
            self.runs.pop_first();
        }
        self.tally.requests += results.len() as u64;
        self.tally.executed = self.tally.executed.max(batch);
        self.tally.failed_checks += results.iter().filter(|result| result.failure.is_some()).count() as u64;
        if let Some(execution) = &mut self.execution {
            execution.on_executed(batch);
            self.peers.pace.executed = execution.executed_to();
            self.pulse.execute_done(self.peers.pace.executed);
            self.pulse.execute(execution.oldest());
        }
        self.awaited_by |= 1 << origin;
        if self.voter.is_some() {
            self.vote(Event::Executed { batch, requests: results });
        } else {
            self.externalize_unchecked(batch, origin, results);
        }
    }

    /// Without the letter X a reply leaves when its request has run; a request that failed a check has no reply.
    fn externalize_unchecked(&mut self, batch: u64, origin: u8, results: Vec<vote::RequestResult>) {
        for (number, result) in results.into_iter().enumerate() {
            let place = Place::new(batch, number as u16);
            let owed = if result.asked.mine { self.owed_at(place) } else { PendingReply::NOTHING };
            match result.failure {
                None => match result.reply {
                    Some(reply) => self.externalize(owed, reply, None),
                    None => self.drop_reply(owed.owner),
                },
                Some(Failure::Invalid) => {
                    // No replica runs it, so all of them have the same state without it.
                    self.drop_reply(owed.owner);
                    self.keep_evidence(evidence::void(Some(origin), place));
                }
                Some(failure) => {
                    self.drop_reply(owed.owner);
                    let kind = evidence::kind::<S>(result.asked.kind);
                    self.keep_evidence(evidence::unchecked(self.settings.me, place, &failure, kind));
                    if self.settings.mode.replicated && self.settings.mode.guarded {
                        // What the request should have changed is unknown here: only peers have a correct state.
                        self.stop_with(Ok(Stop::Replace(ReplaceReason::RequestFailed { place, failure })));
                    }
                }
            }
        }
        self.settle_owed();
    }

    /// An object is so large that requests on it are slow: each class is reported to the operator once.
    fn on_large(&mut self, home: object::Home, large: &object::Large) {
        let object::Large { id, class, bytes } = large;
        let is_new = !self.large.contains_key(class) && self.large.len() < limits::LARGE_CLASSES_REPORTED;
        if is_new {
            let message = format!(
                "class {class} has a large object: object {home}:{id} has {bytes} bytes. Every request that enters it \
                    computes the checksum of all of them. Keep its parts in a `Store`, and long byte strings in \
                    `Pieces`"
            );
            self.world.say(format_args!("{message}"));
            self.large.insert(class, message);
        }
    }

    /// This replica found errors in objects at rest: it blames itself, and has them repaired.
    fn on_scrubbed(&mut self, place: Place, home: object::Home, findings: &[object::ScrubFinding]) {
        self.tally.failed_checks += findings.len() as u64;
        self.note_verdict(place);
        self.keep_evidence(evidence::scrubbed(self.settings.me, place, home, findings));
        let mut objects: Vec<(object::Home, object::ObjectId)> = Vec::new();
        let mut whole = findings.len() > vote::limits::MAX_OBJECTS_PER_RECOVER;
        for finding in findings {
            match finding {
                ScrubFinding::Damaged(id) | ScrubFinding::Lost(id) => objects.push((home, *id)),
                // Several are missing or too many, and nobody can say which. One that is too many may stand
                // beside its twin, in a place that its owner knows nothing of: to repair it by its id leaves
                // the other one there, to be found by every scrub.
                ScrubFinding::Extra(_) | ScrubFinding::Population(_) => whole = true,
            }
        }
        objects.sort_unstable();
        objects.dedup();
        let (objects, regions) = if whole { (Vec::new(), vec![home]) } else { (objects, Vec::new()) };
        let me = self.settings.me;
        // The upper half of the ids is for repairs that no vote asked for.
        let id = 1 << 63 | u64::from(me) << 56 | place.batch;
        let scope = vote::Scope::Faulty(me);
        let recover = vote::Recover { id, proposer: me, scope, cause: place, objects, regions };
        self.submit_control(&Control::Recover(recover));
    }

    /// Gives the voter one event and performs what it decides.
    pub(super) fn vote(&mut self, event: Event) {
        let now_us = self.world.now_us();
        if let Some(voter) = &mut self.voter {
            voter.handle(event, now_us, &mut self.commands);
            self.perform_commands();
        }
    }

    /// The end of a round: CHECKs of all batches of the round share a message.
    pub(super) fn flush_votes(&mut self) {
        let now_us = self.world.now_us();
        if let Some(voter) = &mut self.voter {
            voter.flush(now_us, &mut self.commands);
            self.perform_commands();
            self.settle_owed();
        }
        self.awaited_by = 0;
    }

    /// Receives a CHECK, a REPAIR, or another message between voters.
    pub(super) fn on_vote_message(&mut self, from: u8, body: &bytes::Bytes) {
        if !self.hooks.hears_votes() {
            return;
        }
        match Message::decode(body) {
            Ok(message) => self.vote(Event::Message { from, message }),
            Err(_) => self.vote(Event::Garbled { from }),
        }
    }

    /// Decisions are values; here they are performed.
    pub(super) fn perform_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            self.perform(command);
        }
        if self.commands.is_empty() {
            self.commands = commands;
        }
    }

    fn perform(&mut self, command: Command) {
        match command {
            Command::Send { to, message } => self.send_vote(to, &message),
            Command::Release { place, reply, digest } | Command::ReplyRepaired { place, reply, digest } => {
                self.tally.held.remove(&place);
                self.release(place, reply, Some(digest));
            }
            Command::DropReply { place, .. } => {
                self.tally.held.remove(&place);
                let owed = self.owed_at(place);
                self.drop_reply(owed.owner);
            }
            Command::ProposeRecover(_) if !self.hooks.proposes_repairs() => {}
            Command::ProposeRecover(recover) => self.submit_control(&Control::Recover(recover)),
            Command::Install { turn, objects } => {
                let objects = self.hooks.on_install(objects);
                if let Some(awaited) = self.group.installs.remove(&turn) {
                    self.world.see(Observation::Installing { turn, objects: &objects });
                    // A worker that is gone took the process's service with it.
                    self.lockstep.hand_over(|| awaited.install.send(objects).is_ok());
                }
            }
            Command::RecheckObjects { place, objects } => {
                self.submit_control(&Control::Recheck { by: self.settings.me, place, objects });
            }
            Command::Reexecute { place } => {
                // While a replica is away every request is run again when its turn comes (`Runner::reproduced`).
                let reproduced = self.ran(place).is_some_and(|ran| ran.reproduced);
                let outcome = if reproduced { Reexecution::Reproduced } else { Reexecution::NotKept };
                self.vote(Event::Reexecuted { place, outcome });
            }
            Command::Evidence(record) => self.on_evidence(&record),
            Command::Held { place, why } => {
                self.tally.held.insert(place);
                self.say_held(place, why);
            }
            Command::Resumed { place } => {
                self.tally.held.remove(&place);
            }
            Command::GiveUpRepair { turn } => self.give_up_repair(turn),
            Command::PassTurn { turn } => {
                if let Some(awaited) = self.group.installs.remove(&turn) {
                    self.stop_waiting(awaited);
                }
            }
            Command::NotSettled { place, home, id } => {
                let object = self.names.put_into(&format!("object {home}:{id}"));
                let request = self.asked_at(place);
                self.world.say(format_args!(
                    "replicas differ in {object} again at {request}, although they settled on one version of it \
                        several times. It stays as it is. {NOT_DETERMINISTIC}"
                ));
            }
            Command::ReplaceSelf(why) => self.stop_with(Ok(Stop::Replace(ReplaceReason::Vote(why)))),
            Command::PeerBeyondRepair { replica, why } => {
                self.world.say(format_args!(
                    "replica {} cannot be repaired in place and replaces itself: \
                    {why}",
                    replica + 1
                ));
            }
        }
    }

    /// A reply leaves: for the client that waits for it, if that is one of this replica's.
    fn release(&mut self, place: Place, reply: bytes::Bytes, digest: Option<u128>) {
        let owed = self.owed_at(place);
        let (place, reply) = self.hooks.on_release(place, reply);
        self.world.see(Observation::Released { place, to: owed.owner.client(), reply: &reply });
        self.externalize(owed, reply, digest);
    }

    /// Says that no client gets the reply, why, and what to do.
    fn say_held(&mut self, place: Place, why: vote::Held) {
        let request = self.asked_at(place);
        match why {
            vote::Held::EverybodyStands => self.world.say(format_args!(
                "the reply to {request} is held: no f+1 replicas agree ({why}). {NOT_DETERMINISTIC} \
                    `crosscheck evidence` names the objects that differ. The client that waits for the reply gets none"
            )),
            vote::Held::TooFewLive => self
                .world
                .say(format_args!("the reply to {request} is held: no f+1 replicas agree ({why})")),
        }
    }

    /// A request with its kind, where that is known.
    fn asked_at(&self, place: Place) -> String {
        let kind = self.ran(place).and_then(|ran| evidence::kind::<S>(ran.kind));
        kind.map_or_else(|| format!("request {place}"), |kind| format!("request {place} ({kind})"))
    }

    /// A worker holds the turn of a RECOVER until the objects are here.
    fn await_repair(&mut self, turn: Place, cause: Place, install: mpsc::Sender<Vec<vote::Packed>>) {
        let since_us = self.world.now_us();
        // A replica that is behind reaches the turn before it knows why; then the turn is what it knows.
        let verdict_us = self.tally.verdicts_us.get(&cause).copied();
        keep_time(&mut self.tally.repairing_us, turn, verdict_us.unwrap_or(since_us));
        self.group.installs.insert(turn, Awaited { install, since_us });
    }

    /// A repair did not arrive: the waiting worker passes its turn. What is still wrong shows again and is repaired
    /// again, since donors may have had to be repaired themselves; but not for ever.
    pub(super) fn give_up_repair(&mut self, turn: Place) {
        let Some(awaited) = self.group.installs.remove(&turn) else { return };
        let waited_ms = (self.world.now_us() - awaited.since_us) / 1000;
        if self.has_donors() {
            self.world.say(format_args!(
                "the repair ordered at {turn} did not arrive within {waited_ms} ms. It is ordered again \
                    when a request enters the object"
            ));
        } else if self.group.repairs_given_up == 0 {
            // Once: every request on what is wrong comes to this until somebody is back.
            self.world.say(format_args!(
                "the repair ordered at {turn} needs f+1 healthy replicas, and fewer are up. Start the \
                    others; it is ordered again when a request enters the object"
            ));
        }
        self.stop_waiting(awaited);
        self.group.repairs_given_up += 1;
        if self.group.repairs_given_up >= limits::REPAIRS_GIVEN_UP && self.has_donors() {
            self.stop_with(Ok(Stop::Replace(ReplaceReason::RepairsMissing)));
        }
    }

    /// Without its sender the worker stops waiting, and passes its turn.
    fn stop_waiting(&mut self, awaited: Awaited) {
        self.lockstep.hand_over(|| {
            drop(awaited);
            true
        });
    }

    fn send_vote(&mut self, to: To, message: &Message) {
        let mut body = Vec::new();
        message.encode(&mut body);
        if !self.hooks.on_vote_message(message, &mut body) {
            return;
        }
        let kind = match message {
            Message::Repair(_) => order::FrameKind::Repair,
            _ => order::FrameKind::Check,
        };
        match to {
            To::One(peer) => self.send(peer, kind, &body, false),
            To::All => {
                let me = self.settings.me;
                for peer in (0..self.settings.peers.len() as u8).filter(|peer| *peer != me) {
                    // A digest is urgent where a client waits for it; elsewhere it leaves with what goes there next.
                    let deferrable =
                        matches!(message, Message::Check { .. }) && self.awaited_by >> peer & 1 == 0;
                    self.send(peer, kind, &body, deferrable);
                }
            }
        }
    }

    fn on_evidence(&mut self, record: &vote::Evidence) {
        self.tally.mismatches += 1;
        let void = self.void(record);
        if record.replica == self.settings.me && void.is_none() {
            self.note_verdict(Place::new(record.batch, record.request.unwrap_or_default()));
        }
        let mut told = match void {
            Some((origin, place)) => evidence::void(origin, place),
            None => evidence::record(record, evidence::kind::<S>(record.kind)),
        };
        // Of another replica's fault it is not known here on which core it happened.
        let is_own = told.replica == Some(self.settings.me + 1);
        if let (true, Some((batch, request))) = (is_own, told.request) {
            told.core = self.ran(Place::new(batch, request as u16)).map(|ran| ran.core);
        }
        self.keep_evidence(told);
    }

    /// Whose fault it is that nobody has a result: whoever had such a request ordered. The voter knows of no
    /// origins, and takes it for a bug that all share. Where a peer was away for long, more batches have run
    /// since than are remembered.
    fn void(&self, record: &vote::Evidence) -> Option<(Option<u8>, Place)> {
        let is_invalid =
            record.failure == Some(Failure::Invalid) && record.class == vote::FaultClass::SoftwareBug;
        let place = Place::new(record.batch, record.request.filter(|_| is_invalid)?);
        Some((self.runs.get(&place.batch).map(|runs| runs.origin), place))
    }

    /// How a request of one of the last batches was run here.
    fn ran(&self, place: Place) -> Option<RunNotes> {
        self.runs.get(&place.batch)?.of_requests.get(usize::from(place.request)).copied()
    }

    fn note_repaired(&mut self, turn: Place, notes: Vec<String>) {
        let verdict_us = self.tally.repairing_us.remove(&turn);
        if notes.is_empty() {
            // Only suspected: all of it was as it should be.
            return;
        }
        self.group.repairs_given_up = 0;
        self.tally.repairs += notes.len() as u64;
        let took_us = verdict_us.map(|verdict_us| self.world.now_us() - verdict_us);
        self.tally.last_repair_us = took_us.unwrap_or(self.tally.last_repair_us);
        self.keep_evidence(evidence::repaired(self.settings.me, turn, notes, took_us));
    }

    /// This replica was wrong at `place`: the time of its repair begins.
    fn note_verdict(&mut self, place: Place) {
        keep_time(&mut self.tally.verdicts_us, place, self.world.now_us());
    }

    /// Numbers a record, stamps it with the wall clock (for people; it reaches no state), and keeps it.
    pub(super) fn keep_evidence(&mut self, mut record: crate::admin::EvidenceRecord) {
        record.number = self.evidence.next_number();
        record.time_us = self.world.wall_us();
        self.hooks.on_evidence(&mut record, self.settings.peers.len());
        self.world.see(Observation::Evidence(&record));
        record.objects.iter_mut().for_each(|object| *object = self.names.put_into(object));
        self.evidence.keep(&record);
    }

    /// What the peers' sockets have to say.
    pub(super) fn on_peer_events(&mut self, heard: &mut Vec<peers::PeerEvent>) {
        if !heard.is_empty() {
            self.accept_stamps();
        }
        for event in heard.drain(..) {
            match event {
                peers::PeerEvent::Up(peer) => {
                    self.orderer.peer_up(peer);
                    self.clock.forget(peer);
                    self.refusals.forget(peer);
                    self.group.on_up(peer, self.world.now_us());
                    self.greet_one(peer);
                    if let Some(receiver) = &mut self.receiver {
                        receiver.on_up();
                        self.poll_transfer();
                    }
                }
                peers::PeerEvent::Down(peer) => self.orderer.peer_down(peer),
                peers::PeerEvent::Corrupt(error) => {
                    let peer = error.peer();
                    self.world.say(format_args!("{error}; the connection is reset"));
                    self.tally.dropped_frames += 1;
                    self.keep_evidence(evidence::message(peer));
                    self.vote(Event::Garbled { from: peer });
                }
                peers::PeerEvent::Frame { from, kind, body } => self.on_frame(from, kind, body),
                peers::PeerEvent::Refused { peer, why } => self.on_refused(peer, &why),
                peers::PeerEvent::Unresolved { peer, why } => self.on_unresolved(peer, why),
            }
        }
    }
}

/// Why healthy replicas differ, and what to do.
const NOT_DETERMINISTIC: &str = "The handler of this kind of request is not deterministic: look in it for a clock, \
    randomness, a HashMap, an address, or state that is in no object, correct it, and restart all replicas with the \
    corrected program.";

/// Keeps the first time of a place; the oldest are forgotten.
fn keep_time(times: &mut std::collections::BTreeMap<Place, u64>, place: Place, us: u64) {
    times.entry(place).or_insert(us);
    if times.len() > limits::REPAIRS_TIMED {
        times.pop_first();
    }
}
