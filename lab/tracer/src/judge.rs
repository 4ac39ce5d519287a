//! The outcome of a fault in one replica of a running cluster: judged by its clients' replies, by the errors that the
//! replicas detected, by whether the victim came back, and by the digests of all replicas.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::group::{Cluster, Digests, Group};
use crate::model::{self, Expected, Tally};
use crate::protocol::Wrong;
use crate::record::InjectionClass;

/// Pause between two checks of something that takes milliseconds.
const LOOK: Duration = Duration::from_micros(500);
/// How long healthy replicas may leave their clients without a reply: a leader may have to be elected.
const PROGRESS: Duration = Duration::from_secs(8);
/// How long a victim may hang before it is killed: the watchdog's 5 s, and a margin.
const HUNG: Duration = Duration::from_secs(8);
/// How long a victim may take to come back.
pub const BACK: Duration = Duration::from_secs(30);
/// How long different digests may wait for a repair.
const HEALING: Duration = Duration::from_secs(10);
/// Pause between two comparisons of different states: first, and at most.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// The outcome of the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// How it ended.
    pub class: InjectionClass,
    /// Details.
    pub subclass: String,
    /// Reports of replicas and clients about it.
    pub details: String,
    /// Whether all replicas' digests were equal in the end; none where there was nothing to compare.
    pub states_equal: Option<bool>,
    /// The replicas that detected an error by themselves.
    pub noticed: Vec<u8>,
    /// Whether the cluster can take another injection.
    pub healthy: bool,
}

impl Judged {
    /// The outcome of a fault that was not injected.
    pub fn lost(why: String) -> Self {
        let (details, noticed) = (String::new(), vec![]);
        Judged {
            class: InjectionClass::Lost,
            subclass: why,
            details,
            states_equal: None,
            noticed,
            healthy: true,
        }
    }
}

/// The observed state before the fault.
#[derive(Clone, Debug)]
pub struct Before {
    deaths: usize,
    /// Lines that the victim had written.
    lines: usize,
    process: i32,
    signs: Vec<u64>,
    /// Wrong replies so far, by client.
    wrong: Vec<usize>,
    progress: Vec<u64>,
}

/// A running cluster, and its clients.
#[derive(Clone, Copy, Debug)]
pub struct WatchedCluster<'a> {
    /// The description of the group in the target's file.
    pub group: &'a Group,
    /// Its processes.
    pub cluster: &'a Cluster,
    /// The observations of each replica's client.
    pub clients: &'a [Tally],
}

