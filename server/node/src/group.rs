//! `group`: decisions about a group that an operator makes because its replicas cannot; and its settings.

mod replace;
mod resize;
mod settings;

use std::time::{Duration, Instant};

use crosscheck::admin::{AdminCommand, Decided, ReplicaPhase, Status};

use crate::cluster::{ClusterTarget, ReplicaHandle, ReplicaRow, once};
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use crate::program::{self, text};
use crate::view::grouped;

/// Timeout of a request to a replica.
const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout for the group to serve.
const DONE: Duration = Duration::from_secs(60);
/// Pause between two questions to one replica.
const ASK_AGAIN_PAUSE: Duration = Duration::from_millis(100);
/// Time for f+1 replicas to agree. A replica gives an operator's wish up as late.
const AGREED: Duration = Duration::from_secs(60);
/// Pause between two checks of the replicas.
const LOOK: Duration = Duration::from_millis(500);

/// The beginning of `group --help`.
pub const ABOUT: &str = "Decides about a group what its replicas cannot decide, because replicas whose data \
    is lost for ever look like new ones, or like replicas that are merely away, and a new machine in the place of \
    another one like a stranger. `status` says when a replica waits for such a decision. Lists and changes the \
    settings that a group has, while it serves.";

/// Options of `group`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  {program} group begin --admin /run/{program}/admin.sock   once, at replica 1, when a group is set up
  {program} group keep 3                                     what would be kept, and what lost
  {program} group get                                        the settings of the group
  {program} group replace 3 --address 10.0.0.9:12211         replica 3 has a new machine
  {program} group shrink                                     from five replicas to three

Exit code: 0 when the group serves afterwards, or has the settings; 1 when not, or nothing was done."))]
pub struct Args {
    /// The decision.
    #[command(subcommand)]
    pub decision: Decision,
}

/// The decision.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Decision {
    /// Begin an empty group: once, when it is set up, or when the data of all replicas is lost for ever
    #[command(after_long_help = text("Examples:
  {program} group begin --admin /run/{program}/admin.sock   at replica 1
  {program} group begin                                      of a cluster that `up` started

It begins as soon as all replicas are there. A replica that has data of a group prevents it: nothing is overwritten."))]
    Begin {
        /// The cluster.
        #[command(flatten)]
        target: ClusterTarget,
    },
    /// Continue with the state of one replica: data that only other replicas had is lost
    #[command(after_long_help = text("Examples:
  {program} group keep 3          what would be kept, and what lost; nothing is done
  {program} group keep 3 --yes    do it

For when more replicas have lost their data for ever than the group can do without (2 of 3, 3 of 5). The
replica that is kept should be the one with the highest position. Everything in its log counts, replicas
that have data of their own give it up, and all take the state of the one that is kept. No majority is left
to compare that state with. Give the admin sockets of all replicas that run. A replica that is away, and not
lost, must not come back with its data: it would be refused."))]
    Keep {
        /// The replica, from 1
        #[arg(value_name = "N")]
        replica: u8,
        /// Carry the decision out
        #[arg(long)]
        yes: bool,
        /// The cluster.
        #[command(flatten)]
        target: ClusterTarget,
    },
    /// List the settings that the group has, and since when
    Get(settings::GetArgs),
    /// Change a setting of the group, at one position of the order, without a restart
    Set(settings::SetArgs),
    /// Move a replica to a new machine: the others find it there from now on, and refuse the old one
    #[command(after_long_help = text("Examples:
  {program} group replace 3 --address 10.0.0.9:12211 --admin /run/{program}/admin.sock   at replica 1 or 2

Once, at any other replica. End the old machine, and start the new one as any replica, with its own address in its
configuration, before or after this command. It takes the state of the others. The command waits until f+1 replicas
have seen the new machine themselves, and then until the group serves. No replica has to be restarted; write the new
address into the other configurations when convenient."))]
    Replace {
        /// The replica, from 1
        #[arg(value_name = "N")]
        replica: u8,
        /// Its new address for the other replicas
        #[arg(long, value_name = "HOST:PORT")]
        address: String,
        /// The cluster.
        #[command(flatten)]
        target: ClusterTarget,
    },
    /// Add two replicas to the group while it serves: from 3 to 5, or from 5 to 7
    #[command(after_long_help = text("Examples:
  {program} group grow --address 10.0.0.4:12211 --address 10.0.0.5:12211 --admin /run/{program}/admin.sock

