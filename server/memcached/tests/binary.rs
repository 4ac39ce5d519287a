//! The binary protocol: what each packet answers, and that it does to the state what the line of the same meaning does.

use crosscheck::{Progress, Protocol};
use memcached::Config;
use proptest::prelude::*;

use crate::support::Replica;

const OK: u16 = 0;
const NOT_FOUND: u16 = 1;
const EXISTS: u16 = 2;
const TOO_LARGE: u16 = 3;
const INVALID: u16 = 4;
const NOT_STORED: u16 = 5;
const NON_NUMERIC: u16 = 6;
const UNKNOWN: u16 = 0x81;

/// A request, with the opaque 0xa1b2c3d4.
pub fn packet(opcode: u8, unique: u64, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut bytes = vec![0x80, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend(body.to_be_bytes());
    bytes.extend([0xa1, 0xb2, 0xc3, 0xd4]);
    bytes.extend(unique.to_be_bytes());
    [&bytes[..], extras, key, value].concat()
}

fn set(opcode: u8, unique: u64, key: &[u8], flags: u32, expiry: u32, value: &[u8]) -> Vec<u8> {
    packet(opcode, unique, &[flags.to_be_bytes(), expiry.to_be_bytes()].concat(), key, value)
}

fn step(opcode: u8, unique: u64, key: &[u8], delta: u64, initial: u64, expiry: u32) -> Vec<u8> {
    let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &expiry.to_be_bytes()].concat();
    packet(opcode, unique, &extras, key, b"")
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
struct Response {
    opcode: u8,
    status: u16,
    unique: u64,
    extras: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// The responses in these bytes, which hold nothing else.
fn responses(mut bytes: &[u8]) -> Vec<Response> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at(24);
        assert_eq!((header[0], &header[12..16]), (0x81, &[0xa1, 0xb2, 0xc3, 0xd4][..]));
        let key = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let extras = usize::from(header[4]);
        let body = u32::from_be_bytes(header[8..12].try_into().unwrap()) as usize;
        let (body, rest) = rest.split_at(body);
        all.push(Response {
            opcode: header[1],
            status: u16::from_be_bytes([header[6], header[7]]),
            unique: u64::from_be_bytes(header[16..24].try_into().unwrap()),
            extras: body[..extras].to_vec(),
            key: body[extras..extras + key].to_vec(),
            value: body[extras + key..].to_vec(),
        });
        bytes = rest;
    }
    all
}

struct Client {
    replica: Replica,
    connection: memcached::Connection,
}

impl Client {
    fn new() -> Self {
        let replica = Replica::new(Config::with_memory(64 << 20));
        let connection = replica.connect();
        Client { replica, connection }
    }

    /// All responses to this packet, and whether the connection is open.
    fn ask_all(&mut self, packet: &[u8]) -> (Vec<Response>, bool) {
        let (bytes, closed) = self.replica.talk(&mut self.connection, packet);
        (responses(&bytes), !closed)
    }

    /// The only response to this packet.
    fn ask(&mut self, packet: &[u8]) -> Response {
        let (mut all, open) = self.ask_all(packet);
        assert!(open && all.len() == 1, "{all:?}");
        all.remove(0)
    }

    fn status(&mut self, packet: &[u8]) -> u16 {
        self.ask(packet).status
    }
}

#[test]
fn an_item_is_stored_read_and_removed() {
    let mut client = Client::new();
    let stored = client.ask(&set(0x01, 0, b"a key", 0xdead_beef, 0, b"a value\r\n"));
    assert_eq!((stored.opcode, stored.status, stored.value.len()), (0x01, OK, 0));
    assert_ne!(stored.unique, 0);
    for (opcode, key) in [(0x00, &b""[..]), (0x09, b""), (0x0c, b"a key"), (0x0d, b"a key")] {
        let read = client.ask(&packet(opcode, 0, b"", b"a key", b""));
        let extras = 0xdead_beefu32.to_be_bytes().to_vec();
        let (key, value, unique) = (key.to_vec(), b"a value\r\n".to_vec(), stored.unique);
        assert_eq!(read, Response { opcode, status: OK, unique, extras, key, value });
    }
    assert_eq!(client.status(&packet(0x04, stored.unique + 1, b"", b"a key", b"")), EXISTS);
    assert_eq!(client.status(&packet(0x04, stored.unique, b"", b"a key", b"")), OK);
    assert_eq!(client.status(&packet(0x04, 0, b"", b"a key", b"")), NOT_FOUND);
    let missed = client.ask(&packet(0x00, 0, b"", b"a key", b""));
    assert_eq!((missed.status, &missed.value[..]), (NOT_FOUND, &b"Not found"[..]));
    let missed = client.ask(&packet(0x0c, 0, b"", b"a key", b""));
    assert_eq!((missed.status, &missed.key[..], missed.value.len()), (NOT_FOUND, &b"a key"[..], 0));
}

