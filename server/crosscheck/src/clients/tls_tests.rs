//! TLS over real sockets, with clients that others wrote: handshakes, large and pipelined requests, what is no TLS,
//! bounds, faults on both ways, and a certificate that is exchanged. And a protocol whose clients ask for TLS, and that
//! orders something at its end.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion, version};

use super::input::{Input, InputStep};
use super::stream::ClientStream;
use super::tests::{Lines, Server, bounds, look_until, read_exactly, serve_over, serve_tls, unheard, until};
use super::thread::ThreadInput;
use super::tls::TlsSession;
use super::*;
use crate::service::{Action, Progress};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];

/// A certificate and its key, in files.
pub(super) struct Made {
    _folder: tempfile::TempDir,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub der: CertificateDer<'static>,
}

impl Made {
    pub fn new() -> Made {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let made = Made { _folder: folder, certificate, key, der: CertificateDer::from(Vec::new()) };
        Made { der: made.write(), ..made }
    }

    /// Writes a new certificate with a new key into the files.
    fn write(&self) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(&self.certificate, made.cert.pem()).unwrap();
        std::fs::write(&self.key, made.signing_key.serialize_pem()).unwrap();
        std::fs::set_permissions(&self.key, Permissions::from_mode(0o600)).unwrap();
        made.cert.der().clone()
    }

    pub fn tls(&self) -> Arc<ClientTls> {
        Arc::new(ClientTls::load(&self.certificate, &self.key).unwrap())
    }
}

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

/// A client that trusts this certificate, and speaks this version. Its handshake comes with its first bytes.
fn client(
    address: SocketAddr,
    der: &CertificateDer<'static>,
    version: &'static SupportedProtocolVersion,
) -> TlsClient {
    let mut roots = RootCertStore::empty();
    roots.add(der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let name = "localhost".try_into().unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), socket)
}

/// Lines, of which a client asks for TLS by `tls`, and that orders `gone` at its end once it has ordered something.
#[derive(Clone, PartialEq, Default)]
struct AskingLines {
    has_ordered: bool,
}

impl Protocol for AskingLines {
    const ASKS_FOR_TLS: bool = true;
    const TOO_MANY_CLIENTS: &'static [u8] = b"full\n";

    fn next(&mut self, input: &[u8]) -> Progress {
        match Lines.next(input) {
            Progress::Done { used, .. } if input.starts_with(b"tls\n") => {
                Progress::Done { used, action: Action::StartTls(b"yes\n".to_vec()) }
            }
            progress => {
                self.has_ordered |= matches!(progress, Progress::Done { action: Action::Order(_), .. });
                progress
            }
        }
    }

    fn closed(&mut self) -> Option<Vec<u8>> {
        self.has_ordered.then(|| b"gone".to_vec())
    }
}

/// Clients may ask for TLS.
fn serve_asking(tls: Option<Arc<ClientTls>>, connections: usize) -> Server {
    let make: MakeProtocol<AskingLines> = Arc::new(|accepted| {
        assert!(accepted.counters.threads().len() == 1);
        AskingLines::default()
    });
    serve_over(make, bounds(connections, true), Arc::default(), tls)
}

#[test]
fn what_a_protocol_orders_at_the_end_of_its_connection_is_ordered_once() {
    let server = serve_asking(None, 2);
    let mut stream = server.connect();
    stream.write_all(b"one\n").unwrap();
    let one = server.take();
    drop(stream);
    // It may still read the reply: only behind that it has ended.
    server.send(one.answered("1\n"));
    let gone = server.take();
    assert_eq!((&one.request.bytes[..], &gone.request.bytes[..]), (&b"one"[..], &b"gone"[..]));
    server.send(gone.answered(""));
    // One that has asked for nothing orders nothing; the next one has its slot, and its own replies.
    drop(server.connect());
    let mut next = server.connect();
    next.write_all(b"two\n").unwrap();
    let two = server.take();
    assert_eq!(&two.request.bytes[..], b"two");
    server.send(two.answered("2\n"));
    read_exactly(&mut next, b"2\n");
    let mut excess = server.connect();
    read_exactly(&mut server.connect(), b"full\n");
    excess.write_all(b"now x\n").unwrap();
    read_exactly(&mut excess, b"x\n");
}

