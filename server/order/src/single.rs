//! The engine of a replica that is alone: a counter. For one-node service and for tests of the layers above.

use bytes::Bytes;

use crate::batch::Encoded;
use crate::engine::{
    Blame, Committed, EngineOut, EngineStatus, MemberSet, NotNow, OrderEngine, Output, Outside,
};
use crate::frame::FrameKind;

/// Gives every proposal the next index at once.
#[derive(Debug)]
pub struct SingleEngine {
    slot: u8,
    incarnation: u64,
    index: u64,
    ready: EngineOut,
}

impl SingleEngine {
    /// An engine that continues after entry `index` (0 for a new one); `incarnation` must grow with each process.
    pub fn new(slot: u8, incarnation: u64, index: u64) -> Self {
        let mut ready = EngineOut::default();
        ready.outputs.push_back(Output::Established { incarnation, joined: false });
        ready.outputs.push_back(Output::LeaderChanged { leader: Some(slot), term: 1 });
        SingleEngine { slot, incarnation, index, ready }
    }
}

/// It has no entries at rest, and no numbers to agree on.
#[cfg(feature = "inject")]
impl crate::EngineFaults for SingleEngine {}

impl OrderEngine for SingleEngine {
    #[inline]
    fn propose(&mut self, entry: Encoded) -> Result<(), NotNow> {
        self.index += 1;
        self.ready.committed.push_back(Committed::whole(self.index, entry));
        Ok(())
    }

    fn on_frame(&mut self, from: u8, _kind: FrameKind, _body: Bytes) -> Result<(), Blame> {
        Err(Blame::new(from, "a message to a replica that is alone"))
    }

    fn tick(&mut self) {}

    fn peer_up(&mut self, _peer: u8) {}

    fn peer_down(&mut self, _peer: u8) {}

    #[inline]
    fn pump(&mut self, out: &mut EngineOut) {
        out.take_over(&mut self.ready);
    }

    fn hands_on(&self) -> bool {
        false
    }

    #[inline]
    fn engine_status(&self) -> EngineStatus {
        EngineStatus {
            leader: Some(self.slot),
            is_leader: true,
            term: 1,
            incarnation: Some(self.incarnation),
            members: MemberSet { voters: 1 << self.slot, learners: 0 },
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
