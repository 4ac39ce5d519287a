//! The lower bound of cost: slot 0 numbers batches and sends them to all replicas. For measurements only, never a basis
//! for correctness claims.
//!
//! It loses batches when a connection breaks and stops when slot 0 does. The cost of a real engine is the difference to
//! this one.

use bytes::Bytes;
use order::batch::HEAD;
use order::{
    Blame, BodyWriter, Committed, Encoded, EngineOut, EngineStatus, FrameKind, MemberSet, NotNow,
    OrderEngine, Output, Outside,
};
use wire::{Malformed, Put, Reader};

/// Sends every proposal once, without any acknowledgement.
#[derive(Debug)]
pub struct FanoutEngine {
    slot: u8,
    replicas: u8,
    incarnation: u64,
    index: u64,
    ready: EngineOut,
}

impl FanoutEngine {
    /// The engine of the replica in `slot` of `replicas`; slot 0 leads.
    pub fn new(slot: u8, replicas: u8, incarnation: u64) -> Self {
        let mut ready = EngineOut::default();
        ready.outputs.push_back(Output::Established { incarnation, joined: false });
        ready.outputs.push_back(Output::LeaderChanged { leader: Some(0), term: 1 });
        FanoutEngine { slot, replicas, incarnation, index: 0, ready }
    }
}

/// Each entry has a number to itself.
fn committed(index: u64, entry: Encoded) -> Committed {
    Committed { index, entry, number: index, ends: true, sequential: false }
}

impl OrderEngine for FanoutEngine {
    fn propose(&mut self, entry: Encoded) -> Result<(), NotNow> {
        if self.slot != 0 {
            return Err(NotNow);
        }
        self.index += 1;
        let mut body = BodyWriter::with_capacity(8, 2);
        body.fields().put64(self.index);
        body.share(&entry.head);
        body.share(&entry.body);
        let body = body.finish();
        for to in 1..self.replicas {
            let (kind, body) = (FrameKind::Order, body.clone());
            self.ready.outputs.push_back(Output::Send { to, kind, body, deferrable: false });
        }
        self.ready.committed.push_back(committed(self.index, entry));
        Ok(())
    }

    fn on_frame(&mut self, from: u8, kind: FrameKind, body: Bytes) -> Result<(), Blame> {
        if kind != FrameKind::Order || from != 0 || self.slot == 0 {
            return Err(Blame { peer: from, why: "only slot 0 sends, and only batches" });
        }
        let malformed = |error: Malformed| Blame { peer: from, why: error.0 };
        let mut reader = Reader::shared(&body);
        let index = reader.u64().map_err(malformed)?;
        let head = reader.bytes(HEAD).map_err(malformed)?;
        if index != self.index + 1 {
            return Err(Blame { peer: from, why: "batches out of order" });
        }
        self.index = index;
        let entry = Encoded { head, body: reader.rest_bytes() };
        self.ready.committed.push_back(committed(index, entry));
        Ok(())
    }

    fn tick(&mut self) {}

    fn peer_up(&mut self, _peer: u8) {}

    fn peer_down(&mut self, _peer: u8) {}

    fn pump(&mut self, out: &mut EngineOut) {
        out.outputs.append(&mut self.ready.outputs);
        out.committed.append(&mut self.ready.committed);
    }

    fn engine_status(&self) -> EngineStatus {
        EngineStatus {
            leader: Some(0),
            is_leader: self.slot == 0,
            term: 1,
            incarnation: Some(self.incarnation),
            members: MemberSet { voters: ((1u32 << self.replicas) - 1) as u16, learners: 0 },
            last_index: self.index,
            last_term: 1,
            commit_index: self.index,
            first_index: self.index + 1,
            log_bytes: 0,
            stuck: false,
            outside: Outside::default(),
        }
    }
}
