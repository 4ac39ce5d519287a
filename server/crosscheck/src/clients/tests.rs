//! The client side over real sockets: replies in request order, half-closed and slow clients, limits.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;

use super::thread::ThreadInput;
use super::*;
use crate::mailbox::Mailbox;
use crate::replica::Frontend;
use crate::service::{Action, Progress};

/// One request a line: `now X` is answered locally, `end` closes, everything else is ordered.
#[derive(Clone, PartialEq)]
pub(super) struct Lines;

impl Protocol for Lines {
    fn next(&mut self, input: &[u8]) -> Progress {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return Progress::NeedMore(input.len() + 1);
        };
        let line = &input[..end];
        let action = match line {
            b"" => Action::Nothing,
            b"end" => Action::Close(b"bye\n".to_vec()),
            _ if line.starts_with(b"now ") => Action::Reply([&line[4..], b"\n"].concat()),
            _ => Action::Order(line.to_vec()),
        };
        Progress::Done { used: end + 1, action }
    }
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) threads: Vec<Mailbox<ThreadInput>>,
    pub(super) submitted: mpsc::Receiver<Submission>,
    pub(super) counters: Arc<ClientCounters>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.threads.iter().for_each(|thread| thread.send(ThreadInput::Stop));
    }
}

pub(super) fn bounds(connections: usize, twice: bool) -> Bounds {
    Bounds { connections, request: 1 << 20, twice, shares: Shares::of(64 << 20, 1), idle: None }
}

pub(super) fn serve(connections: usize) -> Server {
    serve_on(1, connections)
}

pub(super) fn serve_on(threads: usize, connections: usize) -> Server {
    let counters = Arc::new(ClientCounters::with_threads(threads));
    serve_with(Arc::new(|_| Lines), bounds(connections, true), counters)
}

/// Clients speak TLS.
pub(super) fn serve_tls(tls: Arc<ClientTls>, bounds: Bounds) -> Server {
    serve_over(Arc::new(|_| Lines), bounds, Arc::default(), Some(tls))
}

pub(super) fn serve_with<P: Protocol>(
    make: MakeProtocol<P>,
    bounds: Bounds,
    counters: Arc<ClientCounters>,
) -> Server {
    serve_over(make, bounds, counters, None)
}

pub(super) fn serve_over<P: Protocol>(
    make: MakeProtocol<P>,
    bounds: Bounds,
    counters: Arc<ClientCounters>,
    tls: Option<Arc<ClientTls>>,
) -> Server {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (sender, submitted) = mpsc::channel();
    let acceptor = Acceptor::bind(any).unwrap().refuses_for::<P>(tls.is_some());
    let address = acceptor.listener().local_addr().unwrap();
    let (mut acceptor, excess) = (Some(acceptor), ExcessRights::default());
    let submit = move |batch: &mut Vec<Submission>| {
        batch.drain(..).for_each(|submission| drop(sender.send(submission)));
    };
    let front = crate::open_clients(None, counters.threads().len(), submit, |registry, thread, others| {
        let acceptor = acceptor.take().map(|acceptor| acceptor.deals_out_to(others));
        let clients =
            Clients::new(registry, acceptor, (thread, &excess), make.clone(), counters.clone(), bounds)?;
        Ok(clients.speaks(tls.clone()))
    });
    let Ok(Frontend::Threads(threads)) = front else { panic!("they are threads") };
    Server { address, threads, submitted, counters }
}

impl Submission {
    /// The answer with these bytes.
    pub(super) fn answered(&self, bytes: impl Into<Bytes>) -> ThreadInput {
        let (request_checksum, bytes) = (self.request.checksum, bytes.into());
        let voted = Some(vote::digest::reply(request_checksum, &bytes));
        ThreadInput::Reply(self.to, Reply { request_checksum, bytes, voted })
    }
}

