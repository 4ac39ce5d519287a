//! A log whose machine loses its power at every operation, with every part of the unsynced data that the disk may have
//! kept: it opens, has all synced records, and accepts nothing else. In particular the file with the claim how far it
//! is durable never claims too much.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::records::{GROUP, engine_id, entries, entry, identity_in};
use order::{Disk, DiskFile, FileLog, FileOptions, LogError, LogStore};

/// Bytes that the disk writes as a whole, unless it tears them.
const SECTOR: usize = 512;
const OPTIONS: FileOptions = FileOptions { segment_bytes: 64 << 10, limit_bytes: 64 << 20, spares: 1 };
/// Of entries, so that four fill a file.
const BODY: u32 = 14_000;

/// One operation that may or may not reach the disk, or that makes earlier ones durable.
#[derive(Clone, Debug)]
enum Operation {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Write(usize, usize, Vec<u8>),
    Sync(usize),
    SyncDirectory(PathBuf),
}

/// The files as processes see them, and all their operations.
#[derive(Clone, Debug, Default)]
struct State {
    names: BTreeMap<PathBuf, usize>,
    files: Vec<Vec<u8>>,
    done: Vec<Operation>,
    /// No file can be made or written to.
    is_full: bool,
}

#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Debug)]
struct FakeFile(Fake, usize);

impl Fake {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.state().names.get(path).copied().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Disk for Fake {
    type File = FakeFile;

    fn create_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        Ok(self.state().names.keys().filter(|path| path.parent() == Some(directory)).cloned().collect())
    }
    fn length(&self, path: &Path) -> io::Result<u64> {
        let file = self.find(path)?;
        Ok(self.state().files[file].len() as u64)
    }
    fn read_from(&self, path: &Path, from: u64, most: u64) -> io::Result<Vec<u8>> {
        let file = self.find(path)?;
        Ok(self.state().files[file].iter().copied().skip(from as usize).take(most as usize).collect())
    }
    fn create(&self, path: &Path) -> io::Result<FakeFile> {
        if self.find(path).is_ok() { Err(ErrorKind::AlreadyExists.into()) } else { self.open(path) }
    }
    fn open(&self, path: &Path) -> io::Result<FakeFile> {
        if let Ok(file) = self.find(path) {
            return Ok(FakeFile(self.clone(), file));
        }
        let mut state = self.state();
        if state.is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        let file = state.files.len();
        state.files.push(Vec::new());
        state.names.insert(path.to_owned(), file);
        state.done.push(Operation::Link(path.to_owned(), file));
        Ok(FakeFile(self.clone(), file))
    }
    fn lock(&self, path: &Path) -> io::Result<FakeFile> {
        self.open(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.find(from)?;
        let mut state = self.state();
        state.names.remove(from);
        state.names.insert(to.to_owned(), file);
        state.done.extend([Operation::Unlink(from.to_owned()), Operation::Link(to.to_owned(), file)]);
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.find(path)?;
        let mut state = self.state();
        state.names.remove(path);
        state.done.push(Operation::Unlink(path.to_owned()));
        Ok(())
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.state().done.push(Operation::SyncDirectory(path.to_owned()));
        Ok(())
    }
}

impl DiskFile for FakeFile {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = self.0.state();
        if state.is_full {
            return Err(ErrorKind::StorageFull.into());
        }
        let (at, end) = (at as usize, at as usize + bytes.len());
        let file = &mut state.files[self.1];
        file.resize(file.len().max(end), 0);
        file[at..end].copy_from_slice(bytes);
        state.done.push(Operation::Write(self.1, at, bytes.to_vec()));
        Ok(())
    }
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.state().files[self.1].len() as u64)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.state().done.push(Operation::Sync(self.1));
        Ok(())
    }
    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// A disk at the moment when its power fails.
#[derive(Clone, Default)]
struct Failing {
    names: BTreeMap<PathBuf, usize>,
    /// Changes of names that are not durable, in order.
    changes: Vec<Operation>,
    /// The bytes of each file that are certainly on the disk.
    durable: BTreeMap<usize, Vec<u8>>,
    /// The writes to each sector since, in order.
    writes: BTreeMap<(usize, usize), Vec<Vec<u8>>>,
    lengths: BTreeMap<usize, usize>,
}

/// The writes to a sector that the disk has kept.
#[derive(Clone, Copy, Debug)]
enum Kept {
    None,
    All,
    /// This many of them.
    First(usize),
    /// All, but only this many bytes of the last one.
    Torn(usize),
}

impl Failing {
    /// After these operations, which began on a disk with `names` and `files`.
    fn after(begun: &State, operations: &[Operation]) -> Self {
        let durable = begun.files.iter().cloned().enumerate().collect();
        let mut failing = Failing { names: begun.names.clone(), durable, ..Failing::default() };
        operations.iter().for_each(|operation| failing.perform(operation));
        failing
    }

