//! `group grow` and `group shrink`: an operator adds two replicas to a group that serves, or lets the two last ones go.

use crosscheck::Address;
use crosscheck::admin::{AdminCommand, ReplicaPhase, Status};

use super::{AGREED, ask, handles, here, until_agreed, until_served};
use crate::cluster::ReplicaHandle;
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use crate::program;

/// Adds the replicas at these addresses.
pub fn grow(addresses: &[String], replicas: &[ReplicaHandle]) -> CommandOutcome {
    let parsed: Result<Vec<Address>, String> = addresses.iter().map(|address| address.parse()).collect();
    let addresses: Vec<String> = parsed.map_err(misuse)?.iter().map(Address::to_string).collect();
    let here = members(replicas)?;
    // One that serves has the group's state; without one, the first says what is missing.
    let serving = here.iter().position(|(_, status)| status.phase == ReplicaPhase::Serving);
    let asked = &here[serving.unwrap_or_default()..][..1];
    let before = asked[0].1.replicas;
    if !ask_all(asked, &AdminCommand::GrowGroup { addresses: addresses.clone() })? {
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
    if !ask_all(&here, &AdminCommand::ShrinkGroup)? {
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

/// Asks all of these; false if none agreed.
fn ask_all(replicas: &[(ReplicaHandle, Status)], command: &AdminCommand) -> anyhow::Result<bool> {
    replicas.iter().try_fold(false, |has_agreed, replica| Ok(ask(replica, command)? || has_agreed))
}

/// Waits until one of these replicas has the other size, which is returned. `is_done` is asked with whether a change
/// was seen under way.
fn until_done(
    asked: &[(ReplicaHandle, Status)],
    is_done: impl Fn(&Status, bool) -> bool,
) -> anyhow::Result<Option<u8>> {
    let mut has_waited = false;
    let size = until_agreed(
        asked,
        |status| status.resizing.as_ref(),
        |status| {
            let is_done = is_done(status, has_waited);
            has_waited |= status.resizing.is_some();
            is_done.then_some(status.replicas)
        },
    )?;
    if size.is_none() {
        say(&format!(
            "the group has not come to another size within {} s. `{} status` of each replica says what it waits for; a \
                growth that has begun ends by itself, or is given up by `{} group shrink`",
            AGREED.as_secs(),
            program::name(),
            program::name()
        ))?;
    }
    Ok(size)
}
