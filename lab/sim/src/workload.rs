//! The simulation's requirements of a service: how a replica starts it, what clients send, and which replies are right.
//!
//! Plan, faults, promises, shrinking, traces and campaigns know nothing else of a service. [`crate::memcached`]
//! is one workload; `lab/sim/tests/register.rs` has a small one from beginning to end.

use std::fmt::Debug;

use crosscheck::{MakeProtocol, Protocol, Service};
use vote::Place;
use wire::SplitMix64;

use crate::promises::{self, Promise};

/// A service under simulation, and the settings that its replicas have. A clone is cheap.
pub trait Workload: Clone + Send + Sync + 'static {
    /// The service itself, as it ships.
    type Service: Service;
    /// Its clients' protocol, as it ships.
    type Protocol: Protocol;
    /// One request of a client. Equal commands request the same; a broken promise shows it by `Debug`.
    type Command: Clone + PartialEq + Debug + 'static;
    /// Draws the commands of one client.
    type Source: CommandSource<Command = Self::Command>;
    /// Decides which replies are right.
    type Model: ReferenceModel<Command = Self::Command> + 'static;

    /// The start of one process of a replica: an empty service, and the constructor of each connection's protocol.
    ///
    /// # Errors
    /// Why the service cannot start, as text.
    fn start(&self) -> Result<(Self::Service, MakeProtocol<Self::Protocol>), String>;

    /// The bytes that a client sends for `command`. The protocol makes exactly one ordered request of them.
    fn bytes(&self, command: &Self::Command) -> Vec<u8>;

    /// The commands of the client with this number, from 0.
    fn source(&self, client: usize) -> Self::Source;

    /// The model of a service without data.
    fn model(&self) -> Self::Model;

    /// Commands that change nothing and together show all data: at the end every client sends each, from the
    /// last one to the first.
    fn final_reads(&self) -> Vec<Self::Command>;

    /// Name of an object ([`Service::find`]) that a fault at rest hits; none leaves the choice to the replica.
    fn object(&self, _draws: &mut SplitMix64) -> Option<String> {
        None
    }

    /// Name of an object with a bit that is wrong again after each repair: one that clients often use.
    fn worn_object(&self, draws: &mut SplitMix64) -> Option<String> {
        self.object(draws)
    }

    /// Longest request in bytes, as the service encodes it.
    fn request_bytes(&self) -> usize {
        1 << 20
    }

    /// Settings that must be equal on all replicas, by name, as each replica sends them to its peers.
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// This workload with another value in one of its [`Workload::settings`], and the name of that setting: for
    /// the fault `settings`.
    fn variants(&self) -> Vec<(String, Self)> {
        Vec::new()
    }

    /// This workload with less memory than the clients' data need, where the service evicts
    /// ([`crate::Options::evicts`]). Any other stays as it is.
    fn short_of_memory(&self) -> Self {
        self.clone()
    }

    /// Whether a request may take a lock that is not in its footprint ([`crosscheck::schedule::Retry`]), as
    /// where footprints are predicted: then replies are judged at the end of the run, by the positions at which
    /// the commands ran.
    fn may_miss_locks(&self) -> bool {
        false
    }

    /// Whether handlers start requests themselves ([`crosscheck::Cx::spawn`], [`crosscheck::Cx::at`], waits): then
    /// replies are judged at the end of the run, and the model is given each of these requests where it ran, by
    /// [`Workload::started`]. In mode `00GT` such a run has one worker ([`crate::Options::workers`]): with several, the
    /// order at a lock is left to chance there.
    fn starts_requests(&self) -> bool {
        false
    }

    /// The service has run a request at `turn` that it had started itself: the model executes it as well. It comes
    /// between commands, in the order in which the requests ran.
    ///
    /// That such a request runs once, and not before its time, is checked without the model. Only the model knows
    /// whether the right requests are started: it fails for one that it does not expect, and answers a command with
    /// what no service says if one is missing.
    ///
    /// # Errors
    /// Why the service should not have started this request, as text.
    fn started(
        _model: &mut Self::Model,
        _request: &<Self::Service as Service>::Request,
        _turn: Turn,
    ) -> Result<(), String> {
        Ok(())
    }

    /// The promises that are checked: all, unless the service does not make one of them. A service may add its own.
    fn promises(&self) -> Vec<Box<dyn Promise>> {
        promises::all()
    }
}