/// A client that asks for TLS by these bytes, and goes on with it when it is told so.
fn asking_client(address: SocketAddr, der: &CertificateDer<'static>, asks: &[u8]) -> TlsClient {
    let mut client = client(address, der, &version::TLS13);
    client.sock.write_all(asks).unwrap();
    read_exactly(&mut client.sock, b"yes\n");
    client
}

#[test]
fn a_client_that_asks_for_tls_goes_on_with_it() {
    let made = Made::new();
    let server = serve_asking(Some(made.tls()), 10);
    let mut plain = TcpStream::connect(server.address).unwrap();
    plain.write_all(b"now here\n").unwrap();
    read_exactly(&mut plain, b"here\n");
    let mut client = asking_client(server.address, &made.der, b"tls\n");
    client.write_all(b"one\nnow two\n").unwrap();
    let one = server.take();
    server.send(one.answered("1\n"));
    read_exactly(&mut client, b"1\ntwo\n");
    assert_eq!(server.counters.tls_failed.load(Relaxed), 0);
}

/// What came without TLS must not be taken for what comes with it; and there is one handshake, with a certificate.
#[test]
fn tls_does_not_begin_behind_or_in_front_of_other_bytes() {
    let made = Made::new();
    let server = serve_asking(Some(made.tls()), 10);
    let refused = |asks: &[u8], expected_text: &[u8], expected: u64| {
        let mut plain = TcpStream::connect(server.address).unwrap();
        plain.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        plain.write_all(asks).unwrap();
        let mut rest = Vec::new();
        // The end may come as a reset.
        let _ = plain.read_to_end(&mut rest);
        assert!(rest == expected_text, "{}: {}", asks.escape_ascii(), rest.escape_ascii());
        until("it is counted", || server.counters.tls_failed.load(Relaxed) == expected);
    };
    refused(b"tls\none\n", b"", 1);
    refused(b"now x\ntls\n", b"x\n", 2);
    let mut client = asking_client(server.address, &made.der, b"tls\n");
    client.write_all(b"tls\n").unwrap();
    assert!(client.read(&mut [0; 8]).is_ok_and(|read| read == 0) || client.sock.peer_addr().is_err());
    let without = serve_asking(None, 10);
    let mut plain = TcpStream::connect(without.address).unwrap();
    plain.write_all(b"tls\n").unwrap();
    assert_eq!(plain.read(&mut [0; 8]).unwrap_or(0), 0);
}

fn serve() -> (Made, Server) {
    let made = Made::new();
    let server = serve_tls(made.tls(), bounds(10, true));
    (made, server)
}

#[test]
fn requests_and_replies_of_all_sizes_go_through_both_versions() {
    let (made, server) = serve();
    for version in VERSIONS {
        let mut client = client(server.address, &made.der, version);
        client.write_all(b"one\nnow two\nthree\n").unwrap();
        let (one, three) = (server.take(), server.take());
        server.send(three.answered("3\n"));
        server.send(one.answered("1\n"));
        read_exactly(&mut client, b"1\ntwo\n3\n");
        let large: Vec<u8> = (0..900_u32 << 10).map(|at| b'a' + (at % 23) as u8).collect();
        client.write_all(&[&large[..], b"\n"].concat()).unwrap();
        let submission = server.take();
        assert!(submission.request.bytes[..] == large[..]);
        server.send(submission.answered(large.clone()));
        read_exactly(&mut client, &large);
        assert_eq!(client.conn.protocol_version(), Some(version.version));
    }
    assert_eq!((server.counters.misread.load(Relaxed), server.counters.withheld.load(Relaxed)), (0, 0));
    assert_eq!(server.counters.tls_failed.load(Relaxed), 0);
}

#[test]
fn a_long_pipeline_is_answered_in_its_order() {
    let (made, server) = serve();
    let mut client = client(server.address, &made.der, &version::TLS13);
    let count = 3 * limits::PIPELINED_PER_CONNECTION;
    let requests: Vec<u8> = (0..count).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    client.write_all(&requests).unwrap();
    for n in 0..count {
        let submission = server.take();
        assert_eq!(&submission.request.bytes[..], n.to_string().as_bytes());
        server.send(submission.answered(format!("{n}\n")));
    }
    read_exactly(&mut client, &requests);
}

