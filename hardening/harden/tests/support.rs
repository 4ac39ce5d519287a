//! Programs built once for all tests, and servers that run while a test does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use harden::compile::Variant;
use harden::pipeline::{self, Places};
use harden::recipe::App;
use harden::tool::is_lack;

pub use self::skipped::skipped;

#[path = "../../sei/tests/support/skipped.rs"]
mod skipped;

/// Exit status of a process that detected a fault.
pub const DETECTED: i32 = 86;

/// Ports that are tried.
const TRIES: usize = 5;

/// Where the tests of this workspace build programs; a later run finds them there.
pub fn places() -> Places {
    Places { out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("harden"), ..Places::default() }
}

/// A variant of a program; `None`, with one line, where this machine lacks what it takes. In CI that is a failure.
pub fn built(app: &str, variant: Variant) -> Option<PathBuf> {
    let app = App::find(app).expect("a program with a recipe");
    match pipeline::build(&app, variant, &places()) {
        Ok(built) => Some(built.program),
        Err(error) if is_lack(&error) => {
            skipped(&format!("{error:#}"));
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

/// How many requests a test sends: `short`, or `long` in a long run.
pub fn requests(short: u64, long: u64) -> u64 {
    if std::env::var_os("CROSSCHECK_LONG").is_some() { long } else { short }
}

/// A memcached on loopback that ends with this value.
pub struct Server {
    child: Child,
    /// Its address.
    pub address: SocketAddr,
}

impl Server {
    /// Starts one with these further options.
    pub fn start(program: &Path, options: &[&str]) -> Server {
        Server::start_by(|| Command::new(program), options)
    }

    /// Starts one by this command, to which options are added.
    pub fn start_by(command: impl Fn() -> Command, options: &[&str]) -> Server {
        for _ in 0..TRIES {
            let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
            let port = address.port().to_string();
            let mut command = command();
            command.args(["-u", "nobody", "-l", "127.0.0.1", "-p", &port]).args(options);
            let child = command.stdin(Stdio::null()).spawn().expect("memcached starts");
            let mut server = Server { child, address };
            let deadline = Instant::now() + Duration::from_secs(30);
            // The port may have been taken since; then the process ends.
            while server.child.try_wait().expect("a child").is_none() {
                if TcpStream::connect(address).is_ok() {
                    return server;
                }
                assert!(Instant::now() < deadline, "memcached does not answer on {address}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("memcached has ended {TRIES} times on different ports");
    }

    /// A connection whose reads and writes end after ten seconds.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_nodelay(true).expect("a TCP connection");
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(Duration::from_secs(10))).expect("a TCP connection");
        }
        stream
    }

    /// Fails where the process has ended, with its exit status.
    pub fn assert_runs(&mut self) {
        let ended = self.child.try_wait().expect("a child");
        let detected = ended.is_some_and(|status| status.code() == Some(DETECTED));
        assert!(!detected, "the library detected a fault where there was none");
        assert_eq!(ended, None, "the server has ended");
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process ends by itself; returns its exit status.
    pub fn end(&mut self) -> Option<i32> {
        self.child.wait().expect("a child").code()
    }

    /// The value of a line of `stats`.
    pub fn stat(&self, name: &str) -> u64 {
        let text = exchange(&mut self.connect(), b"stats\r\n", b"END\r\n").expect("it answers");
        let text = String::from_utf8(text).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.expect("the statistic").trim().parse().expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request and reads up to `end`, which no other part of the reply contains.
pub fn exchange(stream: &mut TcpStream, request: &[u8], end: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(request)?;
    let mut reply = Vec::new();
    let mut buffer = [0; 65_536];
    while !reply.ends_with(end) {
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => reply.extend_from_slice(&buffer[..n]),
        }
    }
    Ok(reply)
}

/// A port that was free a moment ago, below those that the kernel assigns.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(131) + TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = 12_000 + (number % 8_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The address of a variable in a running program.
pub fn address_of(variable: &str, program: &Path, process: u32) -> u64 {
    let listed = Command::new("nm").arg(program).output().expect("nm is part of binutils").stdout;
    let listed = String::from_utf8(listed).expect("text");
    let line = listed.lines().find(|line| line.ends_with(&format!(" {variable}"))).expect("a symbol");
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).expect("a process of ours");
    let hex = |word: &str| u64::from_str_radix(word, 16).expect("an address");
    hex(maps.split('-').next().expect("a range")) + hex(line.split(' ').next().expect("an address"))
}
