//! Conditions that a replica waits for and cannot continue without. The operator is informed of them, with a remedy,
//! for as long as they last.

use std::time::Duration;

use order::{Decision, EngineStatus};
use wire::ReplicaId;

use super::environment::Environment;
use super::group::{Group, LogEnd};
use super::order_stage::OrderStage;
use super::replica_sets::{are, bits, has, names};
use super::state_transfer::StateTransfer;
use crate::admin::AdminCommand;
use crate::admin_server::Call;
use crate::hooks::{Hooks, Rule};
use crate::world::World;
use crate::{admin, limits};

/// The reports about the replica's current wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// The condition that the replica waits for, and since when.
    now: Option<(String, u64)>,
    /// The condition that was reported last, and when; none once it is met.
    reported: Option<(String, u64)>,
}

/// What a replica waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// What happened, the evidence, and what can be done without giving anything up.
    what: String,
    /// What an operator can decide if that does not help: it names a command that gives data up.
    remedy: Option<String>,
}

/// What stands in the place of a remedy that is not told yet.
const REMEDY_LATER: &str = "what else can be done is said here when no replica has been started, connected or refused \
    for a minute";

impl Wait {
    /// A condition that needs no decision.
    pub(super) fn only(what: String) -> Self {
        Wait { what, remedy: None }
    }

    /// A condition about which an operator can decide.
    pub(super) fn or(what: String, remedy: String) -> Self {
        Wait { what, remedy: Some(remedy) }
    }

    /// The message. The remedy is part of it only if the group is `settled`: for a moment, each restart looks like a
    /// loss.
    pub(super) fn reported(self, settled: bool) -> String {
        let Wait { what, remedy } = self;
        match remedy {
            None => what,
            Some(remedy) if settled => format!("{what}; {remedy}"),
            Some(_) => format!("{what}; {REMEDY_LATER}"),
        }
    }
}

/// The facts about a replica that makes no progress.
#[derive(Clone, Copy, Debug)]
struct View<'a> {
    me: u8,
    replicas: u8,
    connected: u16,
    engine_status: &'a EngineStatus,
    /// The ends of the others' logs, by replica, as far as they are known.
    log_ends: &'a [Option<LogEnd>],
    /// The state it waits for: its log entry, and the replicas that offered one. None if the replica has its state, or
    /// receives it.
    state: Option<(u64, u16)>,
    /// The first one is recommended, whatever others have: a promise that is broken on purpose.
    advises_first: bool,
    /// It has loaded a backup, with which its group would begin.
    has_backup: bool,
}

