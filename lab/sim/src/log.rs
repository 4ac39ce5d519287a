//! The log of a simulated replica on its disk: the shipped [`FileLog`], observed, so that the records read after a
//! crash can be compared with those written.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use crosscheck::snapshot::{self, Saved};
use order::{FileLog, FileOptions, LogError, LogStore, Record};
use xxhash_rust::xxh3::xxh3_128;

use crate::disk::SimDisk;

/// Files so small that they are used up and reused, also in a short run.
const OPTIONS: FileOptions = FileOptions { segment_bytes: 64 << 10, limit_bytes: 64 << 20, spares: 2 };
/// A replica's data directory; on its simulated disk, not on that of this machine.
pub const DATA: &str = "/data";

/// A replica's storage, over all its processes.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Its disk.
    pub disk: SimDisk,
    kept: Arc<Mutex<Kept>>,
}

/// The written records, as the run remembers them.
#[derive(Debug, Default)]
struct Kept {
    /// Digests of all records since the log was last empty.
    written: BTreeSet<u128>,
    last: Option<u128>,
    /// The last record that was acknowledged to be durable.
    synced: Option<u128>,
    /// The log was being deleted when the process ended: the next one finds all of it, or nothing.
    wiping: bool,
}

/// The result of opening a log.
pub struct Opened {
    /// The log to continue with.
    pub log: Box<dyn LogStore>,
    /// Its records.
    pub records: Vec<Record>,
    /// The state of the last checkpoint.
    pub state: Option<Saved>,
}

/// Why a process cannot start with its disk.
#[derive(Debug)]
pub enum Unusable {
    /// The records are not those that were written, or not all: the operator empties the disk, as the message says, and
    /// the replica joins as a new incarnation.
    Corrupt(String),
    /// Perhaps later.
    Refused(String),
}

/// The findings of a process on its disk, for the checkers.
pub struct Reopened<'a> {
    /// Digests of the records, or their error.
    pub found: Result<&'a [u128], &'a str>,
    /// Digests of everything that was written since the log was last empty.
    pub written: &'a BTreeSet<u128>,
    /// The last record that was acknowledged to be durable.
    pub synced: Option<u128>,
    /// Whether bits of the disk flipped at rest.
    pub flipped: bool,
}

