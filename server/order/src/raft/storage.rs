//! The engine's view of its log: its entries in memory, each with a checksum, and every change written through to the
//! store.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeBounds;

use ::raft::eraftpb::{Entry, EntryType, Snapshot};
use ::raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::log::{Hard, LogError, LogStore, Record, RecordKind};
use crate::raft::codec;
use crate::raft::members::{Change, Configuration, slot_of};

/// The founding of an empty group is its entry 1: no replica can replay the membership from before it.
pub(crate) const GENESIS: u64 = 1;

/// This replica's identity in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Identity {
    pub group: u64,
    pub id: u64,
    pub boots: u32,
}

/// A log index at which state can be transferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub index: u64,
    pub term: u64,
    pub configuration: Configuration,
}

struct Stored {
    entry: Entry,
    sum: u32,
}

/// The log in memory, written through to `store`.
pub(crate) struct Mirror<L> {
    pub store: L,
    pub identity: Identity,
    start: (u64, u64),
    entries: VecDeque<Stored>,
    /// Bytes of the entries.
    bytes: u64,
    hard: Hard,
    /// Memberships by the index from which they hold; the first holds at `start`.
    history: BTreeMap<u64, Configuration>,
    /// The latest state that was made or put in place here.
    pub cut: Option<Cut>,
    /// Whether it can be fetched from this replica.
    is_offered: bool,
    /// Checkpoints offered to replicas that lack the log: the same one until it arrived, however many later ones there
    /// are.
    pub offers: BTreeMap<u64, Cut>,
    /// A snapshot was wanted for this engine id and no checkpoint fits.
    pub wanted: Cell<Option<u64>>,
    /// The snapshot that was returned last, to be recorded as an offer.
    handed: Cell<Option<u64>>,
    /// An entry that does not match its checksum any more.
    pub poisoned: Cell<Option<u64>>,
}

/// The contents of a store when it was opened.
pub(crate) enum Recovered<L> {
    /// The log of a member.
    Member(Box<Mirror<L>>),
    /// Nothing of use; the store is wiped when the replica gets into a group.
    NoMember(L),
}

impl<L: LogStore> Mirror<L> {
    /// The log of a new member: at the group's founding, which takes the place of this entry of the log, or empty when
    /// it joins.
    pub fn create(
        mut store: L,
        identity: Identity,
        founding: Option<(u64, Configuration)>,
    ) -> Result<Self, LogError> {
        store.wipe()?;
        let mut mirror = Mirror::empty(store, identity);
        mirror.write(RecordKind::Identity {
            group: identity.group,
            id: identity.id,
            boots: identity.boots,
        })?;
        if let Some((index, configuration)) = founding {
            mirror.reset(index, 1, configuration)?;
            mirror.set_hard(Hard { term: 1, vote: 0, commit: index })?;
        }
        mirror.store.sync()?;
        Ok(mirror)
    }

    /// The log of the replica in `slot` as it was when the process ended.
    pub fn recover(store: L, records: Vec<Record>, slot: u8, applied: u64) -> Result<Recovered<L>, LogError> {
        let mut mirror = Mirror::empty(store, Identity::default());
        // Not in the mirror yet: the files that filled a gap may be gone, superseded by a later start.
        let mut entries: BTreeMap<u64, Entry> = BTreeMap::new();
        for record in records {
            match record.0 {
                RecordKind::Identity { group, id, boots } => mirror.identity = Identity { group, id, boots },
                RecordKind::Start { index, term, keep, configuration } => {
                    entries = if keep { entries.split_off(&(index + 1)) } else { BTreeMap::new() };
                    mirror.move_start(index, term, keep, configuration);
                }
                RecordKind::Hard(hard) => mirror.hard = hard,
                RecordKind::Entry(entry) => {
                    entries.split_off(&entry.index);
                    entries.insert(entry.index, entry);
                }
                RecordKind::Membership { index, configuration } => {
                    _ = mirror.history.insert(index, configuration)
                }
            }
        }
        for (index, entry) in entries {
            if index != mirror.last() + 1 {
                return Err(LogError::Contradiction("entries are missing"));
            }
            mirror.put(entry);
        }
        if mirror.identity.id == 0 {
            return Ok(Recovered::NoMember(mirror.store));
        }
        // Before anything is written to it. A log in files reports this when they are opened.
        if slot_of(mirror.identity.id) != Some(slot) {
            return Err(LogError::Contradiction("it is another replica's"));
        }
        // Entries after `applied` are delivered again, and memberships with them.
        let applied = applied.max(mirror.start.0);
        mirror.history.retain(|&index, _| index <= applied);
        // The commit index is volatile by nature and may be behind the log or (if the log's end was torn off) ahead of
        // it.
        mirror.hard.commit = mirror.hard.commit.max(applied).min(mirror.last());
        mirror.identity.boots += 1;
        let Identity { group, id, boots } = mirror.identity;
        mirror.write(RecordKind::Identity { group, id, boots })?;
        mirror.store.sync()?;
        Ok(Recovered::Member(Box::new(mirror)))
    }

