//! The messages of a log about damaged, truncated, foreign and swapped files name the file, the evidence and the
//! remedy. No file is changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::records::{GROUP, SMALL, engine_id, entries, entry, identity, identity_in};
use order::{FileLog, LogError, LogStore, Record};
use tempfile::TempDir;

/// Bytes of a log file before its first record.
const HEADER: usize = 24;
/// Of entries, so that some fill a file.
const BODY: u32 = 3000;

fn root() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// A log of replica 1 with `count` entries, each synced; the process is gone.
fn written(data: &Path, count: u64) {
    let (mut log, _) = FileLog::open(data, 0, SMALL).unwrap();
    log.append(&identity(0)).unwrap();
    for index in 1..=count {
        log.append(&entry(index, BODY)).unwrap();
        log.sync().unwrap();
    }
    log.tick().unwrap();
}

fn reopen(data: &Path) -> Result<Vec<u64>, LogError> {
    FileLog::open(data, 0, SMALL).map(|(_, records)| entries(&records))
}

/// Every file below a directory.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

fn segments(data: &Path) -> Vec<PathBuf> {
    let of_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    files(&data.join("log")).into_keys().filter(of_log).collect()
}

/// The log refuses to open, changes nothing, and its message has each of these texts once.
fn refused(data: &Path, words: &[&str]) -> LogError {
    let before = files(data);
    let error = FileLog::open(data, 0, SMALL).map(|_| ()).expect_err("it opens");
    let text = error.to_string();
    for word in words {
        assert_eq!(text.matches(word).count(), 1, "`{word}` in: {text}");
    }
    assert!(error.is_operators(), "{text}");
    assert!(std::error::Error::source(&error).is_none(), "whoever prints sources prints them twice: {text}");
    let after = files(data);
    assert!(before == after, "files changed: {:?} to {:?}", before.keys(), after.keys());
    error
}

fn refill(data: &Path) -> String {
    format!("move {} away (keep it until all replicas serve) and start again", data.display())
}

#[test]
fn nobody_else_reads_what_clients_wrote_also_where_an_earlier_release_let_them() {
    let root = root();
    let data = root.path().join("deep/data");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    written(&data, 60);
    let (all, log) = (files(&data), data.join("log"));
    assert!(all.len() > 5, "{:?}", all.keys());
    assert!(
        all.keys().all(|file| mode(file) == 0o600),
        "{:?}",
        all.keys().map(|file| mode(file)).collect::<Vec<_>>()
    );
    assert_eq!([&root.path().join("deep"), &data, &log].map(|directory| mode(directory)), [0o700; 3]);

    all.keys().for_each(|file| fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap());
    fs::set_permissions(&log, fs::Permissions::from_mode(0o755)).unwrap();
    reopen(&data).unwrap();
    assert!(files(&data).keys().all(|file| mode(file) == 0o600));
    assert_eq!(mode(&log), 0o700);

    // A foreign file is there too: then the rights to the directory are not changed.
    fs::write(log.join("notes"), "mine").unwrap();
    let notes = log.join("notes");
    for path in [&log, &notes] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    reopen(&data).unwrap();
    assert_eq!((mode(&log), mode(&notes)), (0o755, 0o755));
    assert!(segments(&data).iter().all(|file| mode(file) == 0o600));
}

#[test]
fn the_rights_to_another_users_files_are_that_users_business() {
    let root = root();
    written(root.path(), 3);
    let file = segments(root.path()).remove(0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    if chown(&file, Some(1), Some(1)).is_err() {
        return println!("only root can give a file away: skipped");
    }
    reopen(root.path()).unwrap();
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o777), (1, 0o666));
}

