//! Other programs that tests run: found, or reported with the command that installs them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use node::cluster::{Process, ports};

use super::free_port::free_port;

#[path = "../../../../hardening/sei/tests/support/skipped.rs"]
mod skipped;

/// The file of `program`; without it the calling test is skipped with a note, and in CI fails with the command to
/// install it.
pub fn find(program: &str, install: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    if found.is_none() {
        missing(program, install);
    }
    found
}

/// The Python that has the packages of `lab/clients/requirements.txt`.
pub fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("cli lies in the workspace");
    let own = root.join("target/clients-venv/bin/python");
    let python = std::env::var_os("CROSSCHECK_PYTHON").map_or(own, PathBuf::from);
    let usable = Command::new(&python)
        .args(["-c", "import pymemcache, memcache"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !usable {
        let install =
            "`bash .ci/run clients`, or set CROSSCHECK_PYTHON to a Python with lab/clients/requirements.txt";
        missing("Python with pymemcache", install);
        return None;
    }
    Some(python)
}

fn missing(what: &str, install: &str) {
    skipped::skipped(&format!("{what} is not installed; install it with: {install}"));
}

/// A stock memcached on loopback that ends when this value is dropped.
pub struct Stock {
    process: Process,
    /// Its address.
    pub server: SocketAddr,
}

impl Stock {
    /// Starts one; `None` where none is installed.
    pub fn start() -> Option<Stock> {
        let program = find("memcached", "apt-get install memcached")?;
        loop {
            let server = ports::loopback(free_port());
            // It refuses to run as root without a user to switch to.
            let mut command = Command::new(&program);
            command.args(["-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-m", "256", "-c", "2048", "-p"]);
            command.arg(server.port().to_string());
            let process = Process::spawn(command, Stdio::null(), Stdio::inherit()).expect("memcached starts");
            let mut stock = Stock { process, server };
            let deadline = Instant::now() + Duration::from_secs(10);
            // Another test program may have picked the same port.
            while stock.process.ended().is_none() {
                if is_memcached(server) {
                    return Some(stock);
                }
                assert!(Instant::now() < deadline, "memcached does not answer on {server}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Whether a memcached answers there: an open connection does not prove that.
fn is_memcached(server: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(server) else { return false };
    let mut answer = [0; 8];
    stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
        && stream.write_all(b"version\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == *b"VERSION "
}
