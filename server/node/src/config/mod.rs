//! The configuration of one replica: read by `serve --config`, and written by `up` for each child.

mod access;
#[cfg(feature = "lab")]
mod lab;
mod machine;
mod memory;
mod parse;
mod passwords;
mod problem;
mod read;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crosscheck::admin::Endpoint;
use crosscheck::{Address, ClientAccess, Durability, GroupKey, Mode, OnDetection, Reads, Settings, private};

pub use access::DEFAULT_SOCKET_MODE;
#[cfg(test)]
pub use access::made_certificate;
#[cfg(feature = "lab")]
pub use lab::LeftOut;
pub use machine::{ExaminedFor, Findings, more_than_there_is};
pub use parse::{check_group, may_read_locally, parse};
pub use passwords::PasswordFile;
pub use problem::{Problem, Problems, Unresolved, line_of, meant};
pub use read::{TableReader, resolve};

use crate::ServiceOptions;
use crate::outcome::misuse;
use crate::program::{self, text};

/// Client connections at the same time unless the file gives another number.
pub const DEFAULT_CONNECTIONS: usize = 1024;

/// The placeholder of the service's fields in the example.
const SERVICE: &str = "# {service}\n";

/// A complete configuration with a comment for every field; `serve --example-config` prints it.
pub fn example<O: ServiceOptions>() -> String {
    let service = if O::EXAMPLE.is_empty() { String::new() } else { format!("{}\n\n", O::EXAMPLE.trim()) };
    text(include_str!("example.toml")).replace(&format!("{SERVICE}\n"), &service)
}

/// Worker threads of `serve` and of `up` unless the operator gives another number: the number for which
/// docs/coverage.md measured coverage.
pub const DEFAULT_WORKERS: usize = 1;
/// Memory for requests and replies where the configuration has no number, in MiB.
pub const DEFAULT_BUFFER_MB: u64 = 128;
/// Least memory for requests and replies, in MiB; with several client threads, for each of them.
pub const LEAST_BUFFER_MB: u64 = 32;

/// All settings in a replica's file, checked; `O` are the settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig<O> {
    /// This replica, from 1.
    pub this_replica: u8,
    /// Address of every replica for its peers; index = replica - 1.
    pub replicas: Vec<Address>,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The other ways in for clients.
    pub access: ClientAccess,
    /// Where the command line connects.
    pub admin: Endpoint,
    /// File of the secret of the admin endpoint, if that is a port.
    pub admin_token_file: Option<PathBuf>,
    /// File of the group's key, in replicated modes.
    pub group_key_file: Option<PathBuf>,
    /// The key in that file, once it was read.
    pub group_key: Option<GroupKey>,
    /// The mode.
    pub mode: Mode,
    /// Threads that execute requests.
    pub workers: usize,
    /// Threads that serve client connections; none: as many as there are workers, and as the memory is enough for.
    pub client_threads: Option<usize>,
    /// Where the log is kept.
    pub durability: Durability,
    /// Client connections at the same time; none = [`DEFAULT_CONNECTIONS`], or as many as open files allow.
    pub max_connections: Option<usize>,
    /// Seconds after which a silent client connection is closed; 0 = never.
    pub idle_timeout_s: u64,
    /// Memory for requests and replies that wait, in MiB.
    pub buffer_limit_mb: u64,
    /// Election timeout, lowest and highest, in milliseconds.
    pub election_ms: (u64, u64),
    /// Longest turn, in milliseconds.
    pub watchdog_ms: u64,
    /// Faults of this replica within 10 s at which it ends as broken hardware; 0 = never.
    pub faults_per_10s: u32,
    /// Protections that an experiment leaves out.
    #[cfg(feature = "lab")]
    pub left_out: LeftOut,
    /// What mode `00GT` does when it detects a fault.
    pub on_detection: OnDetection,
    /// Whether the last of the replicas is a witness: in verified mode it verifies, and has no service and no clients.
    pub witness: bool,
    /// Whether, in verified mode, a batch waits a moment for the tokens of all replicas; none: where it runs on several
    /// workers.
    pub extra_protection: Option<bool>,
    /// In verified mode: how requests that only read are answered.
    pub reads: Reads,
    /// The settings of the service.
    pub service: O,
}

