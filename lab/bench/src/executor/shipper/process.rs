//! A primary as the shipper sees it: a process that is stopped and goes on, and whose written pages are found and read.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::backup::{BackupCopy, EpochBuffer, PAGE};
use super::primary::{self, ExecutedBatch, PrimaryOrder};
use super::sys::{PRESENT, PageRun, PageTables, SWAPPED, WriteTracker, ZEROS};

/// A primary that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pages that are read at once.
const PAGES_AT_ONCE: u64 = 256;

/// A private, writable mapping of the primary: a part of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    /// Pages that are not there consist of zeros. Otherwise they are those of a file.
    is_anonymous: bool,
}

/// A running primary. It ends with this value.
pub struct PrimaryProcess {
    child: Child,
    pid: Pid,
    socket: UnixStream,
    tracker: WriteTracker,
    tables: PageTables,
    memory: File,
    /// Bytes of an [`ExecutedBatch`] that has not come whole.
    rest: Vec<u8>,
    runs: Vec<PageRun>,
}

impl PrimaryProcess {
    /// Starts one, and waits until its service is filled. Returns it with the last batch of the filling.
    ///
    /// # Errors
    /// It failed, or may not be looked into.
    pub fn start(order: &PrimaryOrder) -> anyhow::Result<(PrimaryProcess, u64)> {
        let (mut socket, input) = UnixStream::pair()?;
        // Signals of the terminal are for the process that measures, which ends it.
        let child = primary::command(input)?.process_group(0).spawn().context("starting a primary")?;
        let pid = Pid::from_child(&child);
        let mut child = KilledChild(Some(child));
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        socket.write_all(&line)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut first = [0; ExecutedBatch::BYTES];
        socket.read_exact(&mut first).context("the primary did not begin")?;
        let first = ExecutedBatch::decode(&first)?;
        socket.set_nonblocking(true)?;
        let tracker = WriteTracker::of_process(pid, first.tracker as i32).context("its tracker of writes")?;
        let tables = PageTables::open(pid).context("its page tables")?;
        let memory = File::open(format!("/proc/{}/mem", pid.as_raw_pid())).context("its memory")?;
        let child = child.0.take().context("a process that was started")?;
        let (rest, runs) = (Vec::new(), Vec::new());
        let process = PrimaryProcess { child, pid, socket, tracker, tables, memory, rest, runs };
        Ok((process, first.number))
    }

