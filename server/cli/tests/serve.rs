//! One `serve` process as an operator starts it: who can connect to its admin socket, which files it leaves behind, and
//! which configurations it refuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A directory with a configuration, and the process that runs it.
struct Node {
    folder: tempfile::TempDir,
    running: Option<Child>,
}

impl Node {
    /// Mode 00G0 on free ports; `more` are further lines at the top of the file.
    fn new(admin: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let free = || TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port");
        let admin = admin.replace("DIR", folder.path().to_str().expect("text"));
        let more = more.replace("DIR", folder.path().to_str().expect("text"));
        let text = format!(
            "this_replica = 1\nlisten = \"{}\"\nadmin = \"{admin}\"\n{more}\nmode = \"00G0\"\nworkers = 1\n\
             memory_limit_mb = 16\n[[replica]]\nnumber = 1\naddress = \"{}\"\n",
            free(),
            free()
        );
        std::fs::write(folder.path().join("node.toml"), text).expect("written");
        Node { folder, running: None }
    }

    /// Its address for clients.
    fn clients(&self) -> String {
        let text = std::fs::read_to_string(self.path("node.toml")).expect("read");
        text.split('"').nth(1).expect("the first string is `listen`").to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same in a shell that sets limits first.
    fn serve_after(&self, limits: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limits} && exec \"$@\""), "sh"]);
        command
            .arg(env!("CARGO_BIN_EXE_crosscheck"))
            .arg("serve")
            .arg("--config")
            .arg(self.path("node.toml"));
        command
    }

    fn serve(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck"));
        command.arg("serve").arg("--config").arg(self.path("node.toml"));
        command
    }

    /// Starts it, and waits until it answers on the socket `admin.sock`, or with the arguments `ask`.
    fn start(&mut self, ask: &[&str]) {
        self.start_as(self.serve(), ask);
    }

    fn start_as(&mut self, mut command: Command, ask: &[&str]) {
        let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        self.running = Some(child);
        self.wait(ask);
    }

    /// Waits until it answers.
    fn wait(&self, ask: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        while !self.status(ask).status.success() {
            assert!(Instant::now() < deadline, "it does not serve");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal.
    fn signal(&self, signal: Signal) {
        let child = self.running.as_ref().expect("it runs");
        let pid = Pid::from_raw(child.id() as i32).expect("process ids are positive");
        kill_process(pid, signal).expect("it is there");
    }

    fn status(&self, ask: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck"));
        command.arg("status").args(ask).current_dir(self.folder.path());
        command.output().expect("an answer")
    }

    /// Sends a signal and waits for the end; returns the exit code and stderr.
    fn end(&mut self, signal: Signal) -> (Option<i32>, String) {
        self.signal(signal);
        let mut child = self.running.take().expect("it runs");
        let mut said = String::new();
        let mut stderr = child.stderr.take().expect("piped");
        stderr.read_to_string(&mut said).expect("text");
        (child.wait().expect("its end").code(), said)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The stderr and exit code of a command that ends by itself.
fn refused(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

const SOCKET: [&str; 2] = ["--admin", "./admin.sock"];

/// The request that a web page makes a browser send, to any port.
const HTTP: &[u8] =
    b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n\r\n\
                      {\"cmd\":\"shutdown\"}\n";

fn post_shutdown(mut stream: impl Read + Write) -> String {
    stream.write_all(HTTP).expect("sent");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("one line");
    line
}

#[test]
fn the_admin_socket_is_this_users_and_goes_with_a_clean_end() {
    let mut node = Node::new("DIR/admin.sock", "");
    node.start(&SOCKET);
    let socket = node.path("admin.sock");
    let mode = std::fs::metadata(&socket).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let reported = post_shutdown(UnixStream::connect(&socket).expect("this user may connect"));
    assert!(reported.contains("not an admin command"), "{reported}");
    assert!(node.status(&SOCKET).status.success(), "a web page has stopped it");
    let (code, said) = node.end(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    assert!(!socket.exists(), "it leaves its socket behind");
}

#[test]
fn sighup_ends_no_replica_and_says_that_the_configuration_is_read_at_the_start_only() {
    let mut node = Node::new("DIR/admin.sock", "");
    node.start(&SOCKET);
    for _ in 0..3 {
        node.signal(Signal::HUP);
        assert!(node.status(&SOCKET).status.success(), "SIGHUP has stopped it");
    }
    let (code, said) = node.end(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("crosscheck: SIGHUP is ignored: the configuration is read at the start only"),
        "{said}"
    );
}

/// A shell and the kernel each send SIGHUP when a terminal goes away, and later output to it is lost.
#[test]
fn up_stops_its_replicas_properly_when_its_terminal_goes_away() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck"));
    command.args(["up", "--json", "--mode", "00G0", "--port", "0"]).env("XDG_RUNTIME_DIR", folder.path());
    let mut up = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(up.stdout.take().expect("piped")).lines();
    let mut next = || {
        let line = lines.next().expect("it goes on").expect("text");
        serde_json::from_str::<serde_json::Value>(&line).expect("JSON")
    };
    let mut replica = None;
    loop {
        let event = next();
        match event["event"].as_str() {
            Some("started") => replica = event["pid"].as_i64(),
            Some("ready") => break,
            _ => {}
        }
    }
    drop(lines);
    let pid = |number: i64| Pid::from_raw(i32::try_from(number).expect("a process id")).expect("not 0");
    for _ in 0..3 {
        // It may have ended by the second or third.
        let _ = kill_process(pid(i64::from(up.id())), Signal::HUP);
    }
    assert_eq!(up.wait().expect("its end").code(), Some(0));
    let replica = pid(replica.expect("it was started"));
    assert!(rustix::process::test_kill_process(replica).is_err(), "its replica is still there");
    let is_file = |entry: &PathBuf| entry.is_file();
    let left: Vec<PathBuf> = walk(folder.path()).into_iter().filter(is_file).collect();
    assert!(left.is_empty(), "it leaves files of its cluster behind: {left:?}");
}

fn walk(folder: &std::path::Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_host_name_that_does_not_resolve_yet_is_tried_again_and_a_malformed_one_is_refused() {
    let mut node = Node::new("DIR/admin.sock", "");
    let right = std::fs::read_to_string(node.path("node.toml")).expect("read");
    let write = |node: &Node, listen: &str| {
        let text = right.replacen(&node.clients(), listen, 1);
        std::fs::write(node.path("node.toml"), text).expect("written");
    };
    write(&node, "10.0.0.300:11211");
    let (code, said) = refused(&mut node.serve());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("`10.0.0.300` is neither an IP address nor a host name"), "{said}");
    // The top-level domain `invalid` is reserved and never resolves (RFC 2606).
    std::fs::write(node.path("node.toml"), &right).expect("written");
    write(&node, "no-such-host.invalid:11211");
    let mut child = node.serve().stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("a line");
    assert!(line.contains("listen: `no-such-host.invalid:11211` does not resolve: "), "{line}");
    assert!(line.contains("It is tried again every second"), "{line}");
    // The operator corrects the name, and the replica serves.
    std::fs::write(node.path("node.toml"), &right).expect("written");
    node.running = Some(child);
    node.wait(&SOCKET);
}

#[test]
fn the_socket_of_a_killed_replica_is_replaced_and_that_of_a_living_one_is_not() {
    let mut node = Node::new("DIR/admin.sock", "");
    node.start(&SOCKET);
    node.end(Signal::KILL);
    assert!(node.path("admin.sock").exists());
    node.start(&SOCKET);
    // Another replica whose configuration names the same socket.
    let other = Node::new("DIR/admin.sock", "");
    let twin = std::fs::read_to_string(other.path("node.toml")).expect("read");
    let same = twin.replace(
        other.path("admin.sock").to_str().expect("text"),
        node.path("admin.sock").to_str().expect("text"),
    );
    std::fs::write(other.path("node.toml"), same).expect("written");
    let (code, said) = refused(&mut other.serve());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another process listens on") && said.lines().count() == 1, "{said}");
    assert!(node.status(&SOCKET).status.success());
}

#[test]
fn a_socket_in_a_place_that_is_not_safe_is_the_operators_to_mend() {
    let node = Node::new("DIR/admin.sock", "");
    std::fs::write(node.path("admin.sock"), "notes").expect("written");
    let (code, said) = refused(&mut node.serve());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(":3: admin: ") && said.contains("is no socket. Remedy: move it away"), "{said}");
}

#[test]
fn an_admin_port_is_served_to_those_who_know_its_secret() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port");
    let address = port.to_string();
    let mut node = Node::new(&address, "admin_token_file = \"DIR/token\"");
    let secret = |name: &str, text: &str, mode: u32| {
        std::fs::write(node.path(name), text).expect("written");
        std::fs::set_permissions(node.path(name), std::fs::Permissions::from_mode(mode)).expect("set");
    };
    secret("token", SECRET, 0o644);
    let (code, said) = refused(&mut node.serve());
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("admin_token_file: ") && said.contains("Remedy: chmod 600"), "{said}");
    secret("token", SECRET, 0o600);
    secret("wrong", &SECRET.replace('0', "1"), 0o600);
    node.start(&["--admin", &address, "--admin-token", "token"]);
    let wrong = node.status(&["--admin", &address, "--admin-token", "wrong"]);
    assert_eq!(wrong.status.code(), Some(1));
    let reported = String::from_utf8_lossy(&wrong.stdout).into_owned();
    assert!(reported.contains("first line must be"), "{reported}");
    let connect =
        || TcpStream::connect(address.parse::<SocketAddr>().expect("an address")).expect("connected");
    let reported = post_shutdown(connect());
    assert!(reported.contains("first line must be"), "{reported}");
    assert!(node.status(&["--admin", &address, "--admin-token", "token"]).status.success());
}

#[test]
fn connections_that_do_not_fit_below_the_limit_of_open_files_are_refused_or_lowered() {
    let asked = Node::new("DIR/admin.sock", "max_connections = 100");
    let (code, said) = refused(asked.serve_after("ulimit -n 216").arg("--check"));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("max_connections = 100 needs 276 open files"), "{said}");
    let (code, said) = refused(&mut asked.serve_after("ulimit -n 216"));
    assert_eq!(code, Some(2), "{said}");
    let left_out = Node::new("DIR/admin.sock", "");
    let (code, said) = refused(left_out.serve_after("ulimit -n 216").arg("--check"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("lowered from 1024 to 40") && said.lines().count() == 1, "{said}");
    let (code, said) = refused(left_out.serve_after("ulimit -n 186").arg("--check"));
    assert_eq!(code, Some(2), "{said}");
    // A soft limit alone is raised, without a message.
    assert_eq!(refused(asked.serve_after("ulimit -Sn 64").arg("--check")), (Some(0), String::new()));
}

/// The review's 2.4.4: from some 2.1 MB on, values that the configuration allows ended their connection.
#[test]
fn the_longest_item_that_may_be_configured_is_stored_and_one_that_is_longer_is_refused() {
    let mut node = Node::new("DIR/admin.sock", "item_size_max = 3145728");
    node.start(&SOCKET);
    let mut client = TcpStream::connect(node.clients()).expect("it takes clients");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut answers = BufReader::new(client.try_clone().expect("a second handle"));
    let line = |answers: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        answers.read_line(&mut line).expect("a line");
        line
    };
    for (length, answer) in
        [(2_200_000, "STORED"), (3_145_000, "STORED"), (3_200_000, "SERVER_ERROR object too large")]
    {
        let value = vec![b'v'; length];
        client.write_all(format!("set k 0 0 {length}\r\n").as_bytes()).expect("sent");
        client.write_all(&[&value[..], b"\r\n"].concat()).expect("sent");
        let reported = line(&mut answers);
        assert!(reported.starts_with(answer), "{length}: {reported}");
        if answer == "STORED" {
            client.write_all(b"get k\r\n").expect("sent");
            assert_eq!(line(&mut answers), format!("VALUE k 0 {length}\r\n"));
            let mut read = vec![0; length];
            answers.read_exact(&mut read).expect("the whole value");
            assert!(read == value);
            assert_eq!((line(&mut answers), line(&mut answers)), ("\r\n".into(), "END\r\n".into()));
        }
    }
}

#[test]
fn clients_cannot_take_the_files_that_others_need() {
    let mut node = Node::new("DIR/admin.sock", "");
    node.start_as(node.serve_after("ulimit -n 216"), &SOCKET);
    let connect = || TcpStream::connect(node.clients()).expect("connected");
    let version = |stream: &TcpStream| {
        stream.set_read_timeout(Some(PATIENCE)).expect("a bound");
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(b"version\r\n").expect("sent");
        let mut line = String::new();
        stream.read_line(&mut line).expect("an answer");
        line
    };
    let served: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    served.iter().for_each(|stream| assert!(version(stream).starts_with("VERSION ")));
    let more = connect();
    let mut line = String::new();
    BufReader::new(&more).read_line(&mut line).expect("an answer");
    assert_eq!(line, "ERROR Too many open connections\r\n");
    assert!(node.status(&SOCKET).status.success(), "its admin socket is starved");
}

#[test]
fn a_replica_of_a_group_needs_a_key_that_others_cannot_read() {
    let node = Node::new("DIR/admin.sock", "");
    let file = node.path("node.toml");
    let text = std::fs::read_to_string(&file).expect("read").replace("00G0", "RDGX");
    std::fs::write(&file, &text).expect("written");
    let (code, said) = refused(node.serve().arg("--check"));
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("group_key: is missing") && said.contains("crosscheck key new --out FILE"),
        "{said}"
    );
    let key_new = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosscheck"));
        command.args(["key", "new", "--name", "prod", "--out"]).arg(node.path("group.key"));
        refused(&mut command)
    };
    assert_eq!(key_new(), (Some(0), String::new()));
    let made = std::fs::read_to_string(node.path("group.key")).expect("a key");
    assert!(made.starts_with("cluster = \"prod\"\nkey = \""), "{made}");
    let (code, said) = key_new();
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(std::fs::read_to_string(node.path("group.key")).expect("a key"), made, "it was overwritten");
    let with_key = format!("group_key = \"{}\"\n{text}", node.path("group.key").display());
    std::fs::write(&file, with_key).expect("written");
    assert_eq!(refused(node.serve().arg("--check")), (Some(0), String::new()));
    std::fs::set_permissions(node.path("group.key"), std::fs::Permissions::from_mode(0o640)).expect("set");
    let (code, said) = refused(node.serve().arg("--check"));
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("group_key: ") && said.contains("mode 0640") && said.contains("chmod 600"),
        "{said}"
    );
}

