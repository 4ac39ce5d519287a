//! Clients that send large requests, send slowly, or do not read: their holding is bounded, and others are served.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::*;
use crate::service::{Action, Progress};

const KB: usize = 1 << 10;
/// Memory for clients: 256 KiB for replies to those with a small holding, 384 KiB to the others (and one of more than
/// 192 KiB in addition), 320 KiB for long requests.
const MEMORY: usize = 1 << 20;

/// `LENGTH EXPECTED` and a line end, then so many bytes: a request whose reply is expected to have so many KiB.
#[derive(Clone, PartialEq, Default)]
struct Blocks {
    expected: usize,
}

impl Protocol for Blocks {
    fn next(&mut self, input: &[u8]) -> Progress {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return Progress::NeedMore(input.len() + 1);
        };
        let line = String::from_utf8_lossy(&input[..end]).into_owned();
        let (length, expected) = line.split_once(' ').unwrap_or(("0", "0"));
        let whole = end + 1 + length.parse::<usize>().unwrap_or(0);
        if input.len() < whole {
            return Progress::NeedMore(whole);
        }
        self.expected = expected.parse::<usize>().unwrap_or(0) * KB;
        Progress::Done { used: whole, action: Action::Order(input[..whole].to_vec()) }
    }

    fn reply_bytes(&self) -> usize {
        self.expected
    }
}

/// A client side that is stepped: it receives no event, and checks its connections with every tick.
struct Side {
    clients: Clients<Blocks>,
    address: SocketAddr,
    counters: Arc<ClientCounters>,
    submissions: Vec<Submission>,
    _poll: mio::Poll,
}

fn side(idle: Option<Duration>) -> Side {
    let poll = mio::Poll::new().unwrap();
    let counters = Arc::new(ClientCounters::default());
    let bounds =
        Bounds { connections: 400, request: MEMORY, twice: true, shares: Shares::of(MEMORY, 1), idle };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let registry = poll.registry().try_clone().unwrap();
    let make: MakeProtocol<Blocks> = Arc::new(|_| Blocks::default());
    let acceptor = Acceptor::bind(any).unwrap();
    let address = acceptor.listener().local_addr().unwrap();
    let clients =
        Clients::new(registry, Some(acceptor), (0, &ExcessRights::default()), make, counters.clone(), bounds)
            .unwrap();
    Side { clients, address, counters, submissions: Vec::new(), _poll: poll }
}

impl Side {
    fn connect(&mut self) -> TcpStream {
        let open = self.counters.open();
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        self.until("the connection is accepted", |side| side.counters.open() > open);
        stream
    }

    fn tick(&mut self) {
        self.clients.tick(&mut self.submissions);
        self.clients.read_on(&mut self.submissions);
        self.clients.flush();
        assert_eq!(self.counters.own_faults.load(Relaxed), 0, "what is counted is what is held");
    }

    fn ticks(&mut self, count: usize) {
        (0..count).for_each(|_| self.tick());
    }

    fn until(&mut self, what: &str, done: impl Fn(&Side) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.tick();
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "never: {what}; {} held, {} wait, {} closed",
                self.held(),
                self.clients.budget.waiting(),
                self.counters.evicted.load(Relaxed)
            );
        }
    }

    /// Every request that has come gets a reply of so many bytes.
    fn reply(&mut self, bytes: usize) {
        for Submission { to, request, .. } in std::mem::take(&mut self.submissions) {
            let (request_checksum, bytes) = (request.checksum, bytes::Bytes::from(vec![b'x'; bytes]));
            let voted = Some(vote::digest::reply(request_checksum, &bytes));
            self.clients.answer(to, Some(Reply { request_checksum, bytes, voted }));
        }
        self.clients.flush();
    }

    fn held(&self) -> usize {
        self.clients.budget.held()
    }

    /// A client with a small request gets its reply although others wait.
    fn assert_serves(&mut self) {
        let mut small = self.connect();
        small.write_all(b"5 0\nsmall").unwrap();
        let is_its = |one: &Submission| one.request.bytes.ends_with(b"small");
        self.until("a small request is served", |side| side.submissions.iter().any(is_its));
        let (its, others) = std::mem::take(&mut self.submissions).into_iter().partition(is_its);
        self.submissions = its;
        self.reply(3);
        self.submissions = others;
        small.read_exact(&mut [0; 3]).unwrap();
    }
}

