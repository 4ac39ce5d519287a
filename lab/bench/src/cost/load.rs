//! The loads under which requests are counted, and the kinds of request: a figure means nothing without both.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::client::CostClient;
use crate::definition::{Op, Workload};

/// How requests are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// One client that waits for each reply.
    OneClient,
    /// One client that sends 16 requests together, and the next ones after their replies.
    Together16,
    /// Fifty clients of which each waits for its reply.
    Clients50,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The first read of an item: its access is recorded in the item.
    Get,
    /// A read of an item that was read often in this second: nothing is recorded.
    HotGet,
    /// A value of the same length takes the place of one.
    Set,
}

impl Load {
    /// Every load.
    pub const ALL: [Load; 3] = [Load::OneClient, Load::Together16, Load::Clients50];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Load::OneClient => "1 client",
            Load::Together16 => "16 together",
            Load::Clients50 => "50 clients",
        }
    }

    fn connections(self) -> usize {
        if self == Load::Clients50 { 50 } else { 1 }
    }

    fn together(self) -> usize {
        if self == Load::Together16 { 16 } else { 1 }
    }
}

impl Kind {
    /// Every kind, in the order in which they are counted: the first one needs items that no client has read.
    pub const ALL: [Kind; 3] = [Kind::Get, Kind::Set, Kind::HotGet];
    /// Keys of hot reads. One read of each is recorded in every second, and under valgrind a second has few requests.
    const HOT_KEYS: u32 = 4;

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::HotGet => "hot get",
            Kind::Set => "set",
        }
    }

    /// What is sent.
    pub fn op(self) -> Op {
        if self == Kind::Set { Op::Set } else { Op::Get }
    }

    /// The key of request `number`, where the keys from `first` on are this load's.
    pub fn key(self, first: u32, number: u32) -> u32 {
        first + if self == Kind::HotGet { number % Self::HOT_KEYS } else { number }
    }
}

/// The connections of one load.
pub struct Clients {
    load: Load,
    connections: Vec<CostClient>,
}

impl Clients {
    /// Connects them.
    ///
    /// # Errors
    /// No process accepts.
    pub fn connect(load: Load, address: SocketAddr, workload: &Workload) -> anyhow::Result<Self> {
        let connect = |_| CostClient::connect(address, workload);
        Ok(Clients {
            load,
            connections: (0..load.connections()).map(connect).collect::<anyhow::Result<_>>()?,
        })
    }

    /// Sends a request for each key, and waits for all replies.
    ///
    /// # Errors
    /// A connection breaks, or an answer is malformed.
    pub fn ask(&mut self, op: Op, keys: &[u32]) -> anyhow::Result<()> {
        if let [only] = &mut self.connections[..] {
            return keys.chunks(self.load.together()).try_for_each(|keys| {
                only.send(op, keys)?;
                only.receive(op, keys.len())
            });
        }
        let count = self.connections.len();
        for (number, key) in keys.iter().enumerate() {
            let client = &mut self.connections[number % count];
            if number >= count {
                client.receive(op, 1)?;
            }
            client.send(op, &[*key])?;
        }
        self.connections.iter_mut().take(keys.len()).try_for_each(|client| client.receive(op, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_are_noted_ask_for_each_key_once_and_hot_ones_for_few() {
        let keys = |kind: Kind| (0..100).map(|number| kind.key(1000, number)).collect::<Vec<_>>();
        assert_eq!(keys(Kind::Get), (1000..1100).collect::<Vec<_>>());
        assert_eq!(keys(Kind::Set), keys(Kind::Get));
        assert!(keys(Kind::HotGet).iter().all(|key| (1000..1004).contains(key)));
    }
}
