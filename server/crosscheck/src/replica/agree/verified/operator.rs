//! What the replicas of a verified group cannot decide, and an operator does: what each waits for, and the remedy.

use order::DecisionError;
use verify::limits::IDENTITY_VIEWS;
use verify::{Layout, Lineup, TokenRecord, VerifierEvent, Version};
use wire::ReplicaId;

use super::{Speculator, Verified, layout, other_than};
use crate::admin::{AdminCommand, Decided};
use crate::admin_server::Call;
use crate::replica::environment::Environment;
use crate::replica::group::Group;
use crate::replica::replica_sets::bits;
use crate::replica::waits::Wait;
use crate::service::Service;
use crate::world::World;

/// What is known of the other one of two replicas, when this one waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerState {
    /// There is proof that its process has ended; it came too late to go on alone.
    Ended,
    /// It is not connected.
    Away,
    /// It is connected, and nothing comes from it.
    Silent,
}

impl PeerState {
    /// The end of a sentence about it.
    fn in_words(self) -> &'static str {
        match self {
            PeerState::Ended => "its process has ended",
            PeerState::Away => "there is no connection to it",
            PeerState::Silent => "it is connected, and sends nothing",
        }
    }
}

impl Verified {
    /// What this replica waits for and does not get without an operator, with the remedy.
    pub(super) fn waits_for_operator<W: World>(&self, group: &Group, env: &Environment<W>) -> Option<Wait> {
        let me = env.settings.me;
        if let Some(wait) = self.waits_for_memories(group, env) {
            return Some(wait);
        }
        let Some(record) = self.verifier.record() else { return self.waits_for_memory(env) };
        if layout(&env.settings) == Layout::PairWithWitness {
            let is_behind = self.executes && self.is_left_behind(&record, me);
            let is_alone = is_behind && self.peer_state(group, env).is_some();
            return is_alone.then(|| left_behind(record.version.number, self.stable(), me));
        }
        if layout(&env.settings) != Layout::Pair {
            return None;
        }
        if let Some(number) = self.undecided {
            return Some(undecided(number, me));
        }
        if self.losses.peer_has_ended && goes_on_alone(&record.lineup, other_than(me)) {
            return Some(left_behind(record.version.number, self.stable(), me));
        }
        if self.is_left_behind(&record, me) && self.peer_state(group, env).is_some() {
            return Some(left_behind(record.version.number, self.stable(), me));
        }
        let Lineup { primary, executors, .. } = record.lineup;
        if primary != me || executors.len() < 2 {
            return None;
        }
        self.peer_state(group, env).map(|state| for_peer(record.version.number, me, state))
    }

    /// Whether this one of two replicas has not got what the other one has released without it.
    fn is_left_behind(&self, record: &verify::TokenRecord, me: u8) -> bool {
        let Lineup { executors, joining, .. } = record.lineup;
        let is_copy = executors.contains(me) && !joining.contains(me);
        !is_copy && self.stable() < record.version.number
    }

    /// What is known of the other one of two replicas; none if it is there.
    fn peer_state<W: World>(&self, group: &Group, env: &Environment<W>) -> Option<PeerState> {
        let peer = other_than(env.settings.me);
        let is_connected = env.peers.connected().any(|connected| connected == peer);
        match (self.losses.peer_has_ended, is_connected) {
            (true, _) => Some(PeerState::Ended),
            (false, false) => Some(PeerState::Away),
            (false, true) => group.is_quiet(peer, env.world.now_us()).then_some(PeerState::Silent),
        }
    }

    /// The verifier of this process has lost its memory, or never had one.
    fn waits_for_memory<W: World>(&self, env: &Environment<W>) -> Option<Wait> {
        let connected = bits(env.peers.connected());
        let all = (1u16 << env.settings.peers.len()) - 1;
        let missing = all & !connected & !(1 << env.settings.me);
        let begin = "if all of them have lost it for ever, `crosscheck group begin` begins an empty group";
        if missing != 0 && env.settings.is_pair() {
            let peer = ReplicaId(other_than(env.settings.me));
            let what = format!(
                "for replica {peer}, which may have what the group has agreed on, and is not connected. Start it"
            );
            return Some(Wait::or(what, format!("{begin} once both are there")));
        }
        (missing == 0 && !self.begins).then(|| {
            let what = "for what the group has agreed on, which the others may have: that takes a moment. No replica \
                may have data of a group";
            Wait::or(what.to_owned(), begin.to_owned())
        })
    }
}

/// Whether, in a view like this, this one of two replicas releases replies without the other one.
fn goes_on_alone(lineup: &Lineup, replica: u8) -> bool {
    lineup.primary == replica && !lineup.executors.contains(other_than(replica))
}

