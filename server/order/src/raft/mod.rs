//! The order engine: tikv's raft, without its protobuf parsing, its randomness, its forwarding, and its panics.

pub(crate) mod boot;
pub(crate) mod check;
pub(crate) mod codec;
mod lead;
pub(crate) mod members;
mod node;
mod storage;
mod takeover;

use bytes::Bytes;

use crate::batch::Encoded;
use crate::engine::{
    Blame, Decision, DecisionError, EngineOut, EngineStatus, FailStop, GroupSize, Leadership, NotNow,
    OrderEngine, Output, Outside, Tolerance,
};
use crate::frame::FrameKind;
use crate::limits;
use crate::log::{LogError, LogStore, Record};
use boot::{Boot, Control, Entrance};
use members::{Configuration, engine_id, incarnation_of, slot_of};
use node::Node;
use storage::{Identity, Mirror, Recovered};

/// The state that a new group begins with, which its replicas have from elsewhere (a backup). Equal at all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BeginningState {
    /// Its digest; 0 for an empty state, and then the rest is 0, too.
    pub digest: u64,
    /// The log entry that it is the state after: the group's log goes on behind it.
    pub index: u64,
    /// The greatest incarnation of a replica in it ([`crate::State::last_incarnation`]): those of the group are later.
    pub incarnation: u32,
}

/// The settings of one replica's engine. The caller defines the ticks; the defaults suit ticks of 25 ms.
#[derive(Debug, Clone)]
pub struct RaftConfig {
    /// This replica's slot, from 0.
    pub slot: u8,
    /// Replicas in the group.
    pub replicas: u8,
    /// Those that vote: all, but while some are added.
    pub voting: u8,
    /// Whether members beyond `replicas` were let go, and have to leave.
    pub excludes_others: bool,
    /// Spreads election timeouts; different on each replica.
    pub seed: u64,
    /// Identifies this start of the process; never the same twice, so draw it at random. `boot.rs` has the founding
    /// rule and its argument.
    pub nonce: u64,
    /// A follower that receives nothing from a leader campaigns after a number of ticks from this half-open range.
    pub election_ticks: (usize, usize),
    /// Ticks between heartbeats.
    pub heartbeat_ticks: usize,
    /// Ticks between the calls of a replica that is not in a group yet.
    pub hello_ticks: u64,
    /// Entries that a learner may lack when it is promoted.
    pub learner_lag: u64,
    /// Entries the leader may be ahead of the slowest live voter.
    pub window: u64,
    /// The group is to begin, if no replica has a log of one: see `boot.rs`. Has an effect in slot 0 only.
    pub found: bool,
    /// The state that the group begins with, if this replica takes part in its founding.
    pub begins_with: BeginningState,
    /// Bounds that a simulation makes small.
    pub scale: limits::EngineScale,
    /// How own batches come back from the leader.
    pub own_entries: OwnEntries,
    /// Whether the engine's own numbers are checked, compared with the rules of raft, and sealed. Always on, but for a
    /// test that shows the effect.
    pub seals_numbers: bool,
}

/// How the entries of a follower's own batches come back from the leader: without their requests, which the follower
/// has. All parts are on, but for tests that show the effect of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnEntries {
    /// As a leader, leave out the requests.
    pub left_out: bool,
    /// As a leader, send whole entries to a follower that refuses some.
    pub fall_back: bool,
    /// As a follower, compare the kept requests with the entry's checksum.
    pub compared: bool,
}

impl Default for OwnEntries {
    fn default() -> Self {
        OwnEntries { left_out: true, fall_back: true, compared: true }
    }
}

