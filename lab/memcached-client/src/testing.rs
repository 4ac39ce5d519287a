//! Servers whose answers a test chooses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// The address of a server that answers the first bytes of one connection with `answer`, and then closes it.
///
/// # Panics
/// If loopback has no free port.
pub fn server_that_answers(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(answer);
    });
    address
}
