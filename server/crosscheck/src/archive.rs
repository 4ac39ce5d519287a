//! Stored evidence records, each with its checksum: memory can corrupt a record of a fault just as it corrupts objects.

use std::collections::VecDeque;

use object::Sealed;

use crate::admin::EvidenceRecord;
use crate::{evidence, limits};

/// The last records, numbered from 1 since the start of the process.
#[derive(Debug, Default)]
pub struct Archive {
    /// Each record is sealed with its number, and the queue itself is not: a damaged record is shown as damaged, and is
    /// no reason to replace the replica.
    kept: VecDeque<Sealed<(u64, Box<[u8]>)>>,
    total: u64,
}

impl Archive {
    /// Number of the next record.
    pub fn next_number(&self) -> u64 {
        self.total + 1
    }

    /// Keeps a record, which has [`Archive::next_number`]; removes the oldest when there are too many.
    pub fn keep(&mut self, record: &EvidenceRecord) {
        self.total += 1;
        if self.kept.len() == limits::EVIDENCE_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(seal(record, self.total));
    }

    /// Adds names of objects that have become known to the texts of the last records.
    pub fn amend(&mut self, text: impl Fn(&str) -> String) {
        let next = self.next_number();
        for number in next.saturating_sub(limits::RECORDS_NAMED_LATER as u64)..next {
            self.change(number, |record| record.objects.iter_mut().for_each(|object| *object = text(object)));
        }
    }

    /// Changes the record with this number, unless it is damaged or no longer kept.
    pub fn change(&mut self, number: u64, change: impl Fn(&mut EvidenceRecord)) {
        let first = self.next_number() - self.kept.len() as u64;
        let at = number.checked_sub(first).map(|at| at as usize);
        let Some(sealed) = at.and_then(|at| self.kept.get_mut(at)) else { return };
        let Some(before) = intact(sealed, number) else { return };
        let mut record = before.clone();
        change(&mut record);
        if record != before {
            *sealed = seal(&record, number);
        }
    }

    /// Records with a greater number than `after`, oldest first. A damaged one is replaced by a record that only says
    /// so.
    pub fn after(&self, after: u64) -> Vec<EvidenceRecord> {
        let first = self.next_number() - self.kept.len() as u64;
        (first..)
            .zip(&self.kept)
            .filter(|(number, _)| *number > after)
            .map(|(number, sealed)| read(sealed, number))
            .collect()
    }

    /// The last record.
    pub fn last(&self) -> Option<EvidenceRecord> {
        self.kept.back().map(|sealed| read(sealed, self.total))
    }

    /// The number of kept records.
    pub fn len(&self) -> usize {
        self.kept.len()
    }
}

fn seal(record: &EvidenceRecord, number: u64) -> Sealed<(u64, Box<[u8]>)> {
    // Plain members can always be written as JSON; a record that cannot would be read as damaged.
    let bytes = serde_json::to_vec(record).unwrap_or_default().into_boxed_slice();
    Sealed::new((number, bytes))
}

/// The record with this number, if it is the one that was kept.
fn intact(sealed: &Sealed<(u64, Box<[u8]>)>, number: u64) -> Option<EvidenceRecord> {
    let (_, bytes) = sealed.get().ok().filter(|(kept_as, _)| *kept_as == number)?;
    serde_json::from_slice(bytes).ok()
}

/// The record with this number, or one that reports it as damaged.
fn read(sealed: &Sealed<(u64, Box<[u8]>)>, number: u64) -> EvidenceRecord {
    intact(sealed, number).unwrap_or_else(|| evidence::damaged(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> EvidenceRecord {
        EvidenceRecord {
            number,
            time_us: 17,
            replica: Some(2),
            request: Some((5, 1)),
            objects: vec!["object 3:17.4".into()],
            class: "hardware-like".into(),
            stage: "entry-check".into(),
            outcome: "repaired".into(),
            core: Some(1),
            took_us: None,
            kind: None,
        }
    }

    fn archive(count: usize) -> Archive {
        let mut archive = Archive::default();
        (0..count).for_each(|_| archive.keep(&record(archive.next_number())));
        archive
    }

    #[test]
    fn the_last_records_are_read_as_they_were_kept() {
        let archive = archive(limits::EVIDENCE_KEPT + 3);
        assert_eq!(archive.len(), limits::EVIDENCE_KEPT);
        let total = limits::EVIDENCE_KEPT as u64 + 3;
        assert_eq!(archive.after(total - 2), [record(total - 1), record(total)]);
        assert_eq!(archive.after(0).first(), Some(&record(4)));
        assert_eq!(archive.last(), Some(record(total)));
        assert_eq!(Archive::default().last(), None);
    }

    #[test]
    fn a_record_in_the_place_of_another_one_is_not_believed() {
        let mut archive = archive(3);
        archive.kept.swap(0, 1);
        assert!(archive.after(0)[..2].iter().all(|record| record.stage == "evidence"));
    }

    #[test]
    fn the_last_records_get_names_and_a_damaged_one_stays_damaged() {
        let mut archive = archive(limits::RECORDS_NAMED_LATER + 1);
        archive.kept[3].corrupt(|(_, bytes)| bytes[5] ^= 1);
        archive.amend(|text| text.replace("object 3:17.4", "Item (object 3:17.4)"));
        let records = archive.after(0);
        assert_eq!(records[0], record(1), "too old");
        assert_eq!(records[3].stage, "evidence");
        let named = EvidenceRecord { objects: vec!["Item (object 3:17.4)".into()], ..record(2) };
        assert_eq!(records[1], named);
    }

    #[test]
    fn no_flipped_bit_of_a_record_is_believed() {
        let mut archive = archive(3);
        let bits = archive.kept[1].as_is().1.len() * 8;
        for bit in 0..bits {
            let flip = |(_, bytes): &mut (u64, Box<[u8]>)| bytes[bit / 8] ^= 1 << (bit % 8);
            archive.kept[1].corrupt(flip);
            let records = archive.after(0);
            assert_eq!((records[0].clone(), records[2].clone()), (record(1), record(3)));
            assert_eq!(
                (records[1].number, records[1].stage.as_str(), records[1].replica),
                (2, "evidence", None)
            );
            archive.kept[1].corrupt(flip);
        }
    }
}
