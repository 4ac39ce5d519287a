//! The network of the peers' connections: TCP sockets in a real process; pipes in a simulation of a whole cluster.

use std::io::{self, Read, Write};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use super::names::{Lookup, Names};
use crate::address::Address;

/// Streams between replicas, and the registration of their events.
pub trait Net: Send + 'static {
    /// One end of a connection; non-blocking.
    type Stream: Read + Write + Send;

    /// Begins to connect to `peer`.
    ///
    /// # Errors
    /// `WouldBlock` while the peer's host name is being resolved: call again. `NotFound` if the name does not resolve;
    /// the error has the reason. Others when the peer is known at once to be unreachable.
    fn connect(&mut self, peer: u8) -> io::Result<Self::Stream>;

    /// Accepts a connection to this replica.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    fn accept(&mut self) -> io::Result<Self::Stream>;

    /// Registers `stream`: its events come under `token` from now on.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn register(&mut self, stream: &mut Self::Stream, token: Token, interest: Interest) -> io::Result<()>;

    /// As [`Net::register`], for a stream that had another token.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn reregister(&mut self, stream: &mut Self::Stream, token: Token, interest: Interest) -> io::Result<()>;

    /// Ends the events of `stream`.
    fn deregister(&mut self, stream: &mut Self::Stream);

    /// From now on connects to `peer` at this address.
    fn redirect(&mut self, _peer: u8, _address: &Address) {}

    /// From now on there are these replicas (index = replica).
    fn resize(&mut self, _addresses: &[Address]) {}

    /// Whether it still connects to these addresses (index = replica).
    fn goes_to(&self, _addresses: &[Address]) -> bool {
        true
    }

    /// The address of the other end of a stream, for messages.
    fn remote(&self, _stream: &Self::Stream) -> String {
        "somewhere".into()
    }

    /// Sets a stream's options after the handshake: small messages leave at once, and a peer that cannot be reached is
    /// detected soon.
    fn tune(&mut self, stream: &Self::Stream);
}

/// TCP, watched by the poll of the order thread.
pub struct Tcp {
    pub(super) names: Names,
    listener: TcpListener,
    registry: Registry,
}

impl Tcp {
    /// Listens on this replica's address of `addresses` (index = replica); connections come under `token`.
    ///
    /// # Errors
    /// When the address does not resolve, or cannot be bound; the message names it.
    pub fn bind(me: u8, addresses: Vec<Address>, registry: &Registry, token: Token) -> io::Result<Self> {
        let own = &addresses[usize::from(me)];
        let cannot_listen = |kind: io::ErrorKind, why: String| {
            io::Error::new(kind, format!("cannot listen for peers on {own}: {why}"))
        };
        let found = own.resolve().map_err(|why| cannot_listen(io::ErrorKind::NotFound, why))?;
        let first =
            *found.first().ok_or_else(|| cannot_listen(io::ErrorKind::NotFound, "no address".into()))?;
        let listener = TcpListener::bind(first);
        let mut listener = listener.map_err(|error| cannot_listen(error.kind(), error.to_string()))?;
        registry.register(&mut listener, token, Interest::READABLE)?;
        Ok(Tcp { names: Names::new(addresses), listener, registry: registry.try_clone()? })
    }
}

impl Net for Tcp {
    type Stream = TcpStream;

    fn connect(&mut self, peer: u8) -> io::Result<TcpStream> {
        match self.names.look_up(peer) {
            Lookup::At(address) => TcpStream::connect(address),
            Lookup::UnderWay => Err(io::ErrorKind::WouldBlock.into()),
            Lookup::Failed(why) => Err(io::Error::new(io::ErrorKind::NotFound, why)),
        }
    }

    fn accept(&mut self) -> io::Result<TcpStream> {
        self.listener.accept().map(|(stream, _)| stream)
    }

    fn register(&mut self, stream: &mut TcpStream, token: Token, interest: Interest) -> io::Result<()> {
        self.registry.register(stream, token, interest)
    }

    fn reregister(&mut self, stream: &mut TcpStream, token: Token, interest: Interest) -> io::Result<()> {
        self.registry.reregister(stream, token, interest)
    }

    fn deregister(&mut self, stream: &mut TcpStream) {
        // Closing the descriptor has the same effect; an error is harmless.
        let _ = self.registry.deregister(stream);
    }

    fn redirect(&mut self, peer: u8, address: &Address) {
        self.names.redirect(peer, address);
    }

    fn resize(&mut self, addresses: &[Address]) {
        self.names.resize(addresses);
    }

    fn goes_to(&self, addresses: &[Address]) -> bool {
        self.names.configured() == addresses
    }

    fn remote(&self, stream: &TcpStream) -> String {
        stream.peer_addr().map_or_else(|_| "it has hung up".into(), |address| format!("from {address}"))
    }

    /// Reno has shorter tails than the default of the machine that was measured (docs/design.md, section 5). An option
    /// that the kernel lacks is skipped.
    fn tune(&mut self, stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        #[cfg(target_os = "linux")]
        {
            let socket = socket2::SockRef::from(stream);
            let _ = socket.set_tcp_congestion(b"reno");
            let _ = socket.set_tcp_user_timeout(Some(crate::limits::UNACKNOWLEDGED));
        }
    }
}
