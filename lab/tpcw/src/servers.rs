//! Servers that a series starts, asks and stops: groups of `crosscheck-sql`, and PostgreSQL.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

/// How long a group may take until it serves.
const START: Duration = Duration::from_secs(30);
/// The port of PostgreSQL while it is measured.
const POSTGRES_PORT: u16 = 15_499;

/// Where the programs are.
#[derive(Clone, Debug, clap::Args)]
pub struct Programs {
    /// The program `crosscheck-sql`
    #[arg(long, value_name = "FILE", default_value = "../../target/release/crosscheck-sql")]
    pub server: PathBuf,
    /// The directory with PostgreSQL's `initdb` and `pg_ctl`; without it PostgreSQL is not measured
    #[arg(long, value_name = "DIR")]
    pub postgres: Option<PathBuf>,
    /// The user that PostgreSQL runs as, since it refuses root
    #[arg(long, value_name = "NAME")]
    pub postgres_user: Option<String>,
}

/// What serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// A group of `crosscheck-sql`.
    CrossCheck {
        /// Its mode.
        mode: &'static str,
        /// So many replicas.
        replicas: usize,
        /// Threads of each that execute.
        workers: usize,
    },
    /// One PostgreSQL, SERIALIZABLE.
    PostgreSql {
        /// Whether a transaction is on disk before it is acknowledged, as it is by default.
        is_durable: bool,
    },
}

/// Servers that run until this is dropped.
#[derive(Debug)]
pub enum RunningServer {
    /// The process `up`, and where clients connect.
    Group {
        /// The program.
        program: PathBuf,
        /// `up`.
        up: Child,
        /// Where each replica listens.
        addresses: Vec<String>,
    },
    /// PostgreSQL, with its data.
    PostgreSql {
        /// As it was started.
        programs: Programs,
        /// Its data; deleted with it.
        data: PathBuf,
    },
}

/// What a group says about itself after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Batches that a replica took back and ran again.
    pub rollbacks: u64,
    /// Requests on which replicas disagreed.
    pub mismatches: u64,
    /// Objects that were repaired.
    pub repairs: u64,
    /// Whether all replicas are equal, bit for bit.
    pub is_equal: bool,
}

impl RunningServer {
    /// Starts a server, which is empty.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(programs: &Programs, kind: ServerKind) -> anyhow::Result<Self> {
        match kind {
            ServerKind::CrossCheck { mode, replicas, workers } => group(programs, mode, replicas, workers),
            ServerKind::PostgreSql { is_durable } => postgres(programs, is_durable),
        }
    }

    /// Where clients connect, as HOST:PORT.
    pub fn addresses(&self) -> Vec<String> {
        match self {
            RunningServer::Group { addresses, .. } => addresses.clone(),
            RunningServer::PostgreSql { .. } => vec![format!("127.0.0.1:{POSTGRES_PORT}")],
        }
    }

    /// The processes that do the work, without the one that started them.
    ///
    /// # Errors
    /// A replica does not answer.
    pub fn processes(&self) -> anyhow::Result<Vec<u32>> {
        match self {
            RunningServer::Group { .. } => {
                self.statuses()?.iter().map(|status| Ok(u32::try_from(number(status, "pid")?)?)).collect()
            }
            RunningServer::PostgreSql { data, .. } => {
                let text = fs::read_to_string(data.join("data/postmaster.pid"))?;
                Ok(vec![text.lines().next().unwrap_or_default().trim().parse()?])
            }
        }
    }

    /// What the replicas counted; none of PostgreSQL.
    ///
    /// # Errors
    /// A replica does not answer.
    pub fn counts(&self) -> anyhow::Result<Option<GroupCounts>> {
        if matches!(self, RunningServer::PostgreSql { .. }) {
            return Ok(None);
        }
        let statuses = self.statuses()?;
        let sum = |name| statuses.iter().map(|status| number(status, name)).sum::<anyhow::Result<u64>>();
        let rollbacks =
            statuses.iter().filter_map(|status| status["verification"]["rollbacks"].as_u64()).sum();
        let digest = self.ask("digest")?;
        Ok(Some(GroupCounts {
            rollbacks,
            mismatches: sum("mismatches")?,
            repairs: sum("repairs")?,
            is_equal: digest["equal"] == Value::Bool(true),
        }))
    }

    fn statuses(&self) -> anyhow::Result<Vec<Value>> {
        let status = self.ask("status")?;
        let replicas = status["replicas"].as_array().context("status names no replicas")?;
        Ok(replicas.iter().map(|replica| replica["status"].clone()).collect())
    }

    /// Asks the group by its program.
    fn ask(&self, command: &str) -> anyhow::Result<Value> {
        let RunningServer::Group { program, addresses, .. } = self else {
            anyhow::bail!("PostgreSQL has no {command}");
        };
        let port = addresses[0].rsplit_once(':').context("an address without a port")?.1;
        let asked = Command::new(program).args([command, "--json", "--port", port]).output()?;
        serde_json::from_slice(&asked.stdout).with_context(|| format!("what {command} --json prints"))
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        match self {
            RunningServer::Group { up, .. } => {
                // By SIGTERM, so that it deletes what it wrote; std has only SIGKILL, after which replicas end, too.
                let asked = Command::new("kill").arg(up.id().to_string()).status();
                if !asked.is_ok_and(|status| status.success()) {
                    let _ = up.kill();
                }
                let _ = up.wait();
            }
            RunningServer::PostgreSql { programs, data } => {
                let stopped = postgres_command(programs, "pg_ctl")
                    .args(["stop", "-m", "fast", "-D"])
                    .arg(data.join("data"))
                    .output();
                if let Err(error) = stopped.map(|_| ()).and_then(|()| fs::remove_dir_all(&*data)) {
                    eprintln!("tpcw: {}: {error}", data.display());
                }
            }
        }
    }
}

