//! Connections that must be refused: of replicas with other settings, and of strangers without the group's key.

use std::collections::BTreeMap;

use crosscheck::faults::Caller;
use wire::{ReplicaId, SplitMix64};

use super::{Event, Run};
use crate::net::{Call, Recorded};
use crate::node::{KEYS, Role, Unlike};
use crate::promises::PEERS;
use crate::workload::Workload;

/// Time after which two replicas that can reach each other know why they refuse each other.
const MET_US: u64 = 3_000_000;
/// Connections of a crowd at most: three times as many as a replica accepts.
const CROWD: u64 = 200;

/// Strangers that have connected, by their number.
#[derive(Default)]
pub(super) struct Strangers {
    numbered: u64,
    calls: BTreeMap<u64, Visit>,
    /// Reported intrusions.
    known: u64,
}

/// A stranger's actions at a replica.
struct Visit {
    victim: u8,
    /// The replica's process, by number.
    incarnation: u64,
    call: Call,
    caller: Option<Caller>,
    /// The next bytes to send.
    then: Vec<u8>,
    /// The stranger has sent bytes that no peer sends, and waits for no answer: the replica counts that.
    counts: bool,
}

impl<W: Workload> Run<W> {
    /// Its process is started again with a setting that differs from the others'. Returns for how long.
    pub(super) fn set_wrong(&mut self, victim: u8, draws: &mut SplitMix64) -> Option<u64> {
        let slot = &mut self.slots[usize::from(victim)];
        if slot.unlike.is_some() {
            return None;
        }
        slot.unlike = Some(draws.pick(&Unlike::all(&self.workload)).clone());
        self.stop(victim, draws.modulo(500_000));
        Some(draws.within(1_000_000, 4_500_000))
    }

    /// Its operator has read the message, and starts it with the right setting.
    pub(super) fn set_right(&mut self, victim: u8) {
        self.look_at_unlike(victim, true);
        self.slots[usize::from(victim)].unlike = None;
        self.stop(victim, 0);
    }

    /// A replica with another setting is connected to no peer, and serves no client. After enough time both ends know
    /// why.
    pub(super) fn look_at_unlike(&mut self, victim: u8, ends: bool) {
        let slot = &self.slots[usize::from(victim)];
        let (Some(unlike), Some(process)) = (&slot.unlike, &slot.process) else { return };
        let status = process.replica.status();
        let number = victim + 1;
        if process.replica.serves() || !status.peers.is_empty() {
            let how = format!(
                "replica {number} has another {} than its peers, and talks to {:?}",
                unlike.name(),
                status.peers
            );
            return self.broken(PEERS, how);
        }
        let calm = |slot: &super::ReplicaSlot<W>| slot.process.is_some() && self.now_us > slot.paused_us;
        let is_known = |refused: &[String], replica: u8| {
            let named = format!("replica {replica}: {} is ", unlike.name());
            refused.iter().any(|reported| reported.starts_with(&named))
        };
        let since_us = slot.calm_us.max(process.born_us);
        if !ends || self.now_us < since_us + MET_US || !self.slots.iter().all(calm) {
            return;
        }
        // Another one with a wrong setting may differ in that first, and one that has just begun has not met all.
        let has_met = |slot: &super::ReplicaSlot<W>| {
            let begun_us = slot.process.as_ref().map_or(u64::MAX, |process| process.born_us);
            slot.unlike.is_none() && self.now_us >= begun_us.saturating_add(MET_US)
        };
        for (other, slot) in (1..).zip(&self.slots).filter(|(other, slot)| *other != number && has_met(slot))
        {
            let refused = slot.process.as_ref().map(|process| process.replica.status().refused.replicas);
            let here = is_known(&status.refused.replicas, other);
            if !here || !refused.is_some_and(|refused| is_known(&refused, number)) {
                let how = format!(
                    "replica {number} has another {} than replica {other}, and {} does not name it",
                    unlike.name(),
                    if here { other } else { number }
                );
                return self.broken(PEERS, how);
            }
        }
    }

    /// A stranger without the key connects to a replica. Returns how long that lasts.
    pub(super) fn call_as_stranger(&mut self, victim: u8, draws: &mut SplitMix64) -> u64 {
        let calls = if draws.chance(200) { draws.within(70, CROWD) } else { draws.within(1, 5) };
        for _ in 0..calls {
            let Some(mut call) = self.network.call(victim) else { break };
            let (first, then, caller) = self.words_of_stranger(victim, calls, draws);
            let counts = !first.is_empty() && caller.is_none() && then.is_empty();
            call.send(&first);
            self.strangers.numbered += 1;
            let number = self.strangers.numbered;
            let incarnation = self.slots[usize::from(victim)].incarnation;
            self.strangers.calls.insert(number, Visit { victim, incarnation, call, caller, then, counts });
            self.at(draws.within(500, 50_000), Event::Received(number));
        }
        draws.within(100_000, 1_000_000)
    }