    fn perform(&mut self, operation: &Operation) {
        match operation {
            Operation::Link(_, file) => {
                self.durable.entry(*file).or_default();
                self.changes.push(operation.clone());
            }
            Operation::Unlink(_) => self.changes.push(operation.clone()),
            Operation::SyncDirectory(directory) => {
                let changes = std::mem::take(&mut self.changes);
                let inside = |change: &Operation| path_of(change).parent() == Some(directory);
                let (durable, pending) = changes.into_iter().partition(inside);
                self.changes = pending;
                rename(&mut self.names, &durable);
            }
            Operation::Sync(file) => {
                let bytes = self.content(*file, &|_, _| Kept::All, true);
                self.durable.insert(*file, bytes);
                self.writes.retain(|(of, _), _| of != file);
                self.lengths.remove(file);
            }
            Operation::Write(file, at, bytes) => {
                let end = at + bytes.len();
                let now = self.content(*file, &|_, _| Kept::All, true);
                let mut after = now;
                after.resize(after.len().max(end), 0);
                after[*at..end].copy_from_slice(bytes);
                for sector in at / SECTOR..end.div_ceil(SECTOR) {
                    let mut content = after[sector * SECTOR..after.len().min((sector + 1) * SECTOR)].to_vec();
                    content.resize(SECTOR, 0);
                    self.writes.entry((*file, sector)).or_default().push(content);
                }
                self.lengths.insert(*file, after.len());
            }
        }
    }

    /// A file as the disk has it, if it kept the part of each sector that `kept` names; it may or may not have the
    /// written length.
    fn content(&self, file: usize, kept: &dyn Fn(usize, usize) -> Kept, is_long: bool) -> Vec<u8> {
        let durable = self.durable.get(&file).cloned().unwrap_or_default();
        let short = durable.len();
        let mut bytes = durable;
        let length = self.lengths.get(&file).copied().unwrap_or(short);
        bytes.resize(length.next_multiple_of(SECTOR).max(short), 0);
        for ((_, sector), versions) in self.writes.range((file, 0)..(file + 1, 0)) {
            let place = sector * SECTOR..(sector + 1) * SECTOR;
            if bytes.len() < place.end {
                bytes.resize(place.end, 0);
            }
            let old = bytes[place.clone()].to_vec();
            let count = versions.len();
            let before = |number: usize| number.checked_sub(1).map_or(&old, |number| &versions[number]);
            let now = match kept(*sector, count) {
                Kept::None => old.clone(),
                Kept::All => versions[count - 1].clone(),
                Kept::First(number) => before(number.min(count)).clone(),
                Kept::Torn(place) => [&versions[count - 1][..place], &before(count - 1)[place..]].concat(),
            };
            bytes[place].copy_from_slice(&now);
        }
        bytes.truncate(if is_long { length } else { short });
        bytes
    }

    /// The disk as the next process finds it: names up to a number of changes, and the files.
    fn disk(&self, changes: usize, contents: &dyn Fn(usize) -> Vec<u8>) -> Fake {
        let mut names = self.names.clone();
        rename(&mut names, &self.changes[..changes]);
        let count = self.durable.keys().last().map_or(0, |last| last + 1);
        let files = (0..count).map(contents).collect();
        Fake(Arc::new(Mutex::new(State { names, files, ..State::default() })))
    }

    fn number_of(&self, name: &str) -> Option<usize> {
        let pending = self.changes.iter().filter_map(|change| match change {
            Operation::Link(path, file) => Some((path, file)),
            _ => None,
        });
        self.names.iter().chain(pending).find(|(path, _)| path.ends_with(name)).map(|(_, file)| *file)
    }

