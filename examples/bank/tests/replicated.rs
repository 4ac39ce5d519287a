//! The program as an operator runs it: three replicas, a flipped bit in an account, and right replies to clients.

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

/// `bank up`, which never outlives the test.
pub struct Group {
    pub up: DetachedCluster,
    pub directory: TempDir,
}

impl Group {
    pub fn up() -> Self {
        Group::up_of(env!("CARGO_BIN_EXE_bank"), &[])
    }

    /// A group of another program, with these options.
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
        Group { up, directory }
    }

    /// A client's connection to each replica.
    pub fn clients(&self) -> Vec<Client> {
        let addresses = self.up.replicas.iter().filter_map(|replica| replica.clients);
        addresses.map(Client::connect).collect()
    }

    /// The output of another command of the program for this group.
    pub fn command(&self, arguments: &[&str]) -> String {
        let output = program(&self.directory).args(arguments).output().expect("the program starts");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }
}

fn program(directory: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bank"));
    command.env("XDG_RUNTIME_DIR", directory.path());
    command
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

#[test]
fn a_flipped_bit_in_an_account_is_outvoted_named_and_repaired() {
    let group = Group::up();
    let mut clients = group.clients();
    assert_eq!(clients.len(), 3);
    assert_eq!(clients[0].ask("OPEN 1 alice 100"), "+OK");
    assert_eq!(clients[1].ask("OPEN 2 bob 50"), "+OK");
    assert_eq!(clients[2].ask("TRANSFER 1 2 30"), "+OK");
    let card = clients[0].ask("CARD 1");
    assert_eq!(clients[1].ask("CARD 1"), card, "every replica has drawn the same");

    let injected =
        group.command(&["inject", "flip", "--replica", "2", "--object", "account:1", "--member", "2"]);
    assert!(injected.contains("balance"), "{injected}");
    for client in &mut clients {
        assert_eq!(client.ask("BALANCE 1"), ":70");
        assert_eq!(client.ask("TOTAL"), ":150");
    }
    let evidence = || group.command(&["evidence"]);
    wait_until("the account is repaired", || evidence().contains("repaired"));
    assert!(evidence().contains("account 1"), "{}", evidence());
    wait_until("the replicas are equal", || group.command(&["digest"]).contains("bit-identical"));

    // A value that is wrong on one of three replicas reaches no client by a write either.
    group.command(&["inject", "flip", "--replica", "3", "--object", "account:2", "--member", "2"]);
    assert_eq!(clients[2].ask("TRANSFER 2 1 5"), "+OK");
    assert_eq!(clients[0].ask("BALANCE 2"), ":75");
    wait_until("the replicas are equal again", || group.command(&["digest"]).contains("bit-identical"));
}

#[test]
fn timers_and_requests_that_wait_run_at_every_replica() {
    let group = Group::up();
    let mut clients = group.clients();
    assert_eq!(clients[0].ask("OPEN 1 alice 1000"), "+OK");
    assert_eq!(clients[1].ask("OPEN 2 bob 1"), "+OK");
    let mut waits = Client::connect(group.up.replicas[0].clients.expect("an address"));
    waits.send("PAY 2 1 200 3600");
    assert_eq!(clients[2].ask("PAY 2 1 100 1"), "+NOT_PAID");
    assert_eq!(clients[1].ask("WAITING 2"), ":1");
    assert_eq!(clients[0].ask("DEPOSIT 2 500"), ":501");
    assert_eq!(waits.receive().as_deref(), Some("+PAID"));
    assert_eq!(clients[1].ask("BALANCE 1"), ":1200");
    assert_eq!(clients[0].ask("LINK 1 2"), "+OK");
    assert_eq!(clients[2].ask("SWEEP 1"), ":1200");
    assert_eq!(clients[1].ask("BALANCE 2"), ":1501");
    assert_eq!(clients[1].ask("INTEREST 1000 1"), "+OK");
    wait_until("interest is paid", || clients[1].ask("BALANCE 2") != ":1501");
    assert_eq!(clients[0].ask("INTEREST 0 1"), "+OK");
    wait_until("the replicas are equal", || group.command(&["digest"]).contains("bit-identical"));
    assert!(!group.command(&["evidence"]).contains("was wrong"));
}
