//! A request for the peers' progress and slowness, sent without the order thread. A watchdog sends it before it ends a
//! process for its slowness.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use wire::Reader;

use super::Identity;
use super::hello::{HELLO_BYTES, Hello, Purpose};
use super::names::Names;
use super::records::{Records, SealedRecord};
use super::secure::{Channel, Dialling};
use super::whereabouts::ConnectionEnd;
use crate::address::Address;
use crate::limits;

/// The progress of a replica, and how slow it has been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerProgress {
    /// Last batch that it has executed.
    pub executed: u64,
    /// Milliseconds that its order thread lately spent in one stretch of work, as measured by its watchdog.
    pub slowest_ms: u64,
}

impl PeerProgress {
    /// The answer to another replica's watchdog.
    pub(super) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.executed.to_le_bytes());
        bytes[8..].copy_from_slice(&self.slowest_ms.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let progress = PeerProgress { executed: reader.u64().ok()?, slowest_ms: reader.u64().ok()? };
        reader.is_empty().then_some(progress)
    }

    /// How much longer than otherwise a replica may take, in microseconds, since others were slow too. There is a
    /// bound: a report may have been corrupted.
    pub fn patience_us(self) -> u64 {
        1_000 * self.slowest_ms.min(limits::SLOWNESS_KEPT.as_millis() as u64)
    }

    /// The reports of others in a group of 2f+1, combined into one: f+1 of them have executed so much, or 0 if fewer
    /// have reported, and f of them have been so slow.
    pub fn of_others(reported: &[PeerProgress], f: usize) -> PeerProgress {
        let nth = |nth: usize, of: fn(&PeerProgress) -> u64| {
            let mut values: Vec<u64> = reported.iter().map(of).collect();
            values.sort_unstable_by(|a, b| b.cmp(a));
            values.get(nth).copied().unwrap_or(0)
        };
        PeerProgress {
            executed: nth(f, |progress| progress.executed),
            slowest_ms: nth(f.max(1) - 1, |progress| progress.slowest_ms),
        }
    }
}

/// The sender of such requests, and its peers.
pub(crate) struct Probe {
    identity: Identity,
    names: Names,
    /// Replicas that are elsewhere now.
    redirected: Option<mpsc::Receiver<PlaceNews>>,
}

/// Replicas are elsewhere, or there are others, from now on.
#[derive(Debug)]
pub(crate) enum PlaceNews {
    /// This one is at this address.
    Moved(u8, Address),
    /// Those that vote are these; index = replica.
    Resized(Vec<Address>),
}

impl Probe {
    /// The probe of the replica with this identity; index = replica.
    pub fn new(mut identity: Identity, peers: Vec<Address>) -> Self {
        identity.hello.purpose = Purpose::Progress;
        Probe { identity, names: Names::new(peers), redirected: None }
    }

    /// From now on asks the replicas that have moved where this says.
    pub fn follow(&mut self, redirected: mpsc::Receiver<PlaceNews>) {
        self.redirected = Some(redirected);
    }

    /// The progress that the others report within `patience` each, plus as much time for a name to be resolved. None
    /// where there are no others.
    pub fn others(&mut self, patience: Duration) -> Option<PeerProgress> {
        for news in self.redirected.iter().flat_map(mpsc::Receiver::try_iter) {
            match news {
                PlaceNews::Moved(peer, address) => self.names.redirect(peer, &address),
                PlaceNews::Resized(addresses) => {
                    self.identity.hello.replicas = addresses.len() as u8;
                    self.names.resize(&addresses);
                }
            }
        }
        let (me, count) = (self.identity.hello.replica, self.names.configured().len());
        if count < 2 {
            return None;
        }
        let mut reported = Vec::new();
        for number in (0..count as u8).filter(|number| *number != me) {
            if let Some(address) = self.names.wait_for(number, patience) {
                reported.extend(self.ask(number, address, patience));
            }
        }
        Some(PeerProgress::of_others(&reported, (count - 1) / 2))
    }

    pub(super) fn ask(&mut self, peer: u8, address: SocketAddr, patience: Duration) -> Option<PeerProgress> {
        let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.set_write_timeout(Some(patience)).ok()?;
        let Identity { hello, secret, places } = &mut self.identity;
        let mut out = Vec::new();
        let dialling = Dialling::begin(secret, &places.complete(hello, peer), &mut out).ok()?;
        stream.write_all(&out).ok()?;
        let mut records = Records::default();
        let answer = read_record(&mut stream, &mut records)?;
        let (theirs, mut channel): (Hello, Channel) = dialling.finish(&answer.1).ok()?;
        if self.identity.refusal_of(&theirs, Some(peer), ConnectionEnd::Dialled).is_some() {
            return None;
        }
        stream.write_all(&channel.sealed(&[])).ok()?;
        let (number, mut sealed) = read_record(&mut stream, &mut records)?;
        let plain = channel.open(SealedRecord { number, sealed: &mut sealed }).ok()??;
        PeerProgress::decode(plain)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_tell_counts_when_one_of_them_must_be_right_or_shares_it() {
        let progress = |executed, slowest_ms| PeerProgress { executed, slowest_ms };
        assert_eq!(PeerProgress::of_others(&[progress(9, 0), progress(7, 4000)], 1), progress(7, 4000));
        assert_eq!(
            PeerProgress::of_others(&[progress(9, 300)], 1),
            progress(0, 300),
            "one of two has not answered"
        );
        let reported = [progress(5, 900), progress(8, 100), progress(6, 800), progress(7, 700)];
        assert_eq!(PeerProgress::of_others(&reported, 2), progress(6, 800));
        assert_eq!(PeerProgress::of_others(&[], 2), PeerProgress::default());
        assert_eq!(progress(7, 4000).patience_us(), 4_000_000);
        assert_eq!(
            progress(7, u64::MAX).patience_us(),
            limits::SLOWNESS_KEPT.as_micros() as u64,
            "it has a bound"
        );
        assert_eq!(PeerProgress::decode(&progress(5, 900).encode()), Some(progress(5, 900)));
        assert_eq!(PeerProgress::decode(&[1; 8]), None);
    }
}