    fn empty(store: L, identity: Identity) -> Self {
        Mirror {
            store,
            identity,
            start: (0, 0),
            entries: VecDeque::new(),
            bytes: 0,
            hard: Hard::default(),
            history: BTreeMap::new(),
            cut: None,
            is_offered: false,
            offers: BTreeMap::new(),
            wanted: Cell::new(None),
            handed: Cell::new(None),
            poisoned: Cell::new(None),
        }
    }

    /// Index before the first entry.
    pub fn start(&self) -> u64 {
        self.start.0
    }

    /// Index of the last entry.
    pub fn last(&self) -> u64 {
        self.start.0 + self.entries.len() as u64
    }

    /// Index of the first entry behind this one that may give a replica a vote.
    pub fn promotion_after(&self, index: u64) -> Option<u64> {
        let first = index.saturating_sub(self.start.0) as usize;
        let promotes = |entry: &Entry| {
            entry.get_entry_type() == EntryType::EntryConfChange
                && !matches!(
                    Change::decode(&entry.context),
                    Ok(Change::Remove { .. } | Change::AddLearner { .. })
                )
        };
        let entries = self.entries.iter().skip(first).map(|stored| &stored.entry);
        entries.into_iter().find(|entry| promotes(entry)).map(|entry| entry.index)
    }

    /// The membership from `index` on; empty for a replica that has not received one.
    pub fn configuration_at(&self, index: u64) -> Configuration {
        self.history.range(..=index).next_back().map(|(_, found)| found.clone()).unwrap_or_default()
    }

    /// Appends entries; the first may replace what was at its index and beyond.
    pub fn append(&mut self, entries: &[Entry]) -> Result<(), LogError> {
        for entry in entries {
            self.write(RecordKind::Entry(entry.clone()))?;
            self.put(entry.clone());
        }
        Ok(())
    }

    pub fn set_hard(&mut self, hard: Hard) -> Result<(), LogError> {
        self.hard = hard;
        self.write(RecordKind::Hard(hard))
    }

    /// Moves the commit index without writing it: it is only a hint after a restart.
    pub fn set_commit(&mut self, commit: u64) {
        self.hard.commit = commit;
    }

    pub fn set_membership(&mut self, index: u64, configuration: Configuration) -> Result<(), LogError> {
        self.write(RecordKind::Membership { index, configuration: configuration.clone() })?;
        self.history.insert(index, configuration);
        Ok(())
    }

    /// The log begins again after a transferred state.
    pub fn reset(&mut self, index: u64, term: u64, configuration: Configuration) -> Result<(), LogError> {
        self.write(RecordKind::Start { index, term, keep: false, configuration: configuration.clone() })?;
        self.cut = Some(Cut { index, term, configuration: configuration.clone() });
        self.is_offered = false;
        self.offers.clear();
        self.move_start(index, term, false, configuration);
        Ok(())
    }

    /// The state after entry `index` can be fetched from here.
    pub fn offer_checkpoint(&mut self, index: u64) -> bool {
        let known = index >= self.start.0 && index <= self.last();
        let Some(term) = self.term_of(index).filter(|_| known) else { return false };
        if self.cut.as_ref().is_none_or(|cut| cut.index < index) {
            self.cut = Some(Cut { index, term, configuration: self.configuration_at(index) });
            self.is_offered = true;
        }
        true
    }

    /// The state after entry `index` cannot be fetched from here any more.
    pub fn withdraw(&mut self, index: u64) {
        self.is_offered &= self.cut.as_ref().is_some_and(|cut| cut.index != index);
        self.offers.retain(|_, cut| cut.index != index);
    }

    /// Drops at most `step` entries up to `index`; returns whether there is more to drop. The caller has what they have
    /// led to: in memory, or as a checkpoint on the disk, of the whole state or of what has changed. For a replica that
    /// lacks them a new checkpoint is made.
    pub fn compact(&mut self, index: u64, step: u64) -> Result<bool, LogError> {
        let offered = self.offers.values().map(|cut| cut.index).min().unwrap_or(u64::MAX);
        let allowed = index.min(offered).min(self.last());
        let to = allowed.min(self.start.0 + step);
        let Some(term) = self.term_of(to).filter(|_| to > self.start.0) else { return Ok(false) };
        let configuration = self.configuration_at(to);
        self.write(RecordKind::Start { index: to, term, keep: true, configuration: configuration.clone() })?;
        self.move_start(to, term, true, configuration);
        self.cut.take_if(|cut| cut.index < to);
        self.store.release(to)?;
        Ok(allowed > to)
    }

    /// Whether the entry at `index` is still as appended, down to its last byte.
    pub fn is_intact(&self, index: u64) -> bool {
        match self.stored(index) {
            None => true,
            Some(stored) => stored.sum == sum(&stored.entry) && crate::raft::check::is_intact(&stored.entry),
        }
    }

    /// Records the checkpoint returned by `Storage::snapshot`, which itself has only shared access.
    pub fn note_offer(&mut self) {
        if let (Some(id), Some(cut)) = (self.handed.take(), &self.cut) {
            self.offers.entry(id).or_insert_with(|| cut.clone());
        }
    }

