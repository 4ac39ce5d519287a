//! The baseline of Figs. 10 and 11: one executor, whose changed pages are shipped to a backup as by Remus.
//!
//! Remus (Cully et al., NSDI 2008) runs a virtual machine on one host. Every 25 ms it stops the machine, copies the
//! pages that were written since, lets it go on, and ships the copy to another host. What the machine sent during the
//! epoch leaves once that host has all of its pages. Here the machine is a process, the primary (`primary.rs`), which
//! executes as the unreplicated side does. The shipper stops it with SIGSTOP, and finds its written pages by
//! userfaultfd and `PAGEMAP_SCAN` (`sys.rs`). The backup is a thread of the shipper, at the end of a TCP connection
//! over loopback.
//!
//! *Kinder than Remus:* it ships the memory of one process, where Remus ships that of a virtual machine, with the
//! kernel, its buffers, and its disk. The log is drawn before anything is measured, so that no page is written because
//! a request arrives. Pages that became zeros cost 13 bytes. A stop and a scan take less than those of a machine.
//!
//! *State* is each private writable mapping of the primary, its data segments and stacks included. No page is exempt,
//! and nothing of the shipper is in that process. So when the primary is stopped at the end, the backup's copy must be
//! equal byte for byte ([`PageShipper::end`]).

mod backup;
mod primary;
mod process;
mod sys;
#[cfg(test)]
mod tests;
mod throttle;

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use rustix::process::getpid;

use super::measure::{ExecutorCase, ExecutorFigures, ExecutorSpan, MeasuredSide, ShippedPages};
use super::measure::{points, processor_time, rounded};
use backup::{BackupCopy, EpochBuffer};
use primary::{ExecutedBatch, PrimaryOrder};
use process::PrimaryProcess;
use sys::{PageTables, WriteTracker};
use throttle::ThrottledStream;
use verify::StateToken;

pub use primary::serve as serve_primary;

/// Shortest time from one stop of the primary to the next: Remus' in the paper.
const EPOCH: Duration = Duration::from_millis(25);
/// What the network takes: the paper's 1 Gb/s.
const BYTES_PER_S: f64 = 125e6;
/// Batches under way in the primary: its clients. Enough that none but the bandwidth is short.
pub const AHEAD: u64 = 16;
/// Epochs at the beginning that are not measured.
const WARMING: usize = 2;
/// Epochs that are measured at least.
const EPOCHS: usize = 4;

/// What of the page shipper can be taken away, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protecting {
    /// Found pages are protected again while the primary is stopped.
    WhileStopped,
    /// They are protected after it went on: what it has written meanwhile is never found.
    #[cfg(test)]
    AfterGoingOn,
    /// They never are: once written, a page is found in each epoch.
    #[cfg(test)]
    Never,
}

/// A primary with its backup.
pub struct PageShipper {
    primary: PrimaryProcess,
    protecting: Protecting,
    connection: ThrottledStream,
    backup: JoinHandle<anyhow::Result<BackupCopy>>,
    epoch: EpochBuffer,
    number: u64,
    stopped_at: Instant,
    executed: ExecutedBatch,
}

/// An epoch that the backup has.
#[derive(Clone, Copy, Debug)]
struct ShippedEpoch {
    /// The last batch of it, whose replies have left now.
    executed: ExecutedBatch,
    pages: u64,
    bytes: u64,
    /// How long the primary was stopped.
    stopped: Duration,
    acknowledged: Instant,
}

/// Why nothing can be shipped on this machine; none if it can be.
pub fn unavailable() -> Option<String> {
    let tries = || -> std::io::Result<()> {
        WriteTracker::new()?;
        PageTables::open(getpid())?.populated(0x1000, 0x2000, &mut Vec::new())
    };
    let why = tries().err()?;
    Some(format!("shipping pages takes /dev/userfaultfd, root, and Linux 6.7 or later: {why}"))
}

