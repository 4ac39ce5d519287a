//! One process of another program's server: it has no admin socket to ask, keeps its output in a file, and is requested
//! to stop by a signal before it is killed.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::START;
use node::cluster::{Process, in_words, ports, send_signal};
use node::signals::Ending;

/// Pause between two checks whether a server is ready.
const RETRY: Duration = Duration::from_millis(20);
/// How long a server may take to stop before it is killed.
const STOP: Duration = Duration::from_secs(5);
/// Last lines of a server's output that an error shows.
const LAST_WORDS: usize = 5;

/// A running process.
#[derive(Debug)]
pub struct Peer {
    name: String,
    process: Process,
    log: PathBuf,
}

impl Peer {
    /// Starts `command`; its output goes to the file `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str, command: Command, log: PathBuf) -> anyhow::Result<Self> {
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let process = Process::spawn(command, file.try_clone()?, file);
        let process = process.with_context(|| format!("starting {name}"))?;
        Ok(Peer { name: name.to_owned(), process, log })
    }

    /// Its process id and its name.
    pub fn process(&self) -> (String, u32) {
        (self.name.clone(), self.process.pid())
    }

    /// How it ended, if it has.
    pub fn trouble(&mut self) -> Option<String> {
        let how = in_words(self.process.ended()?);
        Some(format!("{} ended with {how}: {}", self.name, self.last_words()))
    }

    /// Calls `ready` until it returns true.
    ///
    /// # Errors
    /// The process ended, the operator ended the command, or it takes too long.
    pub fn until(&mut self, ending: &Ending, ready: impl FnMut() -> bool) -> anyhow::Result<()> {
        self.until_within(START, ending, ready)
    }

    /// The same with another timeout.
    ///
    /// # Errors
    /// As for [`Peer::until`].
    pub fn until_within(
        &mut self,
        patience: Duration,
        ending: &Ending,
        mut ready: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        while !ready() {
            if let Some(trouble) = self.trouble() {
                bail!(trouble);
            }
            if ending.sleep(RETRY) {
                bail!("ended before {} was ready", self.name);
            }
            if Instant::now() > deadline {
                bail!("{} is not ready after {} s: {}", self.name, patience.as_secs(), self.last_words());
            }
        }
        Ok(())
    }

    /// Requests a stop, and kills the process if it does not stop; returns its name then.
    pub fn stop(self) -> Option<String> {
        self.stop_within(STOP)
    }

    /// The same with another timeout.
    pub fn stop_within(mut self, patience: Duration) -> Option<String> {
        // If it has ended by itself already, the signal is not needed.
        send_signal(self.process.pid(), rustix::process::Signal::TERM);
        self.process.end_by(Instant::now() + patience).then_some(self.name)
    }

    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(LAST_WORDS).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

/// Loopback addresses on which no process listens.
///
/// # Errors
/// There are none left.
pub fn addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let picked = ports::pick(N, &[])?;
    Ok(std::array::from_fn(|index| ports::loopback(picked[index])))
}

/// Whether a process accepts there.
pub fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}