/// The most threads that may serve clients: one thread does everything where there is one worker, and a thread's part
/// of the memory is at least what a replica with one thread may be given.
fn most_client_threads(workers: usize, buffer_limit_mb: u64) -> usize {
    let parts = usize::try_from(buffer_limit_mb / LEAST_BUFFER_MB).unwrap_or(usize::MAX).max(1);
    if workers == 1 { 1 } else { parts }
}

/// Whether so many threads may serve clients.
///
/// # Errors
/// Why not, and the remedy.
pub fn check_client_threads(
    threads: usize,
    workers: usize,
    buffer_limit_mb: u64,
) -> Result<(), (String, String)> {
    let most = most_client_threads(workers, buffer_limit_mb);
    if threads <= most {
        return Ok(());
    }
    Err(if workers == 1 {
        let why = "a replica with one worker serves its clients on the same thread";
        (why.to_owned(), "remove it, or set workers to 2 or more".to_owned())
    } else {
        let why =
            format!("each thread needs {LEAST_BUFFER_MB} MiB of buffer_limit_mb, which is {buffer_limit_mb}");
        let needed = threads as u64 * LEAST_BUFFER_MB;
        (why, format!("set it to {most} or less, or buffer_limit_mb to {needed} or more"))
    })
}

impl<O: ServiceOptions> NodeConfig<O> {
    /// A replica with the documented defaults.
    pub fn new(this_replica: u8, replicas: Vec<SocketAddr>, listen: SocketAddr, admin: Endpoint) -> Self {
        NodeConfig {
            this_replica,
            replicas: replicas.into_iter().map(Address::from).collect(),
            listen,
            access: ClientAccess::default(),
            admin,
            admin_token_file: None,
            group_key_file: None,
            group_key: None,
            mode: Mode::default(),
            workers: DEFAULT_WORKERS,
            client_threads: None,
            durability: Durability::Memory,
            max_connections: None,
            idle_timeout_s: 0,
            buffer_limit_mb: DEFAULT_BUFFER_MB,
            election_ms: (300, 600),
            watchdog_ms: 5_000,
            faults_per_10s: 100,
            #[cfg(feature = "lab")]
            left_out: LeftOut::default(),
            on_detection: OnDetection::default(),
            witness: false,
            extra_protection: None,
            reads: Reads::default(),
            service: O::default(),
        }
    }

