//! The admin endpoint for its callers: who has access, what ends a connection, and which files are left.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use super::*;
use crate::admin::client::{Link, connect};

const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A server that answers every command with its number, and counts those that reached it.
struct Server {
    endpoint: Endpoint,
    reached: Arc<AtomicUsize>,
    file: Option<SocketFile>,
    _folder: Option<tempfile::TempDir>,
}

impl Server {
    fn start(endpoint: Endpoint, bounds: Bounds) -> Result<Self, ServeError> {
        let reached = Arc::new(AtomicUsize::new(0));
        let count = reached.clone();
        let ask = move |call: Call| {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            call.reply(&number);
        };
        let file = listen(&endpoint, bounds, ask)?;
        Ok(Server { endpoint, reached, file, _folder: None })
    }

    fn on_a_file(bounds: Bounds) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let endpoint = Endpoint::unix(folder.path().join("admin.sock")).expect("a short path");
        Server { _folder: Some(folder), ..Server::start(endpoint, bounds).expect("it listens") }
    }

    fn on_a_port() -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr());
        let token = Token::parse(SECRET).expect("a secret");
        let endpoint = Endpoint::Tcp { address: free.expect("a port"), token };
        Server::start(endpoint, Bounds::default()).expect("it listens")
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(self.endpoint.to_string())
    }

    /// Sends bytes over a connection without a secret, and reads until the server closes it.
    fn says_to(&self, bytes: &[u8]) -> String {
        let mut stream = match &self.endpoint {
            Endpoint::Unix(path) => AdminStream::Unix(UnixStream::connect(path).expect("connected")),
            Endpoint::Tcp { address, .. } => {
                AdminStream::Tcp(TcpStream::connect(address).expect("connected"))
            }
        };
        stream.set_read_timeout(PATIENCE).expect("a bound");
        stream.write_all(bytes).expect("sent");
        let mut answer = Vec::new();
        let mut piece = [0; 1024];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => answer.extend_from_slice(&piece[..count]),
                // The server closed with lines of this client unread.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("the server keeps the connection: {error}"),
            }
        }
        String::from_utf8(answer).expect("text")
    }

    fn ask(&self, link: &mut Link) -> usize {
        link.ask(&AdminCommand::Status, PATIENCE).expect("an answer")
    }
}

/// The bytes that a web page can make a browser send to any listener.
const HTTP: &[u8] =
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n\r\n\
                      {\"cmd\":\"shutdown\"}\n";

#[test]
fn the_body_of_an_http_request_is_not_executed() {
    for server in [Server::on_a_file(Bounds::default()), Server::on_a_port()] {
        let answer = server.says_to(HTTP);
        assert_eq!(answer.lines().count(), 1, "one refusal, then the end: {answer}");
        assert!(answer.contains("error"), "{answer}");
        // The server still works, and no command had reached it.
        assert_eq!(server.ask(&mut Link::new(server.endpoint.clone())), 1);
    }
}

#[test]
fn a_line_that_is_no_command_ends_the_connection_and_those_before_it_are_answered() {
    let server = Server::on_a_file(Bounds::default());
    let long = [b"{\"cmd\":\"".as_slice(), &vec![b'x'; limits::ADMIN_LINE], b"\n"].concat();
    for bad in [b"dance\n".as_slice(), b"\xff\xfe\n", b"\n", b"{\"token\":\"x\"}\n", &long] {
        let before = server.reached.load(Ordering::Relaxed);
        let status = b"{\"cmd\":\"status\"}\n".as_slice();
        let answer = server.says_to(&[status, bad, status].concat());
        assert_eq!(server.reached.load(Ordering::Relaxed), before + 1, "{}", String::from_utf8_lossy(bad));
        assert_eq!(answer.lines().count(), 2, "{answer}");
    }
}

#[test]
fn a_port_serves_only_who_presents_the_secret_first() {
    let server = Server::on_a_port();
    let Endpoint::Tcp { address, .. } = server.endpoint else { unreachable!("it is a port") };
    let other = Token::parse(&SECRET.replace('0', "1")).expect("a secret");
    let mut wrong = Link::new(Endpoint::Tcp { address, token: other });
    let reported = wrong.ask::<usize>(&AdminCommand::Shutdown, PATIENCE).unwrap_err().to_string();
    assert!(reported.contains("--admin-token"), "{reported}");
    let late = format!("{{\"cmd\":\"shutdown\"}}\n{{\"token\":\"{SECRET}\"}}\n{{\"cmd\":\"shutdown\"}}\n");
    assert!(server.says_to(late.as_bytes()).contains("first line"));
    assert_eq!(server.reached.load(Ordering::Relaxed), 0);
    let mut right = Link::new(server.endpoint.clone());
    assert_eq!([server.ask(&mut right), server.ask(&mut right)], [1, 2]);
}

#[test]
fn callers_without_the_secret_keep_nobody_out() {
    let server = Server::on_a_port();
    let Endpoint::Tcp { address, .. } = server.endpoint else { unreachable!("it is a port") };
    let silent: Vec<TcpStream> = (0..limits::ADMIN_CONNECTIONS + limits::ADMIN_STRANGERS)
        .map(|_| TcpStream::connect(address).expect("connected"))
        .collect();
    assert_eq!(server.ask(&mut Link::new(server.endpoint.clone())), 1);
    let has_ended = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).expect("a bound");
        matches!(stream.read(&mut [0]), Ok(0) | Err(_))
    };
    assert!(has_ended(&silent[0]), "the oldest gives way");
}