impl WatchedCluster<'_> {
    /// The replica into which faults are injected, from 1.
    pub fn victim(&self) -> u8 {
        self.group.victim
    }

    /// The observed state now.
    ///
    /// # Errors
    /// When the victim has no process.
    pub fn before(&self) -> anyhow::Result<Before> {
        Ok(Before {
            deaths: self.cluster.deaths(self.victim()).0,
            lines: self.cluster.lines(self.victim()).len(),
            process: *self.cluster.processes(self.victim()).last().context("a process")?,
            signs: (1..=self.cluster.size()).map(|number| self.signs(number)).collect(),
            wrong: self.wrong(),
            progress: self.progress(),
        })
    }

    /// Whether the victim's process has ended since.
    pub fn has_ended(&self, before: &Before) -> bool {
        self.cluster.deaths(self.victim()).0 > before.deaths
    }

    /// The sum of all counters by which a replica reports that it detected an error.
    fn signs(&self, number: u8) -> u64 {
        self.cluster.status(number).map_or(0, |status| {
            status.mismatches + status.repairs + status.failed_checks + status.dropped_frames
        })
    }

    /// The victim's status, as text.
    fn victims_words(&self) -> String {
        self.cluster.status(self.victim()).map_or("no status".into(), |status| {
            let crosscheck::admin::Status { phase, executed, mismatches, repairs, failed_checks, .. } =
                status;
            format!(
                "{phase:?}, executed {executed}, {mismatches} mismatches, {repairs} repairs, \
                {failed_checks} failed checks"
            )
        })
    }

    /// The progress of each replica's clients, and the replicas' statuses.
    fn stuck_words(&self, before: &Before) -> String {
        let batches: Vec<u64> =
            self.progress().iter().zip(&before.progress).map(|(now, then)| now - then).collect();
        let statuses = (1..=self.cluster.size()).filter_map(|number| self.cluster.status(number));
        let statuses: Vec<String> =
            statuses.map(|status| serde_json::to_string(&status).unwrap_or_default()).collect();
        format!("clients of each replica: batches {batches:?}; {}", statuses.join(" "))
    }

    /// The phase of each replica.
    fn phases(&self) -> String {
        let phase = |number| match self.cluster.status(number) {
            Some(status) => format!("{number} {:?} at {}", status.phase, status.executed),
            None => format!("{number} silent"),
        };
        (1..=self.cluster.size()).map(phase).collect::<Vec<_>>().join(", ")
    }

    fn wrong(&self) -> Vec<usize> {
        let count = |tally: &Tally| tally.wrong.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.clients.iter().map(count).collect()
    }

    /// The wrong replies since `before`.
    fn wrong_since(&self, before: &Before) -> Vec<model::WrongReply> {
        let since = |(tally, already): (&Tally, &usize)| {
            let wrong = tally.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.iter().skip(*already).cloned().collect::<Vec<_>>()
        };
        self.clients.iter().zip(&before.wrong).flat_map(since).collect()
    }

    fn progress(&self) -> Vec<u64> {
        self.clients.iter().map(|tally| tally.batches.load(Ordering::Relaxed)).collect()
    }

    /// The outcome of a fault that was injected after `before`.
    pub fn judge(&self, before: &Before) -> Judged {
        let judged =
            if self.cluster.size() == 1 { self.judge_alone(before) } else { self.judge_group(before) };
        self.with_all_serving(judged)
    }

    /// The same outcome if all replicas then serve; otherwise the cluster takes no more injections.
    pub fn with_all_serving(&self, mut judged: Judged) -> Judged {
        if judged.healthy && !self.cluster.all_serve(BACK) {
            judged.class = InjectionClass::NoProgress;
            judged.subclass += &format!("; then not all served: {}", self.phases());
            judged.healthy = false;
        }
        judged
    }

    /// Judges a single server, which has no peers to compare with. Errors that stay in its store must not be blamed on
    /// the next fault: it is restarted.
    fn judge_alone(&self, before: &Before) -> Judged {
        let serves = self.await_victims_client(before);
        let (end, back) = self.await_victim(before);
        let noticed = self.noticed(before, end.is_some());
        let wrong = self.wrong_since(before);
        let (class, subclass) = match &end {
            _ if wrong.iter().any(|wrong| wrong.wrong != Wrong::ErrorReply) => {
                (InjectionClass::Undetected, self.wrong_words(before))
            }
            _ if !wrong.is_empty() => (InjectionClass::Detected, "error reply".into()),
            Some(how) => (InjectionClass::Otherwise, how.clone()),
            None if !serves => (InjectionClass::Otherwise, "hang".into()),
            None if !noticed.is_empty() => (InjectionClass::Detected, "noticed, every reply right".into()),
            None => (InjectionClass::Masked, String::new()),
        };
        let details = wrong.iter().map(|wrong| wrong.details.clone()).collect::<Vec<_>>().join("; ");
        // The next fault needs a server in which its client has stored something.
        let anew =
            back && self.begin_anew() && self.before().is_ok_and(|now| self.await_victims_client(&now));
        Judged { class, subclass, details, states_equal: None, noticed, healthy: anew }
    }

    /// Ends the victim, so that no part of its state is left; returns whether its next process serves.
    fn begin_anew(&self) -> bool {
        let process = self.cluster.processes(self.victim()).last().copied();
        self.cluster.kill(self.victim());
        let begun = Instant::now();
        while self.cluster.processes(self.victim()).last().copied() == process && begun.elapsed() < BACK {
            std::thread::sleep(LOOK);
        }
        self.cluster.all_serve(BACK)
    }

    fn judge_group(&self, before: &Before) -> Judged {
        let progress = self.await_progress(before);
        let (end, back) = self.await_victim(before);
        let mut digests = self.cluster.digests(self.victim());
        let (since, mut pause) = (Instant::now(), SHORTEST_PAUSE);
        while digests != Digests::Equal && since.elapsed() < self.healing() {
            // Comparing the states is what detects an error at rest; its repair takes milliseconds.
            std::thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
            digests = self.cluster.digests(self.victim());
        }
        // A victim that makes no progress replaces itself after its watchdog's time, while its digest is requested or
        // its client waits.
        let serves = end.is_some() || self.await_victims_client(before);
        let (end, back) = if end.is_none() { self.await_victim(before) } else { (end, back) };
        let noticed = self.noticed(before, end.is_some());
        let details = self.words(before, &noticed);
        let (class, subclass, mut healthy) = match (&digests, &end) {
            _ if self.wrong() != before.wrong => {
                (InjectionClass::WrongReply, self.wrong_words(before), digests == Digests::Equal)
            }
            _ if !progress => (InjectionClass::NoProgress, self.stuck_words(before), false),
            (_, Some(how)) if !back => (InjectionClass::NoProgress, format!("victim not back: {how}"), false),
            (Digests::Silent(who), _) => {
                (InjectionClass::NoProgress, format!("no digest from {who:?}"), false)
            }
            (Digests::Different(who), end) => {
                let replaced = end.as_ref().map_or(String::new(), |how| format!("; replaced: {how}"));
                (
                    InjectionClass::Latent,
                    format!("differs: {who:?}{replaced}; {}", self.victims_words()),
                    false,
                )
            }
            (Digests::Equal, Some(how)) => (InjectionClass::Replaced, how.clone(), true),
            (Digests::Equal, None) if !serves => (
                InjectionClass::NoProgress,
                format!("the victim answers no client; {}", self.stuck_words(before)),
                false,
            ),
            (Digests::Equal, None) if noticed.is_empty() => (InjectionClass::Masked, String::new(), true),
            (Digests::Equal, None) => {
                let by: Vec<String> = noticed.iter().map(|number| format!("noticed by {number}")).collect();
                (InjectionClass::Repaired, by.join(", "), true)
            }
        };
        let states_equal = match &digests {
            Digests::Equal => Some(true),
            Digests::Different(_) => Some(false),
            Digests::Silent(_) => None,
        };
        // A latent difference must not be blamed on the next fault; a replica without state is filled by its peers.
        if !healthy && matches!(&digests, Digests::Different(who) if *who == [self.victim()]) {
            healthy = self.begin_anew() && self.cluster.digests(self.victim()) == Digests::Equal;
        }
        Judged { class, subclass, details, states_equal, noticed, healthy }
    }

    /// How long different states may take to become equal again.
    fn healing(&self) -> Duration {
        if self.group.heals { HEALING } else { Duration::ZERO }
    }

    /// Waits until every client of a healthy replica has received its replies.
    fn await_progress(&self, before: &Before) -> bool {
        let victim = usize::from(self.victim()) - 1;
        let begun = Instant::now();
        while begun.elapsed() < PROGRESS {
            let now = self.progress();
            let arrived = |number: usize| now[number] >= before.progress[number] + self.group.batches;
            if (0..now.len()).filter(|number| *number != victim).all(arrived) {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        // A wrong reply ends a connection: that does not count as lack of progress.
        self.wrong() != before.wrong
    }

    /// Waits until the victim's client, which may have had to reconnect, has received its replies, or the victim has
    /// ended. False if neither happens: a replica that reports that it serves must answer.
    pub fn await_victims_client(&self, before: &Before) -> bool {
        let victim = usize::from(self.victim()) - 1;
        let wanted = before.progress[victim] + self.group.batches;
        let begun = Instant::now();
        while begun.elapsed() < PROGRESS {
            if self.progress()[victim] >= wanted || self.has_ended(before) {
                return true;
            }
            std::thread::sleep(LOOK);
        }
        false
    }

    /// How the victim ended, if it did, and whether it is back. A victim that hangs is killed if its watchdog did not
    /// end it.
    fn await_victim(&self, before: &Before) -> (Option<String>, bool) {
        let begun = Instant::now();
        let mut killed = false;
        loop {
            let (deaths, how) = self.cluster.deaths(self.victim());
            if deaths > before.deaths {
                let how = if killed { "hung, ended from outside".into() } else { how };
                return (Some(how), self.cluster.all_serve(BACK));
            }
            if !killed && self.cluster.status(self.victim()).is_some() {
                // It may be ending: an answer from the same process does not yet show that it stays.
                let same = self.cluster.processes(self.victim()).last() == Some(&before.process);
                if same && self.cluster.deaths(self.victim()).0 == before.deaths {
                    return (None, true);
                }
            }
            if !killed && begun.elapsed() > HUNG {
                killed = true;
                self.cluster.kill(self.victim());
            }
            if begun.elapsed() > BACK {
                return (Some("hung, and did not come back".into()), false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The replicas whose counters show that they detected the error.
    fn noticed(&self, before: &Before, ended: bool) -> Vec<u8> {
        let grown = |number: &u8| {
            let fresh = ended && *number == self.victim();
            self.signs(*number) > if fresh { 0 } else { before.signs[usize::from(*number) - 1] }
        };
        (1..=self.cluster.size()).filter(grown).collect()
    }

    fn words(&self, before: &Before, noticed: &[u8]) -> String {
        let mut words = Vec::new();
        if !noticed.is_empty() {
            for number in (1..=self.cluster.size()).filter(|number| *number != self.victim()) {
                let status = self.cluster.status(number);
                words.extend(
                    status
                        .and_then(|status| status.last_evidence)
                        .map(|evidence| format!("{number}: {evidence}")),
                );
            }
        }
        if self.has_ended(before) {
            words.push(self.cluster.said(self.victim(), before.lines));
        }
        for wrong in self.wrong_since(before) {
            let now = self.healthy_answer(&wrong.expected);
            words
                .push(format!("replica {}: {} | a healthy replica now: {now}", wrong.replica, wrong.details));
        }
        words.join("; ")
    }

    /// The reply of a healthy replica to the same request afterwards: the right reply means that only the first reply
    /// was wrong; the same wrong reply, that all replicas agree on it, and the request was wrong before it was ordered.
    fn healthy_answer(&self, expected: &Expected) -> String {
        if !expected.request.starts_with(b"get ") {
            return "not asked: the request changes something, or needs a connection of its own".into();
        }
        let healthy =
            (0..self.clients.len()).find(|number| number + 1 != usize::from(self.victim())).unwrap_or(0);
        match model::ask_once(self.cluster.clients[healthy], &expected.request) {
            Ok(reply) if reply == expected.reply => "right".into(),
            Ok(reply) => String::from_utf8_lossy(&reply[..reply.len().min(200)]).escape_debug().to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn wrong_words(&self, before: &Before) -> String {
        let role = |replica| if replica == self.victim() { "the victim" } else { "a healthy replica" };
        let words = |wrong: &model::WrongReply| format!("{:?} from {}", wrong.wrong, role(wrong.replica));
        self.wrong_since(before).iter().map(words).collect::<Vec<_>>().join(", ")
    }
}