impl RaftConfig {
    /// The defaults for the replica in `slot` of `replicas`: elections after 300 to 600 ms without a leader
    /// at 25 ms ticks.
    pub fn new(slot: u8, replicas: u8, seed: u64, nonce: u64) -> Self {
        // panics: the configuration at the start, which the operator chose
        assert!(slot < replicas && usize::from(replicas) <= limits::SLOTS);
        RaftConfig {
            slot,
            replicas,
            voting: replicas,
            excludes_others: false,
            seed,
            nonce,
            election_ticks: (12, 24),
            heartbeat_ticks: 2,
            hello_ticks: 4,
            learner_lag: limits::LEARNER_LAG,
            window: limits::WINDOW_ENTRIES,
            found: true,
            begins_with: BeginningState::default(),
            scale: limits::EngineScale::default(),
            own_entries: OwnEntries::default(),
            seals_numbers: true,
        }
    }
}

/// The raft engine over a log store.
///
/// *Getting in.* A replica with a log (disk) takes part at once under its old id. One without (memory, or a
/// lost disk) asks the others: if all N answer that they have none either, slot 0 founds the group, on the operator's
/// command ([`Decision::Found`]); if any replica is in a group, it joins under a new id, first as a learner, then
/// as a voter. So the first start needs all N replicas. The full rule and its safety argument are in
/// `boot.rs`.
///
/// *Randomness.* None: election timeouts are a function of the seed, so a simulation replays. See
/// [`OrderEngine`] for how it is driven.
///
/// A new connection to a peer must be reported as `peer_down` and then `peer_up`: that is how a leader learns that the
/// old process of a replica has ended.
pub struct RaftEngine<L: LogStore> {
    config: RaftConfig,
    boot: Boot,
    /// The store of a replica that is not in a group yet.
    store: Option<L>,
    node: Option<Node<L>>,
    peers_up: u16,
    ticks: u64,
    /// Latest stamp of an entry that is accepted.
    latest_us: u64,
    out: EngineOut,
}

impl<L: LogStore> RaftEngine<L> {
    /// An engine over a log, with the `records` that the log held when it was opened (none for a new one, or
    /// in memory). The pipeline has the state after entry `applied` (0 for none). A log that begins later
    /// than that, or ends before it, is of no use without its state: it is dropped, and the replica joins
    /// under a new id.
    ///
    /// # Errors
    /// [`LogError`] when the log cannot be written; [`LogError::Contradiction`] when it is no log of this replica.
    pub fn new(config: RaftConfig, store: L, records: Vec<Record>, applied: u64) -> Result<Self, LogError> {
        let mut boot = Boot::new(config.slot, config.replicas, (config.nonce, config.begins_with.digest));
        if config.found {
            boot.allow_founding();
        }
        let out = EngineOut::default();
        let mut engine = RaftEngine {
            config,
            boot,
            store: None,
            node: None,
            peers_up: 0,
            ticks: 0,
            latest_us: u64::MAX,
            out,
        };
        match Mirror::recover(store, records, engine.config.slot, applied)? {
            Recovered::NoMember(store) => engine.store = Some(store),
            Recovered::Member(mirror) => {
                // The state is behind: the entries between state and log are gone. The state is ahead: the log lost
                // entries that it had delivered.
                let behind = applied < mirror.start() && mirror.start() > storage::GENESIS;
                let ahead = applied > mirror.last();
                if behind || ahead {
                    let (begins_after, ends_at) = (mirror.start(), mirror.last());
                    let dropped = Output::LogDropped { begins_after, ends_at, state: applied };
                    engine.out.outputs.push_back(dropped);
                    engine.store = Some(mirror.store);
                } else {
                    engine.start(*mirror, applied, false);
                }
            }
        }
        Ok(engine)
    }

    fn on_control(&mut self, from: u8, body: Bytes) -> Result<(), Blame> {
        let control = Control::decode(body).map_err(Blame::malformed(from))?;
        let group = self.node.as_ref().map(Node::group);
        match (control, &mut self.node) {
            (Control::Join { nonce }, Some(node)) => node.on_join(from, nonce)?,
            (Control::BadEntry { group: named, index }, Some(node)) if Some(named) == group => {
                if !node.mirror().is_intact(index) {
                    node.fail(FailStop::LogCorrupt { index });
                }
            }
            (Control::StateLost { group: named, cut }, Some(node)) if Some(named) == group => {
                node.on_state_lost(from, cut);
            }
            (Control::Gone { group: named, id }, Some(node)) if Some(named) == group => {
                node.on_gone(from, id)
            }
            (Control::Gone { .. }, Some(node)) => node.is_elsewhere(from),
            (Control::Member { to, group: named }, Some(node)) if Some(named) != group => {
                match self.boot.asked(to) {
                    true => node.is_forgotten_by(from),
                    false => node.is_elsewhere(from),
                }
            }
            (control, _) => self.on_boot(from, &control)?,
        }
        Ok(())
    }

