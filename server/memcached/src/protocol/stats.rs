//! `stats`: this replica's counters, under memcached's names where they have a meaning here. Answered without ordering.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crosscheck::{ClientCounters, ConnectionState};

use crate::command::binary::{BinaryHead, ResponseContent, ResponseStatus};
use crate::command::{Command, List};
use crate::limits::{GET_LINE_BYTES, KEY_BYTES, LINE_BYTES};
use crate::protocol::binary::Packet;
use crate::protocol::line::{Line, error};
use crate::protocol::numbers::unsigned_32;
use crate::protocol::{Step, VERSION};
use crate::stats::Stats;

/// Stock memcached's number of slab classes, which tools go through.
const MOST_CLASSES: u32 = 64;

/// The answer to `stats` with these tokens.
pub(super) fn step(line: &Line<'_>, stats: &Stats, clients: &ClientCounters) -> Step {
    let mut report = StatsReport { bytes: Vec::new(), head: None };
    match line.token(1) {
        // Only the order of requests makes these consistent: all items are looked at.
        b"sizes" => return Step::Order(Command::List { list: List::Sizes }),
        b"cachedump" => return cachedump(line),
        #[cfg(feature = "lab")]
        b"behavior" => return Step::Order(Command::List { list: List::Behavior }),
        _ => {}
    }
    match collect(&mut report, line.token(1), stats, clients) {
        StatsAnswer::Lines => report.bytes.extend_from_slice(b"END\r\n"),
        StatsAnswer::Reset => return Step::Reply(error("RESET")),
        StatsAnswer::Unknown => return Step::Reply(error("ERROR")),
    }
    Step::Reply(report.bytes)
}

/// `stats cachedump CLASS LIMIT`. All items are of class 1.
fn cachedump(line: &Line<'_>) -> Step {
    if line.arguments() < 3 {
        return Step::Reply(error("CLIENT_ERROR bad command line"));
    }
    let (Some(class), Some(limit)) = (unsigned_32(line.token(2)), unsigned_32(line.token(3))) else {
        return Step::Reply(error("CLIENT_ERROR bad command line format"));
    };
    match class {
        1 => Step::Order(Command::List { list: List::Cachedump { limit } }),
        class if class < MOST_CLASSES => Step::Reply(error("END")),
        _ => Step::Reply(error("CLIENT_ERROR Illegal slab id")),
    }
}

/// The answer to a binary `stat`: a packet for each line, and one without a key at the end.
pub(super) fn packets(packet: &Packet<'_>, stats: &Stats, clients: &ClientCounters) -> Step {
    let head = &packet.head;
    let mut report = StatsReport { bytes: Vec::new(), head: Some(head) };
    match collect(&mut report, packet.key, stats, clients) {
        StatsAnswer::Lines | StatsAnswer::Reset => {
            head.respond(ResponseStatus::Ok, ResponseContent::default(), &mut report.bytes)
        }
        StatsAnswer::Unknown => head.fail(ResponseStatus::NotFound, &mut report.bytes),
    }
    Step::Reply(report.bytes)
}

/// What is asked for by a name of statistics.
enum StatsAnswer {
    /// The lines of the report.
    Lines,
    /// Counters were set to zero.
    Reset,
    /// There are no statistics of that name.
    Unknown,
}

fn collect(
    report: &mut StatsReport<'_>,
    name: &[u8],
    stats: &Stats,
    clients: &ClientCounters,
) -> StatsAnswer {
    match name {
        b"" => general(report, stats, clients),
        b"settings" => settings(report, stats, clients),
        b"items" => items(report, stats),
        b"slabs" => slabs(report, stats),
        b"conns" => conns(report, clients),
        b"reset" => {
            stats.reset();
            return StatsAnswer::Reset;
        }
        _ => return StatsAnswer::Unknown,
    }
    StatsAnswer::Lines
}

