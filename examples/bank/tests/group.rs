//! A group of a program of this workspace as an operator starts it, and a client that speaks RESP to it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use node::cluster::DetachedCluster;
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
    /// A group of this program, with these options; of three replicas unless they say another number.
    pub fn up_of(program: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(program);
        command.env("XDG_RUNTIME_DIR", directory.path());
        command.args(["up", "--json", "--port", "0"]);
        if !options.contains(&"--replicas") {
            command.args(["--replicas", "3"]);
        }
        command.args(options);
        let up = DetachedCluster::start(&mut command, PATIENCE).expect("the group is ready");
        Group { up, directory, program: program.to_owned() }
    }

    /// A further connection to the replica with this number.
    pub fn client(&self, replica: usize) -> Client {
        Client::connect(self.up.replicas[replica - 1].clients.expect("a replica has an address for clients"))
    }

    /// A client's connection to each replica.
    pub fn clients(&self) -> Vec<Client> {
        let addresses = self.up.replicas.iter().filter_map(|replica| replica.clients);
        addresses.map(Client::connect).collect()
    }

    /// The output of another command of the program for this group.
    pub fn command(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        command.env("XDG_RUNTIME_DIR", self.directory.path());
        let output = command.args(arguments).output().expect("the program starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

/// Speaks RESP as `redis-cli` does.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Client::try_connect(address).expect("the replica accepts clients")
    }

    /// None while the replica is not there.
    pub fn try_connect(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Some(Client(BufReader::new(stream)))
    }

    /// The reply to a command, without the line's end; of a string its text.
    pub fn ask(&mut self, command: &str) -> String {
        self.try_ask(command).expect("a reply comes")
    }

    /// The same; none if the connection has ended.
    pub fn try_ask(&mut self, command: &str) -> Option<String> {
        self.send(command)?;
        self.receive()
    }

    /// Sends a command; none if the connection has ended.
    pub fn send(&mut self, command: &str) -> Option<()> {
        let words: Vec<&str> = command.split(' ').collect();
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        self.0.get_mut().write_all(text.as_bytes()).ok()
    }

    /// The next reply, as [`Client::ask`]; none if the connection has ended.
    pub fn receive(&mut self) -> Option<String> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        if let Some(length) = line.strip_prefix('$') {
            let mut text = vec![0; length.trim_end().parse::<usize>().expect("a length") + 2];
            self.0.read_exact(&mut text).ok()?;
            line = String::from_utf8(text).expect("text");
        }
        Some(line.trim_end().to_owned())
    }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
