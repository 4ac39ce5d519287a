//! Stock memcached on a port of its own, stopped when the test is over.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running stock server.
pub struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Starts one; `None` if memcached is not installed.
    pub fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        let process = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let server = Server { process, port };
        let patience = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < patience, "memcached does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    /// Sends `input` and `end` on a new connection; returns the bytes received until `ended`, the answer to `end`, or
    /// until the connection is closed (then true), or is silent for a while.
    pub fn talk(&self, input: &[u8], end: &[u8], ended: &[u8]) -> (Vec<u8>, bool) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("memcached accepts");
        stream.set_read_timeout(Some(Duration::from_millis(1_500))).expect("a timeout can be set");
        // A server that closes early does not read all of it.
        let _ = stream.write_all(input).and_then(|()| stream.write_all(end));
        let mut output = Vec::new();
        let mut buffer = [0; 65_536];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return (output, true),
                Ok(count) => output.extend_from_slice(&buffer[..count]),
                Err(_) => return (output, false),
            }
            if output.ends_with(ended) {
                return (output, false);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
