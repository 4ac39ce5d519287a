//! The state behind one lock: the tubes of one region, their jobs, and what connections hold of them.

use crosscheck::object::{Map, Ref, Set, Summed, Table, critical};
use crosscheck::{ConnectionId, Owed};

use crate::job::{JobId, JobState, QueuedJob};
use crate::request::Sender;
use crate::settings::{QueueSettings, Setting};
use crate::stats::Counts;
use crate::tube::{Tube, URGENT};
use crate::{DEFAULT_TUBE, MAX_TUBES, REGIONS, region_of_tube};

/// What a job takes besides its body, approximately.
const JOB_BYTES: u64 = 512;
/// A timer is set no further ahead than this: one that a nearer one overtakes cannot be cancelled.
const LONGEST_TIMER_US: u64 = 60_000_000;

/// What is to happen at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Summed)]
pub enum Due {
    /// A delay or a reservation ends.
    Job(Ref<QueuedJob>),
    /// A pause ends.
    Tube(Ref<Tube>),
    /// The client at this place has waited long enough.
    Wait(u64),
}

/// A client that waits for a job, as each region of its tubes knows it.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct Wait {
    /// Its connection.
    pub connection: ConnectionId,
    /// What it waits for.
    pub owed: Owed,
    /// How long.
    pub until_us: u64,
    /// The regions of its tubes; the first one has its timer.
    pub regions: u16,
    /// The regions in which it may have reserved jobs.
    pub holding: u16,
    /// Its tubes in this region.
    tubes: Vec<Ref<Tube>>,
    /// When its timer fires.
    timer_us: u64,
}

impl Wait {
    /// One that is in no region yet.
    pub fn new(connection: ConnectionId, owed: Owed, until_us: u64, (regions, holding): (u16, u16)) -> Self {
        Wait { connection, owed, until_us, regions, holding, tubes: Vec::new(), timer_us: u64::MAX }
    }

    fn is_first_in(&self, region: u32) -> bool {
        self.regions.trailing_zeros() == region
    }
}

/// What a connection has, and gives up when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Summed)]
pub enum Holding {
    /// A place at which it waits.
    Wait(u64),
    /// A job that it has reserved until then.
    Job(u64, Ref<QueuedJob>),
    /// A tube that it watches, or else uses.
    Tube { tube: Ref<Tube>, watches: bool },
    /// The role of this number.
    Role(u8),
}

/// The tubes of one region.
#[critical]
pub struct Tubes {
    number: u32,
    tubes: Table<String, Tube>,
    jobs: Table<JobId, QueuedJob>,
    /// By time.
    due: Set<(u64, Due)>,
    held: Set<(ConnectionId, Holding)>,
    /// By their places: the position of the request that waits.
    waits: Map<u64, Wait>,
    /// Tubes that may have both a ready job and a client that waits.
    woken: Vec<Ref<Tube>>,
    /// The next timer; 0 for none.
    timer_us: u64,
    /// The running request has added something that is due before that timer.
    wants_timer: bool,
    /// Memory of the jobs.
    bytes: u64,
    counts: Counts,
    settings: QueueSettings,
}

#[critical]
impl Tubes {
    /// A region without jobs.
    pub fn new(number: u32) -> Self {
        let mut tubes = Table::new();
        if region_of_tube(DEFAULT_TUBE) == number {
            tubes.insert(DEFAULT_TUBE.to_owned(), Tube::new(DEFAULT_TUBE));
        }
        let (jobs, due, held, waits, woken) = (Table::new(), Set::new(), Set::new(), Map::new(), Vec::new());
        let (timer_us, wants_timer, bytes) = (0, false, 0);
        let (counts, settings) = (Counts::default(), QueueSettings::new());
        #[rustfmt::skip] // what has entries, and what has none
        return Self {
            number, tubes, jobs, due, held, waits, woken,
            timer_us, wants_timer, bytes, counts, settings,
        };
    }

    /// Refers to a tube, if it is there.
    pub fn find_tube(&self, name: &str) -> Option<Ref<Tube>> {
        self.tubes.find(&name.to_owned())
    }

