//! Finds the replicas that a command talks to: those of a cluster that `up` recorded, or those whose admin sockets are
//! given.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::bail;
use crosscheck::admin::client::{NoAnswer, ask};
use crosscheck::admin::{AdminCommand, Endpoint, Status, Token};
use crosscheck::private;
use serde::de::DeserializeOwned;

use super::runfile::{self, RunFile};
use crate::config::resolve;
use crate::outcome::misuse;
use crate::program;

/// A replica that does not answer for this long hangs, or is down.
const PATIENCE: Duration = Duration::from_secs(2);

/// Identifies the cluster that a command is about.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClusterTarget {
    /// First client port of a cluster that `up` started [default: the only one that runs]
    #[arg(long, short, value_name = "PORT")]
    pub port: Option<u16>,

    /// Admin socket of a replica that `serve` started, as named in its configuration; once per replica, in the order of
    /// their numbers
    #[arg(long, value_name = "PATH|HOST:PORT", conflicts_with = "port")]
    pub admin: Vec<String>,

    /// File with the secret of the admin ports; once for all ports, or once per port in the order of --admin
    #[arg(long, value_name = "FILE", requires = "admin")]
    pub admin_token: Vec<PathBuf>,
}

/// One replica to talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaHandle {
    /// The replica, from 1.
    pub number: u8,
    /// Where the command line connects.
    pub admin: Endpoint,
    /// Where clients connect, where known.
    pub clients: Option<SocketAddr>,
}

impl ReplicaHandle {
    /// Sends it an operator's command, and waits at most `patience` for the answer.
    ///
    /// # Errors
    /// See [`NoAnswer`].
    pub fn ask<T: DeserializeOwned>(
        &self,
        command: &AdminCommand,
        patience: Duration,
    ) -> Result<T, NoAnswer> {
        ask(&self.admin, command, patience)
    }

    /// Its status; none while it is down, or hangs.
    pub fn status(&self) -> Option<Status> {
        self.ask(&AdminCommand::Status, PATIENCE).ok()
    }
}

/// What `ask` returns for each of these replicas, in their order; all are asked at the same time.
pub fn at_once<'a, T: Send>(
    replicas: impl IntoIterator<Item = &'a ReplicaHandle>,
    ask: impl Fn(&ReplicaHandle) -> T + Sync,
) -> Vec<T> {
    let ask = &ask;
    thread::scope(|scope| {
        let asked: Vec<_> = replicas.into_iter().map(|replica| scope.spawn(move || ask(replica))).collect();
        // A panic of one of these threads is a bug of this program, and is passed on.
        let answer = |asked: ScopedJoinHandle<'_, T>| {
            asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        asked.into_iter().map(answer).collect()
    })
}

/// The replica that most of these statuses name as the leader.
pub fn named_leader<'a>(statuses: impl IntoIterator<Item = &'a Status>) -> Option<u8> {
    let named: Vec<u8> = statuses.into_iter().filter_map(|status| status.leader).collect();
    let votes = |leader: &u8| named.iter().filter(|named| *named == leader).count();
    named.iter().copied().max_by_key(votes)
}

impl ClusterTarget {
    /// The replicas of the cluster.
    ///
    /// # Errors
    /// No such cluster runs, or several do and none was named.
    pub fn replicas(&self) -> anyhow::Result<Vec<ReplicaHandle>> {
        if !self.admin.is_empty() {
            let numbered = (1u8..).zip(endpoints(&self.admin, &self.admin_token)?);
            return Ok(numbered
                .map(|(number, admin)| ReplicaHandle { number, admin, clients: None })
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
                "no cluster{named} runs here; start one with `{} up`, or give --admin PATH, the admin socket of a \
                 replica that `serve` started",
                program::name()
            );
        };
        let replica = |place: &runfile::ReplicaAddresses| ReplicaHandle {
            number: place.number,
            admin: Endpoint::Unix(place.admin.clone()),
            clients: Some(place.clients).filter(|_| !place.witness),
        };
        Ok(found.replicas.iter().map(replica).collect())
    }
}