impl Server {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends an answer to the thread that has the connection.
    pub(super) fn send(&self, answer: ThreadInput) {
        let (ThreadInput::Reply(to, _) | ThreadInput::Drop(to)) = &answer else { panic!("it is an answer") };
        self.threads[to.thread(self.threads.len())].send(answer);
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    pub(super) fn take(&self) -> Submission {
        self.submitted.recv_timeout(Duration::from_secs(10)).expect("a request arrives")
    }
}

/// Waits until something has come.
pub(super) fn until(what: &str, mut has_come: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !has_come() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn read_exactly(stream: &mut impl Read, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(expected));
}

#[test]
fn replies_leave_in_the_order_of_the_requests_whatever_order_they_come_in() {
    let server = serve(10);
    let mut client = server.connect();
    client.write_all(b"one\nnow two\nthree\n").unwrap();
    let (one, three) = (server.take(), server.take());
    assert!(one.request.is_intact() && &one.request.bytes[..] == b"one");
    server.send(three.answered(Bytes::from_static(b"3\n")));
    server.send(one.answered(Bytes::from_static(b"1\n")));
    read_exactly(&mut client, b"1\ntwo\n3\n");
}

#[test]
fn clients_are_dealt_out_to_the_threads_and_each_gets_its_own_replies() {
    let server = serve_on(3, 7);
    let mut clients: Vec<TcpStream> = (0..7).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(format!("{number}\n").as_bytes()).unwrap();
    }
    let requests: Vec<Submission> = clients.iter().map(|_| server.take()).collect();
    let slots: std::collections::BTreeSet<u32> = requests.iter().map(|request| request.to.slot).collect();
    assert_eq!(slots.len(), 7, "no two connections have one number");
    let open = || -> Vec<u64> { server.counters.threads().iter().map(ThreadCounters::open).collect() };
    assert_eq!(open(), [3, 2, 2], "each has sent a request, so that it was adopted");
    // The limit is on all of them together.
    let mut refused = Vec::new();
    server.connect().read_to_end(&mut refused).unwrap();
    assert_eq!(refused, b"ERROR Too many open connections\r\n");
    for request in requests {
        server.send(request.answered([&request.request.bytes[..], b" done\n"].concat()));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        read_exactly(client, format!("{number} done\n").as_bytes());
    }
    // The thread with the fewest gets the next one.
    let of_second = slot_of(&server, &mut clients[1]);
    clients.remove(1);
    while server.counters.sum(|thread| &thread.closed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(slot_of(&server, &mut server.connect()) % 3, of_second % 3);
}

/// The number of the slot from which a request of this client comes.
fn slot_of(server: &Server, client: &mut TcpStream) -> u32 {
    client.write_all(b"which\n").unwrap();
    let submission = server.take();
    server.send(submission.answered("it\n"));
    read_exactly(client, b"it\n");
    submission.to.slot
}

#[test]
fn a_half_closed_client_gets_its_last_reply() {
    let server = serve(10);
    let mut client = server.connect();
    client.write_all(b"last").unwrap();
    client.write_all(b"\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let last = server.take();
    std::thread::sleep(Duration::from_millis(20));
    server.send(last.answered(Bytes::from_static(b"done\n")));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"done\n");
}

#[test]
fn a_reply_that_cannot_be_had_closes_the_connection_without_a_byte_of_it() {
    let server = serve(10);
    let mut client = server.connect();
    client.write_all(b"one\ntwo\n").unwrap();
    let (one, two) = (server.take(), server.take());
    server.send(ThreadInput::Drop(two.to));
    server.send(one.answered(Bytes::from_static(b"1\n")));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"1\n");
}

#[test]
fn a_reply_to_another_request_closes_the_connection_without_a_byte_of_it() {
    let server = serve(10);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.write_all(b"one\n").unwrap();
    let one = server.take();
    second.write_all(b"two\n").unwrap();
    let two = server.take();
    // The order thread has exchanged the places of `one` and `two`: the reply is right for its position, but goes to
    // the wrong client.
    let mistaken = Submission { number: 0, to: one.to, request: two.request.clone() };
    server.send(mistaken.answered(b"2\n".as_slice()));
    server.send(two.answered(b"2\n".as_slice()));
    let mut rest = Vec::new();
    first.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    read_exactly(&mut second, b"2\n");
}

#[test]
fn a_reply_that_comes_to_the_wrong_thread_leaves_on_no_connection() {
    let server = serve_on(2, 7);
    let mut clients = [server.connect(), server.connect()];
    // The first request of the first connection of each thread: only the numbers of the slots differ.
    let [first, second] = clients.each_mut().map(|client| {
        client.write_all(b"same\n").unwrap();
        server.take()
    });
    assert_eq!(second.to, ReplyTo { slot: second.to.slot, ..first.to });
    assert_ne!(first.to.thread(2), second.to.thread(2));
    server.threads[second.to.thread(2)].send(first.answered("for the first\n"));
    server.send(second.answered("2\n"));
    server.send(first.answered("1\n"));
    read_exactly(&mut clients[1], b"2\n");
    read_exactly(&mut clients[0], b"1\n");
}

