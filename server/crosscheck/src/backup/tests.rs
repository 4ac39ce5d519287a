//! Files of backups: what was written is read, and nothing else is.

use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use object::{CopiedPart, RegionId};
use order::State;
use schedule::DispatcherState;
use wire::SplitMix64;

use super::check::read_from;
use super::file::BackupFile;
use super::*;
use crate::admin::BackupGroup;
use crate::packed_state::PackWriter;
use crate::state::{PartsScan, begin_parts, put_parts};

fn header() -> BackupHeader {
    let group = BackupGroup {
        cluster: "one".into(),
        replicas: 3,
        release: "0.1.0".into(),
        settings: vec![("mode".into(), "RDGX".into())],
    };
    BackupHeader { made_us: 5, agreed_by: 2, group }
}

/// A state of a few regions as replicas pack it, in pieces of this size.
fn pieces(size: usize) -> (Vec<Bytes>, BackupEnd) {
    let mut out = PackWriter::new(size);
    begin_parts(&mut out);
    for region_id in 0..20 as RegionId {
        let bytes = vec![region_id as u8; 40 * region_id as usize];
        let part = CopiedPart { bytes, is_first: region_id % 2 == 0, ..CopiedPart::default() };
        put_parts(&[(region_id, part)], &mut out);
    }
    let order = State { index: 70, time_us: 9, ..State::default() };
    out.put(&RegionId::MAX.to_le_bytes());
    out.put(&70u64.to_le_bytes());
    out.put(&60u64.to_le_bytes());
    out.put_block(&order.encode());
    let mut schedule = Vec::new();
    DispatcherState::<()>::genesis().encode(&mut schedule, |(), _| ());
    out.put_block(&schedule);
    let packed = out.finish();
    let count = packed.pieces().len() as u32;
    let end = BackupEnd { index: 70, batch: 60, time_us: 9, pieces: count, bytes: packed.length() };
    (packed.pieces().to_vec(), end)
}

fn write(path: &Path, (pieces, end): &(Vec<Bytes>, BackupEnd)) {
    let mut file = BackupFile::create(path, false, &header()).unwrap();
    pieces.iter().for_each(|piece| file.piece(piece).unwrap());
    file.finish(end).unwrap();
}

/// A backup in a folder, with its bytes.
fn written() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup");
    write(&path, &pieces(1000));
    let bytes = std::fs::read(&path).unwrap();
    (folder, path, bytes)
}

fn verified(bytes: &[u8]) -> Result<Backup, BackupError> {
    read_from(Cursor::new(bytes), Path::new("file"), &mut |_| Ok(()))
}

