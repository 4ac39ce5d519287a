//! Hardened mosquitto against the same program without protection, byte for byte: random messages at every quality of
//! service, retained ones, and a session that outlives the process; and a soak with a client that others wrote.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harden::compile::Variant;
use wire::SplitMix64;

use self::mqtt::{PING, PONG, PUBACK, PUBCOMP, PUBREC, PUBREL, acknowledge, message, packets};
use crate::support::{DETECTED, built, free_port, requests, skipped};

#[path = "../../../lab/tracer/src/mqtt.rs"]
mod mqtt;

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Topics with a retained message each.
const RETAINED: u64 = 20;
/// More than a handler reads, or writes, at a time.
const LARGE: usize = 3 << 20;

/// A broker on loopback that keeps its state in a folder.
struct Broker {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Broker {
    fn start(program: &Path) -> Broker {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let text = format!(
            "listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\n\
             persistence_location {}/\nautosave_interval 1\nsys_interval 1\nlog_type error\nset_tcp_nodelay true\n",
            folder.path().display()
        );
        fs::write(folder.path().join("conf"), text).expect("written");
        let child = spawn(program, folder.path());
        let broker = Broker { child, port, folder, program: program.to_owned() };
        broker.wait();
        broker
    }

    fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < deadline, "mosquitto does not listen on {}", self.port);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it by SIGTERM, at which it saves its state, and starts another one with that.
    fn restart(&mut self) {
        self.end();
        self.child = spawn(&self.program, self.folder.path());
        self.wait();
    }

    fn end(&mut self) {
        self.assert_runs();
        let killed = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill");
        assert!(killed.success());
        assert_eq!(self.child.wait().expect("a child").code(), Some(0));
        let left = fs::read_dir(self.folder.path()).expect("our folder").count();
        assert_eq!(left, 2, "the settings and one file of state");
    }

    fn assert_runs(&mut self) {
        let ended = self.child.try_wait().expect("a child");
        let detected = ended.is_some_and(|status| status.code() == Some(DETECTED));
        assert!(!detected, "the library detected a fault where there was none");
        assert_eq!(ended, None, "the broker has ended");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &Path, folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("conf")).stdin(Stdio::null());
    command.spawn().expect("mosquitto starts")
}

/// A client that keeps what it received.
struct Client {
    stream: TcpStream,
    transcript: Vec<u8>,
}

impl Client {
    fn connect(broker: &Broker) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", broker.port)).expect("it listens");
        stream.set_nodelay(true).expect("a TCP connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a TCP connection");
        Client { stream, transcript: Vec::new() }
    }

    /// Sends packets; returns what came up to the answer to a ping behind them.
    fn ask(&mut self, sent: &[u8]) -> Vec<u8> {
        self.stream.write_all(&[sent, &PING].concat()).expect("sent");
        let mut got = Vec::new();
        let mut buffer = vec![0; 65_536];
        while !got.ends_with(&PONG) || packets(&got).iter().map(|one| one.len()).sum::<usize>() != got.len() {
            let read = self.stream.read(&mut buffer).expect("an answer");
            assert_ne!(read, 0, "the broker has closed the connection");
            got.extend_from_slice(&buffer[..read]);
        }
        self.transcript.extend_from_slice(&got);
        got
    }

    /// Sends packets, and acknowledges messages until none is left; returns their topics and payloads.
    fn receive(&mut self, sent: &[u8]) -> Vec<Received> {
        let mut messages = Vec::new();
        let mut got = self.ask(sent);
        loop {
            let mut answers = Vec::new();
            for packet in packets(&got) {
                if let Some(message) = message(packet) {
                    messages.push((message.topic.to_vec(), message.payload.to_vec()));
                    match message.qos {
                        1 => answers.extend(acknowledge(PUBACK, message.id)),
                        2 => answers.extend(acknowledge(PUBREC, message.id)),
                        _ => {}
                    }
                } else if packet[0] == PUBREL {
                    answers.extend(acknowledge(PUBCOMP, u16::from_be_bytes([packet[2], packet[3]])));
                }
            }
            if answers.is_empty() {
                return messages;
            }
            got = self.ask(&answers);
        }
    }
}

/// Topic and payload.
type Received = (Vec<u8>, Vec<u8>);

/// One publisher, and what the subscriber must have received.
struct Load {
    random: SplitMix64,
    id: u16,
    expected: Vec<Received>,
    retained: Vec<Vec<u8>>,
}

impl Load {
    /// Publishes this many messages, of which `keeps` says whether the subscriber gets those at QoS 0.
    fn publish(&mut self, publisher: &mut Client, messages: u64, keeps: bool) {
        for _ in 0..messages {
            let qos = self.random.below(3) as u8;
            let retains = self.random.below(4) == 0;
            let place = self.random.below(RETAINED);
            let long = *self.random.pick(&[1, 20, 100, 1_000, 20_000]);
            let payload: Vec<u8> = (0..long).map(|_| self.random.next_u64() as u8).collect();
            let topic = if retains { format!("r/{place}") } else { format!("t/{place}/x") };
            self.id = self.id % 60_000 + 1;
            let mut sent = mqtt::publish(self.id, &topic, &payload, qos, retains);
            if qos == 2 {
                sent.extend(acknowledge(PUBREL, self.id));
            }
            publisher.ask(&sent);
            if retains {
                self.retained[place as usize].clone_from(&payload);
            }
            if qos > 0 || keeps {
                self.expected.push((topic.into_bytes(), payload));
            }
        }
    }
}