const PATIENCE: usize = (limits::ROOM_PATIENCE.as_millis() / limits::TICK.as_millis()) as usize;

#[test]
fn requests_with_long_replies_wait_for_one_another_and_not_the_others_for_them() {
    let mut side = side(None);
    let mut greedy: Vec<TcpStream> = (0..20).map(|_| side.connect()).collect();
    greedy.iter_mut().for_each(|client| client.write_all(b"0 200\n").unwrap());
    side.ticks(50);
    assert_eq!(side.submissions.len(), 1, "a single one costs more than may be in execution");
    assert_eq!(side.clients.budget.waiting(), 19);
    side.assert_serves();
    for served in 1..=20 {
        side.until("the next one is let in", |side| side.submissions.len() == 1);
        side.reply(200 * KB);
        let mut reply = vec![0; 200 * KB];
        let read = greedy.iter_mut().any(|client| {
            client.set_nonblocking(true).unwrap();
            let waits = client.peek(&mut [0]).is_ok();
            client.set_nonblocking(false).unwrap();
            waits && {
                side.ticks(20);
                client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                let mut got = 0;
                while got < reply.len() {
                    got += client.read(&mut reply[got..]).unwrap_or(0);
                    side.tick();
                }
                true
            }
        });
        assert!(read, "reply {served}");
    }
    assert_eq!(side.counters.evicted.load(Relaxed), 0, "nobody was slow");
    side.ticks(10);
    assert_eq!(side.held(), 0);
}

#[test]
fn a_connection_that_does_not_read_is_asked_for_no_more_than_its_share() {
    let mut side = side(None);
    let mut client = side.connect();
    client.write_all(&b"0 16\n".repeat(500)).unwrap();
    for _ in 0..40 {
        side.ticks(3);
        side.reply(16 * KB);
        assert!(side.held() < MEMORY / 2, "{}", side.held());
    }
    side.assert_serves();
    assert_eq!(side.counters.evicted.load(Relaxed), 0, "nobody waits for its budget");
}

