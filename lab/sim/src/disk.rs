//! A simulated disk: a process reads what it wrote. A power failure leaves the synced bytes; of the others the seed
//! decides, sector by sector.
//!
//! Names (creating, renaming, removing) become durable with the sync of their directory; of later ones a first part
//! survives, as with a journal. A sector that was written and not synced is old, new, or torn inside.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use order::{Disk, DiskFile};
use wire::SplitMix64;

use crate::net::SimNetwork;
use crate::rng::stream;

/// Bytes that a disk writes as a whole, as a rule.
const SECTOR: usize = 512;
/// Bytes before the first record of a log file (`server/order/src/log/segment.rs`).
const FILE_HEAD: usize = 24;
/// Bytes before the body of a log record, which begin with a checksum of what follows.
const RECORD_HEAD: usize = 24;

/// The disk of one replica; it outlives its processes.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<DiskState>>);

/// One file, without its name.
#[derive(Clone, Debug, Default)]
struct Inode {
    /// As processes see it.
    bytes: Vec<u8>,
    /// The bytes on the disk of sectors written since the last sync.
    unsynced: BTreeMap<usize, Vec<u8>>,
    /// Length as of the last sync.
    synced_length: usize,
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
enum NameChange {
    Link(PathBuf, u64),
    Unlink(PathBuf),
}

struct DiskState {
    me: u8,
    network: SimNetwork,
    rng: SplitMix64,
    inodes: BTreeMap<u64, Inode>,
    numbered: u64,
    /// As processes see them.
    names: BTreeMap<PathBuf, u64>,
    /// As of the last sync of the directory.
    synced: BTreeMap<PathBuf, u64>,
    changes: Vec<NameChange>,
    locked: bool,
    /// The power fails at the n-th operation from now.
    fails_in: Option<u64>,
    is_dead: bool,
    is_full: bool,
    /// The next sync fails.
    fails_sync: bool,
    /// On purpose: reports a sync that it did not make.
    lies: bool,
    /// On purpose: torn records look complete.
    glosses: bool,
    /// Bits flipped at rest since the disk was last empty: it may then be found corrupt.
    flipped: u64,
    /// Sectors that a power failure left different from what was written.
    lost: u64,
    torn: u64,
}

/// Draws how long a checkpoint takes until it is durable, in microseconds: some disks are at once ready, and some take
/// so long that the next checkpoints come meanwhile.
pub fn draw_sync_us(rng: &mut SplitMix64) -> u64 {
    match rng.modulo(4) {
        0 => 0,
        1 => rng.within(1_000, 50_000),
        2 => rng.within(50_000, 1_000_000),
        _ => rng.within(1_000_000, 6_000_000),
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "disk of replica {}", self.state().me)
    }
}