#[test]
fn files_of_somebody_else_are_left_as_they_are() {
    let root = root();
    let data = root.path();
    written(data, 60);
    let log = data.join("log");
    let contents: [&[u8]; 4] = [b"x", b"a log of something else\n", &[7; 100_000], &[0, 0, 0, 0, 0, 0, 0, 1]];
    for name in
        ["log/00000999.log", "log/00000001.log", "log/00000999.spare", "log/lock", "log/synced", "identity"]
    {
        let file = data.join(name);
        let ours = fs::read(&file).ok();
        for content in contents {
            fs::write(&file, content).unwrap();
            let error = refused(data, &[name, "it is left as it is", "move that file away and start again"]);
            assert!(matches!(error, LogError::Foreign { .. }), "{name}: {error}");
        }
        match ours {
            Some(ours) => fs::write(&file, ours).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
    }
    // These names are not ours, though some look similar.
    for name in
        ["server.log", "7.log", "000000007.log", "00000007.log.gz", "99999999999999999999.log", "x.spare"]
    {
        fs::write(log.join(name), "somebody's").unwrap();
    }
    assert_eq!(reopen(data).unwrap().len(), 60);
    let (mut store, _) = FileLog::open(data, 0, SMALL).unwrap();
    store.wipe().unwrap();
    let left: Vec<PathBuf> = files(&log).into_keys().filter(|file| !file.ends_with("lock")).collect();
    assert_eq!(left.len(), 6, "{left:?}");
}

/// Too long to be a file of the log: it is not even read.
#[test]
fn a_foreign_file_is_not_read_into_memory() {
    let root = root();
    written(root.path(), 3);
    let file = root.path().join("log/00000002.log");
    fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    let error = FileLog::open(root.path(), 0, SMALL).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("1099511627776 bytes"), "{error}");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = FileLog::open(root.path(), 0, SMALL).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("00000002.log: it is not a regular file; move it away"), "{error}");
}

#[test]
fn what_takes_the_place_of_a_log_file_is_not_deleted_with_the_log() {
    let root = root();
    let (mut log, _) = FileLog::open(root.path(), 0, SMALL).unwrap();
    log.append(&identity(0)).unwrap();
    (1..=60).for_each(|index| log.append(&entry(index, BODY)).unwrap());
    log.sync().unwrap();
    let first = segments(root.path()).remove(0);
    fs::write(&first, "mine").unwrap();
    let error = log.wipe().unwrap_err();
    assert!(matches!(error, LogError::Foreign { .. }), "{error}");
    assert_eq!(fs::read(&first).unwrap(), b"mine");
}

#[test]
fn what_appears_in_the_place_of_the_next_file_is_not_overwritten() {
    let root = root();
    let (mut log, _) = FileLog::open(root.path(), 0, SMALL).unwrap();
    log.append(&identity(0)).unwrap();
    let next = root.path().join("log/00000002.log");
    fs::write(&next, "mine").unwrap();
    let error = (1..=60).find_map(|index| log.append(&entry(index, BODY)).err()).expect("the file is full");
    assert!(matches!(error, LogError::Foreign { .. }), "{error}");
    assert_eq!(fs::read(&next).unwrap(), b"mine");
}

#[test]
fn another_replicas_directory_is_refused() {
    let root = root();
    let data = root.path();
    written(data, 60);
    let text = FileLog::open(data, 1, SMALL).map(|_| ()).unwrap_err().to_string();
    let words = format!("{} holds the log of replica 1, and this is replica 2", data.display());
    assert_eq!(text, format!("{words}: give each replica its own directory"));
    // Also while its owner uses it, and where only its log names the owner.
    let owner = FileLog::open(data, 0, SMALL).unwrap();
    assert_eq!(FileLog::open(data, 1, SMALL).map(|_| ()).unwrap_err().to_string(), text);
    drop(owner);
    fs::remove_file(data.join("identity")).unwrap();
    assert_eq!(FileLog::open(data, 1, SMALL).map(|_| ()).unwrap_err().to_string(), text);
    assert_eq!(reopen(data).unwrap().len(), 60, "its owner has a right to it");
}