#[test]
fn each_mode_has_its_condition() {
    let mut client = Client::new();
    assert_eq!(client.status(&set(0x03, 0, b"k", 0, 0, b"x")), NOT_FOUND, "replace of nothing");
    assert_eq!(client.status(&packet(0x0e, 0, b"", b"k", b"x")), NOT_STORED, "append to nothing");
    assert_eq!(client.status(&packet(0x0f, 0, b"", b"k", b"x")), NOT_STORED, "prepend to nothing");
    assert_eq!(client.status(&set(0x01, 77, b"k", 0, 0, b"x")), NOT_FOUND, "the unique of nothing");
    let added = client.ask(&set(0x02, 0, b"k", 5, 0, b"b"));
    assert_eq!(added.status, OK);
    assert_eq!(client.status(&set(0x02, 0, b"k", 0, 0, b"x")), EXISTS, "add to an item");
    assert_eq!(client.status(&set(0x01, added.unique + 1, b"k", 0, 0, b"x")), EXISTS, "another unique");
    assert_eq!(client.status(&packet(0x0e, added.unique + 1, b"", b"k", b"x")), EXISTS);
    let appended = client.ask(&packet(0x0e, added.unique, b"", b"k", b"c"));
    assert_eq!(appended.status, OK);
    assert_eq!(client.status(&packet(0x0f, 0, b"", b"k", b"a")), OK);
    let read = client.ask(&packet(0x00, 0, b"", b"k", b""));
    assert_eq!((&read.value[..], &read.extras[..]), (&b"abc"[..], &5u32.to_be_bytes()[..]));
    assert_eq!(client.status(&set(0x03, read.unique, b"k", 0, 0, b"new")), OK);
}

#[test]
fn counters_are_created_only_if_the_client_says_so() {
    let mut client = Client::new();
    assert_eq!(client.status(&step(0x05, 0, b"n", 1, 10, u32::MAX)), NOT_FOUND);
    let created = client.ask(&step(0x05, 0, b"n", 1, 10, 0));
    assert_eq!((created.status, &created.value[..]), (OK, &10u64.to_be_bytes()[..]));
    let stepped = client.ask(&step(0x05, created.unique, b"n", 5, 99, u32::MAX));
    assert_eq!(stepped.value, 15u64.to_be_bytes());
    assert_eq!(client.status(&step(0x05, created.unique, b"n", 5, 99, 0)), EXISTS, "an old unique");
    assert_eq!(client.ask(&step(0x06, 0, b"n", 100, 0, 0)).value, 0u64.to_be_bytes());
    let text = client.ask(&packet(0x00, 0, b"", b"n", b""));
    assert_eq!(text.value, b"0 ", "as a line would store it");
    assert_eq!(client.status(&set(0x01, 0, b"n", 0, 0, b"word")), OK);
    let refused = client.ask(&step(0x05, 0, b"n", 1, 0, 0));
    assert_eq!(refused.status, NON_NUMERIC);
    assert_eq!(refused.value, b"Non-numeric server-side value for incr or decr");
}