/// The answer to `version` on this connection.
fn version(stream: &mut (impl Read + Write)) -> std::io::Result<String> {
    stream.write_all(b"version\r\n")?;
    let mut line = String::new();
    while !line.ends_with('\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.push(char::from(byte[0]));
    }
    Ok(line)
}

#[test]
fn a_socket_file_for_clients_lives_as_long_as_its_replica() {
    let more = "client_socket = \"DIR/clients.sock\"\nclient_socket_mode = \"0770\"";
    let mut node = Node::new("DIR/admin.sock", more);
    node.start(&SOCKET);
    let socket = node.path("clients.sock");
    let ask = || version(&mut UnixStream::connect(&socket).expect("it listens")).expect("an answer");
    assert!(ask().starts_with("VERSION "));
    assert_eq!(std::fs::metadata(&socket).expect("there").permissions().mode() & 0o7777, 0o770);
    let other = Node::new("DIR/admin.sock", &more.replace("DIR", node.folder.path().to_str().expect("text")));
    let (code, said) = refused(&mut other.serve());
    assert!(
        code != Some(0) && said.contains("another process listens on") && said.contains("clients.sock"),
        "{said}"
    );
    assert!(ask().starts_with("VERSION "), "the other one has taken it");
    node.end(Signal::KILL);
    assert!(socket.exists(), "a killed process leaves it");
    node.start(&SOCKET);
    assert!(ask().starts_with("VERSION "));
    let (code, said) = node.end(Signal::TERM);
    assert_eq!((code, socket.exists()), (Some(0), false), "{said}");
}