#[test]
fn a_late_reply_to_a_gone_client_reaches_nobody_else() {
    let server = serve(10);
    let mut gone = server.connect();
    gone.write_all(b"one\n").unwrap();
    let one = server.take();
    // A reset, not an orderly end: after that a client might still read.
    socket2::SockRef::from(&gone).set_linger(Some(Duration::ZERO)).unwrap();
    drop(gone);
    let closed = (0..5000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        server.counters.open() == 0
    });
    assert!(closed, "a reset connection is closed");
    let mut next = server.connect();
    next.write_all(b"two\n").unwrap();
    let two = server.take();
    assert_eq!(one.to.slot, two.to.slot, "the slot is used again");
    server.send(one.answered(Bytes::from_static(b"for another\n")));
    server.send(two.answered(Bytes::from_static(b"2\n")));
    read_exactly(&mut next, b"2\n");
}

#[test]
fn a_client_too_many_is_reported_and_refused() {
    let server = serve(1);
    let mut first = server.connect();
    first.write_all(b"now a\n").unwrap();
    read_exactly(&mut first, b"a\n");
    let mut second = server.connect();
    let mut reported = Vec::new();
    second.read_to_end(&mut reported).unwrap();
    assert_eq!(reported, b"ERROR Too many open connections\r\n");
    assert_eq!(server.counters.refused.load(Relaxed), 1);
}

#[test]
fn a_burst_of_connections_waits_to_be_accepted() {
    let not_accepting = accepting::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = not_accepting.local_addr().unwrap();
    // More than the standard library's queue of 128, and few enough for the usual limit of open files.
    let connect =
        |_| TcpStream::connect_timeout(&address, Duration::from_secs(5)).expect("a place in the queue");
    let burst: Vec<TcpStream> = (0..300).map(connect).collect();
    assert_eq!(burst.len(), 300);
}

#[test]
fn a_client_that_does_not_read_is_not_read_from_and_loses_nothing() {
    let server = serve(10);
    let mut client = server.connect();
    // 64 MiB of local replies: far beyond what the connection may hold unsent.
    let line = [b"now ".as_slice(), &[b'x'; 64 * 1024], b"\n"].concat();
    let mut writer = client.try_clone().unwrap();
    let sender = std::thread::spawn(move || (0..1024).try_for_each(|_| writer.write_all(&line)));
    std::thread::sleep(Duration::from_millis(200));
    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    while received < 1024 * (64 * 1024 + 1) {
        let read = client.read(&mut buffer).unwrap();
        assert!(read > 0, "closed after {received} bytes");
        received += read;
    }
    sender.join().unwrap().unwrap();
}

#[test]
fn many_pipelined_requests_beyond_the_limit_are_all_answered() {
    let server = serve(10);
    let mut client = server.connect();
    let count = 3 * limits::PIPELINED_PER_CONNECTION;
    let requests: Vec<u8> = (0..count).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    client.write_all(&requests).unwrap();
    for n in 0..count {
        let submission = server.take();
        assert_eq!(&submission.request.bytes[..], n.to_string().as_bytes());
        server.send(submission.answered(Bytes::from(format!("{n}\n"))));
    }
    read_exactly(&mut client, &requests);
}

#[test]
fn a_reply_that_is_not_what_was_voted_on_does_not_leave() {
    let server = serve(10);
    let mut stream = server.connect();
    stream.write_all(b"right\nwrong\n").unwrap();
    for (bytes, voted) in [("yes\n", "yes\n"), ("yes\n", "no\n")] {
        let submission = server.take();
        let reply = Reply {
            request_checksum: submission.request.checksum,
            bytes: bytes.into(),
            voted: Some(vote::digest::reply(submission.request.checksum, voted.as_bytes())),
        };
        server.send(ThreadInput::Reply(submission.to, reply));
    }
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"yes\n", "the connection is closed instead");
    assert_eq!(server.counters.withheld.load(Relaxed), 1);
}

