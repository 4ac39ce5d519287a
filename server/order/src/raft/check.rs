//! Nothing reaches the engine before every field of it is plausible: the engine panics on invalid input, and a faulty
//! replica must not be able to stop a healthy one.

use ::raft::eraftpb::{Entry, EntryType, Message, MessageType};

use crate::batch::{Batch, Encoded};
use crate::limits;
use crate::raft::codec::Received;
use crate::raft::members::{Change, slot_of};

/// This replica's state when a message arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// Own engine id.
    pub id: u64,
    pub term: u64,
    pub last_index: u64,
    pub committed: u64,
    /// Engine id of the leader, 0 for none.
    pub leader: u64,
    /// Latest stamp that is accepted.
    pub latest_us: u64,
}

/// Why a message is refused. A corrupt entry is a case of its own: its sender should check its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Implausible {
    Field(&'static str),
    Entry(u64),
    /// An entry is stamped this many microseconds later than is accepted.
    Future(u64),
}

/// A heartbeat may name a commit index beyond this replica's log; it is replaced by this replica's own. Either the log
/// lost its last synced entries, and nothing on its disk shows that (`log/synced.rs`), or the leader is wrong about
/// this replica's progress. In both cases it sends the missing entries only after an answer; and this message does not
/// decide which of the entries here are committed. Returns the index up to which the leader assumes that they are here.
pub(crate) fn leave_out_what_we_lack(view: &View, message: &mut Message) -> Option<u64> {
    let lacks = message.get_msg_type() == MessageType::MsgHeartbeat && message.commit > view.last_index;
    lacks.then(|| std::mem::replace(&mut message.commit, view.committed))
}

/// Whether an honest, healthy sender can have sent this message to a replica with this view.
pub(crate) fn check(view: &View, from_slot: u8, received: &Received) -> Result<(), Implausible> {
    use MessageType as T;
    let message = &received.message;
    let demand = |holds: bool, why: &'static str| if holds { Ok(()) } else { Err(Implausible::Field(why)) };
    demand(slot_of(message.from) == Some(from_slot), "message from another replica's id")?;
    demand(message.to == view.id && message.from != view.id, "message to another id")?;
    demand(message.term >= 1 && message.term < limits::TERM_LIMIT, "term out of range")?;
    demand(message.log_term <= message.term, "log term above the term")?;
    demand(message.index < 1 << 62 && message.reject_hint < 1 << 62, "index out of range")?;
    demand(message.commit < 1 << 62 && message.commit_term <= message.term, "commit out of range")?;
    let kind = message.get_msg_type();
    // A message of an earlier term may name entries that were replaced since; the engine only answers that it is late.
    let late = message.term < view.term;
    let ours = |index: u64| late || index <= view.last_index;
    demand(message.context.is_empty() || kind == T::MsgRequestVote, "context where none belongs")?;
    match kind {
        T::MsgAppend => check_append(message, view.latest_us),
        T::MsgAppendResponse => {
            demand(ours(message.index), "acknowledges what was never sent")?;
            demand(message.reject_hint <= message.index, "hint above the index")?;
            demand(ours(message.commit), "commit beyond our log")
        }
        T::MsgHeartbeatResponse => demand(ours(message.commit), "commit beyond our log"),
        T::MsgSnapshot => check_snapshot(received),
        T::MsgTimeoutNow => {
            demand(late || message.from == view.leader, "hand-over by another than the leader")
        }
        T::MsgRequestVote | T::MsgRequestPreVote => {
            demand(message.commit <= message.index, "commit beyond its log")
        }
        T::MsgHeartbeat | T::MsgRequestVoteResponse | T::MsgRequestPreVoteResponse => Ok(()),
        _ => Err(Implausible::Field("a message that never travels")),
    }
}

/// Entries follow each other without a gap, in terms that only grow, and each is unchanged since it was proposed. One
/// that is not committed yet must not be stamped later than f+1 clocks allow; a committed one was accepted by f+1
/// replicas when it was new.
fn check_append(message: &Message, latest_us: u64) -> Result<(), Implausible> {
    let mut before = (message.index, message.log_term);
    for entry in &message.entries {
        if entry.index != before.0 + 1
            || entry.term < before.1
            || entry.term > message.term
            || entry.term == 0
        {
            return Err(Implausible::Field("entries do not follow each other"));
        }
        if !is_intact(entry) {
            return Err(Implausible::Entry(entry.index));
        }
        let ahead_us = Encoded::claimed_time(&entry.context).map_or(0, |us| us.saturating_sub(latest_us));
        if ahead_us > 0 && entry.index > message.commit {
            return Err(Implausible::Future(ahead_us));
        }
        before = (entry.index, entry.term);
    }
    Ok(())
}

fn check_snapshot(received: &Received) -> Result<(), Implausible> {
    let metadata = received.message.get_snapshot().get_metadata();
    let intact =
        (1..1 << 62).contains(&metadata.index) && (1..=received.message.term).contains(&metadata.term);
    let member = received.configuration.as_ref().is_some_and(|members| members.contains(received.message.to));
    if intact && member { Ok(()) } else { Err(Implausible::Field("snapshot does not fit its receiver")) }
}

/// Whether an entry still matches its original checksums.
pub(crate) fn is_intact(entry: &Entry) -> bool {
    match entry.get_entry_type() {
        EntryType::EntryNormal if entry.context.is_empty() && entry.data.is_empty() => true,
        EntryType::EntryNormal => {
            Batch::decode(&Encoded { head: entry.context.clone(), body: entry.data.clone() }).is_ok()
        }
        EntryType::EntryConfChange => entry.data.is_empty() && Change::decode(&entry.context).is_ok(),
        EntryType::EntryConfChangeV2 => false,
    }
}
