//! The clients of a run: they add, sometimes read, and check every answer against what they know themselves.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crosscheck::schedule::SplitMix64;

use crate::engine::ROWS;

/// A request without an answer for this long has none.
const PATIENCE: Duration = Duration::from_secs(20);
/// One request of so many reads.
const READS: u64 = 32;

/// How much is asked for.
#[derive(Clone, Copy, Debug)]
pub struct AddLoad {
    /// Connections, each with one request at a time.
    pub connections: usize,
    /// Requests in all.
    pub requests: u64,
    /// Rows that are asked for, the first ones of all.
    pub rows: u32,
    /// What the choice of rows begins with.
    pub seed: u64,
}

/// What clients know of the rows: additions that were asked for, and those of them that were acknowledged.
#[derive(Debug)]
pub struct KnownToClients {
    asked: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
    wrong: AtomicU64,
    unanswered: AtomicU64,
    reads: AtomicU64,
}

/// What a load has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenByClients {
    /// Additions that were acknowledged.
    pub additions: u64,
    /// Values that were read, those at the end included.
    pub reads: u64,
    /// Values that cannot be right, and replies that are none.
    pub wrong: u64,
    /// Requests whose connection ended before the reply.
    pub unanswered: u64,
}

impl KnownToClients {
    fn new() -> Self {
        let rows = || (0..ROWS).map(|_| AtomicU64::new(0)).collect();
        let none = || AtomicU64::new(0);
        KnownToClients {
            asked: rows(),
            acknowledged: rows(),
            wrong: none(),
            unanswered: none(),
            reads: none(),
        }
    }

    fn add(&self, client: &mut AddingClient, row: u32) -> std::io::Result<()> {
        self.asked[row as usize].fetch_add(1, Ordering::SeqCst);
        let reply = client.ask(&format!("ADD {row}\n"))?;
        if reply == "OK" {
            self.acknowledged[row as usize].fetch_add(1, Ordering::SeqCst);
        } else {
            self.wrong.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Reads a row: it has at least what was acknowledged before, and at most what is asked for by now.
    fn get(&self, client: &mut AddingClient, row: u32) -> std::io::Result<()> {
        let least = self.acknowledged[row as usize].load(Ordering::SeqCst);
        let reply = client.ask(&format!("GET {row}\n"))?;
        let most = self.asked[row as usize].load(Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
        if !reply.parse().is_ok_and(|value: u64| (least..=most).contains(&value)) {
            self.wrong.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn seen(&self) -> SeenByClients {
        SeenByClients {
            additions: self.acknowledged.iter().map(|row| row.load(Ordering::SeqCst)).sum(),
            reads: self.reads.load(Ordering::SeqCst),
            wrong: self.wrong.load(Ordering::SeqCst),
            unanswered: self.unanswered.load(Ordering::SeqCst),
        }
    }
}

struct AddingClient {
    stream: BufReader<TcpStream>,
}

impl AddingClient {
    fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(AddingClient { stream: BufReader::new(stream) })
    }

    fn ask(&mut self, line: &str) -> std::io::Result<String> {
        self.stream.get_mut().write_all(line.as_bytes())?;
        let mut reply = String::new();
        if self.stream.read_line(&mut reply)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(reply.trim_end().to_owned())
    }
}

/// Runs a load over these servers, and in the end reads every row from each of them.
///
/// # Errors
/// A server cannot be reached.
pub fn run(addresses: &[SocketAddr], load: AddLoad) -> std::io::Result<SeenByClients> {
    let known = KnownToClients::new();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..load.connections)
            .map(|number| {
                let address = addresses[number % addresses.len()];
                let known = &known;
                scope.spawn(move || one_client(known, address, number as u64, load))
            })
            .collect();
        clients.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
    })?;
    for address in addresses {
        let mut client = AddingClient::connect(*address)?;
        for row in 0..ROWS {
            known.get(&mut client, row)?;
        }
    }
    Ok(known.seen())
}

fn one_client(
    known: &KnownToClients,
    address: SocketAddr,
    number: u64,
    load: AddLoad,
) -> std::io::Result<()> {
    let mut client = AddingClient::connect(address)?;
    let mut random = SplitMix64::new(load.seed << 16 | number);
    for _ in 0..load.requests / load.connections as u64 {
        let row = random.below(u64::from(load.rows)) as u32;
        let is_read = random.below(READS) == 0;
        let asked = if is_read { known.get(&mut client, row) } else { known.add(&mut client, row) };
        if asked.is_err() {
            known.unanswered.fetch_add(1, Ordering::SeqCst);
            client = AddingClient::connect(address)?;
        }
    }
    Ok(())
}
