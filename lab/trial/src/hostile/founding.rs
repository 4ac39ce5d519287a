//! More memories are lost than a group can lose: no replica begins a new group by itself, all report what they wait
//! for, and an operator's commands have the documented effect.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::lab::{HostileRun, Lab, PATIENCE, REPLICAS, Setup};
use super::ms;
use super::outcome::Case;
use memcached_client::Client;

/// How long until each replica reports what it waits for.
const SAID: Duration = Duration::from_secs(8);
/// How long it is watched after that: no group may begin by itself.
const WATCHED: Duration = Duration::from_secs(3);
/// Values that were acknowledged before.
const KEPT: usize = 100;

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    two_lost(run)?;
    two_and_then_the_third(run)?;
    all_lost(run)
}

/// Ends replicas together, and restarts them without their memory.
fn lose(lab: &Lab<'_>, replicas: &[u8]) {
    lab.down(replicas);
    lab.up(replicas);
}

/// Checks that a replica reports, in `status` and on stderr, that it waits, with these words.
fn check_waits(case: &mut Case, lab: &Lab<'_>, number: u8, words: &str) -> anyhow::Result<()> {
    let waits_for = |lab: &Lab<'_>| lab.status(number).and_then(|status| status.waits_for);
    let after = lab.until(SAID, |lab| {
        waits_for(lab).is_some_and(|waits_for| waits_for.contains(words))
            && !lab.said(number, words).is_empty()
    })?;
    let seen = match (after, waits_for(lab)) {
        (Some(after), _) => format!("after {}", ms(after)),
        (None, waits_for) => format!("it says {waits_for:?}"),
    };
    case.check(after.is_some(), format!("replica {number} says: waits ... {words}"), seen);
    Ok(())
}

/// Checks that no replica serves an empty group meanwhile.
fn check_none_begins(case: &mut Case, lab: &Lab<'_>) -> anyhow::Result<()> {
    let empty = |number: &u8| {
        let answer = Client::connect(lab.clients(*number), Duration::from_millis(200))
            .ok()
            .and_then(|mut client| client.get("kept-0").ok());
        // If a value is returned, it has survived.
        matches!(answer, Some(None))
    };
    let served = lab.until(WATCHED, |_| REPLICAS.iter().any(empty))?;
    let seen =
        served.map_or_else(|| format!("nobody in {}", ms(WATCHED)), |after| format!("after {}", ms(after)));
    case.check(served.is_none(), "no replica serves an empty group", seen);
    Ok(())
}

/// Runs a command of the operator, and checks its result.
fn check_command(case: &mut Case, lab: &Lab<'_>, command: &str, does_it: bool) -> anyhow::Result<()> {
    let mut process = Command::new(std::env::current_exe()?);
    process.arg("group").args(command.split(' ')).args(["--port", &lab.clients(1).port().to_string()]);
    let ended = process.stdin(Stdio::null()).output()?;
    let said = [ended.stdout, ended.stderr].concat();
    let last = String::from_utf8_lossy(&said).lines().last().unwrap_or_default().to_owned();
    let code = i32::from(!does_it);
    let what =
        format!("`group {command}` {}: exit code {code}", if does_it { "does it" } else { "does nothing" });
    let seen = format!("{}; it says: {last}", ended.status.to_string().replace("status", "code"));
    case.check(ended.status.code() == Some(code), what, seen);
    Ok(())
}

fn two_lost(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let mut case = Case::new("logs in memory: replicas 1 and 2 lose their memory together");
    let lab = run.cluster(Setup::default())?;
    lab.store(1, "kept", KEPT, 100)?;
    lose(&lab, &[1, 2]);
    check_waits(&mut case, &lab, 1, "to be let into the group of replica 3")?;
    check_waits(&mut case, &lab, 3, "replicas 1 and 2 are here without data")?;
    check_none_begins(&mut case, &lab)?;
    check_command(&mut case, &lab, "begin", false)?;
    check_command(&mut case, &lab, "keep 1 --yes", false)?;
    check_command(&mut case, &lab, "keep 3", false)?;
    check_command(&mut case, &lab, "keep 3 --yes", true)?;
    let back = lab.until_served(&REPLICAS, PATIENCE)?;
    case.check(back.is_some(), "then all replicas serve", lab.seen());
    lab.check_stored(&mut case, &REPLICAS, "kept", KEPT, 100);
    run.record_case(case);
    Ok(())
}

fn two_and_then_the_third(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let mut case = Case::new("replicas 1 and 2 lose their memory together, and then the third is restarted");
    let lab = run.cluster(Setup::default())?;
    lab.store(1, "kept", KEPT, 100)?;
    lose(&lab, &[1, 2]);
    check_waits(&mut case, &lab, 2, "to be let into the group of replica 3")?;
    lose(&lab, &[3]);
    anew(&mut case, &lab)?;
    run.record_case(case);
    Ok(())
}

fn all_lost(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let mut case = Case::new("all replicas lose their memory together");
    let lab = run.cluster(Setup::default())?;
    lab.store(1, "kept", KEPT, 100)?;
    lose(&lab, &REPLICAS);
    anew(&mut case, &lab)?;
    run.record_case(case);
    Ok(())
}

/// All memories are lost: the group begins at an operator's command.
fn anew(case: &mut Case, lab: &Lab<'_>) -> anyhow::Result<()> {
    for number in REPLICAS {
        check_waits(case, lab, number, "no replica has data of a group")?;
    }
    check_none_begins(case, lab)?;
    check_command(case, lab, "begin", true)?;
    let back = lab.until_served(&REPLICAS, PATIENCE)?;
    case.check(back.is_some(), "then all replicas serve, empty", lab.seen());
    lab.store(2, "kept", KEPT, 100)?;
    lab.check_stored(case, &REPLICAS, "kept", KEPT, 100);
    Ok(())
}