    /// Refers to a job, if it is there.
    pub fn find_job(&self, id: JobId) -> Option<Ref<QueuedJob>> {
        self.jobs.find(&id)
    }

    /// The tube.
    pub fn tube(&self, name: &str) -> Option<&Tube> {
        self.tubes.get(&name.to_owned())
    }

    /// The job.
    pub fn job(&self, job: Ref<QueuedJob>) -> Option<&QueuedJob> {
        self.jobs.at(job)
    }

    /// The text of `stats-job`.
    pub fn stats_of(&self, job: Ref<QueuedJob>, now_us: u64) -> Option<String> {
        let job = self.jobs.at(job)?;
        Some(job.stats(self.tubes.at(job.tube())?.name(), now_us))
    }

    /// Number of tubes.
    pub fn tubes(&self) -> usize {
        self.tubes.len()
    }

    /// Names of all tubes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tubes.iter().map(|(_, tube)| tube.name())
    }

    /// What is counted here.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The settings.
    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Sets one of them, in this batch.
    pub fn set(&mut self, setting: Setting, batch: u64) {
        self.settings.set(setting, batch);
    }

    /// A command of this kind was sent.
    pub fn count_command(&mut self, kind: u16) {
        self.counts.command(kind);
    }

    /// A connection takes on roles. Its first one comes with the default tube, which is in this region.
    pub fn greet(&mut self, sender: &Sender) {
        for role in (0..Sender::ROLES).filter(|role| sender.news >> role & 1 == 1) {
            self.counts.role(role, true);
            self.held.insert((sender.connection, Holding::Role(role as u8)));
        }
        if sender.news & Sender::CLIENT != 0 {
            self.refer(sender.connection, DEFAULT_TUBE, false, true);
            self.refer(sender.connection, DEFAULT_TUBE, true, true);
        }
    }

    /// A connection begins to use or watch a tube, which is made if it is not there; or it ends that. Returns whether
    /// there is room.
    pub fn refer(&mut self, connection: ConnectionId, name: &str, watches: bool, more: bool) -> bool {
        let tube = if more { self.find_or_make(name) } else { self.find_tube(name) };
        let Some(tube) = tube else { return !more };
        let holding = (connection, Holding::Tube { tube, watches });
        let has_changed = if more { self.held.insert(holding) } else { self.held.remove(&holding) };
        if has_changed {
            self.count_reference(tube, watches, more);
        }
        true
    }

    /// Puts a job; `order` is its priority, delay and ttr. `None` if there is no room.
    pub fn put(
        &mut self,
        place: u64,
        name: &str,
        order: (u32, u32, u32),
        body: &[u8],
        now_us: u64,
    ) -> Option<JobId> {
        let bytes = self.bytes + JOB_BYTES + body.len() as u64;
        let tube =
            if bytes <= self.settings.region_bytes() { self.find_or_make(name)? } else { return None };
        let id = place * u64::from(REGIONS) + u64::from(self.number);
        self.jobs.insert(id, QueuedJob::new(id, tube, order, now_us, body));
        self.bytes = bytes;
        self.counts.jobs += 1;
        self.tubes.at_mut(tube)?.count_put();
        let job = self.find_job(id)?;
        self.enter(job, ready_after(order.1, now_us));
        Some(id)
    }

    /// Reserves a job, if it is not reserved yet.
    pub fn reserve(&mut self, job: Ref<QueuedJob>, by: ConnectionId, now_us: u64) -> Option<&QueuedJob> {
        let entry = self.jobs.at_mut(job)?;
        if matches!(entry.state(), JobState::Reserved { .. }) {
            return None;
        }
        let until_us = entry.deadline(now_us);
        entry.count(|tallies| tallies.reserves += 1);
        self.leave(job);
        self.enter(job, JobState::Reserved { by, until_us });
        self.job(job)
    }

    /// Whether this connection has reserved it.
    pub fn is_reserved(&self, job: Ref<QueuedJob>, by: ConnectionId) -> bool {
        let state = self.job(job).map(|job| job.state());
        matches!(state, Some(JobState::Reserved { by: other, .. }) if other == by)
    }

    /// Releases a job with another priority and delay.
    pub fn release(&mut self, job: Ref<QueuedJob>, pri: u32, delay: u32, now_us: u64) -> bool {
        self.change(job, ready_after(delay, now_us), |job| {
            job.set_order(pri, Some(delay));
            job.count(|tallies| tallies.releases += 1);
        })
    }

    /// Buries a job with another priority, behind those with a lower place.
    pub fn bury(&mut self, job: Ref<QueuedJob>, pri: u32, place: u64) -> bool {
        self.change(job, JobState::Buried { place }, |job| {
            job.set_order(pri, None);
            job.count(|tallies| tallies.buries += 1);
        })
    }

    /// A reservation begins anew.
    pub fn touch(&mut self, job: Ref<QueuedJob>, by: ConnectionId, now_us: u64) -> bool {
        let until_us = self.job(job).map_or(now_us, |job| job.deadline(now_us));
        self.change(job, JobState::Reserved { by, until_us }, |_| {})
    }

    /// Makes a buried or delayed job ready; returns whether it was one.
    pub fn kick(&mut self, job: Ref<QueuedJob>) -> bool {
        let state = self.job(job).map(|job| job.state());
        matches!(state, Some(JobState::Buried { .. } | JobState::Delayed { .. }))
            && self.change(job, JobState::Ready, |job| job.count(|tallies| tallies.kicks += 1))
    }

    /// Makes the next buried job of a tube ready, or a delayed one where there was no buried one before.
    pub fn kick_next(&mut self, name: &str, buried: bool) -> bool {
        let next =
            self.tube(name).and_then(|tube| if buried { tube.first_buried() } else { tube.first_delayed() });
        next.is_some_and(|job| self.kick(job))
    }

    /// Deletes a job, unless another connection has reserved it.
    pub fn delete(&mut self, job: Ref<QueuedJob>, by: ConnectionId) -> bool {
        let Some(entry) = self.job(job) else { return false };
        if matches!(entry.state(), JobState::Reserved { by: other, .. } if other != by) {
            return false;
        }
        let (_, id) = entry.key();
        let (tube, bytes) = (entry.tube(), JOB_BYTES + entry.body().len() as u64);
        self.leave(job);
        self.jobs.remove(&id);
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(tube) = self.tubes.at_mut(tube) {
            tube.count_delete();
        }
        self.drop_if_unused(tube);
        true
    }

    /// Nothing of a tube is reserved for so many seconds; returns whether there is such a tube.
    pub fn pause(&mut self, name: &str, seconds: u32, now_us: u64) -> bool {
        let Some(tube) = self.find_tube(name) else { return false };
        let Some(entry) = self.tubes.at_mut(tube) else { return false };
        let until_us = entry.pause(seconds, now_us);
        self.remind(until_us, Due::Tube(tube));
        // A pause of no time ends one that clients may be waiting for.
        self.woken.push(tube);
        true
    }

    /// When the first reservation of a connection ends; `u64::MAX` if there is none.
    pub fn first_deadline(&self, connection: ConnectionId) -> u64 {
        match self.held.range((connection, Holding::Job(0, Ref::NONE))..).next() {
            Some((holder, Holding::Job(until_us, _))) if *holder == connection => *until_us,
            _ => u64::MAX,
        }
    }

    /// Lets a client wait for jobs of these tubes. The first of its regions sets a timer for it.
    pub fn wait(&mut self, place: u64, mut wait: Wait, tubes: &[String], timer_us: u64) {
        wait.tubes = tubes.iter().filter_map(|name| self.find_tube(name)).collect();
        for tube in &wait.tubes {
            self.tubes.at_mut(*tube).into_iter().for_each(|tube| tube.wait(place, true));
        }
        let (is_first, connection) = (wait.is_first_in(self.number), wait.connection);
        self.waits.insert(place, wait);
        if is_first {
            self.counts.waiting += 1;
            self.held.insert((connection, Holding::Wait(place)));
            self.set_timer(place, timer_us);
        }
    }

    /// Sets a timer for a client that waits; `u64::MAX` is none.
    pub fn set_timer(&mut self, place: u64, timer_us: u64) {
        self.waits.change(&place, |wait| wait.timer_us = timer_us);
        if timer_us != u64::MAX {
            self.remind(timer_us, Due::Wait(place));
        }
    }

    /// A client waits no more.
    pub fn end_wait(&mut self, place: u64) {
        let Some(wait) = self.waits.remove(&place) else { return };
        for tube in &wait.tubes {
            self.tubes.at_mut(*tube).into_iter().for_each(|tube| tube.wait(place, false));
            self.drop_if_unused(*tube);
        }
        if wait.is_first_in(self.number) {
            self.counts.waiting = self.counts.waiting.saturating_sub(1);
            self.held.remove(&(wait.connection, Holding::Wait(place)));
            self.due.remove(&(wait.timer_us, Due::Wait(place)));
        }
    }

    /// Whether a client waits at this place.
    pub fn waits(&self, place: u64) -> bool {
        self.waits.contains_key(&place)
    }

    /// A client that waits, its place, and the most urgent job that is ready for one.
    pub fn next_match(&mut self, now_us: u64) -> Option<(u64, Wait, Ref<QueuedJob>)> {
        let mut best = None;
        for tube in std::mem::take(&mut self.woken) {
            let entry = self.tubes.at(tube).filter(|tube| tube.is_open(now_us));
            let found = entry.and_then(|tube| Some((tube.first_ready()?, tube.first_waiting()?)));
            self.woken.extend(found.map(|_| tube));
            best = best.into_iter().chain(found).min_by_key(|((key, _), _)| *key);
        }
        let ((_, job), place) = best?;
        Some((place, self.waits.get(&place)?.clone(), job))
    }

    /// Connections have ended, the first of which may be `from`: gives up to `most` of what they have here, waits
    /// first. Returns the waits, which the other regions have to give up too, and whether this was all.
    pub fn give_up(
        &mut self,
        from: ConnectionId,
        have_ended: impl Fn(ConnectionId) -> bool,
        most: usize,
    ) -> (Vec<(u64, Wait)>, bool) {
        let mut waits = Vec::new();
        for _ in 0..most {
            let next = self.held.range((from, Holding::Wait(0))..).next().copied();
            let Some((connection, holding)) = next.filter(|(holder, _)| have_ended(*holder)) else {
                return (waits, true);
            };
            match holding {
                Holding::Wait(place) => {
                    waits.extend(self.waits.get(&place).map(|wait| (place, wait.clone())));
                    self.end_wait(place);
                }
                Holding::Job(_, job) => _ = self.change(job, JobState::Ready, |_| {}),
                Holding::Tube { tube, watches } => {
                    self.held.remove(&(connection, holding));
                    self.count_reference(tube, watches, false);
                }
                Holding::Role(role) => {
                    self.held.remove(&(connection, holding));
                    self.counts.role(usize::from(role), false);
                }
            }
        }
        (waits, false)
    }

    /// A timer fires: does up to `most` things that are due. Returns the clients that have waited long enough.
    pub fn tick(&mut self, time_us: u64, now_us: u64, most: usize) -> Vec<(u64, Wait)> {
        let mut waits = Vec::new();
        if self.timer_us == time_us {
            (self.timer_us, self.wants_timer) = (0, true);
        }
        for _ in 0..most {
            let Some((at_us, due)) = self.due.first().copied().filter(|(at_us, _)| *at_us <= now_us) else {
                break;
            };
            match due {
                Due::Tube(tube) => {
                    self.due.remove(&(at_us, due));
                    self.tubes.at_mut(tube).into_iter().for_each(|tube| tube.unpause(now_us));
                    self.woken.push(tube);
                }
                Due::Wait(place) => {
                    self.due.remove(&(at_us, due));
                    waits.extend(self.waits.get(&place).map(|wait| (place, wait.clone())));
                }
                Due::Job(job) => {
                    let state = self.job(job).map(|job| job.state());
                    let is_late = matches!(state, Some(JobState::Reserved { .. }));
                    self.counts.timeouts += u64::from(is_late);
                    self.change(job, JobState::Ready, |job| {
                        job.count(|tallies| tallies.timeouts += u32::from(is_late));
                    });
                }
            }
        }
        waits
    }

    /// The time of a timer that has to be set, if there is one.
    pub fn next_timer(&mut self, now_us: u64) -> Option<u64> {
        if !std::mem::take(&mut self.wants_timer) {
            return None;
        }
        let (first_us, _) = *self.due.first()?;
        let time_us = first_us.min(now_us + LONGEST_TIMER_US);
        let is_next = self.timer_us == 0 || time_us < self.timer_us;
        is_next.then(|| self.timer_us = time_us)?;
        Some(time_us)
    }

    /// Takes a job out of its state, changes it, and puts it into another one; returns whether it is there.
    fn change(&mut self, job: Ref<QueuedJob>, to: JobState, change: impl FnOnce(&mut QueuedJob)) -> bool {
        self.leave(job);
        let Some(entry) = self.jobs.at_mut(job) else { return false };
        change(entry);
        self.enter(job, to);
        true
    }

    fn enter(&mut self, job: Ref<QueuedJob>, state: JobState) {
        let Some(entry) = self.jobs.at_mut(job) else { return };
        entry.set_state(state);
        let (key, tube) = (entry.key(), entry.tube());
        match state {
            JobState::Reserved { by, until_us } => {
                self.held.insert((by, Holding::Job(until_us, job)));
                self.remind(until_us, Due::Job(job));
            }
            JobState::Delayed { until_us } => self.remind(until_us, Due::Job(job)),
            JobState::Ready | JobState::Buried { .. } => {}
        }
        self.counts.state(state, key.0 < URGENT, true);
        let Some(entry) = self.tubes.at_mut(tube) else { return };
        entry.add(job, key, state);
        if state == JobState::Ready && entry.first_waiting().is_some() && !self.woken.contains(&tube) {
            self.woken.push(tube);
        }
    }

    fn leave(&mut self, job: Ref<QueuedJob>) {
        let Some(entry) = self.jobs.at(job) else { return };
        let (key, tube, state) = (entry.key(), entry.tube(), entry.state());
        match state {
            JobState::Reserved { by, until_us } => {
                self.held.remove(&(by, Holding::Job(until_us, job)));
                self.due.remove(&(until_us, Due::Job(job)));
            }
            JobState::Delayed { until_us } => _ = self.due.remove(&(until_us, Due::Job(job))),
            JobState::Ready | JobState::Buried { .. } => {}
        }
        self.counts.state(state, key.0 < URGENT, false);
        if let Some(tube) = self.tubes.at_mut(tube) {
            tube.take(key, state);
        }
    }

    fn remind(&mut self, time_us: u64, due: Due) {
        self.due.insert((time_us, due));
        self.wants_timer |= self.timer_us == 0 || time_us < self.timer_us;
    }

    fn find_or_make(&mut self, name: &str) -> Option<Ref<Tube>> {
        let found = self.find_tube(name);
        if found.is_none() && self.tubes.len() < MAX_TUBES {
            self.tubes.insert(name.to_owned(), Tube::new(name));
            return self.find_tube(name);
        }
        found
    }

    fn count_reference(&mut self, tube: Ref<Tube>, watches: bool, more: bool) {
        if let Some(tube) = self.tubes.at_mut(tube) {
            tube.refer(watches, more);
        }
        self.drop_if_unused(tube);
    }

    fn drop_if_unused(&mut self, tube: Ref<Tube>) {
        let name = self.tubes.at(tube).filter(|tube| tube.is_unused()).map(|tube| tube.name().to_owned());
        name.into_iter().for_each(|name| _ = self.tubes.remove(&name));
    }
}

/// The state of a job that is ready after so many seconds.
fn ready_after(seconds: u32, now_us: u64) -> JobState {
    match seconds {
        0 => JobState::Ready,
        _ => JobState::Delayed { until_us: now_us + u64::from(seconds) * 1_000_000 },
    }
}
