//! The group grows or shrinks by two replicas while it serves, by requests of f+1 replicas in the order.
//!
//! A change *begins* at one batch of the order, and *ends* at a later one (`order::GroupSizes`). Replicas that are
//! added are connected from the first on, take the state and execute, and have no vote. From the batch behind the
//! second on, the group has its new size. A replica orders that end once it has seen for itself that all replicas of
//! the new group are connected, and that each of the old one that stays has executed the batch in which the change
//! began.
//!
//! *Why two steps.* Those that are added have caught up before anything depends on them. And between the two, reads
//! take a batch like everything else: no replica that has not seen the end answers a read of its own clients alone,
//! while others answer writes with a majority that it does not know.
//!
//! *Who decides.* For a growth, an operator asks one replica, and the others second it that see processes with the
//! group's key at the new addresses. Nothing can be seen of a shrinking: each of f+1 replicas has to be asked.

use order::limits::MOST_REPLICAS;
use order::{Delivered, GroupSize, SizeChange, SizeWish};
use wire::ReplicaId;

use super::Replica;
use super::core::Core;
use super::environment::Environment;
use super::group::Group;
use super::members::Resized;
use super::order_stage::OrderStage;
use crate::address::Address;
use crate::admin::Decided;
use crate::admin_server::Call;
use crate::hooks::{Hooks, Rule};
use crate::ordered::Control;
use crate::peers::{KnownSize, Outsider};
use crate::service::Service;
use crate::world::World;
use crate::{Corrupted, ServeError, limits};

const _: () = assert!(MOST_REPLICAS as usize == vote::limits::MAX_REPLICAS);

impl<W: World> Environment<W> {
    /// Whether this replica is being added: it executes, and has no vote and no clients.
    pub(super) fn is_observer(&self) -> bool {
        self.settings.me >= self.members.voting
    }

    /// There are so many replicas from now on, of which `voting` vote.
    fn resize(&mut self, known: u8, voting: u8, changes: u32, address_of: impl Fn(u8) -> Option<Address>) {
        // One that stands for no machine: a replica whose address is not known yet dials this one.
        let unknown = || Address::Fixed(([0, 0, 0, 0], 0).into());
        let before = &self.settings.peers;
        let addresses = (0..known).map(|replica| {
            address_of(replica).or_else(|| before.get(usize::from(replica)).cloned()).unwrap_or_else(unknown)
        });
        let addresses: Vec<Address> = addresses.collect();
        self.members.voting = voting;
        self.settings.peers.clone_from(&addresses);
        self.peers.resize(addresses, KnownSize { changes, voting });
    }
}

impl<S: Service, W: World> Core<S, W> {
    /// A process says that it is a replica that the group does not have.
    pub(super) fn on_outsider(&mut self, outsider: &Outsider) {
        if !outsider.is_own && !outsider.was_in {
            let now_us = self.env.world.now_us();
            self.sizing.see(outsider.replica, outsider.at.clone(), now_us);
        }
    }

    /// A peer knows of a later change of the group's size. A replica without a state believes it until it has one; one
    /// with a state only accepts connections of more.
    pub(super) fn on_other_size(&mut self, (changes, known, voting): (u32, u8, u8)) {
        self.env.members.learned = Some((changes, known));
        if self.executor.running.is_some() {
            self.follow_size();
        } else if self.env.settings.me < known {
            let changes = self.order.orderer.state().sizes.count();
            self.env.resize(known, voting, changes, |_| None);
            resize_stages(known, (&mut self.order, &mut self.group, &mut self.time), &self.env);
        }
    }

    /// An operator wants the group to grow.
    pub(super) fn on_grow(&mut self, addresses: &[String], call: Call) {
        match growth(self, addresses) {
            Ok(Err(what)) => call.reply(&Decided { what }),
            Ok(Ok(wish)) => {
                let size = self.env.members.voting + 2;
                let what =
                    format!("the group grows to {size} replicas as soon as f+1 replicas see the new ones");
                self.ask_for_size(wish, what, call);
            }
            Err(why) => call.refuse(&why),
        }
    }