#[test]
fn a_client_that_has_sent_its_last_byte_gets_its_last_reply() {
    let (made, server) = serve();
    for (version, says_so) in [(VERSIONS[0], true), (VERSIONS[0], false), (VERSIONS[1], false)] {
        let mut client = client(server.address, &made.der, version);
        client.write_all(b"last\n").unwrap();
        let last = server.take();
        if says_so {
            client.conn.send_close_notify();
            client.flush().unwrap();
        }
        client.sock.shutdown(Shutdown::Write).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        server.send(last.answered("done\n"));
        let mut rest = Vec::new();
        // An end that the server does not announce would be an error: somebody else might have cut the reply.
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"done\n");
    }
}

#[test]
fn what_is_no_tls_is_refused_and_orders_nothing() {
    let (_made, server) = serve();
    // A hello of TLS 1.0, with one cipher, one kind of signature and one group.
    let extensions = [0, 20, 0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1, 0, 10, 0, 4, 0, 2, 0, 23];
    let head = [0x16, 3, 1, 0, 67, 1, 0, 0, 63, 3, 1];
    let old = [&head[..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0], &extensions].concat();
    let protocol_version = 70;
    let cases: [(&[u8], Option<u8>); 4] = [
        (b"set key 0 0 1\r\n1\r\n", None),
        (b"GET / HTTP/1.1\r\n\r\n", None),
        (&[0x16, 3, 1, 0xff, 0xff], None),
        (&old, Some(protocol_version)),
    ];
    for (number, (bytes, alert)) in cases.into_iter().enumerate() {
        let mut client = server.connect();
        client.write_all(bytes).unwrap();
        let mut reported = Vec::new();
        // A reset is an end as well.
        let _ = client.read_to_end(&mut reported);
        let is_alert = reported.len() == 7 && reported[0] == 0x15;
        assert!(reported.is_empty() || is_alert, "{number}: {reported:?}");
        assert!(alert.is_none_or(|alert| reported.last() == Some(&alert)), "{number}: {reported:?}");
        until("it is counted", || server.counters.tls_failed.load(Relaxed) == number as u64 + 1);
    }
    assert!(server.submitted.try_recv().is_err());
    until("all are closed", || server.counters.open() == 0);
}

#[test]
fn a_handshake_without_an_end_has_a_bound_in_bytes() {
    let (_made, server) = serve();
    let mut client = server.connect();
    // A hello of 65,000 bytes, in records of 1,000: more than this may not wait for its end.
    let head = [1_u8, 0, 0xfd, 0xe8];
    let mut sent = 0;
    for record in 0..65 {
        let mut body = vec![0; 1000];
        if record == 0 {
            body[..4].copy_from_slice(&head);
        }
        if client.write_all(&[&[0x16, 3, 1, 3, 0xe8][..], &body].concat()).is_err() {
            break;
        }
        sent += body.len();
        std::thread::sleep(Duration::from_millis(1));
    }
    until("it is closed", || server.counters.tls_failed.load(Relaxed) == 1 && server.counters.open() == 0);
    assert!(sent > limits::TLS_HANDSHAKE_BYTES - 4096, "{sent}");
}

/// A client side that receives no event, with TLS.
fn unheard_tls() -> (Made, Clients<Lines>, SocketAddr, Arc<ClientCounters>, mio::Poll) {
    let (clients, address, counters, poll) = unheard();
    let made = Made::new();
    let clients = clients.speaks(Some(made.tls()));
    (made, clients, address, counters, poll)
}

