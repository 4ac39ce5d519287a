//! The clock of one replica is wrong, or jumps, by an hour or a day. This is a fault of one replica: no item may expire
//! early or much later than its time.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;

use super::lab::{HostileRun, Lab, PATIENCE, REPLICAS, Setup};
use super::ms;
use super::outcome::Case;
use super::watch::HostileWatch;
use super::wire;
use node::cluster::Dress;

/// Paths of the library that fakes clocks, by distribution.
const LIBRARIES: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
    "/usr/lib64/libfaketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
];
/// Lifetime of the item that expires soon.
const TTL: Duration = Duration::from_secs(2);
/// How much later it may expire.
const LATE: Duration = Duration::from_secs(2);
/// How long the other items are watched after it has expired.
const LINGER: Duration = Duration::from_secs(1);
/// Pause between two checks of the items.
const LOOK: Duration = Duration::from_millis(20);
/// Items that do not expire during the test: in ten minutes, at a time in twenty minutes, never.
const STAYS: [&str; 3] = ["ten-minutes", "absolute", "for-ever"];

/// The jumps of the clock: as text, and for the library.
const JUMPS: [(&str, &str); 3] = [
    ("jumps an hour ahead", "+3600"),
    ("jumps back to the right time", "+0"),
    ("jumps a day back", "-86400"),
];

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let Some(library) = LIBRARIES.iter().find(|path| Path::new(path).is_file()) else {
        const MISSING: &str = "libfaketime is not installed (Debian: apt-get install libfaketime)";
        // In a check of every change, a skipped attack would not be noticed.
        anyhow::ensure!(std::env::var_os("CI").is_none(), MISSING);
        let skipped = Some(MISSING.to_owned());
        run.record_case(Case { skipped, ..Case::new("a clock is wrong by an hour, or a day") });
        return Ok(());
    };
    for leads in [true, false] {
        let times = tempfile::tempdir().context("a directory for times")?;
        let file = |number: u8| times.path().join(format!("clock-{number}"));
        REPLICAS.iter().try_for_each(|number| set_clock(&file(*number), "+0"))?;
        let dress = REPLICAS.map(|number| (number, dress(library, &file(number)))).into();
        let lab = run.cluster(Setup { dress, ..Setup::default() })?;
        let leader = lab.leader()?;
        let victim = if leads { leader } else { leader % 3 + 1 };
        for (what, time) in JUMPS {
            let of = if leads { "the leader" } else { "a follower" };
            let mut case = Case::new(format!("the wall clock of replica {victim}, {of}, {what}"));
            jump(run, &lab, victim, &mut case, || set_clock(&file(victim), time))?;
            run.record_case(case);
        }
        for (what, time) in [("an hour ahead", "+3600"), ("a day behind", "-86400")] {
            let mut case = Case::new(format!("replica {victim} is started again with its clock {what}"));
            restart(&lab, victim, &mut case, &file(victim), time)?;
            jump(run, &lab, victim, &mut case, || Ok(()))?;
            run.record_case(case);
        }
    }
    Ok(())
}

