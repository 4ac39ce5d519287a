//! The admin protocol: JSON lines over a Unix socket, one answer line per command line.
//!
//! A line that is no command is answered with one [`Refused`] and ends the connection. Over TCP the first
//! line presents the endpoint's secret, as `{"token":"SECRET"}`, and has no answer of its own.

pub mod client;
mod corruption;
mod endpoint;
mod hex;
pub mod line;
mod stream;

pub use corruption::Corruption;
pub use endpoint::{Endpoint, Token};
pub use hex::HexBytes;
pub use stream::AdminStream;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::group_settings::GroupSetting;

/// One line from `crosscheck status`, `digest`, `inject` and the like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case")]
pub enum AdminCommand {
    /// Asks for a [`Status`].
    Status,
    /// Asks for a digest of the whole state; answered by a [`StateDigest`].
    Digest {
        /// The position of a digest that another replica returned; none = a new one.
        #[serde(default)]
        at: Option<Position>,
    },
    /// Corrupts this replica on purpose; answered by an [`Injected`]. Only in builds with the `inject` feature.
    Inject(Inject),
    /// Asks for the evidence records after number `after`; answered by [`EvidenceList`].
    Evidence {
        /// Number of the last record already seen; 0 for all that are kept.
        after: u64,
    },
    /// An operator's decision: the group begins, empty; answered by a [`Decided`]. For replica 1.
    BeginGroup,
    /// An operator's decision: the data of too many other replicas is lost for ever, and the group continues with that
    /// of the named replica; answered by a [`Decided`]. To be sent to that replica first, and to others only when it
    /// has agreed: they take its state without further agreement, and give up data that it does not have.
    KeepState {
        /// The replica, from 1.
        replica: u8,
    },
    /// An operator's decision: a replica that waits for a state takes that of the named one, the leader of its group,
    /// without further agreement; answered by a [`Decided`]. Nothing is given up.
    TakeState {
        /// The replica, from 1.
        replica: u8,
    },
    /// An operator's decision: the machine of a replica was replaced, and the replica is at this address from now on;
    /// answered by a [`Decided`]. To be sent to any other replica. It takes effect once f+1 replicas see it there.
    ReplaceMachine {
        /// The replica, from 1.
        replica: u8,
        /// Its address, as in a configuration.
        address: String,
    },
    /// An operator's decision: two replicas are added to the group, at these addresses; answered by a [`Decided`]. It
    /// takes effect once f+1 replicas see them there, and all have caught up.
    GrowGroup {
        /// The addresses, as in a configuration.
        addresses: Vec<String>,
    },
    /// An operator's decision: the two last replicas leave the group, or those that are being added stay out; answered
    /// by a [`Decided`]. It takes effect once f+1 replicas were asked.
    ShrinkGroup,
    /// Asks what a backup would be of; answered by a [`BackupOf`].
    Backup {
        /// Has a copy of the state ordered, too: [`AdminCommand::Transfer`] fetches it.
        #[serde(default)]
        orders: bool,
    },
    /// A message of the protocol by which replicas fetch states from each other, from a receiver that is none;
    /// answered by a [`Transferred`].
    Transfer {
        /// Distinguishes receivers that are no replicas.
        receiver: u8,
        /// The message.
        message: HexBytes,
    },
    /// Asks for the settings of the group; with a change, that one is ordered first. Answered by [`GroupSettings`].
    Settings {
        /// The setting to change, and its new value.
        #[serde(default)]
        change: Option<SettingChange>,
    },
    /// Stops the replica cleanly.
    Shutdown,
}

/// A new value of a setting of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Answer to [`AdminCommand::Settings`]: the settings of the group at the position of the command, which this replica
/// has executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSettings {
    /// This replica, from 1.
    pub replica: u8,
    /// Why the group did not take the change; none if it did, or if there was none.
    pub refused: Option<String>,
    /// All settings.
    pub settings: Vec<GroupSetting>,
}

/// Answer to [`AdminCommand::Backup`]: what a backup at this replica would be of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupOf {
    /// This replica, from 1.
    pub replica: u8,
    /// Last entry of its log.
    pub logged: u64,
    /// What is equal at all replicas of its group.
    pub group: BackupGroup,
}

