//! Every bound of the pipeline, with the relations between them checked when it is compiled.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Memory for requests and replies in flight, unless configured otherwise, in bytes: half of it for clients, the rest
/// for the log and the vote.
pub const BUFFERS: usize = 128 << 20;
/// Replies that one client connection may be waiting for; its socket is not read while it has more.
pub const PIPELINED_PER_CONNECTION: usize = 1024;
/// Requests that one client thread may have in flight; no client socket is read while it has more.
pub const OUTSTANDING_PER_CLIENT_THREAD: usize = 16 * 1024;
/// Bytes of requests in flight and of replies that one client connection may have before its socket is no longer read.
/// With little memory it is less: a sixteenth of the bound for all clients.
pub const UNSENT_PER_CONNECTION: usize = 4 << 20;
/// A connection that holds more than this has a large holding: such connections wait for one another, and others do not
/// wait for them.
pub const SMALL_HOLDING: usize = 64 << 10;
/// A request that costs more than this, with its reply, is large: it waits for other large ones, and small
/// ones do not wait for it.
pub const SMALL_COST: usize = 16 << 10;
/// The least expected size of any reply, with its metadata.
pub const SMALLEST_REPLY: u32 = 64;
/// The largest total cost of a replica's large client requests in flight, and that of the small ones (a single request
/// may cost more); client threads have equal parts of it. A request may have to wait for this much: some tens of
/// milliseconds of work.
pub const COST_IN_EXECUTION: usize = 8 << 20;
/// When connections have waited for room for so long, connections that hold room and make no progress are closed.
pub const ROOM_PATIENCE: Duration = Duration::from_millis(250);
/// A connection makes progress if it sends or takes so many bytes in that time.
pub const LEAST_MOVED: u64 = 16 << 10;
/// Input of one connection that is read without a request for room: more than the longest line of most commands.
pub const FREE_INPUT: usize = 4 << 10;
/// Memory that an empty input buffer keeps.
pub const KEPT_INPUT: usize = 8 << 10;
/// Bytes taken from one client socket before the others have their turn.
pub const READ_PER_TURN: usize = 256 << 10;
/// Bytes given to one client socket before the others have their turn: a reader that keeps up with its writer
/// would keep it for ever.
pub const WRITE_PER_TURN: usize = 1 << 20;
/// Size of the buffer that sockets are read into.
pub const READ_CHUNK: usize = 64 << 10;

/// Requests that may end one after the other without the end of a batch: far more than a batch has, with what it
/// starts. If more end here, and the batch that others have executed does not, it has lost a result.
pub const REQUESTS_WITHIN: u64 = 20_000;
/// Ticks between two recounts of the room that connections hold: with a wrong count, no client may be read from.
pub const RECOUNT_TICKS: u64 = 40;
/// Ticks between two messages about connections that were closed.
pub const CLOSED_REPORT_TICKS: u64 = 400;
/// Connections that are checked per tick although no event reported them, one system call each.
pub const LOOKS_PER_TICK: usize = 16;
/// Bytes that a connection may hold of what its client did not ask for: the rest waits where it comes from.
pub const UNASKED: usize = 64 << 10;
/// Client connections in one list of them: an operator's look must not cost as much as a million clients.
pub const LISTED_CONNECTIONS: usize = 1024;
/// Bytes of a client's handshake, of both its parts: certificates of clients are not asked for.
pub const TLS_HANDSHAKE_BYTES: usize = 16 << 10;
/// A client that has not completed its handshake after so long is closed.
pub const TLS_HANDSHAKE: Duration = Duration::from_secs(5);
/// Bytes of replies to one client that are sealed before its socket has taken them. Each time, the whole reply is
/// compared with its digest, a stretch at most.
pub const TLS_SEALED: usize = 256 << 10;
/// Longest file of a certificate or of its key.
pub const PEM_FILE: u64 = 256 << 10;
/// A reply that is waited for longer than this, while the votes go on, is lost.
pub const REPLY_PATIENCE: Duration = Duration::from_secs(6);

/// Digests of replies that one request of the pipeline tells ([`crate::Cx::reply_to`] in a timer).
pub(crate) const ANSWERED_DIGESTS: usize = 256;
/// Such digests that a replica keeps at most until its own run has made the same reply.
pub(crate) const ANSWERED_KEPT: usize = 1 << 16;

