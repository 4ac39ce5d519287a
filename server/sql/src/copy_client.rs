//! `dump` and `load`: the whole database as a file of SQLite's, out of a group and into it while it serves.

use std::fs::File;
use std::io::{BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use node::clap;
use node::cluster::ClusterTarget;
use node::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use node::program::text;

use crate::database::{MAX_PAGES, PAGE_BYTES};
use crate::file_request::{FileRequest, PAGES_IN};
use crate::pg_client::{LoginAs, PgClient, Trust};

/// Rounds of a dump. Each is much shorter than the one before, unless nearly all pages change all the time.
const MAX_ROUNDS: u32 = 100;

/// The beginning of `dump --help`.
pub const ABOUT_DUMP: &str = "Writes the whole database into a file of SQLite's, while the group serves. \
    The file is the database as it was at one moment; each part of it was voted on like every other reply.";
/// The beginning of `load --help`.
pub const ABOUT_LOAD: &str = "Loads a file of SQLite's into an empty database. Until it has ended, queries are \
    refused with the error 57P03. All of the file is checked before it counts; meanwhile the group executes nothing \
    else. A load that was stopped is run again from the beginning.";

/// The replica to copy from or to.
#[derive(Clone, Debug, clap::Args)]
pub struct CopyTarget {
    /// Which cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
    /// The replica, from 1
    #[arg(long, short, value_name = "R", default_value_t = 1)]
    pub replica: u8,
    /// Where the replica serves clients, for one that `serve` started
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["port", "admin", "replica"])]
    pub clients: Option<SocketAddr>,
    /// Log in as this user; the password is in the variable PGPASSWORD
    #[arg(long, value_name = "NAME", default_value = "crosscheck")]
    pub user: String,
    /// Connect with TLS, and trust the certificates in this file: an authority's, or the replicas' own
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// The name in the replicas' certificate
    #[arg(long, value_name = "NAME", default_value = "localhost", requires = "tls_ca")]
    pub tls_name: String,
}

/// Options of `dump`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  {program} dump copy.sqlite
  {program} dump --replica 2 copy.sqlite && sqlite3 copy.sqlite 'PRAGMA integrity_check'

Exit code: 0 when the file is written, 1 otherwise: then there is none, or the one of before."))]
pub struct DumpArgs {
    /// From where.
    #[command(flatten)]
    pub from: CopyTarget,
    /// The file to write
    pub file: PathBuf,
}

/// Options of `load`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  sqlite3 shop.sqlite 'PRAGMA journal_mode = DELETE; PRAGMA page_size = 4096; VACUUM'
  {program} load shop.sqlite

Exit code: 0 when the file is the database, 1 otherwise: then the database is empty."))]
pub struct LoadArgs {
    /// To where.
    #[command(flatten)]
    pub to: CopyTarget,
    /// The file to read
    pub file: PathBuf,
}

/// Writes the database into a file.
///
/// # Errors
/// If it could not be read or written.
pub fn dump(args: &DumpArgs) -> CommandOutcome {
    let mut name = args.file.clone().into_os_string();
    name.push(".part");
    let part = PathBuf::from(name);
    let written = args.from.connect().and_then(|mut client| write_file(&mut client, &part));
    let renamed = written.and_then(|count| {
        std::fs::rename(&part, &args.file).with_context(|| args.file.display().to_string())?;
        Ok(count)
    });
    if renamed.is_err() {
        // It may not be there, and the first error counts.
        let _ = std::fs::remove_file(&part);
    }
    say(&format!("{} pages of {PAGE_BYTES} bytes written to {}", renamed?, args.file.display()))?;
    Ok(CommandVerdict::Holds)
}

/// Takes pages in rounds until one of them is a single reply; returns how many the file has.
fn write_file(client: &mut PgClient, path: &Path) -> anyhow::Result<u32> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut since = 0;
    for _ in 0..MAX_ROUNDS {
        let first = client.changed(since, 0, &file)?;
        let mut next = first.next;
        while let Some(from) = next {
            next = client.changed(since, from, &file)?.next;
        }
        if first.next.is_none() {
            file.set_len(u64::from(first.count) * PAGE_BYTES as u64)?;
            file.sync_all()?;
            return Ok(first.count);
        }
        since = first.changes;
    }
    bail!("pages change faster than they can be copied; try again when less is written");
}

/// Loads a file into the database.
///
/// # Errors
/// If it could not be read, or the group refuses it.
pub fn load(args: &LoadArgs) -> CommandOutcome {
    let in_words = || args.file.display().to_string();
    let file = File::open(&args.file).with_context(in_words)?;
    let length = file.metadata().with_context(in_words)?.len();
    let pages = length / PAGE_BYTES as u64;
    if pages == 0 || !length.is_multiple_of(PAGE_BYTES as u64) || pages > u64::from(MAX_PAGES) {
        return Err(misuse(format!(
            "{} has {length} bytes: no database with pages of {PAGE_BYTES} bytes, up to 1 GiB",
            in_words()
        )));
    }
    let mut client = args.to.connect()?;
    // Two loads at a time must not mix.
    let mut number = [0; 8];
    // bookkeeping: it reaches the state as a part of ordered requests
    getrandom::fill(&mut number).map_err(|error| anyhow!("the system has no random numbers: {error}"))?;
    let load = u64::from_le_bytes(number).max(1);
    client.begin(load)?;
    let sent = send_file(&mut client, load, file, pages as u32);
    if sent.is_err() && client.begin(0).is_err() {
        eprintln!("The database refuses queries until a load has ended. Run another one.");
    }
    sent.with_context(in_words)?;
    say(&format!("{pages} pages of {PAGE_BYTES} bytes loaded"))?;
    Ok(CommandVerdict::Holds)
}

fn send_file(client: &mut PgClient, load: u64, file: File, count: u32) -> anyhow::Result<()> {
    let (mut file, mut from) = (BufReader::new(file), 0);
    while from < count {
        let pages = (count - from).min(PAGES_IN as u32);
        let mut bytes = vec![0; pages as usize * PAGE_BYTES];
        file.read_exact(&mut bytes)?;
        client.ask(&FileRequest::Pages { load, from, bytes })?;
        from += pages;
    }
    client.ask(&FileRequest::End { load, count })?;
    Ok(())
}

impl CopyTarget {
    fn connect(&self) -> anyhow::Result<PgClient> {
        if let Some(address) = self.clients {
            return self.log_in(address);
        }
        let replicas = self.target.replicas()?;
        let Some(replica) = replicas.iter().find(|replica| replica.number == self.replica) else {
            return Err(misuse(format!("there is no replica {}", self.replica)));
        };
        let address = replica.clients.ok_or_else(|| {
            misuse("where the replica serves clients is not known; give --clients HOST:PORT instead")
        })?;
        self.log_in(address)
    }

    fn log_in(&self, address: SocketAddr) -> anyhow::Result<PgClient> {
        let password = std::env::var_os("PGPASSWORD").map(|password| password.into_encoded_bytes());
        let trust = self.tls_ca.as_deref().map(|file| Trust { file, name: &self.tls_name });
        PgClient::connect(address, &LoginAs { user: &self.user, password: password.as_deref(), trust })
    }
}