    /// An operator wants the group to shrink, or a growth that has begun to be given up.
    pub(super) fn on_shrink(&mut self, call: Call) {
        let size = self.env.members.voting;
        let change = self.order.orderer.state().sizes.change().cloned();
        match (cannot_resize(self), change) {
            (Some(why), _) => call.refuse(&why),
            (None, Some(SizeChange { size: to, number, .. })) if to > size => {
                let what = format!("the group stays at {size} replicas as soon as f+1 replicas were asked");
                self.ask_for_size(SizeWish::GiveUp { change: number }, what, call);
            }
            (None, Some(SizeChange { size, .. })) => {
                call.reply(&Decided { what: format!("the group is shrinking to {size} replicas already") });
            }
            (None, None) if size <= order::limits::LEAST_REPLICAS => {
                call.refuse(&format!(
                    "the group has {size} replicas: with fewer, it would tolerate no failure"
                ));
            }
            (None, None) => {
                let what =
                    format!("the group shrinks to {} replicas as soon as f+1 replicas were asked", size - 2);
                self.ask_for_size(SizeWish::Begin { size: size - 2, addresses: Vec::new() }, what, call);
            }
        }
    }

    fn ask_for_size(&mut self, wish: SizeWish, what: String, call: Call) {
        self.env.world.say(format_args!("an operator decided: {what}"));
        self.sizing.ask(wish, self.env.world.now_us());
        self.tend_size();
        call.reply(&Decided { what });
    }

    /// Orders the wishes of an operator, and those of others that this replica vouches for; follows what was agreed.
    pub(super) fn tend_size(&mut self) {
        if self.executor.running.is_none() || self.env.settings.mode.verified {
            return;
        }
        if !self.order.orderer.state().sizes.is_intact() {
            return self.env.replace(Corrupted::Peers);
        }
        self.follow_size();
        let (now_us, me) = (self.env.world.now_us(), self.env.settings.me);
        let (state, configured) = (self.order.orderer.state(), self.env.members.configured);
        let can_be = |wish: &SizeWish| state.sizes.can_have(wish, configured);
        self.sizing.end_asked(now_us, |wish| !can_be(wish));
        if self.env.is_observer() || self.env.members.is_let_go() {
            return;
        }
        let wished = || state.sizes.wished(state.time_us);
        let own = |wish: &SizeWish| wished().any(|of| of == (me, wish));
        let asked = self.sizing.asked().into_iter().cloned();
        let end = state.sizes.change().map(|change| SizeWish::End { change: change.number });
        let is_growth =
            |wish: &SizeWish| matches!(wish, SizeWish::Begin { addresses, .. } if !addresses.is_empty());
        let seconded = wished().map(|(_, wish)| wish.clone()).filter(is_growth);
        let next = asked.chain(end).chain(seconded).find(|wish| {
            can_be(wish)
                && !own(wish)
                && !self.sizing.is_submitted(wish, now_us)
                && size_obstacle(self, wish).is_none()
        });
        if let Some(wish) = next.filter(|_| self.order.orderer.can_accept()) {
            self.order.submit_control(&Control::Size(wish.clone()));
            self.sizing.submit(wish, now_us);
        }
    }

    /// Has the size that the order's state says. Said again at each tick, so that nothing else lasts.
    pub(super) fn follow_size(&mut self) {
        follow((&mut self.order, &mut self.group, &mut self.time), &mut self.env);
    }

    /// The engine has found this replica to be no member any more. Returns whether the group has let it go: then it
    /// stays until its last votes are not needed.
    pub(super) fn was_let_go(&mut self) -> bool {
        let state = self.order.orderer.state();
        let leaves = state.sizes.change().is_some_and(|change| self.env.settings.me >= change.size);
        if leaves {
            let now_us = self.env.world.now_us();
            self.env.members.let_go.get_or_insert((self.env.tally.executed, now_us));
        }
        self.env.members.is_let_go()
    }