#[test]
fn quiet_requests_answer_failures_and_hits() {
    let mut client = Client::new();
    for (packet, expected) in [
        (set(0x11, 0, b"k", 0, 0, b"1"), None),
        (set(0x12, 0, b"k", 0, 0, b"1"), Some(EXISTS)),
        (set(0x13, 0, b"none", 0, 0, b"1"), Some(NOT_FOUND)),
        (packet(0x19, 0, b"", b"k", b"2"), None),
        (packet(0x1a, 0, b"", b"none", b"2"), Some(NOT_STORED)),
        (step(0x15, 0, b"k", 1, 0, 0), None),
        (step(0x16, 0, b"none", 1, 0, u32::MAX), Some(NOT_FOUND)),
        (packet(0x09, 0, b"", b"k", b""), Some(OK)),
        (packet(0x09, 0, b"", b"none", b""), None),
        (packet(0x0d, 0, b"", b"none", b""), None),
        (packet(0x1e, 0, &[0; 4], b"k", b""), Some(OK)),
        (packet(0x24, 0, &[0; 4], b"none", b""), None),
        (packet(0x14, 0, b"", b"none", b""), Some(NOT_FOUND)),
        (packet(0x14, 0, b"", b"k", b""), None),
        (packet(0x18, 0, b"", b"", b""), None),
    ] {
        let (all, open) = client.ask_all(&packet);
        let answered: Vec<_> = all.iter().map(|response| (response.opcode, response.status)).collect();
        assert_eq!(answered, Vec::from_iter(expected.map(|status| (packet[1], status))), "{packet:?}");
        assert!(open);
    }
}

#[test]
fn expiry_times_are_those_of_lines() {
    let mut client = Client::new();
    assert_eq!(client.status(&set(0x01, 0, b"k", 9, 10, b"value")), OK);
    let touched = client.ask(&packet(0x1c, 0, &100u32.to_be_bytes(), b"k", b""));
    assert_eq!((touched.status, touched.value.len()), (OK, 0));
    assert_eq!(touched.extras, 9u32.to_be_bytes(), "stock answers with the client flags");
    client.replica.now_us += 50_000_000;
    let read = client.ask(&packet(0x23, 0, &10u32.to_be_bytes(), b"k", b""));
    assert_eq!((&read.key[..], &read.value[..]), (&b"k"[..], &b"value"[..]));
    client.replica.now_us += 11_000_000;
    assert_eq!(client.status(&packet(0x1d, 0, &[0; 4], b"k", b"")), NOT_FOUND);
    assert_eq!(client.status(&set(0x01, 0, b"k", 0, 0, b"value")), OK);
    assert_eq!(client.status(&packet(0x08, 0, &5u32.to_be_bytes(), b"", b"")), OK);
    assert_eq!(client.status(&packet(0x00, 0, b"", b"k", b"")), OK);
    client.replica.now_us += 6_000_000;
    assert_eq!(client.status(&packet(0x00, 0, b"", b"k", b"")), NOT_FOUND);
}

#[test]
fn a_value_beyond_the_limit_removes_the_old_item_and_the_connection_goes_on() {
    let mut client = Client::new();
    let large = vec![b'x'; 2 << 20];
    assert_eq!(client.status(&set(0x01, 0, b"k", 0, 0, b"old")), OK);
    assert_eq!(client.status(&set(0x02, 0, b"k", 0, 0, &large)), TOO_LARGE);
    assert_eq!(client.status(&packet(0x00, 0, b"", b"k", b"")), OK, "only a set removes");
    assert_eq!(client.status(&set(0x01, 0, b"k", 0, 0, &large)), TOO_LARGE);
    assert_eq!(client.status(&packet(0x00, 0, b"", b"k", b"")), NOT_FOUND);
    assert_eq!(client.status(&packet(0x0a, 0, b"", b"", b"")), OK);
}

#[test]
fn statistics_and_the_version_come_in_packets() {
    let mut client = Client::new();
    let version = client.ask(&packet(0x0b, 0, b"", b"", b""));
    assert_eq!(version.value, memcached::protocol::VERSION.as_bytes());
    let (all, _) = client.ask_all(&packet(0x10, 0, b"", b"", b""));
    let (end, lines) = all.split_last().unwrap();
    assert!(end.key.is_empty() && end.value.is_empty());
    assert!(lines.iter().any(|line| line.key == b"curr_items" && line.value == b"0"));
    assert!(lines.iter().all(|line| line.status == OK && !line.key.is_empty()));
    assert_eq!(client.status(&packet(0x10, 0, b"", b"nothing", b"")), NOT_FOUND);
    assert_eq!(client.ask_all(&packet(0x10, 0, b"", b"reset", b"")).0.len(), 1);
}

