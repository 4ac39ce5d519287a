//! Decides when to strike: only as often as the group says that it tolerates, and then at once; and notices when the
//! group does not come back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crosscheck::admin::ReplicaPhase;

use crate::plan::{Sequence, Stroke, TroubleKind};
use crate::run::{TrialCluster, TrialLoad};
use crate::trouble::{Active, victim};

use super::outcome::{Pair, StrikeRecord};

/// Pause between two looks at the group.
const LOOK: Duration = Duration::from_millis(5);
/// How long clients of replicas that were not hit may be without any reply.
const STALL: Duration = Duration::from_secs(10);
/// After a kill the leader counts the replica as away after so long at the latest.
const NOTICED: Duration = Duration::from_secs(1);
/// How long the clients of a replica may take to come back to it.
const GRACE: Duration = Duration::from_millis(500);
/// Pauses before a pair, in milliseconds.
const RESTS_MS: [u64; 3] = [20, 300, 1_000];

/// What a group has to bear.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How many replicas may fail when all are well.
    pub(super) most: u8,
    /// Whether it serves while a replica is silent.
    pub(super) outlives_silence: bool,
    /// Whether the second strike falls whatever the group says.
    pub(super) blindly: bool,
    /// How long it may take after the last trouble has ended.
    pub(super) heal: Duration,
}

/// Why a pair did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The operator ended the run.
    Ended,
    /// The group hangs: how that was seen.
    Hung(String),
}

/// A strike of the present pair.
struct Strike {
    active: Active,
    kind: TroubleKind,
    victim: usize,
    windows: Vec<usize>,
    at: Instant,
    due: Instant,
    /// What the group tolerated before it.
    tolerated: u8,
    /// The group has said since that it tolerates fewer.
    is_noticed: bool,
    ended: Option<Instant>,
    is_back: bool,
}

impl Strike {
    /// Whether it keeps its victim from carrying the group on. A slow disk does not.
    fn takes_away(&self) -> bool {
        self.kind != TroubleKind::SlowDisk
    }

    /// Whether what the group says now takes account of it. A pause that no replica noticed has cost nothing once it is
    /// over; a kill has cost a memory.
    fn is_accounted(&self) -> bool {
        let is_past =
            self.ended.is_some() && (self.kind != TroubleKind::Kill || self.at.elapsed() >= NOTICED);
        !self.takes_away() || self.is_noticed || is_past
    }
}