/// A client side that no thread drives for so long is lost.
pub const CLIENTS_PATIENCE: Duration = Duration::from_secs(5);

/// Most replicas of a group.
pub const REPLICAS: usize = vote::limits::MAX_REPLICAS;
/// Longest ordered request, in bytes.
pub const REQUEST: usize = order::limits::REQUEST_BYTES;
/// Longest frame between peers.
pub const PEER_FRAME: usize = order::limits::FRAME_BODY;
/// Bytes that may wait for one peer; a slower peer is disconnected and catches up later.
pub const UNSENT_PER_PEER: usize = 128 << 20;
/// Pause between two attempts to reach a peer.
pub const RECONNECT: Duration = Duration::from_millis(20);
/// Pause after an attempt that one of the two ends refused: settings do not change by themselves.
pub const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Attempts in a row that a peer ends without an answer before this is reported.
pub const UNANSWERED: u32 = 5;
/// A connection whose other end has not proved its identity for so long is closed.
pub const HANDSHAKE: Duration = Duration::from_secs(2);
/// Bytes that are sealed for a peer before they are given to its socket.
pub const SEALED_AT_ONCE: usize = 256 << 10;
/// A peer that was dialled and does not send its identity for so long is dialled again.
pub const DIAL_PATIENCE: Duration = Duration::from_millis(500);
/// A connection whose peer acknowledges nothing for so long is given up and dialled again. The kernel alone
/// would try for a quarter of an hour, in ever longer intervals, and be as late after a partition as the
/// partition was long.
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(1);

/// Frames to a peer that may wait for one that is urgent: the leader allows 64 appends without an acknowledgement.
pub const DEFERRED: usize = 16;

/// How long a replica that was asked to stop answers the requests that it has read.
pub const DRAIN: Duration = Duration::from_secs(2);
/// For so long a replica that stops stays in any case: others that are asked to stop at the same time, and need it to
/// answer their clients, tell it so. It is several heartbeats, each sent a tick after the one before.
pub const STAY: Duration = Duration::from_millis(200);
/// How long a client has to close a connection whose end it can read, if it had asked for nothing lately
/// ([`RESTING`]). Others have all the time until the replica ends.
pub const END_PATIENCE: Duration = Duration::from_millis(100);
/// A connection that has moved nothing for so long has no reply on its way.
pub const RESTING: Duration = Duration::from_secs(1);
/// The interval of [`crate::Settings::faults_per_10s`].
pub const FAULTS_WITHIN: Duration = Duration::from_secs(10);
/// Faults of a replica that count per tick. With more a count was corrupted: that alone is one fault.
pub const FAULTS_PER_TICK: u64 = 16;
/// Length of one tick of the ordering engine.
pub const TICK: Duration = Duration::from_millis(25);

/// The ticks that take at least so long.
pub const fn ticks(time: Duration) -> u64 {
    time.as_micros().div_ceil(TICK.as_micros()) as u64
}
/// Longest time the order thread sleeps while something may be due.
pub const IDLE: Duration = Duration::from_millis(25);

/// The order thread of a replica with one worker runs handlers for so long before it polls its sockets again.
pub const SOLO_RUN: Duration = Duration::from_micros(500);
/// A run of handlers that messages to peers may wait for.
pub const SOLO_SHORT: Duration = Duration::from_micros(50);
/// Interval of the watchdog's checks of the order thread.
pub const WATCH: Duration = Duration::from_millis(100);
/// A watchdog does not replace its replica for work that has taken others as long within this time, or twice this time.
pub const SLOWNESS_KEPT: Duration = Duration::from_secs(300);
/// Checks after which a batch that is still in execution is recorded for the next process, in case this one ends
/// because of it.
pub const SLOW_BATCH_LOOKS: u32 = 10;

/// Log entries that may be delivered and not yet executed: beyond it no further entry is taken from the log.
pub const ENTRIES_IN_EXECUTION: usize = 4096;