/// Draws the commands of one client, and remembers its replies.
pub trait CommandSource {
    /// See [`Workload::Command`].
    type Command;

    /// The next command: a function of the draws and of the replies to this client.
    ///
    /// Written values should differ, so that the model distinguishes a lost write from a doubled one.
    fn draw(&mut self, draws: &mut SplitMix64) -> Self::Command;

    /// The client has this reply to `command`.
    fn learn(&mut self, _command: &Self::Command, _reply: &[u8]) {}

    /// The group begins again without data: earlier replies do not count any more.
    fn forget(&mut self) {}
}

/// Where and when a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its place in the log; the batch in which it ran and the number `u16::MAX` for what the service has started
    /// itself, and for a read that took no batch.
    pub place: Place,
    /// Ordered time of its batch in microseconds since 1970; where replies are judged at the end, the one at which it
    /// ran.
    pub time_us: u64,
    /// What the group acts as there ([`crosscheck::Service::BEHAVIORS`]).
    pub behavior: u16,
}

/// The service as one sequential program without any fault: it computes the right answer to each ordered command. It
/// shares no code with the service.
pub trait ReferenceModel: Clone {
    /// See [`Workload::Command`].
    type Command;
    /// The expected value of a reply: bytes, or a description of the permitted ones.
    type Expected: Clone + 'static;

    /// A batch begins whose ordered time is `time_us`. It may have no command; where replies are judged at the end
    /// ([`Workload::starts_requests`], [`Workload::may_miss_locks`]), the model is given the time of what runs next.
    fn begin_batch(&mut self, _time_us: u64) {}

    /// Executes `command`, and returns the answer that the service must give.
    fn apply(&mut self, command: &Self::Command, turn: Turn) -> Self::Expected;

    /// A copy that answers what only reads as this one does. There are thousands of them, one for each batch, where the
    /// service has requests that only read ([`crosscheck::Service::reads_only`]) and clients send them; else none.
    fn for_reads(&self) -> Self {
        self.clone()
    }

    /// Compares the reply to the command at `place` with the expected one. The model may use it in later comparisons.
    ///
    /// # Errors
    /// The difference, as text.
    fn compare(&mut self, expected: &Self::Expected, place: Place, reply: &[u8]) -> Result<(), String>;

    /// Compares the reply to one of [`Workload::final_reads`] with the data that the model has now, at `turn`,
    /// when nothing changes any more. Where replies are judged at the end these are judged like all others, each at its
    /// own time: with timers there may always be something that changes.
    ///
    /// # Errors
    /// The difference, as text.
    fn compare_final(&self, command: &Self::Command, turn: Turn, reply: &[u8]) -> Result<(), String> {
        let mut copy = self.clone();
        let expected = copy.apply(command, turn);
        copy.compare(&expected, turn.place, reply)
    }

    /// The group begins again without data, on an operator's command.
    fn clear(&mut self);

    /// Objects that were found evicted.
    fn evicted(&self) -> u64 {
        0
    }
}

/// A comparison for services whose replies are fixed to the byte: [`ReferenceModel::compare`] of most models.
///
/// # Errors
/// Both, as text, when they differ.
pub fn same_bytes(expected: &[u8], reply: &[u8]) -> Result<(), String> {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if expected == reply {
        return Ok(());
    }
    Err(format!("{:?} instead of {:?}", shown(reply), shown(expected)))
}