    /// Every disk that can result, but for the many combinations of similar sectors: all of
    /// them, none of them, each alone and each but one, and each torn; some of them combined with every pair
    /// of versions of the two slots of the claims.
    fn outcomes(&self, mut look: impl FnMut(Fake, &str)) {
        let claims = self.number_of("synced");
        let slots: Vec<(usize, usize)> = self
            .writes
            .iter()
            .filter(|((file, _), _)| Some(*file) == claims)
            .map(|((_, sector), versions)| (*sector, versions.len()))
            .filter(|(sector, _)| [0, 4096 / SECTOR].contains(sector))
            .collect();
        let others: BTreeSet<usize> =
            self.writes.keys().filter(|(file, _)| Some(*file) != claims).map(|(_, sector)| *sector).collect();
        // Sectors that were always zero need not all be tried.
        let step = others.len().div_ceil(5).max(1);
        let mut patterns: Vec<(Option<usize>, Kept, Kept)> =
            vec![(None, Kept::None, Kept::None), (None, Kept::All, Kept::All)];
        for sector in others.iter().copied().step_by(step).chain(others.last().copied()) {
            patterns.push((Some(sector), Kept::None, Kept::All));
            patterns.push((Some(sector), Kept::All, Kept::None));
            patterns.extend([1, 10, 30, 300].map(|place| (Some(sector), Kept::Torn(place), Kept::All)));
        }
        let versions = |slot: usize| {
            slots.get(slot).map_or(vec![Kept::All], |(_, count)| {
                (0..=*count).map(Kept::First).chain([5, 20, 50].map(Kept::Torn)).collect()
            })
        };
        let all: Vec<(Kept, Kept)> =
            versions(0).iter().flat_map(|a| versions(1).into_iter().map(move |b| (*a, b))).collect();
        for changes in 0..=self.changes.len() {
            for (number, (sector, this, rest)) in patterns.iter().enumerate() {
                // Where the disk kept none of the rest of the log, or all of it, or something is torn.
                let claimed = if [0, 1, 4].contains(&number) { &all[..] } else { &[(Kept::All, Kept::All)] };
                for &(first, second) in claimed {
                    for is_long in [true, false] {
                        let content = |file: usize| {
                            let kept =
                                |at: usize, _: usize| match slots.iter().position(|(slot, _)| *slot == at) {
                                    Some(0) if Some(file) == claims => first,
                                    Some(_) if Some(file) == claims => second,
                                    None if Some(file) == claims => Kept::None,
                                    _ if Some(at) == *sector => *this,
                                    _ => *rest,
                                };
                            self.content(file, &kept, is_long)
                        };
                        let how = format!(
                            "{changes} names, sector {sector:?} {this:?}, others {rest:?}, slots {first:?} \
                                {second:?}, long {is_long}"
                        );
                        look(self.disk(changes, &content), &how);
                        if self.lengths.is_empty() {
                            break;
                        }
                    }
                }
            }
        }
    }
}

fn path_of(change: &Operation) -> &Path {
    match change {
        Operation::Link(path, _) | Operation::Unlink(path) => path,
        _ => unreachable!("it changes no name"),
    }
}

fn rename(names: &mut BTreeMap<PathBuf, usize>, changes: &[Operation]) {
    for change in changes {
        match change {
            Operation::Link(path, file) => _ = names.insert(path.clone(), *file),
            Operation::Unlink(path) => _ = names.remove(path),
            _ => unreachable!("it changes no name"),
        }
    }
}

/// The permitted contents of a log, from an operation on: the least and the greatest number of entries of that
/// incarnation.
#[derive(Clone, Copy, Debug)]
struct Mark {
    operation: usize,
    incarnation: u64,
    synced: u64,
    appended: u64,
    /// All of it is being deleted, or no entry is certain yet.
    may_be_empty: bool,
}

struct Script {
    disk: Fake,
    marks: Vec<Mark>,
}

impl Script {
    fn mark(&mut self, incarnation: u64, synced: u64, appended: u64, may_be_empty: bool) {
        let operation = self.disk.state().done.len();
        self.marks.push(Mark { operation, incarnation, synced, appended, may_be_empty });
    }

    /// The last mark that was reached after this many operations.
    fn allowed(&self, operations: usize) -> Mark {
        self.marks.iter().rfind(|mark| mark.operation <= operations).copied().expect("the first is at 0")
    }

    fn data() -> &'static Path {
        Path::new("/data")
    }
}

/// An incarnation of a replica, from its joining on; from time to time entries are superseded. Each sync has one to
/// three records.
fn live(script: &mut Script, log: &mut FileLog<Fake>, incarnation: u64, count: u64) -> Result<(), LogError> {
    log.append(&identity_in(GROUP, engine_id(0, incarnation), 0))?;
    log.sync()?;
    script.mark(incarnation, 0, 0, false);
    let mut synced = 0;
    for index in 1..=count {
        script.mark(incarnation, synced, index, false);
        log.append(&entry(index, BODY))?;
        if index % 3 != 1 {
            log.sync()?;
            synced = index;
            script.mark(incarnation, synced, index, false);
        }
        log.tick()?;
    }
    Ok(())
}

/// Two incarnations, with the end of the first one between them: files are made, filled, deleted, and made again.
fn script() -> Script {
    let mut script = Script { disk: Fake::default(), marks: Vec::new() };
    script.mark(0, 0, 0, true);
    let (mut log, _) = FileLog::open_on(script.disk.clone(), Script::data(), 0, OPTIONS).unwrap();
    script.mark(1, 0, 0, true);
    live(&mut script, &mut log, 1, 12).unwrap();
    script.mark(1, 12, 12, true);
    log.wipe().unwrap();
    script.mark(2, 0, 0, true);
    live(&mut script, &mut log, 2, 6).unwrap();
    script
}

