//! What tests share: a client that speaks beanstalkd's protocol, and beanstalkd itself.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command};

pub use crate::group::{Group, PATIENCE, wait_until};
use free_port::free_port;

#[path = "../../../server/cli/tests/support/free_port.rs"]
mod free_port;
#[path = "../../../hardening/sei/tests/support/skipped.rs"]
mod skipped;

impl Group {
    /// Three replicas of the queue, or as many as the options say.
    pub fn up(options: &[&str]) -> Self {
        Group::up_of(env!("CARGO_BIN_EXE_queue"), options)
    }

    /// A client of a replica, from 1.
    pub fn client(&self, replica: usize) -> Client {
        Client::connect(self.address(replica)).expect("the replica accepts clients")
    }
}

/// beanstalkd, which never outlives the test.
pub struct Beanstalkd {
    child: Child,
    /// Where it serves clients.
    pub address: SocketAddr,
}

impl Beanstalkd {
    /// None, with a note, if it is not installed; in CI that is a failure.
    pub fn start() -> Option<Self> {
        let port = free_port();
        let started = Command::new("beanstalkd").args(["-l", "127.0.0.1", "-p", &port.to_string()]).spawn();
        let Ok(child) = started else {
            skipped::skipped("beanstalkd is not installed; install it with: apt-get install beanstalkd");
            return None;
        };
        let server = Beanstalkd { child, address: ([127, 0, 0, 1], port).into() };
        wait_until("beanstalkd serves", || TcpStream::connect(server.address).is_ok());
        Some(server)
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The Python that has greenstalk. None, with a note, if there is none; in CI that is a failure.
pub fn python_with_greenstalk() -> Option<Command> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients-venv/bin/python");
    let has_it = Command::new(&own).args(["-c", "import greenstalk"]).output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        skipped::skipped("greenstalk is not installed; install it with: bash .ci/run clients");
        return None;
    }
    let mut python = Command::new(own);
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    Some(python)
}

/// A connection to a queue.
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// None while the replica is not there.
    pub fn connect(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).expect("it can be set");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Some(Client(BufReader::new(stream)))
    }

    /// The reply to a command, without the end of its last line.
    pub fn ask(&mut self, command: &str) -> String {
        self.try_ask(command).unwrap_or_else(|| panic!("no reply to {command}"))
    }

    /// The same; none if the connection has ended.
    pub fn try_ask(&mut self, command: &str) -> Option<String> {
        self.send(command)?;
        self.receive()
    }

    /// Puts a job and returns its id.
    pub fn put(&mut self, order: &str, body: &str) -> u64 {
        let reply = self.ask(&format!("put {order} {}\r\n{body}", body.len()));
        let id = reply.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("put: {reply}"));
        id.parse().expect("an id")
    }

    /// Sends a command; none if the connection has ended.
    pub fn send(&mut self, command: &str) -> Option<()> {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).ok()
    }

    /// Whether a reply has come.
    pub fn has_reply(&mut self) -> bool {
        let stream = self.0.get_ref();
        stream.set_nonblocking(true).expect("it can be set");
        let is_there = !self.0.buffer().is_empty() || stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).expect("it can be set");
        is_there
    }

    /// The next reply; none if the connection has ended.
    pub fn receive(&mut self) -> Option<String> {
        let mut reply = String::new();
        match self.0.read_line(&mut reply) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no reply within {PATIENCE:?}"),
            read => _ = read.ok().filter(|bytes| *bytes > 0)?,
        }
        if ["OK ", "RESERVED ", "FOUND "].iter().any(|word| reply.starts_with(word)) {
            let bytes = reply.trim_end().rsplit(' ').next().and_then(|bytes| bytes.parse().ok());
            let mut data = vec![0; bytes.unwrap_or(0_usize) + 2];
            self.0.read_exact(&mut data).ok()?;
            reply.push_str(&String::from_utf8(data).expect("text"));
        }
        reply.ends_with("\r\n").then(|| reply.truncate(reply.len() - 2));
        Some(reply)
    }
}

/// A line of a reply with data.
pub fn line_of(reply: &str, name: &str) -> String {
    let line = reply.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {reply}")).to_owned()
}
