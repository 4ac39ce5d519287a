//! State that every stage of a replica uses: its settings, the world, the peers, reports to an operator, and how the
//! replica ends.

use std::collections::BTreeMap;

use order::{FrameBody, FrameKind};
use wire::ReplicaId;

use super::input::Input;
use super::members::Members;
use super::refusals::Refusals;
use crate::admin::{EvidenceRecord, ReadCounts};
use crate::archive::Archive;
use crate::clock::apart;
use crate::hooks::{self, FaultPoint, Hooks};
use crate::mailbox::Mailbox;
use crate::naming::Names;
use crate::peers::Peers;
use crate::settings::{OnDetection, Settings};
use crate::world::{Lockstep, Observation, World};
use crate::{Corrupted, ReplaceReason, ServeError, Stop, evidence, founding, limits};

/// How a replica ended.
pub(crate) type Ended = Result<Stop, ServeError>;

/// State that every stage of one replica uses.
pub(super) struct Environment<W: World> {
    pub(super) settings: Settings,
    pub(super) world: W,
    /// The mailbox for the input of other threads.
    pub(super) mailbox: Mailbox<Input>,
    pub(super) lockstep: Lockstep,
    pub(super) peers: Peers<W::Net>,
    pub(super) hooks: hooks::Active,
    pub(super) tally: PastCounts,
    pub(super) evidence: Archive,
    /// The operator's names of the objects in the last records.
    names: Names,
    /// Classes with large objects, each with the message to the operator.
    large: BTreeMap<&'static str, String>,
    pub(super) refusals: Refusals,
    /// The group began with a backup, which has moves of another group: until it has the replicas where the
    /// configurations have them, those count.
    pub(super) counts_file: bool,
    /// How many replicas there are, and vote.
    pub(super) members: Members,
    outcome: Option<Ended>,
}

/// Counts of past events, for `status`.
#[derive(Debug, Default)]
pub(super) struct PastCounts {
    pub(super) requests: u64,
    pub(super) executed: u64,
    pub(super) mismatches: u64,
    pub(super) repairs: u64,
    /// Faults of this replica itself that were found: those that are repaired together count once.
    pub(super) own_faults: u64,
    pub(super) failed_checks: u64,
    pub(super) dropped_frames: u64,
    /// In verified mode: how often batches were rolled back.
    pub(super) rollbacks: u64,
    /// In verified mode: how often the whole state of the others took the place of the own one.
    pub(super) states_taken: u64,
    pub(super) reads: ReadCounts,
}

impl<W: World> Environment<W> {
    /// The environment of a replica that has not found its group yet.
    pub(super) fn new(
        settings: Settings,
        world: W,
        mailbox: Mailbox<Input>,
        lockstep: Lockstep,
        mut peers: Peers<W::Net>,
    ) -> Self {
        let hooks = hooks::Active::default();
        peers.hooks = hooks.clone();
        if settings.is_pair() {
            peers.look_for_ends();
        }
        Environment {
            members: Members::new(founding::size_of(&settings.founding, settings.peers.len())),
            settings,
            world,
            mailbox,
            lockstep,
            peers,
            hooks,
            tally: PastCounts::default(),
            evidence: Archive::default(),
            names: Names::default(),
            large: BTreeMap::new(),
            refusals: Refusals::default(),
            counts_file: false,
            outcome: None,
        }
    }

    /// Sends a frame with the next flush. A `deferrable` one waits for another frame to the same peer.
    pub(super) fn send(&mut self, to: u8, kind: FrameKind, body: &[u8], deferrable: bool) {
        self.send_all(to, kind, &[body], deferrable);
    }

    /// As [`Environment::send`], for a body in parts.
    pub(super) fn send_parts(&mut self, to: u8, kind: FrameKind, body: &FrameBody, deferrable: bool) {
        self.send_all(to, kind, &body.parts().collect::<Vec<_>>(), deferrable);
    }

    fn send_all(&mut self, to: u8, kind: FrameKind, parts: &[&[u8]], deferrable: bool) {
        if deferrable {
            self.peers.send_deferred(to, kind, parts);
        } else {
            self.peers.send(to, kind, parts);
        }
    }

