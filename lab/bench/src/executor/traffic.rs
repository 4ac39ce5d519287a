//! What a pair of Eve's executors sends for its batches, in the bytes that the replicas' own code makes of them.
//!
//! The primary of a pair numbers its clients' requests, and sends them to the backup (EXECUTE-BATCH). The backup sends
//! its token (VERIFY) to the primary, which is the only verifier, and gets the record (RECORDED). All frames of both
//! directions count, with their envelopes; heartbeats and the cipher of a real connection do not.

use anyhow::{Context, ensure};
use bytes::Bytes;
use crosscheck::Job;
use crosscheck::schedule::Entry;
use memcached::command::{Command, encode};
use order::{
    Batch, Encoded, EngineOut, FrameKind, OrderEngine, Output, PrimaryConfig, PrimaryEngine, PrimaryView,
    Request,
};
use verify::{CrashVector, Lineup, Slots, StateToken, TokenRecord, VerifyMessage, Version};

/// Slots of the two replicas.
const PRIMARY: u8 = 0;
const BACKUP: u8 = 1;
/// The only view.
const VIEW: u64 = 1;
/// The replicas' incarnations. Their numbers have fixed lengths.
const INCARNATION: u32 = 1;

/// Counts the bytes between the two replicas.
pub struct PairTraffic {
    engine: PrimaryEngine,
    proposed: u64,
    token: StateToken,
    bytes: u64,
}

impl PairTraffic {
    /// Before the first batch of a view.
    pub fn new() -> PairTraffic {
        let mut engine = PrimaryEngine::new(
            PrimaryConfig { slot: PRIMARY, replicas: 2, incarnation: INCARNATION, start: 1 },
            0,
        );
        engine.peer_up(BACKUP);
        let executors = Slots::first(2);
        engine.begin_view(PrimaryView {
            number: VIEW,
            primary: PRIMARY,
            executors: executors.0,
            next: 1,
            sequential: false,
        });
        let mut out = EngineOut::default();
        engine.pump(&mut out);
        PairTraffic { engine, proposed: 0, token: StateToken(0), bytes: 0 }
    }

    /// Sends a batch of the benchmark, after which the executors have this token. It is cut as a replica's batches are:
    /// a long one becomes several.
    ///
    /// # Errors
    /// A replica's batch cannot have such requests.
    pub fn send(&mut self, entry: &Entry<Job<Command>>, token: StateToken) -> anyhow::Result<()> {
        let requests: Vec<Request> =
            entry.rows.iter().filter_map(|work| work.request.request()).map(request).collect();
        let mut rest = &requests[..];
        while !rest.is_empty() {
            let (part, others) = rest.split_at(leading(rest));
            rest = others;
            self.proposed += 1;
            let incarnation = u64::from(INCARNATION) << 32 | 1;
            let batch = Batch::of(PRIMARY, incarnation, self.proposed, part, true);
            let batch = batch.context("requests that no batch can have")?.encode();
            let batch = batch.stamped(entry.time_us + self.proposed, entry.seed, rest.is_empty())?;
            self.propose(batch, token)?;
        }
        self.pump(token)
    }

    /// All bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn propose(&mut self, batch: Encoded, token: StateToken) -> anyhow::Result<()> {
        if self.engine.propose(batch.clone()).is_err() {
            self.pump(token)?;
            ensure!(self.engine.propose(batch).is_ok(), "the primary takes no batch");
        }
        Ok(())
    }

    /// Counts what the primary sends, and what both say about the batches that it numbers.
    fn pump(&mut self, token: StateToken) -> anyhow::Result<()> {
        loop {
            let mut out = EngineOut::default();
            self.engine.pump(&mut out);
            for output in &out.outputs {
                if let Output::Send { kind, body, .. } = output {
                    self.frame(*kind, PRIMARY, &body.joined());
                }
            }
            if out.committed.is_empty() {
                return Ok(());
            }
            for entry in &out.committed {
                self.engine.delivered(entry.index);
                if entry.ends {
                    self.agree(Version { number: entry.number, token });
                    self.engine.stable(entry.number);
                }
            }
        }
    }

    fn agree(&mut self, version: Version) {
        let verify =
            VerifyMessage::Verify { view: VIEW, version, parent: self.token, incarnation: INCARNATION };
        let lineup = Lineup {
            primary: PRIMARY,
            executors: Slots::first(2),
            joining: Slots::EMPTY,
            sequential: false,
            extra: false,
        };
        let record = TokenRecord { view: VIEW, version, lineup };
        let recorded = VerifyMessage::Recorded { record, crashes: CrashVector::new(1) };
        for (message, from) in [(verify, BACKUP), (recorded, PRIMARY)] {
            let mut body = Vec::new();
            message.encode(&mut body);
            self.frame(FrameKind::Verify, from, &body);
        }
        self.token = version.token;
    }

    fn frame(&mut self, kind: FrameKind, from: u8, body: &[u8]) {
        let mut frame = Vec::new();
        order::frame::encode(kind, from, body, &mut frame);
        self.bytes += frame.len() as u64;
    }
}

fn request(command: &Command) -> Request {
    let bytes = Bytes::from(encode(command));
    Request { checksum: order::batch::checksum(&bytes), stream: 1, bytes }
}

/// How many of these requests a replica puts into one batch.
fn leading(requests: &[Request]) -> usize {
    let mut bytes = 0;
    let fits = requests.iter().take(order::limits::BATCH_REQUESTS).take_while(|request| {
        bytes += request.bytes.len();
        bytes <= order::limits::BATCH_BYTES
    });
    fits.count().max(1)
}

#[cfg(test)]
mod tests {
    use memcached::Memcached;

    use super::*;
    use crate::executor::log::{LogShape, RequestLog};

    /// Bytes per request of batches of 100, without those of the value.
    fn beside_the_value(value_bytes: usize) -> u64 {
        let shape = LogShape { batch: 100, value_bytes, conflicts: 0.0, lone_items: 200, appended_bytes: 0 };
        let service = Memcached::new(shape.service()).expect("settings that work");
        let log = RequestLog::new(shape, &service, 1).expect("a log");
        let mut traffic = PairTraffic::new();
        // With the longest values, more than a primary holds.
        for number in 3..43 {
            traffic.send(&log.entry(number, &service), StateToken(7)).expect("it is sent");
        }
        traffic.bytes() / 4_000 - value_bytes as u64
    }

    #[test]
    fn a_request_costs_its_own_bytes_and_a_share_of_two_tokens() {
        for value_bytes in [100, 1_024, 20_480] {
            let others = beside_the_value(value_bytes);
            // A key of 16 bytes, the command around it, a row of a batch.
            assert!((30..200).contains(&others), "{others} bytes beside a value of {value_bytes}");
        }
        let mut traffic = PairTraffic::new();
        traffic.agree(Version { number: 1, token: StateToken(1) });
        // The envelopes have 12 bytes, a VERIFY 53 and a RECORDED of one verifier 40.
        assert_eq!(traffic.bytes(), 12 + 53 + 12 + 40);
    }
}