#[test]
fn a_backup_is_read_as_written_and_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path, _) = written();
    let backup = verify(&path).unwrap();
    let (pieces, end) = pieces(1000);
    assert_eq!((backup.header, backup.end), (header(), end));
    let mut read = Vec::new();
    super::check::read::<BackupError>(&path, &mut |piece| {
        read.push(piece);
        Ok(())
    })
    .unwrap();
    assert_eq!(read, pieces);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn the_position_is_found_however_the_state_is_cut() {
    for size in [1, 3, 7, 64, 1000, 1 << 20] {
        let (pieces, end) = pieces(size);
        let mut scan = PartsScan::default();
        pieces.iter().for_each(|piece| scan.put(piece.clone()).unwrap());
        let head = scan.finish().unwrap();
        assert_eq!((head.index, head.batch, head.order.time_us), (end.index, end.batch, end.time_us));
        let mut short = PartsScan::default();
        pieces[..pieces.len() - 1].iter().for_each(|piece| short.put(piece.clone()).unwrap());
        assert!(short.finish().is_err());
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let (_folder, _, good) = written();
    assert!(verified(&good).is_ok());
    let mut bad = good.clone();
    for bit in 0..good.len() * 8 {
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(verified(&bad).is_err(), "bit {bit}");
        bad[bit / 8] = good[bit / 8];
    }
}

#[test]
fn ten_thousand_random_changes_are_found() {
    let (_folder, _, good) = written();
    let mut random = SplitMix64::new(1);
    for round in 0..10_000 {
        let mut bad = good.clone();
        for _ in 0..=random.next_u64() % 4 {
            let at = random.next_u64() as usize % bad.len();
            bad[at] ^= 1 << (random.next_u64() % 8);
        }
        assert!(bad == good || verified(&bad).is_err(), "round {round}");
    }
}

#[test]
fn every_cut_and_every_addition_is_found_and_so_are_pieces_in_anothers_place() {
    let (_folder, _, good) = written();
    for cut in 0..good.len() {
        let error = verified(&good[..cut]).unwrap_err();
        assert!(matches!(error, BackupError::Corrupt { .. }), "{cut}: {error}");
    }
    for more in [&b"\0"[..], b"more", &good] {
        assert!(verified(&[&good, more].concat()).is_err());
    }
    let (mut swapped, end) = pieces(1000);
    let folder = tempfile::tempdir().unwrap();
    // Equal lengths: only the order differs, which the number in each frame tells.
    swapped.swap(1, 2);
    let path = folder.path().join("swapped");
    write(&path, &(swapped, end));
    let other = std::fs::read(&path).unwrap();
    let differ = good.iter().zip(&other).position(|(one, other)| one != other).unwrap();
    let frame = 1000 + 13 + 32;
    let first = 12 + 13 + serde_json::to_vec(&header()).unwrap().len() + 32 + frame;
    assert!(differ >= first);
    let parts = [&good[..first], &good[first + frame..first + 2 * frame], &good[first..first + frame]];
    let swapped = [&parts.concat()[..], &good[first + 2 * frame..]].concat();
    let error = verified(&swapped).unwrap_err().to_string();
    assert!(error.contains("in another's place"), "{error}");
}

#[test]
fn other_files_and_later_formats_are_refused_with_what_to_do() {
    let text = |bytes: &[u8]| verified(bytes).unwrap_err().to_string();
    assert!(text(b"some other file of somebody").contains("is no backup"));
    assert!(text(b"").contains("it ends early"));
    let later = [&b"XCHKBKUP"[..], &2u32.to_le_bytes(), &[0; 50]].concat();
    assert!(
        text(&later).contains("format 2") && text(&later).contains("use the release"),
        "{}",
        text(&later)
    );
}

/// The length of a frame is as large as can be: no memory is allocated for it.
#[test]
fn a_length_is_not_believed_before_its_checksum_holds() {
    let (_folder, _, good) = written();
    let mut bad = good.clone();
    bad[12 + 5..12 + 9].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(verified(&bad).unwrap_err().to_string().contains("head of a frame"));
    let checksum = wire::crc32c(&bad[12..12 + 9]);
    bad[12 + 9..12 + 13].copy_from_slice(&checksum.to_le_bytes());
    assert!(verified(&bad).unwrap_err().to_string().contains("longer than any"));
}

#[test]
fn no_file_is_overwritten_unless_that_is_wanted_and_what_is_given_up_leaves_nothing() {
    let (folder, path, good) = written();
    let refused = BackupFile::create(&path, false, &header()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, BackupError::Exists { .. }) && refused.to_string().contains("--force"));
    drop(BackupFile::create(&path, true, &header()).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), good, "it was given up");
    // One that has come while it was written.
    let other = folder.path().join("other");
    let (pieces, end) = pieces(1000);
    let mut file = BackupFile::create(&other, false, &header()).unwrap();
    std::fs::write(&other, "mine").unwrap();
    pieces.iter().for_each(|piece| file.piece(piece).unwrap());
    assert!(matches!(file.finish(&end), Err(BackupError::Exists { .. })));
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "mine");
    let mut file = BackupFile::create(&other, true, &header()).unwrap();
    // A state that begins again leaves nothing of the one before.
    file.piece(&[9; 5000]).unwrap();
    file.begin_again().unwrap();
    pieces.iter().for_each(|piece| file.piece(piece).unwrap());
    let digest = file.finish(&end).unwrap();
    assert_eq!(verify(&other).unwrap().digest, digest);
    assert_eq!(std::fs::read(&other).unwrap(), good);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_full_disk_is_an_error_that_says_so() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let text = BackupError::Io { path: "backup".into(), error: full }.to_string();
    assert!(
        text.starts_with("backup: ") && text.contains("the disk is full") && text.contains("removed again")
    );
}
