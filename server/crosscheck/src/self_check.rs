//! The guards of memory that is no object, in one table: what each covers, how a corruption is found, and the reaction.
//!
//! No vote repairs such memory, so most guards have one reaction, [`ReplaceReason::Corrupted`]. The replica runs those
//! that are checked at a tick; docs/vulnerabilities.md has the whole table, and a test keeps it true.
//!
//! [`ReplaceReason::Corrupted`]: crate::ReplaceReason::Corrupted

use order::CorruptPart;

use crate::Corrupted;

/// The checks of every tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Known answers of the checksum of objects.
    Checksums,
    /// Known answers of the digests that are voted on.
    Digests,
    /// The constant data about the peers.
    Peers,
    /// Whether the client side is driven.
    ClientsDriven,
    /// Errors that the client side found in itself.
    Clients,
    /// The settings of the service.
    ServiceSettings,
    /// Code and constants.
    Program,
    /// Errors that the workers found in their schedule.
    Schedule,
    /// The ends of the queue of requests.
    RequestQueue,
    /// The ends of the queue of pending replies.
    PendingReplies,
}

impl Check {
    /// The reason for which a replica is replaced if this check fails.
    pub(crate) fn corrupted(self) -> Corrupted {
        match self {
            Check::Checksums => Corrupted::Checksums,
            Check::Digests => Corrupted::Digests,
            Check::Peers => Corrupted::Peers,
            Check::ClientsDriven => Corrupted::ClientsStopped,
            Check::Clients => Corrupted::ClientSockets,
            Check::ServiceSettings => Corrupted::ServiceSettings,
            Check::Program => Corrupted::Program,
            Check::Schedule => Corrupted::Schedule,
            Check::RequestQueue => Corrupted::RequestQueue,
            Check::PendingReplies => Corrupted::PendingReplies,
        }
    }
}

/// When a corruption is found.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test compares the document with it"))]
enum Detected {
    /// At the next tick.
    Tick(Check),
    /// When the data is used, and not before; with the reaction.
    Use(Then),
    /// By the watchdog.
    Watchdog,
}

/// The reaction to a corruption that is found at its use.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test compares the document with it"))]
enum Then {
    /// The replica is replaced.
    Replaced(Corrupted),
    /// The replica is replaced by its vote.
    Outvoted,
    /// One client's connection is closed.
    Closed,
    /// An evidence record is shown as damaged.
    Shown,
}

