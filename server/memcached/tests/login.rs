//! A password file: nothing but a login is answered before one, in the text protocol and in the binary one.

use std::sync::Arc;

use crosscheck::Passwords;
use memcached::{Config, Connection};

use crate::binary::packet;
use crate::support::Replica;

struct Server {
    replica: Replica,
    passwords: Arc<Passwords>,
    _folder: tempfile::TempDir,
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        std::fs::write(&path, "ann:secret\nbob:other\n").unwrap();
        let passwords = Arc::new(Passwords::open(&path).unwrap());
        Server { replica: Replica::new(Config::with_memory(64 << 20)), passwords, _folder: folder }
    }

    fn connect(&self) -> Connection {
        self.replica.connect().asking_for(self.passwords.clone())
    }

    /// The answer, and whether the connection is open.
    fn ask(&mut self, connection: &mut Connection, input: &[u8]) -> (Vec<u8>, bool) {
        let (bytes, closed) = self.replica.talk(connection, input);
        (bytes, !closed)
    }

    fn line(&mut self, connection: &mut Connection, input: &str) -> String {
        String::from_utf8(self.ask(connection, input.as_bytes()).0).unwrap()
    }

    /// The status of the only response, and whether the connection is open.
    fn status(&mut self, connection: &mut Connection, packet: &[u8]) -> (u16, bool) {
        let (bytes, open) = self.ask(connection, packet);
        (u16::from_be_bytes([bytes[6], bytes[7]]), open)
    }
}

#[test]
fn a_text_client_logs_in_with_its_first_set() {
    let mut server = Server::new();
    let mut client = server.connect();
    const WRONG: &str = "CLIENT_ERROR unauthenticated\r\n";
    for line in
        ["get k\r\n", "stats\r\n", "version\r\n", "mg k v\r\n", "set k 0 0 x\r\n", "\r\n", "flush_all\r\n"]
    {
        assert_eq!(server.line(&mut client, line), WRONG, "{line}");
    }
    for (pair, answer) in [
        ("ann wrong", "CLIENT_ERROR authentication failure\r\n"),
        ("ann other", "CLIENT_ERROR authentication failure\r\n"),
        ("ann", "CLIENT_ERROR bad authentication token format\r\n"),
    ] {
        let login = format!("set any 0 0 {}\r\n{pair}\r\n", pair.len());
        assert_eq!(server.line(&mut client, &login), answer, "{pair}");
    }
    assert_eq!(
        server.line(&mut client, "set any 0 0 10\r\nann secretXX"),
        "CLIENT_ERROR bad command line \
        termination\r\n"
    );
    assert_eq!(server.line(&mut client, "set any 0 0 10\r\nann secret\r\n"), "STORED\r\n");
    assert_eq!(server.line(&mut client, "get any\r\n"), "END\r\n", "the login is not stored");
    assert_eq!(server.line(&mut client, "set k 0 0 1\r\nx\r\n"), "STORED\r\n");
    let mut other = server.connect();
    assert_eq!(server.line(&mut other, "get k\r\n"), WRONG, "each connection for itself");
    let (answer, open) = server.ask(&mut other, b"set any 0 0 3000000\r\n");
    assert!(answer.starts_with(b"CLIENT_ERROR") && !open, "nobody's value is waited for");
}

#[test]
fn a_binary_client_logs_in_by_plain() {
    let mut server = Server::new();
    let mut client = server.connect();
    let (mechanisms, open) = server.ask(&mut client, &packet(0x20, 0, b"", b"", b""));
    assert!(mechanisms.ends_with(b"PLAIN") && open);
    assert_eq!(server.status(&mut client, &packet(0x0b, 0, b"", b"", b"")), (0, true), "version");
    for (mechanism, value) in [
        (&b"PLAIN"[..], &b"\0ann\0wrong"[..]),
        (b"PLAIN", b"\0ann\0"),
        (b"PLAIN", b"ann\0secret"),
        (b"PLAIN", b""),
        (b"CRAM-MD5", b"\0ann\0secret"),
    ] {
        assert_eq!(server.status(&mut client, &packet(0x21, 0, b"", mechanism, value)), (0x20, true));
    }
    assert_eq!(server.status(&mut client, &packet(0x22, 0, b"", b"PLAIN", b"\0ann\0secret")), (0x20, true));
    assert_eq!(server.status(&mut client, &packet(0x21, 0, b"", b"PLAIN", b"\0ann\0secret")), (0, true));
    assert_eq!(server.status(&mut client, &packet(0x00, 0, b"", b"k", b"")), (1, true));

    let mut other = server.connect();
    assert_eq!(
        server.status(&mut other, &packet(0x00, 0, b"", b"k", b"")),
        (0x20, false),
        "no login, no answer"
    );
    let mut other = server.connect();
    assert_eq!(
        server.status(&mut other, &packet(0x21, 0, b"", b"PLAIN", &[0; 5000])),
        (4, false),
        "too long"
    );

    let mut open = server.replica.connect();
    assert_eq!(server.status(&mut open, &packet(0x20, 0, b"", b"", b"")), (0x81, true), "without a file");
}
