//! Hardened dnscache against the same program without protection and against what the zone says, on random queries.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harden::compile::Variant;
use wire::SplitMix64;

use crate::support::{DETECTED, built, requests, skipped};
use crate::zone::{self, A, MX, TXT};

/// A dnscache on port 53 of a loopback address.
struct Cache {
    child: Child,
    address: SocketAddrV4,
    _root: tempfile::TempDir,
}

impl Cache {
    fn start(program: &Path, own: Ipv4Addr, server: Ipv4Addr, bytes: u32) -> Cache {
        let root = tempfile::tempdir().expect("a folder");
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("our folder");
        for folder in ["servers", "ip"] {
            fs::create_dir(root.path().join(folder)).expect("made");
        }
        fs::write(root.path().join("servers/@"), format!("{server}\n")).expect("written");
        fs::write(root.path().join("ip/127"), "").expect("written");
        fs::write(root.path().join("seed"), [7; 128]).expect("written");
        let mut command = Command::new(program);
        command.env("ROOT", root.path()).env("IP", own.to_string()).env("IPSEND", own.to_string());
        command.env("CACHESIZE", bytes.to_string()).env("UID", "65534").env("GID", "65534");
        // What is left of a record's time is a clock's.
        command.env("HIDETTL", "1");
        command.stdin(File::open(root.path().join("seed")).expect("opened")).stderr(Stdio::null());
        let child = command.spawn().expect("dnscache starts");
        let cache = Cache { child, address: SocketAddrV4::new(own, 53), _root: root };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(cache.address).is_err() {
            assert!(Instant::now() < deadline, "dnscache does not answer on {own}");
            std::thread::sleep(Duration::from_millis(10));
        }
        cache
    }

    fn assert_runs(&mut self) {
        let ended = self.child.try_wait().expect("a child");
        let detected = ended.is_some_and(|status| status.code() == Some(DETECTED));
        assert!(!detected, "the library detected a fault where there was none");
        assert_eq!(ended, None, "the server has ended");
    }

    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        socket.connect(self.address).expect("loopback");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        socket
    }

    fn over_tcp(&self, query: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat()).expect("sent");
        let mut length = [0; 2];
        stream.read_exact(&mut length).expect("a reply");
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut reply).expect("a reply");
        reply
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The reply to this query: others on the socket would be late ones.
fn ask(socket: &UdpSocket, query: &[u8]) -> Vec<u8> {
    socket.send(query).expect("sent");
    let mut buffer = [0; 1024];
    loop {
        let length = socket.recv(&mut buffer).expect("a reply");
        if buffer[..2] == query[..2] {
            return buffer[..length].to_vec();
        }
    }
}

#[test]
fn answers_as_without_protection_and_as_the_zone_says() {
    let Some(native) = built("dnscache", Variant::Native) else { return };
    let Some(hardened) = built("dnscache", Variant::Sei) else { return };
    // Port 53 is written in the program; the addresses are those of this process.
    let number = std::process::id();
    let own = |last| Ipv4Addr::new(127, 1 + (number >> 8) as u8 % 250, number as u8, last);
    if let Err(error) = zone::serve(own(1), own(2)) {
        return skipped(&format!("dnscache needs port 53, and with it root or a network namespace: {error}"));
    }
    // The second cache is too small for the names that are asked for.
    for (round, bytes) in [(0, 1_000_000), (1, 20_000)] {
        let native = Cache::start(&native, own(10 + round), own(1), bytes);
        let mut hardened = Cache::start(&hardened, own(20 + round), own(1), bytes);
        let sockets = [native.socket(), hardened.socket()];
        let mut random = SplitMix64::new(u64::from(round));
        for id in 0..requests(50_000, 5_000_000) {
            let (host, zone) = (random.below(400), random.below(8));
            let kind = *random.pick(&[A, A, A, MX, TXT]);
            let query = zone::query(id as u16, &zone::name(host, zone), kind);
            let mut replies = sockets.each_ref().map(|socket| ask(socket, &query));
            let is_truncated = replies[1][2] & 2 != 0;
            if is_truncated {
                assert_eq!(replies[0], replies[1], "h{host}.z{zone} {kind}");
                replies = [native.over_tcp(&query), hardened.over_tcp(&query)];
            }
            let [left, right] = replies;
            assert_eq!(left, right, "h{host}.z{zone} {kind}");
            let found = (usize::from(u16::from_be_bytes([right[6], right[7]])), right[3] & 15);
            assert_eq!(found, zone::right(host, zone, kind), "h{host}.z{zone} {kind}: {right:?}");
        }
        hardened.assert_runs();
    }
}
