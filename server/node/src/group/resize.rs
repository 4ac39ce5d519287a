//! `group grow` and `group shrink`: an operator adds two replicas to a group that serves, or lets the two last ones go.

use std::time::{Duration, Instant};

use crosscheck::Address;
use crosscheck::admin::{AdminCommand, ReplicaPhase, Status};

use super::{ASK_AGAIN_PAUSE, decide, here, until_served};
use crate::cluster::ReplicaHandle;
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use crate::program;

/// Time for the group to have the other size. A replica gives an operator's wish up as late.
const AGREED: Duration = Duration::from_secs(60);

/// Adds the replicas at these addresses.
pub fn grow(addresses: &[String], replicas: &[ReplicaHandle]) -> CommandOutcome {
    let parsed: Result<Vec<Address>, String> = addresses.iter().map(|address| address.parse()).collect();
    let addresses: Vec<String> = parsed.map_err(misuse)?.iter().map(Address::to_string).collect();
    let here = members(replicas)?;
    // One that serves has the group's state; without one, the first says what is missing.
    let serving = here.iter().position(|(_, status)| status.phase == ReplicaPhase::Serving);
    let asked = &here[serving.unwrap_or_default()..][..1];
    let before = asked[0].1.replicas;
    if !ask(asked, &AdminCommand::GrowGroup { addresses: addresses.clone() })? {
        return Ok(CommandVerdict::Fails);
    }
    let is_done = |status: &Status, waited: bool| {
        status.replicas == before + 2 || (!waited && status.replicas == before && status.resizing.is_none())
    };
    match until_done(asked, is_done)? {
        None => Ok(CommandVerdict::Fails),
        Some(size) => {
            say(&format!(
                "the group has {size} replicas from now on; it tolerates {} failures once all have caught up. List \
                    all {size} in every configuration when convenient",
                size / 2
            ))?;
            until_served(&handles(&here), |_| {})
        }
    }
}

/// Lets the two last replicas go, or gives a growth up that has begun.
pub fn shrink(replicas: &[ReplicaHandle]) -> CommandOutcome {
    let here = members(replicas)?;
    let before = here[0].1.replicas;
    if !ask(&here, &AdminCommand::ShrinkGroup)? {
        return Ok(CommandVerdict::Fails);
    }
    let staying: Vec<_> =
        here.iter().filter(|(_, status)| status.replica + 2 <= before || before <= 3).cloned().collect();
    let asked = if staying.is_empty() { &here } else { &staying };
    let gives_up = here.iter().any(|(_, status)| status.adding > 0);
    let is_done = |status: &Status, _: bool| match gives_up {
        true => status.adding == 0,
        false => status.replicas < before,
    };
    match until_done(asked, is_done)? {
        None => Ok(CommandVerdict::Fails),
        Some(size) => {
            let outcome = match size < before {
                true => format!("the group has {size} replicas from now on; the last two end"),
                false => format!("the group has {size} replicas"),
            };
            say(&format!("{outcome}. List these {size} in every configuration when convenient"))?;
            until_served(&handles(asked), |_| {})
        }
    }
}

/// The given replicas that answer.
fn members(replicas: &[ReplicaHandle]) -> anyhow::Result<Vec<(ReplicaHandle, Status)>> {
    let here = here(replicas);
    if here.is_empty() {
        return Err(misuse("none of the given replicas answered; give the admin socket of one that serves"));
    }
    Ok(here)
}

fn handles(of: &[(ReplicaHandle, Status)]) -> Vec<ReplicaHandle> {
    of.iter().map(|(handle, _)| handle.clone()).collect()
}

/// Asks all of these; false if none agreed.
fn ask(replicas: &[(ReplicaHandle, Status)], command: &AdminCommand) -> anyhow::Result<bool> {
    let mut has_agreed = false;
    for (handle, status) in replicas {
        match decide(handle, command) {
            Ok(what) => {
                say(&format!("replica {}: {what}", status.replica))?;
                has_agreed = true;
            }
            Err(why) => say(&format!("replica {}: {why}; nothing was changed", status.replica))?,
        }
    }
    Ok(has_agreed)
}

/// Waits until one of these replicas has the other size, which is returned, and reports what that waits for. `is_done`
/// is asked with whether a change was seen under way.
fn until_done(
    asked: &[(ReplicaHandle, Status)],
    is_done: impl Fn(&Status, bool) -> bool,
) -> anyhow::Result<Option<u8>> {
    let deadline = Instant::now() + AGREED;
    let (mut reported, mut has_waited) = (None, false);
    loop {
        let status = asked.iter().find_map(|(handle, _)| handle.status());
        if let Some(status) = &status {
            if is_done(status, has_waited) {
                return Ok(Some(status.replicas));
            }
            has_waited |= status.resizing.is_some();
        }
        let waits = status.and_then(|status| status.resizing);
        if waits.is_some() && waits != reported {
            say(&format!("waits: {}", waits.as_deref().unwrap_or_default()))?;
            reported = waits;
        }
        if Instant::now() > deadline {
            say(&format!(
                "the group has not come to another size within {} s. `{} status` of each replica says what it waits \
                    for; a growth that has begun ends by itself, or is given up by `{} group shrink`",
                AGREED.as_secs(),
                program::name(),
                program::name()
            ))?;
            return Ok(None);
        }
        std::thread::sleep(ASK_AGAIN_PAUSE);
    }
}