/// The means by which a guard recognizes a corruption.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test compares the document with it"))]
enum By {
    /// `object::Sealed`, or its code.
    Seal,
    /// `object::SealedQueue`.
    Queue,
    /// A method of its own, and the reason for it.
    Own(&'static str),
}

/// One guard.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test compares the document with it"))]
struct Guard {
    /// The type, function or member that holds it.
    name: &'static str,
    covers: &'static str,
    by: By,
    found: Detected,
}

const fn guard(name: &'static str, covers: &'static str, by: By, found: Detected) -> Guard {
    Guard { name, covers, by, found }
}

/// All guards, those of the tick first, in the order in which they are checked.
const GUARDS: [Guard; 25] = [
    guard(
        "`object::checksums_are_sound`",
        "tables and code of checksums",
        By::Own("tables of constants: known answers show them"),
        Detected::Tick(Check::Checksums),
    ),
    guard(
        "`vote::digest::is_sound`",
        "tables and code of digests",
        By::Own("tables of constants: known answers show them"),
        Detected::Tick(Check::Digests),
    ),
    guard(
        "`Peers::is_sound`",
        "number, group key, addresses, buffers",
        By::Own("compared with the replica's settings, which are another copy; lengths with each other"),
        Detected::Tick(Check::Peers),
    ),
    guard(
        "`clients::Driven`",
        "whether any thread serves the clients",
        By::Own("a lack of progress is no value that a code could cover"),
        Detected::Tick(Check::ClientsDriven),
    ),
    guard("`Connection::descriptor`", "a client's socket", By::Seal, Detected::Tick(Check::Clients)),
    guard(
        "`Connection::is_sound`",
        "counts and flags that stop reading",
        By::Own("counts that change with each request: they are counted again, some connections at a tick"),
        Detected::Tick(Check::Clients),
    ),
    guard(
        "`Clients::is_sound`",
        "counts and budget of all connections",
        By::Own("counts that change with each request: they are counted again"),
        Detected::Tick(Check::Clients),
    ),
    guard("`Memcached::config`", "settings of the service", By::Seal, Detected::Tick(Check::ServiceSettings)),
    guard(
        "`Image`",
        "code and constants of the program",
        By::Own("it is not written by us: digests of what the kernel mapped, one piece at a tick"),
        Detected::Tick(Check::Program),
    ),
    guard(
        "`Dispatcher::absorb`",
        "a worker's place in the schedule",
        By::Own("one comparison with the outcome that is due next; a position has no second copy to read"),
        Detected::Tick(Check::Schedule),
    ),
    guard(
        "`OrderStage::waiting`",
        "length of the queue of requests",
        By::Queue,
        Detected::Tick(Check::RequestQueue),
    ),
    guard("`PendingReplies`", "length of its queue", By::Queue, Detected::Tick(Check::PendingReplies)),
    guard(
        "`Submission::number`",
        "order of requests until they are ordered",
        By::Queue,
        Detected::Use(Then::Replaced(Corrupted::RequestQueue)),
    ),
    guard(
        "`Batcher::collected`",
        "requests that are in no batch, their bytes",
        By::Queue,
        Detected::Use(Then::Replaced(Corrupted::Order(CorruptPart::Requests))),
    ),
    guard(
        "`Batcher::in_flight`",
        "own batches until their delivery",
        By::Queue,
        Detected::Use(Then::Replaced(Corrupted::Order(CorruptPart::OwnBatch))),
    ),
    guard(
        "`PendingReplies::take`",
        "recipients of replies",
        By::Queue,
        Detected::Use(Then::Replaced(Corrupted::PendingReplies)),
    ),
    guard(
        "`Node::seal`",
        "numbers of the consensus engine",
        By::Seal,
        Detected::Use(Then::Replaced(Corrupted::Order(CorruptPart::EngineNumbers))),
    ),
    guard(
        "`Node::broken_rule`",
        "the same while the engine works",
        By::Own("values that the engine changes meanwhile: the rules of Raft say how they may"),
        Detected::Use(Then::Replaced(Corrupted::Order(CorruptPart::EngineRule("...")))),
    ),
    guard(
        "`order::State::admit`",
        "position of the delivery",
        By::Own("one comparison; f+1 peers compare its effect"),
        Detected::Use(Then::Replaced(Corrupted::Order(CorruptPart::Delivery))),
    ),
    guard(
        "`job::InFlight::leave`",
        "results of a batch",
        By::Own("results come in any order, so there is no queue: each place is filled once"),
        Detected::Use(Then::Replaced(Corrupted::Results)),
    ),
    guard(
        "`Voter::is_next`",
        "numbers of executed batches",
        By::Own("batches end in any order within a window, so there is no queue"),
        Detected::Use(Then::Outvoted),
    ),
    guard("`Connection::places`", "order of a connection's replies", By::Queue, Detected::Use(Then::Closed)),
    guard("`Leaving::unsent`", "replies on their way to the socket", By::Queue, Detected::Use(Then::Closed)),
    guard("`Archive`", "evidence records", By::Seal, Detected::Use(Then::Shown)),
    guard(
        "`TurnState`, `WatchdogView`",
        "whose turn it is; signs of progress",
        By::Own("several threads change these words at once, for each request: a code would need a lock"),
        Detected::Watchdog,
    ),
];

/// The checks of a tick, in order.
pub(crate) fn at_tick() -> impl Iterator<Item = Check> {
    let checks = GUARDS.iter().filter_map(|guard| match guard.found {
        Detected::Tick(check) => Some(check),
        Detected::Use(_) | Detected::Watchdog => None,
    });
    // One check may serve several guards.
    checks.scan(None, |last, check| Some((last.replace(check) != Some(check)).then_some(check))).flatten()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    const DOCUMENT: &str = "docs/vulnerabilities.md";
    const BEGIN: &str = "<!-- guards: server/crosscheck/src/self_check.rs -->\n";
    const END: &str = "<!-- end of guards -->\n";

    /// The table as docs/vulnerabilities.md has it.
    fn table() -> String {
        let mut out = String::from("| Guard | Covers | By | Found | Then |\n|---|---|---|---|---|\n");
        for Guard { name, covers, by, found } in &GUARDS {
            let by = match by {
                By::Seal => "`Sealed`",
                By::Queue => "`SealedQueue`",
                By::Own(_) => "own",
            };
            let (found, then) = match found {
                Detected::Tick(check) => ("tick", format!("`{:?}`", check.corrupted())),
                Detected::Use(Then::Replaced(Corrupted::Order(part))) => {
                    let part = format!("{part:?}");
                    ("use", format!("`{}`", part.split('(').next().unwrap_or_default()))
                }
                Detected::Use(Then::Replaced(corrupted)) => ("use", format!("`{corrupted:?}`")),
                Detected::Use(Then::Outvoted) => ("use", "replaced by its vote".to_owned()),
                Detected::Use(Then::Closed) => ("use", "connection closed".to_owned()),
                Detected::Use(Then::Shown) => ("use", "record shown as damaged".to_owned()),
                Detected::Watchdog => ("watchdog", "replaced".to_owned()),
            };
            writeln!(out, "| {name} | {covers} | {by} | {found} | {then} |").expect("a string");
        }
        out.push_str("\nGuards with a way of their own, and why:\n\n| Guard | Reason |\n|---|---|\n");
        for Guard { name, by, .. } in &GUARDS {
            if let By::Own(why) = by {
                writeln!(out, "| {name} | {why} |").expect("a string");
            }
        }
        out
    }

    #[test]
    fn the_document_has_this_table() {
        let root =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
        let text = std::fs::read_to_string(root.join(DOCUMENT)).expect("docs/vulnerabilities.md");
        let written = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let (written, _) = written.expect("docs/vulnerabilities.md has the marks around the table of guards");
        let table = table();
        assert!(
            written.trim() == table.trim(),
            "put this between the marks in docs/vulnerabilities.md:\n{table}"
        );
        assert!(table.lines().all(|line| line.len() <= 120), "no line is longer than 120 columns");
    }

    #[test]
    fn every_check_has_a_guard_and_is_made_once() {
        let all = [
            Check::Checksums,
            Check::Digests,
            Check::Peers,
            Check::ClientsDriven,
            Check::Clients,
            Check::ServiceSettings,
            Check::Program,
            Check::Schedule,
            Check::RequestQueue,
            Check::PendingReplies,
        ];
        assert_eq!(at_tick().collect::<Vec<_>>(), all);
        let reactions: Vec<Corrupted> = all.into_iter().map(Check::corrupted).collect();
        assert!(
            (1..all.len()).all(|at| !reactions[..at].contains(&reactions[at])),
            "each names what it found"
        );
    }
}
