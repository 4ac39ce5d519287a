//! An authoritative DNS server for tests: what it knows about a name is a function of the name, so that a test knows
//! the right answer to every query.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::thread;

/// Types of records.
pub const A: u16 = 1;
pub const NS: u16 = 2;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const MX: u16 = 15;
pub const TXT: u16 = 16;

/// A name of the zone: `hN.zM.test`. Zones with an odd number are delegated to the second server.
pub fn name(host: u64, zone: u64) -> Vec<u8> {
    labels(&[&format!("h{host}"), &format!("z{zone}"), "test"])
}

fn labels(of: &[&str]) -> Vec<u8> {
    let mut name = Vec::new();
    for label in of {
        name.push(label.len() as u8);
        name.extend_from_slice(label.as_bytes());
    }
    name.push(0);
    name
}

/// The number behind the first letter of a label of a name.
fn number(name: &[u8], label: usize) -> Option<u64> {
    let mut at = 0;
    for _ in 0..label {
        at += 1 + usize::from(*name.get(at)?);
    }
    let length = usize::from(*name.get(at)?);
    std::str::from_utf8(name.get(at + 2..at + 1 + length)?).ok()?.parse().ok()
}

/// What is known about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// These records: (type, data).
    Records(Vec<(u16, Vec<u8>)>),
    /// It has records, but none of this type.
    Nothing,
    /// There is no such name.
    Absent,
}

/// What is known about `hN.zM.test`.
pub fn known(host: u64, zone: u64, kind: u16) -> Known {
    let other = name(host / 2, zone);
    let records: Vec<(u16, Vec<u8>)> = match host % 5 {
        // A chain of names: it ends where the number is no longer of this kind, at 0 at last.
        1 if host > 1 => vec![(CNAME, other)],
        2 => return Known::Absent,
        _ => {
            let addresses = (0..1 + host % 4).map(|at| (A, vec![10, zone as u8, at as u8, host as u8]));
            let exchanges = (0..host % 3).map(|at| (MX, [&[0, at as u8][..], &other].concat()));
            let lines = 1 + host % 7;
            let text = (0..lines).map(|at| (TXT, [&[120][..], &[b'a' + at as u8; 120]].concat()));
            addresses.chain(exchanges).chain(text).collect()
        }
    };
    let fitting: Vec<_> = records.into_iter().filter(|(of, _)| *of == kind || *of == CNAME).collect();
    if fitting.is_empty() { Known::Nothing } else { Known::Records(fitting) }
}

/// Answers of the right reply, and its code: after all names of a chain.
pub fn right(host: u64, zone: u64, kind: u16) -> (usize, u8) {
    match known(host, zone, kind) {
        Known::Absent => (0, 3),
        Known::Nothing => (0, 0),
        Known::Records(records) if records[0].0 == CNAME && kind != CNAME => {
            let (answers, code) = right(host / 2, zone, kind);
            (answers + 1, code)
        }
        Known::Records(records) => (records.len(), 0),
    }
}

/// A query for a name.
pub fn query(id: u16, name: &[u8], kind: u16) -> Vec<u8> {
    let head = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    [&head[..], name, &kind.to_be_bytes(), &[0, 1]].concat()
}

/// Starts both servers, on port 53 of these addresses; they run until the process ends.
///
/// # Errors
/// If the port needs a right that this process does not have.
pub fn serve(first: Ipv4Addr, second: Ipv4Addr) -> io::Result<()> {
    for (own, is_first) in [(first, true), (second, false)] {
        let datagrams = UdpSocket::bind(SocketAddrV4::new(own, 53))?;
        let streams = TcpListener::bind(SocketAddrV4::new(own, 53))?;
        thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok((length, from)) = datagrams.recv_from(&mut buffer) {
                let Some(mut reply) = answer(&buffer[..length], is_first, second) else { continue };
                if reply.len() > 512 {
                    reply = buffer[..length].to_vec();
                    // A reply, truncated.
                    reply[2] |= 0x86;
                }
                let _ = datagrams.send_to(&reply, from);
            }
        });
        thread::spawn(move || {
            for mut stream in streams.incoming().map_while(Result::ok) {
                let mut length = [0; 2];
                let Ok(()) = stream.read_exact(&mut length) else { continue };
                let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                let Ok(()) = stream.read_exact(&mut query) else { continue };
                let Some(reply) = answer(&query, is_first, second) else { continue };
                let _ = stream.write_all(&[&(reply.len() as u16).to_be_bytes()[..], &reply].concat());
            }
        });
    }
    Ok(())
}

fn answer(query: &[u8], is_first: bool, second: Ipv4Addr) -> Option<Vec<u8>> {
    let name_end = 12 + query.get(12..)?.iter().position(|&byte| byte == 0)? + 1;
    let name = &query[12..name_end];
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
        (Some(host), Some(zone)) => match known(host, zone, kind) {
            Known::Records(records) => {
                sections[0].extend(records.into_iter().map(|(of, data)| (name.to_vec(), of, data)));
            }
            nothing => {
                code = if nothing == Known::Absent { 3 } else { 0 };
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
    reply.extend_from_slice(&query[12..name_end + 4]);
    for (name, of, data) in sections.iter().flatten() {
        reply.extend_from_slice(name);
        reply.extend_from_slice(&[&of.to_be_bytes()[..], &[0, 1, 0, 0, 14, 16]].concat());
        reply.extend_from_slice(&(data.len() as u16).to_be_bytes());
        reply.extend_from_slice(data);
    }
    Some(reply)
}