    fn on_boot(&mut self, from: u8, control: &Control) -> Result<(), Blame> {
        if let Control::Welcome { id, .. } = *control
            && slot_of(id) != Some(self.config.slot)
        {
            return Err(Blame::new(from, "welcomes us under another slot's id"));
        }
        let mut answers = Vec::new();
        let entrance = self.boot.on_control(from, control, &mut answers);
        answers.iter().for_each(|answer| self.out.send(from, FrameKind::Control, answer.encode()));
        if let Some(entrance) = entrance {
            self.enter(entrance);
        }
        Ok(())
    }

    fn enter(&mut self, entrance: Entrance) {
        let Some(store) = self.store.take() else { return };
        let (identity, founding) = match entrance {
            Entrance::Founded { group, nonces } => {
                let BeginningState { index, incarnation, .. } = self.config.begins_with;
                let incarnation = incarnation.saturating_add(1);
                let id = engine_id(self.config.slot, incarnation);
                let founding = (index.max(storage::GENESIS), Configuration::founding(&nonces, incarnation));
                (Identity { group, id, boots: 0 }, Some(founding))
            }
            Entrance::Joined { group, id } => (Identity { group, id, boots: 0 }, None),
        };
        let joined = founding.is_none();
        match Mirror::create(store, identity, founding) {
            // A founding has no entries: what is applied is its state.
            Ok(mirror) => self.start(mirror, 0, joined),
            Err(error) => self.out.outputs.push_back(Output::FailStop(FailStop::of_log(&error))),
        }
        if let Some(found) = self.boot.announce_founding().filter(|_| self.config.slot == 0) {
            self.send_to_all(&found);
        }
    }

    fn start(&mut self, mirror: Mirror<L>, applied: u64, joined: bool) {
        self.boot.enter(mirror.identity.group);
        match Node::new(self.config.clone(), mirror, applied) {
            Ok(mut node) => {
                node.latest_us = self.latest_us;
                for peer in (0..self.config.replicas).filter(|peer| self.peers_up >> peer & 1 == 1) {
                    node.peers[usize::from(peer)].up = true;
                }
                let incarnation = incarnation(&node);
                self.out.outputs.push_back(Output::Established { incarnation, joined });
                let members = node.configuration.members();
                if members.voters != 0 {
                    self.out.outputs.push_back(Output::Membership { index: node.mirror().start(), members });
                }
                self.node = Some(node);
            }
            Err(reason) => self.out.outputs.push_back(Output::FailStop(reason)),
        }
    }

    fn send_to_all(&mut self, control: &Control) {
        let body = control.encode();
        for peer in (0..self.config.replicas).filter(|peer| self.peers_up >> peer & 1 == 1) {
            self.out.send(peer, FrameKind::Control, body.clone());
        }
    }

    fn announce(&mut self) {
        if self.node.as_ref().is_some_and(Node::may_be_forgotten) {
            return self.send_to_all(&self.boot.hello());
        }
        if self.node.is_none() {
            if let Some(entrance) = self.boot.try_found() {
                return self.enter(entrance);
            }
            for control in self.boot.announce() {
                self.send_to_all(&control);
            }
        }
    }
}

/// The incarnation in this process's batches: later processes have greater ones, with a log (more boots) and without
/// (another engine id).
fn incarnation<L: LogStore>(node: &Node<L>) -> u64 {
    u64::from(incarnation_of(node.id())) << 32 | u64::from(node.mirror().identity.boots)
}

