//! Keeps the replicas of a local cluster running: starts them, restarts dead ones, and finally stops them all.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::backoff::Backoff;
use super::child::{Dress, Process, in_words};
use super::hooks::ClusterHooks;
use super::plan::{ClusterPlan, Layout};
use crate::ServiceOptions;
use crate::outcome::BROKEN;

/// Last lines of a replica's stderr that are kept, to report why it was given up.
const LAST_WORDS: usize = 6;
/// A replica that dies this often before it served once is not started again.
const HOPELESS: u32 = 5;
/// Exit code of a replica whose configuration is wrong: starting it again does not help.
const MISCONFIGURED: i32 = 2;

/// What happened to a replica, and a line of `up --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum SupervisorEvent {
    /// A process was started.
    Started {
        /// The replica, from 1.
        replica: u8,
        /// Its process.
        pid: u32,
    },
    /// A process ended and will be started again.
    Died {
        /// The replica, from 1.
        replica: u8,
        /// Its exit status as text.
        how: String,
        /// Pause until the next start, in milliseconds.
        pause_ms: u64,
    },
    /// The hardware of a replica is broken: it is not started again.
    Drained {
        /// The replica, from 1.
        replica: u8,
        /// Its last messages.
        why: String,
    },
    /// A replica never served and is not started again.
    Hopeless {
        /// The replica, from 1.
        replica: u8,
        /// Its exit status, and its last messages.
        why: String,
        /// Whether an operator has to correct something first.
        misconfigured: bool,
    },
    /// A replica wrote a line to its stderr.
    Said {
        /// The replica, from 1.
        replica: u8,
        /// The line.
        line: String,
    },
}

/// The replicas of one cluster, as processes.
#[derive(Debug)]
pub struct Supervisor {
    layout: Layout,
    wards: Vec<Ward>,
    say: Sender<(u8, String)>,
    said: Receiver<(u8, String)>,
    hooks: Arc<dyn ClusterHooks>,
}

#[derive(Debug)]
struct Ward {
    number: u8,
    config: PathBuf,
    dress: Dress,
    process: Option<Process>,
    start_at: Option<Instant>,
    /// Whether it was asked to end, and stays down then.
    is_released: bool,
    serving_since: Option<Instant>,
    has_served: bool,
    deaths: u32,
    backoff: Backoff,
    last_words: VecDeque<String>,
}

impl Supervisor {
    /// Writes the cluster's files; the first [`Supervisor::tick`] starts the replicas.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn new<O: ServiceOptions>(
        plan: &ClusterPlan<O>,
        hooks: Arc<dyn ClusterHooks>,
    ) -> anyhow::Result<Self> {
        let configs = plan.write()?;
        let (say, said) = mpsc::channel();
        let now = Instant::now();
        let ward = |(number, config)| Ward {
            number,
            config,
            dress: plan.dress(number),
            process: None,
            start_at: Some(now),
            is_released: false,
            serving_since: None,
            has_served: false,
            deaths: 0,
            backoff: Backoff::default(),
            last_words: VecDeque::new(),
        };
        let wards = (1..).zip(configs).map(ward).collect();
        Ok(Supervisor { layout: plan.layout.clone(), wards, say, said, hooks })
    }

    /// Dead replicas are started again after `pause`, every time: for tests that kill them continuously.
    pub fn restart_after(&mut self, pause: Duration) {
        self.wards.iter_mut().for_each(|ward| ward.backoff = Backoff::fixed(pause));
    }

    /// Notes that a replica serves: only a replica that has served is restarted without limit.
    pub fn note_serving(&mut self, replica: u8, now: Instant) {
        if let Some(ward) = self.wards.iter_mut().find(|ward| ward.number == replica) {
            ward.has_served = true;
            ward.serving_since.get_or_insert(now);
        }
    }

    /// Checks every replica once; to be called every few dozen milliseconds.
    pub fn tick(&mut self, now: Instant) -> Vec<SupervisorEvent> {
        let mut events = Vec::new();
        for (replica, line) in self.said.try_iter() {
            if let Some(ward) = self.wards.iter_mut().find(|ward| ward.number == replica) {
                ward.last_words.push_back(line.clone());
                if ward.last_words.len() > LAST_WORDS {
                    ward.last_words.pop_front();
                }
            }
            events.push(SupervisorEvent::Said { replica, line });
        }
        // The user of a local cluster is its operator, so it begins the group by itself. Once a replica has served, the
        // group has begun: replicas that then lose all their memories wait for an operator's command.
        let has_begun = self.wards.iter().any(|ward| ward.has_served);
        for ward in &mut self.wards {
            events.extend(ward.bury(now));
            events.extend(ward.raise(now, !has_begun, &*self.hooks, &self.say));
        }
        events.iter().for_each(|event| self.hooks.event(event));
        events
    }

    /// Requests every replica to stop, waits at most `patience`, kills the remaining ones, and removes the cluster's
    /// files. Returns the replicas that had to be killed.
    pub fn stop(&mut self, patience: Duration) -> Vec<u8> {
        for process in self.wards.iter_mut().filter_map(|ward| ward.process.as_mut()) {
            process.release();
        }
        let deadline = Instant::now() + patience;
        let mut killed = Vec::new();
        for ward in &mut self.wards {
            if ward.process.as_mut().is_some_and(|process| process.end_by(deadline)) {
                killed.push(ward.number);
            }
        }
        killed
    }
}