    /// Reads and checks a file, and the secrets in the files that it names.
    ///
    /// # Errors
    /// [`Unresolved`] if the only problems are host names on which this replica listens and which do not resolve now.
    /// Otherwise an error of the operator: an unreadable file, or every problem in it.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            misuse(format!(
                "cannot read {name}: {error}. Remedy: give a readable file; `{} serve --example-config` prints one \
                 to start from",
                program::name()
            ))
        })?;
        parse(&name.to_string(), &text, &private::read).map_err(|problems| match problems.may_pass() {
            true => Unresolved(problems.to_string()).into(),
            false => misuse(problems.to_string()),
        })
    }

    /// The settings of the pipeline.
    pub fn settings(&self) -> Settings {
        Settings {
            me: self.this_replica - 1,
            peers: self.replicas.clone(),
            clients: self.listen,
            access: self.access.clone(),
            admin: self.admin.clone(),
            mode: self.mode,
            workers: self.workers,
            client_threads: self.client_threads(),
            durability: self.durability.clone(),
            max_connections: self.max_connections.unwrap_or(DEFAULT_CONNECTIONS),
            max_request: self.service.request_bytes(),
            behaviors: program::program().behaviors,
            idle_timeout: Some(Duration::from_secs(self.idle_timeout_s)).filter(|timeout| !timeout.is_zero()),
            buffer_limit: usize::try_from(self.buffer_limit_mb << 20).unwrap_or(usize::MAX),
            service: self.equal_settings(),
            founding: self.service.at_founding(),
            has_data: false,
            group_key: self.group_key.clone(),
            begins: false,
            restore: None,
            election: (Duration::from_millis(self.election_ms.0), Duration::from_millis(self.election_ms.1)),
            watchdog: Duration::from_millis(self.watchdog_ms),
            faults_per_10s: self.faults_per_10s,
            on_detection: self.on_detection,
            witness: self.witness,
            extra_protection: self.has_extra_protection(),
            reads: self.reads,
        }
    }

    /// A socket costs several times as much as a handler, so that fewer than workers would keep the workers waiting.
    fn client_threads(&self) -> usize {
        let most = most_client_threads(self.workers, self.buffer_limit_mb);
        self.client_threads.unwrap_or(self.workers).min(most)
    }

    /// Settings that have to be equal on all replicas, by the names they have in the file.
    fn equal_settings(&self) -> Vec<(String, String)> {
        let program::Program { name, version, .. } = program::program();
        let mut settings = vec![(crosscheck::SERVICE.to_owned(), format!("{name} {version}"))];
        settings.extend(self.service.equal_on_all_replicas());
        #[cfg(feature = "lab")]
        settings.extend(self.left_out.equal_settings());
        if self.mode.verified {
            settings.push(("witness".to_owned(), self.witness.to_string()));
            settings.push(("extra_protection".to_owned(), self.has_extra_protection().to_string()));
        }
        settings
    }

    /// One worker runs requests one at a time: no interleaving can be wrong at several replicas alike.
    fn has_extra_protection(&self) -> bool {
        self.extra_protection.unwrap_or(self.workers > 1)
    }

    /// The file whose parsing gives this configuration.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "this_replica = {}", self.this_replica);
        let _ = writeln!(text, "listen = \"{}\"\nadmin = {}", self.listen, quoted(&self.admin.to_string()));
        access::write(&self.access, &mut text);
        if let Some(file) = &self.admin_token_file {
            let _ = writeln!(text, "admin_token_file = {}", quoted(&file.to_string_lossy()));
        }
        if let Some(file) = &self.group_key_file {
            let _ = writeln!(text, "group_key = {}", quoted(&file.to_string_lossy()));
        }
        let _ = writeln!(text, "mode = \"{}\"\nworkers = {}", self.mode, self.workers);
        if let Some(threads) = self.client_threads {
            let _ = writeln!(text, "client_threads = {threads}");
        }
        match &self.durability {
            Durability::Memory => text.push_str("durability = \"memory\"\n"),
            Durability::Disk(directory) => {
                let directory = quoted(&directory.to_string_lossy());
                let _ = writeln!(text, "durability = \"disk\"\ndata_dir = {directory}");
            }
        }
        self.service.write(&mut text);
        if let Some(connections) = self.max_connections {
            let _ = writeln!(text, "max_connections = {connections}");
        }
        let _ = writeln!(text, "idle_timeout_s = {}", self.idle_timeout_s);
        let _ = writeln!(text, "buffer_limit_mb = {}", self.buffer_limit_mb);
        let _ = writeln!(text, "election_ms = [{}, {}]", self.election_ms.0, self.election_ms.1);
        let _ = writeln!(text, "watchdog_ms = {}", self.watchdog_ms);
        let _ = writeln!(text, "faults_per_10s = {}", self.faults_per_10s);
        #[cfg(feature = "lab")]
        self.left_out.write(&mut text);
        if self.mode.twice {
            let word = match self.on_detection {
                OnDetection::Answer => "answer",
                OnDetection::Exit => "exit",
            };
            let _ = writeln!(text, "on_detection = \"{word}\"");
        }
        if let Some(waits) = self.extra_protection {
            let _ = writeln!(text, "extra_protection = \"{}\"", if waits { "yes" } else { "no" });
        }
        if self.reads == Reads::Local {
            text.push_str("reads = \"local\"\n");
        }
        for (index, address) in self.replicas.iter().enumerate() {
            let _ = write!(text, "\n[[replica]]\nnumber = {}\naddress = \"{address}\"\n", index + 1);
        }
        if self.witness {
            // The last section is that of the witness.
            text.push_str("part = \"witness\"\n");
        }
        text
    }
}

/// A string in TOML syntax.
pub fn quoted(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}