#[cfg(feature = "inject")]
impl<L: LogStore> crate::EngineFaults for RaftEngine<L> {
    fn corrupt_entry(&mut self, index: u64, at: usize) -> bool {
        self.node.as_mut().is_some_and(|node| node.raw.mut_store().corrupt(index, at))
    }

    fn corrupt_own(&mut self, at: usize) -> bool {
        self.node.as_mut().is_some_and(|node| node.own.corrupt(at))
    }

    fn corrupt_number(&mut self, ordinal: usize, bit: u32) -> Option<&'static str> {
        self.node.as_mut()?.corrupt_number(ordinal, bit)
    }
}

impl<L: LogStore> OrderEngine for RaftEngine<L> {
    fn propose(&mut self, entry: Encoded) -> Result<(), NotNow> {
        self.node.as_mut().ok_or(NotNow)?.propose(entry)
    }

    fn on_frame(&mut self, from: u8, kind: FrameKind, body: Bytes) -> Result<(), Blame> {
        match (kind, &mut self.node) {
            (FrameKind::Order, Some(node)) => node.on_message(from, body),
            (FrameKind::Order, None) => Ok(()), // meant for an earlier incarnation of ours
            (FrameKind::Control, _) => self.on_control(from, body),
            _ => Err(Blame::new(from, "a frame kind that the engine does not know")),
        }
    }

    fn handed_over(&mut self, batch: &Encoded) {
        if let Some(node) = &mut self.node {
            node.own.keep(batch.clone());
        }
    }

    fn tick(&mut self) {
        self.ticks += 1;
        if self.ticks % self.config.hello_ticks == 1 {
            self.announce();
        }
        if let Some(node) = &mut self.node {
            node.tick();
            node.replace_leader_of_refused_stamps();
            node.lead_on();
            if self.ticks.is_multiple_of(limits::CLAIM_TICKS) {
                node.tick_store();
            }
        }
    }

    fn peer_up(&mut self, peer: u8) {
        self.peers_up |= 1 << peer;
        match &mut self.node {
            Some(node) => node.peer_up(peer),
            None => {
                let calls = self.boot.announce();
                calls.iter().for_each(|call| self.out.send(peer, FrameKind::Control, call.encode()));
            }
        }
    }

    fn peer_down(&mut self, peer: u8) {
        self.peers_up &= !(1 << peer);
        self.boot.forget(peer);
        if let Some(node) = &mut self.node {
            node.peer_down(peer);
        }
    }

    fn resize(&mut self, GroupSize { known, voting, excludes_others }: GroupSize) {
        self.boot.resize(known);
        let of_node = self.node.as_mut().map(|node| &mut node.config);
        for config in [&mut self.config].into_iter().chain(of_node) {
            (config.replicas, config.voting, config.excludes_others) = (known, voting, excludes_others);
        }
        self.node.iter_mut().for_each(Node::update_commit_messages);
    }

    fn rest(&mut self) {
        if let Some(node) = &mut self.node {
            node.end_round();
        }
    }

    fn pump(&mut self, out: &mut EngineOut) {
        out.take_over(&mut self.out);
        if let Some(node) = &mut self.node {
            node.pump();
            out.take_over(&mut node.out);
        }
    }

    fn needs_persist(&self) -> bool {
        self.node.as_ref().is_some_and(Node::needs_persist)
    }

    fn persist(&mut self, out: &mut EngineOut) {
        if let Some(node) = &mut self.node {
            node.persist();
        }
        self.pump(out);
        self.rest();
    }

    fn leadership(&self) -> Leadership {
        let Some(node) = &self.node else { return Leadership::default() };
        Leadership {
            leader: node.leader_slot(),
            is_leader: node.is_leader() && node.failed.is_none(),
            term: node.raw.raft.term,
            incarnation: Some(incarnation(node)),
        }
    }

