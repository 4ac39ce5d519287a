//! A client that sends an exact number of requests, and compares nothing: other programs check replies.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use memcached_client::BufferedStream;

use crate::definition::{Op, Workload};
use crate::generator::KeyName;
use crate::wire::{Dialect, Reply, Taken, WireRequest};

/// How long one reply may take; under valgrind all programs are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
pub struct CostClient {
    connection: BufferedStream,
    name: KeyName,
    value: Vec<u8>,
    out: Vec<u8>,
}

impl CostClient {
    /// Connects; keys and values have the lengths of the workload.
    ///
    /// # Errors
    /// No process accepts.
    pub fn connect(address: SocketAddr, workload: &Workload) -> anyhow::Result<Self> {
        let connection = BufferedStream::open(address, PATIENCE, PATIENCE);
        let connection = connection.with_context(|| format!("connecting to {address}"))?;
        let length = usize::try_from(workload.value_bytes.highest())?;
        let (name, value) = (KeyName::new(workload.key_bytes), vec![b'v'; length]);
        Ok(CostClient { connection, name, value, out: Vec::new() })
    }

    /// Sends a request for each key, all in one write.
    ///
    /// # Errors
    /// The connection breaks.
    pub fn send(&mut self, op: Op, keys: &[u32]) -> anyhow::Result<()> {
        self.out.clear();
        for key in keys {
            let value = if op == Op::Set { &self.value[..] } else { b"" };
            let request = WireRequest { op, key: self.name.of(*key), value, ttl: 0, unique: 0 };
            Dialect::Memcached.write(&request, &mut self.out);
        }
        Ok(self.connection.send(&self.out)?)
    }

    /// Waits for the replies to `waiting` requests.
    ///
    /// # Errors
    /// The connection breaks, an answer is malformed, or a read finds nothing.
    pub fn receive(&mut self, op: Op, mut waiting: usize) -> anyhow::Result<()> {
        while waiting > 0 {
            match Dialect::Memcached.take(op, self.connection.unread()) {
                Taken::Whole(_, Reply::Refused(words)) => bail!("{}", String::from_utf8_lossy(&words)),
                Taken::Whole(_, Reply::Missing) => bail!("an item that was stored is not there"),
                Taken::Whole(used, _) => {
                    self.connection.take(used);
                    waiting -= 1;
                }
                Taken::Nonsense(what) => bail!(what),
                Taken::Incomplete => self.connection.fill().context("waiting for a reply")?,
            }
        }
        Ok(())
    }
}