/// The endpoints that `--admin` and `--admin-token` name.
fn endpoints(admin: &[String], tokens: &[PathBuf]) -> anyhow::Result<Vec<Endpoint>> {
    let ports = admin.iter().filter(|text| !Endpoint::is_path(text)).count();
    match (ports, tokens.len()) {
        (0, 0) => {}
        (0, _) => {
            return Err(misuse("--admin-token is for --admin HOST:PORT; a socket file needs no secret"));
        }
        (_, 0) => {
            return Err(misuse(
                "an admin port requires its secret; add --admin-token FILE, the admin_token_file of the replica, or \
                    give the path of its socket (a path has a slash: --admin ./admin.sock)",
            ));
        }
        (_, 1) => {}
        (ports, tokens) if ports == tokens => {}
        (ports, tokens) => {
            return Err(misuse(format!(
                "there are {ports} admin ports and {tokens} secrets; give --admin-token once, or once per port"
            )));
        }
    }
    let mut secrets = tokens.iter().cycle();
    let endpoint = |text: &String| {
        if Endpoint::is_path(text) {
            return Endpoint::unix(text)
                .map_err(|(what, remedy)| misuse(format!("--admin {text}: {what}; {remedy}")));
        }
        let address =
            resolve(text).map_err(|why| misuse(format!("--admin {text}: {why}; give PATH or HOST:PORT")))?;
        let file = secrets.next().expect("counted above");
        let token =
            private::read(file).and_then(|text| Token::parse(&text).map_err(|what| (what, String::new())));
        let token = token.map_err(|(what, remedy)| {
            let remedy = if remedy.is_empty() {
                "give the admin_token_file of the replica".to_owned()
            } else {
                remedy
            };
            misuse(format!("--admin-token {}: {what}; {remedy}", file.display()))
        })?;
        Ok(Endpoint::Tcp { address, token })
    };
    admin.iter().map(endpoint).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(admin: &[&str]) -> Vec<String> {
        admin.iter().map(|text| (*text).to_owned()).collect()
    }

    fn told(admin: &[&str], tokens: &[PathBuf]) -> String {
        endpoints(&texts(admin), tokens).unwrap_err().to_string()
    }

    #[test]
    fn paths_need_no_secret_and_ports_do() {
        let path = Endpoint::Unix("./a.sock".into());
        assert_eq!(endpoints(&texts(&["./a.sock"]), &[]).expect("a path"), std::slice::from_ref(&path));
        assert!(told(&["127.0.0.1:1"], &[]).contains("--admin-token FILE"));
        assert!(told(&["./a.sock"], &["t".into()]).contains("needs no secret"));
        let folder = tempfile::tempdir().expect("a directory");
        let file = |name: &str, secret: &str| {
            let path = folder.path().join(name);
            private::create(&path, secret).expect("written");
            path
        };
        let (one, two) = (file("one", &"1".repeat(32)), file("two", &"2".repeat(32)));
        let port = |number: u16, digit: &str| Endpoint::Tcp {
            address: ([127, 0, 0, 1], number).into(),
            token: Token::parse(&digit.repeat(32)).expect("a secret"),
        };
        let mixed = texts(&["127.0.0.1:1", "./a.sock", "127.0.0.1:2"]);
        let shared = endpoints(&mixed, std::slice::from_ref(&one)).expect("one secret for both");
        assert_eq!(shared, [port(1, "1"), path.clone(), port(2, "1")]);
        let each = endpoints(&mixed, &[one.clone(), two.clone()]).expect("one secret each");
        assert_eq!(each, [port(1, "1"), path, port(2, "2")]);
        assert!(told(&["127.0.0.1:1"], &[one, two]).contains("1 admin ports and 2 secrets"));
    }

    #[test]
    fn what_cannot_be_meant_is_misuse_with_a_remedy() {
        assert!(told(&["admin.sock"], &["t".into()]).contains("give PATH or HOST:PORT"));
        assert!(told(&["127.0.0.1:1"], &["missing".into()]).contains("cannot be read"));
        let folder = tempfile::tempdir().expect("a directory");
        let short = folder.path().join("short");
        private::create(&short, "short").expect("written");
        assert!(told(&["127.0.0.1:1"], &[short]).contains("has 5 characters"));
    }
}
