//! Where the replicas of a group are: as this replica's configuration says, and, of those whose machines were replaced,
//! as the group has agreed. Decides who is refused, because it is not where its number is now.
//!
//! Files may name one machine in different ways, so that of a replica which has not moved only two different IP
//! addresses count as two machines, and only at the end that was dialled: the other end has found it at its address.

use std::collections::BTreeMap;
use std::fmt;

use wire::ReplicaId;

use super::Refusal;
use super::hello::{Hello, KnownPlace};
use crate::address::Address;

/// The addresses of a group's replicas.
#[derive(Clone, Debug, Default)]
pub struct Whereabouts {
    me: u8,
    /// As the configuration has them; index = replica.
    configured: Vec<Address>,
    /// Those that have moved: the number of the move, and the address since.
    moved: BTreeMap<u8, (u32, Address)>,
    /// Where a witness looks for a replica that it does not find: it has no state that says where replicas are.
    tried: BTreeMap<u8, Address>,
}

/// Which end of a connection this replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// It has dialled the other one.
    Dialled,
    /// The other one has dialled.
    Accepted,
}

/// A process that is not where its number is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Its number.
    pub replica: u8,
    /// Where it is, as it says.
    pub at: String,
    /// Where its number is.
    pub known: String,
    /// Whether the group has moved the number there.
    pub has_moved: bool,
    /// Whether the process is this one.
    pub is_own: bool,
}

impl Whereabouts {
    /// As replica `me` has them in its configuration.
    pub fn new(me: u8, configured: Vec<Address>) -> Self {
        Whereabouts { me, configured, ..Whereabouts::default() }
    }

    /// Whether the configuration is still this one.
    pub fn is_valid(&self, me: u8, configured: &[Address]) -> bool {
        self.me == me && self.configured == configured
    }

    /// There are these replicas from now on; index = replica.
    pub fn resize(&mut self, configured: Vec<Address>) {
        self.configured = configured;
    }

    /// The address of a replica now.
    pub fn of(&self, replica: u8) -> Option<&Address> {
        let moved = self.moved.get(&replica).map(|(_, address)| address).or_else(|| self.tried.get(&replica));
        moved.or_else(|| self.configured.get(usize::from(replica)))
    }

    /// The address of a replica by the configuration; of this one, that is where it listens.
    pub fn configured(&self, replica: u8) -> String {
        self.configured.get(usize::from(replica)).map_or_else(String::new, Address::to_string)
    }

    /// The addresses of all now; index = replica.
    pub fn all(&self) -> Vec<Address> {
        (0..self.configured.len() as u8).filter_map(|replica| self.of(replica).cloned()).collect()
    }

    /// The replicas that have moved: number of the replica and of the move, address, and that in the configuration.
    pub fn moved(&self) -> impl Iterator<Item = (u8, u32, &Address, &Address)> {
        self.moved.iter().filter_map(|(&replica, (number, address))| {
            Some((replica, *number, address, self.configured.get(usize::from(replica))?))
        })
    }

    /// Number of the last move; 0 before the first one.
    pub fn last_move(&self) -> u32 {
        self.moved.values().map(|(number, _)| *number).max().unwrap_or(0)
    }

    /// Whether this replica is at an address to which the group has moved it: others may not know it yet.
    pub fn has_moved(&self) -> bool {
        self.moved.contains_key(&self.me)
    }

    /// Looks for a replica at this address from now on; with none, where the configuration has it. Returns whether it
    /// was looked for elsewhere.
    pub fn try_at(&mut self, replica: u8, address: Option<Address>) -> bool {
        let before = self.tried.remove(&replica);
        self.tried.extend(address.map(|address| (replica, address)));
        before.is_some()
    }

    /// The group has moved these replicas, and no others. Returns those whose address is another one now.
    pub fn follow(&mut self, moves: BTreeMap<u8, (u32, Address)>) -> Vec<u8> {
        let before = self.all();
        self.moved = moves;
        let changed = (0..).zip(before).filter(|(replica, before)| self.of(*replica) != Some(before));
        changed.map(|(replica, _)| replica).collect()
    }

    /// Adds to a hello for this peer where this replica is, and what it knows about where the peer is.
    pub fn complete(&self, hello: &Hello, peer: u8) -> Hello {
        Hello { here: Some(self.here()), yours: self.known(peer), ..hello.clone() }
    }

    /// Where this replica is.
    fn here(&self) -> KnownPlace {
        KnownPlace { number: self.number_of(self.me), address: self.configured(self.me) }
    }

    /// Where another one is, as this one knows.
    fn known(&self, replica: u8) -> Option<KnownPlace> {
        let address = self.of(replica)?.to_string();
        Some(KnownPlace { number: self.number_of(replica), address })
    }

    /// Number of the move since which a replica is where it is; 0 if it has not moved.
    fn number_of(&self, replica: u8) -> u32 {
        self.moved.get(&replica).map_or(0, |(number, _)| *number)
    }

    /// Which of the two processes is not where its number is, if one is not.
    pub fn misplaced(&self, theirs: &Hello, end: ConnectionEnd) -> Option<Misplaced> {
        let own = self.here();
        if let Some(known) =
            theirs.yours.as_ref().filter(|known| known.excludes(&own, end == ConnectionEnd::Dialled))
        {
            return Some(misplaced(self.me, &own, known, true));
        }
        let (known, at) = (self.known(theirs.replica)?, theirs.here.as_ref()?);
        known
            .excludes(at, end == ConnectionEnd::Accepted)
            .then(|| misplaced(theirs.replica, at, &known, false))
    }
}