/// In verified mode: batches that a replica that lags could roll back. One that does not lag has fewer that are not
/// stable: `verify::limits::WINDOW`.
pub const UNSTABLE_BATCHES: usize = 64;
/// In verified mode: batches that have begun and not ended. One that does not lag has no more than
/// `verify::limits::WINDOW`.
pub const RUNNING_BATCHES: usize = 16;
/// In verified mode: corrupted objects that a replica requests from another one in one message.
pub const ASKED_OBJECTS: usize = 64;
/// In verified mode: bytes of the objects in one answer. Those of a larger one come with the whole state.
pub const ANSWERED_BYTES: usize = 8 << 20;
/// In verified mode: a replica requests objects from the next peer too if one has not answered for so long. Less than
/// the verifiers' patience with a replica that has executed nothing.
pub const OBJECTS_PATIENCE: Duration = Duration::from_millis(50);
/// In verified mode: one of two executors checks itself if a batch that ran one request at a time is not stable after
/// so long: a slow peer costs it a check, and nothing else.
pub const DOUBT_PATIENCE: Duration = Duration::from_millis(100);
/// In verified mode: the primary of two executors waits so many times as long as the backup before it yields to the
/// other one.
pub const PRIMARY_YIELDS_LATER: u32 = 3;
/// In verified mode: the other one of two replicas has all objects right for so long after the question that it has
/// answered so.
pub const HEALTH_LASTS: Duration = Duration::from_secs(1);
/// In verified mode: peers that have not answered for so long are asked again.
pub const OBJECTS_AGAIN: Duration = Duration::from_millis(250);
/// In verified mode: a replica whose peers do not have the right objects asks them again after so long. They may be
/// repairing theirs, which takes some milliseconds, and do not know long what the objects were
/// (`execute::Speculation`).
pub const OBJECTS_PAUSE: Duration = Duration::from_millis(20);
/// In verified mode: versions that verifiers have recorded last, which a replica remembers that receives a state.
pub const VERSIONS_REMEMBERED: usize = 4096;
/// In verified mode: how often a replica runs batches again in which corrupted objects were found, before it replaces
/// itself.
pub const RUNS_AGAIN: u32 = 8;
/// In verified mode: bytes of what takes batches back. Beyond it no further batch is begun.
pub const UNSTABLE_BYTES: usize = 64 << 20;

/// Bytes of the program's own code and constants that are checked per tick: all of them in some seconds.
pub const IMAGE_PIECE: usize = 128 << 10;

/// Interval of a replica's heartbeats.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(100);
/// The voter no longer waits for a peer that sends nothing for so long.
pub const SILENCE: Duration = Duration::from_secs(3);
/// A peer that sends nothing for so long may be absent: if too few are left for a vote, requests are run twice.
pub const QUIET: Duration = Duration::from_millis(300);
/// A clock that is further away than this from f+1 others is wrong, and a stamp that is further ahead of f+1 clocks is
/// not accepted.
pub const CLOCK_TOLERANCE: Duration = Duration::from_millis(500);
/// Differences between clocks that are not corrected: smaller ones can hardly be measured over a wide-area network.
pub const CLOCK_DEAD_ZONE: Duration = Duration::from_millis(20);
/// Larger differences are corrected by so much with every round of heartbeats.
pub const CLOCK_SLEW: Duration = Duration::from_millis(5);
/// The best measurement of a period and of the one before counts.
pub const CLOCK_PERIOD: Duration = Duration::from_secs(1);
/// Another replica's clock that has been wrong for so long is reported.
pub const CLOCK_PATIENCE: Duration = Duration::from_secs(1);
/// A replica whose own clock was wrong, or that was stopped, accuses no other one of its clock for so long.
pub const CLOCK_DOUBT: Duration = Duration::from_secs(2);
/// Steps of the machine's wall clock that are reported.
pub const CLOCK_STEP: Duration = Duration::from_secs(2);
/// Shortest interval between two reports of an event that may repeat.
pub const REPORTED_AGAIN: Duration = Duration::from_secs(1);
/// Interval after which a condition that lasts is reported again.
pub const REPORTED_STILL: Duration = Duration::from_secs(60);
/// A replica reports what it waits for when it has waited for so long.
pub const WAITS_UNTOLD: Duration = Duration::from_secs(2);
/// An operator is told of commands that give data up only when this replica has run for so long, and every peer has
/// been either there or away for so long: a restart looks like a loss for a moment.
pub const UNTIL_ADVICE: Duration = Duration::from_secs(60);
/// In verified mode: too few verifiers with their memory are not one that is about to recover, or a connection that was
/// lost for a moment, when it has been so for this long.
pub const MEMORY_PATIENCE: Duration = Duration::from_secs(2);
/// A process that says it is a replica, at another address, counts as there for so long: it dials again every second
/// ([`REFUSED_PAUSE`]).
pub const SEEN_ELSEWHERE: Duration = Duration::from_secs(5);
/// A replica that sends nothing for so long is held for gone, with its clients' connections
/// ([`crate::Service::closed`]).
pub const GONE: Duration = Duration::from_secs(10);
/// A batch for a timer that is due is requested again after so long.
pub const TIMER_PATIENCE: Duration = Duration::from_secs(1);
/// Time for which a replica that was let go stays at most: its votes on what it has executed may be needed.
pub const LEAVES_WITHIN: Duration = Duration::from_secs(5);
/// Time for a peer to answer a watchdog's request for its progress.
pub const PROBE: Duration = Duration::from_millis(500);
/// Log entries kept although every live replica has them, for one that was absent for a moment.
pub const LOG_KEPT: u64 = 16 * 1024;
/// A log in memory that takes more than one part in so many of the memory for requests and replies is long: nothing is
/// kept of it that no live replica needs.
pub const LOG_SHARE: u64 = 4;
/// Reads without a batch that run in one turn between two batches, which wait meanwhile.
pub const READS_PER_TURN: usize = 256;
/// For so long reads are ordered after another replica did not answer a question about them in time.
pub const READS_ORDERED: Duration = Duration::from_secs(1);