Once, at any replica. Start both new replicas as any replica, before or after this command, with a configuration that
lists all replicas, in this order: the new ones have the next two numbers. They wait until they are added. The command
waits until f+1 replicas have seen them, and until all old and new replicas are connected and have caught up; at that
position of the order, the group has the new size. No replica has to be restarted. List the new ones in the other
configurations when convenient."))]
    Grow {
        /// The address of a new replica for the other replicas: twice, in the order of their numbers
        #[arg(long, value_name = "HOST:PORT", required = true)]
        address: Vec<String>,
        /// The cluster.
        #[command(flatten)]
        target: ClusterTarget,
    },
    /// Let the two replicas with the last numbers go while the group serves: from 5 to 3, or from 7 to 5
    #[command(after_long_help = text("Examples:
  {program} group shrink --admin /run/{program}/admin.sock   at each of f+1 replicas, within a minute
  {program} group shrink                                      of a cluster that `up` started

One replica alone could be wrong, so f+1 have to be asked: give the admin sockets of so many, or run the command at so
many machines (2 of 3, 3 of 5, 4 of 7). All replicas that stay have to be connected. The two that leave end with exit
code 2. It also gives a growth up that has begun and does not end, because a new replica is missing."))]
    Shrink {
        /// The cluster.
        #[command(flatten)]
        target: ClusterTarget,
    },
}

/// The end of a refusal whose cause lasts a moment only (`order::DecisionError::Election`).
const ASK_AGAIN: &str = "ask again in a second";

/// Carries the decision out.
pub fn run(args: &Args) -> CommandOutcome {
    match &args.decision {
        Decision::Begin { target } => begin(&target.replicas()?),
        Decision::Keep { replica, yes, target } => keep(*replica, *yes, &target.replicas()?),
        Decision::Get(args) => settings::get(args),
        Decision::Set(args) => settings::set(args),
        Decision::Replace { replica, address, target } => {
            replace::run(*replica, address, &target.replicas()?)
        }
        Decision::Grow { address, target } => resize::grow(address, &target.replicas()?),
        Decision::Shrink { target } => resize::shrink(&target.replicas()?),
    }
}

/// The replicas that answer, with their statuses.
fn here(replicas: &[ReplicaHandle]) -> Vec<(ReplicaHandle, Status)> {
    let seen = |row: ReplicaRow| Some((row.replica, row.seen.ok()?));
    once(replicas).into_iter().filter_map(seen).collect()
}

fn decide(replica: &ReplicaHandle, command: &AdminCommand) -> Result<String, String> {
    let decided: Result<Decided, _> = replica.ask(command, PATIENCE);
    decided.map(|decided| decided.what).map_err(|why| why.to_string())
}

/// Asks a replica to carry a decision out, and reports its answer. Returns whether it has agreed.
fn ask((replica, status): &(ReplicaHandle, Status), command: &AdminCommand) -> anyhow::Result<bool> {
    let number = status.replica;
    let decided = decide(replica, command);
    match &decided {
        Ok(what) => say(&format!("replica {number}: {what}"))?,
        Err(why) => say(&format!("replica {number}: {why}; nothing was changed"))?,
    }
    Ok(decided.is_ok())
}