fn misplaced(replica: u8, at: &KnownPlace, known: &KnownPlace, is_own: bool) -> Misplaced {
    let (at, has_moved) = (at.address.clone(), known.number > 0);
    Misplaced { replica, at, known: known.address.clone(), has_moved, is_own }
}

impl KnownPlace {
    /// Whether a process that says it is `at` there is not the replica that is known to be here. One that has moved
    /// later knows more.
    fn excludes(&self, at: &KnownPlace, has_dialled: bool) -> bool {
        match (self.number, at.number) {
            (0, 0) => has_dialled && are_two_machines(&self.address, &at.address),
            (0, _) => false,
            (known, claimed) => claimed <= known && self.address != at.address,
        }
    }
}

/// Whether two texts certainly name two machines, or ports: both are IP addresses, and neither stands for all of a
/// machine's.
fn are_two_machines(one: &str, other: &str) -> bool {
    match (one.parse(), other.parse()) {
        (Ok(Address::Fixed(one)), Ok(Address::Fixed(other))) => {
            one != other && !one.ip().is_unspecified() && !other.ip().is_unspecified()
        }
        _ => false,
    }
}

impl From<Misplaced> for Refusal {
    fn from(misplaced: Misplaced) -> Refusal {
        Refusal::Misplaced(Box::new(misplaced))
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misplaced { replica, at, known, has_moved, is_own } = self;
        let number = ReplicaId(*replica);
        let command = format!("`crosscheck group replace {number} --address {at}`");
        match (has_moved, is_own) {
            (true, true) => write!(
                f,
                "the group has replaced this machine: its replica {number} is at {known}, and this process is at {at}. \
                    End it. If this machine is to be replica {number} again, run {command} at another replica"
            ),
            (true, false) => write!(
                f,
                "a process at {at} says that it is replica {number}, which the group has moved to {known}: it is the \
                    machine that was replaced. End it; or run {command} if the replica is to move there"
            ),
            (false, true) => write!(
                f,
                "it knows replica {number} at {known}, and this process is at {at}. If this machine replaces that one, \
                    run {command} at another replica; this one waits for it. If not, write the same address into \
                    all configurations: a host name, if the machines see different IP addresses"
            ),
            (false, false) => write!(
                f,
                "a process at {at} says that it is replica {number}, which this configuration has at {known}. If it is \
                    the machine that replaces that one, run {command}. If not, write the same address into all \
                    configurations: a host name, if the machines see different IP addresses"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "10.0.0.3:7";
    const NEW: &str = "10.0.0.9:7";

    fn at(me: u8, third: &str) -> Whereabouts {
        let addresses = ["10.0.0.1:7", "10.0.0.2:7", third].map(|text| text.parse().expect("an address"));
        Whereabouts::new(me, addresses.into())
    }

    fn moved(mut places: Whereabouts, number: u32) -> Whereabouts {
        places.follow(BTreeMap::from([(2, (number, NEW.parse().expect("an address")))]));
        places
    }

    fn hello(of: &Whereabouts, peer: u8) -> Hello {
        let plain = Hello::sample(of.me);
        of.complete(&plain, peer)
    }

    /// What the end that dials finds, and then the other one.
    fn meet(dials: &Whereabouts, accepts: &Whereabouts) -> [Option<(u8, bool, bool)>; 2] {
        let of = |one: &Whereabouts, other: &Whereabouts, end| {
            let found = one.misplaced(&hello(other, one.me), end);
            found.map(|found| (found.replica, found.has_moved, found.is_own))
        };
        [of(dials, accepts, ConnectionEnd::Dialled), of(accepts, dials, ConnectionEnd::Accepted)]
    }

    #[test]
    fn a_new_machine_waits_until_the_group_has_moved_its_number_there() {
        assert_eq!(meet(&at(2, NEW), &at(0, OLD)), [Some((2, false, true)), Some((2, false, false))]);
        assert_eq!(meet(&at(2, NEW), &moved(at(0, OLD), 1)), [None, None]);
        assert_eq!(meet(&at(2, NEW), &at(0, NEW)), [None, None], "a file that has the new address already");
    }

    #[test]
    fn the_old_machine_is_refused_whoever_dials_and_says_so_itself() {
        let (old, other) = (at(2, OLD), moved(at(0, OLD), 1));
        assert_eq!(meet(&old, &other), [Some((2, true, true)), Some((2, true, false))]);
        assert_eq!(meet(&other, &old), [Some((2, true, false)), Some((2, true, true))]);
        let reported =
            old.misplaced(&hello(&other, 2), ConnectionEnd::Dialled).expect("it is refused").to_string();
        assert!(reported.contains(&format!("its replica 3 is at {NEW}")), "{reported}");
    }

    #[test]
    fn one_that_has_moved_is_taken_by_those_who_do_not_know_it_yet() {
        let new = moved(at(2, NEW), 3);
        assert_eq!(meet(&new, &at(0, OLD)), [None, None], "restarted with the old file");
        let mut before = at(1, OLD);
        before.follow(BTreeMap::from([(2, (2, "10.0.0.5:7".parse().expect("an address")))]));
        assert_eq!(meet(&new, &before), [None, None], "one that lags by a move");
    }

    #[test]
    fn names_and_unspecified_addresses_may_differ_and_what_was_dialled_is_there() {
        for other in ["db-3:7", "0.0.0.0:7", "[::]:7"] {
            assert_eq!(meet(&at(2, other), &at(0, OLD)), [None, None], "{other}");
        }
        assert_eq!(meet(&at(0, OLD), &at(2, NEW)), [None, None], "a port is forwarded");
    }
}