#[test]
fn half_sent_requests_hold_what_there_is_and_are_closed_when_others_want_it() {
    let mut side = side(None);
    let mut slow: Vec<TcpStream> = (0..100).map(|_| side.connect()).collect();
    for client in &mut slow {
        client.write_all(b"100000 0\n").unwrap();
        client.write_all(&vec![b'x'; 20_000]).unwrap();
    }
    let one = 2 * (100_000 - limits::KEPT_INPUT);
    side.until("what there is budget for is read", |side| side.held() >= one);
    side.ticks(PATIENCE / 2);
    assert!(side.held() <= MEMORY + 100 * 2 * limits::READ_CHUNK, "{}", side.held());
    side.assert_serves();
    // An honest client with a long request waits behind them, but not for ever.
    let mut honest = side.connect();
    let text = [b"200000 0\n".as_slice(), &vec![b'y'; 200_000]].concat();
    let writer = std::thread::spawn(move || honest.write_all(&text).map(|()| honest));
    side.until("it is served", |side| side.submissions.iter().any(|one| one.request.bytes.len() > 200_000));
    assert!(side.counters.evicted.load(Relaxed) > 0);
    side.reply(2);
    writer.join().unwrap().unwrap().read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn slow_readers_lose_their_connection_only_when_others_wait_for_their_room() {
    let mut side = side(None);
    // Buffers of a fixed size at both ends. The kernel lets others grow while the test runs, takes more replies, and so
    // makes room for the honest client without closing a slow one's connection.
    SockRef::from(side.clients.acceptor.as_ref().unwrap().listener()).set_send_buffer_size(64 * KB).unwrap();
    let mut slow = Vec::new();
    add_slow_readers(&mut side, &mut slow, 3);
    for _ in 0..300 {
        side.tick();
        side.reply(SLOW);
    }
    let open = side.counters.open();
    side.ticks(4 * PATIENCE);
    assert_eq!((side.counters.open(), side.counters.evicted.load(Relaxed)), (open, 0));
    let held = side.held();
    assert!(held > 0 && held <= MEMORY, "{held}");
    // More of them, until those whose sockets are full leave no budget for the honest one.
    add_slow_readers(&mut side, &mut slow, 9);
    side.reply(SLOW);
    let begun = Instant::now();
    while side.clients.budget.may_send(HONEST, 0) {
        side.tick();
        side.reply(SLOW);
        assert!(begun.elapsed() < Duration::from_secs(20), "{} held", side.held());
    }
    let mut honest = side.connect();
    honest.write_all(b"0 150\n").unwrap();
    let is_its = |one: &Submission| one.to.cost as usize > HONEST;
    let begun = Instant::now();
    while !side.submissions.iter().any(is_its) {
        // The slow clients' remaining requests are answered: only the clients do not read the replies.
        side.reply(SLOW);
        side.tick();
        assert!(begun.elapsed() < Duration::from_secs(20), "{} held", side.held());
    }
    assert!(side.counters.evicted.load(Relaxed) > 0, "{} held", side.held());
    side.assert_serves();
}

/// The bytes of the honest client's reply among slow readers.
const HONEST: usize = 150 * KB;

/// The bytes of a slow reader's reply: its connection has a large holding with one of them, and no budget for two.
const SLOW: usize = 70 * KB;

/// Connects so many clients with more requests than the sockets' buffers hold replies; they read none.
fn add_slow_readers(side: &mut Side, slow: &mut Vec<TcpStream>, count: usize) {
    for _ in 0..count {
        let mut client = connect_slow(side);
        client.write_all(&b"0 70\n".repeat(100)).unwrap();
        slow.push(client);
    }
}

#[test]
fn a_silent_connection_is_closed_after_its_time_and_one_that_waits_is_not() {
    let mut side = side(Some(20 * limits::TICK));
    let (mut silent, mut waits) = (side.connect(), side.connect());
    waits.write_all(b"1 0\nx").unwrap();
    side.until("its request is on its way", |side| side.submissions.len() == 1);
    side.ticks(100);
    assert_eq!((side.counters.open(), side.counters.idle.load(Relaxed)), (1, 1));
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    side.reply(2);
    waits.read_exact(&mut [0; 2]).unwrap();
    side.ticks(100);
    assert_eq!(side.counters.idle.load(Relaxed), 2);
}

/// Reads the bytes that have come to these clients.
fn take_all(clients: &mut [TcpStream], got: &mut [usize]) {
    let mut buffer = vec![0; 1 << 20];
    for (client, got) in clients.iter_mut().zip(got) {
        client.set_nonblocking(true).unwrap();
        while let Ok(read @ 1..) = client.read(&mut buffer) {
            *got += read;
        }
        client.set_nonblocking(false).unwrap();
    }
}

/// Honest clients that send many small requests at once and read all replies. Their input that is read ahead must not
/// take the budget that their requests wait for.
#[test]
fn clients_that_send_far_ahead_are_all_served() {
    for (memory, count, each) in [(MEMORY, 12, 9000), (64 << 20, 380, 2500)] {
        let mut side = side(None);
        side.clients.bounds.shares = Shares::of(memory, 1);
        side.clients.budget = Budget::new(side.clients.bounds.shares, ExcessRights::default().of_thread(0));
        let mut clients: Vec<TcpStream> = (0..count).map(|_| side.connect()).collect();
        let mut got = vec![0; count];
        // A few requests first: from then on more is read at once.
        for (part, all) in [(8, 8), (each, 8 + each)] {
            clients.iter_mut().for_each(|client| client.write_all(&b"0 1\n".repeat(part)).unwrap());
            let begun = Instant::now();
            while got.iter().any(|got| *got < all * KB) {
                side.tick();
                assert!(side.held() <= memory + count * 2 * limits::KEPT_INPUT, "{} held", side.held());
                side.reply(KB);
                take_all(&mut clients, &mut got);
                let (held, waiting) = (side.held(), side.clients.budget.waiting());
                assert!(begun.elapsed() < Duration::from_secs(60), "{held} held, {waiting} wait, {got:?}");
            }
        }
        assert_eq!(side.counters.evicted.load(Relaxed), 0, "nobody was slow");
    }
}

/// A client that has sent many requests and the beginning of another keeps no budget that others could use.
#[test]
fn what_was_read_ahead_is_given_back_when_it_is_served() {
    let mut side = side(None);
    let mut clients: Vec<TcpStream> = (0..30).map(|_| side.connect()).collect();
    let mut got = vec![0; clients.len()];
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| client.write_all(&b"0 0\n".repeat(2000)).unwrap());
        for _ in 0..40 {
            side.tick();
            side.reply(1);
            take_all(&mut clients, &mut got);
        }
    }
    clients.iter_mut().for_each(|client| client.write_all(b"0 0").unwrap());
    side.ticks(60);
    assert!(got.iter().all(|got| *got == 6000), "{got:?}");
    assert_eq!(side.held(), 0);
}