    /// What a change of the size waits for, for `status`.
    pub(super) fn resizing(&self) -> Option<String> {
        let state = self.order.orderer.state();
        let asked = self.sizing.asked();
        if let Some(change) = state.sizes.change().filter(|_| asked.is_none()) {
            let wish = SizeWish::End { change: change.number };
            let way = if change.addresses.is_empty() { "shrinks" } else { "grows" };
            let waits =
                size_obstacle(self, &wish).unwrap_or_else(|| agreeing(self, &wish, "see them all there"));
            return Some(format!("the group {way} to {} replicas: {waits}", change.size));
        }
        let wish = asked?;
        let what = match wish {
            SizeWish::Begin { addresses, .. } if !addresses.is_empty() => "see both new ones",
            _ => "be asked by an operator: run the command at one more of them",
        };
        Some(size_obstacle(self, wish).unwrap_or_else(|| agreeing(self, wish, what)))
    }
}

impl<S: Service, W: World> Replica<S, W> {
    /// Ends this replica, which the group has let go, once its votes are not needed any more.
    pub(super) fn leave_if_let_go(&mut self) {
        let Some((last, since_us)) = self.core.env.members.let_go else { return };
        let late_us = since_us + limits::LEAVES_WITHIN.as_micros() as u64;
        let leads = self.core.order.orderer.engine_status().is_leader;
        let is_done = !leads && self.agreement.open_below(last + 1).is_none();
        if is_done || self.core.env.world.now_us() >= late_us {
            let replicas = self.core.env.members.voting;
            let replica = self.core.env.settings.me;
            let outsider = Outsider { replica, at: String::new(), is_own: true, was_in: true, replicas };
            self.core.env.stop_with(Err(ServeError::Operator(outsider.to_string())));
        }
    }
}

