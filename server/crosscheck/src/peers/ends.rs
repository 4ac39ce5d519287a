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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Whereabouts;
    use crate::peers::hello::Hello;
    use crate::peers::identity::Identity;
    use crate::peers::secure::Secret;
    use std::collections::VecDeque;
    use std::io::{ErrorKind, Write};

    /// The end of a connection that says nothing: its first read ends like this.
    struct Scripted(io::Result<usize>);

    impl Read for Scripted {
        fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
            std::mem::replace(&mut self.0, Ok(0))
        }
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Answers attempts to connect, one after the other; later ones find no way to the host.
    #[derive(Default)]
    struct Script {
        answers: VecDeque<io::Result<Scripted>>,
        /// Attempts so far, and open streams.
        tried: usize,
        open: i32,
    }

    impl Net for Script {
        type Stream = Scripted;
        fn connect(&mut self, _peer: u8) -> io::Result<Scripted> {
            self.tried += 1;
            self.answers.pop_front().unwrap_or(Err(ErrorKind::HostUnreachable.into()))
        }
        fn accept(&mut self) -> io::Result<Scripted> {
            Err(ErrorKind::WouldBlock.into())
        }
        fn register(&mut self, _stream: &mut Scripted, _token: Token, _interest: Interest) -> io::Result<()> {
            self.open += 1;
            Ok(())
        }
        fn reregister(&mut self, _stream: &mut Scripted, _token: Token, _how: Interest) -> io::Result<()> {
            Ok(())
        }
        fn deregister(&mut self, _stream: &mut Scripted) {
            self.open -= 1;
        }
        fn tune(&mut self, _stream: &Scripted) {}
    }

    const PEER: u8 = 1;
    /// Time enough for any pause.
    const LATER_US: u64 = 10 * limits::REFUSED_PAUSE.as_micros() as u64;

    /// The first of two replicas, which does not dial the second, and whose link to it is lost.
    fn lost(answers: impl IntoIterator<Item = io::Result<Scripted>>) -> Peers<Script> {
        let hello = Hello { replicas: 2, ..Hello::sample(0) };
        let identity =
            Identity { hello, secret: Secret { key: [7; 32], seed: None }, places: Whereabouts::default() };
        let net = Script { answers: answers.into_iter().collect(), ..Script::default() };
        let mut peers = Peers::over(identity, 2, net);
        peers.look_for_ends();
        peers.note_link(PEER, true);
        peers.note_link(PEER, false);
        peers
    }

    fn refused() -> io::Error {
        ErrorKind::ConnectionRefused.into()
    }

    /// What the last connection to the peer told.
    fn reported(peers: &mut Peers<Script>) -> Vec<PeerEvent> {
        let mut events = std::mem::take(&mut peers.of_dials);
        peers.on_end(PEER, &mut events);
        events
    }

    #[test]
    fn only_a_host_that_refuses_proves_an_end() {
        let mut peers = lost([Err(refused())]);
        peers.seek_ends(0);
        assert_eq!(reported(&mut peers), [PeerEvent::Ended(PEER)], "at once");
        // Known only when the connection is read.
        let mut peers = lost([Ok(Scripted(Err(refused())))]);
        peers.seek_ends(0);
        assert_eq!((peers.of_dials.len(), peers.net.open), (0, 1));
        assert_eq!(reported(&mut peers), [PeerEvent::Ended(PEER)]);
        assert_eq!(peers.net.open, 0);
        for error in [ErrorKind::HostUnreachable, ErrorKind::TimedOut, ErrorKind::ConnectionReset] {
            let mut peers = lost([Err(error.into()), Ok(Scripted(Err(error.into())))]);
            peers.seek_ends(0);
            peers.seek_ends(LATER_US);
            assert_eq!((reported(&mut peers), peers.net.tried), (vec![], 2), "{error}");
        }
        // It accepts, and hangs up: its process lives, or did.
        let mut peers = lost([Ok(Scripted(Ok(0)))]);
        peers.seek_ends(0);
        assert_eq!(reported(&mut peers), []);
        assert!(peers.next_end_us().is_some_and(|at| at > 0), "it tries again, after a pause");
    }

    #[test]
    fn an_end_is_reported_once_and_only_of_a_link_that_was_lost() {
        let mut peers = lost([Err(refused()), Err(refused())]);
        peers.seek_ends(0);
        assert_eq!(reported(&mut peers), [PeerEvent::Ended(PEER)]);
        peers.seek_ends(LATER_US);
        peers.note_refused_by_host(PEER);
        assert_eq!((reported(&mut peers), peers.net.tried, peers.next_end_us()), (vec![], 1, None));
        // It comes back before there is a proof: what was open to find out is closed.
        let mut peers = lost([Ok(Scripted(Err(refused())))]);
        peers.seek_ends(0);
        peers.note_link(PEER, true);
        assert_eq!((reported(&mut peers), peers.net.open), (vec![], 0));
        peers.note_refused_by_host(PEER);
        assert_eq!(reported(&mut peers), [], "an attempt from before");
    }

    #[test]
    fn attempts_that_tell_nothing_become_rare() {
        let mut peers = lost([]);
        let mut pauses = Vec::new();
        let mut now_us = 0;
        for _ in 0..12 {
            peers.seek_ends(now_us);
            let next_us = peers.next_end_us().unwrap();
            pauses.push(next_us - now_us);
            now_us = next_us;
        }
        assert!(pauses.is_sorted() && pauses[0] == PAUSE_US, "{pauses:?}");
        assert_eq!(pauses.last(), Some(&(limits::REFUSED_PAUSE.as_micros() as u64)));
        assert_eq!(peers.net.tried, 12);
    }

    #[test]
    fn without_the_question_nothing_is_sought() {
        let mut peers = lost([Err(refused())]);
        peers.ends.clear();
        peers.note_link(PEER, false);
        peers.seek_ends(0);
        peers.note_refused_by_host(PEER);
        assert_eq!((reported(&mut peers), peers.net.tried, peers.next_end_us()), (vec![], 0, None));
    }
}