impl SimDisk {
    /// An empty disk of replica `me`, which loses power together with its connections in `network`.
    pub fn new(me: u8, network: SimNetwork, rng: SplitMix64) -> Self {
        SimDisk(Arc::new(Mutex::new(DiskState {
            me,
            network,
            rng,
            inodes: BTreeMap::new(),
            numbered: 0,
            names: BTreeMap::new(),
            synced: BTreeMap::new(),
            changes: Vec::new(),
            locked: false,
            fails_in: None,
            is_dead: false,
            is_full: false,
            fails_sync: false,
            lies: false,
            glosses: false,
            flipped: 0,
            lost: 0,
            torn: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Its replica, from 0.
    pub fn replica(&self) -> u8 {
        self.state().me
    }

    /// The power fails in the middle of the process's work, at its `operations`-th operation on this disk.
    pub fn fail_power_in(&self, operations: u64) {
        self.state().fails_in = Some(operations);
    }

    /// Whether the power has failed and the process is yet to end.
    pub fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    /// The machine is off: unsynced data is lost, or survives in part.
    pub fn lose_power(&self) {
        self.state().lose_power();
    }

    /// The process ends and the machine does not: the next process reads all that was written.
    pub fn end_process(&self) {
        let mut state = self.state();
        (state.locked, state.is_dead, state.fails_in) = (false, false, None);
    }

    /// A new, empty disk.
    pub fn wipe(&self) {
        let mut state = self.state();
        state.inodes.clear();
        state.names.clear();
        state.synced.clear();
        state.changes.clear();
        (state.flipped, state.locked, state.is_dead) = (0, false, false);
    }

    /// Has no free space, or has some again.
    pub fn set_full(&self, full: bool) {
        self.state().is_full = full;
    }

    /// The next sync fails.
    pub fn fail_sync(&self) {
        self.state().fails_sync = true;
    }

    /// From now on it reports syncs that it does not make.
    pub fn lie(&self) {
        self.state().lies = true;
    }

    /// From now on torn records look complete, as if no checksum were compared.
    pub fn gloss_over(&self) {
        self.state().glosses = true;
    }

    /// Flips a bit of the written data, at rest; false when there is none yet.
    pub fn flip(&self, seed: u64) -> bool {
        let mut draws = stream(seed, 3);
        let mut state = self.state();
        let written = |inode: &Inode| inode.bytes.iter().any(|byte| *byte != 0);
        let files: Vec<u64> = state.names.values().copied().collect();
        let files: Vec<u64> =
            files.into_iter().filter(|file| state.inodes.get(file).is_some_and(written)).collect();
        if files.is_empty() {
            return false;
        }
        let Some(inode) = state.inodes.get_mut(draws.pick(&files)) else { return false };
        let end = inode.bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
        let bit = draws.modulo((end + 1) * 8) as usize;
        inode.bytes[bit / 8] ^= 1 << (bit % 8);
        state.flipped += 1;
        true
    }

    /// Bits flipped at rest since it was last empty.
    pub fn flipped(&self) -> u64 {
        self.state().flipped
    }

    /// Sectors that a power failure left as they were before, and torn, so far.
    pub fn damage(&self) -> (u64, u64) {
        let state = self.state();
        (state.lost, state.torn)
    }
}

impl DiskState {
    /// One operation of the process.
    fn operate(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.fails_in {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.fails_in = None;
                self.is_dead = true;
                // No later action of the process has an effect outside of it.
                self.network.set_alive(self.me, false);
            }
        }
        if self.is_dead { Err(io::Error::other("the power has failed")) } else { Ok(()) }
    }

    fn lose_power(&mut self) {
        let survives = self.rng.modulo(self.changes.len() as u64 + 1) as usize;
        let mut names = std::mem::take(&mut self.synced);
        for change in self.changes.drain(..).take(survives) {
            match change {
                NameChange::Link(path, file) => _ = names.insert(path, file),
                NameChange::Unlink(path) => _ = names.remove(&path),
            }
        }
        self.names = names.clone();
        self.synced = names;
        let (rng, inodes) = (&mut self.rng, &mut self.inodes);
        for inode in inodes.values_mut() {
            for (sector, old) in std::mem::take(&mut inode.unsynced) {
                let at = sector * SECTOR;
                let end = inode.bytes.len().min(at + SECTOR);
                if at >= end {
                    continue;
                }
                let kept = match rng.modulo(10) {
                    0..4 => end - at,
                    4..8 => 0,
                    _ => rng.modulo((end - at) as u64) as usize,
                };
                for (place, old) in (at..end).zip(old).skip(kept) {
                    inode.bytes[place] = old;
                }
                self.lost += u64::from(kept == 0);
                self.torn += u64::from(kept > 0 && kept < end - at);
            }
            if rng.chance(500) {
                inode.bytes.truncate(inode.synced_length.max(1));
                inode.bytes.truncate(inode.synced_length);
            }
            inode.synced_length = inode.bytes.len();
        }
        self.forget_nameless();
        (self.locked, self.is_dead, self.fails_in) = (false, false, None);
    }

    fn forget_nameless(&mut self) {
        let named: std::collections::BTreeSet<u64> =
            self.names.values().chain(self.synced.values()).copied().collect();
        self.inodes.retain(|file, _| named.contains(file));
    }

    fn write(&mut self, file: u64, bytes: &[u8], at: usize) -> io::Result<()> {
        self.operate()?;
        if self.is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        let Some(inode) = self.inodes.get_mut(&file) else { return Err(ErrorKind::NotFound.into()) };
        if bytes.is_empty() {
            return Ok(());
        }
        let end = at + bytes.len();
        if inode.bytes.len() < end {
            inode.bytes.resize(end, 0);
        }
        for sector in at / SECTOR..=(end - 1) / SECTOR {
            let from = sector * SECTOR;
            let to = inode.bytes.len().min(from + SECTOR);
            let old = || {
                let mut old = inode.bytes[from..to].to_vec();
                old.resize(SECTOR, 0);
                old
            };
            inode.unsynced.entry(sector).or_insert_with(old);
        }
        inode.bytes[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self, file: u64) -> io::Result<()> {
        self.operate()?;
        if std::mem::take(&mut self.fails_sync) {
            return Err(io::Error::other("the disk failed"));
        }
        if let Some(inode) = self.inodes.get_mut(&file).filter(|_| !self.lies) {
            inode.unsynced.clear();
            inode.synced_length = inode.bytes.len();
        }
        Ok(())
    }

    fn find(&self, path: &Path) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn link(&mut self, path: &Path, file: u64) {
        self.names.insert(path.to_owned(), file);
        self.changes.push(NameChange::Link(path.to_owned(), file));
    }

    fn unlink(&mut self, path: &Path) {
        self.names.remove(path);
        self.changes.push(NameChange::Unlink(path.to_owned()));
    }

    fn open(&mut self, path: &Path) -> io::Result<u64> {
        self.operate()?;
        if let Ok(file) = self.find(path) {
            return Ok(file);
        }
        if self.is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        self.numbered += 1;
        let file = self.numbered;
        self.inodes.insert(file, Inode::default());
        self.link(path, file);
        Ok(file)
    }
}

/// An open file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimDiskFile {
    disk: SimDisk,
    file: u64,
    locks: bool,
}

impl Disk for SimDisk {
    type File = SimDiskFile;

    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        self.state().operate()
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.state();
        state.operate()?;
        Ok(state.names.keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
    }

    fn length(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.state();
        state.operate()?;
        let file = state.find(path)?;
        Ok(state.inodes.get(&file).map_or(0, |inode| inode.bytes.len() as u64))
    }

    fn read_from(&self, path: &Path, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.operate()?;
        let file = state.find(path)?;
        let part = |inode: &Inode| {
            let rest = inode.bytes.get(from as usize..).unwrap_or_default();
            rest[..rest.len().min(most as usize)].to_vec()
        };
        let mut bytes = state.inodes.get(&file).map(part).unwrap_or_default();
        if state.glosses && path.extension().is_some_and(|extension| extension == "log") {
            gloss_over(&mut bytes);
        }
        Ok(bytes)
    }

    fn create(&self, path: &Path) -> io::Result<SimDiskFile> {
        let mut state = self.state();
        if state.find(path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let file = state.open(path)?;
        Ok(SimDiskFile { disk: self.clone(), file, locks: false })
    }

    fn open(&self, path: &Path) -> io::Result<SimDiskFile> {
        let file = self.state().open(path)?;
        Ok(SimDiskFile { disk: self.clone(), file, locks: false })
    }

    fn lock(&self, path: &Path) -> io::Result<SimDiskFile> {
        let mut state = self.state();
        if std::mem::replace(&mut state.locked, true) {
            return Err(ErrorKind::ResourceBusy.into());
        }
        let file = state.open(path).inspect_err(|_| state.locked = false)?;
        Ok(SimDiskFile { disk: self.clone(), file, locks: true })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        let file = state.find(from)?;
        state.unlink(from);
        state.link(to, file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        state.find(path)?;
        state.unlink(path);
        Ok(())
    }

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.operate()?;
        if !state.lies {
            state.synced = state.names.clone();
            state.changes.clear();
            state.forget_nameless();
        }
        Ok(())
    }
}

impl DiskFile for SimDiskFile {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.disk.state().write(self.file, bytes, at as usize)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.state().inodes.get(&self.file).map_or(0, |inode| inode.bytes.len() as u64))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.state().sync(self.file)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.state().sync(self.file)
    }
}

impl Drop for SimDiskFile {
    fn drop(&mut self) {
        if self.locks {
            self.disk.state().locked = false;
        }
    }
}

/// Gives every possible record a fitting checksum, which simulates a reader without checksums.
fn gloss_over(bytes: &mut [u8]) {
    let mut at = FILE_HEAD;
    while at + RECORD_HEAD <= bytes.len() {
        let length =
            u32::from_le_bytes([bytes[at + 4], bytes[at + 5], bytes[at + 6], bytes[at + 7]]) as usize;
        let end = at + RECORD_HEAD + length;
        if length == 0 || end > bytes.len() {
            return;
        }
        let sum = crc32c::crc32c(&bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        at += (RECORD_HEAD + length).next_multiple_of(8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(seed: u64) -> SimDisk {
        SimDisk::new(0, SimNetwork::new(1, stream(seed, 2)), stream(seed, 4))
    }

    #[test]
    fn what_was_synced_survives_and_what_was_not_may_be_old_new_or_torn() {
        let path = Path::new("/log/1.log");
        let mut seen = [0; 3];
        for seed in 0..200 {
            let disk = disk(seed);
            let file = disk.open(path).unwrap();
            file.write_all_at(&[1; SECTOR], 0).unwrap();
            file.sync_data().unwrap();
            disk.sync_directory(Path::new("/log")).unwrap();
            file.write_all_at(&[2; SECTOR], SECTOR as u64).unwrap();
            drop(file);
            disk.lose_power();
            let mut bytes = disk.read(path, u64::MAX).unwrap();
            bytes.resize(2 * SECTOR, 0);
            assert_eq!(bytes[..SECTOR], [1; SECTOR]);
            let new = bytes[SECTOR..].iter().filter(|byte| **byte == 2).count();
            seen[usize::from(new > 0) + usize::from(new == SECTOR)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
    }

    #[test]
    fn a_name_survives_with_its_directory_and_the_power_can_fail_between_two_operations() {
        let (first, second) = (Path::new("/log/1.log"), Path::new("/log/2.log"));
        let mut survived = 0;
        for seed in 0..100 {
            let disk = disk(seed);
            disk.open(first).unwrap();
            disk.sync_directory(Path::new("/log")).unwrap();
            disk.fail_power_in(2);
            disk.rename(first, second).unwrap();
            assert!(disk.sync_directory(Path::new("/log")).is_err() && disk.is_dead());
            disk.lose_power();
            let listed = disk.list(Path::new("/log")).unwrap();
            survived += usize::from(listed == [second]);
        }
        assert!((20..80).contains(&survived), "{survived} of 100");
    }

    #[test]
    fn a_disk_can_be_full_fail_a_sync_and_lose_a_bit() {
        let disk = disk(1);
        let file = disk.open(Path::new("/log/1.log")).unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        disk.set_full(true);
        assert_eq!(file.write_all_at(&[1], 0).unwrap_err().kind(), ErrorKind::StorageFull);
        disk.set_full(false);
        disk.fail_sync();
        assert!(file.sync_data().is_err() && file.sync_data().is_ok());
        assert!(disk.flip(9));
        let bytes = disk.read(Path::new("/log/1.log"), u64::MAX).unwrap();
        let ones: u32 = bytes.iter().map(|byte| (byte ^ 7).count_ones()).sum();
        assert_eq!((ones, disk.flipped()), (1, 1));
    }
}
