//! Conditions that a replica waits for and cannot continue without. The operator is informed of them, with a remedy,
//! for as long as they last.

use std::time::Duration;

use order::{Decision, OrderEngine, Standing};
use wire::ReplicaId;

use super::environment::Environment;
use super::order_stage::OrderStage;
use super::state_transfer::StateTransfer;
use crate::admin::AdminCommand;
use crate::admin_server::Call;
use crate::world::World;
use crate::{admin, limits};

/// The reports about the replica's current wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The condition that the replica waits for, and since when.
    now: Option<(String, u64)>,
    /// The condition that was reported last, and when; none once it is met.
    told: Option<(String, u64)>,
}

/// The facts about a replica that makes no progress.
#[derive(Clone, Copy, Debug)]
struct View<'a> {
    me: u8,
    replicas: u8,
    connected: u16,
    standing: &'a Standing,
    /// The state it waits for: its log entry, and the replicas that offered one. None if the replica has its state, or
    /// receives it.
    state: Option<(u64, u16)>,
}

impl View<'_> {
    /// The condition that it waits for.
    fn waits_for(&self) -> Option<String> {
        match (self.standing.incarnation, self.standing.leader) {
            (None, _) => self.group(),
            (Some(_), None) => Some(self.leader()),
            (Some(_), Some(_)) if self.standing.members.voters.count_ones() == 1 && self.elsewhere() != 0 => {
                Some(self.another_group("for a second replica"))
            }
            (Some(_), Some(_)) => self.state.map(|(index, named)| self.donors(index, named)),
        }
    }

    fn all(&self) -> u16 {
        (1u16 << self.replicas) - 1
    }

    /// Replicas that are not connected, without this one.
    fn missing(&self) -> u16 {
        self.all() & !self.connected & !(1 << self.me)
    }

    /// The message when it belongs to no group.
    fn group(&self) -> Option<String> {
        let outside = &self.standing.outside;
        if outside.members != 0 {
            let first = outside.members.trailing_zeros() + 1;
            return Some(format!(
                "to be let into the group of {}. That takes a moment, unless too few of its members are \
                    there: start the others with their data; if that is lost for ever, `crosscheck group \
                    keep {first}` goes on with what replica {first} has",
                names(outside.members)
            ));
        }
        let missing = self.missing();
        if missing != 0 {
            return Some(format!(
                "for {}, not connected: a group begins when all of its replicas are there",
                names(missing)
            ));
        }
        let everybody = outside.fresh | 1 << self.me == self.all();
        (everybody && !outside.told).then(|| {
            "for an operator's word: no replica has data of a group. If there never was any, or it is lost for ever, \
             `crosscheck group begin` begins an empty one"
                .to_owned()
        })
    }

    /// Replicas that are connected and belong to another group.
    fn elsewhere(&self) -> u16 {
        self.standing.outside.elsewhere & self.connected
    }

    /// The message when there are two groups, and in its own it waits for `what`.
    fn another_group(&self, what: &str) -> String {
        let others = self.elsewhere();
        let belong = if others.count_ones() == 1 { "belongs" } else { "belong" };
        format!(
            "{what}: {} {belong} to another group, because an operator had one of them go on without the \
                other (`crosscheck group keep`). Either this replica joins that one: end it, move its data \
                directory away, and start it again; or they join this one in the same way",
            names(others)
        )
    }

    /// The message when it belongs to a group without a leader.
    fn leader(&self) -> String {
        let members = self.standing.members;
        let needed = members.voters.count_ones() / 2 + 1;
        let away = members.voters & self.missing();
        let empty = self.standing.outside.fresh & self.connected;
        let mut why = Vec::new();
        if away != 0 {
            why.push(format!("{} not connected", are(away)));
        }
        if empty != 0 {
            why.push(format!("{} here without data", are(empty)));
        }
        if self.elsewhere() != 0 {
            return self.another_group("for a leader");
        }
        if why.is_empty() {
            return "for a leader: an election is on its way".to_owned();
        }
        let me = ReplicaId(self.me);
        format!(
            "for a leader: {needed} of {} have to be there with their data, and {}. Start them with it; if \
                it is lost for ever, `crosscheck group keep {me}` goes on with what replica {me} has",
            names(members.voters),
            why.join(", ")
        )
    }

    /// The message when it has no state, and too few replicas have offered one.
    fn donors(&self, index: u64, named: u16) -> String {
        let needed = self.replicas / 2 + 1;
        let so_far = if named == 0 { "nobody has".to_owned() } else { format!("only {}", has(named)) };
        let keeper = ReplicaId(self.standing.leader.unwrap_or_default());
        format!(
            "for the state after entry {index}, or a later one: {needed} replicas have to give the same, and \
                {so_far} so far. If nobody else has it any more, `crosscheck group keep {keeper}` has it \
                taken from replica {keeper} alone"
        )
    }
}

