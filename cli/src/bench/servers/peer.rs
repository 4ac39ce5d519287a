//! One process of somebody else's server: its words kept in a file, asked to stop before it is killed.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::START;
use node::cluster::ports;
use node::signals::Ending;

/// Between two attempts to find a server ready.
const RETRY: Duration = Duration::from_millis(20);
/// How long a server may take to stop before it is killed.
const STOP: Duration = Duration::from_secs(5);
/// Last lines of a server's words that an error shows.
const LAST_WORDS: usize = 5;

/// A running process.
#[derive(Debug)]
pub struct Peer {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Peer {
    /// Starts `command`; what it says goes to the file `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str, mut command: Command, log: PathBuf) -> anyhow::Result<Self> {
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            // Ctrl-C in a terminal reaches the whole process group: servers are stopped by us, in order, not by it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Peer { name: name.to_owned(), child, log })
    }

    /// Its process and what to call it.
    pub fn process(&self) -> (String, u32) {
        (self.name.clone(), self.child.id())
    }

    /// Says how it ended, if it has.
    pub fn trouble(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!("{} ended ({status}): {}", self.name, self.last_words()))
    }

    /// Tries `ready` until it says yes.
    ///
    /// # Errors
    /// The process ended, the operator ended the command, or it takes too long.
    pub fn until(&mut self, ending: &Ending, mut ready: impl FnMut() -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + START;
        while !ready() {
            if let Some(trouble) = self.trouble() {
                bail!(trouble);
            }
            if ending.sleep(RETRY) {
                bail!("ended before {} was ready", self.name);
            }
            if Instant::now() > deadline {
                bail!("{} is not ready after {} s: {}", self.name, START.as_secs(), self.last_words());
            }
        }
        Ok(())
    }

    /// Asks it to stop, and kills it when it does not; returns its name then.
    pub fn stop(self) -> Option<String> {
        self.stop_within(STOP)
    }

    /// The same for one that may take this long.
    pub fn stop_within(mut self, patience: Duration) -> Option<String> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // It may have ended by itself: then there is nobody to ask.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if self.child.try_wait().ok().flatten().is_some() {
                return None;
            }
            std::thread::sleep(RETRY);
        }
        Some(self.name.clone())
    }

    fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(LAST_WORDS).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Loopback addresses where nobody listens.
///
/// # Errors
/// There are none left.
pub fn addresses<const N: usize>() -> anyhow::Result<[SocketAddr; N]> {
    let picked = ports::pick(N, &[])?;
    Ok(std::array::from_fn(|index| ports::loopback(picked[index])))
}

/// Whether somebody accepts there.
pub fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}