    /// Changes a byte of an entry at rest, for tests and fault injection.
    #[cfg(feature = "inject")]
    pub fn corrupt(&mut self, index: u64, at: usize) -> bool {
        let Some(position) = index.checked_sub(self.start.0 + 1) else { return false };
        let Some(stored) = self.entries.get_mut(position as usize) else { return false };
        let mut bytes = stored.entry.data.to_vec();
        let Some(byte) = bytes.get_mut(at) else { return false };
        *byte ^= 1;
        stored.entry.data = bytes.into();
        true
    }

    fn write(&mut self, kind: RecordKind) -> Result<(), LogError> {
        self.store.append(&Record(kind))
    }

    fn put(&mut self, entry: Entry) {
        let keep = entry.index.saturating_sub(self.start.0 + 1);
        if entry.index > self.start.0 && keep <= self.entries.len() as u64 {
            self.forget(keep as usize..);
            self.bytes += size(&entry);
            self.entries.push_back(Stored { sum: sum(&entry), entry });
        }
    }

    fn forget(&mut self, which: impl RangeBounds<usize>) {
        self.bytes -= self.entries.drain(which).map(|stored| size(&stored.entry)).sum::<u64>();
    }

    fn move_start(&mut self, index: u64, term: u64, keep: bool, configuration: Configuration) {
        let dropped = index.saturating_sub(self.start.0).min(self.entries.len() as u64);
        let dropped = if keep { dropped as usize } else { self.entries.len() };
        self.forget(..dropped);
        if !keep {
            self.history.clear();
        }
        self.start = (index, term);
        self.history = self.history.split_off(&index);
        self.history.insert(index, configuration);
    }

    /// Bytes of the entries in memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn stored(&self, index: u64) -> Option<&Stored> {
        self.entries.get(index.checked_sub(self.start.0 + 1)? as usize)
    }

    fn term_of(&self, index: u64) -> Option<u64> {
        if index == self.start.0 {
            return Some(self.start.1);
        }
        self.stored(index).map(|stored| stored.entry.term)
    }
}

/// The approximate memory of an entry.
fn size(entry: &Entry) -> u64 {
    (size_of::<Stored>() + entry.context.len() + entry.data.len()) as u64
}

/// A checksum of an entry's place in the log: its bytes have their own checksum, whose head this one covers.
fn sum(entry: &Entry) -> u32 {
    let mut fields = [0u8; 29];
    fields[..8].copy_from_slice(&entry.index.to_le_bytes());
    fields[8..16].copy_from_slice(&entry.term.to_le_bytes());
    fields[16..20].copy_from_slice(&(entry.context.len() as u32).to_le_bytes());
    fields[20..24].copy_from_slice(&(entry.data.len() as u32).to_le_bytes());
    fields[24] = entry.get_entry_type() as u8;
    let head = entry.context.first_chunk::<4>().copied().unwrap_or_default();
    fields[25..].copy_from_slice(&head);
    wire::crc32c(&fields)
}

impl<L: LogStore> Storage for Mirror<L> {
    fn initial_state(&self) -> ::raft::Result<RaftState> {
        let mut state = RaftState::default();
        state.hard_state.term = self.hard.term;
        state.hard_state.vote = self.hard.vote;
        state.hard_state.commit = self.hard.commit;
        state.conf_state = self.configuration_at(u64::MAX).conf_state();
        Ok(state)
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> ::raft::Result<Vec<Entry>> {
        if low <= self.start.0 {
            return Err(StorageError::Compacted.into());
        }
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let mut entries = Vec::new();
        let mut size = 0u64;
        for index in low..high {
            let stored = self.stored(index).ok_or(StorageError::Unavailable)?;
            if stored.sum != sum(&stored.entry) {
                // The engine gives up on `Unavailable`; the code that catches this finds the reason here.
                self.poisoned.set(Some(index));
                return Err(StorageError::Unavailable.into());
            }
            size += (stored.entry.context.len() + stored.entry.data.len()) as u64 + 32;
            if size > max_size && !entries.is_empty() {
                break;
            }
            entries.push(stored.entry.clone());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> ::raft::Result<u64> {
        if index < self.start.0 {
            return Err(StorageError::Compacted.into());
        }
        Ok(self.term_of(index).ok_or(StorageError::Unavailable)?)
    }

    fn first_index(&self) -> ::raft::Result<u64> {
        Ok(self.start.0 + 1)
    }

    fn last_index(&self) -> ::raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, to: u64) -> ::raft::Result<Snapshot> {
        let offered = self.offers.get(&to).filter(|cut| cut.index >= self.start.0);
        let fits = |cut: &&Cut| cut.configuration.contains(to) && cut.index >= request_index;
        let latest = self.cut.as_ref().filter(|_| self.is_offered);
        let Some(cut) = offered.or(latest).filter(fits) else {
            self.wanted.set(Some(to));
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        };
        self.handed.set(Some(to));
        let mut data = Vec::new();
        cut.configuration.encode(&mut data);
        Ok(codec::snapshot(cut.index, cut.term, &cut.configuration, data.into()))
    }
}