fn general(report: &mut StatsReport<'_>, stats: &Stats, clients: &ClientCounters) {
    // Not ordered time, which stands still while nobody asks for data: monitors compare this with their own.
    let time = crosscheck::host_time();
    report.line("pid", std::process::id());
    report.line("uptime", time.running.as_secs());
    report.line("time", time.unix.as_secs());
    report.line("version", VERSION);
    report.line("pointer_size", usize::BITS);
    let used = crosscheck::processor_time();
    report.line("rusage_user", seconds(used.user));
    report.line("rusage_system", seconds(used.system));
    report.line("max_connections", clients.connections_max.load(Relaxed));
    report.line("curr_connections", clients.open());
    report.line("total_connections", clients.sum(|thread| &thread.accepted));
    report.line("rejected_connections", clients.refused.load(Relaxed));
    report.line("idle_kicks", clients.idle.load(Relaxed));
    for (name, counter) in stats.counters.all() {
        report.line(name, counter.load(Relaxed));
    }
    report.line("bytes_read", clients.sum(|thread| &thread.bytes_in));
    report.line("bytes_written", clients.sum(|thread| &thread.bytes_out));
    report.line("limit_maxbytes", stats.limit());
    report.line("accepting_conns", u8::from(clients.cannot_accept.load(Relaxed) == 0));
    report.line("listen_disabled_num", clients.accept_stops.load(Relaxed));
    report.line("threads", clients.workers.load(Relaxed));
    report.line("bytes", stats.bytes());
    report.line("curr_items", stats.items());
}

/// A time as stock memcached writes it: seconds with six decimals.
fn seconds(time: Duration) -> String {
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}

fn settings(report: &mut StatsReport<'_>, stats: &Stats, clients: &ClientCounters) {
    report.line("maxbytes", stats.limit());
    report.line("maxconns", clients.connections_max.load(Relaxed));
    report.line("tcpport", clients.port.load(Relaxed));
    report.line("num_threads", clients.workers.load(Relaxed));
    report.line("item_size_max", stats.item_bytes());
    report.line("shards", stats.shards());
    report.line("evictions", "on");
    report.line("cas_enabled", "yes");
    report.line("flush_enabled", "yes");
    report.line("detail_enabled", "no");
    report.line("hash_algorithm", "xxh3");
    report.line("key_length_max", KEY_BYTES);
    report.line("line_length_max", LINE_BYTES);
    report.line("get_line_length_max", GET_LINE_BYTES);
}

/// One class stands for all sizes: memory is not cut into slabs here.
fn items(report: &mut StatsReport<'_>, stats: &Stats) {
    if stats.items() == 0 {
        return;
    }
    report.line("items:1:number", stats.items());
    report.line("items:1:mem_requested", stats.bytes());
    report.line("items:1:evicted", stats.counters.evictions.load(Relaxed));
    report.line("items:1:evicted_unfetched", stats.counters.evicted_unfetched.load(Relaxed));
    report.line("items:1:reclaimed", stats.counters.reclaimed.load(Relaxed));
}

fn slabs(report: &mut StatsReport<'_>, stats: &Stats) {
    report.line("active_slabs", u8::from(stats.items() > 0));
    report.line("total_malloced", stats.bytes());
}

/// Stock's four lines per connection.
fn conns(report: &mut StatsReport<'_>, clients: &ClientCounters) {
    for connection in clients.connections() {
        let id = connection.id;
        report.line(&format!("{id}:addr"), connection.peer);
        if let Some(address) = clients.listen {
            report.line(&format!("{id}:listen_addr"), format!("tcp:{address}"));
        }
        report.line(&format!("{id}:state"), state_name(connection.state));
        report.line(&format!("{id}:secs_since_last_cmd"), connection.idle_s);
    }
}

/// Stock memcached's name where it has such a state.
fn state_name(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::Idle => "conn_new_cmd",
        ConnectionState::Reading => "conn_nread",
        ConnectionState::WaitsForMemory => "conn_waits_for_memory",
        ConnectionState::Executing => "conn_executing",
        ConnectionState::Writing => "conn_mwrite",
        ConnectionState::Closing => "conn_closing",
    }
}

/// The lines of one answer, or its packets.
struct StatsReport<'h> {
    bytes: Vec<u8>,
    /// The head of the request, if it was a packet.
    head: Option<&'h BinaryHead>,
}

impl StatsReport<'_> {
    fn line(&mut self, name: &str, value: impl Display) {
        let StatsReport { bytes, head } = self;
        if let Some(head) = head {
            let value = value.to_string();
            let content = ResponseContent {
                key: name.as_bytes(),
                value: value.as_bytes(),
                ..ResponseContent::default()
            };
            return head.respond(ResponseStatus::Ok, content, bytes);
        }
        // Writing to a vector cannot fail.
        let _ = write!(bytes, "STAT {name} {value}\r\n");
    }
}
