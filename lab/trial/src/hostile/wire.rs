//! Sockets of clients that misbehave: raw bytes, small windows, resets; replies are not checked.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

/// How long connecting may take: with a full backlog it takes a second.
const CONNECT: Duration = Duration::from_secs(5);
/// Interval at which a sender checks whether it should continue.
const STEP: Duration = Duration::from_millis(50);

/// A raw connection.
///
/// # Errors
/// The server does not accept.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// This many connections; fewer if no more are accepted.
pub fn connect_all(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map_while(|_| connect(address).ok()).collect()
}

/// A connection with a receive buffer of `bytes`.
///
/// # Errors
/// The server does not accept.
pub fn connect_narrow(address: SocketAddr, bytes: usize) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // It decides the window that is advertised at the beginning.
    socket.set_recv_buffer_size(bytes)?;
    socket.connect_timeout(&address.into(), CONNECT)?;
    Ok(socket.into())
}

/// A request of the binary protocol, with a value of so many bytes.
pub fn packet(opcode: u8, extras: &[u8], key: &[u8], value: usize) -> Vec<u8> {
    let body = extras.len() + key.len() + value;
    let mut packet = vec![0x80, opcode];
    packet.extend_from_slice(&(key.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    packet.extend_from_slice(&(body as u32).to_be_bytes());
    packet.extend_from_slice(&[0; 12]);
    packet.extend_from_slice(extras);
    packet.extend_from_slice(key);
    packet.resize(packet.len() + value, b'v');
    packet
}

/// Closes a connection with a reset.
pub fn reset(stream: TcpStream) {
    // If it cannot be set, the connection ends in the ordinary way.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

/// Sends `bytes` until all are accepted, `until` has come, or the other end has closed. Returns how many were accepted.
pub fn send(stream: &mut TcpStream, bytes: &[u8], until: Instant) -> usize {
    let _ = stream.set_write_timeout(Some(STEP));
    let mut sent = 0;
    while sent < bytes.len() && Instant::now() < until {
        match stream.write(&bytes[sent..]) {
            Ok(0) => break,
            Ok(taken) => sent += taken,
            Err(error) if is_patience(&error) => {}
            Err(_) => break,
        }
    }
    sent
}

/// Sends `bytes` repeatedly until then. Returns how many bytes were accepted, and whether the other end closed before.
pub fn pour(stream: &mut TcpStream, bytes: &[u8], until: Instant) -> (usize, bool) {
    let mut poured = 0;
    while Instant::now() < until {
        let sent = send(stream, bytes, until);
        poured += sent;
        if sent < bytes.len() && Instant::now() < until {
            return (poured, true);
        }
    }
    (poured, false)
}

/// Reads and discards, until `bytes` bytes have come, `until`, or the end. Returns their number.
pub fn drain(stream: &mut TcpStream, bytes: usize, until: Instant) -> usize {
    let _ = stream.set_read_timeout(Some(STEP));
    let (mut buffer, mut taken) = (vec![0; 1 << 20], 0);
    while taken < bytes && Instant::now() < until {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => taken += read,
            Err(error) if is_patience(&error) => {}
            Err(_) => break,
        }
    }
    taken
}

/// The bytes received until the other end closes or `patience` is over, and whether it closed.
pub fn answer(stream: &mut (impl Read + Patient), patience: Duration) -> (Vec<u8>, bool) {
    let (until, mut answer, mut buffer) = (Instant::now() + patience, Vec::new(), [0; 4096]);
    stream.set_patience(STEP);
    while Instant::now() < until {
        match stream.read(&mut buffer) {
            Ok(0) => return (answer, true),
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            Err(error) if is_patience(&error) => {}
            // A reset is an end, too.
            Err(_) => return (answer, true),
        }
    }
    (answer, false)
}

/// Sockets whose reads have a timeout.
pub trait Patient {
    /// Sets the timeout.
    fn set_patience(&self, patience: Duration);
}

impl Patient for TcpStream {
    fn set_patience(&self, patience: Duration) {
        let _ = self.set_read_timeout(Some(patience));
    }
}

impl Patient for std::os::unix::net::UnixStream {
    fn set_patience(&self, patience: Duration) {
        let _ = self.set_read_timeout(Some(patience));
    }
}

fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Waits until then.
pub fn pause_until(until: Instant) {
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
}
