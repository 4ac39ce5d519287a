//! Data directories are damaged, truncated, swapped, or replaced by older copies: the replica refuses to start, with a
//! remedy, or receives its state from its peers, and no acknowledged write is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::lab::{HostileRun, Lab, REPLICAS, Setup};
use super::ms;
use super::outcome::Case;
use node::cluster::Dress;

/// How long until a replica serves, or has refused its directory.
const SETTLED: Duration = Duration::from_secs(10);
/// How long until it serves once the remedy was applied.
const BACK: Duration = Duration::from_secs(10);
/// The number of values of each case, and their length.
const KEPT: (usize, usize) = (200, 2_000);
/// Exit code of a replica that needs an operator's action.
const OPERATORS: &str = "exit code 2";

/// The remedy in a message, depending on the error.
const START_AGAIN: &str = "and start again";
const OWN: &str = "give each replica its own directory";

/// Damage to the files of the replicas, while all of them are down.
struct FileDamage {
    description: &'static str,
    /// The replicas whose directories are damaged.
    victims: &'static [u8],
    /// Whether these replicas must refuse to start.
    is_refused: bool,
    /// The remedy that the message must name.
    remedy_text: &'static str,
    act: fn(&Lab<'_>) -> io::Result<()>,
    /// The operator's action according to the message.
    remedy: fn(&Lab<'_>) -> io::Result<()>,
}

const DAMAGES: [FileDamage; 9] = [
    FileDamage {
        description: "a byte in the middle of replica 1's log is flipped",
        victims: &[1],
        is_refused: true,
        remedy_text: START_AGAIN,
        act: |lab| flip(&lab.data(1), 2),
        remedy: |lab| move_away(lab, &[1]),
    },
    FileDamage {
        description: "the last byte of replica 1's log is flipped",
        victims: &[1],
        is_refused: false,
        remedy_text: START_AGAIN,
        act: |lab| flip(&lab.data(1), 1),
        remedy: |lab| move_away(lab, &[1]),
    },
    FileDamage {
        description: "replica 1's log is cut to half of what was written",
        victims: &[1],
        is_refused: true,
        remedy_text: START_AGAIN,
        act: |lab| cut(&lab.data(1)),
        remedy: |lab| move_away(lab, &[1]),
    },
    FileDamage {
        description: "replica 1's directory is deleted",
        victims: &[1],
        is_refused: false,
        remedy_text: START_AGAIN,
        act: |lab| fs::remove_dir_all(lab.data(1)),
        remedy: |_| Ok(()),
    },
    FileDamage {
        description: "replica 2's directory is copied over replica 1's",
        victims: &[1],
        is_refused: true,
        remedy_text: OWN,
        act: |lab| fs::remove_dir_all(lab.data(1)).and_then(|()| copy(&lab.data(2), &lab.data(1))),
        remedy: |lab| move_away(lab, &[1]),
    },
    FileDamage {
        description: "the directories of replicas 1 and 2 are swapped",
        victims: &[1, 2],
        is_refused: true,
        remedy_text: OWN,
        act: swap,
        remedy: swap,
    },
    FileDamage {
        description: "a foreign file 00000007.log lies in replica 1's log",
        victims: &[1],
        is_refused: true,
        remedy_text: START_AGAIN,
        act: |lab| fs::write(foreign(lab), FOREIGN),
        remedy: |lab| {
            let found = fs::read(foreign(lab))?;
            fs::remove_file(foreign(lab))?;
            if found == FOREIGN { Ok(()) } else { Err(io::Error::other("THE FOREIGN FILE WAS CHANGED")) }
        },
    },
    FileDamage {
        description: "the logs of replicas 1 and 2 are cut to half: more than the group can lose",
        victims: &[1, 2],
        is_refused: true,
        remedy_text: START_AGAIN,
        act: |lab| {
            [1, 2].iter().try_for_each(|number| copy(&lab.data(*number), &kept(lab, *number)))?;
            [1, 2].iter().try_for_each(|number| cut(&lab.data(*number)))
        },
        remedy: put_back,
    },
    FileDamage {
        description: "a byte in the middle of the logs of replicas 1 and 2 is flipped: more than the group can lose",
        victims: &[1, 2],
        is_refused: true,
        remedy_text: START_AGAIN,
        act: |lab| {
            [1, 2].iter().try_for_each(|number| copy(&lab.data(*number), &kept(lab, *number)))?;
            [1, 2].iter().try_for_each(|number| flip(&lab.data(*number), 2))
        },
        remedy: put_back,
    },
];

const FOREIGN: &[u8] = b"a log of something else\n";

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let dress = Dress { shell: Some("umask 000".into()), ..Dress::default() };
    let dress = REPLICAS.map(|number| (number, dress.clone())).into();
    let lab = run.cluster(Setup { disk: true, dress, ..Setup::default() })?;
    lab.store(1, "first", KEPT.0, KEPT.1)?;
    modes(run, &lab);
    for (number, damage) in DAMAGES.iter().enumerate() {
        damaged(run, &lab, damage, &format!("kept{number}"))
            .with_context(|| damage.description.to_owned())?;
    }
    older(run, &lab)
}

fn damaged(run: &HostileRun<'_>, lab: &Lab<'_>, damage: &FileDamage, name: &str) -> anyhow::Result<()> {
    let mut case = Case::new(damage.description);
    lab.store(2, name, KEPT.0, KEPT.1)?;
    logged_by_all(lab)?;
    // Some moments later the log records the position up to which it was synced: entries after it may count as torn.
    run.sleep(Duration::from_millis(200))?;
    lab.down(&REPLICAS);
    (damage.act)(lab)?;
    lab.forget();
    lab.up(&REPLICAS);
    let refused = |lab: &Lab<'_>, number: u8| {
        lab.deaths().iter().any(|(died, how)| *died == number && how.contains(OPERATORS))
    };
    let settled = lab.until(SETTLED, |lab| {
        let is_well = |number: &u8| lab.status(*number).is_some_and(|status| status.leader.is_some());
        damage.victims.iter().all(|number| refused(lab, *number) || (!damage.is_refused && is_well(number)))
    })?;
    let all_refused = damage.victims.iter().all(|number| refused(lab, *number));
    let seen = match (settled, all_refused) {
        (Some(after), true) => format!("refused with {OPERATORS} after {}", ms(after)),
        (Some(after), false) => format!("served after {}", ms(after)),
        (None, _) => format!("{}; {:?}", lab.seen(), lab.deaths()),
    };
    let what = if damage.is_refused {
        "it is refused, and not accepted as a valid directory"
    } else {
        "it is refused, or filled by the peers"
    };
    case.check(settled.is_some(), what, seen);
    if all_refused {
        refusal(&mut case, lab, damage, name)?;
    }
    let back = lab.until_served(&REPLICAS, BACK)?;
    let seen = back.map_or_else(|| lab.seen(), |after| format!("after {}", ms(after)));
    case.check(back.is_some(), "in the end all replicas serve", seen);
    let others = lab.deaths().into_iter().filter(|(number, _)| !damage.victims.contains(number)).count();
    case.check(others == 0, "no other replica ends", format!("{others} ended"));
    lab.check_stored(&mut case, &REPLICAS, name, KEPT.0, KEPT.1);
    lab.check_stored(&mut case, &[1], "first", KEPT.0, KEPT.1);
    run.record_case(case);
    Ok(())
}