    /// Stops all of its threads, wherever they are.
    ///
    /// # Errors
    /// It has ended.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        kill_process(self.pid, Signal::STOP)?;
        loop {
            match waitpid(Some(self.pid), WaitOptions::UNTRACED) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(Some((_, status))) if status.stopped() => return Ok(()),
                Ok(status) => bail!("the primary has ended: {status:?}"),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn go_on(&self) -> anyhow::Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// What it has executed and not reported before.
    ///
    /// # Errors
    /// It has ended.
    pub fn executed(&mut self) -> anyhow::Result<Option<ExecutedBatch>> {
        let mut buffer = [0; 4_096];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => bail!("the primary has closed its connection"),
                Ok(count) => self.rest.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let whole = self.rest.len() / ExecutedBatch::BYTES * ExecutedBatch::BYTES;
        let last =
            self.rest[..whole].chunks_exact(ExecutedBatch::BYTES).next_back().map(ExecutedBatch::decode);
        let last = last.transpose()?;
        self.rest.drain(..whole);
        Ok(last)
    }

    /// The replies up to this batch have reached its clients.
    ///
    /// # Errors
    /// It has ended.
    pub fn release(&mut self, number: u64) -> anyhow::Result<()> {
        // A few bytes: the socket has room for many times as many.
        Ok(self.socket.write_all(&number.to_le_bytes())?)
    }

    /// Appends all pages that were written since they were protected, or never were. `protects` protects them again.
    /// The primary is stopped. Returns how many pages have contents.
    ///
    /// # Errors
    /// Its memory cannot be tracked or read.
    pub fn copy_written(&mut self, protects: bool, epoch: &mut EpochBuffer) -> anyhow::Result<u64> {
        let mut pages = 0;
        for mapping in self.mappings()? {
            // Each time: one that took the place of another is not tracked, and all of its pages count as written.
            self.tracker.track(mapping.start, mapping.end).with_context(|| format!("{mapping:x?}"))?;
            self.runs.clear();
            self.tables.written(mapping.start, mapping.end, protects, &mut self.runs)?;
            for run in &self.runs {
                let count = u32::try_from((run.end - run.start) / PAGE).context("a run of terabytes")?;
                if mapping.is_anonymous && is_zeros(run) {
                    epoch.put_zeros(run.start, count);
                } else {
                    self.memory.read_exact_at(epoch.put_contents(run.start, count), run.start)?;
                    pages += u64::from(count);
                }
            }
        }
        Ok(pages)
    }

    /// Protects what was written, and forgets what it was.
    #[cfg(test)]
    pub fn protect_without_looking(&mut self) -> anyhow::Result<()> {
        for mapping in self.mappings()? {
            self.runs.clear();
            self.tables.written(mapping.start, mapping.end, true, &mut self.runs)?;
        }
        Ok(())
    }

    /// Compares all of its memory with the backup's copy. The primary is stopped. Returns how many pages do not consist
    /// of zeros.
    ///
    /// # Errors
    /// They differ.
    pub fn compare(&mut self, copy: &BackupCopy) -> anyhow::Result<u64> {
        let (mut pages, mut differ, mut first) = (0, 0u64, None);
        let mut buffer = vec![0; (PAGES_AT_ONCE * PAGE) as usize];
        for mapping in self.mappings()? {
            self.runs.clear();
            self.tables.populated(mapping.start, mapping.end, &mut self.runs)?;
            let runs: Vec<(u64, u64)> = self.runs.iter().map(|run| (run.start, run.end)).collect();
            for &(start, end) in &runs {
                for from in (start..end).step_by(buffer.len()) {
                    let bytes = &mut buffer[..(end - from).min(PAGES_AT_ONCE * PAGE) as usize];
                    self.memory.read_exact_at(bytes, from)?;
                    for (address, page) in (from..).step_by(PAGE as usize).zip(bytes.chunks(PAGE as usize)) {
                        pages += u64::from(page.iter().any(|byte| *byte != 0));
                        if !copy.has(address, page) {
                            differ += 1;
                            first = first.or(Some((address, mapping)));
                        }
                    }
                }
            }
            if mapping.is_anonymous
                && let Some(address) = copy.other_than_zeros(mapping.start, mapping.end, &runs)
            {
                bail!("page {address:x} of {mapping:x?} is gone, and the backup still has it");
            }
        }
        if let Some((address, mapping)) = first {
            bail!("the backup's copy differs in {differ} pages, first in {address:x} of {mapping:x?}");
        }
        ensure!(pages > 0, "the primary has no memory");
        Ok(pages)
    }

    /// Its private, writable mappings.
    fn mappings(&self) -> anyhow::Result<Vec<Mapping>> {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.pid.as_raw_pid()))?;
        Ok(text.lines().filter_map(mapping).collect())
    }
}

impl Drop for PrimaryProcess {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A process that ends unless it is taken.
struct KilledChild(Option<Child>);

impl Drop for KilledChild {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            end(child);
        }
    }
}

/// Stopped or not, it ends. Where that fails it has ended already.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn is_zeros(run: &PageRun) -> bool {
    run.categories & (PRESENT | SWAPPED) == 0 || run.categories & ZEROS != 0
}

/// A line of `/proc/PID/maps`: `start-end perms offset device inode path`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let permissions = words.next()?;
    let inode = words.nth(2)?;
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    let mapping = Mapping { start: address(start)?, end: address(end)?, is_anonymous: inode == "0" };
    (permissions.starts_with("rw") && permissions.ends_with('p')).then_some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_writable_mappings_are_state() {
        let heap = mapping("55e0a000-55e2b000 rw-p 00000000 00:00 0          [heap]");
        assert_eq!(heap, Some(Mapping { start: 0x55e0_a000, end: 0x55e2_b000, is_anonymous: true }));
        let data = mapping("7f00-8f00 rw-p 0001a000 08:01 1234    /usr/lib/libc.so");
        assert!(data.is_some_and(|data| !data.is_anonymous));
        for line in [
            "7f00-8f00 r--p 0001a000 08:01 1234    /usr/lib/libc.so",
            "7f00-8f00 rw-s 00000000 00:01 5       /memfd:x (deleted)",
            "7f00-8f00 ---p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(mapping(line), None, "{line}");
        }
    }
}
