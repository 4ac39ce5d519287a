//! A web page makes a browser send HTTP to the clients' port, with commands in the body: no command may be executed
//! (difference D11).

use std::time::{Duration, Instant};

use super::lab::{HostileRun, Lab, PATIENCE, REPLICAS, Setup};
use super::outcome::Case;
use super::{ms, wire};

/// How long a connection may stay open after a line of HTTP.
const CLOSED: Duration = Duration::from_secs(1);
/// Pause between two packets of one request.
const PACKET: Duration = Duration::from_millis(50);

/// The requests, packet by packet.
const REQUESTS: [(&str, &[&str]); 6] = [
    ("GET", &["GET / HTTP/1.0\r\n\r\nset pwn 0 0 3\r\nyes\r\n"]),
    (
        "POST, head and body together",
        &["POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\nset pwn 0 0 3\r\nyes\r\n"],
    ),
    (
        "POST, the body in a second packet",
        &[
            "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\n",
            "set pwn 0 0 3\r\nyes\r\n",
        ],
    ),
    (
        "POST, line by line",
        &["POST / HTTP/1.1\r\n", "Host: 127.0.0.1\r\n", "\r\n", "set pwn 0 0 3\r\n", "yes\r\n"],
    ),
    ("a header alone", &["Host: 127.0.0.1\r\nset pwn 0 0 3\r\nyes\r\n"]),
    ("PUT", &["PUT /pwn HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nflush_all\r\n"]),
];

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let lab = run.cluster(Setup::default())?;
    lab.store(1, "kept", 10, 20)?;
    for (name, packets) in REQUESTS {
        let mut case =
            Case::new(format!("{name}, with a command behind it, to each replica's clients' port"));
        let (mut answered, mut open, mut longest) = (0, 0, Duration::ZERO);
        for number in REPLICAS {
            let (answer, took) = send(&lab, number, packets)?;
            answered += answer.len();
            open += usize::from(took.is_none());
            longest = longest.max(took.unwrap_or(CLOSED));
        }
        case.check(
            open == 0,
            "the connection is closed",
            format!("{open} of 3 still open after {}", ms(longest)),
        );
        case.check(answered == 0, "nothing is answered", format!("{answered} bytes"));
        let stored = REPLICAS.map(|number| lab.client(number).and_then(|mut client| Ok(client.get("pwn")?)));
        let none = stored.iter().all(|stored| matches!(stored, Ok(None)));
        case.check(
            none,
            "nothing is stored",
            if none { "3 of 3 replicas: END".to_owned() } else { format!("{stored:?}") },
        );
        lab.check_stored(&mut case, &REPLICAS, "kept", 10, 20);
        run.record_case(case);
    }
    let mut case = Case::new("what only looks like it: a key `Host:`, a value that is an HTTP request");
    let mut client = lab.client(1)?;
    client.set("Host:", 0, b"POST / HTTP/1.1\r\nHost: x")?;
    let found = client.get("Host:")?.map_or(0, |found| found.bytes.len());
    case.check(found == 24, "it is stored as any other", format!("{found} of 24 bytes read back"));
    lab.check_alive(&mut case);
    run.record_case(case);
    Ok(())
}

/// The answer, and the time after which the connection was closed.
fn send(lab: &Lab<'_>, number: u8, packets: &[&str]) -> anyhow::Result<(Vec<u8>, Option<Duration>)> {
    let mut stream = wire::connect(lab.clients(number))?;
    let began = Instant::now();
    for packet in packets {
        wire::send(&mut stream, packet.as_bytes(), began + PATIENCE);
        std::thread::sleep(PACKET);
    }
    let (answer, is_closed) = wire::answer(&mut stream, CLOSED);
    Ok((answer, is_closed.then(|| began.elapsed())))
}
