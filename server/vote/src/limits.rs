//! All bounds of this crate in one place, so that no peer and no fault can make it grow or wait without end.

/// Replicas a group may have (2f+1 with f <= 3).
pub const MAX_REPLICAS: usize = 7;
/// Requests one batch may hold. The crate `order` sends at most 128; the codec allows some more.
pub const MAX_REQUESTS_PER_BATCH: usize = 1024;

/// Batches whose votes are kept open at the same time.
pub const WINDOW_BATCHES: u64 = 16_384;
/// So many of them are kept free for peers that are ahead: their votes wait there for the own results, also while a
/// replica that is up and does not vote keeps all batches before them open. A replica further behind than the rest is
/// compared by the ring only.
pub const AHEAD_BATCHES: u64 = 8192;
/// Batches that a replica executes at the same time: their results come in any order, and never from further apart.
pub const IN_EXECUTION_BATCHES: u64 = 4096;
/// Bytes of pairs and replies that the open batches may hold, own and peers', without long replies that are owed,
/// unless [`Config::with_window_bytes`](crate::Config::with_window_bytes) sets another bound; the oldest batch is
/// closed when exceeded.
pub const WINDOW_BYTES: usize = 32 << 20;
/// Length from which on a reply is long. The workers have a bound for long replies, and use
/// [`RequestResult::without_reply`](crate::RequestResult::without_reply) for those without room.
pub const LONG_REPLY_BYTES: usize = 4 << 10;
/// Bytes of long replies that a replica owes to its clients, unless
/// [`Config::with_owed_reply_bytes`](crate::Config::with_owed_reply_bytes) sets another bound: no less than the
/// workers' bound. The oldest batch is closed when exceeded.
pub const OWED_REPLY_BYTES: usize = 2 * WINDOW_BYTES;
/// Finished batches may hold the bytes of the window divided by this.
pub const FINISHED_SHARE: usize = 4;
/// Replies that are kept for other replicas may hold the bytes of the window divided by this.
pub const KEPT_SHARE: usize = 2;
/// Finished batches that still keep their replies and pairs: a peer may still find its stored copy corrupt.
pub const KEEP_FINISHED_BATCHES: u64 = 32;
/// Bytes such finished batches may hold.
pub const KEEP_FINISHED_BYTES: usize = 8 << 20;
/// Longest reply of another replica's client whose bytes are kept: one value of the default item size, with its header.
pub const KEPT_REPLY_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Bytes of such replies that are kept in all, unless
/// [`Config::with_kept_reply_bytes`](crate::Config::with_kept_reply_bytes) sets another bound; the oldest are
/// discarded.
pub const KEPT_REPLY_BYTES: usize = 16 << 20;
/// Batches with a mismatch that are kept outside of the window, so that they do not delay the ones after them.
pub const MAX_PARKED_BATCHES: usize = 1024;
/// How long a batch with a mismatch stays answerable after it has been decided, in microseconds.
pub const LINGER_US: u64 = 10_000_000;
/// Batch digests remembered after their batches are gone (16 bytes each), for a replica that was paused.
pub const RING_BATCHES: usize = 65_536;

/// Batch digests in one CHECK message.
pub const MAX_DIGESTS_PER_CHECK: usize = 1024;
/// Pairs in one PAIRS message (20 bytes each); longer deltas are sent in several.
pub const MAX_PAIRS_PER_MESSAGE: usize = 4096;
/// Pairs of one request that are compared one by one; a request that touched more is repaired by whole regions.
pub const MAX_PAIRS_PER_REQUEST: usize = 65_536;
/// Bytes of a reply or of a packed object in one message.
pub const MAX_PIECE_BYTES: usize = 256 << 10;
/// Bytes that the results of one batch may hold beyond the bound of the window: one batch is always open.
pub const LARGEST_BATCH_BYTES: usize = 64 << 20;
/// Replies that are fetched from peers at a time; others wait for their turn.
pub const FETCHES: usize = 64;
/// Bytes of these replies together.
pub const FETCH_BYTES: usize = 8 << 20;