/// Steps in which the log is shortened, per tick: dropping much at once costs milliseconds (docs/design.md, section 5).
pub const COMPACTIONS_PER_TICK: usize = 8;

/// Log entries after which a replica with its log on disk writes its state, so that the log can be shortened.
pub const ENTRIES_PER_SNAPSHOT: u64 = 200_000;
/// One in so many of these entries is kept although every live replica has it, for one whose connection is lost for a
/// moment.
pub const KEPT_SHARE: u64 = 8;

/// Files with changes behind a whole state on disk. Then the next checkpoint is a whole state, so that a restart reads
/// no more of them.
pub const CHANGES_FILES: usize = 1000;
/// Bytes of a copy that may wait for the disk: a leader orders no further part then, and a receiver takes no piece.
pub const UNWRITTEN: u64 = 64 << 20;
/// A checkpoint that could not be written to the disk is written again after so long.
pub const KEEP_AGAIN: Duration = Duration::from_secs(30);
/// A checkpoint that takes longer to write is reported to the operator.
pub const KEEP_PATIENCE: Duration = Duration::from_secs(60);

/// Interval at which the leader has regions checked as a whole, one after the other.
pub const SCRUB_EVERY: Duration = Duration::from_millis(50);
/// After a region's check, this many times its duration passes without a check: scrubbing takes at most 1/200 of the
/// time.
pub const SCRUB_PAUSE_FACTOR: u32 = 200;
/// A scrub that is not done after this long is requested again.
pub const SCRUB_PATIENCE: Duration = Duration::from_secs(1);
/// A worker that waits longer for a repair passes its turn without it.
pub const REPAIR_PATIENCE: Duration = Duration::from_secs(6);
/// Repairs in a row that may fail to arrive before the replica is replaced.
pub const REPAIRS_GIVEN_UP: u32 = 3;
/// Findings of one scrub that are named; with more the whole region is repaired.
pub const SCRUB_FINDINGS: usize = 64;

