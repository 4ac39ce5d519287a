//! The servers of the zone: the first one has the even zones, and delegates the odd ones to the second.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::question::{A, DATAGRAM, KnownRecords, NS, Question, SOA, TTL, labels, number};

/// The port of DNS.
const PORT: u16 = 53;
/// How long a server waits for a client's bytes: others wait behind it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Starts both servers, on port 53 of these addresses; they run until the process ends.
///
/// # Errors
/// If the port needs a right that this process does not have, or is taken.
pub fn serve(first: Ipv4Addr, second: Ipv4Addr) -> io::Result<()> {
    for (own, is_first) in [(first, true), (second, false)] {
        let datagrams = UdpSocket::bind(SocketAddrV4::new(own, PORT))?;
        let streams = TcpListener::bind(SocketAddrV4::new(own, PORT))?;
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            loop {
                // An error is that of a client that has closed its socket.
                let Ok((length, from)) = datagrams.recv_from(&mut buffer) else { continue };
                let Some(mut reply) = answer(&buffer[..length], is_first, second) else { continue };
                if reply.len() > DATAGRAM {
                    reply = buffer[..length].to_vec();
                    // A reply, cut off.
                    reply[2] |= 0x86;
                }
                let _ = datagrams.send_to(&reply, from);
            }
        });
        thread::spawn(move || {
            for stream in streams.incoming().flatten() {
                let _ = converse(stream, is_first, second);
            }
        });
    }
    Ok(())
}

/// Answers one query that comes over a stream.
fn converse(mut stream: TcpStream, is_first: bool, second: Ipv4Addr) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut query)?;
    let Some(reply) = answer(&query, is_first, second) else { return Ok(()) };
    stream.write_all(&[&(reply.len() as u16).to_be_bytes()[..], &reply].concat())
}

/// The reply to a query; none to what is no query.
fn answer(query: &[u8], is_first: bool, second: Ipv4Addr) -> Option<Vec<u8>> {
    let name_end = 12 + query.get(12..)?.iter().position(|&byte| byte == 0)? + 1;
    let (question, name) = (query.get(12..name_end + 4)?, &query[12..name_end]);
    let kind = u16::from_be_bytes(query.get(name_end..name_end + 2)?.try_into().ok()?);
    let (host, zone) = (number(name, 0), number(name, 1));
    let own = labels(&[&format!("z{}", zone.unwrap_or(0)), "test"]);
    let server = [&[2, b'n', b's'][..], &own].concat();
    let mut sections = [Vec::new(), Vec::new(), Vec::new()];
    let mut code = 0;
    let soa = [&server[..], &server, &[0; 19], &[60]].concat();
    match (host, zone) {
        (_, Some(zone)) if is_first && zone % 2 == 1 => {
            sections[1].push((own, NS, server.clone()));
            sections[2].push((server, A, second.octets().to_vec()));
        }
        (Some(host), Some(zone)) => match (Question { host, zone, kind }).known() {
            KnownRecords::Records(records) => {
                sections[0].extend(records.into_iter().map(|(of, data)| (name.to_vec(), of, data)));
            }
            nothing => {
                code = if nothing == KnownRecords::Absent { 3 } else { 0 };
                sections[1].push((own, SOA, soa));
            }
        },
        // The address of a zone's server, where it is not found beside a referral.
        (None, Some(_)) if kind == A => sections[0].push((name.to_vec(), A, second.octets().to_vec())),
        _ => {
            code = 3;
            sections[1].push((labels(&["test"]), SOA, soa));
        }
    }
    let counts = sections.iter().flat_map(|section| (section.len() as u16).to_be_bytes());
    let is_authority = if sections[1].first().is_some_and(|(_, of, _)| *of == NS) { 0 } else { 4 };
    let mut reply = [&query[..2], &[0x80 | is_authority, code, 0, 1]].concat();
    reply.extend(counts);
    reply.extend_from_slice(question);
    for (name, of, data) in sections.iter().flatten() {
        reply.extend_from_slice(name);
        reply.extend_from_slice(&[&of.to_be_bytes()[..], &[0, 1], &TTL.to_be_bytes()].concat());
        reply.extend_from_slice(&(data.len() as u16).to_be_bytes());
        reply.extend_from_slice(data);
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::TXT;

    #[test]
    fn no_bytes_make_a_server_fail() {
        let query = Question { host: 5, zone: 3, kind: TXT }.query(1);
        for at in 0..query.len() {
            let _ = answer(&query[..at], true, Ipv4Addr::LOCALHOST);
            for byte in 0..=255 {
                let mut other = query.clone();
                other[at] = byte;
                for is_first in [true, false] {
                    let _ = answer(&other, is_first, Ipv4Addr::LOCALHOST);
                }
            }
        }
    }
}