/// For an operator, when the primary of two replicas may not go on alone.
fn for_peer(number: u64, me: u8, state: PeerState) -> Wait {
    let (me, peer, how) = (ReplicaId(me), ReplicaId(other_than(me)), state.in_words());
    Wait::or(
        format!(
            "for replica {peer}: {how}, and it may have gone on without this replica, which stands after batch \
                {number}. Start it, or let it run on: the two go on together"
        ),
        format!(
            "if it never comes back, `crosscheck group keep {me}` goes on with what replica {me} has; replies that \
                replica {peer} has given alone are lost then"
        ),
    )
}

/// For an operator, when the other one of two replicas went on alone, and ended before this one was level.
fn left_behind(number: u64, stable: u64, me: u8) -> Wait {
    let (me, peer) = (ReplicaId(me), ReplicaId(other_than(me)));
    Wait::or(
        format!(
            "for an operator's word: replica {peer} went on alone and has ended before this replica was level with \
                it. It had come to batch {number} or a later one, and this replica to batch {stable}"
        ),
        format!(
            "`crosscheck group keep {me}` goes on with what replica {me} has; replies to requests in between are lost \
                then"
        ),
    )
}

/// For an operator, when two replicas differ and it is unknown which one is right.
fn undecided(number: u64, me: u8) -> Wait {
    let me = ReplicaId(me);
    Wait::or(
        format!(
            "for an operator's word: the batch after {number} ran one request at a time, and the two replicas differ \
                all the same. Either the service is not deterministic, or the state of one of them is corrupted; \
                `crosscheck evidence` may tell"
        ),
        format!("`crosscheck group keep {me}` goes on with what replica {me} has"),
    )
}

impl<S: Service, W: World> Speculator<'_, S, W> {
    /// Carries out an operator's decision about the group.
    pub(super) fn decide(&mut self, call: Call) {
        let decided = match call.command {
            AdminCommand::BeginGroup => begin_group(self),
            AdminCommand::KeepState { replica } => keep_state(self, replica),
            AdminCommand::TakeState { .. } => Err(DecisionError::NoGroup.to_string()),
            _ => return,
        };
        match decided {
            Ok(what) => {
                self.core.env.world.say(format_args!("an operator decided: {what}"));
                call.reply(&Decided { what });
            }
            Err(why) => call.refuse(&why),
        }
    }

    /// Proof that a process of this peer has ended. Only two replicas without a third verifier have to know. If it was
    /// alone in the present view, what it has released may be lost.
    pub(super) fn on_process_gone(&mut self, peer: u8) {
        if !self.core.env.settings.is_pair() {
            return;
        }
        let record = self.stage.verifier.record();
        self.stage.losses.peer_has_ended |= record.is_some_and(|record| goes_on_alone(&record.lineup, peer));
        self.on_verifier_event(VerifierEvent::ProcessGone(peer));
    }
}

fn begin_group<S: Service, W: World>(this: &mut Speculator<'_, S, W>) -> Result<String, String> {
    if this.core.env.settings.me != 0 {
        return Err(DecisionError::NotFirst.to_string());
    }
    if this.stage.verifier.record().is_some() {
        return Err(DecisionError::Belongs.to_string());
    }
    this.stage.begins = true;
    this.on_verifier_event(VerifierEvent::Begin);
    Ok("the group begins as soon as all replicas are there and none has data of one".to_owned())
}

fn keep_state<S: Service, W: World>(this: &mut Speculator<'_, S, W>, replica: u8) -> Result<String, String> {
    let me = this.core.env.settings.me;
    if this.core.env.settings.is_witness() {
        return Ok("the witness follows the replica that is kept".to_owned());
    }
    let executors = this.core.env.settings.executors();
    if !(1..=executors).contains(&usize::from(replica)) {
        return Err(format!("there is no replica {replica}; they are 1 to {executors}"));
    }
    if replica != me + 1 {
        return Ok(follow(this, replica));
    }
    let record = this.stage.verifier.record().ok_or_else(|| DecisionError::NoData.to_string())?;
    if this.core.executor.running.is_none() || this.stage.is_taking_state() {
        return Err("this replica has not received all data yet".to_owned());
    }
    if matches!(layout(&this.core.env.settings), Layout::Crash { .. }) {
        return keep_one_of_many(this, &record);
    }
    keep_one_of_two(this, &record)
}

/// An operator decided for another replica. One that has no state takes that one's, on its word alone: nobody else has
/// any.
fn follow<S: Service, W: World>(this: &mut Speculator<'_, S, W>, replica: u8) -> String {
    let is_empty = this.core.executor.running.is_none();
    if is_empty && matches!(layout(&this.core.env.settings), Layout::Crash { .. }) {
        this.core.transfer.trust(replica - 1);
        return format!("the state is taken from replica {replica}, on its word alone");
    }
    format!(
        "this replica follows replica {replica} as soon as the two are connected, and gives up what replica {replica} \
            does not have"
    )
}