#[test]
fn one_connection_too_many_is_refused_while_the_others_are_served() {
    let server = Server::on_a_file(Bounds::default());
    let mut links: Vec<Link> =
        (0..limits::ADMIN_CONNECTIONS).map(|_| Link::new(server.endpoint.clone())).collect();
    links.iter_mut().for_each(|link| _ = server.ask(link));
    let reported =
        Link::new(server.endpoint.clone()).ask::<usize>(&AdminCommand::Status, PATIENCE).unwrap_err();
    assert!(reported.to_string().contains("32 admin connections are open"), "{reported}");
    links.iter_mut().for_each(|link| _ = server.ask(link));
    // A freed place is taken again, as soon as the server has detected it.
    links.pop();
    let deadline = Instant::now() + PATIENCE;
    while Link::new(server.endpoint.clone()).ask::<usize>(&AdminCommand::Status, PATIENCE).is_err() {
        assert!(Instant::now() < deadline, "the place is not given back");
    }
}

#[test]
fn idle_connections_end_also_those_that_send_a_byte_now_and_then() {
    let server = Server::on_a_file(Bounds { idle: Duration::from_millis(30), ..Bounds::default() });
    let silent = connect(&server.endpoint, PATIENCE).expect("connected");
    silent.set_read_timeout(PATIENCE).expect("a bound");
    let mut line = String::new();
    assert_eq!(BufReader::new(silent).read_line(&mut line).expect("the end, and no timeout"), 0);
    let mut slow = connect(&server.endpoint, PATIENCE).expect("connected");
    let deadline = Instant::now() + PATIENCE;
    while slow.write_all(b" ").is_ok() {
        assert!(Instant::now() < deadline, "a byte now and then keeps the connection");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_socket_is_this_users_alone_and_goes_with_the_replica() {
    let mut server = Server::on_a_file(Bounds::default());
    let path = server.path();
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o600);
    drop(server.file.take());
    assert!(!path.exists(), "a clean end removes it");
}

#[test]
fn a_missing_directory_is_made_for_this_user_alone() {
    let folder = tempfile::tempdir().expect("a directory");
    let endpoint = Endpoint::unix(folder.path().join("run/admin.sock")).expect("a short path");
    let server = Server::start(endpoint, Bounds::default()).expect("it listens");
    let made = std::fs::metadata(folder.path().join("run")).expect("it was made");
    assert_eq!(made.permissions().mode() & 0o7777, 0o700);
    assert_eq!(server.ask(&mut Link::new(server.endpoint.clone())), 1);
}

#[test]
fn what_a_killed_replica_left_is_replaced_and_a_living_one_is_not() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("admin.sock");
    let endpoint = Endpoint::unix(&path).expect("a short path");
    // A listener that is dropped leaves its file, like a process that is killed.
    drop(UnixListener::bind(&path).expect("bound"));
    let first = Server::start(endpoint.clone(), Bounds::default()).expect("it takes the place");
    let reported = match Server::start(endpoint, Bounds::default()) {
        Err(ServeError::Io(error)) => error.to_string(),
        other => panic!("{:?}", other.err()),
    };
    assert!(reported.contains("another process listens on") && reported.contains("admin.sock"), "{reported}");
    assert_eq!(first.ask(&mut Link::new(first.endpoint.clone())), 1);
}

#[test]
fn a_place_that_is_not_safe_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a directory");
    let start = |path: PathBuf| match Server::start(Endpoint::unix(path).expect("short"), Bounds::default()) {
        Err(ServeError::Operator(reported)) => reported,
        other => panic!("{:?}", other.err()),
    };
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "keep").expect("written");
    let reported = start(file.clone());
    assert!(reported.contains("notes.txt is there and is no socket"), "{reported}");
    assert_eq!(std::fs::read_to_string(&file).expect("still there"), "keep");
    let open = folder.path().join("open");
    std::fs::create_dir(&open).expect("made");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o1777)).expect("opened");
    let reported = start(open.join("admin.sock"));
    assert!(reported.contains("mode 1777") && reported.contains("0700"), "{reported}");
    let reported = start(folder.path().join("no/such/admin.sock"));
    assert!(reported.contains("cannot be made"), "{reported}");
}