/// Measures a side whose pages are shipped.
///
/// # Errors
/// The primary or its backup failed, or the backup's copy differs.
pub fn measure(case: &ExecutorCase, span: ExecutorSpan, seed: u64) -> anyhow::Result<MeasuredSide> {
    let mut shipper = PageShipper::start(case, seed, Protecting::WhileStopped)?;
    for _ in 0..WARMING {
        shipper.ship()?;
    }
    let mut before = shipper.ship()?;
    let begun = before;
    let own = processor_time();
    let (mut epochs, mut took) = (Vec::new(), Vec::new());
    let is_enough = |count: usize, last: &ShippedEpoch| {
        count >= EPOCHS
            && last.executed.number >= begun.executed.number + span.batches
            && last.acknowledged - begun.acknowledged >= span.length()
    };
    while !is_enough(epochs.len(), &before) {
        let epoch = shipper.ship()?;
        took.push(epoch.acknowledged - before.acknowledged);
        epochs.push(epoch);
        before = epoch;
    }
    let own = processor_time() - own;
    let last = before;
    let compared_pages = shipper.end()?;
    let batches = last.executed.number - begun.executed.number;
    let of_primary = Duration::from_nanos(last.executed.processor_ns - begun.executed.processor_ns);
    let bytes = epochs.iter().map(|epoch| epoch.bytes).sum();
    let figures = ExecutorFigures {
        seconds: rounded((last.acknowledged - begun.acknowledged).as_secs_f64(), 1e6),
        requests: batches * case.shape.batch as u64,
        batches,
        processor_s: rounded((own + of_primary).as_secs_f64(), 1e6),
        backup_bytes: Some(bytes),
        shipped: Some(ShippedPages {
            epochs: epochs.len() as u32,
            pages: epochs.iter().map(|epoch| epoch.pages).sum(),
            epoch_p50_us: points(took.into_iter())[0],
            stopped_p50_us: points(epochs.iter().map(|epoch| epoch.stopped))[0],
            compared_pages,
        }),
        ..ExecutorFigures::default()
    };
    Ok(MeasuredSide { figures, last: last.executed.number, token: StateToken(0) })
}

impl PageShipper {
    /// Starts both, and ships all of the primary's memory without throttle: Remus, too, copies the machine first.
    ///
    /// # Errors
    /// The primary does not start, or cannot be looked into.
    pub fn start(case: &ExecutorCase, seed: u64, protecting: Protecting) -> anyhow::Result<PageShipper> {
        let order = PrimaryOrder { shape: case.shape, setup: case.setup, seed, ahead: AHEAD };
        let (primary, number) = PrimaryProcess::start(&order)?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (other, _) = listener.accept()?;
        for end in [&stream, &other] {
            end.set_nodelay(true)?;
        }
        let backup = std::thread::spawn(move || backup::serve(other));
        let mut shipper = PageShipper {
            primary,
            protecting,
            connection: ThrottledStream::new(stream, f64::INFINITY),
            backup,
            epoch: EpochBuffer::new(),
            number: 0,
            stopped_at: Instant::now(),
            executed: ExecutedBatch { number, processor_ns: 0, tracker: 0 },
        };
        shipper.ship()?;
        shipper.connection.set_rate(BYTES_PER_S);
        Ok(shipper)
    }

    /// Ends an epoch when it is due, ships it, and lets its replies leave once the backup has it.
    fn ship(&mut self) -> anyhow::Result<ShippedEpoch> {
        std::thread::sleep((self.stopped_at + EPOCH).saturating_duration_since(Instant::now()));
        self.stopped_at = Instant::now();
        self.primary.stop()?;
        let pages = self.copy()?;
        self.primary.go_on()?;
        let stopped = self.stopped_at.elapsed();
        #[cfg(test)]
        if self.protecting == Protecting::AfterGoingOn {
            std::thread::sleep(EPOCH / 5);
            self.primary.protect_without_looking()?;
        }
        let bytes = self.send()?;
        self.primary.release(self.executed.number)?;
        Ok(ShippedEpoch { executed: self.executed, pages, bytes, stopped, acknowledged: Instant::now() })
    }

    /// Ships what is left, and compares all of the primary's memory with the backup's copy. Returns how many pages they
    /// have.
    ///
    /// # Errors
    /// They differ.
    pub fn end(mut self) -> anyhow::Result<u64> {
        self.primary.stop()?;
        self.copy()?;
        self.send()?;
        self.connection.stream().shutdown(Shutdown::Write)?;
        let copy = self.backup.join().map_err(|_| anyhow!("the backup has panicked"))??;
        self.primary.compare(&copy)
    }

    /// What the stopped primary has executed, and the pages that it has written. Returns how many pages.
    fn copy(&mut self) -> anyhow::Result<u64> {
        if let Some(executed) = self.primary.executed()? {
            self.executed = executed;
        }
        self.number += 1;
        self.epoch.clear();
        let protects = self.protecting == Protecting::WhileStopped;
        self.primary.copy_written(protects, &mut self.epoch).context("copying pages")
    }

    /// Sends the epoch, and waits for its acknowledgement. Returns how many bytes it had.
    fn send(&mut self) -> anyhow::Result<u64> {
        let bytes = self.epoch.finish(self.number);
        self.connection.send(bytes).context("shipping")?;
        let mut acknowledged = [0; 8];
        self.connection.stream().read_exact(&mut acknowledged).context("no acknowledgement")?;
        ensure!(u64::from_le_bytes(acknowledged) == self.number, "another epoch was acknowledged");
        Ok(bytes.len() as u64)
    }
}