/// Goes on with what this one of three or more replicas has, where too few verifiers have their memory.
fn keep_one_of_many<S: Service, W: World>(
    this: &mut Speculator<'_, S, W>,
    record: &TokenRecord,
) -> Result<String, String> {
    let replica = ReplicaId(this.core.env.settings.me);
    let blank = match this.lost_memories() {
        Ok(blank) => blank,
        // The command may have been interrupted, and is repeated for the others.
        Err(_) if is_kept(record, this.core.env.settings.me) => {
            return Ok(format!("the group goes on with what replica {replica} has: that was decided before"));
        }
        Err(why) => return Err(why),
    };
    let has = this.stage.to_keep();
    this.on_verifier_event(VerifierEvent::GoAlone { has, blank });
    Ok(goes_on(replica, has, record))
}

/// Whether the group goes on with what this replica has already, because an operator has decided so.
fn is_kept(record: &TokenRecord, me: u8) -> bool {
    record.view >= IDENTITY_VIEWS && record.lineup.primary == me
}

/// Goes on with what this one of two replicas has.
fn keep_one_of_two<S: Service, W: World>(
    this: &mut Speculator<'_, S, W>,
    record: &TokenRecord,
) -> Result<String, String> {
    let me = this.core.env.settings.me;
    let Lineup { primary, executors, .. } = record.lineup;
    let has = this.stage.executor.stable();
    let is_lost = has.number < record.version.number;
    let blank = match this.core.env.settings.witness {
        // The witness and the other replica may have lost their memories, and then nobody takes this one's view over.
        true => this.lost_memories(),
        false => Err(String::new()),
    };
    if primary == me && executors.len() == 1 && !is_lost && blank.is_err() {
        return Ok("this replica goes on alone already".to_owned());
    }
    let is_alone = blank.is_ok() || this.stage.peer_state(&this.core.group, &this.core.env).is_some();
    if this.stage.undecided.is_none() && !is_alone {
        return Err(format!("replica {} is there: there is nothing to decide", ReplicaId(other_than(me))));
    }
    if this.core.env.settings.witness && !is_lost && blank.is_err() {
        return Err(
            "this replica has all that the group has agreed on: it goes on as soon as the witness is there"
                .to_owned(),
        );
    }
    this.on_verifier_event(VerifierEvent::GoAlone { has, blank: blank.unwrap_or_default() });
    Ok(goes_on(ReplicaId(me), has, record))
}

/// What an operator has decided: the group goes on with what this replica has, which is less than was recorded if the
/// record is a later one.
fn goes_on(replica: ReplicaId, has: Version, record: &TokenRecord) -> String {
    let (from, last) = (has.number + 1, record.version.number);
    let lost = match has.number < last {
        true => format!("; batches {from} to {last} or later are given up"),
        false => String::new(),
    };
    format!("the group goes on with what replica {replica} has, after batch {}{lost}", has.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_learns_what_happened_and_what_to_do() {
        let reported = for_peer(17, 0, PeerState::Ended).reported(true);
        assert!(reported.starts_with("for replica 2: its process has ended"), "{reported}");
        assert!(
            reported.contains("after batch 17") && reported.contains("`crosscheck group keep 1`"),
            "{reported}"
        );
        let reported = for_peer(17, 1, PeerState::Away).reported(true);
        assert!(reported.starts_with("for replica 1: there is no connection"), "{reported}");
        assert!(reported.contains("`crosscheck group keep 2`"), "{reported}");
        let reported = undecided(4, 1).reported(true);
        assert!(reported.contains("batch after 4"), "{reported}");
        let reported = left_behind(30, 17, 1).reported(true);
        assert!(
            reported.contains("replica 1 went on alone") && reported.contains("`crosscheck group keep 2`"),
            "{reported}"
        );
        assert!(reported.contains("batch 30 or a later one, and this replica to batch 17"), "{reported}");
        for early in [for_peer(17, 0, PeerState::Ended), left_behind(30, 17, 1), undecided(4, 1)] {
            let reported = early.reported(false);
            assert!(!reported.contains("group keep"), "{reported}");
        }
    }

    /// A replica is left behind by a peer that ends while it releases replies alone. One that needed this replica's
    /// tokens has released nothing that this one does not have.
    #[test]
    fn only_a_peer_that_was_alone_leaves_this_replica_behind() {
        let lineup = |primary: u8, executors: &[u8]| Lineup {
            primary,
            executors: executors.iter().fold(verify::Slots::EMPTY, |slots, slot| slots.with(*slot)),
            joining: verify::Slots::EMPTY,
            sequential: false,
            extra: false,
        };
        for me in 0..2 {
            let peer = other_than(me);
            assert!(goes_on_alone(&lineup(peer, &[peer]), peer));
            assert!(!goes_on_alone(&lineup(peer, &[0, 1]), peer), "it needed this replica");
            assert!(!goes_on_alone(&lineup(me, &[me]), peer), "this replica was alone");
            assert!(!goes_on_alone(&lineup(me, &[0, 1]), peer));
        }
    }
}