/// Decodes `flaky` differently each time, and `once` only the first time.
#[derive(Clone, Default)]
struct Flaky(Arc<std::sync::atomic::AtomicU64>);

impl PartialEq for Flaky {
    fn eq(&self, other: &Flaky) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Protocol for Flaky {
    fn next(&mut self, input: &[u8]) -> Progress {
        let progress = Lines.next(input);
        match progress {
            Progress::Done { used, action: Action::Order(line) } if line == b"flaky" || line == b"once" => {
                let times = self.0.fetch_add(1, Relaxed);
                let wrong = line == b"flaky" || times == 0;
                let line = if wrong { format!("wrong {times}").into_bytes() } else { line };
                Progress::Done { used, action: Action::Order(line) }
            }
            progress => progress,
        }
    }
}

/// Refuses every request longer than its limit. One of its copies, the `bad`th, lacks the limit: it was copied wrongly.
#[derive(Debug)]
struct Limited {
    limit: usize,
    bad: u64,
    copies: Arc<std::sync::atomic::AtomicU64>,
}

impl Limited {
    fn new(limit: usize, bad: u64) -> Limited {
        Limited { limit, bad, copies: Arc::default() }
    }
}

impl Clone for Limited {
    fn clone(&self) -> Limited {
        let is_bad = self.copies.fetch_add(1, Relaxed) == self.bad;
        Limited { limit: if is_bad { 0 } else { self.limit }, copies: self.copies.clone(), ..*self }
    }
}

impl PartialEq for Limited {
    fn eq(&self, other: &Limited) -> bool {
        self.limit == other.limit
    }
}

impl Protocol for Limited {
    fn next(&mut self, input: &[u8]) -> Progress {
        match Lines.next(input) {
            Progress::Done { used, action: Action::Order(line) } if line.len() > self.limit => {
                Progress::Done { used, action: Action::Reply(b"too long\n".to_vec()) }
            }
            progress => progress,
        }
    }
}

#[test]
fn a_bad_copy_of_the_protocols_state_decides_nothing() {
    use super::input::{Input, InputStep};
    let next = |bad, twice| Input::of(b"request\n", Limited::new(10, bad)).next(twice);
    for made_for_a_step in 1..=2 {
        assert!(
            matches!(next(made_for_a_step, true), Some(InputStep::Order(8, _))),
            "the second try is right"
        );
    }
    let kept = 0;
    assert!(next(kept, true).is_none());
    assert!(matches!(next(kept, false), Some(InputStep::Reply(..))), "one copy is believed");
}

fn serve_flaky(twice: bool) -> Server {
    let protocol = Flaky::default();
    let make: MakeProtocol<Flaky> = Arc::new(move |_| protocol.clone());
    serve_with(make, bounds(10, twice), Arc::default())
}

#[test]
fn a_request_that_is_read_wrongly_is_not_ordered() {
    let server = serve_flaky(true);
    let mut stream = server.connect();
    stream.write_all(b"sound\nflaky\nnever\n").unwrap();
    let intact = server.take();
    assert_eq!(&intact.request.bytes[..], b"sound");
    server.send(intact.answered("ok\n"));
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"ok\n");
    assert_eq!(server.counters.misread.load(Relaxed), 1);
    assert!(server.submitted.try_recv().is_err(), "nothing behind it is ordered");
}

#[test]
fn a_request_that_is_read_wrongly_once_is_read_again() {
    let server = serve_flaky(true);
    let mut stream = server.connect();
    stream.write_all(b"once\n").unwrap();
    assert_eq!(&server.take().request.bytes[..], b"once");
}

#[test]
fn without_a_second_look_what_was_read_wrongly_is_ordered() {
    let server = serve_flaky(false);
    let mut stream = server.connect();
    stream.write_all(b"once\n").unwrap();
    assert_eq!(&server.take().request.bytes[..], b"wrong 0");
}

/// A client side that receives no event: all progress comes from the checks of ticks.
pub(super) fn unheard() -> (Clients<Lines>, SocketAddr, Arc<ClientCounters>, mio::Poll) {
    let acceptor = Acceptor::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = acceptor.listener().local_addr().unwrap();
    let (clients, counters, poll) = unheard_on(acceptor);
    (clients, address, counters, poll)
}

