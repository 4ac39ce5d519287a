//! A machine is replaced: the number of a replica moves to another address, by requests of f+1 replicas in the order.
//!
//! An operator asks one replica. It orders a wish, and so does every other one that sees for itself that the number is
//! not in use where it was, and that a process which has the group's key says at the new address that it is this
//! replica. No replica can move a number alone, and none vouches for what it has not seen. What was agreed is part of
//! the order's state (`order::Moves`), which a replica without a memory gets from the others.

use order::{Delivered, Move};
use wire::ReplicaId;

use super::core::Core;
use super::environment::Environment;
use super::order_stage::OrderStage;
use crate::Corrupted;
use crate::address::Address;
use crate::admin::{Decided, MovedReplica};
use crate::admin_server::Call;
use crate::hooks::{Hooks, Rule};
use crate::ordered::Control;
use crate::peers::Misplaced;
use crate::service::Service;
use crate::world::World;

/// An operator's command, if it can be carried out.
enum Replacement {
    /// What the operator wants.
    Wish(Move),
    /// It is so already.
    Done(String),
}

impl<S: Service, W: World> Core<S, W> {
    /// A process at this address says that it is this replica.
    pub(super) fn on_seen(&mut self, replica: u8, at: String) {
        if self.env.settings.is_witness() {
            self.env.peers.try_at(replica, &at);
        }
        self.moving.see(replica, at, self.env.world.now_us());
    }

    /// A connection was refused, because one of the two processes is not where its number is.
    pub(super) fn on_misplaced(&mut self, misplaced: &Misplaced) {
        if !misplaced.is_own {
            self.on_seen(misplaced.replica, misplaced.at.clone());
        }
    }

    /// An operator wants a machine replaced.
    pub(super) fn on_replace(&mut self, number: u8, address: &str, call: Call) {
        match self.replacement(number, address) {
            Ok(Replacement::Done(what)) => call.reply(&Decided { what }),
            Ok(Replacement::Wish(wish)) => {
                let what = format!(
                    "replica {number} moves to {} as soon as f+1 replicas see it there",
                    wish.address
                );
                self.env.world.say(format_args!("an operator decided: {what}"));
                self.moving.ask(wish, self.env.world.now_us());
                self.tend_moves();
                call.reply(&Decided { what });
            }
            Err(why) => call.refuse(&why),
        }
    }

    /// # Errors
    /// Why that cannot be, and the remedy.
    fn replacement(&self, number: u8, address: &str) -> Result<Replacement, String> {
        let settings = &self.env.settings;
        let (me, count) = (settings.me + 1, settings.peers.len() as u8);
        if !settings.mode.replicated || count < 2 {
            return Err("this replica is alone: there is no other one whose machine could be replaced".into());
        }
        if number == 0 || number > count {
            return Err(format!("there is no replica {number}; they are 1 to {count}"));
        }
        let address = address.parse::<Address>()?;
        if number == me {
            return Err(format!("this is replica {number}; ask another replica, while this one is stopped"));
        }
        if settings.is_witness() || self.executor.running.is_none() {
            return Err("this process has no state of the group; ask a replica that serves".into());
        }
        let (replica, places) = (number - 1, self.env.peers.places());
        let others = (0..count).filter(|other| *other != replica);
        if let Some(other) = others.into_iter().find(|other| places.of(*other) == Some(&address)) {
            return Err(format!("{address} is the address of replica {}", ReplicaId(other)));
        }
        if places.moved().any(|(moved, _, at, _)| moved == replica && *at == address) {
            return Ok(Replacement::Done(format!("replica {number} is at {address} already")));
        }
        let wish = Move { replica, address: address.to_string() };
        match self.serves_elsewhere(&wish) {
            Some(why) => Err(format!("{why}; end it there (SIGTERM), and repeat the command")),
            None => Ok(Replacement::Wish(wish)),
        }
    }

    /// Whether the replica is connected now, at another address than it is to move to: the evidence.
    fn serves_elsewhere(&self, wish: &Move) -> Option<String> {
        if !self.env.hooks.keeps(Rule::SeesMoved) {
            return None;
        }
        let (peers, now_us) = (&self.env.peers, self.env.world.now_us());
        let is_here = peers.connected().any(|peer| peer == wish.replica);
        let at = peers.place_of(wish.replica);
        let is_other = is_here && at != Some(&wish.address) && !self.group.is_quiet(wish.replica, now_us);
        let number = ReplicaId(wish.replica);
        is_other.then(|| format!("replica {number} is connected, at {}", at.unwrap_or("an unknown address")))
    }

    /// Why this replica cannot vouch for this move now, if it cannot.
    fn obstacle(&self, wish: &Move) -> Option<String> {
        if !self.env.hooks.keeps(Rule::SeesMoved) {
            return None;
        }
        let now_us = self.env.world.now_us();
        let is_seen = wish.replica == self.env.settings.me
            || self.env.peers.place_of(wish.replica) == Some(&wish.address)
            || self.moving.has_seen(wish.replica, &wish.address, now_us);
        self.serves_elsewhere(wish).or_else(|| {
            let Move { replica, address } = wish;
            let number = ReplicaId(*replica);
            (!is_seen).then(|| {
                format!(
                    "no process at {address} says that it is replica {number}: start it there, with this address in \
                        its own configuration"
                )
            })
        })
    }