#[test]
fn a_handshake_without_an_end_has_a_bound_in_time_and_a_slow_one_ends_in_time() {
    let (made, mut clients, address, counters, _poll) = unheard_tls();
    let (mut submissions, patience) =
        (Vec::new(), limits::TLS_HANDSHAKE.as_micros() / limits::TICK.as_micros());
    let silent = TcpStream::connect(address).unwrap();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&[0x16, 3, 1]).unwrap();
    until("both are accepted", || {
        clients.tick(&mut submissions);
        counters.open() == 2
    });
    // A byte at a time, and a look of the server after each.
    let mut slow = client(address, &made.der, &version::TLS13);
    let mut hello = Vec::new();
    slow.conn.write_tls(&mut hello).unwrap();
    let mut ticks = 0;
    for byte in hello {
        slow.sock.write_all(&[byte]).unwrap();
        if ticks < patience / 2 {
            ticks += 1;
            clients.tick(&mut submissions);
        }
    }
    slow.sock.set_nonblocking(true).unwrap();
    until("the slow one is through", || {
        clients.tick(&mut submissions);
        let _ = slow.conn.complete_io(&mut slow.sock);
        !slow.conn.is_handshaking()
    });
    slow.sock.set_nonblocking(false).unwrap();
    slow.write_all(b"one\n").unwrap();
    look_until(&mut clients, &mut submissions, 1);
    for _ in 0..patience + 2 {
        clients.tick(&mut submissions);
    }
    assert_eq!((counters.open(), counters.tls_failed.load(Relaxed)), (1, 2), "the two that said nothing");
    drop((silent, half));
}