fn number(status: &Value, name: &str) -> anyhow::Result<u64> {
    status[name].as_u64().with_context(|| format!("a replica's status has no {name}"))
}

fn group(programs: &Programs, mode: &str, replicas: usize, workers: usize) -> anyhow::Result<RunningServer> {
    let (replicas, workers) = (replicas.to_string(), workers.to_string());
    let mut up = Command::new(&programs.server)
        .args(["up", "--json", "--port", "0", "--mode", mode, "--replicas", &replicas, "--workers", &workers])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| programs.server.display().to_string())?;
    let lines = BufReader::new(up.stdout.take().context("stdout of up")?).lines();
    let (found, ready) = mpsc::channel();
    // It reads until `up` ends, which would otherwise wait for a reader.
    thread::spawn(move || {
        let mut addresses = Vec::new();
        for event in lines.map_while(Result::ok).filter_map(|line| serde_json::from_str::<Value>(&line).ok())
        {
            match event["event"].as_str() {
                Some("replica") => addresses.extend(event["clients"].as_str().map(str::to_owned)),
                // Nobody waits for it any more if that took too long.
                Some("ready") => drop(found.send(addresses.clone())),
                _ => {}
            }
        }
    });
    let program = programs.server.clone();
    let mut server = RunningServer::Group { program, up, addresses: Vec::new() };
    let known = ready.recv_timeout(START).context("the group does not serve")?;
    if let RunningServer::Group { addresses, .. } = &mut server {
        *addresses = known;
    }
    Ok(server)
}

/// A program of PostgreSQL, as its user.
fn postgres_command(programs: &Programs, name: &str) -> Command {
    let program = programs.postgres.clone().unwrap_or_default().join(name);
    match &programs.postgres_user {
        None => Command::new(program),
        Some(user) => {
            let mut command = Command::new("runuser");
            command.args(["-u", user, "--"]).arg(program);
            command
        }
    }
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    // A server that outlives the command would keep a pipe open.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.with_context(|| format!("{command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn postgres(programs: &Programs, is_durable: bool) -> anyhow::Result<RunningServer> {
    let data = std::env::temp_dir().join(format!("tpcw-postgresql-{}", std::process::id()));
    fs::create_dir(&data).with_context(|| data.display().to_string())?;
    let server = RunningServer::PostgreSql { programs: programs.clone(), data: data.clone() };
    if let Some(user) = &programs.postgres_user {
        done(Command::new("chown").arg(user).arg(&data))?;
    }
    let inner = data.join("data");
    // By bytes, as SQLite sorts.
    let initdb = ["-U", "tpcw", "--auth=trust", "--locale=C", "-E", "UTF8", "--no-sync", "-D"];
    done(postgres_command(programs, "initdb").args(initdb).arg(&inner))?;
    done(
        postgres_command(programs, "pg_ctl")
            .args(["start", "-w", "-o", &postgres_options(&data, is_durable), "-D"])
            .arg(&inner)
            .arg("-l")
            .arg(data.join("log")),
    )?;
    Ok(server)
}

/// Settings of the server, besides the defaults.
fn postgres_options(data: &Path, is_durable: bool) -> String {
    let always = "-c listen_addresses=127.0.0.1 -c default_transaction_isolation=serializable";
    let in_memory = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off";
    let durability = if is_durable { "" } else { in_memory };
    format!("-p {POSTGRES_PORT} -k {} {always} {durability}", data.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_the_only_difference_of_the_two_postgresql() {
        let (on, off) = (postgres_options(Path::new("x"), true), postgres_options(Path::new("x"), false));
        assert!(on.contains("default_transaction_isolation=serializable") && !on.contains("fsync"));
        assert!(off.starts_with(on.trim_end()) && off.contains("fsync=off"));
    }

    #[test]
    fn a_program_that_fails_or_is_missing_is_an_error() {
        assert!(done(&mut Command::new("false")).is_err());
        assert!(done(&mut Command::new("no-such-program-of-tpcw")).is_err());
        assert!(done(&mut Command::new("true")).is_ok());
    }

    #[test]
    fn a_status_without_the_number_is_an_error() {
        let status = serde_json::json!({"pid": 7});
        assert_eq!(number(&status, "pid").expect("there"), 7);
        assert!(number(&status, "repairs").is_err());
    }
}