/// Brings pairs to one group.
pub(super) struct Driver<'a> {
    cluster: &'a TrialCluster<'a>,
    load: &'a TrialLoad,
    terms: Terms,
    ending: &'a AtomicBool,
    strikes: Vec<Strike>,
    /// When a strike last began or ended.
    changed: Instant,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        cluster: &'a TrialCluster<'a>,
        load: &'a TrialLoad,
        terms: Terms,
        ending: &'a AtomicBool,
    ) -> Self {
        Driver { cluster, load, terms, ending, strikes: Vec::new(), changed: Instant::now() }
    }

    /// One pair: from a group that is whole to one that is whole again, and serves every client.
    pub(super) fn pair(&mut self, number: usize, strokes: &mut Sequence<'_>) -> Result<Pair, (Pair, Stop)> {
        let mut pair = Pair::new(number);
        let done = self.strike_both(&mut pair, strokes);
        let ended = self.end_all();
        match done {
            Ok(()) => {
                pair.whole_after_s = ended.elapsed().as_secs_f64();
                Ok(pair)
            }
            Err(stop) => Err((pair, stop)),
        }
    }

    fn strike_both(&mut self, pair: &mut Pair, strokes: &mut Sequence<'_>) -> Result<(), Stop> {
        let mut next = || strokes.next().ok_or(Stop::Ended);
        let (first, second) = (next()?, next()?);
        self.until("the group is not whole before the pair", Self::is_whole)?;
        self.wait(Duration::from_millis(RESTS_MS[(first.choice >> 40) as usize % RESTS_MS.len()]))?;
        self.until("the group does not tolerate the first strike", |driver| driver.spare() >= 1)?;
        pair.strikes.push(self.strike(&first, None));
        let first_victim = self.strikes[0].victim;
        // Where more than one may fail, every other pair strikes two at once.
        let at_once = second.choice >> 41 & 1 == 0;
        if !self.terms.blindly {
            self.until("the group never tolerates a second strike", |driver| {
                driver.spare() >= 1 && (at_once || driver.strikes[0].is_accounted())
            })?;
            pair.waited_s = self.strikes[0]
                .ended
                .map(|ended| ended.elapsed().as_secs_f64())
                .filter(|waited| *waited > 0.0);
        }
        pair.strikes.push(self.strike(&second, Some(first_victim)));
        self.until("not every trouble has ended", |driver| {
            driver.strikes.iter().all(|strike| strike.ended.is_some())
        })?;
        self.until("the group does not become whole again", Self::is_whole)?;
        self.until("not every client gets replies again", Self::all_are_answered)
    }

    /// Brings a trouble to a replica, never to `spared`.
    fn strike(&mut self, stroke: &Stroke, spared: Option<usize>) -> StrikeRecord {
        let cluster = self.cluster;
        let victim = victim(stroke, &cluster.keeper, spared);
        let kind = stroke.trouble.kind;
        let led = cluster.keeper.leader() == Some(victim);
        let tolerated = cluster.keeper.tolerates(self.changed).unwrap_or(0);
        let record = StrikeRecord {
            trouble: stroke.trouble.description(),
            victim: victim as u8 + 1,
            led,
            at_s: cluster.seconds(),
            lasts_s: stroke.lasts,
            tolerated,
            permitted: self.spare() >= 1,
        };
        // Of two, one that is silent keeps the other one waiting.
        let keeps_all = self.is_silence(kind) && !self.terms.outlives_silence;
        let affected = (0..cluster.keeper.size()).filter(|number| keeps_all || *number == victim);
        let why = record.trouble.as_str();
        let windows = affected.map(|number| cluster.announcer.open(number as u8 + 1, why)).collect();
        let at = Instant::now();
        let active = Active::strike(&cluster.testbed, &cluster.keeper, stroke, victim);
        self.changed = Instant::now();
        self.strikes.push(Strike {
            active,
            kind,
            victim,
            windows,
            at,
            due: self.changed + Duration::from_secs_f64(stroke.lasts),
            tolerated,
            is_noticed: false,
            ended: None,
            is_back: false,
        });
        record
    }

    fn is_silence(&self, kind: TroubleKind) -> bool {
        matches!(kind, TroubleKind::Pause | TroubleKind::Partition)
    }

    /// How many more may be hit now: what the group says, less those of which it does not know yet.
    fn spare(&self) -> u8 {
        let tolerated = self.cluster.keeper.tolerates(self.changed).unwrap_or(0);
        let unknown = self.strikes.iter().filter(|strike| !strike.is_accounted()).count();
        tolerated.saturating_sub(unknown as u8)
    }

    fn is_whole(&self) -> bool {
        let keeper = &self.cluster.keeper;
        let all_answered = keeper.all_answered_since(self.changed);
        all_answered && keeper.unwell().is_none() && keeper.tolerates(self.changed) == Some(self.terms.most)
    }

    fn all_are_answered(&self) -> bool {
        let since = self.cluster.announcer.at(self.changed);
        self.load.shared.answered_at.iter().all(|at| at.load(Ordering::Relaxed) > since)
    }

    /// Looks until `holds`.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<(), Stop> {
        let begun = Instant::now();
        while !holds(self) {
            self.look()?;
            let goes_on = self.strikes.iter().any(|strike| strike.ended.is_none());
            let since = self.changed.max(begun);
            if !goes_on && since.elapsed() > self.terms.heal {
                return Err(Stop::Hung(format!(
                    "{what} within {} s: {}",
                    self.terms.heal.as_secs(),
                    self.why()
                )));
            }
        }
        Ok(())
    }

    fn wait(&mut self, pause: Duration) -> Result<(), Stop> {
        let over = Instant::now() + pause;
        while Instant::now() < over {
            self.look()?;
        }
        Ok(())
    }

    /// One look: troubles that are over end, and what the group says is recorded.
    fn look(&mut self) -> Result<(), Stop> {
        thread::sleep(LOOK);
        if self.ending.load(Ordering::Relaxed) {
            return Err(Stop::Ended);
        }
        let keeper = &self.cluster.keeper;
        for strike in &mut self.strikes {
            if keeper.tolerates(strike.at).is_some_and(|tolerated| tolerated < strike.tolerated) {
                strike.is_noticed = true;
            }
            if strike.ended.is_none() && Instant::now() >= strike.due {
                strike.active.end();
                self.changed = Instant::now();
                strike.ended = Some(self.changed);
            }
            let serves = |since| {
                let status = keeper.status_since(strike.victim, since);
                status.is_some_and(|status| status.phase == ReplicaPhase::Serving)
            };
            if !strike.is_back && strike.ended.is_some_and(serves) {
                strike.is_back = true;
                strike.windows.iter().for_each(|window| self.cluster.announcer.close(*window, GRACE));
            }
        }
        self.check_for_stall()
    }

    /// While others are hit, the rest serves its clients.
    fn check_for_stall(&self) -> Result<(), Stop> {
        let is_away =
            |number: usize| self.strikes.iter().any(|one| one.victim == number && one.ended.is_none());
        let is_silent = self.strikes.iter().any(|one| one.ended.is_none() && self.is_silence(one.kind));
        if is_silent && !self.terms.outlives_silence {
            return Ok(());
        }
        let at = |at: &AtomicU64| at.load(Ordering::Relaxed);
        let by = self.load.shared.answered_by.iter().enumerate();
        let last = by.filter(|(number, _)| !is_away(*number)).map(|(_, by)| at(by)).max().unwrap_or(0);
        let since = last.max(self.cluster.announcer.at(self.changed));
        let waited = self.cluster.announcer.now().saturating_sub(since);
        if waited > STALL.as_nanos() as u64 {
            let seconds = STALL.as_secs();
            let why = self.why();
            return Err(Stop::Hung(format!(
                "no client of a replica that is not struck has had a reply for {seconds} s: {why}"
            )));
        }
        Ok(())
    }

    /// What keeps the group from being whole.
    fn why(&self) -> String {
        let keeper = &self.cluster.keeper;
        let shared = &self.load.shared;
        let since = self.cluster.announcer.at(self.changed);
        let waiting = shared.answered_at.iter().filter(|at| at.load(Ordering::Relaxed) <= since).count();
        let statuses = (0..keeper.size()).filter_map(|number| keeper.last_status(number));
        let reasons: Vec<String> = statuses
            .filter_map(|(_, status)| {
                let why = status.tolerates_why?;
                Some(format!("replica {} says that it tolerates {}: {why}", status.replica, status.tolerates))
            })
            .collect();
        let unwell = keeper.unwell().unwrap_or_else(|| "all serve".to_owned());
        let clients = shared.answered_at.len();
        format!("{unwell}; {waiting} of {clients} clients without a reply since; {}", reasons.join("; "))
    }

    /// Ends what is left of the pair; returns when its last trouble had ended.
    fn end_all(&mut self) -> Instant {
        for mut strike in self.strikes.drain(..) {
            strike.active.end();
            if !strike.is_back {
                strike.windows.iter().for_each(|window| self.cluster.announcer.close(*window, GRACE));
            }
        }
        self.changed
    }
}
