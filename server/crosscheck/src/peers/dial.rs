//! Dialling: when each missing peer is dialled, and the outcome of the last attempt to reach it.

use std::io;
use std::time::Duration;

use mio::Token;

use super::ends::is_refused_by_host;
use super::hello::{Hello, Purpose};
use super::link::Link;
use super::net::Net;
use super::secure::Dialling;
use super::{Identity, LINKS, PeerEvent, Peers};
use crate::limits;

/// The last attempt to reach a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dialled {
    at_us: Option<u64>,
    pub(super) was_refused: bool,
    /// How often in a row the peer has hung up without an answer.
    pub(super) unanswered: u32,
    /// Its name did not resolve at the last attempt.
    is_unresolved: bool,
}

impl Dialled {
    /// A connection to it is lost: if it is not for this replica to dial it at once, that waits for a pause.
    pub(super) fn lost(&mut self) {
        self.at_us = None;
    }
}

impl<N: Net> Peers<N> {
    /// Dials missing peers, and peers that were dialled and never answered: the higher number dials the lower. Where
    /// the higher one may not know the address of this replica, this one dials as well, after a pause.
    pub fn dial(&mut self, now_us: u64) {
        self.seek_ends(now_us);
        let (me, end) = (self.me, self.dials_to(now_us));
        for peer in (0..end).filter(|peer| *peer != me) {
            let index = usize::from(peer);
            let passed = |pause| now_us >= self.dial_at(index, pause);
            let is_mute = self.links[index].as_ref().is_some_and(|link| !link.is_up());
            if is_mute && passed(limits::DIAL_PATIENCE) {
                self.hang_up(peer, &mut Vec::new());
            } else if self.links[index].is_some() || !passed(self.pause(index)) {
                continue;
            }
            let Dialled { at_us: before, unanswered, is_unresolved, .. } = self.dialled[index];
            self.dialled[index] =
                Dialled { at_us: Some(now_us), was_refused: false, unanswered, is_unresolved };
            if peer > self.me && before.is_none() {
                // It was there a moment ago, or could not be: it dials first.
                continue;
            }
            self.dial_one(peer);
        }
    }

    fn dial_one(&mut self, peer: u8) {
        let index = usize::from(peer);
        let mut first = Vec::new();
        let Identity { hello, secret, places } = &mut self.identity;
        let is_announcement = peer > self.me && !places.has_moved();
        let purpose = if is_announcement { Purpose::Announcement } else { Purpose::Link };
        let hello = Hello { purpose, ..places.complete(hello, peer) };
        let begun = Dialling::begin(secret, &hello, &mut first);
        let stream = self.net.connect(peer);
        self.note_name(peer, stream.as_ref().err());
        if stream.as_ref().is_err_and(is_refused_by_host) {
            self.note_refused_by_host(peer);
        }
        if let (Ok(dialling), Ok(stream)) = (begun, stream) {
            let token = Token(LINKS + index);
            let link = Link::dialled((peer, purpose), stream, (dialling, first), token, &mut self.net);
            self.links[index] = self.granted(link);
        }
    }

    /// The first replica that is not dialled from here. All are if this replica has moved, has no state, or has no
    /// connection for a while: then those that should dial it may look for it elsewhere.
    fn dials_to(&mut self, now_us: u64) -> u8 {
        let is_connected = self.links.iter().flatten().any(Link::is_up);
        let since_us = if is_connected { None } else { Some(self.lone_since_us.unwrap_or(now_us)) };
        self.lone_since_us = since_us;
        let pause_us = limits::REFUSED_PAUSE.as_micros() as u64;
        let is_lone = since_us.is_some_and(|since_us| now_us >= since_us + pause_us);
        if is_lone || self.seeks || self.identity.places.has_moved() {
            self.links.len() as u8
        } else {
            self.me
        }
    }

    /// Records whether a peer's name resolved, from the outcome of an attempt to connect.
    fn note_name(&mut self, peer: u8, error: Option<&io::Error>) {
        let dialled = &mut self.dialled[usize::from(peer)];
        let why = match error {
            Some(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Some(error) if error.kind() == io::ErrorKind::NotFound => Some(error.to_string()),
            Some(_) | None => None,
        };
        if why.is_some() || dialled.is_unresolved {
            dialled.is_unresolved = why.is_some();
            // A name that a name server does not know is not resolved again at once.
            dialled.was_refused |= why.is_some();
            self.of_dials.push(PeerEvent::Unresolved { peer, why });
        }
    }

    /// Time until a missing peer is dialled again, if one is missing.
    pub fn next_dial(&self, now_us: u64) -> Option<Duration> {
        (0..usize::from(self.me))
            .filter(|peer| self.links[*peer].is_none())
            .map(|peer| self.dial_at(peer, self.pause(peer)))
            .chain(self.next_end_us())
            .map(|at_us| Duration::from_micros(at_us.saturating_sub(now_us)))
            .min()
    }

    /// The pause between two attempts to reach a peer: longer if the last one was refused.
    fn pause(&self, peer: usize) -> Duration {
        let is_slow = self.dialled[peer].was_refused || peer > usize::from(self.me);
        if is_slow { limits::REFUSED_PAUSE } else { limits::RECONNECT }
    }

    /// The time at which `pause` has passed since a peer was dialled; at once, if it never was.
    fn dial_at(&self, peer: usize, pause: Duration) -> u64 {
        self.dialled[peer].at_us.map_or(0, |at_us| at_us + pause.as_micros() as u64)
    }
}
