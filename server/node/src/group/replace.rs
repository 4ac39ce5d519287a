//! `group replace`: an operator moves a replica to a new machine.

use crosscheck::Address;
use crosscheck::admin::{AdminCommand, ReplicaPhase, Status};

use super::{AGREED, ask, handles, here, until_agreed, until_served};
use crate::cluster::ReplicaHandle;
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use crate::program;

/// Has the group look for a replica at this address.
pub fn run(number: u8, address: &str, replicas: &[ReplicaHandle]) -> CommandOutcome {
    let address: Address = address.parse().map_err(|why: String| misuse(why))?;
    let others: Vec<_> = here(replicas).into_iter().filter(|(_, status)| status.replica != number).collect();
    // One that serves has the group's state; without one, the first says what is missing.
    let serving = others.iter().find(|(_, status)| status.phase == ReplicaPhase::Serving);
    let Some(asked) = serving.or(others.first()) else {
        return Err(misuse(format!(
            "no other replica than {number} is among the given ones that answered; give the admin socket of one"
        )));
    };
    let command = AdminCommand::ReplaceMachine { replica: number, address: address.to_string() };
    if !ask(asked, &command)? || !until_moved(number, &address.to_string(), asked)? {
        return Ok(CommandVerdict::Fails);
    }
    until_served(&handles(&others), |_| {})
}

/// Waits until the asked replica says that the group has moved replica `number`.
fn until_moved(number: u8, address: &str, asked: &(ReplicaHandle, Status)) -> anyhow::Result<bool> {
    let moved = |status: &Status| {
        status.moved.iter().find(|moved| moved.replica == number && moved.address == address).cloned()
    };
    let Some(moved) = until_agreed(std::slice::from_ref(asked), |status| status.replacing.as_ref(), moved)?
    else {
        say(&format!(
            "the replicas have not agreed within {} s; nothing was changed. `{} status` of each says what it sees; \
                repeat the command then",
            AGREED.as_secs(),
            program::name()
        ))?;
        return Ok(false);
    };
    let where_to = if moved.configured == address {
        String::new()
    } else {
        format!(
            ". Write `address = \"{address}\"` into the section of replica {number} in every other configuration \
                when convenient: it has {} there, and the group's value counts",
            moved.configured
        )
    };
    say(&format!("replica {number} is at {address} from now on{where_to}"))?;
    Ok(true)
}
