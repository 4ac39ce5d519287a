//! What the peers' sockets bring, and what the ordering engine has sent and found meanwhile.

use bytes::Bytes;
use order::{FailStop, FrameKind, Output};
use wire::ReplicaId;

use super::Replica;
use super::agree::PeerNews;
use crate::admin::ReplicaPhase;
use crate::hooks::{Hooks, Rule};
use crate::service::Service;
use crate::settings::Durability;
use crate::world::World;
use crate::{Corrupted, ReplaceReason, ServeError, evidence, peers, transfer};

impl<S: Service, W: World> Replica<S, W> {
    /// Handles the events of the peers' sockets.
    pub(super) fn on_peer_events(&mut self, received: &mut Vec<peers::PeerEvent>) {
        if !received.is_empty() {
            self.core.order.orderer.accept_stamps(self.core.time.latest_stamp_us(&self.core.env));
        }
        for event in received.drain(..) {
            match event {
                peers::PeerEvent::Up(peer) => {
                    if !self.core.env.settings.is_witness() {
                        self.core.order.orderer.peer_up(peer);
                    }
                    self.agreement.on_peer(PeerNews::Connected(peer), &mut self.core);
                    self.core.time.clock.forget(peer);
                    self.core.env.refusals.forget(peer);
                    self.core.group.on_received(peer, self.core.env.world.now_us());
                    self.core.group.on_changed(peer, self.core.env.world.now_us());
                    let own = self.own_progress();
                    self.core.group.send_heartbeat(peer, own, &mut self.core.time, &mut self.core.env);
                    self.core.transfer.on_peer_up(&mut self.core.env);
                }
                peers::PeerEvent::Down(peer) => {
                    self.core.group.on_changed(peer, self.core.env.world.now_us());
                    self.core.order.orderer.peer_down(peer);
                    self.agreement.on_peer(PeerNews::Disconnected(peer), &mut self.core);
                }
                peers::PeerEvent::Ended(peer) => {
                    self.agreement.on_peer(PeerNews::Ended(peer), &mut self.core);
                }
                peers::PeerEvent::Corrupt(error) => {
                    let peer = error.peer();
                    self.core.env.world.say(format_args!("{error}; the connection is reset"));
                    self.core.env.tally.dropped_frames += 1;
                    self.core.env.keep_evidence(evidence::message(peer));
                    self.agreement.on_peer(PeerNews::Garbled(peer), &mut self.core);
                }
                peers::PeerEvent::Frame { from, kind, body } => self.on_frame(from, kind, body),
                peers::PeerEvent::Refused { peer, why } => {
                    if let Some(peer) = peer {
                        self.core.group.on_changed(peer, self.core.env.world.now_us());
                    }
                    match &why {
                        peers::Refusal::Misplaced(misplaced) => self.core.on_misplaced(misplaced),
                        peers::Refusal::Outside(outsider) => self.core.on_outsider(outsider),
                        _ => {}
                    }
                    self.core.env.on_refused(peer, &why);
                }
                peers::PeerEvent::Announced { peer, at } => {
                    self.core.on_seen(peer, at);
                }
                peers::PeerEvent::OtherSize(size) => self.core.on_other_size(size),
                peers::PeerEvent::Unresolved { peer, why } => self.core.env.on_unresolved(peer, why),
            }
        }
    }

    /// Handles a whole frame whose checksum is right.
    pub(super) fn on_frame(&mut self, from: u8, kind: FrameKind, body: Bytes) {
        self.core.group.on_received(from, self.core.env.world.now_us());
        match kind {
            FrameKind::Order | FrameKind::Forward | FrameKind::Control | FrameKind::Batch => {
                if let Err(blame) = self.core.order.orderer.on_frame(from, kind, body) {
                    self.core.group.on_dropped(blame, &mut self.core.env);
                }
            }
            FrameKind::Check | FrameKind::Repair | FrameKind::Verify | FrameKind::Read => {
                self.agreement.on_message(from, kind, &body, &mut self.core);
            }
            FrameKind::Transfer => {
                let Some(message) = transfer::Message::decode(body) else {
                    self.core.env.tally.dropped_frames += 1;
                    return;
                };
                if let Some(message) = self.agreement.on_transfer(from, message, &mut self.core) {
                    self.core.transfer.on_message(from, message, &mut self.core.order, &mut self.core.env);
                    self.take_pieces();
                }
            }
            FrameKind::Admin => {
                let last = self.agreement.progress(&self.core).last_batch;
                let now_us = self.core.env.world.now_us();
                if self.core.group.on_heartbeat(from, &body, last, &mut self.core.time, now_us) {
                    self.agreement.on_peer(PeerNews::Heartbeat(from), &mut self.core);
                }
                if self.core.group.take_ended(from) {
                    self.agreement.on_peer(PeerNews::Ended(from), &mut self.core);
                }
            }
        }
    }