#[test]
fn a_wrong_packet_is_refused_and_ends_the_connection() {
    for wrong in [
        packet(0x00, 0, b"", b"", b""),
        packet(0x00, 0, b"", b"k", b"value"),
        packet(0x01, 0, b"1234", b"k", b"value"),
        packet(0x05, 0, b"", b"k", b""),
        packet(0x08, 0, b"", b"k", b""),
        packet(0x0a, 0, b"", b"", b"value"),
        packet(0x1c, 0, b"", b"k", b""),
        packet(0x00, 0, b"", &[b'k'; 251], b""),
    ] {
        let (all, open) = Client::new().ask_all(&wrong);
        assert_eq!(all.iter().map(|one| one.status).collect::<Vec<_>>(), [INVALID], "{wrong:?}");
        assert!(!open, "{wrong:?}");
    }
    let mut lengths = packet(0x00, 0, b"", b"key", b"");
    lengths[11] = 2; // a body shorter than its key
    let (all, open) = Client::new().ask_all(&lengths);
    assert_eq!((all[0].status, open), (UNKNOWN, false));

    let mut client = Client::new();
    assert_eq!(client.status(&packet(0x7f, 0, b"extra", b"key", b"value")), UNKNOWN);
    assert_eq!(client.status(&packet(0x0a, 0, b"", b"", b"")), OK, "its body is passed over");
    assert_eq!(client.ask_all(b"get key\r\n"), (Vec::new(), false), "a line in between");
    let quit = client.replica.connect();
    client.connection = quit;
    let (all, open) = client.ask_all(&packet(0x07, 0, b"", b"", b""));
    assert_eq!((all.len(), open), (1, false));
}

#[test]
fn packets_may_be_cut_anywhere_and_need_what_they_say() {
    let stream = [
        set(0x11, 0, b"k", 1, 0, b"value"),
        packet(0x0c, 0, b"", b"k", b""),
        step(0x05, 0, b"n", 1, 41, 0),
        packet(0x0a, 0, b"", b"", b""),
    ]
    .concat();
    let mut whole = Client::new();
    let (expected, _) = whole.ask_all(&stream);
    assert_eq!(expected.len(), 3);
    for cut in 1..stream.len() {
        let mut client = Client::new();
        let (mut pending, mut got) = (Vec::new(), Vec::new());
        for piece in [&stream[..cut], &stream[cut..]] {
            pending.extend_from_slice(piece);
            let (used, bytes, closed) = client.replica.talk_some(&mut client.connection, &pending);
            pending.drain(..used);
            got.extend(responses(&bytes));
            assert!(!closed);
        }
        assert_eq!(got, expected, "cut at {cut}");
    }
    let mut connection = whole.replica.connect();
    assert_eq!(connection.next(&stream[..10]), Progress::NeedMore(24));
    assert_eq!(connection.next(&stream[..24]), Progress::NeedMore(24 + 8 + 1));
    assert_eq!(connection.next(&stream[..33]), Progress::NeedMore(24 + 8 + 1 + 5));
}

/// A request that both protocols have.
#[derive(Clone, Debug)]
enum Op {
    Store(usize, u8, u32, u32, Vec<u8>),
    Get(u8),
    Gat(u8, u32),
    Touch(u8, u32),
    Delete(u8),
    Step(u8, bool, u64),
    Wait(u64),
}

/// The result of a request in words of neither protocol: found, client flags, value.
type Result = (bool, Option<u32>, Option<Vec<u8>>);