#[test]
fn a_log_of_another_group_or_incarnation_does_not_mix_with_this_one() {
    let root = root();
    let (data, other) = (root.path().join("1"), root.path().join("2"));
    written(&data, 60);
    for names in [(GROUP + 1, engine_id(0, 1)), (GROUP, engine_id(0, 2))] {
        let _ = fs::remove_dir_all(&other);
        let (mut log, _) = FileLog::open(&other, 0, SMALL).unwrap();
        log.append(&identity_in(names.0, names.1, 0)).unwrap();
        (1..=60).for_each(|index| log.append(&entry(index, BODY)).unwrap());
        log.sync().unwrap();
        log.tick().unwrap();
        drop(log);
        let last = segments(&data).pop().unwrap();
        let ours = fs::read(&last).unwrap();
        fs::copy(other.join("log").join(last.file_name().unwrap()), &last).unwrap();
        refused(&data, &["belongs to another log", &refill(&data)]);
        fs::write(&last, ours).unwrap();
        let claims = data.join("log/synced");
        let ours = fs::read(&claims).unwrap();
        fs::copy(other.join("log/synced"), &claims).unwrap();
        refused(&data, &["synced belongs to another log", &refill(&data)]);
        fs::write(&claims, ours).unwrap();
    }
    // A whole log of another group, below the identity of this directory.
    let (ours, theirs) = (root.path().join("3"), root.path().join("4"));
    written(&ours, 3);
    let (mut log, _) = FileLog::open(&theirs, 0, SMALL).unwrap();
    log.append(&identity_in(GROUP + 5, engine_id(0, 1), 0)).unwrap();
    log.sync().unwrap();
    drop(log);
    fs::copy(theirs.join("identity"), ours.join("identity")).unwrap();
    refused(&ours, &["00000001.log belongs to another log", "the directory is of group 0000000000c0fff3"]);
}

#[test]
fn a_truncated_file_is_recognised_by_its_length() {
    let root = root();
    let data = root.path();
    written(data, 60);
    let all = segments(data);
    assert!(all.len() > 2, "{all:?}");
    for file in [all.first().unwrap(), all.last().unwrap()] {
        let intact = fs::read(file).unwrap();
        for length in [0, 1, 8, HEADER - 1, HEADER, HEADER + 1, intact.len() / 2, intact.len() - 1] {
            fs::write(file, &intact[..length]).unwrap();
            let name = file.display().to_string();
            if (8..HEADER).contains(&length) || length == 0 || length == 1 {
                refused(
                    data,
                    &[&name, &format!("it has {length} bytes and was made with 65536"), &refill(data)],
                );
            } else {
                let error = refused(
                    data,
                    &[&name, &format!("it has {length} bytes and was made with"), &refill(data)],
                );
                let LogError::Truncated { made, .. } = error else { panic!("{error}") };
                assert_eq!(made, intact.len() as u64);
            }
        }
        fs::write(file, [&intact[..], b"more"].concat()).unwrap();
        refused(data, &["it is longer than it was made", &refill(data)]);
        fs::write(file, intact).unwrap();
    }
    assert_eq!(reopen(data).unwrap().len(), 60);
}

#[test]
fn a_damaged_header_or_identity_is_reported() {
    let root = root();
    let data = root.path();
    written(data, 60);
    for file in [segments(data).remove(0), segments(data).pop().unwrap(), data.join("identity")] {
        let intact = fs::read(&file).unwrap();
        for byte in 0..HEADER {
            let mut broken = intact.clone();
            broken[byte] ^= 0x10;
            fs::write(&file, broken).unwrap();
            refused(data, &[&file.display().to_string(), "start again"]);
        }
        let mut broken = intact.clone();
        broken[..HEADER].fill(0);
        fs::write(&file, broken).unwrap();
        refused(data, &[&file.display().to_string(), "start again"]);
        fs::write(&file, intact).unwrap();
    }
    // No crash leaves only zeros in a file that has its final name.
    let last = segments(data).pop().unwrap();
    fs::write(&last, vec![0; 64 << 10]).unwrap();
    refused(data, &["its header is missing", &refill(data)]);
}