/// Waits until every replica has all acknowledged entries. A majority has them in any case, but losing one more log
/// than the group can lose would lose entries that only this majority has.
fn logged_by_all(lab: &Lab<'_>) -> anyhow::Result<()> {
    let is_level = |lab: &Lab<'_>| {
        let executed: Vec<Option<u64>> =
            REPLICAS.iter().map(|number| Some(lab.status(*number)?.executed)).collect();
        executed[0].is_some() && executed.iter().all(|one| *one == executed[0])
    };
    lab.until(BACK, is_level)?.context("the replicas did not execute the same batches")?;
    Ok(())
}

/// Checks a refusal: its message, the state of the other replicas meanwhile, and the remedy.
fn refusal(case: &mut Case, lab: &Lab<'_>, damage: &FileDamage, name: &str) -> anyhow::Result<()> {
    let said = |lab: &Lab<'_>| -> Vec<String> {
        damage.victims.iter().filter_map(|number| lab.said(*number, damage.remedy_text).pop()).collect()
    };
    // The end of a process may be known before its last line was read.
    lab.until(BACK, |lab| said(lab).len() == damage.victims.len())?;
    let said = said(lab);
    let holds = said.len() == damage.victims.len();
    case.check(
        holds,
        "the message names the remedy",
        said.first().cloned().unwrap_or_else(|| "it does not".into()),
    );
    let others: Vec<u8> = REPLICAS.into_iter().filter(|number| !damage.victims.contains(number)).collect();
    if others.len() > 1 {
        let served = lab.until_served(&others, BACK)?;
        case.check(served.is_some(), "the others serve meanwhile", lab.seen());
        lab.check_stored(case, &others, name, KEPT.0, KEPT.1);
    } else {
        let waits =
            lab.until(BACK, |lab| lab.status(others[0]).is_some_and(|status| status.waits_for.is_some()))?;
        let reason = lab.status(others[0]).and_then(|status| status.waits_for).unwrap_or_default();
        case.check(waits.is_some(), "the remaining replica waits, and reports for what", reason);
    }
    lab.down(damage.victims);
    (damage.remedy)(lab).context("the remedy")?;
    lab.forget();
    lab.up(damage.victims);
    Ok(())
}

