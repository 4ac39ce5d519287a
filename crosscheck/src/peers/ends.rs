//! Finds out whether the process of a lost peer has ended: then its host refuses connections. That a connection ended
//! proves nothing: a link may be cut, and the process behind it live.
//!
//! The higher number dials the lower, and learns this by dialling. The lower number opens a connection that says
//! nothing, until it has a proof or the peer is back.

use std::io::{self, Read};

use mio::{Interest, Token};

use super::net::Net;
use super::{ENDS, PeerEvent, Peers};
use crate::limits;

/// The first pause between two such connections, in microseconds.
const PAUSE_US: u64 = limits::RECONNECT.as_micros() as u64;

/// What is known about the process of one peer.
pub(super) struct PeerEnd<N: Net> {
    /// Its link was up and is lost, and nothing proves yet that its process has ended.
    is_wanted: bool,
    /// A connection that shows whether its host refuses it.
    stream: Option<N::Stream>,
    /// When the next one may be opened, and how long after it another one.
    again_us: u64,
    pause_us: u64,
}

impl<N: Net> Default for PeerEnd<N> {
    fn default() -> Self {
        PeerEnd { is_wanted: false, stream: None, again_us: 0, pause_us: PAUSE_US }
    }
}

/// Whether an attempt to connect shows that no process listens there.
pub(super) fn is_refused_by_host(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

impl<N: Net> Peers<N> {
    /// From now on, [`PeerEvent::Ended`] is reported for peers whose link is lost.
    pub fn look_for_ends(&mut self) {
        self.ends = (0..self.links.len()).map(|_| PeerEnd::default()).collect();
    }

    /// The link to this peer is up, or lost.
    pub(super) fn note_link(&mut self, peer: u8, is_up: bool) {
        if let Some(mut stream) = self.ends.get_mut(usize::from(peer)).and_then(|end| {
            (end.is_wanted, end.again_us, end.pause_us) = (!is_up, 0, PAUSE_US);
            end.stream.take_if(|_| is_up)
        }) {
            self.net.deregister(&mut stream);
        }
    }

    /// The host of this peer refuses connections.
    pub(super) fn note_refused_by_host(&mut self, peer: u8) {
        let end = self.ends.get_mut(usize::from(peer));
        if end.is_some_and(|end| std::mem::take(&mut end.is_wanted)) {
            self.of_dials.push(PeerEvent::Ended(peer));
        }
    }

    /// Opens connections to lost peers that this replica does not dial.
    pub(super) fn seek_ends(&mut self, now_us: u64) {
        for peer in self.me.saturating_add(1)..self.ends.len() as u8 {
            let end = &mut self.ends[usize::from(peer)];
            if !end.is_wanted || end.stream.is_some() || now_us < end.again_us {
                continue;
            }
            // A process that ends may accept once more. One that lives reports a stranger: that is not repeated often.
            end.again_us = now_us + end.pause_us;
            end.pause_us = (2 * end.pause_us).min(limits::REFUSED_PAUSE.as_micros() as u64);
            match self.net.connect(peer) {
                Ok(mut stream) => {
                    let interest = Interest::READABLE | Interest::WRITABLE;
                    let token = Token(ENDS + usize::from(peer));
                    let registered = self.net.register(&mut stream, token, interest);
                    if self.granted(registered).is_some() {
                        self.ends[usize::from(peer)].stream = Some(stream);
                    }
                }
                Err(error) if is_refused_by_host(&error) => self.note_refused_by_host(peer),
                // The name is being resolved, or the host cannot be reached now.
                Err(_) => {}
            }
        }
    }

    /// When the next such connection is due.
    pub(super) fn next_end_us(&self) -> Option<u64> {
        let due = self.ends.iter().skip(usize::from(self.me) + 1);
        due.filter(|end| end.is_wanted && end.stream.is_none()).map(|end| end.again_us).min()
    }

    /// An event of such a connection.
    pub(super) fn on_end(&mut self, peer: u8, events: &mut Vec<PeerEvent>) {
        let stream = self.ends.get_mut(usize::from(peer)).and_then(|end| end.stream.take());
        let Some(mut stream) = stream else { return };
        let outcome = stream.read(&mut [0]);
        self.net.deregister(&mut stream);
        if outcome.is_err_and(|error| is_refused_by_host(&error)) {
            self.note_refused_by_host(peer);
            events.append(&mut self.of_dials);
        }
    }
}
