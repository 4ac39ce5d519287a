//! memcached as a side, stock or hardened: one process with as many threads as one of our replicas has workers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::peer::{self, Peer};
use super::{Keep, Running, find};
use crate::definition::Definition;
use crate::wire::Dialect;
use node::signals::Ending;

/// Connections that it accepts: more than a definition may have.
const CONNECTIONS: &str = "2048";

/// Starts one: that of the machine.
pub fn start(definition: &Definition, data: &Path, ending: &Ending) -> anyhow::Result<Running> {
    start_program(&find("memcached").context("memcached is not installed")?, definition, data, ending)
}

/// The command that runs the machine's memcached, and the address where it will listen; nothing is started.
///
/// # Errors
/// It is not installed, or no port is free.
pub fn stock_command(definition: &Definition) -> anyhow::Result<(Command, SocketAddr)> {
    command_of(&find("memcached").context("memcached is not installed")?, definition)
}

fn command_of(program: &Path, definition: &Definition) -> anyhow::Result<(Command, SocketAddr)> {
    let [address] = peer::addresses()?;
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-U", "0", "-c", CONNECTIONS, "-p"]).arg(address.port().to_string());
    command.arg("-m").arg(definition.memory_mb.to_string());
    command.arg("-t").arg(definition.workers.to_string());
    if rustix::process::geteuid().is_root() {
        // It refuses to run as root unless it gets another user to switch to.
        command.args(["-u", "nobody"]);
    }
    Ok((command, address))
}

/// Starts one of this file.
pub fn start_program(
    program: &Path,
    definition: &Definition,
    data: &Path,
    ending: &Ending,
) -> anyhow::Result<Running> {
    let (command, address) = command_of(program, definition)?;
    let mut peer = Peer::start("memcached", command, data.join("memcached.log"))?;
    peer.until(ending, || peer::accepts(address))?;
    Ok(Running {
        addresses: vec![address],
        dialect: Dialect::Memcached,
        processes: vec![peer.process()],
        keep: Keep::Peers(vec![peer], None),
    })
}
