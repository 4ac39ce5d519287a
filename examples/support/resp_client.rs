//! A client that speaks RESP, for the tests of examples.

#![allow(clippy::disallowed_types, reason = "a test may do what a handler may not")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::group::{Group, PATIENCE};

impl Group {
    /// A further connection to the replica with this number.
    pub fn client(&self, replica: usize) -> Client {
        Client::connect(self.address(replica))
    }

    /// A client's connection to each replica.
    pub fn clients(&self) -> Vec<Client> {
        (1..=self.replicas()).map(|replica| self.client(replica)).collect()
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
