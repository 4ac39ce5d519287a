//! One connection to one peer: sealed records in and out, and the frames in them.

use std::io::{self, Write};

use mio::{Interest, Token};
use order::FrameError;
use order::frame::Decoder;

use super::ends::is_refused_by_host;
use super::hello::{Hello, KnownPlace, Purpose};
use super::net::Net;
use super::outgoing::Outgoing;
use super::records::Records;
use super::secure::{Channel, Dialling, Untrusted};
use super::whereabouts::ConnectionEnd;
use super::{Identity, PeerEvent, Refusal};
use crate::limits;
use crate::socket_errors::is_own_fault;

/// The stages of a connection.
enum Stage {
    /// This replica dialled, and waits for the answer; none once the handshake has failed.
    Dialling(Option<Box<Dialling>>),
    /// Both have the group's key, and frames may be sent.
    Up(Box<Channel>),
}

pub(super) struct Link<N: Net> {
    peer: u8,
    /// Where the peer is, as it says; none before the handshake.
    pub(super) at: Option<KnownPlace>,
    purpose: Purpose,
    stream: N::Stream,
    stage: Stage,
    records: Records,
    decoder: Decoder,
    pub(super) output: Outgoing,
    /// A part of `output` is urgent.
    pub(super) is_urgent: bool,
    /// Frames in `output`.
    pub(super) deferred: usize,
    /// The kernel has refused a call that no healthy process makes.
    pub(super) is_refused: bool,
    /// No process listens at the other end.
    pub(super) is_refused_by_host: bool,
    /// The other end has answered an announcement.
    pub(super) is_announced: bool,
}

/// Data of its replica that a link needs to read.
pub(super) struct Reading<'a> {
    /// This replica.
    pub identity: &'a Identity,
    /// The resulting events.
    pub events: &'a mut Vec<PeerEvent>,
}

