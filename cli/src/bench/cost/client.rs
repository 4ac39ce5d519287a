//! A client that sends an exact number of requests, in groups of the same size: two runs of it differ in the number of
//! requests only.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::bench::definition::{Op, Workload};
use crate::bench::generator::KeyName;
use crate::bench::wire::{Dialect, Reply, Taken, WireRequest};

/// How long one reply may take; under valgrind all programs are slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
pub struct CostClient {
    stream: TcpStream,
    name: KeyName,
    value: Vec<u8>,
    out: Vec<u8>,
    input: Vec<u8>,
}

impl CostClient {
    /// Connects; keys and values have the lengths of the workload.
    ///
    /// # Errors
    /// No process accepts.
    pub fn connect(address: SocketAddr, workload: &Workload) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = usize::try_from(workload.value_bytes.highest())?;
        let (name, value) = (KeyName::new(workload.key_bytes), vec![b'v'; length]);
        Ok(CostClient { stream, name, value, out: Vec::new(), input: Vec::new() })
    }

    /// Sends a request for every key, `together` at a time.
    ///
    /// # Errors
    /// The connection breaks, or an answer is malformed.
    pub fn ask(&mut self, op: Op, keys: impl Iterator<Item = u32>, together: usize) -> anyhow::Result<()> {
        let mut keys = keys.peekable();
        while keys.peek().is_some() {
            let mut waiting = 0;
            self.out.clear();
            for key in keys.by_ref().take(together) {
                let value = if op == Op::Set { &self.value[..] } else { b"" };
                let request = WireRequest { op, key: self.name.of(key), value, ttl: 0, unique: 0 };
                Dialect::Memcached.write(&request, &mut self.out);
                waiting += 1;
            }
            self.stream.write_all(&self.out)?;
            self.hear(op, waiting)?;
        }
        Ok(())
    }

    fn hear(&mut self, op: Op, mut waiting: usize) -> anyhow::Result<()> {
        let mut piece = [0; 16 << 10];
        while waiting > 0 {
            match Dialect::Memcached.take(op, &self.input) {
                Taken::Whole(_, Reply::Refused(words)) => bail!("{}", String::from_utf8_lossy(&words)),
                Taken::Whole(used, _) => {
                    self.input.drain(..used);
                    waiting -= 1;
                }
                Taken::Nonsense(what) => bail!(what),
                Taken::Incomplete => {
                    let count = self.stream.read(&mut piece).context("waiting for a reply")?;
                    if count == 0 {
                        bail!("the server closed the connection");
                    }
                    self.input.extend_from_slice(&piece[..count]);
                }
            }
        }
        Ok(())
    }
}