    fn engine_status(&self) -> EngineStatus {
        let Leadership { leader, is_leader, term, incarnation } = self.leadership();
        let outside = self.boot.outside();
        let Some(node) = &self.node else { return EngineStatus { outside, ..EngineStatus::default() } };
        EngineStatus {
            leader,
            is_leader,
            term,
            incarnation,
            members: node.configuration.members(),
            last_index: node.last_index(),
            last_term: node.raw.raft.raft_log.last_term(),
            commit_index: node.raw.raft.raft_log.committed,
            first_index: node.mirror().start() + 1,
            log_bytes: node.mirror().bytes(),
            stuck: node.is_stuck(),
            outside: Outside {
                fresh: outside.fresh & !node.spoken(),
                elsewhere: node.elsewhere(),
                ..Outside::default()
            },
        }
    }

    fn tolerance(&self) -> Option<Tolerance> {
        self.node.as_ref().and_then(Node::tolerance)
    }

    fn backlog(&self) -> u64 {
        self.node.as_ref().map_or(0, Node::backlog)
    }

    fn delivered(&mut self, index: u64) {
        if let Some(node) = &mut self.node {
            node.take_delivery(index);
        }
    }

    fn state_available(&mut self, cut: u64) {
        if let Some(node) = &mut self.node
            && node.raw.mut_store().offer_checkpoint(cut)
        {
            node.checkpoint_made();
        }
    }

    fn state_freed(&mut self, cut: u64) {
        if let Some(node) = &mut self.node {
            node.raw.mut_store().withdraw(cut);
        }
    }

    fn installed(&mut self, cut: u64) -> bool {
        self.node.as_mut().is_some_and(|node| node.installed(cut))
    }

    fn state_lost(&mut self, cut: u64) {
        if let Some(node) = &mut self.node {
            node.state_lost(cut);
        }
    }

    fn forget(&mut self) -> Result<(), LogError> {
        match &mut self.node {
            Some(node) => node.raw.mut_store().store.wipe(),
            None => Ok(()),
        }
    }

    fn compact_to(&mut self, index: u64) -> bool {
        let Some(node) = &mut self.node else { return false };
        node.finish_ready();
        let step = node.config.scale.compact_step;
        let index = index.min(node.floor()).min(node.raw.raft.raft_log.applied);
        match node.raw.mut_store().compact(index, step) {
            Ok(more) => more,
            Err(error) => {
                node.fail(FailStop::of_log(&error));
                false
            }
        }
    }

    fn compaction_floor(&self) -> u64 {
        self.node.as_ref().map_or(0, Node::floor)
    }

    fn successor(&self, among: u16) -> Option<u8> {
        self.node.as_ref()?.successor(among)
    }

    fn transfer_leader(&mut self, slot: u8) {
        let Some(node) = &mut self.node else { return };
        if let Some(id) = node.configuration.in_slot(slot).filter(|_| node.is_leader()) {
            node.finish_ready();
            node.guard(|node| node.raw.transfer_leader(id));
        }
    }

    fn campaign(&mut self) {
        if let Some(node) = &mut self.node {
            node.campaign();
        }
    }

    fn admitted_incarnation(&self, slot: u8) -> Option<u32> {
        self.node.as_ref()?.configuration.incarnations.get(&slot).map(|latest| latest.incarnation)
    }

    fn decide(&mut self, decision: Decision) -> Result<(), DecisionError> {
        match (decision, &mut self.node) {
            (Decision::TakeOver, None) => Err(DecisionError::NoData),
            (Decision::TakeOver, Some(node)) => {
                node.take_over()?;
                self.boot.enter(node.group());
                Ok(())
            }
            (Decision::Found, Some(_)) => Err(DecisionError::Belongs),
            (Decision::Found, None) if self.config.slot != 0 => Err(DecisionError::NotFirst),
            (Decision::Found, None) => {
                let members = self.boot.outside().members;
                if members != 0 {
                    return Err(DecisionError::OtherBelongs(members.trailing_zeros() as u8));
                }
                self.boot.allow_founding();
                Ok(())
            }
        }
    }

    fn accept_stamps(&mut self, until_us: u64) {
        self.latest_us = until_us;
        if let Some(node) = &mut self.node {
            node.latest_us = until_us;
        }
    }
}
