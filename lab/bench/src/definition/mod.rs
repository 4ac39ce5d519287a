//! The definition of a benchmark: a named file of workloads, sides and repetitions, so that every reader can measure a
//! figure again.

mod failure;
mod figure;
mod parse;
mod raw;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use crosscheck::{Mode, Reads};
use serde::{Deserialize, Serialize};

pub use failure::{FailingReplica, FailureKind, ReplicaFailure};
pub use figure::{Figure, Measure};
pub use parse::parse;
pub use sweep::{Axis, Sweep, SweepFaults, SweepVictim};

use node::config::meant;
use node::outcome::misuse;

/// Where definitions are kept, relative to the workspace.
pub const FOLDER: &str = "lab/bench/definitions";

/// One benchmark, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The file's name without its ending.
    pub name: String,
    /// XXH3 (128 bits) of the file's bytes, in hexadecimal: two results with the same hash measured the same thing.
    pub hash: String,
    /// One line.
    pub title: String,
    /// Its purpose, in a few sentences.
    pub about: String,
    /// Where the workload comes from.
    pub source: Option<String>,
    /// The compared sides, in the order in which they are measured within each repetition.
    pub sides: Vec<Side>,
    /// Replicas of the replicated sides.
    pub replicas: u8,
    /// Threads that execute requests, per replica; memcached's `-t`.
    pub workers: usize,
    /// Where acknowledged writes are kept.
    pub durability: SideStorage,
    /// Memory for items per server, in MiB.
    pub memory_mb: u64,
    /// Which replicas clients connect to.
    pub connect: Connect,
    /// Connections at the same time; each number is measured on its own.
    pub clients: Vec<usize>,
    /// The most requests that one connection has in progress.
    pub pipeline: usize,
    /// Seconds measured per repetition.
    pub seconds: f64,
    /// Seconds of load before measuring begins.
    pub warmup_seconds: f64,
    /// How often every side is measured.
    pub repetitions: usize,
    /// Open loop: intended requests per second, all connections together. None: closed loop.
    pub rate: Option<f64>,
    /// Whether every reply is compared with a model.
    pub verify: bool,
    /// Whether memaslap drives the memcached sides too, as a check of our own generator.
    pub memaslap: bool,
    /// The requests of clients; each workload is measured on its own.
    pub workloads: Vec<Workload>,
    /// The ratios of sides in the report.
    pub ratios: Vec<Ratio>,
    /// Figures of the paper and our targets, shown next to the measured ones.
    pub figures: Vec<Figure>,
}

/// The requests of the clients in one measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Short, for tables and plots.
    pub name: String,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: Amount,
    /// Relative share of each operation; at least one is above zero.
    pub mix: BTreeMap<Op, f64>,
    /// Number of keys.
    pub keys: usize,
    /// Exponent of the popularity of keys; 0 is uniform.
    pub zipf: f64,
    /// Lifetime that is stored with a value, in seconds; 0 is for ever.
    pub ttl_seconds: Amount,
    /// Percent of the keys that are stored before the load.
    pub prefill_percent: f64,
    /// Processor time that our handler uses per request in addition to what it needs, in microseconds.
    #[serde(default)]
    pub work_us: u32,
    /// Faults that are placed in one replica while it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<SweepFaults>,
    /// A replica that fails while it is measured, and comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ReplicaFailure>,
    /// Classes of objects that our modes with the letter G protect, separated by commas; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarded_classes: Option<String>,
    /// Whether our modes with the letter G keep before-images; if this is given, modes without G keep none. None: all
    /// modes keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_images: Option<bool>,
    /// Whether a batch of our modes with the letter V waits a moment for the tokens of all replicas; none: with several
    /// workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_protection: Option<bool>,
    /// The value of the swept setting, where the file gives several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
}

impl Workload {
    /// A load of one mix on keys that are all stored before it and asked for equally often, without faults and with all
    /// protections.
    pub fn plain(
        name: &str,
        key_bytes: usize,
        value_bytes: Amount,
        mix: BTreeMap<Op, f64>,
        keys: usize,
    ) -> Self {
        Workload {
            name: name.to_owned(),
            key_bytes,
            value_bytes,
            mix,
            keys,
            zipf: 0.0,
            ttl_seconds: Amount::Fixed(0),
            prefill_percent: 100.0,
            work_us: 0,
            faults: None,
            failure: None,
            guarded_classes: None,
            before_images: None,
            extra_protection: None,
            sweep: None,
        }
    }

