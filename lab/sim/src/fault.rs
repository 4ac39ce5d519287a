//! The catalogue of faults: the possible faults of a run, and how each is detected and repaired.

use crosscheck::admin::Corruption;
use serde::{Deserialize, Serialize};

mod kinds;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum SimFault {
    /// The process ends, its memory is lost, and it starts again.
    Crash,
    /// The process stops for a while.
    Pause,
    /// No message arrives or leaves.
    Partition,
    /// Nothing it sends arrives.
    Mute,
    /// Nothing arrives at it.
    Deaf,
    /// All its connections break.
    Reset,
    /// Some of its messages are lost.
    Loss,
    /// Some of its messages arrive twice.
    Duplication,
    /// Some of its messages are overtaken.
    Reordering,
    /// Its messages take long.
    Delay,
    /// Bits of its messages flip on the way.
    Noise,
    /// Its wall clock jumps, forwards or backwards.
    ClockJump,
    /// Its machine is suspended: nothing of it moves, its monotonic clock neither.
    Suspend,
    /// A bit of its clock's offset from the monotonic time flips.
    Clock,
    /// A bit of one of its stamps as a leader flips.
    Stamp,
    /// Its machine loses its power: unsynced data is lost, or torn.
    Power,
    /// The process ends, and its disk is empty when the next one starts.
    DiskLost,
    /// A bit of its disk flips at rest, and the process ends.
    DiskFlip,
    /// Its disk has no free space for a while.
    DiskFull,
    /// A sync of its log fails.
    DiskError,
    /// All machines lose their power at about the same time.
    Blackout,
    /// Processes end with their memory, any number of them, while the group is being founded.
    Founding,
    /// The memories of more than f replicas are lost: an operator decides.
    Memories,
    /// It is started with a setting that differs from its peers', until its operator corrects it.
    Settings,
    /// Strangers without the group's key connect to it.
    Stranger,
    /// An attacker puts bytes into a connection between two replicas: forged or recorded ones.
    Forged,
    /// A request takes longer than the watchdog's time, at all replicas or at f+1 of them.
    Slow,
    /// A handler hangs, at one replica.
    Hang,
    /// Several requests in a row take long at one replica, none of them longer than the watchdog's time.
    SlowCore,
    /// A bit of one of its objects is stuck: after each repair of the object the bit is wrong again.
    Stuck,
    /// A bit of an ordered entry in its memory flips.
    Entry,
    /// A bit of one of its order engine's numbers flips.
    Number,
    /// The last request of a client is in its queue a second time.
    Queue,
    /// With V: the service's keys miss conflicts in some batches, at all replicas.
    Interleave,
    /// With V: a bit of a VERIFY flips before its frame is summed.
    Token,
    /// With V: a bit of a token that its verifier has counted flips.
    Tally,
    /// With V: a bit of a leaf of the tree over its objects flips.
    Leaf,
    /// With V: a bit of a node of that tree flips.
    Node,
    /// With V: a bit of what a request would be taken back with flips.
    Kept,
    /// With V: two parallel batches of a plan become one.
    Groups,
    /// With V: a batch that is to run one request at a time runs as any other.
    Flag,
    /// With V: it loses the bodies of the batches that it has delivered.
    BodyLost,
    /// With V: its verifier wants one view after the other.
    ViewStorm,
    /// With V: its verifier loses its memory.
    Forgets,
    /// Its process ends, and the next one soon after.
    TwoIncarnations,
    /// Requests take long at it, so that it lags, and no request takes long enough for a watchdog.
    SlowExecutor,
    /// Its memory or its computation is corrupted, as by `crosscheck inject`.
    Corruption(Corruption),
}

/// A row of the catalogue.
pub struct CatalogueRow {
    /// The fault.
    pub fault: SimFault,
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// Its effect.
    pub what: &'static str,
    /// How it is detected.
    pub notices: &'static str,
    /// How it is repaired.
    pub repairs: &'static str,
}

const fn entry(
    fault: SimFault,
    name: &'static str,
    what: &'static str,
    notices: &'static str,
    repairs: &'static str,
) -> CatalogueRow {
    CatalogueRow { fault, name, what, notices, repairs }
}

use Corruption as C;