/// Opens the log after a crash, and compares it with the entries that were certain then.
fn check(disk: Fake, allowed: Mark, how: &str) {
    let records = match FileLog::open_on(disk, Script::data(), 0, OPTIONS) {
        Ok((_, records)) => records,
        Err(error) => panic!("{error}\nafter {how}, where {allowed:?} was allowed"),
    };
    if allowed.may_be_empty && records.is_empty() {
        return;
    }
    let found = entries(&records);
    let last = found.len() as u64;
    let whole = found.iter().copied().eq(1..=last) && (allowed.synced..=allowed.appended).contains(&last);
    let named = records.contains(&identity_in(GROUP, engine_id(0, allowed.incarnation), 0));
    assert!(whole && named, "{found:?} after {how}, where {allowed:?} was allowed");
}

#[test]
fn every_crash_leaves_a_log_that_opens_with_all_that_was_synced() {
    let script = script();
    let done = script.disk.state().done.clone();
    assert!(done.len() > 80, "{}", done.len());
    let mut looked = 0;
    for crash in 0..=done.len() {
        let failing = Failing::after(&State::default(), &done[..crash]);
        let allowed = script.allowed(crash);
        failing.outcomes(|disk, how| {
            looked += 1;
            check(disk, allowed, &format!("{crash} operations, {how}"));
        });
    }
    println!("{looked} crashes");
    assert!(looked > 3_000, "{looked}");
}

/// The process that opens the log meets a second crash, at each of its own operations.
#[test]
fn a_crash_while_a_log_is_opened_after_a_crash_loses_nothing_either() {
    let script = script();
    let done = script.disk.state().done.clone();
    let mut looked = 0;
    for crash in 0..=done.len() {
        let failing = Failing::after(&State::default(), &done[..crash]);
        let allowed = script.allowed(crash);
        for kept in [Kept::None, Kept::All, Kept::Torn(30)] {
            for changes in BTreeSet::from([0, failing.changes.len()]) {
                let disk = failing.disk(changes, &|file| failing.content(file, &|_, _| kept, true));
                let begun = disk.state().clone();
                FileLog::open_on(disk.clone(), Script::data(), 0, OPTIONS).map(|_| ()).unwrap();
                let opening = disk.state().done.clone();
                for second in 0..=opening.len() {
                    let failing = Failing::after(&begun, &opening[..second]);
                    failing.outcomes(|disk, how| {
                        looked += 1;
                        check(disk, allowed, &format!("{crash} and {second} operations, {kept:?}, {how}"));
                    });
                }
            }
        }
    }
    println!("{looked} crashes");
    assert!(looked > 10_000, "{looked}");
}

/// It frees the space of the log, and the next process continues from there.
#[test]
fn a_log_can_be_given_up_on_a_disk_that_is_full() {
    let disk = Fake::default();
    let (mut log, _) = FileLog::open_on(disk.clone(), Script::data(), 0, OPTIONS).unwrap();
    live(&mut Script { disk: disk.clone(), marks: Vec::new() }, &mut log, 1, 12).unwrap();
    disk.state().is_full = true;
    assert!(matches!(log.wipe(), Err(LogError::Full(_))), "whose the directory is, is written anew");
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    assert!(!disk.state().names.keys().any(is_segment), "{:?}", disk.state().names.keys());
    disk.state().is_full = false;
    let (_, records) = FileLog::open_on(disk.clone(), Script::data(), 0, OPTIONS).unwrap();
    assert!(records.is_empty());
}

/// The negative control: a claim that is made before its sync is found to claim too much.
#[test]
fn a_claim_of_what_is_not_durable_yet_is_seen_to_refuse_a_sound_log() {
    let script = script();
    let done = script.disk.state().done.clone();
    let is_claim = |operation: &Operation| match operation {
        Operation::Write(_, _, bytes) => bytes.starts_with(b"XCSYNCED"),
        _ => false,
    };
    let mut refused = 0;
    for (number, _) in done.iter().enumerate().filter(|(_, operation)| is_claim(operation)) {
        // The sync before it comes after it instead.
        let sync =
            done[..number].iter().rposition(|operation| matches!(operation, Operation::Sync(_))).unwrap();
        let mut early = done.clone();
        let claim = early.remove(number);
        early.insert(sync, claim);
        let failing = Failing::after(&State::default(), &early[..=sync]);
        let claims = failing.number_of("synced");
        let kept = |file: usize| if Some(file) == claims { Kept::All } else { Kept::None };
        let disk =
            failing.disk(failing.changes.len(), &|file| failing.content(file, &|_, _| kept(file), true));
        let opened = FileLog::open_on(disk, Script::data(), 0, OPTIONS);
        refused += u32::from(matches!(opened, Err(LogError::EndLost { .. })));
    }
    assert!(refused > 5, "{refused}");
}