/// A copy that was made one incarnation earlier.
fn older(run: &HostileRun<'_>, lab: &Lab<'_>) -> anyhow::Result<()> {
    let mut case =
        Case::new("replica 2's directory is put back from a copy that was made one incarnation earlier");
    lab.down(&[2]);
    copy(&lab.data(2), &kept(lab, 2)).context("copying")?;
    lab.up(&[2]);
    lab.until_served(&REPLICAS, BACK)?;
    lab.store(2, "older", KEPT.0, KEPT.1)?;
    logged_by_all(lab)?;
    lab.down(&REPLICAS);
    put_back_one(lab, 2).context("putting the copy back")?;
    lab.forget();
    lab.up(&REPLICAS);
    let back = lab.until_served(&REPLICAS, BACK)?;
    // If it reuses sequence numbers, the error is visible at its first client.
    let stored = lab.client(2).and_then(|mut client| Ok(client.set("anew", 0, b"1")?));
    case.add_note(format!(
        "its first client: {}",
        stored.map_or_else(|why| format!("{why:#}"), |()| "STORED".to_owned())
    ));
    run.sleep(Duration::from_millis(500))?;
    let again = lab.until_served(&REPLICAS, BACK)?;
    case.check(back.is_some() && again.is_some(), "in the end all replicas serve", lab.seen());
    let deaths = lab.deaths();
    let panics = REPLICAS.iter().map(|number| lab.said(*number, "panicked").len()).sum::<usize>();
    case.check(panics == 0, "no replica panics", format!("{panics} panics; ended: {deaths:?}"));
    let others = deaths.iter().filter(|(number, _)| *number != 2).count();
    case.check(others == 0, "no other replica ends", format!("{others} ended"));
    case.notes.extend(lab.said(2, "copy").pop().map(|line| format!("replica 2 says: {line}")));
    lab.check_stored(&mut case, &REPLICAS, "older", KEPT.0, KEPT.1);
    run.record_case(case);
    Ok(())
}

/// No other user can read clients' data.
fn modes(run: &HostileRun<'_>, lab: &Lab<'_>) {
    let mut case = Case::new("data directories that were made with umask 000");
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for number in REPLICAS {
        directories.push(lab.data(number));
        below(&lab.data(number), &mut directories, &mut files);
    }
    let open = |paths: &[PathBuf], mode: u32| {
        let is_open = |path: &&PathBuf| {
            fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o7777) != mode
        };
        paths.iter().filter(is_open).count()
    };
    let (wide, read) = (open(&directories, 0o700), open(&files, 0o600));
    case.check(wide == 0, "directories are of mode 0700", format!("{wide} of {} are not", directories.len()));
    case.check(read == 0, "files are of mode 0600", format!("{read} of {} are not", files.len()));
    run.record_case(case);
}

fn below(directory: &Path, directories: &mut Vec<PathBuf>, files: &mut Vec<PathBuf>) {
    for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            directories.push(path.clone());
            below(&path, directories, files);
        } else {
            files.push(path);
        }
    }
}

/// The newest file of a log, and the end of its content: files are created with their full length, of zeros.
fn written(data: &Path) -> io::Result<(File, u64)> {
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    below(data, &mut directories, &mut files);
    files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    files.sort();
    let newest = files.last().ok_or_else(|| io::Error::other("there is no log"))?;
    let mut file = OpenOptions::new().read(true).write(true).open(newest)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    Ok((file, length as u64))
}

/// Flips a bit of the byte at one `part`-th of the content, or of the next one that is not zero: up to seven zeros pad
/// a record, and carry no information.
fn flip(data: &Path, part: u64) -> io::Result<()> {
    let (mut file, length) = written(data)?;
    let mut at = (length / part).saturating_sub(1);
    let mut byte = [0];
    while byte == [0] {
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut byte)?;
        at += 1;
    }
    file.seek(SeekFrom::Start(at - 1))?;
    file.write_all(&[byte[0] ^ 1])
}

fn cut(data: &Path) -> io::Result<()> {
    let (file, length) = written(data)?;
    file.set_len(length / 2)
}

fn foreign(lab: &Lab<'_>) -> PathBuf {
    lab.data(1).join("log/00000007.log")
}

/// The path of the copy of a replica's directory.
fn kept(lab: &Lab<'_>, number: u8) -> PathBuf {
    lab.scratch().join(format!("kept-{number}"))
}

fn put_back(lab: &Lab<'_>) -> io::Result<()> {
    [1, 2].iter().try_for_each(|number| put_back_one(lab, *number))
}

fn put_back_one(lab: &Lab<'_>, number: u8) -> io::Result<()> {
    fs::remove_dir_all(lab.data(number))?;
    fs::rename(kept(lab, number), lab.data(number))
}

fn swap(lab: &Lab<'_>) -> io::Result<()> {
    let aside = lab.scratch().join("aside");
    fs::rename(lab.data(1), &aside)?;
    fs::rename(lab.data(2), lab.data(1))?;
    fs::rename(aside, lab.data(2))
}

fn move_away(lab: &Lab<'_>, replicas: &[u8]) -> io::Result<()> {
    replicas.iter().try_for_each(|number| {
        let away = tempfile::tempdir_in(lab.scratch())?.keep();
        fs::rename(lab.data(*number), away.join("moved"))
    })
}

/// Copies a directory with its content, modes included.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for path in fs::read_dir(from)?.map(|entry| entry.map(|entry| entry.path())) {
        let path = path?;
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
