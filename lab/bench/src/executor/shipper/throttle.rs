//! A connection that sends no faster than a network of a given bandwidth.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes that are sent at once; 131 us at 1 Gb/s.
const CHUNK: usize = 16 << 10;
/// The sender sleeps when it is so far ahead: shorter sleeps take longer than they should.
const AHEAD: Duration = Duration::from_micros(500);

/// The sending half of a connection.
pub struct ThrottledStream {
    stream: TcpStream,
    bytes_per_s: f64,
    /// When the network would have taken what was sent so far.
    free_at: Instant,
}

impl ThrottledStream {
    /// Sends at most so many bytes per second.
    pub fn new(stream: TcpStream, bytes_per_s: f64) -> ThrottledStream {
        ThrottledStream { stream, bytes_per_s, free_at: Instant::now() }
    }

    /// Sends all bytes at the given rate. A sender that slept too long catches up before the end, as the buffers of a
    /// network card would let it; one that had nothing to send does not.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.free_at = self.free_at.max(Instant::now());
        for chunk in bytes.chunks(CHUNK) {
            self.stream.write_all(chunk)?;
            self.free_at += Duration::from_secs_f64(chunk.len() as f64 / self.bytes_per_s);
            if let Some(ahead) = self.free_at.checked_duration_since(Instant::now() + AHEAD) {
                std::thread::sleep(ahead + AHEAD);
            }
        }
        // What the network has not taken has not arrived.
        std::thread::sleep(self.free_at.saturating_duration_since(Instant::now()));
        Ok(())
    }

    /// Sends at another rate from now on.
    pub fn set_rate(&mut self, bytes_per_s: f64) {
        self.bytes_per_s = bytes_per_s;
    }

    /// The connection itself.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// The time has a lower bound only: nothing says how much longer a loaded machine takes.
    #[test]
    fn no_more_is_sent_than_the_rate_allows() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            listener.accept().expect("a connection").0.read_to_end(&mut all).map(|_| all.len())
        });
        let mut stream = ThrottledStream::new(TcpStream::connect(address).expect("a connection"), 1e6);
        let begun = Instant::now();
        stream.send(&[7; 20_000]).expect("it is sent");
        stream.send(&[7; 20_000]).expect("it is sent");
        assert!(begun.elapsed() >= Duration::from_millis(40));
        drop(stream);
        assert_eq!(reader.join().expect("a reader").expect("it reads"), 40_000);
    }
}