#[test]
fn a_log_that_lost_what_was_synced_last_is_refused() {
    let root = root();
    let data = root.path();
    written(data, 60);
    let last = segments(data).pop().unwrap();
    let intact = fs::read(&last).unwrap();
    let end = intact.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let record = BODY as usize + 56;
    // A bit of the last record, or of the last but one; the last 20 kB; all of the file.
    let mut damages: Vec<Vec<u8>> = Vec::new();
    for at in [end - 1, end - record / 2, end - record + 8] {
        let mut broken = intact.clone();
        broken[at] ^= 1;
        damages.push(broken);
    }
    for lost in [1, 100, record, 20_000, end - HEADER] {
        let mut broken = intact.clone();
        broken[end - lost.min(end - HEADER)..end].fill(0);
        damages.push(broken);
    }
    for broken in damages {
        fs::write(&last, broken).unwrap();
        let error = refused(data, &["has lost its end", "(entry 60) had been synced", &refill(data)]);
        let LogError::EndLost { file, at, last: found, synced, entry, .. } = error else { panic!("{error}") };
        assert!(file == last && at < end as u64 && found < synced && entry == 60);
    }
    fs::remove_file(&last).unwrap();
    refused(data, &["has lost its end", &refill(data)]);
    let all: Vec<(PathBuf, Vec<u8>)> =
        segments(data).into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect();
    all.iter().for_each(|(file, _)| fs::remove_file(file).unwrap());
    refused(data, &["has lost its end", "with record 0", &refill(data)]);
    all.iter().for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    fs::write(&last, intact).unwrap();
    assert_eq!(reopen(data).unwrap().len(), 60);
}

/// A claim costs a write to memory from time to time; so records synced since the last claim are not known to be
/// durable.
#[test]
fn a_claim_is_made_after_some_syncs_or_some_ticks() {
    let root = root();
    let claims = root.path().join("log/synced");
    let (mut log, _) = FileLog::open(root.path(), 0, SMALL).unwrap();
    log.append(&identity(0)).unwrap();
    log.tick().unwrap();
    assert!(!claims.exists(), "nothing is durable");
    let mut seen = std::collections::BTreeSet::new();
    for index in 1..=40 {
        log.append(&entry(index, 10)).unwrap();
        log.tick().unwrap();
        log.sync().unwrap();
        seen.insert(fs::read(&claims).unwrap_or_default());
    }
    assert!((5..=42).contains(&seen.len()), "{}", seen.len());
    let mut seen = std::collections::BTreeSet::new();
    for index in 41..=140 {
        log.append(&entry(index, 10)).unwrap();
        log.sync().unwrap();
        seen.insert(fs::read(&claims).unwrap());
    }
    assert!((12..=14).contains(&seen.len()), "{}", seen.len());
}

/// Files as an earlier release made them: without headers, and without `identity` and `synced`.
fn make_older(data: &Path) {
    for file in segments(data) {
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, [&bytes[HEADER..], &[0; HEADER]].concat()).unwrap();
    }
    fs::remove_file(data.join("identity")).unwrap();
    fs::remove_file(data.join("log/synced")).unwrap();
}