fn by_packet(client: &mut Client, op: &Op) -> Result {
    let key = |key: &u8| [b'k', *key];
    let packet = match op {
        Op::Store(mode @ 0..3, k, flags, expiry, value) => {
            set(1 + *mode as u8, 0, &key(k), *flags, *expiry, value)
        }
        Op::Store(mode, k, _, _, value) => packet(0x0b + *mode as u8, 0, b"", &key(k), value),
        Op::Get(k) => packet(0x00, 0, b"", &key(k), b""),
        Op::Gat(k, expiry) => packet(0x1d, 0, &expiry.to_be_bytes(), &key(k), b""),
        Op::Touch(k, expiry) => packet(0x1c, 0, &expiry.to_be_bytes(), &key(k), b""),
        Op::Delete(k) => packet(0x04, 0, b"", &key(k), b""),
        Op::Step(k, up, delta) => step(if *up { 0x05 } else { 0x06 }, 0, &key(k), *delta, 0, u32::MAX),
        Op::Wait(_) => return (true, None, None),
    };
    let got = client.ask(&packet);
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap()).to_string().into_bytes();
    match (op, got.status == OK) {
        (Op::Get(_) | Op::Gat(..), true) => {
            (true, Some(u32::from_be_bytes(got.extras.try_into().unwrap())), Some(got.value))
        }
        (Op::Step(..), true) => (true, None, Some(number(&got.value))),
        (_, found) => (found, None, None),
    }
}

fn by_line(replica: &mut Replica, op: &Op) -> Result {
    const MODES: [&str; 5] = ["set", "add", "replace", "append", "prepend"];
    let key = |key: &u8| String::from_utf8(vec![b'k', *key]).unwrap();
    let line = match op {
        Op::Store(mode, k, flags, expiry, value) => {
            let value = String::from_utf8(value.clone()).unwrap();
            format!("{} {} {flags} {expiry} {}\r\n{value}\r\n", MODES[*mode], key(k), value.len())
        }
        Op::Get(k) => format!("get {}\r\n", key(k)),
        Op::Gat(k, expiry) => format!("gat {expiry} {}\r\n", key(k)),
        Op::Touch(k, expiry) => format!("touch {} {expiry}\r\n", key(k)),
        Op::Delete(k) => format!("delete {}\r\n", key(k)),
        Op::Step(k, up, delta) => format!("{} {} {delta}\r\n", if *up { "incr" } else { "decr" }, key(k)),
        Op::Wait(_) => return (true, None, None),
    };
    let answer = replica.ask(&line);
    let (first, rest) = answer.split_once("\r\n").unwrap();
    let words: Vec<&str> = first.split(' ').collect();
    match words[..] {
        ["VALUE", _, flags, length] => {
            let value = rest.as_bytes()[..length.parse().unwrap()].to_vec();
            (true, Some(flags.parse().unwrap()), Some(value))
        }
        ["STORED" | "TOUCHED" | "DELETED"] => (true, None, None),
        [number] if number.parse::<u64>().is_ok() => (true, None, Some(number.as_bytes().to_vec())),
        _ => (false, None, None),
    }
}

fn op() -> impl Strategy<Value = Op> {
    let key = || b'a'..b'e';
    let expiry = || prop_oneof![Just(0u32), 1u32..5, Just(1_000_000_000), Just(1_700_000_003)];
    let value = prop_oneof!["[0-9]{1,21}", "[a-z]{0,40}"].prop_map(String::into_bytes);
    prop_oneof![
        4 => (0usize..5, key(), any::<u32>(), expiry(), value)
            .prop_map(|(mode, key, flags, expiry, value)| Op::Store(mode, key, flags, expiry, value)),
        3 => key().prop_map(Op::Get),
        1 => (key(), expiry()).prop_map(|(key, expiry)| Op::Gat(key, expiry)),
        1 => (key(), expiry()).prop_map(|(key, expiry)| Op::Touch(key, expiry)),
        1 => key().prop_map(Op::Delete),
        3 => (key(), any::<bool>(), prop_oneof![0u64..10, any::<u64>()])
            .prop_map(|(key, up, delta)| Op::Step(key, up, delta)),
        1 => (1u64..3_000).prop_map(Op::Wait),
    ]
}

proptest! {
    #[test]
    fn packets_do_what_lines_of_the_same_meaning_do(ops in prop::collection::vec(op(), 1..80)) {
        let mut client = Client::new();
        let mut lines = Replica::new(Config::with_memory(64 << 20));
        for op in &ops {
            if let Op::Wait(ms) = op {
                client.replica.now_us += ms * 1_000;
                lines.now_us += ms * 1_000;
            }
            prop_assert_eq!(by_packet(&mut client, op), by_line(&mut lines, op), "{:?}", op);
        }
        client.replica.audit();
    }
}
