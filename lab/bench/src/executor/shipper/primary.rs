//! The primary of a page shipper: a process that executes batches in parallel, and knows nothing of a backup.
//!
//! Its standard input is a socket to the process that measures, which stands for its clients and its network. There it
//! reads a [`PrimaryOrder`] as a line of JSON, and then numbers: the replies up to this batch have reached the clients
//! (`u64` each). There it writes an [`ExecutedBatch`] per batch. It executes [`PrimaryOrder::ahead`] batches beyond
//! those whose replies have left, and then waits.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;

use anyhow::Context;
use memcached::Memcached;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use wire::{Put, Reader};

use super::sys::WriteTracker;
use crate::executor::judge::{ExecutorSetup, with_event_source};
use crate::executor::log::{LogShape, RequestLog};
use crate::executor::measure::processor_time;
use crate::executor::replica::{ExecutorEvent, ExecutorReport};

/// What the primary executes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PrimaryOrder {
    /// The log.
    pub shape: LogShape,
    /// How it is run.
    pub setup: ExecutorSetup,
    /// What the log is drawn from.
    pub seed: u64,
    /// Batches that are under way at a time.
    pub ahead: u64,
}

/// A batch was executed: all of its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedBatch {
    /// The batch. The first one that is reported is the last that fills the service.
    pub number: u64,
    /// Processor time of the primary so far, in nanoseconds.
    pub processor_ns: u64,
    /// Number of the descriptor of its [`WriteTracker`].
    pub tracker: u32,
}

impl ExecutedBatch {
    /// Bytes of one.
    pub const BYTES: usize = 20;

    fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        out.put64(self.number).put64(self.processor_ns).put32(self.tracker);
        out
    }

    /// Reads one.
    ///
    /// # Errors
    /// Its bytes are too few.
    pub fn decode(bytes: &[u8]) -> Result<ExecutedBatch, wire::Malformed> {
        let mut reader = Reader::new(bytes);
        Ok(ExecutedBatch { number: reader.u64()?, processor_ns: reader.u64()?, tracker: reader.u32()? })
    }
}

/// The program as a primary with this standard input.
///
/// # Errors
/// The program is not found.
pub fn command(input: UnixStream) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(ARGUMENTS).env(MARK, "1");
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(input))).stdout(Stdio::null());
    Ok(command)
}

/// Set for primaries only.
const MARK: &str = "CROSSCHECK_BENCH_PRIMARY";
#[cfg(not(test))]
const ARGUMENTS: [&str; 2] = ["bench", "executor-primary"];
/// A test binary runs just the test that is a primary.
#[cfg(test)]
const ARGUMENTS: [&str; 4] =
    ["--exact", "executor::shipper::primary::tests::primary_of_another_test", "--nocapture", "--quiet"];

/// Whether this process was started as a primary.
pub fn is_one() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Runs as primary until the standard input ends.
///
/// # Errors
/// Writes cannot be tracked here; the executor failed.
pub fn serve() -> anyhow::Result<()> {
    anyhow::ensure!(is_one(), "`bench executor` starts this command itself");
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut orders = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    orders.by_ref().take(4_096).read_line(&mut line)?;
    let order: PrimaryOrder = serde_json::from_str(&line).context("the order of a primary")?;
    let tracker = WriteTracker::new().context("tracking writes")?;
    let mut services = vec![Memcached::new(order.shape.service())?];
    let log = RequestLog::new(order.shape, &services[0], order.seed)?;
    let listen = |events: Sender<ExecutorReport>| drop(std::thread::spawn(move || receive(orders, &events)));
    with_event_source(order.setup, &log, &mut services, order.seed, listen, |drive| {
        drive.run_until(|number, _| number >= log.filling())?;
        let send_executed = |number| {
            let processor_ns = processor_time().as_nanos() as u64;
            let executed = ExecutedBatch { number, processor_ns, tracker: tracker.number() as u32 };
            (&socket).write_all(&executed.encode())
        };
        send_executed(log.filling())?;
        drive.run_released(order.ahead, send_executed)
    })
}

/// Passes on which batches' replies have left, until there will be no more.
fn receive(mut orders: impl Read, events: &Sender<ExecutorReport>) {
    let mut number = [0; 8];
    loop {
        let event = match orders.read_exact(&mut number) {
            Ok(()) => ExecutorEvent::Released(u64::from_le_bytes(number)),
            Err(_) => ExecutorEvent::Ended,
        };
        let ends = matches!(event, ExecutorEvent::Ended);
        if events.send(ExecutorReport { executor: 0, event }).is_err() || ends {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a test: other tests start it as the process that is a primary. By itself it does nothing.
    #[test]
    fn primary_of_another_test() {
        if is_one() {
            serve().expect("a primary");
        }
    }

    #[test]
    fn what_was_executed_survives_the_trip() {
        let executed = ExecutedBatch { number: 7, processor_ns: u64::MAX, tracker: 3 };
        let bytes = executed.encode();
        assert_eq!((bytes.len(), ExecutedBatch::decode(&bytes)), (ExecutedBatch::BYTES, Ok(executed)));
        assert!(ExecutedBatch::decode(&bytes[1..]).is_err());
    }
}