/// A client that reads its replies in small pieces.
fn connect_slow(side: &mut Side) -> TcpStream {
    let open = side.counters.open();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(64 * KB).unwrap();
    socket.connect(&side.address.into()).unwrap();
    side.until("the connection is accepted", |side| side.counters.open() > open);
    socket.into()
}

/// Reads a few bytes, if there are any.
fn take_some(client: &mut TcpStream) {
    client.set_nonblocking(true).unwrap();
    let _ = client.read(&mut [0; 16 * KB]);
    client.set_nonblocking(false).unwrap();
}

/// The effect of the defaults: one reader holds its whole share, another one gets 60 MB, both read 640 KB a second,
/// which is too fast for their connections to be closed, and a third one requests 60 MB as well. Clients that request 5
/// bytes or 20 KB wait for none of them.
#[test]
fn who_asks_for_less_does_not_wait_for_slow_readers_of_more() {
    let mut side = side(None);
    side.clients.bounds.shares = Shares::of(64 << 20, 1);
    side.clients.budget = Budget::new(side.clients.bounds.shares, ExcessRights::default().of_thread(0));
    let mut others = [side.connect(), side.connect()];
    let mut holder = connect_slow(&mut side);
    holder.write_all(&b"0 12\n".repeat(3000)).unwrap();
    let begun = Instant::now();
    while side.held() < (4 << 20) - 12 * KB {
        side.tick();
        side.reply(12 * KB);
        assert!(begun.elapsed() < Duration::from_secs(20), "{} held", side.held());
    }
    let mut greedy = [connect_slow(&mut side), connect_slow(&mut side)];
    let is_long = |one: &Submission| one.to.cost as usize > 60_000 * KB;
    greedy[0].write_all(b"0 60000\n").unwrap();
    side.until("the first long one is let in", |side| side.submissions.iter().any(is_long));
    let (long, short) = std::mem::take(&mut side.submissions).into_iter().partition(is_long);
    side.submissions = short;
    side.reply(12 * KB);
    side.submissions = long;
    side.reply(60_000 * KB);
    greedy[1].write_all(b"0 60000\n").unwrap();
    let mut steps = |side: &mut Side, count: usize| {
        for _ in 0..count {
            take_some(&mut holder);
            take_some(&mut greedy[0]);
            // The kernel's timers affect how much is read.
            std::thread::sleep(limits::TICK);
            side.tick();
        }
    };
    steps(&mut side, 20);
    let requests = [(&b"5 0\nsmall"[..], 3), (&b"5 20\nlarge"[..], 20 * KB)];
    for (other, (request, length)) in others.iter_mut().zip(requests) {
        other.write_all(request).unwrap();
        steps(&mut side, 20);
        assert!(!side.submissions.iter().any(is_long), "the second long one waits");
        let is_its = |one: &Submission| one.request.bytes[..] == *request;
        let (its, others) = std::mem::take(&mut side.submissions).into_iter().partition::<Vec<_>, _>(is_its);
        assert_eq!(its.len(), 1, "{}", String::from_utf8_lossy(request));
        side.submissions = its;
        side.reply(length);
        side.submissions = others;
        other.read_exact(&mut vec![0; length]).unwrap();
    }
    assert_eq!(side.counters.evicted.load(Relaxed), 0);
}

