//! What leaves a member: the engine's messages, each with what its receiver has to know besides.

use ::raft::eraftpb::{Message, MessageType};

use super::Node;
use crate::frame::FrameKind;
use crate::log::LogStore;
use crate::raft::codec::{self, Envelope};
use crate::raft::members::slot_of;

impl<L: LogStore> Node<L> {
    pub(super) fn send(&mut self, messages: Vec<Message>) {
        let first = self.mirror().start() + 1;
        let floor = if self.is_leader() { self.leading_floor() } else { first };
        let envelope = Envelope { group: self.group(), delivered: self.delivered(), floor };
        for message in messages {
            let Some(to) = slot_of(message.to).filter(|&to| self.peers[usize::from(to)].up) else { continue };
            let deferrable = self.may_be_deferred(&message);
            let Some(body) = codec::encode(&envelope, &message, |entry| self.has_requests(&message, entry))
            else {
                continue;
            };
            if deferrable {
                self.out.send_deferred(to, FrameKind::Order, body)
            } else {
                self.out.send(to, FrameKind::Order, body)
            }
        }
    }

    /// Where followers commit by themselves, an acknowledgement is urgent only for clients of the leader.
    fn may_be_deferred(&self, message: &Message) -> bool {
        let acknowledges = message.get_msg_type() == MessageType::MsgAppendResponse && !message.reject;
        acknowledges && !self.leader_waits && self.raw.raft.promotable() && self.all_commit_early()
    }
}
