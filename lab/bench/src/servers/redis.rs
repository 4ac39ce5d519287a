//! Redis as a side: a primary with two replicas; a write counts when one of the replicas has it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::peer::{self, Peer};
use super::{Keep, Running, find};
use crate::definition::{Definition, SideStorage};
use crate::wire::Dialect;
use node::signals::Ending;

/// Replicas that must have a write before it is answered: with the primary, a majority of three, as ours.
const WAIT: u8 = 1;

/// Starts all three.
pub fn start(definition: &Definition, data: &Path, ending: &Ending) -> anyhow::Result<Running> {
    let addresses: [SocketAddr; 3] = peer::addresses()?;
    let mut peers = Vec::new();
    for (number, address) in addresses.iter().enumerate() {
        let name = if number == 0 { "primary".to_owned() } else { format!("replica {number}") };
        let folder = data.join(format!("redis-{number}"));
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let mut command = command(definition, *address, &folder)?;
        if number > 0 {
            command.args(["--replicaof", "127.0.0.1"]).arg(addresses[0].port().to_string());
        }
        let mut peer = Peer::start(&name, command, folder.join("log"))?;
        peer.until(ending, || peer::accepts(*address))?;
        peers.push(peer);
    }
    peers[0].until(ending, || both_replicas_follow(addresses[0]))?;
    Ok(Running {
        addresses: vec![addresses[0]],
        dialect: Dialect::Redis { wait: WAIT },
        processes: peers.iter().map(Peer::process).collect(),
        keep: Keep::Peers(peers, None),
    })
}

fn command(definition: &Definition, address: SocketAddr, folder: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(find("redis-server").context("redis-server is not installed")?);
    command.args(["--bind", "127.0.0.1", "--save", "", "--maxclients", "2048", "--port"]);
    command.arg(address.port().to_string()).arg("--dir").arg(folder);
    command.arg("--maxmemory").arg(format!("{}mb", definition.memory_mb));
    command.args([
        "--maxmemory-policy",
        "allkeys-lru",
        "--repl-diskless-sync",
        "yes",
        "--repl-diskless-sync-delay",
        "0",
    ]);
    match definition.durability {
        SideStorage::Memory => command.args(["--appendonly", "no"]),
        SideStorage::Disk => command.args(["--appendonly", "yes", "--appendfsync", "always"]),
    };
    Ok(command)
}

/// Asks the primary whether two replicas have received a write made just now.
fn both_replicas_follow(primary: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(primary)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"SET ready 1\r\nWAIT 2 200\r\n")?;
        let mut answer = Vec::new();
        let mut piece = [0; 64];
        while answer.iter().filter(|byte| **byte == b'\n').count() < 2 {
            let count = stream.read(&mut piece)?;
            if count == 0 {
                break;
            }
            answer.extend_from_slice(&piece[..count]);
        }
        Ok(answer.ends_with(b":2\r\n"))
    };
    ask().unwrap_or(false)
}