    /// The value of a sweep's setting, to stand behind a side.
    pub fn swept_value(&self) -> String {
        self.sweep.as_ref().map_or(String::new(), |sweep| format!(", {}", sweep.label))
    }
}

/// A number that is fixed or drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// Always the same.
    Fixed(u64),
    /// Any from `from` to `to`, equally likely.
    Between {
        /// Lowest.
        from: u64,
        /// Highest.
        to: u64,
    },
    /// Pairs of a number and its relative share.
    Weighted(Vec<(u64, f64)>),
}

impl Amount {
    /// The highest number that can be drawn.
    pub fn highest(&self) -> u64 {
        match self {
            Amount::Fixed(number) | Amount::Between { to: number, .. } => *number,
            Amount::Weighted(pairs) => pairs.iter().map(|pair| pair.0).max().unwrap_or(0),
        }
    }
}

/// One side against another, with the same workload and the same number of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The one that is divided.
    pub of: Side,
    /// The one it is divided by.
    pub to: Side,
}

/// A server: one of our modes, or a program that users would otherwise choose.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Side {
    /// CrossCheck in this mode, in the paper's letters; with `-local` behind them, reads take no batch ([`mode_of`]).
    Ours(String),
    /// Stock memcached, one process.
    Memcached,
    /// memcached 1.6.18 as `crosscheck harden build memcached` makes it, by the variant's name.
    Hardened(String),
    /// Redis with two replicas; each write is followed by `WAIT 1`.
    Redis,
    /// etcd with three members, through its JSON gateway.
    Etcd,
}

impl Side {
    /// Names of the other programs that can be measured.
    pub const PEERS: [&str; 9] = [
        "memcached",
        "memcached-native",
        "memcached-sei",
        "memcached-seil",
        "memcached-dup",
        "memcached-native-cycles",
        "memcached-sei-cycles",
        "redis",
        "etcd",
    ];

    /// Whether it has an operation of this kind.
    pub fn offers(&self, op: Op) -> bool {
        match self {
            Side::Ours(_) | Side::Memcached | Side::Hardened(_) => true,
            Side::Redis => !matches!(op, Op::Gets | Op::Cas),
            Side::Etcd => matches!(op, Op::Get | Op::Set | Op::Delete),
        }
    }

    /// Whether it speaks memcached's protocol.
    pub fn speaks_memcached(&self) -> bool {
        matches!(self, Side::Ours(_) | Side::Memcached | Side::Hardened(_))
    }

    /// How its guarantees differ from ours, for readers of the figures; none for our own modes.
    pub fn semantics(&self) -> Option<&'static str> {
        match self {
            Side::Ours(_) => None,
            Side::Memcached => Some(
                "memcached is one process without replication: a crash loses everything, and a flipped bit \
                    is served as it is.",
            ),
            Side::Hardened(variant) => Some(match variant.as_str() {
                "native" | "native-cycles" => {
                    "memcached-native is memcached 1.6.18 of the same source, unit and flags as the \
                    hardened variants, without protection."
                }
                _ => {
                    "memcached-sei runs each handler twice in one process and ends when the runs differ; seil has \
                    no barrier between threads, dup has two copies of the state. A crash loses everything."
                }
            }),
            Side::Redis => Some(
                "redis acknowledges a write when one of its two replicas has received it (`WAIT 1`), without \
                    consensus: a failover may lose acknowledged writes, reads are those of the primary, \
                    which is not fenced, and nothing is compared. All clients use the primary, which \
                    executes on one thread. One request is `SET` and `WAIT 1` sent together; `add` is `SET \
                    NX`.",
            ),
            Side::Etcd => Some(
                "etcd orders writes by Raft and answers linearizable reads, as our replicated modes do, but \
                    keeps every version of a key and compares no replies. It is asked through its JSON \
                    gateway over kept-open HTTP/1.1 connections: keys and values travel in base64, and the \
                    gateway's share of its CPU time is part of the figures. Values have no lifetime (no \
                    leases).",
            ),
        }
    }
}

