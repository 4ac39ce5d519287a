//! `dump` and `load`: the whole database as a file of SQLite's, out of a group and into it while it serves.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use node::clap;
use node::cluster::ClusterTarget;
use node::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use node::program::text;

use crate::database::{MAX_PAGES, PAGE_BYTES};
use crate::file_request::{ChangedHead, FileRequest, PAGES_IN};

/// Bytes of a message at most: a reply has 1 MiB of pages, each in a message of its own.
const MAX_MESSAGE: usize = 1 << 20;
/// Rounds of a dump. Each is much shorter than the one before, unless nearly all pages change all the time.
const MAX_ROUNDS: u32 = 100;
/// The check of a large file takes long, and no other request is executed meanwhile.
const PATIENCE: Duration = Duration::from_secs(300);

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
            return PgClient::connect(address);
        }
        let replicas = self.target.replicas()?;
        let Some(replica) = replicas.iter().find(|replica| replica.number == self.replica) else {
            return Err(misuse(format!("there is no replica {}", self.replica)));
        };
        let address = replica.clients.ok_or_else(|| {
            misuse("where the replica serves clients is not known; give --clients HOST:PORT instead")
        })?;
        PgClient::connect(address)
    }
}

/// A connection as PostgreSQL's clients have it, for queries that are [`FileRequest`]s.
#[derive(Debug)]
pub struct PgClient {
    stream: BufReader<TcpStream>,
}

impl PgClient {
    /// Connects to a replica.
    ///
    /// # Errors
    /// If it does not let a client in.
    pub fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("no connection to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut client = PgClient { stream: BufReader::new(stream) };
        let body = b"\0\x03\0\0user\0crosscheck\0\0";
        let length = (body.len() as u32 + 4).to_be_bytes();
        client.stream.get_mut().write_all(&[&length[..], body].concat())?;
        client.until_ready(&mut |kind, body| match (kind, body.first_chunk()) {
            (b'R', Some(how)) if u32::from_be_bytes(*how) != 0 => bail!("the replica asks for a password"),
            _ => Ok(()),
        })?;
        Ok(client)
    }

    /// Sends a request, and returns the tag of its reply.
    ///
    /// # Errors
    /// That of the reply, or of the connection.
    pub fn ask(&mut self, request: &FileRequest) -> anyhow::Result<String> {
        let mut tag = String::new();
        self.send(request)?;
        self.until_ready(&mut |kind, body| {
            if kind == b'C' {
                tag = String::from_utf8_lossy(body).trim_end_matches('\0').to_owned();
            }
            Ok(())
        })?;
        Ok(tag)
    }

    /// Removes what is left of an unfinished load, and begins another one; with 0, none.
    ///
    /// # Errors
    /// If the database is not empty.
    pub fn begin(&mut self, load: u64) -> anyhow::Result<()> {
        while self.ask(&FileRequest::Begin { load })? != "LOAD 0" {}
        Ok(())
    }

    /// Takes the pages of one reply.
    fn changed(&mut self, since: u64, from: u32, file: &File) -> anyhow::Result<ChangedHead> {
        let mut head = None;
        self.send(&FileRequest::Changed { since, from })?;
        self.until_ready(&mut |kind, body| {
            match (kind, head, body.split_first_chunk()) {
                (b'd', None, _) => head = ChangedHead::parse(body),
                (b'd', Some(_), Some((number, page))) if page.len() == PAGE_BYTES => {
                    let place = u64::from(u32::from_be_bytes(*number)) * PAGE_BYTES as u64;
                    file.write_all_at(page, place)?;
                }
                (b'd', ..) => bail!("the replica sent something else than pages"),
                _ => {}
            }
            Ok(())
        })?;
        head.ok_or_else(|| anyhow!("the replica sent no pages"))
    }

    fn send(&mut self, request: &FileRequest) -> anyhow::Result<()> {
        let text = request.text();
        let length = (text.len() as u32 + 5).to_be_bytes();
        self.stream.get_mut().write_all(&[b"Q", &length[..], text.as_bytes(), b"\0"].concat())?;
        Ok(())
    }

    /// Reads messages up to the end of a reply.
    fn until_ready(&mut self, see: &mut dyn FnMut(u8, &[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut failed = None;
        loop {
            let mut head = [0; 5];
            if let Err(error) = self.stream.read_exact(&mut head) {
                let closed = || anyhow!("the replica has closed the connection: {error}");
                return Err(failed.map_or_else(closed, |failed: String| anyhow!(failed)));
            }
            let [kind, a, b, c, d] = head;
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if !(4..=MAX_MESSAGE).contains(&length) {
                bail!("the replica does not speak PostgreSQL's protocol");
            }
            let mut body = vec![0; length - 4];
            self.stream.read_exact(&mut body)?;
            match kind {
                b'E' => failed = failed.or(Some(in_words(&body))),
                b'Z' => return failed.map_or(Ok(()), |error| Err(anyhow!(error))),
                _ => see(kind, &body)?,
            }
        }
    }
}

/// An error of PostgreSQL's protocol: its code, message and hint.
fn in_words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let field = |name: char| text.split('\0').find_map(|field| field.strip_prefix(name));
    let hint = field('H').map_or(String::new(), |hint| format!(" {hint}"));
    format!("{} ({}).{hint}", field('M').unwrap_or("error"), field('C').unwrap_or("no code"))
}
