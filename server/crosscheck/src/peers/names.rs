//! Resolves the host names of peers in threads of their own: a name server that does not answer must not delay the
//! thread that needs the address.

use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::address::Address;

/// Interval between two checks of a resolution that a thread waits for.
const LOOK: Duration = Duration::from_millis(5);

/// The addresses of a group's replicas, and at most one running resolution per name.
pub struct Names {
    addresses: Vec<Address>,
    resolutions: Vec<Option<JoinHandle<Resolved>>>,
    /// How often each was returned: a name with several IP addresses is tried at each of them in turn.
    given: Vec<usize>,
    resolve: fn(&Address) -> Resolved,
}

pub(super) type Resolved = Result<Vec<SocketAddr>, String>;

/// The present state of a peer's address.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The address.
    At(SocketAddr),
    /// Its name is being resolved.
    UnderWay,
    /// Its name did not resolve, for this reason.
    Failed(String),
}

impl Names {
    /// The names of these addresses; index = replica.
    pub fn new(addresses: Vec<Address>) -> Self {
        Self::resolved_by(Address::resolve, addresses)
    }

    /// As [`Names::new`], with another function to resolve a name.
    pub(super) fn resolved_by(resolve: fn(&Address) -> Resolved, addresses: Vec<Address>) -> Self {
        let resolutions = addresses.iter().map(|_| None).collect();
        Names { given: vec![0; addresses.len()], resolutions, addresses, resolve }
    }

    /// The addresses, each as it was configured, or redirected last.
    pub fn configured(&self) -> &[Address] {
        &self.addresses
    }

    /// From now on `peer` has this address. The result of a resolution of the one before is not used.
    pub fn redirect(&mut self, peer: u8, address: &Address) {
        let index = usize::from(peer);
        if let (Some(before), Some(resolution)) =
            (self.addresses.get_mut(index), self.resolutions.get_mut(index))
        {
            *before = address.clone();
            *resolution = None;
        }
    }

    /// From now on there are these replicas (index = replica).
    pub fn resize(&mut self, addresses: &[Address]) {
        let before = self.addresses.clone();
        self.addresses = addresses.to_vec();
        self.resolutions.resize_with(addresses.len(), || None);
        self.given.resize(addresses.len(), 0);
        for (index, address) in addresses.iter().enumerate() {
            if before.get(index) != Some(address) {
                self.resolutions[index] = None;
            }
        }
    }

    /// A peer's address now. A name is resolved for each use: the first call starts the resolution, and a later one
    /// returns the result. Never blocks.
    pub fn look_up(&mut self, peer: u8) -> Lookup {
        let index = usize::from(peer);
        if let Address::Fixed(address) = &self.addresses[index] {
            return Lookup::At(*address);
        }
        match self.resolutions[index].take() {
            None => {
                let (address, resolve) = (self.addresses[index].clone(), self.resolve);
                let thread = thread::Builder::new().name(format!("resolve-{}", peer + 1));
                match thread.spawn(move || resolve(&address)) {
                    Ok(resolution) => self.resolutions[index] = Some(resolution),
                    Err(error) => return Lookup::Failed(format!("it cannot be resolved: {error}")),
                }
                Lookup::UnderWay
            }
            Some(resolution) if !resolution.is_finished() => {
                self.resolutions[index] = Some(resolution);
                Lookup::UnderWay
            }
            Some(resolution) => match resolution.join() {
                Ok(Ok(found)) if !found.is_empty() => {
                    self.given[index] = self.given[index].wrapping_add(1);
                    Lookup::At(found[(self.given[index] - 1) % found.len()])
                }
                Ok(Ok(_)) => Lookup::Failed(format!("`{}` resolves to no IP address", self.addresses[index])),
                Ok(Err(why)) => Lookup::Failed(why),
                Err(_) => Lookup::Failed(format!("the resolution of `{}` panicked", self.addresses[index])),
            },
        }
    }

    /// As [`Names::look_up`], for a thread that may wait so long for the result.
    pub fn wait_for(&mut self, peer: u8, patience: Duration) -> Option<SocketAddr> {
        let deadline = Instant::now() + patience;
        loop {
            match self.look_up(peer) {
                Lookup::At(address) => return Some(address),
                Lookup::UnderWay if Instant::now() < deadline => thread::sleep(LOOK),
                Lookup::UnderWay | Lookup::Failed(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

    use super::*;

    fn names(resolve: fn(&Address) -> Resolved) -> Names {
        let named = |host: &str| Address::Named { host: host.into(), port: 9 };
        Names::resolved_by(resolve, vec![Address::Fixed(([127, 0, 0, 1], 1).into()), named("a"), named("b")])
    }

    fn result(names: &mut Names, peer: u8) -> Lookup {
        loop {
            match names.look_up(peer) {
                Lookup::UnderWay => thread::sleep(LOOK),
                other => return other,
            }
        }
    }

    #[test]
    fn each_use_of_a_name_resolves_it_again_and_tries_its_addresses_in_turn() {
        static PORT: AtomicU16 = AtomicU16::new(100);
        let mut names = names(|_| {
            let port = PORT.fetch_add(1, Relaxed);
            Ok(vec![([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], port).into()])
        });
        assert_eq!(names.look_up(0), Lookup::At(([127, 0, 0, 1], 1).into()));
        assert_eq!(result(&mut names, 1), Lookup::At(([10, 0, 0, 1], 100).into()));
        assert_eq!(result(&mut names, 1), Lookup::At(([10, 0, 0, 2], 101).into()));
        assert_eq!(names.wait_for(1, Duration::from_secs(60)), Some(([10, 0, 0, 1], 102).into()));
    }

    #[test]
    fn a_name_that_fails_gives_the_reason_and_is_resolved_again() {
        static CALLS: AtomicU16 = AtomicU16::new(0);
        let mut names = names(|_| match CALLS.fetch_add(1, Relaxed) {
            0 => Err("no such host".into()),
            1 => panic!("a broken resolver"),
            2 => Ok(Vec::new()),
            _ => Ok(vec![([10, 0, 0, 1], 9).into()]),
        });
        assert_eq!(result(&mut names, 2), Lookup::Failed("no such host".into()));
        assert_eq!(result(&mut names, 2), Lookup::Failed("the resolution of `b:9` panicked".into()));
        assert_eq!(result(&mut names, 2), Lookup::Failed("`b:9` resolves to no IP address".into()));
        assert_eq!(result(&mut names, 2), Lookup::At(([10, 0, 0, 1], 9).into()));
    }

    #[test]
    fn a_resolution_that_hangs_holds_up_no_caller_and_no_other_name_and_is_begun_once() {
        static HELD: Mutex<()> = Mutex::new(());
        static CALLS: AtomicU16 = AtomicU16::new(0);
        let guard = HELD.lock().unwrap();
        let mut names = names(|address| {
            if address.to_string() == "a:9" {
                CALLS.fetch_add(1, Relaxed);
                let _held = HELD.lock();
            }
            Ok(vec![([10, 0, 0, 1], 9).into()])
        });
        assert_eq!(names.look_up(1), Lookup::UnderWay);
        assert_eq!(result(&mut names, 2), Lookup::At(([10, 0, 0, 1], 9).into()));
        assert_eq!(names.wait_for(1, Duration::from_millis(20)), None);
        assert_eq!(names.look_up(1), Lookup::UnderWay);
        drop(guard);
        assert_eq!(result(&mut names, 1), Lookup::At(([10, 0, 0, 1], 9).into()));
        assert_eq!(CALLS.load(Relaxed), 1);
    }
}