impl<N: Net> Link<N> {
    /// A connection that this replica opened for this purpose, with this first record: it sends first and waits for the
    /// answer.
    pub(super) fn dialled(
        (peer, purpose): (u8, Purpose),
        stream: N::Stream,
        (dialling, first): (Dialling, Vec<u8>),
        token: Token,
        net: &mut N,
    ) -> io::Result<Self> {
        let stage = Stage::Dialling(Some(Box::new(dialling)));
        let mut link = Link::new((peer, purpose), stream, stage, Records::default());
        link.output = Outgoing::of(first);
        net.register(&mut link.stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(link)
    }

    /// A connection whose other end has proved its identity, and says where it is; `records` has the bytes after the
    /// proof.
    pub(super) fn accepted(
        (peer, at): (u8, Option<KnownPlace>),
        stream: N::Stream,
        (channel, records): (Channel, Records),
        token: Token,
        net: &mut N,
    ) -> io::Result<Self> {
        let mut link = Link::new((peer, Purpose::Link), stream, Stage::Up(Box::new(channel)), records);
        link.at = at;
        net.tune(&link.stream);
        net.reregister(&mut link.stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(link)
    }

    fn new((peer, purpose): (u8, Purpose), stream: N::Stream, stage: Stage, records: Records) -> Self {
        Link {
            peer,
            at: None,
            purpose,
            stream,
            stage,
            records,
            decoder: Decoder::new(peer, order::limits::FRAME_BODY),
            output: Outgoing::default(),
            is_urgent: true,
            deferred: 0,
            is_refused: false,
            is_refused_by_host: false,
            is_announced: false,
        }
    }

    /// Whether frames may be sent: the handshake is complete.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    /// Bytes that wait to be written.
    pub(super) fn unsent(&self) -> usize {
        self.output.unsent()
    }

    pub(super) fn has_output(&self) -> bool {
        self.unsent() > 0
    }

    /// Injects a fault; see [`Channel::inject_fault`].
    #[cfg(test)]
    pub(super) fn inject_fault(&mut self, takes: u64, sends: u64) {
        if let Stage::Up(channel) = &mut self.stage {
            channel.inject_fault(takes, sends);
        }
    }

    pub(super) fn close(mut self, net: &mut N) {
        net.deregister(&mut self.stream);
    }

    /// Reads all received bytes; returns whether the connection is still usable.
    pub(super) fn read(&mut self, net: &mut N, reading: &mut Reading<'_>) -> bool {
        // Records may have come with the end of the handshake.
        if !self.take_records(net, reading) {
            return false;
        }
        loop {
            match self.records.read_from(&mut self.stream) {
                Ok((0, _)) => return false,
                Ok((_, may_have_more)) => {
                    if !self.take_records(net, reading) {
                        return false;
                    }
                    if !may_have_more {
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.lost(&error),
            }
        }
    }

    /// The connection is not usable any more.
    fn lost(&mut self, error: &io::Error) -> bool {
        self.is_refused |= is_own_fault(error);
        self.is_refused_by_host |= !self.is_up() && is_refused_by_host(error);
        false
    }

    fn take_records(&mut self, net: &mut N, reading: &mut Reading<'_>) -> bool {
        loop {
            let record = match self.records.next() {
                Ok(None) => return true,
                Ok(Some(record)) => record,
                Err(untrusted) => return self.untrusted(untrusted, reading.events),
            };
            match &mut self.stage {
                Stage::Dialling(dialling) => {
                    let Some(dialling) = dialling.take() else { return false };
                    match dialling.finish(record.sealed) {
                        Ok((theirs, channel)) => {
                            if !self.meet(&theirs, channel, reading) {
                                return false;
                            }
                            net.tune(&self.stream);
                        }
                        Err(untrusted) => return self.untrusted(untrusted, reading.events),
                    }
                }
                Stage::Up(channel) => match channel.open(record) {
                    Ok(None) => {}
                    Ok(Some(plain)) => {
                        self.decoder.feed(plain);
                        if !self.take_frames(reading.events) {
                            return false;
                        }
                    }
                    Err(untrusted) => return self.untrusted(untrusted, reading.events),
                },
            }
        }
    }

    /// The other end has answered and has the key. Checks that it is the replica that was dialled, with the same
    /// settings.
    fn meet(&mut self, theirs: &Hello, mut channel: Channel, reading: &mut Reading<'_>) -> bool {
        let learned = reading.identity.learns_from(theirs);
        reading.events.extend(learned.map(PeerEvent::OtherSize));
        if let Some(why) = reading.identity.refusal_of(theirs, Some(self.peer), ConnectionEnd::Dialled) {
            reading.events.push(PeerEvent::Refused { peer: Some(self.peer), why });
            return false;
        }
        if self.purpose == Purpose::Announcement {
            self.is_announced = true;
            return false;
        }
        self.at = theirs.here.clone();
        // The first record proves this replica's identity: until it comes, the other end trusts nothing.
        self.output.seal_nothing(&mut channel);
        self.stage = Stage::Up(Box::new(channel));
        self.is_urgent = true;
        reading.events.push(PeerEvent::Up(self.peer));
        true
    }

    /// The bytes are no record of this connection. After the handshake, this is corruption.
    fn untrusted(&self, untrusted: Untrusted, events: &mut Vec<PeerEvent>) -> bool {
        let peer = self.peer;
        events.push(match self.stage {
            Stage::Up(_) => PeerEvent::Corrupt(FrameError::Sealed { peer }),
            Stage::Dialling(_) => {
                PeerEvent::Refused { peer: Some(peer), why: Refusal::Untrusted(untrusted, None) }
            }
        });
        false
    }

    fn take_frames(&mut self, events: &mut Vec<PeerEvent>) -> bool {
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => {
                    events.push(PeerEvent::Frame { from: frame.from, kind: frame.kind, body: frame.body });
                }
                Ok(None) => return true,
                Err(error) => {
                    events.push(PeerEvent::Corrupt(error));
                    return false;
                }
            }
        }
    }

    /// Writes waiting bytes; returns whether the connection is still usable.
    pub(super) fn write(&mut self) -> bool {
        loop {
            while !self.output.unwritten().is_empty() {
                match self.stream.write(self.output.unwritten()) {
                    Ok(0) => return false,
                    Ok(written) => self.output.wrote(written),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.is_kept(),
                    // The connection is still being opened; an event of the socket reports when it is.
                    Err(error) if error.kind() == io::ErrorKind::NotConnected && !self.is_up() => {
                        return true;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return self.lost(&error),
                }
            }
            if !self.seal_some() {
                return true;
            }
        }
    }

    /// Seals the next waiting bytes; false if there are none.
    fn seal_some(&mut self) -> bool {
        let Stage::Up(channel) = &mut self.stage else { return false };
        let is_some = self.output.seal_some(channel);
        if !is_some {
            (self.is_urgent, self.deferred) = (false, 0);
        }
        is_some
    }

    /// The socket is full. Returns whether the peer is not too far behind.
    fn is_kept(&mut self) -> bool {
        self.output.forget_sealed();
        self.unsent() <= limits::UNSENT_PER_PEER
    }
}