/// Every fault there is.
pub const CATALOGUE: [CatalogueRow; 74] = [
    entry(
        SimFault::Crash,
        "crash",
        "the process ends; it starts again with empty memory",
        "peers: its connections end",
        "state transfer, each piece on f+1 equal digests; with its log on disk: the log",
    ),
    entry(
        SimFault::Pause,
        "pause",
        "the process stands still for up to 2 s",
        "peers: silence",
        "catches up from the log",
    ),
    entry(
        SimFault::Partition,
        "partition",
        "nothing comes or goes",
        "peers: silence; a leader steps down",
        "what was on its way arrives later",
    ),
    entry(
        SimFault::Mute,
        "mute",
        "nothing it sends arrives",
        "peers: silence; it: no acknowledgements",
        "what was on its way arrives later",
    ),
    entry(
        SimFault::Deaf,
        "deaf",
        "nothing arrives at it",
        "it: silence; peers: no acknowledgements",
        "what was on its way arrives later",
    ),
    entry(
        SimFault::Reset,
        "reset",
        "its connections break, and what was on its way is lost",
        "both ends",
        "the higher number dials again; both ends say again what is owed",
    ),
    entry(
        SimFault::Loss,
        "loss",
        "messages vanish although the connection holds",
        "gaps in the log; votes that stay open",
        "the leader probes; voters ask again",
    ),
    entry(
        SimFault::Duplication,
        "duplication",
        "messages arrive twice",
        "nobody: they say nothing new",
        "not needed",
    ),
    entry(
        SimFault::Reordering,
        "reordering",
        "messages are overtaken by later ones",
        "gaps in the log",
        "the leader probes",
    ),
    entry(
        SimFault::Delay,
        "delay",
        "messages take up to 40 ms longer",
        "nobody, or an election",
        "not needed",
    ),
    entry(
        SimFault::Noise,
        "noise",
        "bits flip between two replicas",
        "the frame's checksum",
        "the connection is reset",
    ),
    entry(
        SimFault::ClockJump,
        "clock-jump",
        "the wall clock is off by up to a day for a while; a process that starts meanwhile begins with it",
        "nobody, unless a process starts with it: the clocks of f+1 others",
        "the replica takes over what f+1 others agree on",
    ),
    entry(
        SimFault::Suspend,
        "suspend",
        "the machine stands still for up to 2 s, and its clocks with it",
        "peers: silence; it: the clocks of f+1 others",
        "the replica takes over what f+1 others agree on, and catches up",
    ),
    entry(
        SimFault::Clock,
        "clock",
        "a bit of the replica's clock flips: it is off by anything between microseconds and forever",
        "it: the clocks of f+1 others",
        "the replica takes over what f+1 others agree on",
    ),
    entry(
        SimFault::Stamp,
        "stamp",
        "a bit of the stamp flips that a leader gives to a batch",
        "followers: later than f+1 clocks allow; nobody, where it is earlier",
        "the followers elect another leader; ordered time never goes back",
    ),
    entry(
        SimFault::Corruption(C::Flip),
        "flip",
        "a bit of a resting object",
        "the entry check, or a scrub",
        "RECOVER of the object",
    ),
    entry(
        SimFault::Corruption(C::MultiFlip),
        "multi-flip",
        "several bits of a resting object",
        "the entry check, or a scrub",
        "RECOVER of the object",
    ),
    entry(
        SimFault::Corruption(C::InRequest),
        "in-request",
        "a bit of an object in use, before it is sealed",
        "the vote: digests differ",
        "RECOVER of the object",
    ),
    entry(
        SimFault::Corruption(C::Checksum),
        "checksum",
        "an object's stored checksum",
        "the entry check, or a scrub",
        "RECOVER of the object",
    ),
    entry(
        SimFault::Corruption(C::Id),
        "id",
        "an object's own id",
        "the entry check, or a scrub",
        "RECOVER of the object",
    ),
    entry(
        SimFault::Corruption(C::Length),
        "length",
        "a sequence in an object gains or loses an element",
        "the entry check, or a scrub",
        "RECOVER of the object",
    ),
    entry(
        SimFault::Corruption(C::Lost),
        "lost",
        "an object vanishes from its store",
        "the request that misses it, or a scrub",
        "RECOVER of the object or its region",
    ),
    entry(
        SimFault::Corruption(C::Doubled),
        "doubled",
        "an object stands in its store twice",
        "a scrub",
        "RECOVER of the object or its region",
    ),
    entry(
        SimFault::Corruption(C::Reseal),
        "reseal",
        "a bit of a resting object flips, and its checksum is made to fit (R0GV)",
        "a scrub that compares the objects with the tree; the token of a batch that enters it",
        "the objects of another replica, of which the tree says that they are right; or its whole state",
    ),
    entry(
        SimFault::Corruption(C::Digest),
        "digest",
        "the digest of a request's result",
        "the vote",
        "the reply of the others stands",
    ),
    entry(
        SimFault::Corruption(C::Check),
        "check",
        "the digest that a CHECK carries",
        "the vote",
        "voters compare request by request",
    ),
    entry(
        SimFault::Corruption(C::Reply),
        "reply",
        "the bytes of a reply before they are digested",
        "the vote",
        "the reply that f+1 others agree on",
    ),
    entry(
        SimFault::Corruption(C::Message),
        "message",
        "a frame on its way out",
        "the frame's checksum",
        "the connection is reset",
    ),
    entry(
        SimFault::Corruption(C::Request),
        "request",
        "an ordered request before it is executed",
        "its checksum",
        "RECOVER of what it should have changed",
    ),
    entry(
        SimFault::Corruption(C::Asked),
        "asked",
        "the checksum of a client's request before it is ordered: wrong for everybody",
        "every replica, when it decodes the request",
        "nobody runs it, everybody names its origin, and its client's connection is closed",
    ),
    entry(
        SimFault::Power,
        "power",
        "the machine loses its power in the middle of its work: writes that were not synced are lost, or \
            torn inside a sector (log on disk)",
        "peers: silence; it: the scan of its log cuts a torn end off",
        "comes back from its log and catches up",
    ),
    entry(
        SimFault::DiskLost,
        "disk-lost",
        "the process ends, and its disk is empty (log on disk)",
        "peers: it has no log",
        "state transfer under a new incarnation",
    ),
    entry(
        SimFault::DiskFlip,
        "disk-flip",
        "a bit of its log or its saved state flips at rest, and the process ends (log on disk)",
        "the checksums of records and of the state",
        "its operator empties the disk; state transfer",
    ),
    entry(
        SimFault::DiskFull,
        "disk-full",
        "its disk has no room for up to 2 s (log on disk)",
        "it: the write fails, and it stops",
        "comes back from its log and catches up",
    ),
    entry(
        SimFault::DiskError,
        "disk-error",
        "a sync of its log fails (log on disk)",
        "it: it stops, since trying again would prove nothing",
        "comes back from its log and catches up",
    ),
    entry(
        SimFault::Blackout,
        "blackout",
        "all machines lose their power at about the same time, each in the middle of its work (log on disk)",
        "everybody",
        "the logs: what was acknowledged is on a majority of disks",
    ),
    entry(
        SimFault::Founding,
        "founding",
        "while the group is being founded, processes end and lose what they had, any number of them",
        "peers: another process answers, or none",
        "the founding waits for all; once too few are left that took part in it: an operator's word",
    ),
    entry(
        SimFault::Memories,
        "memories",
        "more than f replicas lose their memory (or disk), one after the other or at once: beyond what the \
            group can survive by itself",
        "who is left: nobody leads any more; who lost it: no group answers",
        "nobody, until an operator says `group keep`, or, where nothing is left, `group begin`",
    ),
    entry(
        SimFault::Settings,
        "settings",
        "it is started again with a setting that its peers have otherwise, and after some seconds with the right one",
        "both ends, when they meet: each names the setting",
        "its operator, who reads that; the group serves meanwhile, and blames nobody",
    ),
    entry(
        SimFault::Stranger,
        "stranger",
        "somebody without the group's key calls it: with noise, with what peers have said before, as a \
            peer, with many connections",
        "it: what comes is not sealed with the key; it counts the caller",
        "not needed: nothing of it gets further, and no peer loses its place",
    ),
    entry(
        SimFault::Forged,
        "forged",
        "records are put into a connection of two replicas: forged ones, or some that were recorded there or elsewhere",
        "the receiver: the seal of the record; one that it has had already is left out",
        "the connection is reset",
    ),
    entry(
        SimFault::Slow,
        "slow",
        "a request takes longer than the watchdog allows, at all replicas or at f+1 of them",
        "every watchdog; f+1 others have not executed more either",
        "not needed: all wait until the request has ended",
    ),
    entry(
        SimFault::Hang,
        "hang",
        "a handler does not end, at one replica",
        "its watchdog: f+1 others have executed more",
        "the replica ends itself and joins anew, or comes back from its log",
    ),
    entry(
        SimFault::SlowCore,
        "slow-core",
        "a row of requests takes long at one replica, none of them longer than the watchdog allows",
        "peers: its votes are late",
        "not needed, unless it falls behind the group's log",
    ),
    entry(
        SimFault::Stuck,
        "stuck",
        "the same bit of an object flips again after every repair, up to 12 times",
        "the entry check, or a scrub",
        "RECOVER of the object; the region; at last the replica is replaced",
    ),
    entry(
        SimFault::Entry,
        "entry",
        "a bit of an ordered entry that rests in the log's memory",
        "its checksum, when the entry is read",
        "the replica stops and joins anew, or comes back from its log",
    ),
    entry(
        SimFault::Number,
        "number",
        "a bit of a number of the order engine: a term, a position, what it believes about a peer",
        "the seal of the numbers, when the engine is entered; nobody, where it does no harm",
        "the replica stops and joins anew, or comes back from its log",
    ),
    entry(
        SimFault::Queue,
        "queue",
        "a queue of requests that are not ordered yet gives one a second time",
        "the count of what goes through the queue",
        "the replica stops and joins anew",
    ),
    entry(
        SimFault::Corruption(C::Stray),
        "stray",
        "up to eight bytes of a resting object, as a write that was meant for another one leaves them",
        "the entry check, or a scrub",
        "RECOVER of the object",
    ),
    entry(
        SimFault::Corruption(C::Skip),
        "skip",
        "the handler of a request does nothing",
        "the vote",
        "RECOVER of what it should have changed; the reply that f+1 others agree on",
    ),
    entry(
        SimFault::Corruption(C::Twice),
        "twice",
        "the handler of a request runs twice",
        "the vote, unless twice is as good as once",
        "RECOVER of what it changed; the reply that f+1 others agree on",
    ),
    entry(
        SimFault::Corruption(C::Sticky),
        "sticky-core",
        "every n-th request changes a bit of what it has written, 8 times",
        "the vote",
        "RECOVER of the objects",
    ),
    entry(
        SimFault::Corruption(C::Erratic),
        "erratic-core",
        "now and then a request changes a bit of what it has written, 8 times",
        "the vote",
        "RECOVER of the objects",
    ),
    entry(
        SimFault::Corruption(C::Footprint),
        "footprint",
        "a request gets its tickets for another lock than it asked for",
        "the handler: the lock it wants is not in its footprint",
        "the replica blames itself; RECOVER of what it should have changed",
    ),
    entry(
        SimFault::Corruption(C::Position),
        "position",
        "a worker counts one position too many, so that what it creates has other ids from then on",
        "the vote: the digest of a request covers its position",
        "the replica replaces itself: no repair of objects sets a counter right",
    ),
    entry(
        SimFault::Corruption(C::Image),
        "image",
        "a bit of what a request would be undone with; the request then fails at this replica, and is undone",
        "the vote; the entry check, or a scrub",
        "RECOVER of what the request should have changed",
    ),
    entry(
        SimFault::Corruption(C::Repair),
        "repair",
        "a REPAIR leaves with a wrong value under a right frame checksum (5 replicas: another one must be \
            under repair)",
        "the receiver: no f+1 equal digests",
        "the packets of the others",
    ),
    entry(
        SimFault::Interleave,
        "interleave",
        "the service's keys miss conflicts in up to 12,000 batches, at all replicas: who overtakes whom decides what \
            requests write (R0GV, several workers)",
        "verifiers: tokens differ",
        "a view in which the batch runs one request at a time; where two agree, the third takes their state",
    ),
    entry(
        SimFault::Token,
        "token",
        "a bit of a VERIFY, under a right frame checksum (R0GV)",
        "the receiver: malformed; or the verifiers, which count the tokens of the others",
        "not needed: executors act on a quorum of verifiers, of which one may count wrong",
    ),
    entry(
        SimFault::Tally,
        "tally",
        "a bit of a token that a verifier has counted (R0GV)",
        "nobody, or that verifier, which asks for another view",
        "not needed: the other verifiers record",
    ),
    entry(
        SimFault::Leaf,
        "leaf",
        "a bit of a leaf of the tree over all objects (R0GV)",
        "verifiers: its token is another one",
        "the replica takes a whole state: a rollback finds a tree that is not that of the version. No scrub looks for \
            it before that: the simulation restarts a replica where it stays hidden",
    ),
    entry(
        SimFault::Node,
        "node",
        "a bit of a node of that tree, until it is hashed again (R0GV)",
        "verifiers: its token is another one; nobody, if the node is hashed again first",
        "as after `leaf`, or not needed",
    ),
    entry(
        SimFault::Kept,
        "kept",
        "a bit of the before-images with which a request would be taken back (R0GV)",
        "nobody, unless it is taken back: then the replica",
        "the replica takes a whole state; not needed where the batch stays, and as after `leaf` where it stays \
            hidden",
    ),
    entry(
        SimFault::Groups,
        "groups",
        "two parallel batches of a plan become one, at one replica (R0GV)",
        "verifiers: its token is another one, if two requests that conflict swap",
        "the batch runs again at that replica, one request at a time",
    ),
    entry(
        SimFault::Flag,
        "flag",
        "the next batch that is to run one request at a time runs as any other, at one replica (R0GV)",
        "nobody, or the verifiers",
        "not needed, or as after `groups`",
    ),
    entry(
        SimFault::BodyLost,
        "body-lost",
        "the bodies of all batches that the replica has delivered are lost (R0GV)",
        "the replica, when it runs one again; peers that ask for them",
        "others that hold them",
    ),
    entry(
        SimFault::ViewStorm,
        "view-storm",
        "a verifier wants up to 21 views one after the other (R0GV)",
        "nobody: each view begins and continues",
        "not needed",
    ),
    entry(
        SimFault::Forgets,
        "forgets",
        "a verifier loses its memory, and its executor does not (R0GV)",
        "the verifier",
        "it recovers from a quorum, as another incarnation",
    ),
    entry(
        SimFault::TwoIncarnations,
        "two-lives",
        "the process ends, and the next one up to 1.5 s later",
        "peers: its connections end",
        "as after `crash`; messages of each incarnation are distinguished",
    ),
    entry(
        SimFault::SlowExecutor,
        "slow-executor",
        "up to 30 requests take up to 120 ms each at one replica, so that it lags",
        "nobody",
        "it catches up; the others go on without it",
    ),
    entry(
        SimFault::Corruption(C::Unnamed),
        "unnamed",
        "while a copy of the state is made in parts: one replica forgets that an object has changed since it was \
            packed (modes without V)",
        "a replica that needs the state: no f+1 equal digests for that donor's copy",
        "the copy that f+1 others made; else a later one",
    ),
    entry(
        SimFault::Corruption(C::Cursor),
        "cursor",
        "a bit of the position that one replica's copy of the state has come to in a region (modes without V)",
        "as after `unnamed`; nobody, if the objects that were left out changed before the copy was complete",
        "as after `unnamed`",
    ),
    entry(
        SimFault::Corruption(C::Part),
        "part",
        "a bit of the objects that one replica has packed for a copy of the state, before they are digested (modes \
            without V)",
        "as after `unnamed`",
        "as after `unnamed`",
    ),
    entry(
        SimFault::Corruption(C::Piece),
        "piece",
        "a bit of a piece of a state that a replica gives to another one, under a right frame checksum",
        "the receiver: the piece has another digest than f+1 replicas agree on",
        "the same piece of another donor",
    ),
];

/// Whether a resting object of a given name can be hit.
pub fn rests(kind: Corruption) -> bool {
    matches!(
        kind,
        C::Stray
            | C::Flip
            | C::MultiFlip
            | C::Checksum
            | C::Id
            | C::Length
            | C::Lost
            | C::Doubled
            | C::Reseal
    )
}

impl From<SimFault> for String {
    fn from(fault: SimFault) -> String {
        fault.entry().name.to_owned()
    }
}

impl TryFrom<String> for SimFault {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let entry = CATALOGUE.iter().find(|entry| entry.name == name);
        entry.map(|entry| entry.fault).ok_or_else(|| format!("no fault is called `{name}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_one_row_and_one_name() {
        for (row, entry) in CATALOGUE.iter().enumerate() {
            assert_eq!(entry.fault.entry().name, entry.name);
            assert!(CATALOGUE[..row].iter().all(|other| other.name != entry.name), "{}", entry.name);
        }
    }
}
