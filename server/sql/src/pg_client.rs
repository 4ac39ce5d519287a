//! A connection to a replica as PostgreSQL's clients have it, for the commands that copy the database.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::database::PAGE_BYTES;
use crate::file_request::{ChangedHead, FileRequest};
use crate::scram::{self, Proof};

/// Bytes of a message at most: a reply has 1 MiB of pages, each in a message of its own.
const MAX_MESSAGE: usize = 1 << 20;
/// The check of a large file takes long, and no other request is executed meanwhile.
const PATIENCE: Duration = Duration::from_secs(300);

/// Who connects, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoginAs<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The password, if there is one.
    pub password: Option<&'a [u8]>,
    /// With TLS.
    pub trust: Option<Trust<'a>>,
}

/// Whose certificate is trusted.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    /// A file with certificates.
    pub file: &'a Path,
    /// The name that a replica's certificate must have.
    pub name: &'a str,
}

/// Bytes in both directions.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A connection as PostgreSQL's clients have it, for queries that are [`FileRequest`]s.
pub struct PgClient {
    stream: BufReader<Box<dyn Stream>>,
}

impl PgClient {
    /// Connects to a replica.
    ///
    /// # Errors
    /// If it does not let this client in.
    pub fn connect(address: SocketAddr, login: &LoginAs<'_>) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address).with_context(|| format!("no connection to {address}"))?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let stream: Box<dyn Stream> = match &login.trust {
            Some(trust) => Box::new(with_tls(socket, trust)?),
            None => Box::new(socket),
        };
        let mut client = PgClient { stream: BufReader::new(stream) };
        let body = [b"\0\x03\0\0user\0", login.user.as_bytes(), b"\0\0"].concat();
        client.write(&[&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat())?;
        client.prove(login.password)?;
        client.until_ready(&mut |_, _| Ok(()))?;
        Ok(client)
    }

    /// Proves that this client knows the password, if it is asked to.
    fn prove(&mut self, password: Option<&[u8]>) -> anyhow::Result<()> {
        let (step, _) = self.authentication()?;
        match step {
            0 => return Ok(()),
            10 => {}
            _ => bail!("the replica wants another way of logging in than SCRAM-SHA-256"),
        }
        let password = password.ok_or_else(|| {
            anyhow!("the replica asks for a password: give it in the variable PGPASSWORD, and the name with --user")
        })?;
        let mut drawn = [0; 18];
        // bookkeeping: it proves that the answer is to this question
        getrandom::fill(&mut drawn).map_err(|error| anyhow!("the system has no random numbers: {error}"))?;
        let nonce: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
        let first = scram::first_message(&nonce);
        let length = (first.len() as u32).to_be_bytes();
        self.message(b'p', &[scram::MECHANISM.as_bytes(), b"\0", &length, first.as_bytes()].concat())?;
        let (_, challenge) = self.authentication()?;
        let proof =
            Proof::new(&nonce, &challenge, password).context("the replica's challenge is malformed")?;
        self.message(b'p', proof.text.as_bytes())?;
        let (_, last) = self.authentication()?;
        if last != proof.expected {
            bail!("the replica does not know the password itself: it is not the one that was meant");
        }
        self.authentication()?;
        Ok(())
    }

    /// A step of logging in, and its text.
    fn authentication(&mut self) -> anyhow::Result<(u32, String)> {
        let (kind, body) = self.read()?;
        match (kind, body.split_first_chunk()) {
            (b'R', Some((step, text))) => {
                Ok((u32::from_be_bytes(*step), String::from_utf8_lossy(text).into_owned()))
            }
            (b'E', _) => Err(anyhow!(in_words(&body))),
            _ => bail!("the replica does not speak PostgreSQL's protocol"),
        }
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
    pub(crate) fn changed(&mut self, since: u64, from: u32, file: &File) -> anyhow::Result<ChangedHead> {
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
        self.message(b'Q', &[request.text().as_bytes(), b"\0"].concat())
    }

    fn message(&mut self, kind: u8, body: &[u8]) -> anyhow::Result<()> {
        self.write(&[&[kind], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat())
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes)?;
        Ok(stream.flush()?)
    }

    /// Reads a message: its kind and what it has.
    fn read(&mut self) -> anyhow::Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).context("the replica has closed the connection")?;
        let [kind, a, b, c, d] = head;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if !(4..=MAX_MESSAGE).contains(&length) {
            bail!("the replica does not speak PostgreSQL's protocol");
        }
        let mut body = vec![0; length - 4];
        self.stream.read_exact(&mut body)?;
        Ok((kind, body))
    }

    /// Reads messages up to the end of a reply.
    fn until_ready(&mut self, see: &mut dyn FnMut(u8, &[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut failed: Option<String> = None;
        loop {
            let (kind, body) = match self.read() {
                Ok(message) => message,
                Err(error) => return Err(failed.map_or(error, |failed| anyhow!(failed))),
            };
            match kind {
                b'E' => failed = failed.or(Some(in_words(&body))),
                b'Z' => return failed.map_or(Ok(()), |error| Err(anyhow!(error))),
                _ => see(kind, &body)?,
            }
        }
    }
}

/// Asks for TLS, and goes on with it.
fn with_tls(
    mut socket: TcpStream,
    trust: &Trust<'_>,
) -> anyhow::Result<StreamOwned<ClientConnection, TcpStream>> {
    let in_words = || trust.file.display().to_string();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(trust.file).with_context(in_words)? {
        roots.add(certificate.with_context(in_words)?).with_context(in_words)?;
    }
    socket.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
    let mut answer = [0];
    socket.read_exact(&mut answer).context("the replica has closed the connection")?;
    if answer != *b"S" {
        bail!("the replica offers no TLS; leave --tls-ca out, or start it with a certificate");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(trust.name.to_owned()).context("--tls-name")?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, socket))
}

/// An error of PostgreSQL's protocol: its code, message and hint.
fn in_words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let field = |name: char| text.split('\0').find_map(|field| field.strip_prefix(name));
    let hint = field('H').map_or(String::new(), |hint| format!(" {hint}"));
    format!("{} ({}).{hint}", field('M').unwrap_or("error"), field('C').unwrap_or("no code"))
}
