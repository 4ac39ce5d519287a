//! From one episode to the next, and to the end: all replicas have to heal in between.

use crosscheck::admin::{AdminCommand, Corruption, ReplicaPhase};
use wire::ReplicaId;

use super::copies::OF_COPIES;
use super::operator::Operator;
use super::{Event, Phase, ReplicaSlot, Run};
use crate::plan;
use crate::promises::tolerates::TOLERATES;
use crate::promises::{PROGRESS, RunEnd};
use crate::workload::Workload;
use crate::world::EPOCH_US;

/// Time between two checks whether all replicas have healed.
const LOOK_US: u64 = 100_000;
/// The permitted error of a healthy clock: replicas take over the time of others when theirs is further away.
const CLOCK_US: u64 = 600_000;

impl<W: Workload> Run<W> {
    /// Whether the run is done.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Reading)
            && self.clients.iter().all(crate::client::Client::is_done)
            && self.reported
    }

    /// Continues with the next phase, if it is time.
    pub(super) fn go_on(&mut self) {
        if !self.placed.is_empty() {
            self.count_placed();
        }
        if self.now_us < self.next_look_us {
            return;
        }
        self.next_look_us = self.now_us + 5_000;
        self.decide();
        self.look_at_strangers();
        (0..self.options.replicas).for_each(|replica| self.look_at_unlike(replica, false));
        match &self.phase {
            Phase::Founding => {
                let serves =
                    |slot: &ReplicaSlot<W>| slot.process.as_ref().is_some_and(|one| one.replica.serves());
                // A replica may serve clients and still lack its state. A copy is hit where that is the only one.
                let is_whole = !self.options.copies || self.said().0 >= self.facts.faults() as u64;
                if self.lasting == 0 && self.slots.iter().all(serves) && is_whole {
                    self.begin_episode();
                }
            }
            Phase::Episode { ends_us, .. } => {
                if self.now_us >= *ends_us && self.lasting == 0 {
                    self.phase = Phase::Healing { since_us: self.now_us };
                    self.restart_hidden();
                }
            }
            Phase::Healing { since_us } => {
                let since_us = *since_us;
                // Repeated: a replica that was stopped learns of a fault only now.
                self.disarm();
                if self.is_healed(since_us) && self.reports_that_it_is_whole() {
                    self.summary.longest_heal_us = self.summary.longest_heal_us.max(self.now_us - since_us);
                    self.trace.record(self.now_us, format_args!("all is healed"));
                    self.begin_episode();
                } else if self.now_us > since_us + self.heals_within_us() {
                    let digested = self.digests.last_key_value().map_or(0, |((position, _), _)| *position);
                    let open = self.open_below(digested);
                    let how = format!(
                        "not healed after {} s: {}{open}",
                        self.heals_within_us() / 1_000_000,
                        self.ailing()
                    );
                    self.broken(PROGRESS, how);
                }
            }
            Phase::Finishing { since_us } => {
                let since_us = *since_us;
                if self.clients.iter().all(crate::client::Client::is_done) {
                    self.phase = Phase::Reading;
                    self.facts.reading = true;
                    self.read_all();
                } else if self.now_us > since_us + self.heals_within_us() + self.options.requests * 100_000 {
                    let about = if self.facts.gone.is_empty() { PROGRESS } else { TOLERATES };
                    let how = format!("clients do not come to an end without faults: {}", self.ailing());
                    self.broken(about, how);
                }
            }
            Phase::Reading => self.report(),
        }
    }

    /// A wrong REPAIR waits until a replica needs one, which may be during another victim's episode; a wrong request
    /// waits until a client comes back to the victim.
    fn disarm(&mut self) {
        for process in self.slots.iter_mut().filter_map(|slot| slot.process.as_mut()) {
            for kind in [Corruption::Repair, Corruption::Asked].into_iter().chain(OF_COPIES) {
                let count = process.replica.disarm(kind);
                self.summary.uncount(vec![kind; count]);
            }
            for kind in [Corruption::Check, Corruption::Kept, Corruption::Groups, Corruption::Flag] {
                process.replica.disarm(kind);
            }
        }
    }

    fn begin_episode(&mut self) {
        let mut next = None;
        while self.next_episode < self.options.episodes && next.is_none() {
            let number = self.next_episode;
            self.next_episode += 1;
            if !self.options.without.contains(&number) {
                if self.options.chains {
                    self.forget_episode();
                    return self.begin_chain(number);
                }
                if self.options.copies {
                    self.forget_episode();
                    return self.begin_copy(number);
                }
                next = plan::episode(self.seed, number, &self.options);
            }
        }
        let Some(episode) = next else { return self.finish_up() };
        self.forget_episode();
        self.facts.next_victims = episode.victims(self.options.replicas);
        self.facts.only_computes = episode.strokes.iter().all(|stroke| stroke.fault.is_of_computation());
        for stroke in &episode.strokes {
            self.at(episode.after_us + stroke.at_us, Event::Stroke(stroke.clone()));
        }
        if plan::reads(self.seed, &self.options) == crosscheck::Reads::Local {
            self.at(episode.after_us, Event::SetReads { more: 3 });
        }
        let ends_us = self.now_us + episode.after_us + episode.lasts_us;
        self.phase = Phase::Episode { ends_us };
    }

    /// Whether the group says, after chains, that f replicas may fail: after a while without faults it has to.
    fn reports_that_it_is_whole(&mut self) -> bool {
        if !self.options.chains {
            return true;
        }
        let f = self.facts.faults() as u64;
        let (said, why) = self.said();
        let judged = self.chain.promise.observe(self.now_us, (said, f), why.as_deref());
        self.judge(TOLERATES, judged);
        said >= f
    }

    fn forget_episode(&mut self) {
        self.operator = Operator::default();
        self.slots.iter_mut().for_each(|slot| slot.faults_since_equal.clear());
        self.summary.episodes += 1;
        self.facts.victims.clear();
        self.facts.chain_victims.clear();
    }

    /// All episodes are over.
    pub(super) fn finish_up(&mut self) {
        self.operator = Operator::default();
        self.phase = Phase::Finishing { since_us: self.now_us };
        self.clients.iter_mut().for_each(|client| client.goes_on = false);
    }

    /// How many replicas are there, but for those that never come back.
    fn left(&self) -> usize {
        self.slots.len() - self.facts.gone.len()
    }

    /// Whether all replicas serve, no armed fault is left, and since `since_us` all states were equal at a
    /// position up to which all votes are closed.
    fn is_healed(&mut self, since_us: u64) -> bool {
        if !self.ailing().is_empty() {
            return false;
        }

        if let Some(((position, _), digests)) = self.digests.last_key_value()
            && self.open_below(*position).is_empty()
            && self.digest_requested_us >= since_us
            && digests.len() == self.left()
        {
            let first = digests.values().next();
            if digests.values().all(|digest| Some(digest) == first) && self.digest_requested_us > 0 {
                return true;
            }
        }
        if self.now_us >= self.digest_requested_us + LOOK_US {
            self.ask_digest();
        }
        false
    }

    /// The open votes at some replica about the batches before `batch`, as text.
    fn open_below(&self, batch: u64) -> String {
        let replicas = (1..).zip(&self.slots);
        let open = replicas.filter_map(|(number, slot)| {
            slot.process.as_ref()?.replica.open_below(batch).map(|what| format!("replica {number}: {what}; "))
        });
        open.collect()
    }

    fn ask_digest(&mut self) {
        self.digests.clear();
        self.digest_requested_us = self.now_us;
        let here: Vec<u8> = (0..self.options.replicas).filter(|one| !self.facts.gone.contains(one)).collect();
        let whom = usize::from(here[(self.now_us / LOOK_US) as usize % here.len()]);
        let slot = &mut self.slots[whom];
        if let Some(process) = &mut slot.process {
            let _answer = process.replica.call(AdminCommand::Digest { at: None });
            slot.wake_us = slot.wake_us.min(self.now_us);
        }
    }

    /// The errors that are left, as text; nothing when all replicas are healthy.
    fn ailing(&self) -> String {
        let mut words = String::new();
        let mut leaders = std::collections::BTreeSet::new();
        let here = |(number, _): &(usize, &ReplicaSlot<W>)| !self.facts.gone.contains(&(*number as u8));
        let is_core = !self.facts.gone.is_empty();
        for (number, slot) in self.slots.iter().enumerate().filter(here) {
            let ill = match &slot.process {
                None => "is not there".to_owned(),
                Some(_) if slot.paused_us > self.now_us => "stands still".to_owned(),
                Some(process) => {
                    let status = process.replica.status();
                    leaders.insert(status.leader);
                    let pending = process.replica.pending_faults().len();
                    let wrong_us = process.replica.clock_us().abs_diff(EPOCH_US + self.now_us);
                    if status.phase != ReplicaPhase::Serving {
                        format!("is {:?}", status.phase)
                    } else if status.peers.len() + 1 < self.left()
                        || (!is_core && status.peers.len() + 1 > self.left())
                    {
                        format!("sees {:?}", status.peers)
                    } else if status.held > 0 || (status.alone && !is_core) || pending > 0 {
                        format!("holds {}, alone: {}, pending faults: {pending}", status.held, status.alone)
                    } else if status.verification.as_ref().is_some_and(|one| !one.verifies) {
                        "has a verifier without memory".to_owned()
                    } else if wrong_us > CLOCK_US {
                        format!("has a clock that is {wrong_us} us wrong")
                    } else {
                        continue;
                    }
                }
            };
            words += &format!("replica {} {ill}; ", ReplicaId(number as u8));
        }
        words += &self.open_copies();
        if words.is_empty() && (leaders.len() != 1 || leaders.contains(&None)) {
            words = format!("leaders: {leaders:?}");
        }
        words
    }

    /// The last check: all clients have read all keys, and all replicas digest their states once more.
    fn report(&mut self) {
        if self.reported || !self.clients.iter().all(crate::client::Client::is_done) {
            return;
        }
        let since_us = *self.reading_done_us.get_or_insert(self.now_us);
        if self.now_us > since_us + self.heals_within_us() {
            let how = format!("at the end it does not settle: {}", self.ailing());
            return self.broken(PROGRESS, how);
        }
        // States that differ here, after all faults are over, are reported at once.
        let all_here = self.digests.last_key_value().filter(|(_, digests)| digests.len() == self.left());
        let fresh = self.digest_requested_us > since_us;
        let (true, Some((_, digests))) = (fresh && self.ailing().is_empty(), all_here) else {
            if self.now_us >= self.digest_requested_us + LOOK_US {
                self.ask_digest();
            }
            return;
        };
        let mut end = RunEnd { digests: digests.values().copied().collect(), ..RunEnd::default() };
        for process in self.slots.iter().filter_map(|slot| slot.process.as_ref()) {
            let status = process.replica.status();
            end.held.push(status.held);
            end.alarms
                .push(status.mismatches + status.repairs + status.failed_checks + status.dropped_frames);
        }
        end.evidence = self.summary.evidence.values().sum();
        self.reported = true;
        self.judge_end(&end);
    }
}
