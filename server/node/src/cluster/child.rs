//! The process of one replica: our own binary again, which ends when the pipe to its supervisor closes, for whatever
//! reason.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::hooks::ClusterHooks;

/// The flag of `serve` that ends the replica when its standard input closes.
const TETHER: &str = "--until-stdin-closes";
/// The flag that makes replica 1 begin the group.
const BEGINS: &str = "--begin-group";
/// The option that names the backup that the group begins with.
const RESTORE: &str = "--restore";

/// How a process is started, in addition to its configuration: for trials of replicas that lack a resource or have a
/// wrong environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dress {
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Commands that a shell runs first, for example limits of the process: `ulimit -n 256`.
    pub shell: Option<String>,
    /// The backup that its group begins with.
    pub restore: Option<PathBuf>,
}

impl Dress {
    fn command(&self) -> Command {
        let mut command = match &self.shell {
            None => Command::new(our_binary()),
            Some(first) => {
                let mut shell = Command::new("sh");
                // The shell becomes the replica, so that there is no second process to end.
                shell.arg("-c").arg(format!("{first} && exec \"$@\"")).arg("sh").arg(our_binary());
                shell
            }
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// How long the last messages of a process that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A running replica.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The supervisor never writes to it: closing it asks the replica to stop.
    tether: Option<ChildStdin>,
    /// Reads its stderr, where that is piped, to its end.
    reader: Option<thread::JoinHandle<()>>,
    /// When it was found that it had ended, and whether all that it had said was read by then.
    ended: Option<(Instant, bool)>,
}

impl Process {
    /// Starts replica `number` on `config`; each line of its stderr is sent to `said`, with its number.
    ///
    /// # Errors
    /// The operating system cannot start one more process.
    pub fn start(
        number: u8,
        config: &Path,
        begins: bool,
        dress: &Dress,
        hooks: &dyn ClusterHooks,
        said: Sender<(u8, String)>,
    ) -> io::Result<Self> {
        let mut command = dress.command();
        serve(&mut command, config, begins);
        dress.restore.iter().for_each(|backup| _ = command.arg(RESTORE).arg(backup));
        hooks.spawn(number, command)?.heard(number, said)
    }

    /// A shell instead of a replica, for tests of the supervision alone.
    #[cfg(test)]
    pub fn of_shell(script: &str, number: u8, said: Sender<(u8, String)>) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        Self::spawn(command, Stdio::null(), Stdio::piped())?.heard(number, said)
    }

    /// Starts `command`, as [`serve`] completes it, or another server; its output goes to `stdout` and `stderr`.
    ///
    /// # Errors
    /// The operating system cannot start one more process, or cannot start this one.
    pub fn spawn(
        mut command: Command,
        stdout: impl Into<Stdio>,
        stderr: impl Into<Stdio>,
    ) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            // Ctrl-C in a terminal signals the whole process group: a replica has a group of its own, and its
            // supervisor stops it in order.
            .process_group(0)
            .spawn()?;
        let tether = child.stdin.take();
        Ok(Process { child, tether, reader: None, ended: None })
    }

    /// Sends each line of its stderr, where that is piped, to `said`.
    fn heard(mut self, number: u8, said: Sender<(u8, String)>) -> io::Result<Self> {
        if let Some(stderr) = self.child.stderr.take() {
            let reader = thread::Builder::new().name(format!("replica-{number}-stderr"));
            self.reader = Some(reader.spawn(move || {
                for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    if said.send((number, line)).is_err() {
                        break;
                    }
                }
            })?);
        }
        Ok(self)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // An error here means that the child was reaped elsewhere, and no other code reaps it.
        self.child.try_wait().ok().flatten()
    }

    /// How it ended, once all that it has said was sent before the last call: what it said last is why it ended. A
    /// process of its own may have its stderr and go on; that is waited for no longer than [`LAST_WORDS`].
    pub fn ended_and_read(&mut self) -> Option<ExitStatus> {
        let status = self.ended()?;
        let is_read = self.reader.as_ref().is_none_or(thread::JoinHandle::is_finished);
        let (since, was_read) = *self.ended.get_or_insert((Instant::now(), false));
        let is_late = since.elapsed() > LAST_WORDS;
        self.ended = Some((since, is_read));
        (was_read || is_late).then_some(status)
    }

    /// Requests a clean stop.
    pub fn release(&mut self) {
        self.tether = None;
    }

    /// Requests a clean stop, waits at most `patience`, and then kills the process. Returns whether it had to be
    /// killed.
    pub fn stop(&mut self, patience: Duration) -> bool {
        self.release();
        self.end_by(Instant::now() + patience)
    }

    /// Waits for the end of the process until `deadline`, and then kills it. Returns whether it had to be killed.
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

    /// Kills the process and waits for its end.
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
/// that starts it does. With `begins` it begins its group, which only replica 1 may do.
pub fn serve(command: &mut Command, config: &Path, begins: bool) {
    command.arg("serve").arg(TETHER).arg("--config").arg(config);
    if begins {
        command.arg(BEGINS);
    }
}

/// Sends a signal to a process; false when it has ended.
pub fn send_signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Our own binary, even after it was replaced on disk.
fn our_binary() -> PathBuf {
    let path = std::env::current_exe().ok().filter(|path| path.exists());
    path.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// An exit status as text.
pub fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown cause".to_owned(),
    }
}