    /// Performs the output of the ordering engine.
    pub(super) fn perform_outputs(&mut self) {
        while let Some(output) = self.core.order.orderer.poll_output() {
            match output {
                Output::Send { to, kind, body, deferrable } => {
                    // So few replicas are connected that a peer may wait for this frame after all.
                    let deferrable = deferrable && !self.core.executor.is_alone();
                    self.core.env.send_parts(to, kind, &body, deferrable);
                }
                Output::LeaderChanged { .. } | Output::Membership { .. } => {
                    self.core.transfer.forget_requested()
                }
                Output::Established { joined, .. } => self.on_established(joined),
                Output::CheckpointWanted { ordered: true } => {
                    self.core.transfer.want_checkpoint(&self.core.env);
                }
                Output::CheckpointWanted { ordered: false } => {
                    if self.core.env.settings.mode.has_common_state()
                        && self.core.env.hooks.keeps(Rule::GivesUnordered)
                    {
                        self.core.transfer.wants_unordered = true;
                    }
                }
                Output::NeedState { .. } if self.agreement.gives_up_state(&mut self.core) => {}
                Output::NeedState { index, .. } => {
                    // One that executes keeps what it has until the other state is complete: it may be the last copy.
                    if self.core.executor.running.is_none() {
                        self.phase = ReplicaPhase::Joining;
                    }
                    self.core.transfer.need(index, &mut self.core.env);
                    self.end_transfer();
                }
                Output::Skipped { tags } => {
                    if let Err(what) = self.core.order.skip(tags, &mut self.core.clients) {
                        return self.core.env.replace(what);
                    }
                }
                Output::Lacking { from, believed, last } => self.core.env.world.say(format_args!(
                    "leader {} expects entries up to {believed} here, and this log ends at {last}: they were \
                        lost on disk, or the leader is faulty. It sends them again",
                    ReplicaId(from)
                )),
                Output::StampsRefused { leader, ahead_us } => {
                    let accuses =
                        self.core.time.may_accuse(leader, self.core.env.world.now_us(), &self.core.env.hooks);
                    let ahead_us = i64::try_from(ahead_us).unwrap_or(i64::MAX);
                    self.core.env.report_refused_stamps(leader, ahead_us, accuses);
                    self.agreement.on_peer(PeerNews::LeaderFails, &mut self.core);
                }
                Output::LogDropped { begins_after, ends_at, state } => self.core.env.world.say(format_args!(
                    "the log on disk has entries {} to {ends_at}, and the state saved beside it is of entry \
                        {state}: {} This replica joins as the next incarnation, and its peers fill it",
                    begins_after + 1,
                    if state > ends_at {
                        "the end of the log was lost."
                    } else {
                        "the entries between them were lost."
                    }
                )),
                Output::Removed if self.core.was_let_go() => {}
                Output::Removed => {
                    self.core.order.give_up_log(ReplaceReason::LaterIncarnation, &mut self.core.env);
                }
                Output::OlderCopy { index: entry, incarnation: sender, number: batch } => {
                    let directory = match &self.core.env.settings.durability {
                        Durability::Memory => None,
                        Durability::Disk(directory) => Some(directory.clone()),
                    };
                    let why = ReplaceReason::OlderCopy { entry, sender, batch, directory };
                    self.core.order.give_up_log(why, &mut self.core.env);
                }
                Output::FailStop(FailStop::Corrupted(part)) => self.core.env.replace(Corrupted::Order(part)),
                Output::FailStop(reason) => self.core.env.stop_with(Err(ServeError::FailStop(reason))),
            }
        }
    }
}