/// For trials, which stop and restart single replicas as operators and failures do.
impl Supervisor {
    /// The process of a replica, while it has one.
    pub fn pid(&self, replica: u8) -> Option<u32> {
        self.wards.iter().find(|ward| ward.number == replica)?.process.as_ref().map(Process::pid)
    }

    /// Ends a replica without warning; it is not started again before [`Supervisor::let_up`].
    pub fn keep_down(&mut self, replica: u8) {
        if let Some(ward) = self.ward(replica) {
            ward.process.take().iter_mut().for_each(Process::kill);
            (ward.start_at, ward.serving_since, ward.is_released) = (None, None, false);
        }
    }

    /// Requests a clean end of a replica, as an operator does; it is not started again before [`Supervisor::let_up`].
    pub fn release(&mut self, replica: u8) {
        if let Some(ward) = self.ward(replica) {
            ward.process.iter_mut().for_each(Process::release);
            (ward.start_at, ward.is_released) = (None, ward.process.is_some());
        }
    }

    /// Starts a replica that was kept down, or that waits for its next start, at the next [`Supervisor::tick`].
    pub fn let_up(&mut self, replica: u8, now: Instant) {
        if let Some(ward) = self.ward(replica)
            && ward.process.is_none()
        {
            ward.start_at = Some(now);
        }
    }

    fn ward(&mut self, replica: u8) -> Option<&mut Ward> {
        self.wards.iter_mut().find(|ward| ward.number == replica)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.layout.clean();
    }
}

impl Ward {
    /// Detects that the process has ended.
    fn bury(&mut self, now: Instant) -> Option<SupervisorEvent> {
        let status = self.process.as_mut()?.ended_and_read()?;
        self.process = None;
        if std::mem::take(&mut self.is_released) {
            self.serving_since = None;
            return None;
        }
        self.deaths += 1;
        let served = self.serving_since.take().map_or(Duration::ZERO, |since| now - since);
        if status.code() == Some(i32::from(BROKEN)) {
            return Some(SupervisorEvent::Drained { replica: self.number, why: self.words() });
        }
        let how = in_words(status);
        let misconfigured = status.code() == Some(MISCONFIGURED);
        if (misconfigured || self.deaths >= HOPELESS) && !self.has_served {
            let why = format!("it ended with {how} before it served; its last messages:\n{}", self.words());
            return Some(SupervisorEvent::Hopeless { replica: self.number, why, misconfigured });
        }
        let pause = self.backoff.after(served);
        self.start_at = Some(now + pause);
        Some(self.died(how, pause))
    }

    /// Its last messages.
    fn words(&self) -> String {
        self.last_words.iter().map(String::as_str).collect::<Vec<&str>>().join("\n")
    }