    /// A stranger's first bytes, the bytes after the answer, and the replica that the stranger claims to be.
    fn words_of_stranger(
        &self,
        victim: u8,
        calls: u64,
        draws: &mut SplitMix64,
    ) -> (Vec<u8>, Vec<u8>, Option<Caller>) {
        // Not the head of a record: one in 65,536 random ones would be.
        let noise = |draws: &mut SplitMix64| {
            let rest = (0..draws.within(4, 4000)).map(|_| draws.next_u64() as u8);
            b"no record at all".iter().copied().chain(rest).collect::<Vec<u8>>()
        };
        let recorded = self.network.recorded();
        let received = |is_first: bool, draws: &mut SplitMix64| {
            let fits = |one: &&Recorded| one.is_first == is_first && (!is_first || one.ends.1 == victim);
            let fitting: Vec<&Recorded> = recorded.iter().filter(fits).collect();
            if fitting.is_empty() { noise(draws) } else { draws.pick(&fitting).bytes.clone() }
        };
        match draws.modulo(6) {
            0 => (noise(draws), Vec::new(), None),
            1 => (b"GET / HTTP/1.1\r\nHost: replica\r\n\r\n".to_vec(), Vec::new(), None),
            // A recorded first message of a peer, and then other recorded bytes: their key is not that of this
            // connection.
            2 => (received(true, draws), received(false, draws), None),
            3 => (received(false, draws), Vec::new(), None),
            4 if calls > 5 => (Vec::new(), Vec::new(), None),
            _ => {
                let me = (victim + 1 + draws.modulo(u64::from(self.options.replicas) - 1) as u8)
                    % self.options.replicas;
                let role = Role { is_open: true, unlike: None, me, ..self.role_of(victim, &[]) };
                match Caller::call(&role.settings(self.options.disk), draws.next_u64()) {
                    Ok((caller, first)) => (first, Vec::new(), Some(caller)),
                    Err(_) => (noise(draws), Vec::new(), None),
                }
            }
        }
    }

    /// A stranger has waited for an answer, and continues like a peer.
    pub(super) fn receive_as_stranger(&mut self, number: u64) {
        let Some(visit) = self.strangers.calls.get_mut(&number) else { return };
        let answer = visit.call.receive();
        let then = match visit.caller.take() {
            // A connection with the wrong key gets no answer.
            Some(caller) => caller.go_on(&answer, b"forged").unwrap_or_default(),
            None => std::mem::take(&mut visit.then),
        };
        visit.call.send(&then);
    }

    /// A stranger was taken for a peer, if there is one.
    pub(super) fn look_at_strangers(&mut self) {
        let intrusions = self.network.intrusions();
        if std::mem::replace(&mut self.strangers.known, intrusions) != intrusions {
            self.broken(PEERS, "somebody without the group's key was taken for a peer".to_owned());
        }
    }

    /// Strangers have disconnected: the replica has counted those that sent bytes that no peer sends.
    pub(super) fn count_strangers(&mut self, victim: u8) {
        let slot = &self.slots[usize::from(victim)];
        let incarnation = slot.incarnation;
        let calls = std::mem::take(&mut self.strangers.calls);
        let (here, others) = calls.into_iter().partition(|(_, visit)| visit.victim == victim);
        let here: BTreeMap<u64, Visit> = here;
        self.strangers.calls = others;
        let is_seen =
            |visit: &&Visit| visit.incarnation == incarnation && visit.counts && visit.call.is_received();
        let said = here.values().filter(is_seen).count() as u64;
        let Some(process) = slot.process.as_ref().filter(|_| slot.paused_us < self.now_us) else { return };
        // A replica with too many pending handshakes closes some before it has read from them.
        let expected = if here.len() > 60 { said.min(1) } else { said };
        let counted = process.replica.status().refused.strangers;
        if counted < expected {
            let how = format!(
                "{said} strangers told replica {} what no peer says, and it has counted {counted}",
                ReplicaId(victim)
            );
            self.broken(PEERS, how);
        }
    }

    /// An attacker puts records into the stream from another replica to this one.
    pub(super) fn forge(&mut self, victim: u8, draws: &mut SplitMix64) {
        let from =
            (victim + 1 + draws.modulo(u64::from(self.options.replicas) - 1) as u8) % self.options.replicas;
        let recorded = self.network.recorded();
        let is_here = |one: &&Recorded| one.ends == (from, victim) && !one.is_first;
        let of_here: Vec<&Recorded> = recorded.iter().filter(is_here).collect();
        let elsewhere: Vec<&Recorded> = recorded.iter().filter(|one| one.ends != (from, victim)).collect();
        let bytes = match draws.modulo(3) {
            0 if !of_here.is_empty() => draws.pick(&of_here).bytes.clone(),
            1 if !elsewhere.is_empty() => draws.pick(&elsewhere).bytes.clone(),
            _ => (0..draws.within(1, 2000)).map(|_| draws.next_u64() as u8).collect(),
        };
        let hit = self.network.inject(from, victim, &bytes);
        if let Some(count) = self.summary.faults.get_mut(&crate::fault::SimFault::Forged).filter(|_| !hit) {
            count.injected -= 1;
        }
    }
}

/// The key of strangers is not that of the group.
const _: () = assert!(KEYS[0] != KEYS[1]);