/// The replicas of a bit set, as text.
fn names(replicas: u16) -> String {
    let numbers: Vec<String> =
        (0..16).filter(|slot| replicas >> slot & 1 == 1).map(|slot| ReplicaId(slot).to_string()).collect();
    match &numbers[..] {
        [] => "no replica".to_owned(),
        [one] => format!("replica {one}"),
        [firsts @ .., last] => format!("replicas {} and {last}", firsts.join(", ")),
    }
}

/// The same, as the beginning of a sentence about them.
fn are(replicas: u16) -> String {
    format!("{} {}", names(replicas), if replicas.count_ones() == 1 { "is" } else { "are" })
}

fn has(replicas: u16) -> String {
    format!("{} {}", names(replicas), if replicas.count_ones() == 1 { "has" } else { "have" })
}

/// A bit per replica.
pub(super) fn bits(replicas: impl Iterator<Item = u8>) -> u16 {
    replicas.fold(0, |bits, replica| bits | 1 << replica)
}

/// The condition that this replica waits for, and the remedy.
pub(super) fn waits_for<E: OrderEngine, W: World>(
    order: &OrderStage<E>,
    transfer: &StateTransfer,
    env: &Environment<W>,
) -> Option<String> {
    if !env.settings.mode.replicated || env.settings.peers.len() < 2 {
        return None;
    }
    let view = View {
        me: env.settings.me,
        replicas: env.settings.peers.len() as u8,
        connected: bits(env.peers.connected()),
        standing: &order.orderer.standing(),
        state: transfer.awaited(),
    };
    view.waits_for()
}

impl Waits {
    /// Reports `what` the replica waits for once the wait has lasted for a while, and repeats it as long as the wait
    /// lasts.
    pub(super) fn tell<W: World>(&mut self, what: Option<String>, env: &Environment<W>) {
        let now_us = env.world.now_us();
        let Some(what) = what else {
            self.now = None;
            if self.told.take().is_some() && env.outcome().is_none() {
                env.world.say(format_args!("this replica no longer waits"));
            }
            return;
        };
        let is_old = |since_us: u64, time: Duration| now_us >= since_us + time.as_micros() as u64;
        let since_us =
            self.now.take().filter(|(before, _)| *before == what).map_or(now_us, |(_, since_us)| since_us);
        let is_told = |(told, at_us): &(String, u64)| *told == what && !is_old(*at_us, limits::TOLD_STILL);
        if is_old(since_us, limits::WAITS_UNTOLD) && !self.told.as_ref().is_some_and(is_told) {
            env.world.say(format_args!("this replica waits {what}"));
            self.told = Some((what.clone(), now_us));
        }
        self.now = Some((what, since_us));
    }
}

/// Carries out an operator's decision about the group. Returns whether the ordering engine has output to perform now.
pub(super) fn decide<E: OrderEngine, W: World>(
    call: Call,
    is_executing: bool,
    order: &mut OrderStage<E>,
    transfer: &mut StateTransfer,
    env: &mut Environment<W>,
) -> bool {
    let me = env.settings.me;
    let replicas = env.settings.peers.len() as u8;
    let told = match call.command {
        AdminCommand::BeginGroup => order
            .orderer
            .decide(Decision::Found)
            .map(|()| "the group begins as soon as all replicas are there".to_owned()),
        AdminCommand::KeepState { replica } if replica == 0 || replica > replicas => {
            call.refuse(&format!("there is no replica {replica}; they are 1 to {replicas}"));
            return false;
        }
        AdminCommand::KeepState { replica } if replica == me + 1 => {
            order.orderer.decide(Decision::TakeOver).map(|()| keep_own_state(order, env))
        }
        AdminCommand::KeepState { replica } => {
            take_from(replica, call, is_executing, order, transfer, env);
            return false;
        }
        _ => return false,
    };
    match told {
        Ok(what) => call.reply(&admin::Decided { what }),
        Err(why) => call.refuse(&why.to_string()),
    }
    true
}

