//! One question to the peers, asked without the order thread: how far are you? A watchdog asks it before it ends a process for its
//! slowness.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::hello::{HELLO_BYTES, Hello, Purpose};
use super::secure::{Channel, Dialling, Records};
use super::{Identity, link::refusal_of};

/// Who asks, and whom.
#[derive(Clone)]
pub(crate) struct Probe {
    identity: Identity,
    peers: Vec<SocketAddr>,
}

impl Probe {
    /// For the replica with this identity; index = replica.
    pub fn new(mut identity: Identity, peers: Vec<SocketAddr>) -> Self {
        identity.hello.purpose = Purpose::Progress;
        Probe { identity, peers }
    }

    /// Last batch that f+1 other replicas have executed, as they say within `patience` each; 0 while fewer answer. None where there are
    /// no others.
    pub fn others_executed(&mut self, patience: Duration) -> Option<u64> {
        if self.peers.len() < 2 {
            return None;
        }
        let me = self.identity.hello.replica;
        let mut told = Vec::new();
        for (number, address) in (0u8..).zip(self.peers.clone()).filter(|(number, _)| *number != me) {
            told.extend(self.ask(number, address, patience));
        }
        told.sort_unstable_by(|a, b| b.cmp(a));
        Some(told.get(self.peers.len() / 2).copied().unwrap_or(0))
    }

    pub(super) fn ask(&mut self, peer: u8, address: SocketAddr, patience: Duration) -> Option<u64> {
        let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.set_write_timeout(Some(patience)).ok()?;
        let Identity { hello, secret } = &mut self.identity;
        let mut out = Vec::new();
        let dialling = Dialling::begin(secret, hello, &mut out).ok()?;
        stream.write_all(&out).ok()?;
        let mut records = Records::default();
        let answer = read_record(&mut stream, &mut records)?;
        let (theirs, mut channel): (Hello, Channel) = dialling.finish(&answer.1).ok()?;
        if refusal_of(hello, &theirs, Some(peer)).is_some() {
            return None;
        }
        stream.write_all(&channel.sealed(&[])).ok()?;
        let (number, sealed) = read_record(&mut stream, &mut records)?;
        let mut plain = vec![0; sealed.len()];
        let record = super::secure::Record { number, sealed: &sealed };
        let length = channel.open(&record, &mut plain).ok()??;
        Some(u64::from_le_bytes(plain.get(..length)?.try_into().ok()?))
    }
}

/// The next record of a stream with a deadline, and its number.
fn read_record(stream: &mut TcpStream, records: &mut Records) -> Option<(u64, Vec<u8>)> {
    let mut bytes = [0; 1024];
    loop {
        if let Some(record) = records.next().ok()? {
            return Some((record.number, record.sealed.to_vec()));
        }
        if records.len() > 2 * HELLO_BYTES {
            return None;
        }
        match stream.read(&mut bytes) {
            Ok(read @ 1..) => records.feed(&bytes[..read]),
            Ok(0) | Err(_) => return None,
        }
    }
}
