//! `group replace`: an operator moves a replica to a new machine.

use std::time::{Duration, Instant};

use crosscheck::Address;
use crosscheck::admin::{AdminCommand, ReplicaPhase, Status};

use super::{ASK_AGAIN_PAUSE, decide, here, until_served};
use crate::cluster::ReplicaHandle;
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use crate::program;

/// Time for f+1 replicas to see the new machine. A replica gives the wish up as late.
const AGREED: Duration = Duration::from_secs(60);

/// Has the group look for a replica at this address.
pub fn run(number: u8, address: &str, replicas: &[ReplicaHandle]) -> CommandOutcome {
    let address: Address = address.parse().map_err(|why: String| misuse(why))?;
    let others: Vec<_> = here(replicas).into_iter().filter(|(_, status)| status.replica != number).collect();
    // One that serves has the group's state; without one, the first says what is missing.
    let serving = others.iter().find(|(_, status)| status.phase == ReplicaPhase::Serving);
    let Some((asked, status)) = serving.or(others.first()) else {
        return Err(misuse(format!(
            "no other replica than {number} is among the given ones that answered; give the admin socket of one"
        )));
    };
    let command = AdminCommand::ReplaceMachine { replica: number, address: address.to_string() };
    match decide(asked, &command) {
        Ok(what) => say(&format!("replica {}: {what}", status.replica))?,
        Err(why) => {
            say(&format!("replica {}: {why}; nothing was changed", status.replica))?;
            return Ok(CommandVerdict::Fails);
        }
    }
    if !until_agreed(number, &address.to_string(), asked)? {
        return Ok(CommandVerdict::Fails);
    }
    let others: Vec<ReplicaHandle> = others.iter().map(|(handle, _)| handle.clone()).collect();
    until_served(&others, |_| {})
}

/// Waits until the asked replica says that the group has moved replica `number`, and reports what that waits for.
fn until_agreed(number: u8, address: &str, asked: &ReplicaHandle) -> anyhow::Result<bool> {
    let deadline = Instant::now() + AGREED;
    let mut reported = None;
    loop {
        let status = asked.status();
        let moved = |status: &Status| {
            status.moved.iter().find(|moved| moved.replica == number && moved.address == address).cloned()
        };
        if let Some(moved) = status.as_ref().and_then(moved) {
            let where_to = if moved.configured == address {
                String::new()
            } else {
                format!(
                    ". Write `address = \"{address}\"` into the section of replica {number} in every other \
                        configuration when convenient: it has {} there, and the group's value counts",
                    moved.configured
                )
            };
            say(&format!("replica {number} is at {address} from now on{where_to}"))?;
            return Ok(true);
        }
        let waits = status.and_then(|status| status.replacing);
        if waits.is_some() && waits != reported {
            say(&format!("waits: {}", waits.as_deref().unwrap_or_default()))?;
            reported = waits;
        }
        if Instant::now() > deadline {
            say(&format!(
                "the replicas have not agreed within {} s; nothing was changed. `{} status` of each says what it \
                    sees; repeat the command then",
                AGREED.as_secs(),
                program::name()
            ))?;
            return Ok(false);
        }
        std::thread::sleep(ASK_AGAIN_PAUSE);
    }
}