/// A connection with TLS that trusts this certificate only.
fn with_tls(
    address: &str,
    trusted: &rcgen::Certificate,
) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.der().clone()).expect("a certificate");
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = std::sync::Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a bound");
    let name = "localhost".try_into().expect("a name");
    rustls::StreamOwned::new(rustls::ClientConnection::new(config, name).expect("a client"), socket)
}

#[test]
fn sighup_makes_a_replica_read_its_certificate_again() {
    let mut node = Node::new("DIR/admin.sock", "tls_cert = \"DIR/cert.pem\"\ntls_key = \"DIR/key.pem\"");
    let (code, said) = refused(node.serve().arg("--check"));
    assert!(
        code == Some(2) && said.contains("tls_cert: ") && said.contains("cert.pem cannot be read"),
        "{said}"
    );
    let (certificate, key) = (node.path("cert.pem"), node.path("key.pem"));
    let write = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("set");
        made.cert
    };
    let first = write();
    node.start(&SOCKET);
    let mut open = with_tls(&node.clients(), &first);
    assert!(version(&mut open).expect("served").starts_with("VERSION "));
    let second = write();
    node.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    while version(&mut with_tls(&node.clients(), &second)).is_err() {
        assert!(Instant::now() < deadline, "the new certificate is not used");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(&key, "no key").expect("written");
    node.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(version(&mut with_tls(&node.clients(), &second)).is_ok(), "the one before stays");
    assert!(version(&mut open).is_ok(), "an open connection goes on");
    let (code, said) = node.end(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    for reported in
        ["were read again, for later connections", "from before stays", "key.pem holds no private key"]
    {
        assert!(said.contains(reported), "{reported}: {said}");
    }
}
