//! A cluster that `up --json` runs in a process of its own: for tests of that command, and for tools that cannot be the
//! parents of replicas.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crosscheck::admin::Endpoint;
use rustix::process::Signal;
use serde_json::Value;

use super::child::send_signal;
use super::events::EventLog;
use super::find::ReplicaHandle;

/// How long it may take to stop its replicas and to end, before it is killed.
const STOP: Duration = Duration::from_secs(20);
/// Pause between two checks whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Last events that an error shows.
const LAST_EVENTS: usize = 8;

/// A running `up --json`; its processes end with this value at the latest.
#[derive(Debug)]
pub struct DetachedCluster {
    /// Its replicas, in the order of their numbers.
    pub replicas: Vec<ReplicaHandle>,
    /// What happened to them.
    pub events: EventLog,
    program: PathBuf,
    supervisor: Child,
}

impl DetachedCluster {
    /// Starts `command`, a program's `up --json` with further options, and waits until all replicas serve.
    ///
    /// # Errors
    /// It cannot be started, gives up, or is not ready after `patience`; the message has its last events.
    pub fn start(command: &mut Command, patience: Duration) -> anyhow::Result<Self> {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut supervisor = started.context("starting a cluster")?;
        let output = supervisor.stdout.take().context("the cluster's output")?;
        let (events, program) = (EventLog::default(), PathBuf::from(command.get_program()));
        let (log, (tell, ready)) = (events.clone(), mpsc::channel());
        thread::Builder::new().name("up-output".into()).spawn(move || listen(output, &log, &tell))?;
        let mut cluster = DetachedCluster { replicas: Vec::new(), events, program, supervisor };
        match ready.recv_timeout(patience) {
            Ok(replicas) => cluster.replicas = replicas,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the cluster is not ready after {} s: {}", patience.as_secs(), cluster.last_events());
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the cluster ended before it was ready: {}", cluster.last_events());
            }
        }
        Ok(cluster)
    }

    /// The last events, as text.
    pub fn last_events(&self) -> String {
        let events = self.events.all();
        let last = &events[events.len().saturating_sub(LAST_EVENTS)..];
        last.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>().join("; ")
    }

    /// Stops it by a signal, as an operator does. Returns how it ended; none if it had to be killed.
    pub fn stop(&mut self, signal: Signal) -> Option<ExitStatus> {
        let mut ended = self.supervisor.try_wait();
        if !matches!(ended, Ok(Some(_))) {
            send_signal(self.supervisor.id(), signal);
        }
        let deadline = Instant::now() + STOP;
        while !matches!(ended, Ok(Some(_))) {
            if Instant::now() > deadline {
                let _ = self.supervisor.kill();
                let _ = self.supervisor.wait();
                return None;
            }
            thread::sleep(LOOK);
            ended = self.supervisor.try_wait();
        }
        ended.ok().flatten()
    }

    /// Processes of its replicas that are still there.
    pub fn living(&self) -> Vec<u32> {
        let started = self.replicas.iter().flat_map(|replica| self.events.pids(replica.number));
        // Another process may have received the same id.
        let is_ours = |pid: &u32| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|program| program == self.program)
        };
        started.filter(is_ours).collect()
    }
}

impl Drop for DetachedCluster {
    fn drop(&mut self) {
        self.stop(Signal::TERM);
        for pid in self.living() {
            send_signal(pid, Signal::KILL);
        }
    }
}

/// Collects the lines of `up --json` until it ends.
fn listen(output: ChildStdout, events: &EventLog, ready: &Sender<Vec<ReplicaHandle>>) {
    let mut replicas = Vec::new();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        match event["event"].as_str() {
            Some("replica") => replicas.extend(replica(&event)),
            // After a timeout there is no receiver any more, and the list is not needed.
            Some("ready") => drop(ready.send(std::mem::take(&mut replicas))),
            _ => {
                serde_json::from_value(event).into_iter().for_each(|event| events.push(event));
            }
        }
    }
}

/// The replica that an event describes.
fn replica(event: &Value) -> Option<ReplicaHandle> {
    let clients = event["clients"].as_str()?.parse().ok()?;
    Some(ReplicaHandle {
        number: u8::try_from(event["replica"].as_u64()?).ok()?,
        admin: Endpoint::Unix(event["admin"].as_str()?.into()),
        clients: Some(clients).filter(|_| event["witness"] != true),
    })
}

#[cfg(test)]
mod tests {
    use super::super::supervisor::SupervisorEvent;
    use super::*;

    /// A shell that writes these lines as `up --json` does.
    fn telling(lines: &str, then: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("cat <<'END'\n{lines}\nEND\n{then}"));
        command
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn a_cluster_is_what_its_supervisor_says() {
        let lines = r#"{"event":"replica","replica":1,"clients":"127.0.0.1:5","admin":"/a","witness":false}
{"event":"replica","replica":2,"clients":"127.0.0.1:6","admin":"/b","witness":true}
{"event":"started","replica":2,"pid":4000000}
{"event":"said","replica":2,"line":"hello"}
{"event":"died","replica":2,"how":"signal 9","pause_ms":100}
{"event":"ready","replicas":1,"mode":"RDGX","after_ms":3}"#;
        let mut cluster =
            DetachedCluster::start(&mut telling(lines, "exec sleep 60"), PATIENCE).expect("ready");
        let clients = |port| Some(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        let seen: Vec<_> = cluster.replicas.iter().map(|replica| (replica.number, replica.clients)).collect();
        assert_eq!(seen, [(1, clients(5)), (2, None)]);
        assert_eq!((cluster.events.pids(2), cluster.events.pids(1)), (vec![4_000_000], vec![]));
        assert_eq!(cluster.events.lines(2), ["hello"]);
        assert_eq!(cluster.events.deaths(), [(2, "signal 9".to_owned())]);
        assert_eq!(cluster.events.take().len(), 3);
        assert_eq!(cluster.events.all(), Vec::<SupervisorEvent>::new());
        assert_eq!(cluster.living(), Vec::<u32>::new(), "there is no such process");
        let status = cluster.stop(Signal::TERM).expect("it ends by the signal");
        assert!(!status.success());
    }

    #[test]
    fn a_cluster_that_gives_up_is_reported_with_its_last_events() {
        let lines = r#"{"event":"hopeless","replica":1,"why":"no such file","misconfigured":true}"#;
        let error = DetachedCluster::start(&mut telling(lines, "exit 1"), PATIENCE).expect_err("it gave up");
        let error = format!("{error:#}");
        assert!(error.contains("ended before it was ready") && error.contains("no such file"), "{error}");
    }
}
