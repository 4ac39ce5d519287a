//! The settings of one replica: its number, the addresses of its peers, and the protections that are on.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::admin::Endpoint;
use crate::behavior::Behaviors;
use crate::clients::certificate::ClientTls;
use crate::group_key::GroupKey;
use crate::socket_file::SocketPath;

/// The paper's letters (EDCC'16 Table IV): which protections are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// R: requests are ordered over all replicas.
    pub replicated: bool,
    /// D: workers take turns in log order.
    pub deterministic: bool,
    /// G: objects are checked at first touch and sealed at the end of the request.
    pub guarded: bool,
    /// X: replicas compare before a reply leaves.
    pub crosschecked: bool,
    /// T, in the place of X: a single node runs each request twice and compares with itself before a reply leaves.
    pub twice: bool,
    /// V, in the place of X, and never with D: replicas execute a batch in parallel and verify its state and output
    /// afterwards, before a reply leaves; where they differ, the batch is rolled back (Eve, OSDI 2012).
    pub verified: bool,
}

impl Mode {
    /// All modes, from no protection to all of them.
    pub const ALL: [&'static str; 9] =
        ["0000", "00G0", "00GT", "R000", "RD00", "RDG0", "RDGX", "R00V", "R0GV"];

    /// Whether results are compared before a reply leaves: by the replicas, or by a single node with itself.
    pub fn compares(self) -> bool {
        self.crosschecked || self.twice || self.verified
    }

    /// Whether replicas can compare reads that take no batch: what is wrong has to show.
    pub fn compares_reads(self) -> bool {
        self.crosschecked && self.guarded && !self.verified
    }

    /// Whether replicas have the same state after the same entry, so that one can fill another.
    pub fn has_common_state(self) -> bool {
        self.deterministic || self.verified
    }
}

impl Default for Mode {
    fn default() -> Self {
        Mode {
            replicated: true,
            deterministic: true,
            guarded: true,
            crosschecked: true,
            twice: false,
            verified: false,
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(letters: &str) -> Result<Self, String> {
        let on = |letter| letters.contains(letter);
        if !Self::ALL.contains(&letters) {
            let why = match (on('T'), on('G')) {
                _ if on('V') => " (V is for several replicas that need no common order of execution: R0GV)",
                (true, false) => " (T needs G: without checksums a run cannot be checked)",
                (true, true) => " (T is for one replica alone: with several, X compares them)",
                (false, _) => "",
            };
            return Err(format!("unknown mode `{letters}`{why}; use one of {}", Self::ALL.join(", ")));
        }
        Ok(Mode {
            replicated: on('R'),
            deterministic: on('D'),
            guarded: on('G'),
            crosschecked: on('X'),
            twice: on('T'),
            verified: on('V'),
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |on, letter| if on { letter } else { '0' };
        write!(
            f,
            "{}{}{}{}",
            letter(self.replicated, 'R'),
            letter(self.deterministic, 'D'),
            letter(self.guarded, 'G'),
            match (self.twice, self.verified) {
                (true, _) => 'T',
                (false, true) => 'V',
                (false, false) => letter(self.crosschecked, 'X'),
            }
        )
    }
}

/// What a single node that compares with itself (letter T) does about a fault that it has detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDetection {
    /// Keeps evidence, answers the request with an error, and goes on: all effects of the request are undone.
    #[default]
    Answer,
    /// Keeps evidence and ends. What starts it again decides with which state.
    Exit,
}

/// How requests that only read are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// In a batch, as all others: the replicas compare the replies.
    #[default]
    Batch,
    /// By the replica that has the client, from its own state, after it has asked the others how far they are. Reads
    /// and writes stay linearizable. In a mode with X, for three or more replicas: f others read the same, and the
    /// reply leaves if theirs are equal. In verified mode, not for two replicas without a witness: no other replica
    /// compares the reply.
    Local,
}

/// The place of the ordered log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In memory: a replica that ends comes back empty, as the next incarnation, and is filled by its peers.
    Memory,
    /// On disk below this directory, synced before it is acknowledged.
    Disk(PathBuf),
}

impl Durability {
    /// Whether the log is on disk.
    pub fn is_disk(&self) -> bool {
        matches!(self, Durability::Disk(_))
    }
}

/// How clients may connect besides the plain port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAccess {
    /// A socket file for clients of this machine.
    pub socket: Option<SocketPath>,
    /// TLS on the port, in the place of plain text.
    pub tls: Option<Arc<ClientTls>>,
}

/// All settings of one replica.
#[derive(Clone, Debug)]
// large: a member for each setting of the configuration
pub struct Settings {
    /// This replica, from 0 (shown to people from 1).
    pub me: u8,
    /// Address of every replica for its peers; index = replica. A host name is resolved at each dial.
    pub peers: Vec<Address>,
    /// The address for clients of this replica.
    pub clients: SocketAddr,
    /// The other ways in for clients. Replicas may differ in them.
    pub access: ClientAccess,
    /// The endpoint for `status`, `inject` and similar commands. A caller with access may stop the replica.
    pub admin: Endpoint,
    /// The protections that are on.
    pub mode: Mode,
    /// Threads that run handlers. A single one also does all other work: no request waits for another thread.
    pub workers: usize,
    /// Threads that serve client connections, where there are several workers.
    pub client_threads: usize,
    /// The place of the ordered log.
    pub durability: Durability,
    /// Client connections at the same time; more are refused with a message.
    pub max_connections: usize,
    /// Longest request in bytes that a client connection may buffer.
    pub max_request: usize,
    /// Memory in bytes for requests in flight: half of it for clients (input, requests, replies), a quarter for the log
    /// that is kept, a quarter for the vote.
    pub buffer_limit: usize,
    /// A client connection that sends nothing for so long, and waits for nothing, is closed; none = never.
    pub idle_timeout: Option<Duration>,
    /// The behaviors of the service that this build can act as.
    pub behaviors: Behaviors,
    /// Settings of the service that have to be equal on all replicas, because they affect computations or comparisons:
    /// names and values as in the configuration.
    pub service: Vec<(String, String)>,
    /// Settings of the group that this replica's configuration has, which count when a group is founded
    /// ([`crate::Service::settings_request`]): names and values.
    pub founding: Vec<(String, String)>,
    /// This replica has data of a group, which was founded earlier.
    pub has_data: bool,
    /// The secret that the replicas of the group share; none where there are no other replicas.
    pub group_key: Option<GroupKey>,
    /// Replica 1 alone: the group is to begin, empty, when all replicas are connected and none has data of a group.
    /// Otherwise this waits for an operator's decision ([`crate::admin::AdminCommand::BeginGroup`]): replicas that lost
    /// everything look like new ones.
    pub begins: bool,
    /// A backup that the group begins with, if this replica takes part in its founding; none for an empty group. All
    /// replicas need the same one. A replica that has data, or joins a group, does not use it.
    pub restore: Option<PathBuf>,
    /// A follower that receives nothing from the leader for a random time in this range calls an election.
    pub election: (Duration, Duration),
    /// A turn that takes longer than this means a hung handler: the replica replaces itself.
    pub watchdog: Duration,
    /// A replica in which more faults than this were found and repaired within 10 s ends as broken hardware, if the
    /// group can do without it; 0 = never. Replicas may differ in it.
    pub faults_per_10s: u32,
    /// With T: what happens when a fault is detected.
    pub on_detection: OnDetection,
    /// In verified mode, and three processes: the last one is a witness. It verifies, and has no service and no
    /// clients; the other two are the replicas.
    pub witness: bool,
    /// In verified mode: once all replicas have agreed in time for a while, a batch waits a moment for the tokens of
    /// all of them (Eve, section 6.3). Without it, as many as agree are enough, and one that differs is repaired
    /// afterwards.
    pub extra_protection: bool,
    /// How requests that only read are answered in a group that is founded. Later the group has a value of its own.
    pub reads: Reads,
}

impl Settings {
    /// Replicas that execute: all processes but the witness.
    pub fn executors(&self) -> usize {
        self.peers.len() - usize::from(self.witness)
    }

