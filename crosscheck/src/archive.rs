//! Evidence records as they are kept: each with its checksum, since memory that forgets what was wrong may
//! also make something up.

use std::collections::VecDeque;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::admin::EvidenceRecord;
use crate::{evidence, limits};

/// The last records, numbered from 1 since the start of the process.
#[derive(Debug, Default)]
pub struct Archive {
    kept: VecDeque<Sealed>,
    total: u64,
}

/// A record's bytes, and their sum together with its number.
#[derive(Debug)]
struct Sealed {
    bytes: Box<[u8]>,
    sum: u64,
}

impl Archive {
    /// Number of the next record.
    pub fn next_number(&self) -> u64 {
        self.total + 1
    }

    /// Keeps a record, which has [`Archive::next_number`]; the oldest goes when there are too many.
    pub fn keep(&mut self, record: &EvidenceRecord) {
        self.total += 1;
        if self.kept.len() == limits::EVIDENCE_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Sealed::of(record, self.total));
    }

    /// Puts what is known by now into the texts of the last records: the names of their objects.
    pub fn amend(&mut self, text: impl Fn(&str) -> String) {
        let first = self.next_number() - self.kept.len() as u64;
        for (number, sealed) in (first..).zip(&mut self.kept).rev().take(limits::RECORDS_NAMED_LATER) {
            let Some(mut record) = sealed.intact(number) else { continue };
            let before = record.objects.clone();
            record.objects.iter_mut().for_each(|object| *object = text(object));
            if record.objects != before {
                *sealed = Sealed::of(&record, number);
            }
        }
    }

    /// Records with a greater number than `after`, oldest first. One that is damaged says so, and nothing else.
    pub fn after(&self, after: u64) -> Vec<EvidenceRecord> {
        let first = self.next_number() - self.kept.len() as u64;
        (first..)
            .zip(&self.kept)
            .filter(|(number, _)| *number > after)
            .map(|(n, sealed)| sealed.read(n))
            .collect()
    }

    /// The last record.
    pub fn last(&self) -> Option<EvidenceRecord> {
        self.kept.back().map(|sealed| sealed.read(self.total))
    }

    /// Records kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }
}

impl Sealed {
    fn of(record: &EvidenceRecord, number: u64) -> Self {
        // Plain members are always JSON; a record that were none would read as damaged.
        let bytes = serde_json::to_vec(record).unwrap_or_default().into_boxed_slice();
        Sealed { sum: xxh3_64_with_seed(&bytes, number), bytes }
    }

    fn read(&self, number: u64) -> EvidenceRecord {
        self.intact(number).unwrap_or_else(|| evidence::damaged(number))
    }

    fn intact(&self, number: u64) -> Option<EvidenceRecord> {
        let fits = xxh3_64_with_seed(&self.bytes, number) == self.sum;
        fits.then(|| serde_json::from_slice(&self.bytes).ok()).flatten()
    }
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
    fn the_last_records_get_names_and_a_damaged_one_stays_damaged() {
        let mut archive = archive(limits::RECORDS_NAMED_LATER + 1);
        archive.kept[3].bytes[5] ^= 1;
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
        for bit in 0..archive.kept[1].bytes.len() * 8 {
            archive.kept[1].bytes[bit / 8] ^= 1 << (bit % 8);
            let records = archive.after(0);
            assert_eq!((records[0].clone(), records[2].clone()), (record(1), record(3)));
            assert_eq!(
                (records[1].number, records[1].stage.as_str(), records[1].replica),
                (2, "evidence", None)
            );
            archive.kept[1].bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // A whole record in the place of another one.
        archive.kept.swap(0, 1);
        assert!(archive.after(0)[..2].iter().all(|record| record.stage == "evidence"));
    }
}