    fn died(&self, how: String, pause: Duration) -> SupervisorEvent {
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        SupervisorEvent::Died { replica: self.number, how, pause_ms }
    }

    /// Starts the process when its pause is over.
    fn raise(
        &mut self,
        now: Instant,
        begins: bool,
        hooks: &dyn ClusterHooks,
        say: &Sender<(u8, String)>,
    ) -> Option<SupervisorEvent> {
        if self.process.is_some() || self.start_at.is_none_or(|at| now < at) {
            return None;
        }
        let begins = begins && self.number == 1;
        match Process::start(self.number, &self.config, begins, &self.dress, hooks, say.clone()) {
            Ok(process) => {
                let pid = process.pid();
                self.process = Some(process);
                self.start_at = None;
                Some(SupervisorEvent::Started { replica: self.number, pid })
            }
            Err(error) => {
                let pause = self.backoff.after(Duration::ZERO);
                self.start_at = Some(now + pause);
                Some(self.died(format!("no process: {error}"), pause))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn ward_running(command: &str) -> Ward {
        let (say, _said) = mpsc::channel();
        let process = Process::of_shell(command, 1, say).expect("a process");
        Ward {
            number: 1,
            config: PathBuf::new(),
            dress: Dress::default(),
            process: Some(process),
            start_at: None,
            is_released: false,
            serving_since: None,
            has_served: false,
            deaths: 0,
            backoff: Backoff::default(),
            last_words: VecDeque::new(),
        }
    }

    fn wait_for_burial(ward: &mut Ward) -> SupervisorEvent {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(event) = ward.bury(Instant::now()) {
                return event;
            }
            assert!(Instant::now() < deadline, "the process does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_death_is_noticed_with_its_cause_and_the_pause_grows() {
        let mut ward = ward_running("exit 7");
        let event = wait_for_burial(&mut ward);
        let died = |how: &str, pause_ms| SupervisorEvent::Died { replica: 1, how: how.into(), pause_ms };
        assert_eq!(event, died("exit code 7", 100));
        ward.process = ward_running("kill -9 $$").process;
        let event = wait_for_burial(&mut ward);
        assert_eq!(event, died("signal 9", 200));
    }

    #[test]
    fn a_misconfigured_replica_is_hopeless_unless_it_has_served() {
        let mut ward = ward_running("exit 2");
        ward.last_words.push_back("wrong field".into());
        assert!(matches!(
            wait_for_burial(&mut ward),
            SupervisorEvent::Hopeless { why, misconfigured: true, .. } if why.contains("wrong field")
        ));
        let mut ward = ward_running("exit 2");
        ward.has_served = true;
        assert!(matches!(wait_for_burial(&mut ward), SupervisorEvent::Died { .. }));
    }

    #[test]
    fn a_replica_with_broken_hardware_is_not_started_again() {
        let mut ward = ward_running("exit 3");
        ward.has_served = true;
        let event = wait_for_burial(&mut ward);
        assert!(matches!(event, SupervisorEvent::Drained { replica: 1, .. }), "{event:?}");
        assert_eq!(ward.start_at, None);
    }

    #[test]
    fn closing_the_tether_ends_a_process_that_waits_on_it() {
        let mut ward = ward_running("cat > /dev/null; exit 4");
        let process = ward.process.as_mut().expect("running");
        assert!(process.ended().is_none());
        process.release();
        assert!(
            matches!(wait_for_burial(&mut ward), SupervisorEvent::Died { how, .. } if how == "exit code 4")
        );
    }

    #[test]
    fn a_released_replica_has_not_died_and_stays_down() {
        let mut ward = ward_running("cat > /dev/null");
        ward.process.iter_mut().for_each(Process::release);
        ward.is_released = true;
        let deadline = Instant::now() + Duration::from_secs(10);
        while ward.process.is_some() && Instant::now() < deadline {
            assert_eq!(ward.bury(Instant::now()), None);
            thread::sleep(Duration::from_millis(5));
        }
        assert!(ward.process.is_none() && !ward.is_released);
        assert_eq!((ward.deaths, ward.start_at), (0, None));
    }
}
