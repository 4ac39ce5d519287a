//! The guards of memory that is no object which are checked at every tick, and the reaction to each.
//!
//! No vote repairs such memory, so there is one reaction, [`ReplaceReason::Corrupted`]. docs/vulnerabilities.md has
//! these guards and those that are checked when the data is used; a test compares its rows of a tick with this list.
//!
//! [`ReplaceReason::Corrupted`]: crate::ReplaceReason::Corrupted

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
    /// What the replica acts as.
    Behavior,
}

/// All of them, in the order in which they are made, each with the reason for which a replica is replaced if it fails.
pub(crate) const CHECKS: [(Check, Corrupted); 11] = [
    (Check::Checksums, Corrupted::Checksums),
    (Check::Digests, Corrupted::Digests),
    (Check::Peers, Corrupted::Peers),
    (Check::ClientsDriven, Corrupted::ClientsStopped),
    (Check::Clients, Corrupted::ClientSockets),
    (Check::ServiceSettings, Corrupted::ServiceSettings),
    (Check::Program, Corrupted::Program),
    (Check::Schedule, Corrupted::Schedule),
    (Check::RequestQueue, Corrupted::RequestQueue),
    (Check::PendingReplies, Corrupted::PendingReplies),
    (Check::Behavior, Corrupted::Behavior),
];

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "docs/vulnerabilities.md";
    const BEGIN: &str = "<!-- guards: server/crosscheck/src/self_check.rs -->\n";
    const END: &str = "<!-- end of guards -->\n";

    /// What is reported by the guards of a tick, as the document's table has it.
    fn documented() -> Vec<String> {
        let root =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
        let text = std::fs::read_to_string(root.join(DOCUMENT)).expect(DOCUMENT);
        let table = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        let (table, _) = table.expect("the document has the marks around the table of guards");
        let mut reported: Vec<String> = table
            .lines()
            .filter_map(|row| row.split_once("| tick | `")?.1.strip_suffix("` |"))
            .map(str::to_owned)
            .collect();
        // One check may serve several guards.
        reported.dedup();
        reported
    }

    #[test]
    fn the_document_names_every_check_of_a_tick_in_order() {
        let made: Vec<String> = CHECKS.iter().map(|(_, found)| format!("{found:?}")).collect();
        assert_eq!(documented(), made, "the rows of a tick in {DOCUMENT}, and CHECKS");
    }

    #[test]
    fn every_check_is_made_and_names_what_it_found() {
        assert!(CHECKS.iter().enumerate().all(|(at, (check, _))| *check as usize == at));
        assert_eq!(CHECKS.len(), Check::Behavior as usize + 1);
        let reasons = CHECKS.map(|(_, found)| found);
        assert!((1..reasons.len()).all(|at| !reasons[..at].contains(&reasons[at])));
    }
}