#[test]
fn a_client_that_does_not_read_is_held_within_its_bound_and_loses_nothing() {
    let (made, server) = serve();
    let mut client = client(server.address, &made.der, &version::TLS13);
    let line = [b"now ".as_slice(), &[b'x'; 64 * 1024], b"\n"].concat();
    client.write_all(b"now \n").unwrap();
    read_exactly(&mut client, b"\n");
    // 32 MiB of replies; the socket takes a few. The client's own writes end when the server reads no more.
    client.sock.set_nonblocking(true).unwrap();
    let (mut sent, mut at) = (0, 0);
    let begun = Instant::now();
    let mut still = Instant::now();
    while sent < 512 && still.elapsed() < Duration::from_millis(300) {
        match client.write(&line[at..]) {
            Ok(count) => (at, still) = (at + count, Instant::now()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if at == line.len() {
            (sent, at) = (sent + 1, 0);
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    assert!(sent < 512, "it was not held up");
    let held = server.counters.sum(|thread| &thread.held) as usize;
    let most = limits::UNSENT_PER_CONNECTION + limits::TLS_SEALED + 4 * limits::READ_PER_TURN;
    assert!(held > limits::READ_CHUNK && held < most, "{held}");
    // What the client still has to send may have to wait until it has read.
    let mut received = Vec::new();
    let mut piece = vec![0; 1 << 16];
    until("all replies", || {
        while let Ok(count @ 1..) = client.read(&mut piece) {
            received.extend_from_slice(&piece[..count]);
        }
        received.len() >= sent * (line.len() - 4)
    });
    assert!(received.chunks_exact(line.len() - 4).take(sent).all(|reply| *reply == line[4..]));
}

/// Each asks for an answer, and gives nothing to do.
#[test]
fn a_flood_of_new_keys_ends_its_connection() {
    let (made, server) = serve();
    let mut client = client(server.address, &made.der, &version::TLS13);
    client.write_all(b"now a\n").unwrap();
    read_exactly(&mut client, b"a\n");
    for _ in 0..1000 {
        let refreshed = client.conn.refresh_traffic_keys().is_ok();
        if !refreshed || client.flush().is_err() {
            break;
        }
    }
    until("it is closed", || server.counters.open() == 0);
    assert_eq!(server.counters.tls_failed.load(Relaxed), 1);
}

#[test]
fn a_new_certificate_is_for_later_handshakes_and_a_bad_one_is_for_none() {
    let made = Made::new();
    let tls = made.tls();
    let server = serve_tls(tls.clone(), bounds(10, true));
    let ask = |client: &mut TlsClient, text: &str| {
        client.write_all(format!("now {text}\n").as_bytes())?;
        let mut got = vec![0; text.len() + 1];
        client.read_exact(&mut got)
    };
    let mut first = client(server.address, &made.der, &version::TLS13);
    ask(&mut first, "before").unwrap();
    let der = made.write();
    tls.reload().unwrap();
    ask(&mut first, "still there").unwrap();
    ask(&mut client(server.address, &der, &version::TLS13), "new").unwrap();
    assert!(ask(&mut client(server.address, &made.der, &version::TLS13), "the old one is not used").is_err());
    std::fs::write(&made.key, "no key").unwrap();
    let problem = tls.reload().unwrap_err();
    assert!(problem.is_of_key && problem.what.contains("key.pem holds no private key"), "{problem}");
    ask(&mut client(server.address, &der, &version::TLS12), "the one before stays").unwrap();
    ask(&mut first, "and so does this").unwrap();
}

/// Both ends of a connection after its handshake.
fn connected() -> (TlsClient, ClientStream) {
    let made = Made::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = client(listener.local_addr().unwrap(), &made.der, &version::TLS13);
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let tls = TlsSession::new(made.tls().config(), 0).unwrap();
    let mut stream = ClientStream::with_tls(std::os::fd::OwnedFd::from(socket).into(), tls);
    client.sock.set_nonblocking(true).unwrap();
    until("the handshake", || {
        let _ = client.conn.complete_io(&mut client.sock);
        let _ = stream.peek(&mut [0; 16]);
        !client.conn.is_handshaking() && !stream.is_in_handshake()
    });
    client.sock.set_nonblocking(false).unwrap();
    (client, stream)
}

#[test]
fn a_flipped_bit_in_either_copy_of_the_plaintext_decides_nothing() {
    let (mut client, mut stream) = connected();
    let mut scratch = vec![0; limits::READ_CHUNK];
    for bit in 0..=4 * 8 {
        for copy in [0, 1] {
            let mut input = Input::new(Lines);
            client.write_all(b"one\n").unwrap();
            until("its bytes", || input.fill(&mut stream, &mut scratch, 1, true).is_ok_and(|read| read == 4));
            // The last round is the control: nothing is flipped.
            let is_flipped = bit < 4 * 8;
            if is_flipped {
                input.corrupt(copy, bit);
            }
            let step = input.next(true);
            let is_right = matches!(step, Some(InputStep::Order(4, _)));
            assert_eq!((step.is_none(), is_right), (is_flipped, !is_flipped), "bit {bit} of copy {copy}");
            if bit == 4 * 8 {
                return;
            }
        }
    }
}

#[test]
fn a_reply_that_is_not_what_was_voted_on_is_not_sealed() {
    let (made, server) = serve();
    let mut client = client(server.address, &made.der, &version::TLS13);
    client.write_all(b"right\nwrong\n").unwrap();
    for (bytes, voted) in [("yes\n", "yes\n"), ("yes\n", "no\n")] {
        let submission = server.take();
        let request_checksum = submission.request.checksum;
        let voted = Some(vote::digest::reply(request_checksum, voted.as_bytes()));
        server
            .send(ThreadInput::Reply(submission.to, Reply { request_checksum, bytes: bytes.into(), voted }));
    }
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"yes\n", "the connection is closed instead");
    assert_eq!(server.counters.withheld.load(Relaxed), 1);
}

/// A client of OpenSSL, if there is one.
#[test]
fn openssl_speaks_with_it() {
    let (made, server) = serve();
    for version in ["-tls1_2", "-tls1_3"] {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-quiet", "-verify_return_error", version]);
        command.args(["-servername", "localhost", "-verify_hostname", "localhost"]);
        command.arg("-CAfile").arg(&made.certificate).args(["-connect", &server.address.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut openssl = match command.spawn() {
            Ok(openssl) => openssl,
            Err(error) => return skipped::skipped(&format!("there is no openssl: {error}")),
        };
        let mut input = openssl.stdin.take().unwrap();
        input.write_all(b"now it works\norder\n").unwrap();
        server.send(server.take().answered("ordered\n"));
        let mut got = [0; 17];
        openssl.stdout.take().unwrap().read_exact(&mut got).unwrap();
        assert_eq!(&got, b"it works\nordered\n", "{version}");
        drop(input);
        let _ = openssl.kill();
        openssl.wait().unwrap();
    }
    assert_eq!(server.counters.tls_failed.load(Relaxed), 0);
}

#[path = "../../../../hardening/sei/tests/support/skipped.rs"]
mod skipped;
