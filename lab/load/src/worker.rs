//! One connection of the load: sends requests, waits for replies, and compares every byte of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use probe::{Client, Failure, Value};
use wire::mix;

use super::model::{ConnectionModel, KeySlot};
use super::tally::LoadTally;

/// A reply that takes longer counts as a broken connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to connect.
const RECONNECT: Duration = Duration::from_millis(20);
/// Shares of the mix are given in parts of this.
pub const PARTS: u64 = 1000;

/// The requests of a connection.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Keys of each connection (with `check`), or of all together.
    pub keys: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// `set`s per [`PARTS`] requests.
    pub sets: u64,
    /// `incr`s per [`PARTS`] requests; the rest are `get`s.
    pub incrs: u64,
    /// Requests that are sent together, before the first reply is awaited.
    pub pipeline: usize,
    /// Whether replies are compared with the model, byte by byte.
    pub check: bool,
}

/// An empty histogram of latencies in microseconds, up to an hour, to within a thousandth.
///
/// # Panics
/// Never: the bounds are in order.
pub fn no_latencies() -> Histogram<u64> {
    const LONGEST_US: u64 = 3_600_000_000;
    Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are in order")
}

/// One connection.
pub struct Worker {
    shape: Shape,
    addresses: Vec<SocketAddr>,
    turn: usize,
    model: ConnectionModel,
    /// The stored value when replies are not compared.
    filler: Vec<u8>,
    draws: u64,
    tally: Arc<LoadTally>,
    latencies: Histogram<u64>,
}

/// A pending request, and the version that its reply must show.
enum Pending {
    Stored(KeySlot, u32),
    Number(KeySlot, u32),
    Value(KeySlot, u32),
}

impl Worker {
    /// Connection `number`, which begins with the server of that number.
    pub fn new(
        number: usize,
        shape: &Shape,
        addresses: &[SocketAddr],
        seed: u64,
        tally: Arc<LoadTally>,
    ) -> Self {
        let name =
            if shape.check { format!("c{:x}.{number}:", seed & 0xffff_ffff) } else { "load:".to_owned() };
        let model = ConnectionModel::new(&name, shape.keys, shape.value_size);
        let filler = model.content(KeySlot::Value(0), 1).1;
        let draws = mix(seed ^ mix(number as u64));
        let (shape, addresses) = (shape.clone(), addresses.to_vec());
        Worker { shape, addresses, turn: number, model, filler, draws, tally, latencies: no_latencies() }
    }

    /// Sends requests until the tally requests the end. Returns the measured latencies.
    pub fn run(mut self) -> Histogram<u64> {
        let mut client: Option<Client> = None;
        while !self.tally.over() {
            let done = match &mut client {
                Some(client) => self.round(client),
                None => self.reconnect().map(|connected| client = Some(connected)),
            };
            match done {
                Ok(()) => {}
                Err(Failure::Connection(_)) => {
                    client = None;
                    self.tally.broken();
                    std::thread::sleep(RECONNECT);
                }
                Err(Failure::Refused(line)) => {
                    // A refused request may have been executed: continue on another connection with fresh keys.
                    client = None;
                    self.tally.refused(&line);
                }
                Err(Failure::Malformed(what)) => {
                    client = None;
                    self.tally.wrong(format!("malformed reply: {what}"));
                }
            }
        }
        self.latencies
    }

