//! The example programs, as docs/sei.md builds them: they answer as without protection, and their CRCs are right.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Program;

const REQUESTS: &str = "add a 5\nadd b 2\nget a\nget c\nbad\nadd a -7\nadd a x\nget \nget b\n";

fn replies(program: &Program) -> Vec<String> {
    let mut child =
        Command::new(program.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(REQUESTS.as_bytes()).unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success());
    text.lines().map(str::to_owned).collect()
}

/// The library as it ships, in a program without symbols.
const LIBRARY_BYTES: u64 = 1_000_000;

#[test]
fn the_library_that_ships_is_small_and_does_the_same() {
    let Some(plain) = Program::build_plain_example("counter") else { return };
    let Some(shipped) = Program::build_shipped_example("counter_hardened") else { return };
    let Some(hardened) = Program::build_example("counter_hardened") else { return };
    assert_eq!(replies(&shipped), replies(&hardened));
    let bytes = |program: &Program| std::fs::metadata(program.path()).unwrap().len();
    let added = bytes(&shipped) - bytes(&plain);
    println!("the library adds {added} bytes");
    assert!(added <= LIBRARY_BYTES, "the library adds {added} bytes");
}

#[test]
fn the_hardened_counter_replies_as_the_plain_one_and_adds_crcs() {
    let Some(plain) = Program::build_plain_example("counter") else { return };
    let Some(hardened) = Program::build_example("counter_hardened") else { return };
    let plain = replies(&plain);
    let hardened = replies(&hardened);
    assert_eq!(plain.len(), 9);
    assert_eq!(hardened.len(), 18);
    for ((request, reply), with_crc) in REQUESTS.lines().zip(&plain).zip(hardened.chunks(2)) {
        assert_eq!(with_crc[0], *reply);
        let crc = crc32c::crc32c_append(crc32c::crc32c(request.as_bytes()), format!("{reply}\n").as_bytes());
        assert_eq!(with_crc[1], format!("@{crc:08x}"), "{request}");
    }
}

#[test]
fn the_guide_quotes_the_hardened_counter() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let guide = std::fs::read_to_string(format!("{root}../../docs/sei.md")).unwrap();
    let hardened = std::fs::read_to_string(format!("{root}examples/counter_hardened.c")).unwrap();
    let quoted = guide.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(quoted.contains("SEI_BEGIN") && hardened.contains(quoted), "{quoted}");
}

/// A key-value server on a free port of loopback, ended with the test.
struct Server {
    child: Child,
    connection: BufReader<TcpStream>,
}

impl Server {
    fn start(program: &Program) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program.path()).args([&port.to_string(), "crc"]).spawn().unwrap();
        let begin = Instant::now();
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(20), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { child, connection: BufReader::new(stream) }
    }

    fn send(&mut self, line: &str, data: &str, crcs: [u32; 2]) {
        let request = format!("@{:08x} {:08x}\r\n{line}{data}", crcs[0], crcs[1]);
        self.connection.get_mut().write_all(request.as_bytes()).unwrap();
    }

    /// An intact request of this reply, with its CRC.
    #[track_caller]
    fn assert_replies(&mut self, line: &str, data: &str, reply: &str) {
        let crcs = [line, data].map(|part| crc32c::crc32c(part.as_bytes()));
        self.send(line, data, crcs);
        let mut got = String::new();
        while !got.contains('@') {
            assert_ne!(
                self.connection.read_line(&mut got).unwrap(),
                0,
                "the connection ended behind {got:?}"
            );
        }
        let seed = if data.is_empty() { crcs[0] } else { crcs[1] };
        let crc = crc32c::crc32c_append(seed, reply.as_bytes());
        assert_eq!(got, format!("{reply}@{crc:08x}\r\n"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_key_value_server_answers_sound_requests_and_discards_corrupt_ones() {
    let Some(program) = Program::build_example("kv") else { return };
    let mut server = Server::start(&program);
    server.assert_replies("set k 3 0 5\r\n", "hello\r\n", "STORED\r\n");
    server.assert_replies("get k\r\n", "", "VALUE k 3 5\r\nhello\r\nEND\r\n");
    // A request whose CRC is wrong has no reply; the next one has.
    server.send("delete k\r\n", "", [1, 0]);
    server.send("set k 3 0 5\r\n", "HELLO\r\n", [crc32c::crc32c(b"set k 3 0 5\r\n"), 7]);
    server.assert_replies("get k\r\n", "", "VALUE k 3 5\r\nhello\r\nEND\r\n");
    server.assert_replies("set n 0 0 2\r\n", "41\r\n", "STORED\r\n");
    server.assert_replies("incr n 1\r\n", "", "42\r\n");
    server.assert_replies(
        "incr k 1\r\n",
        "",
        "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
    );
    server.assert_replies("delete k\r\n", "", "DELETED\r\n");
    server.assert_replies("get k\r\n", "", "END\r\n");
    server.assert_replies("nonsense\r\n", "", "ERROR\r\n");
    let value = "v".repeat(300_000);
    server.assert_replies("set big 0 0 300000\r\n", &format!("{value}\r\n"), "STORED\r\n");
    server.assert_replies("get big\r\n", "", &format!("VALUE big 0 300000\r\n{value}\r\nEND\r\n"));
}