/// Objects whose names are kept for evidence: those of the last records.
pub const NAMES_KEPT: usize = 256;
/// Objects that are explained after one repair, and the characters of each explanation.
pub const EXPLAINED_OBJECTS: usize = 16;
/// See [`EXPLAINED_OBJECTS`].
pub const EXPLANATION_CHARACTERS: usize = 300;
/// Objects that the explanations after one repair may look at, some 10 ms. The turn is held meanwhile.
pub const EXPLAINING_LOOKS: usize = 4096;
/// Their bytes.
pub const EXPLAINING_BYTES: usize = 32 << 20;
/// The last evidence records, which still get names that become known when their objects are repaired.
pub const RECORDS_NAMED_LATER: usize = 16;
/// Classes with large objects that are reported to the operator; a service has a handful of classes.
pub const LARGE_CLASSES_REPORTED: usize = 32;
/// Evidence records kept for `crosscheck evidence`.
pub const EVIDENCE_KEPT: usize = 4096;
/// Digests of the whole state that are kept for comparison.
pub const DIGESTS_KEPT: usize = 64;
/// Verdicts on this replica and repairs of it whose times are kept until the objects are installed.
pub const REPAIRS_TIMED: usize = 4096;
/// Batches for which notes on how their requests were run are kept.
pub const RUNS_KEPT: usize = 1024;
/// Longest line of the admin protocol.
pub const ADMIN_LINE: usize = 64 << 10;
/// Admin connections at the same time, each with a thread; further ones are closed with a message.
pub const ADMIN_CONNECTIONS: usize = 32;
/// The same for connections that have not presented the secret yet: the next one replaces the oldest.
pub const ADMIN_STRANGERS: usize = 8;
/// An admin connection that sends no whole line for so long ends.
pub const ADMIN_IDLE: Duration = Duration::from_secs(300);
/// The same for one that has not presented its secret yet: any user of this machine can open such connections.
pub const ADMIN_TOKEN: Duration = Duration::from_secs(5);
/// An admin connection that takes nothing of its answer for so long ends.
pub const ADMIN_WRITE: Duration = Duration::from_secs(10);
/// An admin command that needs an ordered position waits at most so long for it.
pub const ADMIN_ANSWER: Duration = Duration::from_secs(30);
/// Pause after an admin connection could not be accepted.
pub const ADMIN_RETRY: Duration = Duration::from_millis(50);
/// Admin commands that wait for an ordered position, including those whose callers gave up.
pub const CALLS_WAITING: usize = 1024;
/// Characters of the secret of an admin port.
pub const TOKEN_BYTES: RangeInclusive<usize> = 32..=1024;
/// Longest name of a group.
pub const CLUSTER_NAME_BYTES: usize = 64;
/// Longest path of a socket file: the kernel's 108 bytes, with the zero at the end.
pub const SOCKET_PATH_BYTES: usize = 107;
/// Open files that are not for clients: 3 standard streams, 4 for two polls and their wakers, 1 for the check of the
/// program's own memory, 4 listeners, 16 for eight peers (a connection to each, and an attempt at a new one), 64 for
/// connections whose peer is not known yet, 33 for admin commands (one of them refused), 18 for callers who have not
/// presented their secret, 16 for log and state on disk (their files, directories and lock), 1 for a client that is
/// refused because there are too many, and 16 to spare.
pub const DESCRIPTORS_RESERVED: usize = 176;
/// The same for each client thread: a poll, its waker, and a second descriptor of the poll.
pub const DESCRIPTORS_PER_CLIENT_THREAD: usize = 3;

/// Clients that may wait to be accepted, as in memcached. A burst of connections would overflow a shorter queue between
/// two polls, and clients that find no place try again a second later.
pub const LISTEN_BACKLOG: i32 = 1024;
/// A replica that waits for a state takes the leader's alone once no f+1 replicas have offered the same for so long, if
/// the leader says that nothing can be ordered without this replica. In verified mode any replica's: at its end the
/// state proves itself.
pub const ALONE_PATIENCE: Duration = Duration::from_millis(500);
/// In verified mode: batches that an executor that carries the group on may be behind the primary. All hold the batches
/// that it lacks.
pub const LEVEL_LAG: u64 = 4 * verify::limits::WINDOW;
/// A leader's word on how many further replicas may fail holds for so long.
pub const TOLERANCE_HOLDS: Duration = Duration::from_secs(1);
/// Size of a piece of a state transfer.
pub const TRANSFER_PIECE: usize = 256 << 10;
/// A checkpoint is kept for peers until none has asked for it for so long. A replica without state requests a later one
/// if the others have not offered the same for so long.
pub const OFFER_KEPT: Duration = Duration::from_secs(10);
/// Receivers of a state that are no replicas have this number or a greater one.
pub const OTHER_RECEIVERS: u8 = 128;
/// Longest message on a transfer connection.
pub const TRANSFER_MESSAGE: usize = 16 << 20;
/// A transfer that receives nothing for so long sends its request to another donor.
pub const TRANSFER_PATIENCE: Duration = Duration::from_secs(2);

