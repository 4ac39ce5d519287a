//! Replies that come later than the votes on their requests, over real sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::tests::{Server, bounds, read_exactly, serve, serve_with, until};
use super::thread::ThreadInput;
use super::*;

impl Server {
    /// The reply to this request comes later.
    fn owe(&self, submission: &Submission) {
        self.threads[submission.to.thread(self.threads.len())].send(ThreadInput::Owe(submission.to));
    }

    /// A client whose request is owed its reply.
    fn client_that_waits(&self) -> (TcpStream, Submission) {
        let mut client = self.connect();
        client.write_all(b"one\n").unwrap();
        let one = self.take();
        self.owe(&one);
        (client, one)
    }

    /// Now it comes.
    fn answer_owed(&self, submission: &Submission, bytes: &'static [u8]) {
        let ThreadInput::Reply(to, reply) = submission.answered(bytes) else { panic!("it is a reply") };
        self.threads[to.thread(self.threads.len())].send(ThreadInput::Owed(to, Some(reply)));
    }
}

#[test]
fn replies_wait_behind_one_that_comes_later() {
    let server = serve(10);
    let mut client = server.connect();
    client.write_all(b"one\ntwo\nthree\n").unwrap();
    let (one, two, three) = (server.take(), server.take(), server.take());
    server.send(one.answered(&b"1\n"[..]));
    server.owe(&two);
    server.send(three.answered(&b"3\n"[..]));
    read_exactly(&mut client, b"1\n");
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(client.read(&mut [0]).is_err(), "the second reply has not come");
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(b"four\n").unwrap();
    let four = server.take();
    server.answer_owed(&two, b"2\n");
    server.send(four.answered(&b"4\n"[..]));
    read_exactly(&mut client, b"2\n3\n4\n");
}

#[test]
fn a_reply_to_another_request_closes_the_connection_that_waits() {
    let server = serve(10);
    let (mut client, one) = server.client_that_waits();
    let mut other = one.clone();
    other.request.checksum ^= 1;
    server.answer_owed(&other, b"wrong\n");
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"");
}

/// Such a client may wait for hours: it is neither idle nor overdue. It takes no room that others wait for.
#[test]
fn a_client_that_waits_is_closed_neither_as_idle_nor_as_overdue() {
    let idle = Some(Duration::from_millis(1));
    let mut bounds = bounds(10, true);
    bounds.idle = idle;
    let server = serve_with(Arc::new(|_| super::tests::Lines), bounds, Arc::default());
    let (mut client, one) = server.client_that_waits();
    let looks = || server.counters.sum(|thread| &thread.looks);
    let begun = looks();
    server.counters.committed.store(1, Relaxed);
    server.counters.validated.store(2, Relaxed);
    until("time passes", || looks() > begun + 20);
    assert_eq!(server.counters.sum(|thread| &thread.held), 0);
    server.answer_owed(&one, b"1\n");
    read_exactly(&mut client, b"1\n");
}

#[test]
fn a_client_that_ends_its_connection_while_it_waits_is_let_go() {
    let server = serve(10);
    let (mut client, one) = server.client_that_waits();
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"");
    until("it is closed", || server.counters.open() == 0);
    server.answer_owed(&one, b"1\n");
    let mut next = server.connect();
    next.write_all(b"two\n").unwrap();
    let two = server.take();
    server.send(two.answered(&b"2\n"[..]));
    read_exactly(&mut next, b"2\n");
}