/// A fault hits a counter of the budget or of a connection: its own replica detects it, before a client waits for ever.
#[test]
fn corruption_in_the_count_of_room_is_noticed() {
    type FaultFunction = fn(&mut Clients<Blocks>);
    let faults: [(&str, FaultFunction); 6] = [
        ("share", |clients| clients.connections[0].connection.as_mut().unwrap().inject_fault(1 << 16, 0, 0)),
        ("on its way", |clients| {
            clients.connections[0].connection.as_mut().unwrap().inject_fault(0, 1 << 40, 0)
        }),
        ("chunk", |clients| clients.connections[0].connection.as_mut().unwrap().inject_fault(0, 0, 1 << 12)),
        ("shares", |clients| clients.bounds.shares.connection ^= 1 << 20),
        ("the budget's shares", |clients| {
            clients.budget = Budget::new(Shares::of(1 << 30, 1), ExcessRights::default().of_thread(0))
        }),
        ("queue", |clients| {
            clients.budget.dequeue(Wait::Large, 0);
        }),
    ];
    for (what, inject) in faults {
        let mut side = side(None);
        let _idle = side.connect();
        let mut waits: Vec<TcpStream> = (0..2).map(|_| side.connect()).collect();
        waits.iter_mut().for_each(|client| client.write_all(b"0 150\n").unwrap());
        side.until("one is on its way, and one waits", |side| side.clients.budget.waiting() == 1);
        inject(&mut side.clients);
        let is_noticed = (0..100).any(|_| {
            side.clients.tick(&mut side.submissions);
            side.counters.own_faults.load(Relaxed) > 0
        });
        assert!(is_noticed, "{what}");
    }
}

/// The negative control: without the bounds, the holdings in the tests above would be many times larger.
#[test]
fn without_shares_everything_is_held() {
    let mut side = side(None);
    side.clients.bounds.shares = Shares::of(1 << 30, 1);
    side.clients.budget = Budget::new(Shares::of(1 << 30, 1), ExcessRights::default().of_thread(0));
    let mut client = side.connect();
    client.write_all(&b"0 16\n".repeat(500)).unwrap();
    for _ in 0..40 {
        side.ticks(3);
        side.reply(16 * KB);
    }
    assert!(side.held() > 2 * MEMORY, "{}", side.held());
}

/// A replica that stops waits neither for the rest of long requests, whether there is budget for it or not, nor for its
/// turn to look at many connections that are at rest.
#[test]
fn who_stops_waits_only_for_requests_that_were_read() {
    let mut side = side(None);
    let resting: Vec<TcpStream> = (0..200).map(|_| side.connect()).collect();
    let mut half: Vec<TcpStream> = (0..20).map(|_| side.connect()).collect();
    for client in &mut half {
        client.write_all(b"100000 0\n").unwrap();
        client.write_all(&vec![b'x'; 20_000]).unwrap();
    }
    let mut asks = side.connect();
    asks.write_all(b"1 0\nx").unwrap();
    side.until("some wait for budget, and one for its reply", |side| {
        side.clients.budget.waiting() > 0 && side.submissions.len() == 1
    });
    side.clients.drain(&mut side.submissions);
    let unanswered = |side: &Side| side.counters.threads()[0].unanswered.load(Relaxed);
    assert_eq!(unanswered(&side), 1);
    for client in &mut half {
        assert_eq!(
            client.read(&mut [0]).unwrap(),
            0,
            "a request that was not read to its end is not waited for"
        );
    }
    side.ticks(8);
    assert_eq!((side.counters.open(), unanswered(&side)), (21, 1), "those at rest are closed at once");
    side.reply(2);
    side.tick();
    asks.read_exact(&mut [0; 2]).unwrap();
    assert_eq!((asks.read(&mut [0]).unwrap(), unanswered(&side)), (0, 0));
    drop((half, asks, resting));
    side.until("all are closed", |side| side.counters.open() == 0);
}
