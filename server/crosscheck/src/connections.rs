//! Names of client connections, as values that a service may keep in its state.

use object::Summed;

/// A client's connection. No other one of the group has the same, at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Summed)]
pub struct ConnectionId {
    /// The replica that the client is connected to.
    replica: u8,
    /// The process of the replica: its incarnation.
    process: u64,
    /// The number of the connection among those of the process.
    number: u64,
}

impl ConnectionId {
    /// The connection with this number of a replica's process. A replica makes those of its clients; tests and
    /// simulations make others.
    pub fn new(replica: u8, process: u64, number: u64) -> Self {
        ConnectionId { replica, process, number }
    }
}

/// All connections of a replica's clients that ended with one of its processes, or with an earlier one
/// ([`Service::closed`](crate::Service::closed)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Summed)]
pub struct ConnectionsOfReplica {
    replica: u8,
    /// The first process that they did not end with.
    before: u64,
}

impl ConnectionsOfReplica {
    /// Those of a replica's processes before the one with this incarnation.
    pub fn new(replica: u8, before: u64) -> Self {
        ConnectionsOfReplica { replica, before }
    }

    /// Whether this connection is one of them.
    pub fn contains(&self, connection: ConnectionId) -> bool {
        connection.replica == self.replica && connection.process < self.before
    }

    /// The smallest name that one of them can have, and the smallest one behind them: where they are in a map.
    pub fn range(&self) -> std::ops::Range<ConnectionId> {
        ConnectionId::new(self.replica, 0, 0)..ConnectionId::new(self.replica, self.before, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_a_replica_are_those_of_its_earlier_processes() {
        let ended = ConnectionsOfReplica::new(1, 7);
        let ids = [(0, 6), (1, 0), (1, 6), (1, 7), (2, 6)].map(|(replica, process)| {
            [0, u64::MAX].map(|number| ConnectionId::new(replica, process, number))
        });
        for id in ids.into_iter().flatten() {
            assert_eq!(ended.contains(id), ended.range().contains(&id), "{id:?}");
            assert_eq!(ended.contains(id), id.replica == 1 && id.process < 7, "{id:?}");
        }
    }
}