/// Most objects in one RECOVER. Further ones go into the next.
pub const MAX_OBJECTS_PER_RECOVER: usize = 1024;
/// Most whole regions in one RECOVER.
pub const MAX_REGIONS_PER_RECOVER: usize = 64;
/// Wrong objects of one peer beyond which their whole regions are repaired instead.
pub const MAX_WRONG_OBJECTS: usize = 16_384;
/// Pieces of one packed object or region: 65,536 times 256 KiB are 16 GiB.
pub const MAX_PIECES: u32 = 65_536;
/// Bytes of a piece of a packed object in a REPAIR message, in addition to its content.
pub const REPAIR_PART_BYTES: usize = 42;
/// Pieces of packed objects in one REPAIR message.
pub const MAX_PARTS_PER_REPAIR: usize = 2048;
/// Bytes of one REPAIR message, unless its first piece alone is larger; further pieces go into the next one.
pub const REPAIR_MESSAGE_BYTES: usize = MAX_PIECE_BYTES;
/// Bytes a healthy replica sends at a RECOVER without being asked; the rest is pulled.
pub const REPAIR_PUSH_BYTES: usize = 1 << 20;
/// Pieces that the faulty replica requests at a time.
pub const REPAIR_PULL_PIECES: usize = 8;
/// RECOVERs whose packed objects a healthy replica keeps for a faulty one, which may reach their turns much later: it
/// waits while it is repaired, and the others continue.
pub const SERVED_TURNS: usize = 16_384;
/// Bytes that those may hold, [`SERVED_OBJECT_BYTES`] for each object included; the newest turn is always kept.
pub const SERVED_BYTES: usize = 256 << 20;
/// Bytes of a kept object in addition to its content.
pub const SERVED_OBJECT_BYTES: usize = 128;
/// Repairs done here whose late messages are recognised.
pub const DONE_TURNS: usize = 1024;
/// REPAIR messages that may wait for a turn this replica has not reached yet.
pub const EARLY_REPAIRS: usize = 4096;
/// Bytes of such early messages, with those of their pieces in memory.
pub const EARLY_REPAIR_BYTES: usize = 8 << 20;

/// Repairs of one region of one replica in a row after which the whole region is repaired.
pub const REPAIRS_BEFORE_REGION: u32 = 8;
/// Turns between two repairs of one region that still count as "in a row", in batches.
pub const IN_A_ROW_BATCHES: u64 = 4096;
/// Repairs of one replica within [`REPAIR_RATE_US`] after which it is replaced as a whole, unless
/// [`Config::with_repair_limit`](crate::Config::with_repair_limit) sets another bound.
pub const REPAIRS_BEFORE_REPLACE: usize = 20_000;
/// Repairs of one replica within [`REPAIR_RATE_US`] after which its hardware is reported as broken: that of a healthy
/// machine causes far fewer. Findings that are repaired together count once.
pub const REPAIRS_BEFORE_REPORT: usize = 100;
/// Repairs of one region as a whole, of one replica, within [`REPAIR_RATE_US`] after which the replica is replaced: a
/// region that was filled so often and is wrong again has another cause than its content. (1,000 faults per second, all
/// over 16 regions, need half as many.)
pub const REGION_REPAIRS_BEFORE_REPLACE: usize = 128;
/// The interval of the repair rate, in microseconds of ordered time.
pub const REPAIR_RATE_US: u64 = 10_000_000;

/// A request about which no f+1 agree, although all replicas are up and stand by their results, is held for so long, in
/// microseconds. Then the group settles on one version of the objects that differ.
pub const SETTLE_AFTER_US: u64 = 1_000_000;
/// Times the group settles on a version of one object within [`SETTLE_MEMORY_US`]; then it is left as it is.
pub const SETTLE_TRIES: u32 = 3;
/// Microseconds after which a settling does not count any more.
pub const SETTLE_MEMORY_US: u64 = 60_000_000;
/// Requests without a majority that are known at a time, to be settled.
pub const UNDECIDED_REQUESTS: usize = 1024;
/// Objects that those name together.
pub const UNDECIDED_OBJECTS: usize = 65_536;
/// Objects and regions on which the group has settled that are remembered.
pub const SETTLED_OBJECTS: usize = 16_384;

/// Batches of clients' requests in a row in which a replica is outvoted, after which it is replaced. Batches that one
/// repair explains count once: see [`BeyondRepair::Outvoted`](crate::BeyondRepair::Outvoted).
pub const OUTVOTED_BEFORE_REPLACE: u32 = 256;

/// Microseconds without an expected message after which it is requested.
pub const ASK_AFTER_US: u64 = 50_000;
/// Asks sent at one tick.
pub const ASKS_PER_TICK: usize = 64;
/// Open batches checked in one tick.
pub const BATCHES_PER_TICK: usize = 1024;
/// For so long after a RECOVER of a replica its next findings are gathered for one more: the faulty replica executes
/// nothing while it waits for the objects of one, about a millisecond. On an idle replica, until the next tick.
pub const GATHER_US: u64 = 5_000;
/// Findings that are not gathered any longer.
pub const GATHER_OBJECTS: usize = 64;
/// A VALID replica that is not the lowest-numbered one proposes a RECOVER after this long, per rank.
pub const PROPOSE_AFTER_US: u64 = 200_000;
/// A proposed RECOVER that has not reached its turn is proposed again after this long.
pub const PROPOSE_AGAIN_US: u64 = 1_000_000;
/// A reply that no peer could deliver for this long is given up.
pub const FETCH_GIVE_UP_US: u64 = 3_000_000;
/// A RECOVER whose objects did not arrive for this long passes without them.
pub const REPAIR_GIVE_UP_US: u64 = 4_000_000;