#[test]
fn a_directory_of_an_earlier_release_is_taken_over() {
    let root = root();
    let data = root.path();
    written(data, 60);
    make_older(data);
    fs::write(data.join("log/00000000.spare"), vec![0; 64 << 10]).unwrap();
    let older = segments(data);
    assert_eq!(reopen(data).unwrap().len(), 60);
    let text = fs::read_to_string(data.join("identity")).unwrap();
    let from = older.len() + 1;
    assert!(
        text.contains(&format!("replica 1\ngroup 0000000000c0ffee\nfiles with headers from {from}\n")),
        "{text}"
    );
    // It continues, in files of both kinds, and frees those of the earlier one.
    for round in 0..3 {
        let (mut log, records) = FileLog::open(data, 0, SMALL).unwrap();
        assert_eq!(entries(&records).last(), Some(&(60 + 20 * round)));
        for index in 1..=20 {
            log.append(&entry(60 + 20 * round + index, BODY)).unwrap();
            log.sync().unwrap();
        }
        log.tick().unwrap();
        if round == 1 {
            log.release(60).unwrap();
            assert!(older.iter().take(older.len() - 1).all(|file| !file.exists()));
            assert!(
                !files(data)
                    .keys()
                    .any(|file| file.extension().is_some_and(|extension| extension == "spare"))
            );
        }
    }
    assert_eq!(reopen(data).unwrap().last(), Some(&120));
    let last = segments(data).pop().unwrap();
    fs::write(&last, vec![0; 64 << 10]).unwrap();
    refused(data, &["its header is missing"]);
}

#[test]
fn a_damaged_directory_of_an_earlier_release_is_refused_too() {
    let root = root();
    let data = root.path();
    written(data, 60);
    make_older(data);
    let last = segments(data).pop().unwrap();
    let intact = fs::read(&last).unwrap();
    fs::write(&last, &intact[..40_000]).unwrap();
    refused(data, &["it has 40000 bytes and was made with 65536", &refill(data)]);
    fs::write(&last, &intact).unwrap();
    fs::write(data.join("log/00000999.log"), "mine").unwrap();
    let error = refused(data, &["00000999.log is not a file of this program"]);
    assert!(matches!(error, LogError::Foreign { .. }));
    fs::remove_file(data.join("log/00000999.log")).unwrap();
    // The result of a crash while that release made a file, before it wrote to it.
    let next = data.join(format!("log/{:08}.log", segments(data).len() + 1));
    fs::write(&next, vec![0; 30_000]).unwrap();
    assert_eq!(reopen(data).unwrap().len(), 60);
}

/// The process ended while it deleted the log: the remaining files look complete, and are not.
#[test]
fn a_log_that_was_given_up_is_given_up_altogether() {
    let root = root();
    let data = root.path();
    written(data, 60);
    let whole = files(data);
    let (mut log, _) = FileLog::open(data, 0, SMALL).unwrap();
    log.wipe().unwrap();
    drop(log);
    assert!(segments(data).is_empty() && !data.join("log/synced").exists());
    // The state in between.
    whole.iter().for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    let last = segments(data).pop().unwrap();
    fs::remove_file(last).unwrap();
    fs::rename(data.join("identity"), data.join("identity.discarded")).unwrap();
    assert!(reopen(data).unwrap().is_empty());
    assert!(segments(data).is_empty());
    let text = fs::read_to_string(data.join("identity")).unwrap();
    assert!(text.contains("group none") && !data.join("identity.discarded").exists(), "{text}");
    let (mut log, records) = FileLog::open(data, 0, SMALL).unwrap();
    assert_eq!(records, Vec::<Record>::new());
    log.append(&identity_in(GROUP, engine_id(0, 2), 0)).unwrap();
    log.append(&entry(1, 10)).unwrap();
    log.sync().unwrap();
    drop(log);
    assert_eq!(reopen(data).unwrap(), [1]);
}

#[test]
fn what_the_system_refuses_is_said_once_with_what_to_do() {
    let root = root();
    let file = root.path().join("file");
    fs::write(&file, "mine").unwrap();
    refused_path(&file, "use another data directory");
    refused_path(&file.join("below"), "use another data directory");
    let held = FileLog::open(&root.path().join("data"), 0, SMALL).unwrap();
    let error = FileLog::open(&root.path().join("data"), 0, SMALL).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string().matches("another process").count(), 1, "{error}");
    assert!(!error.is_operators(), "it may be about to end");
    drop(held);
}

fn refused_path(path: &Path, remedy: &str) {
    let error = FileLog::open(path, 0, SMALL).map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(remedy) && error.is_operators(), "{text}");
    assert_eq!(text.to_lowercase().matches("not a directory").count(), 1, "{text}");
}