/// Waits until `done` finds in the status of one of these replicas what they were asked for, and reports what that
/// waits for; none after so long that a replica gives the wish up.
fn until_agreed<T>(
    asked: &[(ReplicaHandle, Status)],
    waits_for: impl Fn(&Status) -> Option<&String>,
    mut done: impl FnMut(&Status) -> Option<T>,
) -> anyhow::Result<Option<T>> {
    let deadline = Instant::now() + AGREED;
    let mut reported = None;
    loop {
        let status = asked.iter().find_map(|(handle, _)| handle.status());
        if let Some(found) = status.as_ref().and_then(&mut done) {
            return Ok(Some(found));
        }
        let waits = status.as_ref().and_then(&waits_for);
        if let Some(waits) = waits.filter(|waits| reported.as_ref() != Some(*waits)) {
            say(&format!("waits: {waits}"))?;
            reported = Some(waits.clone());
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(ASK_AGAIN_PAUSE);
    }
}

fn handles(of: &[(ReplicaHandle, Status)]) -> Vec<ReplicaHandle> {
    of.iter().map(|(handle, _)| handle.clone()).collect()
}

fn begin(replicas: &[ReplicaHandle]) -> CommandOutcome {
    let here = here(replicas);
    let Some((first, _)) = here.iter().find(|(_, status)| status.replica == 1) else {
        return Err(misuse(
            "only replica 1 can begin a group, and it is not among the given replicas that answered; give its \
                admin socket, or start it",
        ));
    };
    match decide(first, &AdminCommand::BeginGroup) {
        Ok(what) => say(&format!("replica 1: {what}"))?,
        Err(why) => {
            say(&format!("replica 1: {why}; nothing was begun"))?;
            return Ok(CommandVerdict::Fails);
        }
    }
    until_served(replicas, |_| {})
}

fn keep(number: u8, yes: bool, replicas: &[ReplicaHandle]) -> CommandOutcome {
    let here = here(replicas);
    for (_, status) in &here {
        say(&held(status))?;
    }
    let Some((kept, status)) = here.iter().find(|(_, status)| status.replica == number) else {
        return Err(misuse(format!(
            "replica {number} is not among the given replicas that answered; give its admin socket, or start it"
        )));
    };
    if !yes {
        say(&format!(
            "would keep what replica {number} has, up to entry {} of its log; entries that only other replicas \
                had are lost, and replicas with data of their own give it up. {}Nothing was done; add --yes to do it",
            grouped(status.logged),
            longer(number, &here).unwrap_or_default()
        ))?;
        return Ok(CommandVerdict::Fails);
    }
    let mut command = AdminCommand::KeepState { replica: number };
    // The replica to keep comes first: no other one gives its data up before this one has agreed. A command that is
    // repeated has its word once more.
    let deadline = Instant::now() + PATIENCE;
    let mut reported = decide(kept, &command);
    while reported.as_ref().is_err_and(|why| why.ends_with(ASK_AGAIN)) && Instant::now() < deadline {
        std::thread::sleep(LOOK);
        reported = decide(kept, &command);
    }
    match reported {
        Ok(what) => say(&format!("replica {number}: {what}"))?,
        Err(why) if has_joiner_of(number, &once(replicas)) => {
            say(&format!(
                "replica {number}: {why}. No replica gives data up; those without any take its state"
            ))?;
            command = AdminCommand::TakeState { replica: number };
        }
        Err(why) => {
            say(&format!("replica {number}: {why}; nothing was changed"))?;
            return Ok(CommandVerdict::Fails);
        }
    }
    let mut reported = Vec::new();
    until_served(replicas, |rows| {
        // It has agreed; it may still end before the group is its own.
        if !leads(number, rows) {
            return;
        }
        for (replica, status) in rows.iter().filter_map(answer) {
            // A process that was started since the command must receive it again.
            let process = (status.replica, status.pid);
            if status.replica != number
                && needs_decision(status)
                && !reported.contains(&process)
                && let Ok(what) = decide(replica, &command)
            {
                reported.push(process);
                // If the terminal is gone, the decision is carried out all the same.
                let _ = say(&format!("replica {}: {what}", status.replica));
            }
        }
    })
}

/// A replica that answers, with its status.
fn answer(row: &ReplicaRow) -> Option<(&ReplicaHandle, &Status)> {
    Some((&row.replica, row.seen.as_ref().ok()?))
}

/// Whether this replica says that it leads.
fn leads(number: u8, rows: &[ReplicaRow]) -> bool {
    let says = |status: &Status| status.replica == number && status.leader == Some(number);
    rows.iter().filter_map(answer).any(|(_, status)| says(status))
}

/// Whether this replica leads a group in which another one waits for its state.
fn has_joiner_of(number: u8, rows: &[ReplicaRow]) -> bool {
    let waits = |status: &Status| {
        status.replica != number
            && status.leader == Some(number)
            && status.verification.is_none()
            && matches!(status.phase, ReplicaPhase::Starting | ReplicaPhase::Joining)
    };
    leads(number, rows) && rows.iter().filter_map(answer).any(|(_, status)| waits(status))
}

/// Whether a replica has to be told whose data the group goes on with.
fn needs_decision(status: &Status) -> bool {
    status.leader.is_none() || matches!(status.phase, ReplicaPhase::Starting | ReplicaPhase::Joining)
}

/// The others whose logs are longer than that of the replica to keep, as a sentence; none if there are none.
fn longer(number: u8, here: &[(ReplicaHandle, Status)]) -> Option<String> {
    let of = |number: u8| here.iter().map(|(_, status)| status).find(|status| status.replica == number);
    let kept = of(number)?;
    let most = here.iter().map(|(_, status)| status).max_by_key(|status| status.logged)?;
    (most.logged > kept.logged).then(|| {
        format!("replica {} has more: its log goes up to entry {}. ", most.replica, grouped(most.logged))
    })
}

/// The state that a replica holds, in a line.
fn held(status: &Status) -> String {
    let number = status.replica;
    match status.leader {
        // It belongs to no group.
        _ if status.incarnation == 0 => format!("replica {number} has no data"),
        // It is receiving its state from the others.
        _ if status.phase == ReplicaPhase::Joining => {
            format!("replica {number} has not received all data yet")
        }
        Some(leader) => format!(
            "replica {number} serves at position {}, led by replica {leader}",
            grouped(status.executed)
        ),
        None => {
            format!(
                "replica {number} has data up to entry {} of its log, and no leader",
                grouped(status.logged)
            )
        }
    }
}

/// Checks the replicas until all of those that answer serve.
fn until_served(replicas: &[ReplicaHandle], mut look: impl FnMut(&[ReplicaRow])) -> CommandOutcome {
    let deadline = Instant::now() + DONE;
    loop {
        let rows = once(replicas);
        look(&rows);
        let there: Vec<&ReplicaRow> = rows.iter().filter(|row| row.seen.is_ok()).collect();
        if !there.is_empty() && there.iter().all(|row| row.is_ready()) {
            say(&format!("the group serves: {} of {} replicas", there.len(), rows.len()))?;
            return Ok(CommandVerdict::Holds);
        }
        if Instant::now() > deadline {
            say(&format!(
                "the group does not serve after {} s; `{} status` says what it waits for",
                DONE.as_secs(),
                program::name()
            ))?;
            return Ok(CommandVerdict::Fails);
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::test_status;

    fn handle(number: u8) -> ReplicaHandle {
        let admin = crosscheck::admin::Endpoint::Unix("admin.sock".into());
        ReplicaHandle { number, admin, clients: None }
    }

    fn row(status: Status) -> ReplicaRow {
        ReplicaRow { replica: handle(status.replica), seen: Ok(status), rate: None }
    }

    /// A replica that has agreed and does not lead yet, or has ended: the others keep what they have.
    #[test]
    fn the_others_are_notified_only_once_the_kept_one_leads() {
        let mut kept = test_status(3);
        kept.leader = Some(1);
        assert!(!leads(3, &[row(test_status(1)), row(kept.clone())]), "replica 1 still leads");
        kept.leader = None;
        assert!(!leads(3, &[row(kept.clone())]));
        kept.leader = Some(3);
        assert!(leads(3, &[row(test_status(1)), row(kept)]));
        assert!(!leads(3, &[row(Status { leader: Some(3), ..test_status(1) })]), "another one's word");
        let joiner = Status { phase: ReplicaPhase::Joining, leader: Some(3), ..test_status(1) };
        let led = Status { leader: Some(3), ..test_status(3) };
        assert!(has_joiner_of(3, &[row(joiner.clone()), row(led.clone())]));
        assert!(!has_joiner_of(3, &[row(joiner.clone()), row(Status { leader: None, ..test_status(3) })]));
        assert!(!has_joiner_of(3, &[row(Status { leader: None, ..joiner }), row(led)]), "it may have data");
        assert!(
            needs_decision(&Status { leader: None, ..test_status(2) }) && !needs_decision(&test_status(2))
        );
    }

    #[test]
    fn a_longer_log_than_that_of_the_kept_one_is_named() {
        let of = |number, logged| (handle(number), Status { logged, ..test_status(number) });
        let here = [of(1, 331), of(2, 5125), of(3, 331)];
        assert!(
            longer(1, &here)
                .is_some_and(|reported| reported.contains("replica 2 has more") && reported.contains("5,125"))
        );
        assert_eq!(longer(2, &here), None);
        assert_eq!(longer(1, &here[..1]), None);
    }

    #[test]
    fn what_a_replica_has_is_distinguished() {
        let mut status = test_status(3);
        status.executed = 12_345;
        assert_eq!(held(&status), "replica 3 serves at position 12,345, led by replica 1");
        (status.leader, status.logged) = (None, 23_456);
        assert_eq!(held(&status), "replica 3 has data up to entry 23,456 of its log, and no leader");
        // The status of a replica that was restarted with its log, and cannot execute it alone.
        (status.phase, status.executed) = (ReplicaPhase::Starting, 0);
        assert_eq!(held(&status), "replica 3 has data up to entry 23,456 of its log, and no leader");
        status.phase = ReplicaPhase::Joining;
        assert_eq!(held(&status), "replica 3 has not received all data yet");
        status.incarnation = 0;
        assert_eq!(held(&status), "replica 3 has no data");
    }
}