    /// Ends the replica for corrupted state that is no object. The only remedy is the next incarnation.
    pub(super) fn replace(&mut self, corrupted: Corrupted) {
        self.stop_with(Ok(Stop::Replace(ReplaceReason::Corrupted(corrupted))));
    }

    /// Whether this node ends when it detects a fault in a request or its reply.
    pub(super) fn ends_on_detection(&self) -> bool {
        self.settings.mode.twice && self.settings.on_detection == OnDetection::Exit
    }

    /// The replica ends after this round, with `outcome`, unless it already has another one.
    pub(super) fn stop_with(&mut self, outcome: Ended) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
        }
    }

    /// How it ended, once it has.
    pub(super) fn outcome(&self) -> Option<&Ended> {
        self.outcome.as_ref()
    }

    pub(super) fn take_outcome(&mut self) -> Option<Ended> {
        self.outcome.take()
    }

    /// Numbers a record, stamps it with the wall clock (for people; it reaches no state), and keeps it.
    pub(super) fn keep_evidence(&mut self, mut record: EvidenceRecord) {
        record.number = self.evidence.next_number();
        record.time_us = self.world.wall_us();
        self.hooks.at(FaultPoint::Evidence(&mut record, self.settings.peers.len()));
        self.world.see(Observation::Evidence(&record));
        record.objects.iter_mut().for_each(|object| *object = self.names.put_into(object));
        self.evidence.keep(&record);
    }

    /// Number of the next record.
    pub(super) fn next_evidence(&self) -> u64 {
        self.evidence.next_number()
    }

    /// Changes kept records for which something that happened later says more.
    pub(super) fn amend_evidence(&mut self, records: &[u64], amend: impl Fn(&mut EvidenceRecord)) {
        for record in records {
            self.evidence.change(*record, &amend);
        }
    }

    /// `text` with the operator's names of the objects in it.
    pub(super) fn with_names(&self, text: &str) -> String {
        self.names.put_into(text)
    }

    /// Stores a worker's names of objects, and adds them, and earlier names, to the kept records.
    pub(super) fn learn_names(&mut self, names: Vec<crate::naming::Named>) {
        if self.names.learn(names) {
            self.evidence.amend(|text| self.names.put_into(text));
        }
    }

    /// The leader's stamps are that far ahead of the latest time that this replica accepts, or behind the earliest. It
    /// `accuses` the leader's clock where f+1 clocks say so.
    pub(super) fn report_refused_stamps(&mut self, leader: u8, ahead_us: i64, accuses: bool) {
        let apart = apart(ahead_us);
        if !accuses {
            let leader = ReplicaId(leader);
            let why = if ahead_us < 0 {
                "it is slow, or the way from it, or its clock is wrong"
            } else {
                "its clock is wrong, or that of this replica"
            };
            return self.world.say(format_args!(
                "the batches of leader {leader} have stamps that are {apart} this replica's time: {why}. This \
                    replica asks for another leader"
            ));
        }
        self.world.say(format_args!(
            "leader {} stamps batches {apart} f+1 clocks. This replica asks for another one",
            ReplicaId(leader)
        ));
        self.keep_evidence(evidence::clock(leader, &format!("its stamps are {apart} f+1 clocks")));
    }

    /// An object is so large that requests on it are slow: each class is reported to the operator once.
    pub(super) fn on_large(&mut self, region_id: object::RegionId, large: &object::Large) {
        let object::Large { id, class, bytes } = large;
        let is_new = !self.large.contains_key(class) && self.large.len() < limits::LARGE_CLASSES_REPORTED;
        if is_new {
            let message = format!(
                "class {class} has a large object: object {region_id}:{id} has {bytes} bytes. Every request that \
                    enters it computes the checksum of all of them. Keep its parts in a `Store`, and long byte strings \
                    in `Pieces`"
            );
            self.world.say(format_args!("{message}"));
            self.large.insert(class, message);
        }
    }

    /// The messages about large objects.
    pub(super) fn large(&self) -> Vec<String> {
        self.large.values().cloned().collect()
    }
}
