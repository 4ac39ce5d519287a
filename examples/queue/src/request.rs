//! The requests to the queue. The log has their derived encoding.

use crosscheck::object::{Kinds, Summed};
use crosscheck::{ConnectionId, ConnectionsOfReplica};

use crate::job::JobId;
use crate::settings::Setting;

/// A command, with what the service has to know of the connection that sent it.
#[derive(Clone, Debug, PartialEq, Eq, Summed)]
pub struct QueueRequest {
    /// The command.
    pub command: QueueCommand,
    /// Who sent it.
    pub sender: Sender,
}

/// The connection that has sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub struct Sender {
    /// The connection; that of no client if the service has started the request itself.
    pub connection: ConnectionId,
    /// The roles that it has from now on, a bit for each: [`Sender::CLIENT`] with its first request.
    pub news: u8,
    /// Regions in which it may have reserved jobs, a bit for each.
    pub holding: u16,
}

impl Sender {
    /// Role: it has sent a request.
    pub const CLIENT: u8 = 1;
    /// Role: it has put a job.
    pub const PRODUCER: u8 = 2;
    /// Role: it has asked for a job.
    pub const WORKER: u8 = 4;
    /// How many roles there are.
    pub const ROLES: usize = 3;
}

/// A command of a client, or one that the service or an operator starts (the last four).
#[derive(Clone, Debug, Kinds, PartialEq, Eq, Summed)]
#[allow(missing_docs, reason = "beanstalkd's commands and their arguments; times are in seconds")]
#[rustfmt::skip] // a line for each
pub enum QueueCommand {
    Put { tube: String, pri: u32, delay: u32, ttr: u32, body: Vec<u8> },
    Peek { id: JobId },
    PeekReady { tube: String },
    PeekDelayed { tube: String },
    PeekBuried { tube: String },
    Reserve { tubes: Vec<String> },
    ReserveWithTimeout { tubes: Vec<String>, seconds: u32 },
    Delete { id: JobId },
    Release { id: JobId, pri: u32, delay: u32 },
    Use { from: String, tube: String },
    Watch { tube: String, is_new: bool, watched: u32 },
    Ignore { tube: String, is_old: bool, watched: u32 },
    Bury { id: JobId, pri: u32 },
    Kick { tube: String, bound: u32 },
    Touch { id: JobId },
    Stats,
    StatsJob { id: JobId },
    StatsTube { tube: String },
    ListTubes,
    ListTubeUsed { tube: String },
    ListTubesWatched { tubes: Vec<String> },
    PauseTube { tube: String, seconds: u32 },
    ReserveJob { id: JobId },
    KickJob { id: JobId },
    /// Ends the connection; answered by the protocol.
    Quit,
    /// The connection has ended, which may hold something in these regions.
    Closed { regions: u16 },
    /// A process of a replica has ended, and all connections of its clients with it.
    ReplicaClosed { connections: ConnectionsOfReplica },
    /// A time has come in a region.
    Tick { region: u32, time_us: u64 },
    /// An operator lists the settings, or changes one first.
    Settings { change: Option<Setting> },
}

impl QueueCommand {
    /// How many kinds clients send; those of the others are higher.
    pub const OF_CLIENTS: usize = 25;

    /// The request for a command that no client sends.
    pub fn of_service(self) -> QueueRequest {
        let connection = ConnectionId::new(u8::MAX, 0, 0);
        QueueRequest { command: self, sender: Sender { connection, news: 0, holding: 0 } }
    }

    /// The job that it names.
    pub fn job(&self) -> Option<JobId> {
        match *self {
            QueueCommand::Peek { id }
            | QueueCommand::Delete { id }
            | QueueCommand::Release { id, .. }
            | QueueCommand::Bury { id, .. }
            | QueueCommand::Touch { id }
            | QueueCommand::StatsJob { id }
            | QueueCommand::ReserveJob { id }
            | QueueCommand::KickJob { id } => Some(id),
            _ => None,
        }
    }

    /// The tubes that it is about.
    pub fn tubes(&self) -> Vec<&str> {
        match self {
            QueueCommand::Put { tube, .. }
            | QueueCommand::PeekReady { tube }
            | QueueCommand::PeekDelayed { tube }
            | QueueCommand::PeekBuried { tube }
            | QueueCommand::Watch { tube, .. }
            | QueueCommand::Ignore { tube, .. }
            | QueueCommand::Kick { tube, .. }
            | QueueCommand::StatsTube { tube }
            | QueueCommand::ListTubeUsed { tube }
            | QueueCommand::PauseTube { tube, .. } => vec![tube],
            QueueCommand::Use { from, tube } => vec![from, tube],
            QueueCommand::Reserve { tubes } | QueueCommand::ReserveWithTimeout { tubes, .. } => {
                tubes.iter().map(String::as_str).collect()
            }
            _ => Vec::new(),
        }
    }
}
