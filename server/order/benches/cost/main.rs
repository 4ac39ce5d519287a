//! The CPU cost of ordering: three replicas in one thread, no sockets, so that only the crate's own work is measured.
//!
//! `cargo bench -p order --bench cost` prints nanoseconds on the CPU per batch, all three replicas together, as the
//! median and range of nine runs. CPU time, not wall time: it hardly depends on other load of the machine.

mod fanout;

use std::fs;

use bytes::Bytes;
use fanout::FanoutEngine;
use order::{
    Config, Decoder, MemoryLog, OrderEngine, Orderer, Output, PrimaryConfig, PrimaryEngine, PrimaryView,
    RaftConfig, RaftEngine, Request, State, batch, frame,
};

const REPLICAS: u8 = 3;
const REQUEST: usize = 512;
const BATCHES: usize = 4_000;
const RUNS: usize = 9;

/// Nanoseconds this thread has been on a CPU.
fn cpu_ns() -> u64 {
    let stat =
        fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells the CPU time of a thread");
    stat.split_whitespace().next().and_then(|field| field.parse().ok()).expect("nanoseconds")
}

struct Group<E> {
    replicas: Vec<Orderer<E>>,
    /// Per sender and receiver: the byte stream and its decoder.
    streams: Vec<Vec<(Vec<u8>, Decoder)>>,
    now_us: u64,
    delivered: usize,
    number: u64,
}

impl<E: OrderEngine> Group<E> {
    fn new(rewinds: bool, engine: impl Fn(u8) -> E) -> Self {
        let config = |slot| Config { rewinds, ..Config::new(slot, REPLICAS, 7) };
        let replica = |slot| Orderer::new(config(slot), engine(slot), State::default());
        let streams = (0..REPLICAS)
            .map(|from| (0..REPLICAS).map(|_| (Vec::new(), Decoder::new(from, 8 << 20))).collect())
            .collect();
        let mut group = Group {
            replicas: (0..REPLICAS).map(replica).collect(),
            streams,
            now_us: 0,
            delivered: 0,
            number: 0,
        };
        for slot in 0..REPLICAS {
            for peer in (0..REPLICAS).filter(|&peer| peer != slot) {
                group.replicas[usize::from(slot)].peer_up(peer);
            }
        }
        // Only one of the engines has views.
        let view = PrimaryView { number: 1, primary: 0, executors: 0b111, next: 1, sequential: false };
        group.replicas.iter_mut().for_each(|replica| replica.begin_view(view));
        while !group.replicas.iter().all(|replica| replica.engine_status().leader.is_some()) {
            group.replicas.iter_mut().for_each(Orderer::tick);
            group.round();
        }
        group
    }

    fn leader(&self) -> usize {
        self.replicas.iter().position(|replica| replica.engine_status().is_leader).expect("somebody leads")
    }

    /// Every replica acts once on what it has received.
    fn round(&mut self) {
        self.now_us += 10;
        for slot in 0..usize::from(REPLICAS) {
            for from in 0..usize::from(REPLICAS) {
                let (bytes, decoder) = &mut self.streams[from][slot];
                decoder.feed(bytes);
                bytes.clear();
                while let Some(frame) = decoder.next().expect("nothing corrupts here") {
                    self.replicas[slot]
                        .on_frame(frame.from, frame.kind, frame.body)
                        .expect("all are healthy");
                }
            }
            let replica = &mut self.replicas[slot];
            replica.pump(self.now_us);
            while let Some(output) = replica.poll_output() {
                if let Output::Send { to, kind, body, .. } = output {
                    frame::encode(
                        kind,
                        slot as u8,
                        &body.joined(),
                        &mut self.streams[slot][usize::from(to)].0,
                    );
                }
            }
            while let Some(delivered) = replica.poll_delivery() {
                self.delivered += 1;
                self.number = delivered.number;
            }
        }
    }
}

/// CPU nanoseconds per batch of `requests` requests, one batch outstanding, submitted at the leader or at a follower.
fn measure<E: OrderEngine>(group: &mut Group<E>, requests: usize, at_leader: bool) -> u64 {
    let slot = (group.leader() + usize::from(!at_leader)) % usize::from(REPLICAS);
    let bytes = Bytes::from(vec![5u8; REQUEST]);
    let request = Request { checksum: batch::checksum(&bytes), stream: 0, bytes };
    let start = cpu_ns();
    for _ in 0..BATCHES {
        let done = group.delivered + usize::from(REPLICAS);
        for tag in 0..requests {
            group.replicas[slot].submit(request.clone(), tag as u64, REQUEST).expect("there is room");
        }
        while group.delivered < done {
            group.round();
        }
        let last = group.replicas.iter().map(|orderer| orderer.state().index).min().unwrap_or(0);
        for replica in &mut group.replicas {
            if last.is_multiple_of(64) {
                replica.state_available(last);
            }
            replica.compact_to(last);
            replica.stable(group.number);
        }
    }
    (cpu_ns() - start) / BATCHES as u64
}

fn report<E: OrderEngine>(name: &str, at_leader: bool, rewinds: bool, engine: impl Fn(u8) -> E) {
    for requests in [1, 16, 120] {
        let mut group = Group::new(rewinds, &engine);
        measure(&mut group, requests, at_leader);
        let mut runs: Vec<u64> = (0..RUNS).map(|_| measure(&mut group, requests, at_leader)).collect();
        runs.sort_unstable();
        let [least, median, most] = [runs[0], runs[RUNS / 2], runs[RUNS - 1]];
        println!("{name:22} {requests:4} requests/batch: {median:7} ns/batch  ({least}..{most})");
    }
}

fn main() {
    report("floor", true, false, |slot| FanoutEngine::new(slot, REPLICAS, 1));
    let raft = |slot: u8| {
        let config = RaftConfig::new(slot, REPLICAS, 7, u64::from(slot) + 1);
        RaftEngine::new(config, MemoryLog, Vec::new(), 0).expect("an empty log opens")
    };
    report("raft, at the leader", true, false, raft);
    report("raft, at a follower", false, false, raft);
    let primary = |slot: u8| {
        PrimaryEngine::new(PrimaryConfig { slot, replicas: REPLICAS, incarnation: 1, start: 1 }, 0)
    };
    report("primary, at it", true, true, primary);
    report("primary, at another", false, true, primary);
}
