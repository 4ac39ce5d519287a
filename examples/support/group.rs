//! A group of an example's program as an operator starts it, for its tests.

#![allow(clippy::disallowed_methods, reason = "a test may do what a handler may not")]
#![allow(dead_code, reason = "each example's tests use a part of it")]

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use node::cluster::{DetachedCluster, send_signal};
use rustix::process::Signal;
use tempfile::TempDir;

/// Generous: machines of CI are slow, not wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `up` of a program, which never outlives the test.
pub struct Group {
    pub up: DetachedCluster,
    pub directory: TempDir,
    program: String,
}

impl Group {
    /// A group of this program, with these options: of as many replicas as `up` takes for their mode, three or one,
    /// unless they say another number.
    pub fn up_of(program: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(program);
        command.env("XDG_RUNTIME_DIR", directory.path());
        command.args(["up", "--json", "--port", "0"]).args(options);
        let up = DetachedCluster::start(&mut command, PATIENCE).expect("the group is ready");
        Group { up, directory, program: program.to_owned() }
    }

    /// Where a replica, from 1, serves clients.
    pub fn address(&self, replica: usize) -> SocketAddr {
        self.up.replicas[replica - 1].clients.expect("a replica has an address for clients")
    }

    /// How many replicas there are.
    pub fn replicas(&self) -> usize {
        self.up.replicas.len()
    }

    /// The output of another command of the program for this group.
    pub fn command(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        command.env("XDG_RUNTIME_DIR", self.directory.path());
        let output = command.args(arguments).output().expect("the program starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Waits until all replicas have the same state.
    pub fn wait_until_equal(&self) {
        wait_until("the replicas are equal", || self.command(&["digest"]).contains("bit-identical"));
    }

    /// Sends a signal to the present process of a replica, from 1.
    pub fn signal(&self, replica: usize, signal: Signal) {
        let pids = self.up.events.pids(replica as u8);
        assert!(send_signal(*pids.last().expect("`up` says which process it starts"), signal));
    }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