/// Why the size of this group cannot change, if it cannot, and the remedy.
fn cannot_resize<S: Service, W: World>(core: &Core<S, W>) -> Option<String> {
    let settings = &core.env.settings;
    let why = if !settings.mode.replicated || settings.peers.len() < 2 {
        "this replica is alone: start a group of three, with `mode = \"RDGX\"`"
    } else if settings.mode.verified {
        "the size of a group in verified mode cannot change yet. Begin one with the other size"
    } else if core.executor.running.is_none() {
        "this process has no state of the group; ask a replica that serves"
    } else if core.env.is_observer() || core.env.members.is_let_go() {
        "this replica has no vote; ask one of the others"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// The wish that makes this group grow; or, inside, what there is to say if it does already.
///
/// # Errors
/// Why that cannot be, and the remedy.
fn growth<S: Service, W: World>(
    core: &Core<S, W>,
    addresses: &[String],
) -> Result<Result<SizeWish, String>, String> {
    if let Some(why) = cannot_resize(core) {
        return Err(why);
    }
    let parsed: Vec<Address> = addresses.iter().map(|one| one.parse()).collect::<Result<_, _>>()?;
    let [one, other] = &parsed[..] else {
        return Err(format!(
            "a group grows by two replicas, and {} addresses were given: give `--address` twice",
            parsed.len()
        ));
    };
    if one == other {
        return Err(format!("{one} was given twice: each replica has an address of its own"));
    }
    let (size, places) = (core.env.members.voting, core.env.peers.places());
    let addresses: Vec<String> = parsed.iter().map(Address::to_string).collect();
    let state = core.order.orderer.state();
    if let Some(change) = state.sizes.change() {
        return match change.addresses == addresses {
            true => Ok(Err(format!("the group is growing to {} replicas already", change.size))),
            false => Err(format!(
                "the group is on its way to {} replicas; wait until it is there (`crosscheck status`), or give a \
                    growth up with `crosscheck group shrink`",
                change.size
            )),
        };
    }
    let last_two = (size.saturating_sub(2)..size).map(|replica| state.sizes.address_of(replica));
    if last_two.eq(addresses.iter().map(|address| Some(address.as_str()))) {
        return Ok(Err(format!("the group has {size} replicas, with those two")));
    }
    let is_taken = |replica: &u8| places.of(*replica).is_some_and(|at| parsed.contains(at));
    if let Some(taken) = (0..size).find(is_taken) {
        let at = places.of(taken).map(Address::to_string).unwrap_or_default();
        return Err(format!("{at} is the address of replica {}", ReplicaId(taken)));
    }
    if size + 2 > MOST_REPLICAS {
        return Err(format!("the group has {size} replicas, and there are {MOST_REPLICAS} at most"));
    }
    Ok(Ok(SizeWish::Begin { size: size + 2, addresses }))
}

/// Why this replica cannot vouch for this wish now, if it cannot: the evidence, and the remedy.
fn size_obstacle<S: Service, W: World>(core: &Core<S, W>, wish: &SizeWish) -> Option<String> {
    let sizes = &core.order.orderer.state().sizes;
    match (wish, sizes.change()) {
        (SizeWish::Begin { size, addresses }, _) => {
            let voting = core.env.members.voting;
            missing(core, 0..(*size).min(voting), 0).or_else(|| unseen(core, (voting..).zip(addresses)))
        }
        (SizeWish::End { .. }, Some(change)) => missing(core, 0..change.size, change.begun_at),
        (SizeWish::End { .. }, None) | (SizeWish::GiveUp { .. }, _) => None,
    }
}

/// One of these replicas that is not connected, or has not executed this batch, or lacks many others.
fn missing<S: Service, W: World>(
    core: &Core<S, W>,
    mut replicas: std::ops::Range<u8>,
    batch: u64,
) -> Option<String> {
    let (me, now_us) = (core.env.settings.me, core.env.world.now_us());
    replicas.find_map(|replica| {
        let number = ReplicaId(replica);
        let is_here = core.env.peers.connected().any(|peer| peer == replica);
        if replica == me {
            None
        } else if !is_here || core.group.is_quiet(replica, now_us) {
            Some(format!("replica {number} is not connected: start it"))
        } else if !core.group.is_level(replica, batch) {
            Some(format!("replica {number} has not caught up yet"))
        } else {
            None
        }
    })
}

/// One of these numbers of which no process has said at this address that it is this replica.
fn unseen<'a, S: Service, W: World>(
    core: &Core<S, W>,
    mut added: impl Iterator<Item = (u8, &'a String)>,
) -> Option<String> {
    if !core.env.hooks.keeps(Rule::SeesMoved) {
        return None;
    }
    let now_us = core.env.world.now_us();
    let (number, address) =
        added.find(|(replica, address)| !core.sizing.has_seen(*replica, address, now_us))?;
    let size = core.env.members.voting + 2;
    Some(format!(
        "no process at {address} says that it is replica {}: start it there, with a configuration that lists all \
            {size} replicas",
        ReplicaId(number)
    ))
}

fn agreeing<S: Service, W: World>(core: &Core<S, W>, wish: &SizeWish, what: &str) -> String {
    let (state, needed) = (core.order.orderer.state(), core.group.faults() + 1);
    let agree = state.sizes.wished(state.time_us).filter(|(_, of)| *of == wish).count();
    format!("{needed} replicas have to {what}, and {agree} so far")
}

/// The stages that have to know how many replicas there are.
type Stages<'a> = (&'a mut OrderStage, &'a mut Group, &'a mut super::clocks::Timekeeper);

/// Requests of delivered batch `batch` about the size of the group; what was delivered, and their numbers there. False
/// if this replica ends.
pub(super) fn delivered<W: World>(
    wishes: &[(&Delivered, usize)],
    batch: u64,
    (order, group, time): Stages<'_>,
    env: &mut Environment<W>,
) -> bool {
    for (delivered, at) in wishes {
        // A wrong size counts wrong votes: what was decoded is not believed alone.
        let again = delivered.batch.requests().nth(*at).filter(order::Request::is_intact);
        let Some(Control::Size(wish)) = again.and_then(|request| Control::decode(&request.bytes)) else {
            env.replace(Corrupted::Peers);
            return false;
        };
        let configured = env.members.configured;
        let before = order.orderer.state().sizes.voting(configured);
        let needed = usize::from(before) / 2 + 1;
        if !order.orderer.want_size((delivered.batch.origin, batch), wish, needed, configured) {
            continue;
        }
        let sizes = &order.orderer.state().sizes;
        let now = sizes.voting(configured);
        report(before, sizes.change(), now, env);
        if now != before {
            env.members.resized = Some(Resized { after: batch, before });
        }
        if env.settings.me >= sizes.known(configured) {
            let now_us = env.world.now_us();
            env.members.let_go.get_or_insert((batch, now_us));
        }
        follow((order, group, time), env);
    }
    env.outcome().is_none()
}

fn report<W: World>(before: u8, change: Option<&SizeChange>, now: u8, env: &Environment<W>) {
    match change {
        Some(SizeChange { size, addresses, .. }) if !addresses.is_empty() => env.world.say(format_args!(
            "the group grows to {size} replicas: those at {} are being added, as f+1 replicas have agreed",
            addresses.join(" and ")
        )),
        Some(SizeChange { size, .. }) => env.world.say(format_args!(
            "the group shrinks to {size} replicas, as f+1 replicas have agreed: replicas {} and {} leave",
            size + 1,
            size + 2
        )),
        None if now == before => env.world.say(format_args!("the group stays at {now} replicas")),
        None => env.world.say(format_args!("the group has {now} replicas from now on, and had {before}")),
    }
}

/// Has the size that the order's state says.
fn follow<W: World>((order, group, time): Stages<'_>, env: &mut Environment<W>) {
    if env.settings.mode.verified {
        return;
    }
    let configured = env.members.configured;
    let sizes = &order.orderer.state().sizes;
    let (known, voting) = (sizes.known(configured), sizes.voting(configured));
    if env.settings.me >= known {
        let now_us = env.world.now_us();
        env.members.let_go.get_or_insert((env.tally.executed, now_us));
        // If it leads, another one has to lead before it is removed.
        order.orderer.resize(GroupSize { known, voting, excludes_others: sizes.excludes_others() });
        return;
    }
    // This replica may lag: it needs those that others know to go on.
    let learned = env.members.learned.filter(|(changes, _)| *changes > sizes.count());
    let known = learned.map_or(known, |(_, learned)| known.max(learned));
    let knows = env.peers.size();
    let is_known = (env.settings.peers.len() as u8, env.members.voting, knows.changes, knows.voting)
        == (known, voting, sizes.count(), voting);
    let lacks = |replica: u8| {
        let at = sizes.address_of(replica);
        at.is_some_and(|at| {
            env.settings.peers.get(usize::from(replica)).map(Address::to_string).as_deref() != Some(at)
        })
    };
    if !is_known || (0..known).any(lacks) {
        let address_of = |replica| sizes.address_of(replica).and_then(|address| address.parse().ok());
        env.resize(known, voting, sizes.count(), address_of);
    }
    resize_stages(known, (order, group, time), env);
}

fn resize_stages<W: World>(known: u8, (order, group, time): Stages<'_>, env: &Environment<W>) {
    let voting = env.members.voting;
    let excludes_others = order.orderer.state().sizes.excludes_others();
    order.orderer.resize(GroupSize { known, voting, excludes_others });
    group.resize(usize::from(known), usize::from(voting));
    time.clock.resize(usize::from(voting));
}
