//! The network between the hosts: IP packets go from one TUN device to another through this process, which delivers,
//! delays or loses them, by the settings of each direction of each link.
//!
//! Kernels without `netem` cannot delay or lose packets, and this switch draws the lost packets from the run's seed.
//! The hosts' TCP is the kernel's: it sees real packets that come late, or never.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use tun_rs::SyncDevice;
use wire::SplitMix64;

use crate::draw::stream;

/// First three bytes of every host's address; the last is the host's number, from 1.
const NET: [u8; 3] = [10, 77, 0];
/// Longest packet of a link, in bytes.
pub const MTU: u16 = 9000;
/// The most packets in flight on delayed links; further ones are lost, as in a full queue.
const MOST_DELAYED: usize = 1 << 16;
/// Longest sleep, so that the end of the run is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// Address of host `number`, from 0.
pub fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(NET[0], NET[1], NET[2], number as u8 + 1)
}

/// The settings of one direction of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Way {
    /// Nothing arrives.
    pub cut: bool,
    /// Share of the packets that do not arrive, 0 to 1.
    pub loss: f64,
    /// The delay of every packet.
    pub delay: Duration,
    /// The most by which it takes longer; packets stay in their order, as in a queue.
    pub jitter: Duration,
}

/// Counts of packets.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Delivered.
    pub delivered: AtomicU64,
    /// Lost on purpose.
    pub lost: AtomicU64,
    /// Delivered late on purpose.
    pub delayed: AtomicU64,
}

/// A running switch; it ends when this value is dropped.
#[derive(Debug)]
pub struct Switch {
    ways: Arc<Mutex<Vec<Way>>>,
    hosts: usize,
    traffic: Arc<Traffic>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Joins the hosts of these devices; `seed` decides which packets are lost.
    ///
    /// # Errors
    /// The operating system refuses to wait for the devices.
    pub fn start(devices: Vec<SyncDevice>, seed: u64) -> anyhow::Result<Self> {
        let hosts = devices.len();
        let poll = Poll::new().context("waiting for packets")?;
        for (number, device) in devices.iter().enumerate() {
            device.set_nonblocking(true)?;
            let source = &mut SourceFd(&device.as_raw_fd());
            poll.registry().register(source, Token(number), Interest::READABLE)?;
        }
        let ways = Arc::new(Mutex::new(vec![Way::default(); hosts * hosts]));
        let (traffic, over) = (Arc::new(Traffic::default()), Arc::new(AtomicBool::new(false)));
        let mut forwarder = Forwarder {
            devices,
            ways: Arc::clone(&ways),
            traffic: Arc::clone(&traffic),
            draw: stream(seed, 0x5717),
            delayed: BinaryHeap::new(),
            last: vec![Instant::now(); hosts * hosts],
            sequence: 0,
        };
        let stop = Arc::clone(&over);
        let thread = thread::Builder::new()
            .name("switch".into())
            .spawn(move || forwarder.forward_until(poll, &stop))?;
        Ok(Switch { ways, hosts, traffic, over, thread: Some(thread) })
    }

    /// From now on, packets from host `from` to host `to` are treated by `way`.
    pub fn set(&self, from: usize, to: usize, way: Way) {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)[from * self.hosts + to] = way;
    }

    /// The number of hosts that it joins.
    pub fn hosts(&self) -> usize {
        self.hosts
    }

    /// The counts so far.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A packet in flight: due time, number for equal times, destination, bytes.
type Delayed = Reverse<(Instant, u64, usize, Vec<u8>)>;

struct Forwarder {
    devices: Vec<SyncDevice>,
    ways: Arc<Mutex<Vec<Way>>>,
    traffic: Arc<Traffic>,
    draw: SplitMix64,
    delayed: BinaryHeap<Delayed>,
    /// When the last packet of each direction is due: a later one does not overtake it.
    last: Vec<Instant>,
    sequence: u64,
}

impl Forwarder {
    fn forward_until(&mut self, mut poll: Poll, over: &AtomicBool) {
        let mut events = Events::with_capacity(64);
        let mut buffer = vec![0; 1 << 16];
        while !over.load(Ordering::Relaxed) {
            let wait = self.send_due();
            match poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return,
                _ => {}
            }
            for event in &events {
                let from = event.token().0;
                // Edge-triggered: read until no packet is left.
                while let Ok(length) = self.devices[from].recv(&mut buffer) {
                    self.take(from, &buffer[..length]);
                }
            }
        }
    }

    /// Sends the packets that are due; returns the time until the next one is.
    fn send_due(&mut self) -> Duration {
        let now = Instant::now();
        while let Some(Reverse((due, ..))) = self.delayed.peek() {
            if *due > now {
                return due.duration_since(now).min(LOOK);
            }
            if let Some(Reverse((_, _, to, packet))) = self.delayed.pop() {
                self.send(to, &packet);
            }
        }
        LOOK
    }

    fn take(&mut self, from: usize, packet: &[u8]) {
        let Some(to) = destination(packet, self.devices.len()) else { return };
        let index = from * self.devices.len() + to;
        let way = self.ways.lock().unwrap_or_else(PoisonError::into_inner)[index];
        if way.cut || (way.loss > 0.0 && self.draw.unit() < way.loss) || self.delayed.len() >= MOST_DELAYED {
            self.traffic.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let now = Instant::now();
        if way.delay.is_zero() && way.jitter.is_zero() && self.last[index] <= now {
            return self.send(to, packet);
        }
        let due = (now + way.delay + way.jitter.mul_f64(self.draw.unit())).max(self.last[index]);
        self.last[index] = due;
        self.sequence += 1;
        self.traffic.delayed.fetch_add(1, Ordering::Relaxed);
        self.delayed.push(Reverse((due, self.sequence, to, packet.to_vec())));
    }

    fn send(&mut self, to: usize, packet: &[u8]) {
        // A full queue loses packets, on a real link as here.
        let sent = self.devices[to].send(packet);
        let counter = if sent.is_ok() { &self.traffic.delivered } else { &self.traffic.lost };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The host to which an IPv4 packet is addressed; none for all other packets that hosts send by themselves (IPv6
/// solicitations).
fn destination(packet: &[u8], hosts: usize) -> Option<usize> {
    let address = packet.get(16..20)?;
    let ours = packet[0] >> 4 == 4 && address[..3] == NET;
    let number = usize::from(address[3]).checked_sub(1)?;
    (ours && number < hosts).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_find_their_host_and_others_go_nowhere() {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&address(2).octets());
        assert_eq!(destination(&packet, 4), Some(2));
        assert_eq!(destination(&packet, 2), None, "no such host");
        packet[16] = 192;
        assert_eq!(destination(&packet, 4), None, "another network");
        assert_eq!(destination(&[0x60; 40], 4), None, "IPv6");
        assert_eq!(destination(&[0x45; 8], 4), None, "cut short");
    }
}
