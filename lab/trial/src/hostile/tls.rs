//! The cheapest attacks on memory, over TLS: handshakes without an end, and clients that never read. Replica 1 speaks
//! TLS; the well-behaved clients are those of the other two.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use crosscheck::ClientTls;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::lab::{HostileRun, Lab, PATIENCE, Setup};
use super::memory::{KEPT, LASTS, VALUE, halves};
use super::outcome::Case;
use super::watch::HostileWatch;
use cli::service::NodeConfig;
use node::view::grouped;

/// The replicas whose clients speak plain text.
const PLAIN: [u8; 2] = [2, 3];

/// What clients of replica 1 do; returns a description of the result.
type Act = fn(&Lab<'_>, &Trust, Instant) -> anyhow::Result<String>;

const EXPERIMENTS: [(&str, Act); 3] = [
    ("1,000 connections with half a handshake each", |lab, trust, until| {
        let mut hello = Vec::new();
        trust.connection()?.write_tls(&mut hello)?;
        hello.truncate(hello.len() / 2);
        halves(lab, until, 1_000, hello)
    }),
    (
        "4 connections send `get` of a 1 MB value as fast as they can, and read nothing",
        |lab, trust, until| pour(lab, trust, until, 4, "get b-0\r\n".repeat(1_024).as_bytes()),
    ),
    ("8 connections send sets of 1 MB as fast as they can, and read nothing", |lab, trust, until| {
        let mut request = format!("set s 0 0 {VALUE}\r\n").into_bytes();
        request.resize(request.len() + VALUE, b's');
        request.extend_from_slice(b"\r\n");
        pour(lab, trust, until, 8, &request)
    }),
];

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let trust = Trust::in_only(made.cert.der().clone())?;
    let change = |node: &mut NodeConfig, scratch: &Path| {
        if node.this_replica == 1 {
            // A problem shows in the check of the client with TLS.
            node.access.tls = tls(scratch, &certificate, &key).ok().map(Arc::new);
        }
    };
    for (what, act) in EXPERIMENTS {
        let mut case = Case::new(what);
        let lab = run.cluster(Setup { change: &change, ..Setup::default() })?;
        lab.store(2, "kept", KEPT, 100)?;
        lab.store(2, "b", 1, VALUE)?;
        let watch = HostileWatch::start(&lab)?;
        let note = act(&lab, &trust, Instant::now() + LASTS)?;
        run.sleep(Duration::ZERO)?;
        let watched = watch.finish();
        case.add_note(note);
        lab.check_alive(&mut case);
        watched.check_waits(&mut case, &PLAIN);
        watched.check_memory(&mut case);
        lab.check_stored(&mut case, &PLAIN, "kept", KEPT, 100);
        let reply = ask(lab.clients(1), &trust);
        let is_served = reply.as_ref().is_ok_and(|bytes| bytes.starts_with(b"VALUE kept-0 0 100\r\n"));
        let seen = reply.map_or_else(|why| format!("{why:#}"), |bytes| format!("{} bytes", bytes.len()));
        case.check(is_served, "a client with TLS is served afterwards", seen);
        run.record_case(case);
    }
    Ok(())
}

/// Writes the two files, and reads them as a replica does.
fn tls(scratch: &Path, certificate: &str, key: &str) -> anyhow::Result<ClientTls> {
    let (certificate_file, key_file) = (scratch.join("cert.pem"), scratch.join("key.pem"));
    fs::write(&certificate_file, certificate)?;
    fs::write(&key_file, key)?;
    fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600))?;
    ClientTls::load(&certificate_file, &key_file).map_err(|problem| anyhow::anyhow!("{problem}"))
}

/// What clients need to speak TLS with replica 1.
struct Trust(Arc<ClientConfig>);

impl Trust {
    fn in_only(certificate: CertificateDer<'static>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Trust(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
    }

    fn connection(&self) -> anyhow::Result<ClientConnection> {
        Ok(ClientConnection::new(self.0.clone(), "localhost".try_into()?)?)
    }
}

/// Reads one value.
fn ask(address: SocketAddr, trust: &Trust) -> anyhow::Result<Vec<u8>> {
    let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut client = StreamOwned::new(trust.connection()?, socket);
    client.write_all(b"get kept-0\r\nquit\r\n")?;
    let mut replies = Vec::new();
    client.read_to_end(&mut replies).context("its replies")?;
    Ok(replies)
}

/// Some connections send the same bytes repeatedly, and read nothing after their handshakes.
fn pour(
    lab: &Lab<'_>,
    trust: &Trust,
    until: Instant,
    connections: usize,
    bytes: &[u8],
) -> anyhow::Result<String> {
    let address = lab.clients(1);
    let sums: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..connections).map(|_| scope.spawn(|| pour_one(address, trust, until, bytes))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()?.ok()).collect()
    });
    let sum: usize = sums.iter().sum();
    let through = sums.len();
    Ok(format!("{} bytes were taken of {through} connections with TLS", grouped(sum as u64)))
}

/// Returns how many bytes were sealed for the server, and taken by the kernel but for some.
fn pour_one(address: SocketAddr, trust: &Trust, until: Instant, bytes: &[u8]) -> anyhow::Result<usize> {
    let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut connection = trust.connection()?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    socket.set_nonblocking(true)?;
    let (mut sent, mut at) = (0, 0);
    while Instant::now() < until {
        let taken = connection.writer().write(&bytes[at..])?;
        (sent, at) = (sent + taken, (at + taken) % bytes.len());
        match connection.write_tls(&mut socket) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(1))
            }
            // Closed by the server, as it may.
            Err(_) => break,
        }
    }
    // The connection stays open to the end.
    super::wire::pause_until(until);
    Ok(sent)
}
