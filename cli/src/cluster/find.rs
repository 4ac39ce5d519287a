//! Which replicas a command talks to: those of a cluster that `up` recorded, or those whose admin addresses are given.

use std::net::SocketAddr;

use anyhow::bail;

use super::runfile::{self, RunFile};
use crate::outcome::misuse;

/// memcached's port, and the first client port of a cluster when nothing else is said.
pub const DEFAULT_PORT: u16 = 11_211;

/// Names the cluster a command is about.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Target {
    /// First client port of a cluster that `up` started [default: the only one that runs]
    #[arg(long, short, value_name = "PORT")]
    pub port: Option<u16>,

    /// Admin address of a replica that `serve` started; once per replica, in their order
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "port")]
    pub admin: Vec<SocketAddr>,
}

/// One replica to talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// From 1.
    pub number: u8,
    /// Where the command line connects.
    pub admin: SocketAddr,
    /// Where clients connect, where known.
    pub clients: Option<SocketAddr>,
}

impl Target {
    /// The replicas meant.
    ///
    /// # Errors
    /// No such cluster runs, or several do and none was named.
    pub fn replicas(&self) -> anyhow::Result<Vec<Replica>> {
        if !self.admin.is_empty() {
            let numbered = (1u8..).zip(&self.admin);
            return Ok(numbered
                .map(|(number, admin)| Replica { number, admin: *admin, clients: None })
                .collect());
        }
        let directory = runfile::directory()?;
        let found = match self.port {
            Some(port) => RunFile::read(&directory, port)?.filter(RunFile::is_alive),
            None => only(RunFile::all_alive(&directory))?,
        };
        let Some(found) = found else {
            let named = self.port.map(|port| format!(" with first client port {port}")).unwrap_or_default();
            bail!(
                "no cluster{named} runs here; start one with `crosscheck up`, or give --admin ADDRESS of a replica \
                 that `serve` started"
            );
        };
        let replica = |place: &runfile::Place| Replica {
            number: place.number,
            admin: place.admin,
            clients: Some(place.clients),
        };
        Ok(found.replicas.iter().map(replica).collect())
    }
}

fn only(mut alive: Vec<RunFile>) -> anyhow::Result<Option<RunFile>> {
    if alive.len() > 1 {
        let ports: Vec<String> = alive.iter().map(|file| file.port().to_string()).collect();
        return Err(misuse(format!(
            "several clusters run here; choose one with --port {}",
            ports.join(" or ")
        )));
    }
    Ok(alive.pop())
}
