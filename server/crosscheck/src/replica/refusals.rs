//! Connections at the peers' port that were refused: counted, reported, and never classified as hardware faults.

use wire::ReplicaId;

use super::environment::Environment;
use crate::ServeError;
use crate::admin::RefusedPeers;
use crate::limits;
use crate::peers::Refusal;
use crate::world::World;

/// The connections that were refused so far.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Connections of processes other than the group's replicas.
    pub strangers: u64,
    /// The number of these that were not reported, and when they may be reported.
    untold: u64,
    next_report_us: u64,
    /// The replicas that say that this one's machine was replaced.
    replaced_by: u16,
    /// The replicas that say that the group has let this one go.
    let_go_by: u16,
    /// By replica: the reason why there is no connection to it, and when this may be reported again.
    of_peers: Vec<Option<(String, u64)>>,
}

impl Refusals {
    /// All refusals, for an operator.
    pub fn seen(&self) -> RefusedPeers {
        let of_peers = (1..).zip(&self.of_peers);
        let reported = |(number, why): (u8, &Option<(String, u64)>)| {
            Some(format!("replica {number}: {}", why.as_ref()?.0))
        };
        RefusedPeers { strangers: self.strangers, replicas: of_peers.filter_map(reported).collect() }
    }

    /// The peer is connected: forgets its refusal.
    pub fn forget(&mut self, peer: u8) {
        if let Some(why) = self.of_peers.get_mut(usize::from(peer)) {
            *why = None;
        }
    }
}

impl<W: World> Environment<W> {
    /// A connection at the peers' port was refused, or this replica's was.
    pub(super) fn on_refused(&mut self, peer: Option<u8>, why: &Refusal) {
        let now_us = self.world.now_us();
        if *why == Refusal::KnowsMore {
            return;
        }
        let is_outsider = matches!(why, Refusal::Outside(_));
        let known = peer.map(usize::from).filter(|peer| is_outsider || *peer < self.settings.peers.len());
        let Some(peer) = known else { return self.on_stranger(now_us, why) };
        self.note_replaced(peer, why);
        self.note_let_go(peer, why);
        let why = why.to_string();
        if self.is_news_of(peer, &why) {
            self.world.say(format_args!("replica {} is refused: {why}", ReplicaId(peer as u8)));
        }
    }

    /// Ends this replica once f+1 others say that the group has moved its number elsewhere: one may be wrong.
    fn note_replaced(&mut self, peer: usize, why: &Refusal) {
        let Refusal::Misplaced(misplaced) = why else { return };
        if misplaced.is_own && misplaced.has_moved {
            self.refusals.replaced_by |= 1 << (peer % 16);
            let needed = (usize::from(self.members.voting) - usize::from(self.settings.witness) - 1) / 2 + 1;
            if self.refusals.replaced_by.count_ones() as usize >= needed {
                self.stop_with(Err(ServeError::Operator(misplaced.to_string())));
            }
        }
    }

    /// Ends this replica once f+1 others say that the group has let it go.
    fn note_let_go(&mut self, peer: usize, why: &Refusal) {
        let Refusal::Outside(outsider) = why else { return };
        if outsider.is_own && outsider.was_in {
            self.refusals.let_go_by |= 1 << (peer % 16);
            let needed = usize::from(outsider.replicas) / 2 + 1;
            if self.refusals.let_go_by.count_ones() as usize >= needed {
                self.stop_with(Err(ServeError::Operator(outsider.to_string())));
            }
        }
    }

    /// A peer's host name does not resolve, so that it cannot be dialled; or it resolves again.
    pub(super) fn on_unresolved(&mut self, peer: u8, why: Option<String>) {
        let number = ReplicaId(peer);
        let Some(why) = why else {
            self.world.say(format_args!("replica {number} is dialled: its address resolves now"));
            return self.refusals.forget(peer);
        };
        let why = format!("its address {why}");
        if usize::from(peer) < self.settings.peers.len() && self.is_news_of(usize::from(peer), &why) {
            self.world.say(format_args!(
                "replica {number} cannot be dialled: {why}. It is tried again every second. If that lasts, see \
                    the name server of this machine, or the address of replica {number} in the configuration"
            ));
        }
    }

    /// Keeps for `status` the reason why a peer is not connected. Returns whether it has to be reported now: it is new,
    /// or was reported long ago.
    fn is_news_of(&mut self, peer: usize, why: &str) -> bool {
        let now_us = self.world.now_us();
        let count = self.settings.peers.len().max(peer + 1);
        self.refusals.of_peers.resize(count, None);
        let of_peer = &mut self.refusals.of_peers[peer];
        if of_peer.as_ref().is_some_and(|(before, next_report_us)| before == why && now_us < *next_report_us)
        {
            return false;
        }
        *of_peer = Some((why.to_owned(), now_us + limits::REPORTED_STILL.as_micros() as u64));
        true
    }

    fn on_stranger(&mut self, now_us: u64, why: &Refusal) {
        let refusals = &mut self.refusals;
        (refusals.strangers, refusals.untold) = (refusals.strangers + 1, refusals.untold + 1);
        if now_us < refusals.next_report_us {
            return;
        }
        refusals.next_report_us = now_us + limits::REPORTED_AGAIN.as_micros() as u64;
        match std::mem::take(&mut refusals.untold) {
            1 => self.world.say(format_args!("a connection to the peers' port was refused: {why}")),
            count => self.world.say(format_args!(
                "{count} connections to the peers' port were refused; the last one: {why}. Who else can \
                    reach this port?"
            )),
        }
    }
}
