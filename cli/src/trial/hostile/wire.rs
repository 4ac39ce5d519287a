//! Sockets of clients that do not behave: raw bytes, small windows, resets; nothing here looks at replies.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

/// How long a connection may take: a full backlog waits a second.
const CONNECT: Duration = Duration::from_secs(5);
/// Between two looks of who pours whether it is to go on.
const STEP: Duration = Duration::from_millis(50);

/// A raw connection.
///
/// # Errors
/// Nobody accepts.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// So many of them; fewer where no more are accepted.
pub fn connect_all(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map_while(|_| connect(address).ok()).collect()
}

/// One that takes in only `bytes` at a time.
///
/// # Errors
/// Nobody accepts.
pub fn connect_narrow(address: SocketAddr, bytes: usize) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // It decides the window that is told at the beginning.
    socket.set_recv_buffer_size(bytes)?;
    socket.connect_timeout(&address.into(), CONNECT)?;
    Ok(socket.into())
}

/// Closes a connection with a reset.
pub fn reset(stream: TcpStream) {
    // Where it cannot be set, it is an ordinary end.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
}

/// Sends `bytes` until all are taken, `until` has come, or the other end is gone. Returns how many were taken.
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

/// Sends `bytes` again and again until then. Returns how many bytes were taken, and whether the other end
/// closed before.
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

/// Reads and forgets, until so many bytes have come, `until`, or the end. Returns how many.
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

/// What comes until the other end closes or `patience` is over, and whether it closed.
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

/// Sockets whose reading can end without anything read.
pub trait Patient {
    /// How long.
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