/// Makes a process use the clock in `file`; its monotonic clock is unchanged.
fn dress(library: &str, file: &Path) -> Dress {
    let set = [
        ("LD_PRELOAD", library.to_owned()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    let environment = set.map(|(name, value)| (name.to_owned(), value)).into();
    Dress { environment, ..Dress::default() }
}

/// The file is renamed into place: an incomplete file would be read as another time.
fn set_clock(file: &Path, time: &str) -> anyhow::Result<()> {
    let draft: PathBuf = file.with_extension("new");
    fs::write(&draft, format!("{time}\n")).and_then(|()| fs::rename(&draft, file)).context("setting a clock")
}

fn restart(lab: &Lab<'_>, victim: u8, case: &mut Case, file: &Path, time: &str) -> anyhow::Result<()> {
    lab.down(&[victim]);
    lab.forget();
    set_clock(file, time)?;
    lab.up(&[victim]);
    let back = lab.until_served(&REPLICAS, PATIENCE)?;
    let seen = back.map_or_else(|| lab.seen(), |after| format!("after {}", ms(after)));
    case.check(back.is_some(), "it serves again", seen);
    let named = lab.until(Duration::from_secs(5), |lab| is_named(lab, victim))?;
    let seen = named.map_or_else(|| "not after 5,000 ms".to_owned(), |after| format!("after {}", ms(after)));
    case.check(named.is_some(), "its clock is named, on stderr or as evidence", seen);
    Ok(())
}

/// Whether a replica has reported the clock.
fn is_named(lab: &Lab<'_>, victim: u8) -> bool {
    let by_evidence = |number: &u8| {
        lab.evidence(*number).iter().any(|record| record.stage == "clock" && record.replica == Some(victim))
    };
    !lab.said(victim, "clock of this").is_empty() || REPLICAS.iter().any(by_evidence)
}

/// Stores items, makes the clock jump, and records when each of them expires at each replica.
fn jump(
    run: &HostileRun<'_>,
    lab: &Lab<'_>,
    victim: u8,
    case: &mut Case,
    act: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let jumps = case.checks.is_empty();
    let pids = REPLICAS.map(|number| lab.pid(number));
    if jumps {
        lab.forget();
    }
    let watch = HostileWatch::start(lab)?;
    // Through the victim: its requests are timestamped like any others.
    store(lab.clients(victim))?;
    let began = Instant::now();
    set(lab.clients(victim), "soon", TTL.as_secs())?;
    act()?;
    let (mut gone, mut lost) = ([None; 3], Vec::new());
    let most = TTL + LATE + Duration::from_millis(500);
    while began.elapsed() < most
        && gone.iter().any(|gone| gone.is_none_or(|after| began.elapsed() < after + LINGER))
    {
        for (number, gone) in REPLICAS.iter().zip(&mut gone) {
            let mut client = lab.client(*number)?;
            if gone.is_none() && client.get("soon")?.is_none() {
                *gone = Some(began.elapsed());
            }
            for key in STAYS {
                if client.get(key)?.is_none() {
                    lost.push(format!("{key} at replica {number}"));
                }
            }
        }
        run.sleep(LOOK)?;
    }
    let watched = watch.finish();
    let shown = |gone: &Option<Duration>| {
        gone.map_or_else(|| "not at all".to_owned(), |after| after.as_millis().to_string())
    };
    let seen = format!("after {} ms", gone.iter().map(shown).collect::<Vec<_>>().join(" / "));
    let in_time = |gone: &Option<Duration>| gone.is_some_and(|after| after >= TTL && after <= TTL + LATE);
    case.check(
        gone.iter().all(in_time),
        format!("a TTL of {} ends then, at most {} late", ms(TTL), ms(LATE)),
        seen,
    );
    lost.dedup();
    let seen = if lost.is_empty() { "all there".to_owned() } else { lost.join(", ") };
    case.check(lost.is_empty(), "10 minutes, an absolute time, and no TTL stay", seen);
    let same = pids == REPLICAS.map(|number| lab.pid(number));
    case.check(
        same,
        "no replica is restarted",
        if same { "the same 3 processes" } else { "other processes" },
    );
    if jumps {
        let said = lab.said(victim, "wall clock");
        case.check(!said.is_empty(), "stderr names the clock", said.last().cloned().unwrap_or_default());
    }
    lab.check_alive(case);
    watched.check_waits(case, &REPLICAS);
    Ok(())
}

/// Stores the items that do not expire during the test.
fn store(address: SocketAddr) -> anyhow::Result<()> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    for (key, ttl) in STAYS.iter().zip([600, now_s + 1_200, 0]) {
        set(address, key, ttl)?;
    }
    Ok(())
}

/// `set` with an expiry time.
fn set(address: SocketAddr, key: &str, ttl: u64) -> anyhow::Result<()> {
    let mut stream = wire::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("set {key} 0 {ttl} 1\r\nv\r\n").as_bytes())?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    anyhow::ensure!(&answer == b"STORED\r\n", "storing {key}: {:?}", String::from_utf8_lossy(&answer));
    Ok(())
}