/// The occupancy of a bounded queue or buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Its name.
    pub what: &'static str,
    /// Its present content, in the unit of its bound.
    pub holds: u64,
    /// Its bound.
    pub bound: u64,
}

// Relations between the bounds.
const _: () = assert!(MAX_REPLICAS % 2 == 1 && MAX_REPLICAS <= 8, "a replica set is a mask of 8 bits");
const _: () = assert!(MAX_REQUESTS_PER_BATCH <= u16::MAX as usize, "a request's index is 16 bits");
const _: () =
    assert!(AHEAD_BATCHES + IN_EXECUTION_BATCHES < WINDOW_BATCHES, "what is executed here is open here");
const _: () = assert!(
    KEEP_FINISHED_BATCHES < WINDOW_BATCHES - AHEAD_BATCHES,
    "finished batches must not fill the window"
);
const _: () = assert!(KEEP_FINISHED_BYTES <= WINDOW_BYTES / FINISHED_SHARE);
const _: () =
    assert!(KEPT_REPLY_BYTES <= WINDOW_BYTES / KEPT_SHARE, "kept replies leave room for what is voted on");
const _: () = assert!(KEPT_REPLY_BYTES_MAX <= KEPT_REPLY_BYTES, "any reply that may be kept fits");
const _: () = assert!(
    MAX_REQUESTS_PER_BATCH * LONG_REPLY_BYTES < WINDOW_BYTES,
    "no batch of short replies fills the window"
);
const _: () = assert!(KEPT_REPLY_BYTES_MAX <= FETCH_BYTES, "any reply that may be kept can be fetched");
const _: () =
    assert!(RING_BATCHES as u64 >= WINDOW_BATCHES, "whoever leaves the window is still in the ring");
const _: () = assert!(RING_BATCHES.is_power_of_two(), "the ring is indexed by a mask");
const _: () = assert!(MAX_PAIRS_PER_MESSAGE * 20 <= MAX_PIECE_BYTES, "no message is larger than a piece");
const _: () = assert!(MAX_REQUESTS_PER_BATCH * 17 <= MAX_PIECE_BYTES);
const _: () = assert!(MAX_DIGESTS_PER_CHECK * 16 <= MAX_PIECE_BYTES);
const _: () = assert!(MAX_OBJECTS_PER_RECOVER * 12 <= MAX_PIECE_BYTES, "a RECOVER fits one ordered request");
const _: () = assert!(KEPT_REPLY_BYTES_MAX <= u32::MAX as usize, "offsets in a reply are 32 bits");
const _: () = assert!(MAX_PARTS_PER_REPAIR <= u16::MAX as usize, "their number is 16 bits");
const _: () = assert!(
    (MAX_OBJECTS_PER_RECOVER + MAX_REGIONS_PER_RECOVER) * REPAIR_PART_BYTES <= REPAIR_MESSAGE_BYTES
        && MAX_OBJECTS_PER_RECOVER + MAX_REGIONS_PER_RECOVER <= MAX_PARTS_PER_REPAIR,
    "the digests of all small objects of a RECOVER fit one message"
);
const _: () = assert!(REPAIR_PUSH_BYTES >= MAX_PIECE_BYTES, "an object of one piece needs no further round");
const _: () = assert!(EARLY_REPAIR_BYTES >= 2 * REPAIR_PUSH_BYTES, "what is pushed can also wait");
const _: () = assert!(ASK_AFTER_US < FETCH_GIVE_UP_US && FETCH_GIVE_UP_US < REPAIR_GIVE_UP_US);
const _: () =
    assert!(ASK_AFTER_US < SETTLE_AFTER_US, "what was lost is asked for before anything is settled");
const _: () = assert!(MAX_OBJECTS_PER_RECOVER <= UNDECIDED_OBJECTS);
const _: () = assert!(PROPOSE_AFTER_US < PROPOSE_AGAIN_US && PROPOSE_AGAIN_US < REPAIR_GIVE_UP_US);
const _: () = assert!(REPAIRS_BEFORE_REPORT < REPAIRS_BEFORE_REPLACE);
const _: () =
    assert!(REPAIRS_BEFORE_REGION as usize <= REPAIRS_BEFORE_REPLACE, "a region is tried before a replica");
