//! What the queue counts, and the text of `stats`.

use std::fmt::Write;

use crosscheck::object::Summed;

use crate::MAX_JOB_BYTES;
use crate::job::JobState;
use crate::request::{QueueCommand, Sender};

/// Kinds of commands that `stats` does not list, as beanstalkd's does not.
const NOT_LISTED: [&str; 3] = ["reserve_job", "kick_job", "quit"];
/// The names of a job's states, in the order in which they are counted.
const STATES: [&str; 5] = ["urgent", "ready", "reserved", "delayed", "buried"];

/// What one region counts, or all together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Summed)]
pub struct Counts {
    commands: [u64; QueueCommand::OF_CLIENTS],
    states: [u64; STATES.len()],
    /// Connections that have each role.
    roles: [u64; Sender::ROLES],
    /// Connections so far.
    connections: u64,
    /// Reservations that ended by themselves.
    pub timeouts: u64,
    /// Jobs that were put.
    pub jobs: u64,
    /// Clients that wait for a job.
    pub waiting: u64,
}

impl Counts {
    /// A command of this kind.
    pub fn command(&mut self, kind: u16) {
        if let Some(count) = self.commands.get_mut(usize::from(kind).wrapping_sub(1)) {
            *count += 1;
        }
    }

    /// A job comes into a state, or leaves it.
    pub fn state(&mut self, state: JobState, is_urgent: bool, more: bool) {
        let at = match state {
            JobState::Ready => 1,
            JobState::Reserved { .. } => 2,
            JobState::Delayed { .. } => 3,
            JobState::Buried { .. } => 4,
        };
        step(&mut self.states[at], more);
        if at == 1 && is_urgent {
            step(&mut self.states[0], more);
        }
    }

    /// A connection has a role from now on, or has it no more.
    pub fn role(&mut self, role: usize, more: bool) {
        step(&mut self.roles[role % Sender::ROLES], more);
        self.connections += u64::from(more && role == 0);
    }

    /// Adds what another region counts.
    pub fn add(&mut self, other: &Counts) {
        let add =
            |all: &mut [u64], other: &[u64]| all.iter_mut().zip(other).for_each(|(all, one)| *all += one);
        add(&mut self.commands, &other.commands);
        add(&mut self.states, &other.states);
        add(&mut self.roles, &other.roles);
        self.connections += other.connections;
        self.timeouts += other.timeouts;
        self.jobs += other.jobs;
        self.waiting += other.waiting;
    }

    /// The text of `stats`, of a queue with so many tubes.
    pub fn text(&self, tubes: usize, draining: bool) -> String {
        let mut text = "---\n".to_owned();
        let mut line = |name: &str, value: u64| _ = writeln!(text, "{name}: {value}");
        for (state, count) in STATES.iter().zip(self.states) {
            line(&format!("current-jobs-{state}"), count);
        }
        for (kind, count) in (1..).zip(self.commands) {
            let name = QueueCommand::kind_name(kind).filter(|name| !NOT_LISTED.contains(name));
            name.into_iter().for_each(|name| line(&format!("cmd-{}", name.replace('_', "-")), count));
        }
        let [clients, producers, workers] = self.roles;
        for (name, value) in [
            ("job-timeouts", self.timeouts),
            ("total-jobs", self.jobs),
            ("max-job-size", u64::from(MAX_JOB_BYTES)),
            ("current-tubes", tubes as u64),
            ("current-connections", clients),
            ("current-producers", producers),
            ("current-workers", workers),
            ("current-waiting", self.waiting),
            ("total-connections", self.connections),
        ] {
            line(name, value);
        }
        // What is true of one process, and not of a group, is left at zero.
        let version = env!("CARGO_PKG_VERSION");
        text + &format!(
            "pid: 0\nversion: \"{version}\"\nrusage-utime: 0.000000\nrusage-stime: 0.000000\nuptime: 0\n\
             binlog-oldest-index: 0\nbinlog-current-index: 0\nbinlog-records-migrated: 0\n\
             binlog-records-written: 0\nbinlog-max-size: 0\ndraining: {draining}\nid: 0000000000000000\n\
             hostname: crosscheck\nos: none\nplatform: none\n"
        )
    }
}

fn step(count: &mut u64, more: bool) {
    *count = if more { *count + 1 } else { count.saturating_sub(1) };
}