/// Objects that the last part of a copy of the state may have: it has all locks.
pub const CUT_OBJECTS: usize = 4_096;
/// Bytes that they may have, as far as the objects' usual size tells.
pub const CUT_BYTES: u64 = 1 << 20;
/// Pieces of an unfinished copy that are made before a receiver has taken any, or after the last one it has taken.
pub const COPY_AHEAD: usize = 128;
/// The last pieces of an unfinished copy, which a donor keeps: those that are ahead, and those of a part or two.
pub const COPY_RING: usize = 160;
/// Pieces of a state, at most: 1 TiB.
pub const COPY_PIECES: usize = 1 << 22;
/// A receiver that has asked for nothing for so long is not waited for.
pub const RECEIVER_SILENT: Duration = Duration::from_secs(2);
/// A replica whose log ends before a copy began lacks entries if it has not got them after so long.
pub const BEHIND_PATIENCE: Duration = Duration::from_millis(300);
/// Rounds over all regions after which a copy may have more of them: writes are faster than it is.
pub const COPY_ROUNDS: u32 = 8;
/// Regions that a part of a copy covers at most: it has their locks.
pub const COPY_REGIONS: u32 = 256;
/// Between two parts, so many times as long as the last one took: the rest is for clients.
pub const COPY_REST: u32 = 4;
/// Without a part for so long, a copy is given up.
pub const COPY_PAUSE: Duration = Duration::from_secs(30);
/// A part that was not executed for so long was lost with its leader.
pub const COPY_PATIENCE: Duration = Duration::from_secs(5);

/// The bounds of logs and states. A simulation makes them small, so that its short runs reach them; no user sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelineScale {
    /// [`LOG_KEPT`].
    pub log_kept: u64,
    /// [`LOG_SHARE`].
    pub log_share: u64,
    /// [`TRANSFER_PIECE`], in bytes; the same at all replicas.
    pub piece: usize,
    /// [`UNTIL_ADVICE`].
    pub until_advice: Duration,
}

impl Default for PipelineScale {
    fn default() -> Self {
        PipelineScale {
            log_kept: LOG_KEPT,
            log_share: LOG_SHARE,
            piece: TRANSFER_PIECE,
            until_advice: UNTIL_ADVICE,
        }
    }
}

/// Within this time a client must have logged in, where it has to. PostgreSQL's authentication_timeout.
pub const LOGIN: Duration = Duration::from_secs(60);
/// Longest password file in bytes.
pub const PASSWORD_FILE_BYTES: usize = 64 << 10;
/// Most lines of a password file.
pub const PASSWORD_LINES: usize = 1024;
const _: () = assert!(PIPELINED_PER_CONNECTION <= OUTSTANDING_PER_CLIENT_THREAD);
const _: () = assert!(READ_CHUNK <= READ_PER_TURN);
const _: () = assert!(REPAIR_PATIENCE.as_micros() <= REPLY_PATIENCE.as_micros());
const _: () = assert!(ENTRIES_IN_EXECUTION as u64 <= vote::limits::IN_EXECUTION_BATCHES);
// A request that missed a lock runs again a lag later, and its batch has its results after so many others.
const _: () =
    assert!(schedule::LAG * (schedule::MAX_ATTEMPTS as u64 + 1) <= vote::limits::IN_EXECUTION_BATCHES);
const _: () = assert!(PEER_FRAME < UNSENT_PER_PEER);
const _: () = assert!(UNSTABLE_BATCHES as u64 > verify::limits::TALLY_BATCHES);
const _: () = assert!(RUNNING_BATCHES as u64 > verify::limits::WINDOW);
const _: () =
    assert!(2 * HEARTBEAT_EVERY.as_millis() < QUIET.as_millis() && QUIET.as_millis() < SILENCE.as_millis());
const _: () = assert!(TRANSFER_PIECE < TRANSFER_MESSAGE);
const _: () = assert!(2 * ANSWERED_BYTES <= TRANSFER_MESSAGE);
// The sum in its comment; one more is for the client that is refused.
const _: () = assert!(
    3 + 4 + 1 + 4 + 2 * 8 + 64 + (ADMIN_CONNECTIONS + 1) + 2 * (ADMIN_STRANGERS + 1) + 16
        < DESCRIPTORS_RESERVED
);
const _: () = assert!(ADMIN_CONNECTIONS <= DIGESTS_KEPT && ADMIN_CONNECTIONS <= CALLS_WAITING);
const _: () = assert!(2 * DEFERRED <= order::limits::APPENDS_IN_FLIGHT);