impl Storage {
    /// With nothing on it.
    pub fn new(disk: SimDisk) -> Self {
        Storage { disk, kept: Arc::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Opens log and state as `crosscheck::serve` does; passes the findings to `look`.
    ///
    /// # Errors
    /// Why they cannot be used.
    pub fn open(&self, mut look: impl FnMut(&Reopened<'_>)) -> Result<Opened, Unusable> {
        let directory = Path::new(DATA);
        let opened = FileLog::open_on(self.disk.clone(), directory, self.disk.replica(), OPTIONS);
        let is_empty = matches!(&opened, Ok((_, records)) if records.is_empty());
        let state = snapshot::for_log(&self.disk, directory, is_empty);
        let read: Vec<u128> = match &opened {
            Ok((_, records)) => records.iter().map(digest).collect(),
            Err(_) => Vec::new(),
        };
        let corrupt = match (&opened, &state) {
            (Err(error), _) if error.is_operators() => Some(error.to_string()),
            (_, Err(error)) if error.is_operators() => Some(error.to_string()),
            _ => None,
        };
        let refused = match (&opened, &state) {
            (Err(error), _) => Some(error.to_string()),
            (_, Err(error)) => Some(error.to_string()),
            _ => None,
        };
        if corrupt.is_some() || refused.is_none() {
            let mut kept = self.kept();
            if std::mem::take(&mut kept.wiping) && read.is_empty() && corrupt.is_none() {
                *kept = Kept::default();
            }
            look(&Reopened {
                found: corrupt.as_deref().map_or(Ok(&read), Err),
                written: &kept.written,
                synced: kept.synced,
                flipped: self.disk.flipped() > 0,
            });
        }
        match (corrupt, opened, state) {
            (Some(why), ..) => Err(Unusable::Corrupt(why)),
            (None, Ok((log, records)), Ok(state)) => {
                let log = Box::new(WatchedLog { log, storage: self.clone() });
                Ok(Opened { log, records, state })
            }
            _ => Err(Unusable::Refused(refused.unwrap_or_default())),
        }
    }

    /// A new disk.
    pub fn wipe(&self) {
        self.disk.wipe();
        *self.kept() = Kept::default();
    }
}

/// The shipped log, and the records written to it.
struct WatchedLog {
    log: FileLog<SimDisk>,
    storage: Storage,
}

impl LogStore for WatchedLog {
    fn append(&mut self, record: &Record) -> Result<(), LogError> {
        let digest = digest(record);
        let mut kept = self.storage.kept();
        kept.written.insert(digest);
        kept.last = Some(digest);
        drop(kept);
        self.log.append(record)
    }

    fn needs_sync(&self) -> bool {
        self.log.needs_sync()
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.log.sync()?;
        let mut kept = self.storage.kept();
        kept.synced = kept.last;
        Ok(())
    }

    fn tick(&mut self) -> Result<(), LogError> {
        self.log.tick()
    }

    fn release(&mut self, index: u64) -> Result<(), LogError> {
        self.log.release(index)
    }

    fn wipe(&mut self) -> Result<(), LogError> {
        self.storage.kept().wiping = true;
        self.log.wipe()?;
        *self.storage.kept() = Kept::default();
        Ok(())
    }
}

/// Kind of a record that begins the log after an entry, and the place of its flag whether entries behind it are kept:
/// at the head of a file they always are.
const START: (u8, usize) = (2, 17);

fn digest(record: &Record) -> u128 {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    if bytes.first() == Some(&START.0)
        && let Some(keep) = bytes.get_mut(START.1)
    {
        *keep = 1;
    }
    xxh3_128(&bytes)
}

#[cfg(test)]
mod tests {
    use order::{Disk, DiskFile};

    use super::*;
    use crate::net::SimNetwork;
    use crate::rng::stream;

    /// A part of the message about a damage, and the damage.
    type Damage = (&'static str, fn(&SimDisk, &Path));

    /// A replica's identity and an entry, as the log encodes them (`server/order/src/log/record.rs`).
    fn record(kind: u8, words: &[u64], rest: &[u8]) -> Record {
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Record::decode([&[kind], &words[..], rest].concat().into()).expect("a record")
    }

    fn entry(index: u64) -> Record {
        let mut bytes = vec![4, 0];
        bytes.extend([1, index, 0].iter().flat_map(|word: &u64| word.to_le_bytes()));
        Record::decode(bytes.into()).expect("a record")
    }

    fn opened(storage: &Storage) -> Result<Opened, Unusable> {
        storage.open(|_| {})
    }

    /// As an operator would, the simulation empties a disk whose log is incomplete: every kind of damage is reported to
    /// it.
    #[test]
    fn every_damage_that_only_an_operator_can_see_to_makes_a_disk_unusable() {
        let path = Path::new(DATA).join("log/00000001.log");
        let damages: [Damage; 4] = [
            ("has lost its end", |disk, path| erase(disk, path, 560, 2000)),
            ("its header is missing", |disk, path| erase(disk, path, 0, 24)),
            ("is not a file of this program", |disk, path| {
                disk.remove(path).unwrap();
                disk.create(path).unwrap().write_all_at(b"somebody else's", 0).unwrap();
            }),
            ("was truncated", |disk, path| {
                disk.remove(path).unwrap();
                disk.create(path).unwrap();
            }),
        ];
        for (words, damage) in damages {
            let storage = Storage::new(SimDisk::new(0, SimNetwork::new(1, stream(1, 2)), stream(1, 4)));
            let mut log = opened(&storage).map(|opened| opened.log).unwrap_or_else(|why| panic!("{why:?}"));
            log.append(&record(1, &[7, 0x101], &0u32.to_le_bytes())).unwrap();
            for index in 1..=20 {
                log.append(&entry(index)).unwrap();
                log.sync().unwrap();
            }
            log.tick().unwrap();
            drop(log);
            storage.disk.end_process();
            damage(&storage.disk, &path);
            match opened(&storage) {
                Err(Unusable::Corrupt(why)) => assert!(why.contains(words), "{why}"),
                Err(Unusable::Refused(why)) => panic!("it would start again for ever: {why}"),
                Ok(_) => panic!("{words}: it opens"),
            }
            storage.wipe();
            assert!(opened(&storage).is_ok());
        }
    }

    fn erase(disk: &SimDisk, path: &Path, from: u64, to: u64) {
        disk.open(path).unwrap().write_all_at(&vec![0; (to - from) as usize], from).unwrap();
    }
}