    /// Whether this process is the witness.
    pub fn is_witness(&self) -> bool {
        usize::from(self.me) >= self.executors()
    }

    /// Processes that the ordering engine of this one knows: a witness orders nothing, and counts itself.
    pub(crate) fn ordering(&self) -> u8 {
        if self.is_witness() { self.peers.len() as u8 } else { self.executors() as u8 }
    }

    /// Whether two replicas verify each other, without a third verifier.
    pub fn is_pair(&self) -> bool {
        self.mode.verified && self.peers.len() == 2
    }

    /// Whether this group can answer requests that only read without a batch.
    pub fn group_reads_locally(&self) -> bool {
        match self.mode.verified {
            true => !self.is_pair(),
            false => self.mode.compares_reads() && self.peers.len() > 2,
        }
    }

    /// Threads that serve client connections, counting the only one that a replica with one worker has.
    pub fn client_threads(&self) -> usize {
        if self.is_solo() { 1 } else { self.client_threads.max(1) }
    }

    /// With one worker, one thread does all work: requests, order, handlers, votes, replies.
    pub fn is_solo(&self) -> bool {
        self.workers == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_is_read_as_it_is_written() {
        for letters in Mode::ALL {
            assert_eq!(letters.parse::<Mode>().expect(letters).to_string(), letters);
        }
    }

    #[test]
    fn a_mode_with_t_and_what_t_cannot_have_is_refused_with_the_reason() {
        let refused = |letters: &str| letters.parse::<Mode>().expect_err(letters);
        assert!(refused("000T").contains("T needs G"), "{}", refused("000T"));
        for letters in ["RDGT", "R0GT", "GT"] {
            assert!(refused(letters).contains("one replica alone"), "{}", refused(letters));
        }
        assert!(!refused("RDX0").contains('('), "{}", refused("RDX0"));
        assert!(refused("RDGV").contains("no common order"), "{}", refused("RDGV"));
    }
}