impl View<'_> {
    /// The condition that it waits for.
    fn waits_for(&self) -> Option<Wait> {
        match (self.engine_status.incarnation, self.engine_status.leader) {
            (None, _) => self.group(),
            (Some(_), None) => Some(self.leader()),
            (Some(_), Some(_))
                if self.engine_status.members.voters.count_ones() == 1 && self.elsewhere() != 0 =>
            {
                Some(self.another_group("for a second replica"))
            }
            // One that joins knows no members before it has the state.
            (Some(_), Some(leader)) if self.engine_status.stuck && self.engine_status.members.voters != 0 => {
                Some(self.stuck(leader))
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

    /// The end of a replica's log, if it is known.
    fn log_end(&self, replica: u8) -> Option<LogEnd> {
        if replica == self.me {
            return Some(LogEnd { term: self.engine_status.last_term, index: self.engine_status.last_index });
        }
        self.log_ends.get(usize::from(replica)).copied().flatten()
    }

    /// What an operator can do if the data of the others is lost for ever: go on with the one of these replicas that
    /// has the most. None of them is named while the log of one is unknown.
    fn keep_most(&self, candidates: u16) -> String {
        let here = (0..self.replicas).filter(|replica| candidates >> replica & 1 == 1);
        let ends: Option<Vec<(LogEnd, u8)>> =
            here.map(|replica| Some((self.log_end(replica)?, replica))).collect();
        // Of two that have the same, the first one.
        let most = ends.and_then(|ends| ends.into_iter().max_by_key(|(end, replica)| (*end, !replica)));
        let most = most.map(|(end, replica)| (end, if self.advises_first { 0 } else { replica }));
        match most.filter(|(end, _)| end.index > 0) {
            Some((LogEnd { index, .. }, replica)) => {
                let replica = ReplicaId(replica);
                format!(
                    "if it is lost for ever, `crosscheck group keep {replica}` goes on with what replica {replica} \
                        has, up to entry {index} of its log: no replica that is here has more"
                )
            }
            None => format!(
                "if it is lost for ever, an operator can have the group go on with what one of {} has; which of \
                    them has the most is not known yet",
                names(candidates)
            ),
        }
    }

    /// The message when it belongs to no group.
    fn group(&self) -> Option<Wait> {
        let outside = &self.engine_status.outside;
        if outside.members != 0 {
            let what = format!(
                "to be let into the group of {}. That takes a moment, unless too few of its members are \
                    there: start the others with their data",
                names(outside.members)
            );
            return Some(Wait::or(what, self.keep_most(outside.members)));
        }
        let missing = self.missing();
        if missing != 0 {
            return Some(Wait::only(format!(
                "for {}, not connected: a group begins when all of its replicas are there",
                names(missing)
            )));
        }
        if outside.differ != 0 {
            return Some(Wait::only(format!(
                "for replicas that begin with the same state: {} would begin with another backup, or with none. Start \
                    all replicas with the same file for --restore, or all without",
                names(outside.differ)
            )));
        }
        let everybody = outside.fresh | 1 << self.me == self.all();
        let what = "for an operator's word: all replicas are here, and no replica has data of a group";
        (everybody && !outside.is_ordered).then(|| match self.has_backup {
            true => Wait::only(format!(
                "{what}. All have loaded the same backup, and `crosscheck group begin` begins the group with it"
            )),
            false => Wait::or(
                what.to_owned(),
                "if there never was any, or it is lost for ever, `crosscheck group begin` begins an empty one"
                    .to_owned(),
            ),
        })
    }

    /// Replicas that are connected and belong to another group.
    fn elsewhere(&self) -> u16 {
        self.engine_status.outside.elsewhere & self.connected
    }

    /// The message when there are two groups, and in its own it waits for `what`.
    fn another_group(&self, what: &str) -> Wait {
        let others = self.elsewhere();
        let belong = if others.count_ones() == 1 { "belongs" } else { "belong" };
        Wait::only(format!(
            "{what}: {} {belong} to another group, because an operator had one of them go on without the \
                other. Either this replica joins that one: end it, move its data directory away, and start it \
                again; or they join this one in the same way",
            names(others)
        ))
    }

    /// The message when it belongs to a group without a leader.
    fn leader(&self) -> Wait {
        let members = self.engine_status.members;
        let needed = members.voters.count_ones() / 2 + 1;
        let away = members.voters & self.missing();
        let empty = self.engine_status.outside.fresh & self.connected;
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
            return Wait::only("for a leader: an election is on its way".to_owned());
        }
        let why = why.join(", ");
        if members.voters == 0 {
            return Wait::only(format!("for a leader that lets it in, and {why}"));
        }
        let what = format!(
            "for a leader: {needed} of {} have to be there with their data, and {why}. Start them with it",
            names(members.voters),
        );
        let here = (members.voters | members.learners) & self.connected & !empty;
        Wait::or(what, self.keep_most(here | 1 << self.me))
    }

    /// The message when there is a leader, and nothing was committed since it leads.
    fn stuck(&self, leader: u8) -> Wait {
        let members = self.engine_status.members;
        let needed = members.voters.count_ones() / 2 + 1;
        let away = members.voters & self.missing();
        let who = if away == 0 { String::new() } else { format!("{} not connected; ", are(away)) };
        let here = (members.voters & self.connected) | 1 << self.me;
        let leader = ReplicaId(leader);
        let comes = match self.state {
            _ if self.engine_status.leader == Some(self.me) => {
                "this replica gives those that lack entries its state".into()
            }
            Some((index, _)) => {
                format!(
                    "this replica lacks entries, and takes the state after entry {index} from replica {leader}"
                )
            }
            None => format!("replica {leader} gives those that lack entries its state"),
        };
        let voters = names(members.voters);
        let what = format!(
            "for {needed} of {voters} to take the next entry: nothing was committed since replica {leader} leads. \
                {who}{comes}"
        );
        Wait::or(what, self.keep_most(here))
    }

    /// The message when it has no state, and too few replicas have offered one.
    fn donors(&self, index: u64, named: u16) -> Wait {
        let needed = self.replicas / 2 + 1;
        let so_far = if named == 0 { "nobody has".to_owned() } else { format!("only {}", has(named)) };
        let keeper = ReplicaId(self.engine_status.leader.unwrap_or_default());
        Wait::or(
            format!(
                "for the state after entry {index}, or a later one: {needed} replicas have to give the same, and \
                    {so_far} so far"
            ),
            format!(
                "if nobody else has it any more, `crosscheck group keep {keeper}` has it taken from replica {keeper} \
                    alone"
            ),
        )
    }
}

/// The condition that this replica waits for, and the remedy; `of_operator` is what a verified group waits for.
pub(super) fn waits_for<W: World>(
    order: &OrderStage,
    (group, of_operator): (&Group, Option<Wait>),
    transfer: &StateTransfer,
    env: &Environment<W>,
) -> Option<String> {
    let of_order = || of_order(order, group, transfer, env).filter(|_| !env.settings.is_witness());
    Some(
        of_operator
            .or_else(of_order)?
            .reported(group.is_steady(env.world.now_us(), env.world.scale().until_advice)),
    )
}

fn of_order<W: World>(
    order: &OrderStage,
    group: &Group,
    transfer: &StateTransfer,
    env: &Environment<W>,
) -> Option<Wait> {
    if !env.settings.mode.replicated || env.settings.peers.len() < 2 {
        return None;
    }
    let view = View {
        me: env.settings.me,
        replicas: env.settings.peers.len() as u8,
        connected: bits(env.peers.connected()),
        engine_status: &order.orderer.engine_status(),
        log_ends: &group.log_ends(),
        state: transfer.awaited(),
        advises_first: !env.hooks.keeps(Rule::AdvisesMost),
        has_backup: env.settings.restore.is_some(),
    };
    view.waits_for()
}

impl Waits {
    /// Reports `what` the replica waits for once the wait has lasted for a while, and repeats it as long as the wait
    /// lasts.
    pub(super) fn report<W: World>(&mut self, what: Option<String>, env: &Environment<W>) {
        let now_us = env.world.now_us();
        let Some(what) = what else {
            self.now = None;
            if self.reported.take().is_some() && env.outcome().is_none() {
                env.world.say(format_args!("this replica no longer waits"));
            }
            return;
        };
        let is_old = |since_us: u64, time: Duration| now_us >= since_us + time.as_micros() as u64;
        let since_us =
            self.now.take().filter(|(before, _)| *before == what).map_or(now_us, |(_, since_us)| since_us);
        let is_reported =
            |(reported, at_us): &(String, u64)| *reported == what && !is_old(*at_us, limits::REPORTED_STILL);
        if is_old(since_us, limits::WAITS_UNTOLD) && !self.reported.as_ref().is_some_and(is_reported) {
            env.world.say(format_args!("this replica waits {what}"));
            self.reported = Some((what.clone(), now_us));
        }
        self.now = Some((what, since_us));
    }
}

/// Carries out an operator's decision about the group.
pub(super) fn decide<W: World>(
    call: Call,
    is_executing: bool,
    order: &mut OrderStage,
    transfer: &mut StateTransfer,
    env: &mut Environment<W>,
) {
    let me = env.settings.me;
    let replicas = env.settings.peers.len() as u8;
    let reported = match call.command {
        AdminCommand::BeginGroup => order.orderer.decide(Decision::Found).map(|()| match &env.settings.restore {
            Some(path) => format!(
                "the group begins with the backup {} as soon as all replicas are there, and have loaded the same one",
                path.display()
            ),
            None => "the group begins as soon as all replicas are there".to_owned(),
        }),
        AdminCommand::KeepState { replica } | AdminCommand::TakeState { replica }
            if replica == 0 || replica > replicas =>
        {
            return call.refuse(&format!("there is no replica {replica}; they are 1 to {replicas}"));
        }
        AdminCommand::KeepState { replica } if replica == me + 1 => {
            let connected = bits(env.peers.connected());
            if is_kept(&order.orderer.engine_status(), me, connected) {
                Ok("the group goes on with what this replica has: that was decided before".to_owned())
            } else {
                order.orderer.decide(Decision::TakeOver).map(|()| keep_own_state(order, env))
            }
        }
        AdminCommand::KeepState { replica } if is_executing => {
            return give_up_for(replica, call, order, env);
        }
        AdminCommand::KeepState { replica } => Ok(take_from(replica, transfer, env)),
        AdminCommand::TakeState { replica } => {
            if is_executing {
                return call.refuse("this replica has its state; nothing was changed");
            }
            Ok(take_from(replica, transfer, env))
        }
        _ => return,
    };
    match reported {
        Ok(what) => call.reply(&admin::Decided { what }),
        Err(why) => call.refuse(&why.to_string()),
    }
}

/// Whether the group goes on with this replica's state already: it leads a group of its own, and others are not in it,
/// or still in the one before. A command that is repeated, because it was interrupted, then goes on with the others.
fn is_kept(engine_status: &EngineStatus, me: u8, connected: u16) -> bool {
    let is_alone = engine_status.members.voters == 1 << me;
    engine_status.is_leader && (is_alone || engine_status.outside.elsewhere & connected != 0)
}

/// Reports that the group continues with this replica's state, as an operator decided; returns the message.
fn keep_own_state<W: World>(order: &OrderStage, env: &Environment<W>) -> String {
    let index = order.orderer.engine_status().last_index;
    let kept = format!("the group goes on with what this replica has, its log up to entry {index}");
    env.world.say(format_args!("an operator decided that {kept}"));
    kept
}

/// Makes this replica, which waits for a state, take that of another one, as an operator decided.
fn take_from<W: World>(replica: u8, transfer: &mut StateTransfer, env: &Environment<W>) -> String {
    transfer.trust(replica - 1);
    let what = format!("the state is taken from replica {replica}, on its word alone");
    env.world.say(format_args!("an operator decided: {what}"));
    what
}

/// Makes the group continue with another replica's state instead of this one's, as an operator decided.
fn give_up_for<W: World>(replica: u8, call: Call, order: &mut OrderStage, env: &mut Environment<W>) {
    if let Some(leader) = order.orderer.engine_status().leader {
        return call.refuse(&order::DecisionError::Led(leader).to_string());
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

    const NO_LOGS: [Option<LogEnd>; 3] = [None; 3];

    /// The condition that replica 3 of 3 waits for, with these replicas connected, and the ends of the others' logs.
    fn waits_with(log_ends: &[Option<LogEnd>], connected: u16, engine_status: EngineStatus) -> String {
        let view = View {
            me: 2,
            replicas: 3,
            connected,
            engine_status: &engine_status,
            log_ends,
            state: None,
            advises_first: false,
            has_backup: false,
        };
        view.waits_for().map(|wait| wait.reported(true)).unwrap_or_default()
    }

    /// The same, before the others have told of their logs.
    fn waits(connected: u16, engine_status: EngineStatus, state: Option<(u64, u16)>) -> String {
        let view = View {
            me: 2,
            replicas: 3,
            connected,
            engine_status: &engine_status,
            log_ends: &NO_LOGS,
            state,
            advises_first: false,
            has_backup: false,
        };
        view.waits_for().map(|wait| wait.reported(true)).unwrap_or_default()
    }

    fn outside(fresh: u16, members: u16, reported: bool) -> EngineStatus {
        EngineStatus {
            outside: Outside { fresh, members, is_ordered: reported, ..Outside::default() },
            ..EngineStatus::default()
        }
    }

    fn member(fresh: u16) -> EngineStatus {
        EngineStatus {
            incarnation: Some(1),
            members: MemberSet { voters: 0b111, learners: 0 },
            last_index: 331,
            last_term: 4,
            ..outside(fresh, 0, false)
        }
    }

    fn end(term: u64, index: u64) -> Option<LogEnd> {
        Some(LogEnd { term, index })
    }

    #[test]
    fn a_replica_without_a_group_says_who_is_missing_or_that_an_operator_decides() {
        let reported = waits(0b001, outside(0b001, 0, false), None);
        assert_eq!(
            reported,
            "for replica 2, not connected: a group begins when all of its replicas are there"
        );
        assert!(waits(0, outside(0, 0, true), None).starts_with("for replicas 1 and 2, not connected"));
        let reported = waits(0b011, outside(0b011, 0, false), None);
        assert!(
            reported.contains("no replica has data") && reported.contains("`crosscheck group begin`"),
            "{reported}"
        );
        assert_eq!(waits(0b011, outside(0b011, 0, true), None), "");
        let one = [None, end(1, 70), None];
        let reported = waits_with(&one, 0b011, outside(0b001, 0b010, false));
        assert!(
            reported.starts_with("to be let into the group of replica 2")
                && reported.contains("group keep 2"),
            "{reported}"
        );
    }

    /// Not the first number: the log with everything that was acknowledged. A longer log of an earlier term lacks it.
    #[test]
    fn the_replica_with_the_most_is_recommended_and_none_while_that_is_not_known() {
        let two = outside(0, 0b011, false);
        let reported = waits_with(&[end(4, 331), end(4, 5125), None], 0b011, two);
        assert!(
            reported.contains("`crosscheck group keep 2`") && reported.contains("up to entry 5125"),
            "{reported}"
        );
        let reported = waits_with(&[end(5, 331), end(4, 5125), None], 0b011, two);
        assert!(reported.contains("`crosscheck group keep 1`"), "{reported}");
        for unknown in [[None, end(4, 5125), None], [end(4, 331), None, None], [end(0, 0), end(0, 0), None]] {
            let reported = waits_with(&unknown, 0b011, two);
            assert!(!reported.contains("group keep") && reported.contains("not known yet"), "{reported}");
        }
        let reported = waits_with(&[end(4, 331), end(4, 331), None], 0b011, two);
        assert!(reported.contains("`crosscheck group keep 1`"), "the same in both: {reported}");
        // A member compares the others with itself, and not with those that came without data.
        let five = EngineStatus { members: MemberSet { voters: 0b11111, learners: 0 }, ..member(0b010) };
        let reported = |log_ends: [Option<LogEnd>; 5]| {
            let view = View {
                me: 2,
                replicas: 5,
                connected: 0b011,
                engine_status: &five,
                log_ends: &log_ends,
                state: None,
                advises_first: false,
                has_backup: false,
            };
            view.waits_for().map(|wait| wait.reported(true)).unwrap_or_default()
        };
        assert!(reported([end(4, 332), end(0, 0), None, None, None]).contains("`crosscheck group keep 1`"));
        assert!(reported([end(4, 330), None, None, None, None]).contains("`crosscheck group keep 3`"));
        assert!(!reported([None, end(4, 999), None, None, None]).contains("group keep"));
    }

    #[test]
    fn a_member_without_a_leader_says_who_is_away_and_who_has_lost_its_data() {
        let reported = waits(0b010, member(0b010), None);
        assert_eq!(
            reported,
            "for a leader: 2 of replicas 1, 2 and 3 have to be there with their data, and replica 1 is not \
                connected, replica 2 is here without data. Start them with it; if it is lost for ever, \
                `crosscheck group keep 3` goes on with what replica 3 has, up to entry 331 of its log: no replica \
                that is here has more"
        );
        assert_eq!(waits(0b011, member(0), None), "for a leader: an election is on its way");
        let mut split = member(0);
        split.outside.elsewhere = 0b010;
        let reported = waits(0b011, split, None);
        assert!(reported.starts_with("for a leader: replica 2 belongs to another group"), "{reported}");
        assert!(!waits(0b001, split, None).contains("another group"), "it is not connected any more");
        let alone = MemberSet { voters: 0b100, learners: 0 };
        let reported = waits(0b011, EngineStatus { leader: Some(2), members: alone, ..split }, None);
        assert!(
            reported.starts_with("for a second replica: replica 2 belongs to another group"),
            "{reported}"
        );
        let stuck = EngineStatus { leader: Some(0), stuck: true, ..member(0) };
        let reported = waits(0b001, stuck, Some((70, 0b001)));
        assert!(
            reported.contains("replica 2 is not connected") && reported.contains("entry 70 from replica 1"),
            "{reported}"
        );
        let led = EngineStatus { leader: Some(0), ..member(0) };
        assert_eq!(waits(0b011, led, None), "");
        let reported = waits(0b011, led, Some((70, 0b001)));
        assert!(
            reported.contains("only replica 1 has so far") && reported.contains("group keep 1"),
            "{reported}"
        );
        assert!(waits(0b011, led, Some((70, 0))).contains("nobody has so far"));
    }

    /// It sees nothing committed before it has the state of the others, who order all the time.
    #[test]
    fn one_that_joins_does_not_take_the_group_for_stuck() {
        let joins = EngineStatus {
            leader: Some(0),
            stuck: true,
            members: MemberSet { voters: 0, learners: 0 },
            ..member(0)
        };
        assert_eq!(waits(0b011, joins, None), "", "the state is on its way");
        let reported = waits(0b011, joins, Some((70, 0)));
        assert!(reported.starts_with("for the state after entry 70"), "{reported}");
    }

    /// Whatever it waits for: no command that gives data up is named before the group is settled.
    #[test]
    fn no_message_names_a_command_that_gives_data_up_too_early() {
        let logs = [end(4, 331), end(4, 5125), None];
        let led = EngineStatus { leader: Some(0), ..member(0) };
        let mut split = member(0);
        split.outside.elsewhere = 0b010;
        let waits = [
            (outside(0b011, 0, false), None),
            (outside(0, 0b011, false), None),
            (member(0b011), None),
            (led, Some((70, 0b001))),
            (split, None),
        ];
        for (engine_status, state) in &waits {
            let view = View {
                me: 2,
                replicas: 3,
                connected: 0b011,
                engine_status,
                log_ends: &logs,
                state: *state,
                advises_first: false,
                has_backup: false,
            };
            let wait = view.waits_for().expect("it waits");
            assert!(!wait.what.contains("group keep") && !wait.what.contains("group begin"), "{wait:?}");
            let (later, now) = (wait.clone().reported(false), wait.clone().reported(true));
            assert!(!later.contains("`crosscheck"), "{later}");
            assert!(
                wait.remedy.is_none() || (now.contains("`crosscheck") && later.contains("minute")),
                "{now}"
            );
        }
    }

    #[test]
    fn a_decision_was_made_before_only_where_the_others_are_not_in_the_group() {
        let led = EngineStatus { leader: Some(2), is_leader: true, ..member(0) };
        assert!(!is_kept(&led, 2, 0b011), "a leader of all replicas was not chosen by an operator");
        let alone = EngineStatus { members: MemberSet { voters: 0b100, learners: 0b001 }, ..led };
        assert!(is_kept(&alone, 2, 0b011));
        assert!(!is_kept(&EngineStatus { is_leader: false, ..alone }, 2, 0b011));
        let mut before = led;
        before.outside.elsewhere = 0b001;
        assert!(is_kept(&before, 2, 0b011) && !is_kept(&before, 2, 0b010));
    }
}