/// What ends the name of a mode in which reads take no batch.
const LOCAL: &str = "-local";

/// The mode of that name, and how reads are answered.
///
/// # Errors
/// When there is no such mode.
pub fn mode_of(name: &str) -> Result<(Mode, Reads), String> {
    match name.strip_suffix(LOCAL) {
        Some(mode) => Ok((mode.parse()?, Reads::Local)),
        None => Ok((name.parse()?, Reads::Batch)),
    }
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "memcached" => Ok(Side::Memcached),
            "redis" => Ok(Side::Redis),
            "etcd" => Ok(Side::Etcd),
            name if name.starts_with("memcached-") && Side::PEERS.contains(&name) => {
                Ok(Side::Hardened(name["memcached-".len()..].to_owned()))
            }
            other => match mode_of(other) {
                Ok((mode, Reads::Batch)) => Ok(Side::Ours(mode.to_string())),
                Ok((mode, Reads::Local)) => Ok(Side::Ours(format!("{mode}{LOCAL}"))),
                Err(error) => Err(format!("{error}, or one of {}", Side::PEERS.join(", "))),
            },
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` and not `write_str`, so that tables can give a width.
        f.pad(match self {
            Side::Hardened(variant) => return f.pad(&format!("memcached-{variant}")),
            Side::Ours(mode) => mode,
            Side::Memcached => "memcached",
            Side::Redis => "redis",
            Side::Etcd => "etcd",
        })
    }
}

impl TryFrom<String> for Side {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Side> for String {
    fn from(side: Side) -> String {
        side.to_string()
    }
}

/// Where a side keeps what it acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SideStorage {
    /// In memory; for etcd, on a file system in memory.
    Memory,
    /// Synced to disk before it is acknowledged.
    Disk,
}

/// Which replicas clients connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Connect {
    /// All of them in turn.
    All,
    /// The one that leads when the load begins.
    Leader,
}

/// An operation of memcached; other servers offer some of them under other names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Reads a value.
    Get,
    /// Reads a value and the number that `cas` needs.
    Gets,
    /// Stores a value.
    Set,
    /// Stores a value where there is none.
    Add,
    /// Stores a value if it has not changed since a `gets`.
    Cas,
    /// Removes a value.
    Delete,
    /// Adds one to a counter; counters are keys of their own.
    Incr,
}

impl Op {
    /// Every operation with its name in definitions.
    pub const ALL: [(&str, Op); 7] = [
        ("get", Op::Get),
        ("gets", Op::Gets),
        ("set", Op::Set),
        ("add", Op::Add),
        ("cas", Op::Cas),
        ("delete", Op::Delete),
        ("incr", Op::Incr),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Op::ALL.iter().find(|(_, op)| *op == self).map_or("", |(name, _)| name)
    }
}

/// Reads a definition: a name in `folder`, or a path that ends in `.toml`.
///
/// # Errors
/// There is no such file, or it contains an error.
pub fn read(folder: &Path, name: &str) -> anyhow::Result<Definition> {
    let path =
        if name.ends_with(".toml") { PathBuf::from(name) } else { folder.join(format!("{name}.toml")) };
    if !path.is_file() {
        let known = names(folder).unwrap_or_default();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let hint = match meant(name, &known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if known.is_empty() => {
                format!(
                    "{} holds none; run this in the workspace, or name the folder with --definitions",
                    folder.display()
                )
            }
            None => format!("known here: {}", known.join(", ")),
        };
        return Err(misuse(format!("there is no benchmark `{name}`; {hint}")));
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    parse(&stem, &path.display().to_string(), &text).map_err(misuse)
}

/// The names of all definitions in `folder`, in order.
///
/// # Errors
/// The folder cannot be read.
pub fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names: Vec<String> = std::fs::read_dir(folder)?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".toml").map(str::to_owned)
        })
        .collect();
    names.sort();
    Ok(names)
}
