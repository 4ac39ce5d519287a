//! Cycles of the processor in the parts of a server's event loop (NSDI'15, Table 5), as a hardened program built to
//! count them reports in its statistics.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of statistics that are read at most.
const LONGEST: u64 = 1 << 20;

/// Cycles of all threads, without those spent waiting for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLoopCycles {
    /// Before and after handlers: reading, finding the request, the state of the connection.
    pub dispatching: u64,
    /// In handlers.
    pub handling: u64,
    /// In sending replies.
    pub sending: u64,
}

impl EventLoopCycles {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.dispatching + self.handling + self.sending
    }

    /// Those since `before`.
    pub fn since(self, before: EventLoopCycles) -> EventLoopCycles {
        EventLoopCycles {
            dispatching: self.dispatching.saturating_sub(before.dispatching),
            handling: self.handling.saturating_sub(before.handling),
            sending: self.sending.saturating_sub(before.sending),
        }
    }
}

/// Asks the server at `address`; none if it does not count them.
///
/// # Errors
/// It does not answer.
pub fn cycles_of(address: SocketAddr) -> io::Result<Option<EventLoopCycles>> {
    let mut server = TcpStream::connect_timeout(&address, PATIENCE)?;
    server.set_read_timeout(Some(PATIENCE))?;
    server.write_all(b"stats\r\n")?;
    let lines = BufReader::new(server.take(LONGEST)).lines();
    parse(lines)
}

fn parse(lines: impl Iterator<Item = io::Result<String>>) -> io::Result<Option<EventLoopCycles>> {
    let mut found = EventLoopCycles::default();
    let mut is_counted = false;
    for line in lines {
        let line = line?;
        if line == "END" {
            return Ok(is_counted.then_some(found));
        }
        let mut words = line.split(' ').skip(1);
        let part = match words.next() {
            Some("sei_cycles_dispatching") => &mut found.dispatching,
            Some("sei_cycles_handling") => &mut found.handling,
            Some("sei_cycles_sending") => &mut found.sending,
            _ => continue,
        };
        let number = words.next().and_then(|word| word.parse().ok());
        *part = number.ok_or_else(|| io::Error::other(format!("`{line}` has no number")))?;
        is_counted = true;
    }
    Err(io::Error::other("the statistics have no end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> io::Result<Option<EventLoopCycles>> {
        parse(text.lines().map(|line| Ok(line.to_owned())))
    }

    #[test]
    fn statistics_are_read_to_their_end() {
        let text = "STAT pid 7\nSTAT sei_cycles_dispatching 5\nSTAT sei_cycles_handling 12\nEND\n\
            STAT sei_cycles_sending 1";
        let cycles = EventLoopCycles { dispatching: 5, handling: 12, sending: 0 };
        assert_eq!(parsed(text).expect("an end"), Some(cycles));
        assert_eq!(cycles.all(), 17);
        assert_eq!(parsed("STAT pid 7\nEND").expect("an end"), None);
        assert!(parsed("STAT sei_cycles_handling many\nEND").is_err());
        assert!(parsed("STAT pid 7").is_err());
    }
}
