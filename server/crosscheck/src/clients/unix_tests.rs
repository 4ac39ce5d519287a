//! Clients on a socket file: the same service as over TCP, and the life of the file.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::tests::{Lines, give, look_until, unheard_on};
use super::*;
use crate::clients::listing::ClientAddress;
use crate::socket_file::{SocketFile, SocketPath};

fn listen(path: &Path, mode: u32) -> io::Result<(Acceptor, SocketFile)> {
    let file = SocketPath { path: path.to_owned(), mode };
    Acceptor::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .unwrap()
        .refuses_for::<Lines>(false)
        .listens_on(&file)
}

fn connect(path: &Path) -> UnixStream {
    let client = UnixStream::connect(path).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client
}

/// Ticks until this many bytes have come back to the client.
fn expect(clients: &mut Clients<Lines>, client: &mut UnixStream, expected: &[u8]) {
    client.set_nonblocking(true).unwrap();
    let (begun, mut got) = (Instant::now(), vec![0; expected.len()]);
    let mut there = 0;
    while there < expected.len() {
        clients.tick(&mut Vec::new());
        clients.flush();
        match client.read(&mut got[there..]) {
            Ok(count) => there += count,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{there} of {}", expected.len());
    }
    assert!(got == expected);
    client.set_nonblocking(false).unwrap();
}

#[test]
fn clients_on_a_socket_file_get_what_those_over_tcp_get() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clients.sock");
    let (acceptor, file) = listen(&path, 0o700).unwrap();
    let tcp = acceptor.listener().local_addr().unwrap();
    let (mut clients, counters, _poll) = unheard_on(acceptor);
    let (mut first, mut second) = (connect(&path), std::net::TcpStream::connect(tcp).unwrap());
    let mut submissions = Vec::new();
    let large = vec![b'x'; 900 << 10];
    first.write_all(b"now a\none\n").unwrap();
    look_until(&mut clients, &mut submissions, 1);
    give(&mut clients, &submissions[0], large.clone());
    expect(&mut clients, &mut first, &[b"a\n", &large[..]].concat());
    second.write_all(b"two\n").unwrap();
    look_until(&mut clients, &mut submissions, 2);
    let listed: Vec<ClientAddress> = counters.connections().iter().map(|info| info.peer).collect();
    assert!(listed.contains(&ClientAddress::Unix) && listed.len() == 2, "{listed:?}");

    // A large request in many pieces, and a client that has sent its last byte and still reads.
    let mut sender = first.try_clone().unwrap();
    let line = [&large[..], b"\n"].concat();
    let sending = std::thread::spawn(move || {
        sender.write_all(&line).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    look_until(&mut clients, &mut submissions, 3);
    sending.join().unwrap();
    assert!(submissions[2].request.bytes[..] == large[..]);
    give(&mut clients, &submissions[2], "done\n");
    expect(&mut clients, &mut first, b"done\n");
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).unwrap();
    assert_eq!((rest.len(), counters.open(), counters.misread.load(Relaxed)), (0, 1, 0));
    drop(file);
    assert!(!path.exists(), "the file goes with what it was for");
}

#[test]
fn the_limit_on_connections_is_on_both_kinds_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clients.sock");
    let (acceptor, _file) = listen(&path, 0o700).unwrap();
    let (mut clients, counters, _poll) = unheard_on(acceptor);
    let mut all: Vec<UnixStream> = (0..11).map(|_| connect(&path)).collect();
    let begun = Instant::now();
    while counters.refused.load(Relaxed) == 0 {
        clients.tick(&mut Vec::new());
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let mut reported = Vec::new();
    all[10].read_to_end(&mut reported).unwrap();
    assert_eq!(reported, b"ERROR Too many open connections\r\n");
    assert_eq!(counters.open(), 10);
}

#[test]
fn the_file_has_the_permissions_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [0o700, 0o770, 0o777] {
        let path = folder.path().join(format!("{mode:o}.sock"));
        let _listening = listen(&path, mode).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
    }
}

#[test]
fn only_what_a_dead_process_left_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clients.sock");
    // A listener that is dropped leaves its file, as one of a killed process does.
    drop(UnixListener::bind(&path).unwrap());
    let listening = listen(&path, 0o700).unwrap();
    let refused = |path: &Path| listen(path, 0o700).err().expect("it is refused").to_string();
    let reported = refused(&path);
    assert!(
        reported.contains(path.to_str().unwrap()) && reported.contains("another process listens"),
        "{reported}"
    );
    assert!(connect(&path).write_all(b"it still listens\n").is_ok());
    drop(listening);
    std::fs::write(&path, "not a socket").unwrap();
    let reported = refused(&path);
    assert!(reported.contains("is no socket") && reported.contains("client_socket"), "{reported}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "not a socket", "it is left alone");
    let reported = refused(&folder.path().join("missing/clients.sock"));
    assert!(
        reported.contains("missing/clients.sock") && reported.contains("Make its directory"),
        "{reported}"
    );
}

/// A later process has the path: its file is not this one's to remove.
#[test]
fn a_file_that_was_replaced_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clients.sock");
    let (_acceptor, file) = listen(&path, 0o700).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(file);
    assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_socket());
}
