//! Every bound of the crate in one place, so that no peer or client can make a queue, frame or buffer grow without
//! limit.

/// Requests one batch holds at most.
pub const BATCH_REQUESTS: usize = 128;
/// Bytes of requests at which a batch is full; a single larger request is still ordered, alone.
pub const BATCH_BYTES: usize = 64 << 10;
/// Cost of the requests of one batch at most, with their expected replies, in bytes; a single one may cost more, and is
/// ordered alone. No reply leaves before its whole batch was executed.
pub const BATCH_COST: usize = 1 << 20;
/// Bytes of the largest single request that is accepted.
pub const REQUEST_BYTES: usize = 4 << 20;
/// Bytes of the largest frame body a peer may send (a batch, an append of several, or a piece of state).
pub const FRAME_BODY: usize = 8 << 20;
/// Bytes of log entries that one append message carries, unless its first entry alone is larger.
pub const APPEND_BYTES: usize = 1 << 20;
/// Append messages in flight to one follower.
pub const APPENDS_IN_FLIGHT: usize = 64;
/// Entries in one append message at most; a decoder refuses more before it allocates.
pub const APPEND_ENTRIES: usize = 16 << 10;
/// This replica's batches in flight while each is full.
pub const OWN_IN_FLIGHT: usize = 8;
/// This replica's batches in flight that are sent without waiting for more requests.
pub const OWN_EAGER: usize = 2;
/// Batches that a replica keeps until their entries come back from the leader without the requests. The oldest goes
/// first, and its entry then comes with them.
pub const OWN_KEPT: usize = 2 * OWN_IN_FLIGHT;
/// Bytes of these batches: those that may be in flight. They share the memory of those.
pub const OWN_KEPT_BYTES: usize = OWN_IN_FLIGHT * REQUEST_BYTES;
/// Requests that wait to be put in a batch; beyond it `submit` refuses (back-pressure to the clients).
pub const COLLECTED_REQUESTS: usize = 64 << 10;
/// Bytes of requests that wait to be put in a batch.
pub const COLLECTED_BYTES: usize = 64 << 20;
/// Batches that wait at the leader to be proposed, from all origins together.
pub const LEADER_QUEUE: usize = 256;
/// Ticks after which the leader stops waiting for a replica that takes nothing: its pipeline is stuck, and the group
/// continues.
pub const STUCK_TICKS: u64 = 20;
/// Ticks for which a leader's stamps are refused before an election is called against it.
pub const REFUSED_STAMPS_TICKS: u64 = 8;
/// Doublings at most of the time between two calls against the same leader.
pub const MOST_DOUBLINGS: u32 = 5;
/// Entries by which the leader may be ahead of the deliveries of the slowest live replica.
pub const WINDOW_ENTRIES: u64 = 4096;
/// Entries that a learner may lack when it is promoted.
pub const LEARNER_LAG: u64 = 64;
/// Bytes of log entries that are kept for members that lack them, unless a replica sets another bound.
pub const KEPT_BYTES: u64 = 64 << 20;
/// Log entries one call of `compact_to` drops at most: dropping much at once costs milliseconds.
pub const COMPACT_STEP: u64 = 256;
/// Bytes of proposals that the engine holds uncommitted.
pub const UNCOMMITTED_BYTES: u64 = 256 << 20;
/// Syncs of a log on disk after which it records how far it is durable (`log/synced.rs`): a write to memory of the
/// kernel, and no sync.
pub const SYNCS_PER_CLAIM: u64 = 8;
/// Ticks after which it does so if it synced less often: 100 ms at ticks of 25 ms.
pub const CLAIM_TICKS: u64 = 4;
/// Batches of origins that a primary puts in one of its own at most. The index of an entry has room for so many.
pub const PRIMARY_PARTS: usize = 16;
/// Requests in one batch of a primary at most.
pub const PRIMARY_REQUESTS: usize = 1024;
/// Bytes of one batch of a primary at most, unless its first part alone is larger.
pub const PRIMARY_BYTES: usize = 1 << 20;
/// Batches that a primary has numbered and this replica has not delivered, at which it numbers no more. What arrives
/// meanwhile goes into the next one: batches are small while little is to do, and large near saturation.
pub const PRIMARY_AHEAD: u64 = 2;
/// Batches beyond the last one delivered here that a replica accepts of a primary, and asks for at once when it lacks
/// them: one that was away catches up in few round trips.
pub const PRIMARY_WINDOW: u64 = 64;
/// Bytes of batches of a later view that are kept of one peer, unless a single one is larger.
pub const EARLY_BYTES: usize = 4 << 20;
/// Bytes of batches that a replica with a primary holds for others. Beyond it, who needs an older one takes the state.
pub const HELD_BYTES: usize = 64 << 20;
/// Bytes of batches that a replica sends one other per tick because it asked for them: 640 MB/s at ticks of 25 ms.
pub const ANSWERED_BYTES: usize = 16 << 20;
/// Ticks without an answer after which another replica is asked for a missing batch: 50 ms at ticks of 25 ms.
pub const ASK_TICKS: u64 = 2;
/// Ticks for which batches are held for an executor whose connection is lost: 10 s at ticks of 25 ms.
pub const LOST_TICKS: u64 = 400;
/// Ticks without an answer after which a state or a checkpoint is asked for again: 1 s at ticks of 25 ms.
pub const STATE_TICKS: u64 = 40;
/// Ticks for which a replica waits for a checkpoint, with no batch becoming stable, before one is made without ordering
/// it: 0.5 s at ticks of 25 ms.
pub const IN_VAIN_TICKS: u64 = 20;
/// Ticks between two reports of a replica's progress under a primary, when nothing has changed.
pub const PROGRESS_TICKS: u64 = 4;
/// Replicas a group has at most.
pub const SLOTS: usize = 15;
/// Replicas that a group has at most after it has grown: as many as a vote counts.
pub const MOST_REPLICAS: u8 = 7;
/// Replicas that a group has at least after it has shrunk: fewer tolerate no failure.
pub const LEAST_REPLICAS: u8 = 3;
/// Bytes of a replica's address at most: a host name has 253, and a port 5.
pub const ADDRESS_BYTES: usize = 260;
/// Ordered time for which the wish of a replica to move another one, or to change the size of the group, counts: the
/// others need a few seconds to see for themselves what it is about.
pub const WISH: std::time::Duration = std::time::Duration::from_secs(60);
/// A message with this term or a later one counts as corrupt: elections never reach it. The bound is the same for all.
/// If each replica measured from its own term, some healthy replicas would accept another replica's wrong term and
/// others would not, and they would reject each other's messages.
pub const TERM_LIMIT: u64 = 1 << 48;