/// A whole conversation; every message is checked. Returns what both clients received.
fn conversation(program: &Path, messages: u64) -> [Vec<u8>; 2] {
    let mut broker = Broker::start(program);
    let (mut publisher, mut subscriber) = (Client::connect(&broker), Client::connect(&broker));
    publisher.ask(&mqtt::connect("publisher", true));
    subscriber.ask(&mqtt::connect("subscriber", false));
    subscriber.ask(&mqtt::subscribe(1, "t/#", 2));
    subscriber.ask(&mqtt::subscribe(2, "r/#", 1));
    let retained = vec![Vec::new(); RETAINED as usize];
    let mut load = Load { random: SplitMix64::new(42), id: 0, expected: Vec::new(), retained };
    for _ in 0..messages / 10 {
        load.publish(&mut publisher, 10, true);
        assert!(subscriber.receive(&[]) == std::mem::take(&mut load.expected));
    }
    let large: Vec<u8> = (0..LARGE).map(|_| load.random.next_u64() as u8).collect();
    publisher.ask(&mqtt::publish(60_001, "t/large", &large, 1, false));
    assert!(subscriber.receive(&[]) == [(b"t/large".to_vec(), large)], "a large message");
    // Away, and the broker is another process when it comes back.
    drop(subscriber.stream);
    load.publish(&mut publisher, 60, false);
    broker.restart();
    let mut again = Client::connect(&broker);
    let kept = again.receive(&mqtt::connect("subscriber", false));
    assert!(kept == load.expected, "{} messages of {} came back", kept.len(), load.expected.len());
    // Retained messages of a process that has ended.
    again.ask(&mqtt::unsubscribe(3, "r/#"));
    let found = again.receive(&mqtt::subscribe(4, "r/#", 0));
    for (place, payload) in load.retained.iter().enumerate().filter(|(_, payload)| !payload.is_empty()) {
        let wanted = (format!("r/{place}").into_bytes(), payload.clone());
        assert!(found.contains(&wanted), "the retained message of r/{place}");
    }
    broker.end();
    [publisher.transcript, [subscriber.transcript, again.transcript].concat()]
}

#[test]
fn what_clients_receive_is_the_same() {
    let Some(native) = built("mosquitto", Variant::Native) else { return };
    let Some(sei) = built("mosquitto", Variant::Sei) else { return };
    let messages = requests(1_000, 100_000);
    assert!(conversation(&native, messages) == conversation(&sei, messages), "sei answers otherwise");
}

/// One publisher, and many subscribers to what it sends: more than one handler writes, of which each gets everything.
#[test]
fn many_subscribers_have_as_many_handlers_as_it_takes() {
    let Some(program) = built("mosquitto", Variant::Sei) else { return };
    let mut broker = Broker::start(&program);
    let mut subscribers: Vec<Client> = (0..40).map(|_| Client::connect(&broker)).collect();
    for (number, subscriber) in subscribers.iter_mut().enumerate() {
        subscriber.ask(&mqtt::connect(&format!("subscriber{number}"), true));
        subscriber.ask(&mqtt::subscribe(1, "t", (number % 3) as u8));
    }
    let mut publisher = Client::connect(&broker);
    publisher.ask(&mqtt::connect("publisher", true));
    let payload = vec![b'p'; LARGE];
    publisher.ask(&mqtt::publish(1, "t", &payload, 1, false));
    for subscriber in &mut subscribers {
        assert!(subscriber.receive(&[]) == [(b"t".to_vec(), payload.clone())]);
    }
    broker.end();
}

/// With a client library that others wrote.
#[test]
fn a_soak() {
    let Some(program) = built("mosquitto", Variant::Sei) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
    let own = root.join("target/clients-venv/bin/python");
    let python = std::env::var_os("CROSSCHECK_PYTHON").map_or(own, PathBuf::from);
    let mut has = Command::new(&python);
    has.args(["-c", "import paho.mqtt.client"]).stderr(Stdio::null());
    if !has.status().is_ok_and(|status| status.success()) {
        return skipped(
            "Python with paho-mqtt is not installed; install it with: `bash .ci/run clients`, or set \
             CROSSCHECK_PYTHON to a Python with lab/clients/requirements.txt",
        );
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mqtt/soak.py");
    let mut soak = Command::new(python);
    soak.arg(script).arg(program).arg(free_port().to_string()).arg(requests(2_000, 200_000).to_string());
    assert!(soak.status().expect("Python").success(), "the soak says why");
}
