//! etcd as a side: three members, accessed through their JSON gateway.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use super::peer::{self, Peer};
use super::{Keep, Running, find};
use crate::definition::{Connect, Definition, SideStorage};
use crate::wire::Dialect;
use node::signals::Ending;

/// A file system in memory, for a log that is as durable as ours in memory.
const MEMORY: &str = "/dev/shm";
/// Bytes to which its store may grow, so that a long run does not fill it: it keeps every version.
const QUOTA: &str = "8589934592";

/// Starts all three.
pub fn start(definition: &Definition, data: &Path, ending: &Ending) -> anyhow::Result<Running> {
    let addresses: [SocketAddr; 6] = peer::addresses()?;
    let (clients, members) = addresses.split_at(3);
    let in_memory = definition.durability == SideStorage::Memory && Path::new(MEMORY).is_dir();
    let folder = if in_memory { tempfile::tempdir_in(MEMORY)? } else { tempfile::tempdir_in(data)? };
    let cluster: Vec<String> =
        (1..).zip(members).map(|(number, address): (u8, _)| format!("m{number}=http://{address}")).collect();
    let cluster = cluster.join(",");
    let mut peers = Vec::new();
    for (index, (client, member)) in clients.iter().zip(members).enumerate() {
        let name = format!("m{}", index + 1);
        let mut command = Command::new(find("etcd").context("etcd is not installed")?);
        command.args(["--name", &name, "--initial-cluster", &cluster, "--initial-cluster-state", "new"]);
        command.args([
            "--initial-cluster-token",
            "crosscheck-bench",
            "--logger",
            "zap",
            "--log-level",
            "error",
        ]);
        command.args(["--quota-backend-bytes", QUOTA]).arg("--data-dir").arg(folder.path().join(&name));
        for (flags, address) in [
            (["--listen-client-urls", "--advertise-client-urls"], client),
            (["--listen-peer-urls", "--initial-advertise-peer-urls"], member),
        ] {
            for flag in flags {
                command.arg(flag).arg(format!("http://{address}"));
            }
        }
        peers.push(Peer::start(&name, command, data.join(format!("{name}.log")))?);
    }
    for (peer, client) in peers.iter_mut().zip(clients) {
        peer.until(ending, || ask(*client, "/v3/kv/put", r#"{"key":"cmVhZHk=","value":"MQ=="}"#).is_some())?;
    }
    let leader = clients.iter().position(|client| leads(*client)).unwrap_or(0);
    let addresses = match definition.connect {
        Connect::All => clients.to_vec(),
        Connect::Leader => vec![clients[leader]],
    };
    let process = |(index, peer): (usize, &Peer)| {
        let (name, pid) = peer.process();
        (format!("{name} ({})", if index == leader { "leader" } else { "follower" }), pid)
    };
    let processes = peers.iter().enumerate().map(process).collect();
    let keep = Keep::Peers(peers, Some(folder));
    Ok(Running { addresses, dialect: Dialect::Etcd, processes, keep })
}

/// Whether the member's own id is its leader's.
fn leads(client: SocketAddr) -> bool {
    let Some(status) = ask(client, "/v3/maintenance/status", "{}") else { return false };
    let text = |name: &str| {
        let from = status.find(name)? + name.len();
        status[from..].split('"').next().map(str::to_owned)
    };
    text("\"member_id\":\"").is_some_and(|own| text("\"leader\":\"").is_some_and(|leader| leader == own))
}

/// The answer to one request, if its status is good.
fn ask(client: SocketAddr, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(client).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}