/// Reports that the group continues with this replica's state, as an operator decided; returns the message.
fn keep_own_state<E: OrderEngine, W: World>(order: &OrderStage<E>, env: &Environment<W>) -> String {
    let index = order.orderer.standing().last_index;
    let kept = format!("the group goes on with what this replica has, its log up to entry {index}");
    env.world.say(format_args!("an operator decided that {kept}"));
    kept
}

/// Makes the group continue with another replica's state, as an operator decided.
fn take_from<E: OrderEngine, W: World>(
    replica: u8,
    call: Call,
    is_executing: bool,
    order: &mut OrderStage<E>,
    transfer: &mut StateTransfer,
    env: &mut Environment<W>,
) {
    let standing = order.orderer.standing();
    if !is_executing {
        transfer.trust(replica - 1);
        let what = format!("the state is taken from replica {replica}, on its word alone");
        env.world.say(format_args!("an operator decided: {what}"));
        return call.reply(&admin::Decided { what });
    }
    if let Some(leader) = standing.leader {
        return call.refuse(&order::Declined::Led(leader).to_string());
    }
    let what =
        format!("what this replica has is given up: the group goes on with what replica {replica} has");
    call.reply(&admin::Decided { what: what.clone() });
    order.give_up_log(crate::ReplaceReason::Operator(what), env);
}

#[cfg(test)]
mod tests {
    use order::{MemberSet, Outside};

    use super::*;

    /// The condition that replica 3 of 3 waits for, with these replicas connected.
    fn waits(connected: u16, standing: Standing, state: Option<(u64, u16)>) -> String {
        let view = View { me: 2, replicas: 3, connected, standing: &standing, state };
        view.waits_for().unwrap_or_default()
    }

    fn outside(fresh: u16, members: u16, told: bool) -> Standing {
        Standing { outside: Outside { fresh, members, elsewhere: 0, told }, ..Standing::default() }
    }

    #[test]
    fn a_replica_without_a_group_says_who_is_missing_or_that_an_operator_decides() {
        let told = waits(0b001, outside(0b001, 0, false), None);
        assert_eq!(told, "for replica 2, not connected: a group begins when all of its replicas are there");
        assert!(waits(0, outside(0, 0, true), None).starts_with("for replicas 1 and 2, not connected"));
        let told = waits(0b011, outside(0b011, 0, false), None);
        assert!(told.contains("no replica has data") && told.contains("`crosscheck group begin`"), "{told}");
        assert_eq!(waits(0b011, outside(0b011, 0, true), None), "");
        let told = waits(0b011, outside(0b001, 0b010, false), None);
        assert!(
            told.starts_with("to be let into the group of replica 2") && told.contains("group keep 2"),
            "{told}"
        );
    }

    #[test]
    fn a_member_without_a_leader_says_who_is_away_and_who_has_lost_its_data() {
        let member = |fresh| Standing {
            incarnation: Some(1),
            members: MemberSet { voters: 0b111, learners: 0 },
            ..outside(fresh, 0, false)
        };
        let told = waits(0b010, member(0b010), None);
        assert_eq!(
            told,
            "for a leader: 2 of replicas 1, 2 and 3 have to be there with their data, and replica 1 is not \
                connected, replica 2 is here without data. Start them with it; if it is lost for ever, \
                `crosscheck group keep 3` goes on with what replica 3 has"
        );
        assert_eq!(waits(0b011, member(0), None), "for a leader: an election is on its way");
        let mut split = member(0);
        split.outside.elsewhere = 0b010;
        let told = waits(0b011, split, None);
        assert!(told.starts_with("for a leader: replica 2 belongs to another group"), "{told}");
        assert!(!waits(0b001, split, None).contains("another group"), "it is not connected any more");
        let alone = MemberSet { voters: 0b100, learners: 0 };
        let told = waits(0b011, Standing { leader: Some(2), members: alone, ..split }, None);
        assert!(told.starts_with("for a second replica: replica 2 belongs to another group"), "{told}");
        let led = Standing { leader: Some(0), ..member(0) };
        assert_eq!(waits(0b011, led, None), "");
        let told = waits(0b011, led, Some((70, 0b001)));
        assert!(told.contains("only replica 1 has so far") && told.contains("group keep 1"), "{told}");
        assert!(waits(0b011, led, Some((70, 0))).contains("nobody has so far"));
    }
}