/// The group that a backup is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BackupGroup {
    /// Its name.
    pub cluster: String,
    /// Its replicas, and a witness.
    pub replicas: u8,
    /// Release of the framework.
    pub release: String,
    /// What has to be equal at all replicas, by the names of the configuration: among others the mode, the service, its
    /// critical types and the build.
    pub settings: Vec<(String, String)>,
}

/// Answer to [`AdminCommand::Transfer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transferred {
    /// The message that answers.
    pub message: HexBytes,
}

/// A fault to inject into one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inject {
    /// The kind of corruption, and its time.
    pub kind: Corruption,
    /// The object, by the service's name (`item:KEY`, `slot:KEY`); none = a random one of a region chosen by `seed`.
    #[serde(default)]
    pub object: Option<String>,
    /// The bit of the object's tracked members; none = chosen by `seed`.
    #[serde(default)]
    pub bit: Option<u64>,
    /// The tracked member of the object, by its number in the order of declaration; none = chosen by `seed`.
    #[serde(default)]
    pub member: Option<u8>,
    /// Chooses all values that are not set, so that an injection can be repeated.
    #[serde(default)]
    pub seed: u64,
}

/// Answer to [`AdminCommand::Inject`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Whether a fault was placed (an armed fault is injected at the next occasion).
    pub done: bool,
    /// The target that was hit, or the reason why none was.
    pub what: String,
    /// Lock of the object that was hit.
    pub home: Option<u32>,
    /// Id of the object that was hit, as evidence shows it.
    pub id: Option<String>,
}

/// Answer to [`AdminCommand::BeginGroup`], [`AdminCommand::KeepState`], [`AdminCommand::TakeState`],
/// [`AdminCommand::ReplaceMachine`], [`AdminCommand::GrowGroup`] and [`AdminCommand::ShrinkGroup`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The replica's next action.
    pub what: String,
}

fn is_zero(count: &u8) -> bool {
    *count == 0
}

/// The phases of a replica's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaPhase {
    /// Looks for its group.
    Starting,
    /// Receives state from its peers.
    Joining,
    /// Executes, and lacks acknowledged batches that not every other replica could still give it.
    #[serde(rename = "catching up")]
    CatchingUp,
    /// Has its state, and nothing can be ordered now.
    Waiting,
    /// Serves clients.
    Serving,
    /// Is stopping.
    Stopping,
}

/// With V: how the batches of a replica are verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerificationStatus {
    /// The view that it follows.
    pub view: u64,
    /// Batches that were begun here and are not stable yet.
    pub unstable: u64,
    /// Batches that the others have agreed on and that have not run here yet.
    #[serde(default)]
    pub behind: u64,
    /// How often batches were taken back here.
    pub rollbacks: u64,
    /// How often the whole state of the others took the place of the own one: requests that were in flight here then
    /// have no answer.
    #[serde(default)]
    pub states_taken: u64,
    /// What the next batch waits for, beside its arrival; none if it may run.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// The executors of the view that its verifier knows, from 1: one that was left out is catching up.
    #[serde(default)]
    pub executors: Vec<u8>,
    /// Whether it is a witness: it verifies, and executes nothing.
    #[serde(default)]
    pub witness: bool,
    /// Whether its verifier takes part: one that has lost its memory does not until it has recovered.
    pub verifies: bool,
}

/// Reads of own clients that took no batch, or were to take none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCounts {
    /// Those that were answered without a batch.
    pub local: u64,
    /// Those that took one after all: replicas differed, one was away or late, or the reply depends on the time.
    pub ordered: u64,
}

impl VerificationStatus {
    /// Whether it is further behind the others than one that keeps pace.
    pub fn lags(&self) -> bool {
        self.behind > verify::limits::WINDOW
    }
}