/// A term further ahead of a replica's own than this is accepted only if f+1 others have reached such a term: elections
/// take single steps.
pub const TERM_STEP: u64 = 1 << 20;
/// Starts of a process with one log that are accepted at most beyond the last known one.
pub const BOOTS_STEP: u32 = 1 << 20;

/// Ticks for which the log is kept for a follower that is probed and acknowledges nothing: 10 s at ticks of 25 ms.
pub const PROBED_TICKS: u64 = 400;
/// Ticks for which a silent joiner's checkpoint is kept: 10 s at ticks of 25 ms.
pub const OFFER_TICKS: u64 = 400;

/// The bounds of an engine that only long logs or long absences reach. A simulation makes them small, so that its short
/// runs reach them; no user sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineScale {
    /// [`COMPACT_STEP`].
    pub compact_step: u64,
    /// [`PROBED_TICKS`].
    pub probed_ticks: u64,
    /// [`OFFER_TICKS`].
    pub offer_ticks: u64,
    /// [`KEPT_BYTES`]; a replica sets it by its buffers.
    pub kept_bytes: u64,
    /// [`PRIMARY_WINDOW`].
    pub primary_window: u64,
    /// [`HELD_BYTES`].
    pub held_bytes: usize,
    /// [`LOST_TICKS`].
    pub lost_ticks: u64,
}

impl Default for EngineScale {
    fn default() -> Self {
        EngineScale {
            compact_step: COMPACT_STEP,
            probed_ticks: PROBED_TICKS,
            offer_ticks: OFFER_TICKS,
            kept_bytes: KEPT_BYTES,
            primary_window: PRIMARY_WINDOW,
            held_bytes: HELD_BYTES,
            lost_ticks: LOST_TICKS,
        }
    }
}

const _: () = assert!(FRAME_BODY > REQUEST_BYTES + APPEND_BYTES + (64 << 10));
const _: () = assert!((MOST_REPLICAS as usize) <= SLOTS);
const _: () = assert!(OWN_EAGER <= OWN_IN_FLIGHT);
const _: () = assert!(LEADER_QUEUE >= SLOTS * OWN_IN_FLIGHT);
const _: () = assert!(COLLECTED_BYTES >= REQUEST_BYTES);
const _: () = assert!(FRAME_BODY > REQUEST_BYTES + PRIMARY_BYTES + (64 << 10));
const _: () = assert!(PRIMARY_AHEAD <= PRIMARY_WINDOW && HELD_BYTES > FRAME_BODY);
const _: () = assert!(PRIMARY_REQUESTS >= BATCH_REQUESTS && PRIMARY_BYTES >= BATCH_BYTES);