    /// Stores every value, so that the reads of a load without comparison find a value.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn fill(&mut self, mine: impl Iterator<Item = usize>) -> Result<(), Failure> {
        let mut client = self.connect()?;
        for key in mine.filter(|key| *key < self.shape.keys) {
            client.set(&self.model.name(KeySlot::Value(key)), 0, &self.filler)?;
            client.set(&self.model.name(KeySlot::Counter(key)), 0, b"0")?;
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<Client, Failure> {
        let address = self.addresses[self.turn % self.addresses.len()];
        self.turn += 1;
        Ok(Client::connect(address, PATIENCE)?)
    }

    /// A connection to the next replica, after one broke. Acknowledged writes must still be there; pending ones may or
    /// may not have been executed.
    fn reconnect(&mut self) -> Result<Client, Failure> {
        let mut client = self.connect()?;
        if self.shape.check {
            for slot in self.model.slots() {
                let (least, most) = (self.model.acknowledged(slot), self.model.sent(slot));
                if most == 0 {
                    continue;
                }
                let name = self.model.name(slot);
                let value = client.get(&name)?;
                let fits = |version| self.fits(slot, version, value.as_ref());
                if !(least..=most).any(fits) {
                    self.tally.wrong(format!(
                        "{name}: after a reconnection {} is none of the versions {least} to {most}",
                        shown(value.as_ref())
                    ));
                }
            }
            self.model.renew();
        }
        Ok(client)
    }

    fn round(&mut self, client: &mut Client) -> Result<(), Failure> {
        let pending: Vec<Pending> = (0..self.shape.pipeline).map(|_| self.queue(client)).collect();
        let start = Instant::now();
        client.flush()?;
        for request in pending {
            self.take(client, request)?;
            let latency = start.elapsed();
            self.tally.answered(latency);
            if self.tally.measuring() {
                let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                self.latencies.saturating_record(us);
            }
        }
        Ok(())
    }

    fn queue(&mut self, client: &mut Client) -> Pending {
        self.draws = mix(self.draws);
        let key = ((self.draws >> 32) % self.shape.keys as u64) as usize;
        let kind = self.draws % PARTS;
        if kind < self.shape.sets {
            let slot = KeySlot::Value(key);
            let name = self.model.name(slot);
            if !self.shape.check {
                client.queue_set(&name, 0, &self.filler);
                return Pending::Stored(slot, 0);
            }
            let version = self.model.advance(slot);
            let (flags, value) = self.model.content(slot, version);
            client.queue_set(&name, flags, &value);
            Pending::Stored(slot, version)
        } else if kind < self.shape.sets + self.shape.incrs {
            let slot = KeySlot::Counter(key);
            let name = self.model.name(slot);
            let version = if self.shape.check { self.model.advance(slot) } else { 0 };
            if version == 1 {
                client.queue_set(&name, 0, b"0");
                return Pending::Stored(slot, version);
            }
            client.queue_incr(&name, 1);
            Pending::Number(slot, version)
        } else {
            let slot = KeySlot::Value(key);
            client.queue_get(&self.model.name(slot));
            Pending::Value(slot, self.model.sent(slot))
        }
    }

    fn take(&mut self, client: &mut Client, request: Pending) -> Result<(), Failure> {
        match request {
            Pending::Stored(slot, version) => {
                client.take_stored()?;
                self.model.acknowledge(slot, version);
            }
            Pending::Number(slot, version) => {
                let number = client.take_number()?;
                self.model.acknowledge(slot, version);
                let expected = u64::from(version).checked_sub(1);
                if self.shape.check && number != expected {
                    let name = self.model.name(slot);
                    self.tally.wrong(format!("{name}: incr returned {number:?}, expected {expected:?}"));
                }
            }
            Pending::Value(slot, version) => {
                let name = self.model.name(slot);
                let value = client.take_value(&name)?;
                if value.is_none() {
                    self.tally.missed();
                }
                if self.shape.check && !self.fits(slot, version, value.as_ref()) {
                    let told = shown(value.as_ref());
                    self.tally.wrong(format!("{name}: the reply {told} is not version {version}"));
                }
            }
        }
        Ok(())
    }

    fn fits(&self, slot: KeySlot, version: u32, value: Option<&Value>) -> bool {
        match value {
            None => version == 0,
            Some(_) if version == 0 => false,
            Some(value) => {
                let (flags, bytes) = self.model.content(slot, version);
                value.flags == flags && value.bytes == bytes
            }
        }
    }
}

/// The beginning of a wrong value.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => {
            let head: Vec<u8> = value.bytes.iter().take(40).copied().collect();
            format!("flags {} and `{}`", value.flags, String::from_utf8_lossy(&head))
        }
    }
}