/// One replica at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
// large: the answer of `status`, whose members are its JSON
pub struct Status {
    /// This replica, from 1.
    pub replica: u8,
    /// Its process.
    pub pid: u32,
    /// The phase of its process.
    pub phase: ReplicaPhase,
    /// The protections that are on, in the paper's letters.
    pub mode: String,
    /// The leader it follows, from 1; none while there is none.
    pub leader: Option<u8>,
    /// Incarnation of this replica: grows when it restarts without its log.
    pub incarnation: u64,
    /// Last entry of its log.
    pub logged: u64,
    /// Last committed log index.
    pub committed: u64,
    /// Last batch whose requests have all run here; batches have the same numbers at every replica.
    pub executed: u64,
    /// Last batch up to which the vote is closed: every live replica's result is known, and right or repaired.
    pub validated: u64,
    /// With V: the view, and what was taken back; none in other modes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationStatus>,
    /// Reads of own clients that took no batch, or were to take none.
    #[serde(default)]
    pub reads: ReadCounts,
    /// Requests run here since the start.
    pub requests: u64,
    /// Client connections open now.
    pub connections: u64,
    /// Peers connected now, from 1.
    pub peers: Vec<u8>,
    /// Requests on which replicas disagreed, as observed by this replica.
    pub mismatches: u64,
    /// Objects of this replica that were repaired.
    pub repairs: u64,
    /// Entry checks that failed here.
    pub failed_checks: u64,
    /// Frames dropped because their checksum failed.
    pub dropped_frames: u64,
    /// Connections that were refused at the peers' port.
    #[serde(default)]
    pub refused: RefusedPeers,
    /// How many further replicas may be killed or paused now: the group serves again by itself without any such number
    /// of them. The leader finds it; 0 where it was not heard for a second.
    #[serde(default)]
    pub tolerates: u8,
    /// Why not more; none if no replica is missing.
    #[serde(default)]
    pub tolerates_why: Option<String>,
    /// The condition that this replica cannot continue without, and the remedy; none while all conditions are met.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Memory that clients take, and the connections that were closed because it was too much.
    #[serde(default)]
    pub buffers: Buffers,
    /// Replies held back now because no f+1 replicas agree on them.
    pub held: u64,
    /// Faults that were placed here on purpose and wait for their occasion; always 0 in a build without the injector.
    #[serde(default)]
    pub armed: u64,
    /// Too few replicas are connected for a vote to show which one is wrong: every request is run until two runs agree.
    #[serde(default)]
    pub alone: bool,
    /// Time from verdict to installed object, of the last repair, in microseconds.
    pub last_repair_us: u64,
    /// The last evidence record, in one line.
    pub last_evidence: Option<String>,
    /// Classes with an object that a scrub found too large, with the first such object and the remedy.
    #[serde(default)]
    pub large: Vec<String>,
    /// What this replica has sent to its peers since it started.
    #[serde(default)]
    pub sent: Sent,
    /// What the group acts as ([`crate::Service::BEHAVIORS`]), as this replica knows; 0 from an earlier release.
    #[serde(default)]
    pub behavior: u16,
    /// The newest behavior that this replica's release can act as.
    #[serde(default)]
    pub newest_behavior: u16,
    /// The replicas whose machines were replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedReplica>,
    /// What the replacement of a machine waits for that an operator asked this replica for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<String>,
    /// How many replicas of the group vote, as this one knows; 0 from an earlier release.
    #[serde(default)]
    pub replicas: u8,
    /// How many more are being added.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub adding: u8,
    /// What a change of the group's size waits for, that has begun, or that an operator asked this replica for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resizing: Option<String>,
    /// What the service has counted here, by name ([`crate::Service::counts`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// The copy of the state that this replica receives from others now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiving: Option<CopyProgress>,
    /// The copy of the state that this replica packs for others now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub giving: Option<CopyGiven>,
}

/// A replica whose machine was replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedReplica {
    /// The replica, from 1.
    pub replica: u8,
    /// Where it is, as the group has agreed.
    pub address: String,
    /// Where it is by the configuration of the replica that says so.
    pub configured: String,
}

/// How far a copy of the state is that a replica receives from others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// The donors, from 1, that agree on what is fetched; empty while none is agreed, and once all is here.
    pub from: Vec<u8>,
    /// Bytes that have arrived; as many as `total` once all of them are here and are put in place.
    pub received: u64,
    /// Bytes of the whole state; none while not known.
    pub total: Option<u64>,
    /// Bytes that arrived per second, over the last few seconds.
    pub bytes_per_second: u64,
}