/// The same, for clients whom this accepts.
pub(super) fn unheard_on(acceptor: Acceptor) -> (Clients<Lines>, Arc<ClientCounters>, mio::Poll) {
    let poll = mio::Poll::new().unwrap();
    let counters = Arc::new(ClientCounters::default());
    let registry = poll.registry().try_clone().unwrap();
    let make: MakeProtocol<Lines> = Arc::new(|_| Lines);
    let thread = (0, &ExcessRights::default());
    let clients =
        Clients::new(registry, Some(acceptor), thread, make, counters.clone(), bounds(10, true)).unwrap();
    (clients, counters, poll)
}

/// Ticks until so many requests have come.
pub(super) fn look_until(clients: &mut Clients<Lines>, submissions: &mut Vec<Submission>, count: usize) {
    let begun = std::time::Instant::now();
    while submissions.len() < count {
        clients.tick(submissions);
        assert!(begun.elapsed() < Duration::from_secs(10), "{} of {count} requests", submissions.len());
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn give(clients: &mut Clients<Lines>, submission: &Submission, bytes: impl Into<Bytes>) {
    let ThreadInput::Reply(to, reply) = submission.answered(bytes) else { panic!("it is a reply") };
    clients.answer(to, Some(reply));
}

#[test]
fn what_no_event_announces_is_found_by_looking() {
    let (mut clients, address, _, _poll) = unheard();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(b"one\n").unwrap();
    let mut submissions = Vec::new();
    look_until(&mut clients, &mut submissions, 1);
    give(&mut clients, &submissions[0], "1\n");
    // The list of connections that have something to send is lost.
    clients.answered.clear();
    clients.tick(&mut submissions);
    read_exactly(&mut client, b"1\n");
    client.write_all(b"t").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    clients.tick(&mut submissions);
    // The number of bytes that the protocol needs is corrupted.
    clients.connections[0].connection.as_mut().unwrap().wants(1 << 40);
    client.write_all(b"wo\n").unwrap();
    look_until(&mut clients, &mut submissions, 2);
    assert_eq!(&submissions[1].request.bytes[..], b"two");
}

#[test]
fn a_lost_reply_ends_its_connection_once_its_vote_must_be_over() {
    let patience = limits::ticks(limits::REPLY_PATIENCE) as usize;
    let (mut clients, address, counters, _poll) = unheard();
    let mut waits = TcpStream::connect(address).unwrap();
    waits.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut submissions = Vec::new();
    counters.committed.store(7, Relaxed);
    counters.validated.store(5, Relaxed);
    waits.write_all(b"lost\n").unwrap();
    look_until(&mut clients, &mut submissions, 1);
    clients.tick(&mut submissions);
    // A committed batch is undecided: this may be correct, for any time.
    counters.committed.store(9, Relaxed);
    counters.validated.store(7, Relaxed);
    (0..3 * patience).for_each(|_| clients.tick(&mut submissions));
    assert_eq!(counters.open(), 1);
    counters.validated.store(8, Relaxed);
    clients.tick(&mut submissions);
    assert_eq!((counters.open(), counters.overdue.load(Relaxed)), (0, 1));
    let mut rest = Vec::new();
    waits.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"", "it is ended without a byte");
}

#[test]
fn a_reply_that_takes_its_time_is_not_overdue_before_its_time() {
    let patience = limits::ticks(limits::REPLY_PATIENCE) as usize;
    let (mut clients, address, counters, _poll) = unheard();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut submissions = Vec::new();
    for (round, reply) in ["1\n", "2\n", "3\n"].into_iter().enumerate() {
        client.write_all(b"next\n").unwrap();
        look_until(&mut clients, &mut submissions, round + 1);
        counters.validated.fetch_add(10, Relaxed);
        (0..patience - 2).for_each(|_| clients.tick(&mut submissions));
        give(&mut clients, &submissions[round], reply);
        clients.flush();
        read_exactly(&mut client, reply.as_bytes());
    }
    assert_eq!((counters.open(), counters.overdue.load(Relaxed)), (1, 0));
}

/// Two connections with a queue of requests each: only one of them gets replies, slowly, and then those to its later
/// requests.
#[test]
fn a_reply_behind_a_long_queue_is_not_overdue_until_later_ones_have_come() {
    let patience = limits::ticks(limits::REPLY_PATIENCE) as usize;
    let (mut clients, address, counters, _poll) = unheard();
    let (mut lost, mut moves) = (TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap());
    let mut submissions = Vec::new();
    lost.write_all(b"lost\n").unwrap();
    look_until(&mut clients, &mut submissions, 1);
    moves.write_all(&b"next\n".repeat(20)).unwrap();
    look_until(&mut clients, &mut submissions, 21);
    // The wait of the first begins with all requests in flight.
    clients.connections[0].connection.as_mut().unwrap().forget_wait();
    counters.validated.store(10, Relaxed);
    let mut give_next = {
        let mut number = 1;
        move |clients: &mut Clients<Lines>, submissions: &mut Vec<Submission>| {
            give(clients, &submissions[number], "x\n");
            clients.flush();
            number += 1;
            (0..patience / 4).for_each(|_| clients.tick(submissions));
        }
    };
    for _ in 0..20 {
        give_next(&mut clients, &mut submissions);
        assert_eq!(counters.overdue.load(Relaxed), 0);
    }
    moves.write_all(b"later\nlater\n").unwrap();
    look_until(&mut clients, &mut submissions, 23);
    give_next(&mut clients, &mut submissions);
    give_next(&mut clients, &mut submissions);
    assert_eq!((counters.open(), counters.overdue.load(Relaxed)), (1, 1));
}

/// A reader as fast as this writer would otherwise keep it for as long as there are bytes to write.
#[test]
fn large_replies_leave_in_turns_and_a_full_socket_is_not_tried_again() {
    let (mut clients, address, counters, mut poll) = unheard();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut submissions = Vec::new();
    client.write_all(&b"next\n".repeat(24)).unwrap();
    look_until(&mut clients, &mut submissions, 24);
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    for submission in &submissions {
        give(&mut clients, submission, large.clone());
    }
    clients.flush();
    let first = counters.sum(|thread| &thread.bytes_out) as usize;
    assert!(first > 0 && first < limits::WRITE_PER_TURN + (2 << 20), "{first}");
    // The client does not read: at some point the socket is full, and there is no more work until an event reports
    // room.
    let begun = std::time::Instant::now();
    while clients.has_unread() {
        clients.flush();
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let full = counters.sum(|thread| &thread.bytes_out);
    let reader = std::thread::spawn(move || client.read_exact(&mut vec![0; 24 << 20]).unwrap());
    let mut events = mio::Events::with_capacity(16);
    while counters.sum(|thread| &thread.bytes_out) < 24 << 20 {
        poll.poll(&mut events, Some(Duration::from_millis(10))).unwrap();
        events.iter().for_each(|event| clients.on_event(event, &mut submissions));
        clients.flush();
        assert!(begun.elapsed() < Duration::from_secs(20), "{full} and no more");
    }
    reader.join().unwrap();
}

/// A connection at its limits has input that no event announces: the replies that left in a turn free budget for it at
/// once.
#[test]
fn a_long_pipeline_of_large_replies_goes_on_without_an_event() {
    let (mut clients, address, counters, _poll) = unheard();
    let mut client = TcpStream::connect(address).unwrap();
    let all = limits::PIPELINED_PER_CONNECTION + 100;
    let large = Bytes::from(vec![b'x'; limits::WRITE_PER_TURN / 8]);
    client.write_all(&b"next\n".repeat(all)).unwrap();
    let mut submissions = Vec::new();
    look_until(&mut clients, &mut submissions, limits::PIPELINED_PER_CONNECTION);
    let mut reader = client.try_clone().unwrap();
    let length = all * large.len();
    let reader = std::thread::spawn(move || {
        std::io::copy(&mut (&mut reader).take(length as u64), &mut std::io::sink())
    });
    let begun = std::time::Instant::now();
    let mut given = 0;
    while given < all {
        assert!(given < submissions.len(), "{given} were answered, and nothing more is asked for");
        for submission in &submissions[given..] {
            give(&mut clients, submission, large.clone());
        }
        given = submissions.len();
        while clients.has_unread() || counters.sum(|thread| &thread.bytes_out) < (given * large.len()) as u64
        {
            clients.flush();
            clients.read_on(&mut submissions);
            // The same as an event after the socket was full.
            clients.unblock(0);
            clients.on_writable(0);
            assert!(begun.elapsed() < Duration::from_secs(60), "{given}");
        }
    }
    assert_eq!(reader.join().unwrap().unwrap(), length as u64);
}

/// V30 in docs/vulnerabilities.md: a corrupted address put a length in place of the descriptor. The connection was
/// closed, its socket was not, and its client waited for ever.
#[test]
fn nothing_goes_through_a_socket_that_was_not_accepted_for_this_client() {
    let (mut clients, address, counters, _poll) = unheard();
    let mut ours = TcpStream::connect(address).unwrap();
    let mut submissions = Vec::new();
    ours.write_all(b"next\n").unwrap();
    look_until(&mut clients, &mut submissions, 1);
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = mio::net::TcpStream::connect(elsewhere.local_addr().unwrap()).unwrap();
    let (mut somebody_else, _) = elsewhere.accept().unwrap();
    let connection = clients.connections[0].connection.as_mut().unwrap();
    let _right_one = connection.has_instead(ClientSocket::from(std::os::fd::OwnedFd::from(theirs)).into());
    give(&mut clients, &submissions[0], "not theirs");
    clients.flush();
    assert!(counters.own_faults.load(Relaxed) > 0);
    // The other socket is neither written to nor closed: its number must not become that of the next client's socket.
    somebody_else.set_nonblocking(true).unwrap();
    assert_eq!(somebody_else.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// The number of faults that the client side finds in itself in a tick, after this fault.
fn own_faults(inject: impl Fn(&mut Clients<Lines>)) -> u64 {
    let (mut clients, address, counters, _poll) = unheard();
    let _client = TcpStream::connect(address).unwrap();
    while counters.open() == 0 {
        clients.tick(&mut Vec::new());
    }
    assert_eq!(counters.own_faults.load(Relaxed), 0);
    inject(&mut clients);
    clients.tick(&mut Vec::new());
    counters.own_faults.load(Relaxed)
}

/// V21 and V24 in docs/vulnerabilities.md: no client was read from any more, and no replica detected it.
#[test]
fn what_keeps_all_clients_out_is_the_replicas_own_fault() {
    assert_eq!(own_faults(|_| ()), 0);
    assert_eq!(own_faults(|clients| clients.scratch.clear()), 1);
    assert_eq!(own_faults(|clients| clients.own().accepted.store(1 << 40, Relaxed)), 1);
    assert_eq!(own_faults(|clients| _ = clients.own().closed.fetch_xor(1, Relaxed)), 1);
    for bit in 0..64 {
        assert_eq!(own_faults(|clients| clients.acceptor.as_mut().unwrap().corrupt(0, bit)), 1, "bit {bit}");
    }
    assert_eq!(own_faults(|clients| clients.outstanding |= 1 << 55), 1);
    assert_eq!(own_faults(|clients| clients.drains.corrupt(|drains| *drains = true)), 1);
    assert_eq!(own_faults(|clients| clients.connections[0].connection.as_mut().unwrap().reads_no_more()), 1);
}

#[test]
fn a_client_side_that_nobody_drives_any_more_is_missed() {
    let patience = limits::ticks(limits::CLIENTS_PATIENCE) as usize;
    let (mut clients, _, counters, _poll) = unheard();
    let mut driven = Driven::default();
    assert!((0..2 * patience).all(|_| driven.looks_so(&counters)), "it has not begun");
    let mut round = |_| {
        clients.tick(&mut Vec::new());
        driven.looks_so(&counters)
    };
    assert!((0..2 * patience).all(&mut round));
    let missed = (0..2 * patience).find(|_| !driven.looks_so(&counters));
    assert_eq!(missed, Some(patience - 1));
}

#[test]
fn one_client_thread_of_two_that_stands_still_is_missed() {
    let patience = limits::ticks(limits::CLIENTS_PATIENCE) as usize;
    let counters = ClientCounters::with_threads(2);
    let mut driven = Driven::default();
    let mut round = |moving: usize| {
        counters.threads()[..moving].iter().for_each(|thread| _ = thread.looks.fetch_add(1, Relaxed));
        driven.looks_so(&counters)
    };
    assert!((0..2 * patience).all(|_| round(2)));
    assert_eq!((0..2 * patience).find(|_| !round(1)), Some(patience - 1));
}