    /// Orders the wishes of an operator, and those of others that this replica vouches for; follows what was agreed.
    pub(super) fn tend_moves(&mut self) {
        if self.executor.running.is_none() {
            return;
        }
        let (now_us, me) = (self.env.world.now_us(), self.env.settings.me);
        let state = self.order.orderer.state();
        if !state.moves.is_intact() {
            return self.env.replace(Corrupted::Peers);
        }
        follow(&self.order, &mut self.env);
        let is_done = |wish: &Move| state_has(&self.order, wish);
        self.moving.end_asked(now_us, is_done);
        let state = self.order.orderer.state();
        let own = |wish: &Move| state.moves.wished(state.time_us).any(|of| of == (me, wish));
        let asked = self.moving.asked().into_iter().cloned();
        let of_others = state.moves.wished(state.time_us).map(|(_, wish)| wish.clone());
        let places = self.env.peers.places();
        let moved = state.moves.all().filter(|_| self.env.counts_file);
        let elsewhere = moved.filter(|(replica, _, address)| places.configured(*replica) != *address);
        let back = elsewhere.map(|(replica, ..)| Move { replica, address: places.configured(replica) });
        let next = asked.chain(back).chain(of_others).find(|wish| {
            (wish.replica != me || wish.address == places.configured(me))
                && !own(wish)
                && !self.moving.is_submitted(wish, now_us)
                && self.obstacle(wish).is_none()
        });
        if let Some(wish) = next.filter(|_| self.order.orderer.can_accept()) {
            let Move { replica, address } = wish.clone();
            self.order.submit_control(&Control::Move { replica, address });
            self.moving.submit(wish, now_us);
        }
    }

    /// The replicas that have moved, for `status`.
    pub(super) fn moved_replicas(&self) -> Vec<MovedReplica> {
        let moved = |(replica, _, address, configured): (u8, u32, &Address, &Address)| MovedReplica {
            replica: replica + 1,
            address: address.to_string(),
            configured: configured.to_string(),
        };
        self.env.peers.places().moved().map(moved).collect()
    }

    /// What the move waits for that an operator has asked for here.
    pub(super) fn replacing(&self) -> Option<String> {
        let wish = self.moving.asked()?;
        Some(self.obstacle(wish).unwrap_or_else(|| {
            let needed = self.group.faults() + 1;
            let state = self.order.orderer.state();
            let agree: Vec<u8> =
                state.moves.wished(state.time_us).filter(|(_, of)| *of == wish).map(|(by, _)| by).collect();
            format!(
                "{needed} replicas have to see replica {} at {}, and {} so far",
                ReplicaId(wish.replica),
                wish.address,
                agree.len()
            )
        }))
    }
}

fn state_has(order: &OrderStage, wish: &Move) -> bool {
    order.orderer.state().moves.of(wish.replica).is_some_and(|(_, address)| address == wish.address)
}

/// Requests of delivered batches that say where a replica is to be; what was delivered, and their numbers there. It
/// takes `needed` replicas. False if this replica ends.
pub(super) fn delivered<W: World>(
    wishes: &[(&Delivered, usize)],
    needed: usize,
    order: &mut OrderStage,
    env: &mut Environment<W>,
) -> bool {
    for (delivered, at) in wishes {
        // A replica that looks for another one elsewhere is cut off: what was decoded is not believed alone.
        let again = delivered.batch.requests().nth(*at).filter(order::Request::is_intact);
        let Some(Control::Move { replica, address }) =
            again.and_then(|request| Control::decode(&request.bytes))
        else {
            env.replace(Corrupted::Peers);
            return false;
        };
        if order.orderer.want_move(delivered.batch.origin, Move { replica, address }, needed) {
            follow(order, env);
        }
    }
    env.outcome().is_none()
}

/// Looks for the replicas where the order's state says that they are. A log on disk is executed again up to where it
/// was before: until then, the note of the process before knows more.
pub(super) fn follow<W: World>(order: &OrderStage, env: &mut Environment<W>) {
    let moves = &order.orderer.state().moves;
    if env.counts_file {
        let places = env.peers.places();
        env.counts_file = moves.all().any(|(replica, _, address)| places.configured(replica) != address);
        if env.counts_file {
            return;
        }
    }
    let known: Vec<(u8, u32)> =
        env.peers.places().moved().map(|(replica, number, ..)| (replica, number)).collect();
    if moves.all().map(|(replica, number, _)| (replica, number)).eq(known.iter().copied()) {
        return;
    }
    let address = |(replica, number, text): (u8, u32, &str)| Some((replica, (number, text.parse().ok()?)));
    if env.settings.durability.is_disk() && moves.count() < env.peers.places().last_move() {
        return;
    }
    env.peers.follow_moves(moves.all().filter_map(address).collect());
    report_moved(env, &known);
}

/// Reports where replicas are that have moved, but for the moves that are `known`.
pub(super) fn report_moved<W: World>(env: &Environment<W>, known: &[(u8, u32)]) {
    let is_new = |of: &(u8, u32, &Address, &Address)| !known.contains(&(of.0, of.1));
    for (replica, _, address, configured) in env.peers.places().moved().filter(is_new) {
        let number = ReplicaId(replica);
        if address == configured {
            env.world.say(format_args!("replica {number} is at {address}, as the group has agreed"));
        } else if replica != env.settings.me {
            env.world.say(format_args!(
                "replica {number} is at {address}, as the group has agreed, and not at {configured}, as this \
                    configuration says: write `address = \"{address}\"` into its section of replica {number} when \
                    convenient"
            ));
        }
    }
}