/// How far a copy of the state is that a replica packs for others. All that have the state pack the same copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyGiven {
    /// Number of the copy, the same at all replicas.
    pub session: u64,
    /// Regions whose objects are packed, or being packed.
    pub begun: u32,
    /// All regions.
    pub regions: u32,
    /// Objects of the regions that were begun that are left: not packed yet, or changed since they were.
    pub left: u64,
}

/// The connections that were refused at the peers' port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedPeers {
    /// Connections whose other end did not prove that it belongs to the group.
    pub strangers: u64,
    /// Replicas that were refused, each with the reason: for example a setting that differs.
    pub replicas: Vec<String>,
}

/// Memory that a replica holds for its clients, in bytes, and the connections that were closed because it was too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// The configured limit. Half of it is for clients, the rest for the log and the vote.
    pub limit: u64,
    /// Memory held for client connections now: input, requests in flight, replies.
    pub held: u64,
    /// Memory that long replies take now, both those in flight and those kept for other replicas.
    pub replies: u64,
    /// Entries of the log that are in memory.
    pub log: u64,
    /// Connections that wait for room now.
    pub waiting: u64,
    /// Connections that were closed because they held room and made no progress, while others waited for room.
    pub evicted: u64,
    /// Connections that were closed because they sent nothing for too long.
    pub idle: u64,
    /// Connections that were closed because their clients completed no handshake of TLS, or sent what is not TLS.
    #[serde(default)]
    pub tls_failed: u64,
}

/// Frames to peers, by their purpose. Bytes include the frames' headers; a frame to several peers counts once for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Agreement on the order, and requests that are forwarded to the leader.
    pub order: Traffic,
    /// Digests and pairs that are compared.
    pub check: Traffic,
    /// Objects for a replica whose own are wrong.
    pub repair: Traffic,
    /// The rest: joining, state transfer, housekeeping.
    pub other: Traffic,
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Their number.
    pub messages: u64,
    /// Their total length.
    pub bytes: u64,
}

/// The position of a digest of the whole state, which every replica makes and keeps for a while. Its first region was
/// digested there; each of the others has a later position, which is the same at every replica too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// Number of the batch.
    pub index: u64,
    /// The ticket of its request, assigned by the replica that received the command first.
    pub ticket: u64,
}

/// A digest of the whole state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDigest {
    /// Where it begins: only digests of the same position can be compared.
    #[serde(flatten)]
    pub position: Position,
    /// 128 bits over every object, in hexadecimal.
    pub digest: String,
    /// The number of objects that it covers.
    pub objects: u64,
}

/// One disagreement, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceRecord {
    /// Grows by one per record of this replica.
    pub number: u64,
    /// Wall clock of the pipeline, microseconds since 1970 (shown to people; reaches no state).
    pub time_us: u64,
    /// The faulty replica, from 1; none when no replica could be blamed.
    pub replica: Option<u8>,
    /// Log index and request within the batch.
    pub request: Option<(u64, u32)>,
    /// The wrong objects: `name (Class, object LOCK:ID)` and its errors; for a repair, field by field. Names become
    /// known when the objects are packed for the repair; records get them then.
    pub objects: Vec<String>,
    /// hardware-like, nondeterminism or software-bug; unvouched for a state that was taken from one replica alone;
    /// unattributed where two replicas differed, and nothing told which one was wrong.
    pub class: String,
    /// The stage at which it was detected: entry-check, in-request, digest, reply, message, schedule, repair, scrub,
    /// panic, clock, state-transfer, or evidence: the record itself.
    pub stage: String,
    /// How it ended: repaired, dropped, held, replaced.
    pub outcome: String,
    /// CPU core the request ran on at the blamed replica, where known.
    pub core: Option<u32>,
    /// For a repair: microseconds from the verdict to the installed objects, as measured by the repaired replica.
    #[serde(default)]
    pub took_us: Option<u64>,
    /// The kind of request, as the service calls it (`get`); none for a request of the pipeline itself.
    #[serde(default)]
    pub kind: Option<String>,
}

/// Answer to [`AdminCommand::Evidence`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceList {
    /// The records, oldest first.
    pub records: Vec<EvidenceRecord>,
}

/// Answer to a command that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason and the remedy.
    pub error: String,
}
