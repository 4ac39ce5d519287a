//! Picks loopback ports that stay free: below the range from which the kernel serves outgoing connections.
//!
//! A port of that range works until a replica dies: then any outgoing connection, even a peer's own attempt to
//! reconnect, may take the dead replica's port as its source, and the replica cannot come back.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Lowest port that is picked, above the ports for which services are registered in practice.
const LOWEST: u16 = 20_000;
/// Linux's default start of the outgoing range, for when the kernel's setting cannot be read.
const USUAL_OUTGOING: u16 = 32_768;

/// The loopback address of a port.
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Picks `count` ports on which no process listens now, none of them in `taken`.
///
/// Two commands that pick at the same time begin at different ports, derived from their process ids.
///
/// # Errors
/// So many ports are in use that `count` free ones were not found.
pub fn pick(count: usize, taken: &[u16]) -> io::Result<Vec<u16>> {
    let range = LOWEST..outgoing_start().max(LOWEST + 1000);
    let width = u32::from(range.end - range.start);
    let offset = std::process::id().wrapping_mul(97) % width;
    let mut picked = Vec::with_capacity(count);
    for step in 0..width {
        if picked.len() == count {
            break;
        }
        let place = (offset + step) % width;
        let port = range.start + u16::try_from(place).unwrap_or(0);
        if !taken.contains(&port) && TcpListener::bind(loopback(port)).is_ok() {
            picked.push(port);
        }
    }
    if picked.len() < count {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "no free loopback ports are left"));
    }
    Ok(picked)
}

fn outgoing_start() -> u16 {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    told.split_whitespace().next().and_then(|start| start.parse().ok()).unwrap_or(USUAL_OUTGOING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_distinct_free_ports_outside_the_outgoing_range() {
        let ports = pick(9, &[]).expect("nine ports");
        let mut sorted = ports.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 9);
        assert!(ports.iter().all(|port| *port >= LOWEST));
    }

    #[test]
    fn ports_in_use_or_spoken_for_are_left_alone() {
        let first = pick(1, &[]).expect("a port")[0];
        let second = pick(1, &[first]).expect("another")[0];
        assert_ne!(first, second);
        let _held = TcpListener::bind(loopback(second)).expect("still free");
        assert!(!pick(2, &[]).expect("two ports").contains(&second));
    }
}
