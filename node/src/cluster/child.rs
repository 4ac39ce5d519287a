//! One replica's process: our own binary again, which ends when the pipe to its supervisor closes, however
//! that came about.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// The flag of `serve` that ties a replica's life to its standard input.
const TETHER: &str = "--until-stdin-closes";
/// Has replica 1 begin the group.
const BEGINS: &str = "--begin-group";

/// What a process is started with beside its configuration: for trials of replicas that are short of
/// something, or told wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dress {
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// What a shell does first, limits of the process for example: `ulimit -n 256`.
    pub shell: Option<String>,
}

impl Dress {
    fn command(&self) -> Command {
        let mut command = match &self.shell {
            None => Command::new(our_binary()),
            Some(first) => {
                let mut shell = Command::new("sh");
                // The shell becomes the replica: there is no second process to be ended.
                shell.arg("-c").arg(format!("{first} && exec \"$@\"")).arg("sh").arg(our_binary());
                shell
            }
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A running replica.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Nothing is ever written; its closing is the message.
    tether: Option<ChildStdin>,
}

impl Process {
    /// Starts replica `number` on `config`; each line of its stderr goes to `said` with its number.
    ///
    /// # Errors
    /// The operating system cannot start one more process.
    pub fn start(
        number: u8,
        config: &Path,
        begins: bool,
        dress: &Dress,
        said: Sender<(u8, String)>,
    ) -> io::Result<Self> {
        let mut command = dress.command();
        serve(&mut command, config, begins);
        Self::heard(command, number, said)
    }

    /// A shell in a replica's place, for tests of the supervision alone.
    #[cfg(test)]
    pub fn of_shell(script: &str, number: u8, said: Sender<(u8, String)>) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        Self::heard(command, number, said)
    }

    /// Starts `command`, as [`serve`] completes it; its stderr goes to `stderr`.
    ///
    /// # Errors
    /// The operating system cannot start one more process, or not this one.
    pub fn spawn(mut command: Command, stderr: impl Into<Stdio>) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(stderr)
            // Ctrl-C in a terminal reaches the whole process group: replicas are stopped by us, in order, not by it.
            .process_group(0)
            .spawn()?;
        let tether = child.stdin.take();
        Ok(Process { child, tether })
    }

    fn heard(command: Command, number: u8, said: Sender<(u8, String)>) -> io::Result<Self> {
        let mut process = Self::spawn(command, Stdio::piped())?;
        if let Some(stderr) = process.child.stderr.take() {
            thread::Builder::new().name(format!("replica-{number}-stderr")).spawn(move || {
                for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    if said.send((number, line)).is_err() {
                        break;
                    }
                }
            })?;
        }
        Ok(process)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // An error here means that the child was reaped behind our back, which nobody does.
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to stop cleanly.
    pub fn release(&mut self) {
        self.tether = None;
    }

    /// Asks it to stop cleanly, waits at most `patience`, and then kills it. Returns whether it had to be killed.
    pub fn stop(&mut self, patience: Duration) -> bool {
        self.release();
        self.end_by(Instant::now() + patience)
    }

    /// Waits for its end until `deadline`, and then kills it. Returns whether it had to be killed.
    pub fn end_by(&mut self, deadline: Instant) -> bool {
        while self.ended().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let is_late = self.ended().is_none();
        if is_late {
            self.kill();
        }
        is_late
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.kill();
        }
    }
}

/// Completes a command that runs this program, or another of the same service: one replica, which ends when the process
/// that starts it does. It `begins` its group if that is wanted of it, which is for replica 1 alone.
pub fn serve(command: &mut Command, config: &Path, begins: bool) {
    command.arg("serve").arg(TETHER).arg("--config").arg(config);
    if begins {
        command.arg(BEGINS);
    }
}

/// Our own binary, also when it was replaced on disk while we run.
fn our_binary() -> PathBuf {
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    path.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// An exit status in words.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown cause".to_owned(),
    }
}
