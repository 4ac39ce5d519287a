//! Records as the engine writes them, for tests of the log alone.

use order::{FileOptions, Record};

/// Small files, so that they are used up.
pub const SMALL: FileOptions = FileOptions { segment_bytes: 64 << 10, limit_bytes: 64 << 20, spares: 2 };

/// The group of these tests.
pub const GROUP: u64 = 0x00c0_ffee;

/// Engine id of an incarnation of the replica in a slot.
pub fn engine_id(slot: u8, incarnation: u64) -> u64 {
    incarnation << 8 | (u64::from(slot) + 1)
}

/// The identity of the replica.
pub fn identity_in(group: u64, id: u64, boots: u32) -> Record {
    record(&[&[1][..], &group.to_le_bytes(), &id.to_le_bytes(), &boots.to_le_bytes()])
}

/// The same, in the group of these tests, in its first incarnation.
pub fn identity(slot: u8) -> Record {
    identity_in(GROUP, engine_id(slot, 1), 0)
}

/// An entry with a body of this many bytes.
pub fn entry(index: u64, length: u32) -> Record {
    let body = vec![index as u8; length as usize];
    let fields = [1u64, index].map(u64::to_le_bytes).concat();
    record(&[&[4, 0][..], &fields, &0u32.to_le_bytes(), &length.to_le_bytes(), &body])
}

/// Indexes of the entries among records.
pub fn entries(records: &[Record]) -> Vec<u64> {
    records.iter().filter_map(Record::entry_index).collect()
}

fn record(parts: &[&[u8]]) -> Record {
    Record::decode(parts.concat().into()).expect("a record")
}
