//! A replica that stops: what clients read at the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::tests::{serve, serve_on, until};
use super::thread::ThreadInput;

/// A replica that is about to stop: a request that was executed has its reply, one that was not read is not executed,
/// and the client reads the end behind its last reply although it still sends.
#[test]
fn who_stops_answers_what_was_read_and_reads_no_more() {
    for threads in [1, 2] {
        let server = serve_on(threads, 10);
        let mut clients: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
        let mut read = Vec::new();
        for client in &mut clients {
            client.write_all(b"one\ntwo\nhalf").unwrap();
            read.extend([server.take(), server.take()]);
        }
        let idle = server.connect();
        server.threads.iter().for_each(|thread| thread.send(ThreadInput::Drain));
        let ended = (&idle).read(&mut [0]).unwrap();
        assert_eq!(ended, 0, "a client that waits for nothing reads the end");
        for client in &mut clients {
            client.write_all(b" a request\nmore\n").unwrap();
        }
        for submission in read {
            server.send(submission.answered(submission.request.bytes.clone()));
        }
        for client in &mut clients {
            let mut replies = Vec::new();
            client.read_to_end(&mut replies).unwrap();
            assert_eq!(replies, b"onetwo");
        }
        assert!(server.submitted.try_recv().is_err(), "nothing else is executed");
        assert!(TcpStream::connect(server.address).is_err(), "no client is accepted");
        until("who asked for nothing is closed", || server.counters.open() == 4);
        drop(clients);
        until("all connections are closed", || server.counters.open() == 0);
    }
}

/// A client that reads its reply slowly, and sends on meanwhile, has the whole of it: its connection is not reset.
#[test]
fn who_sends_on_behind_the_end_loses_no_byte_of_its_reply() {
    let server = serve(10);
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // So that most of the reply waits at the replica.
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&server.address.into()).unwrap();
    let mut client = TcpStream::from(socket);
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(b"one\n").unwrap();
    let one = server.take();
    server.threads.iter().for_each(|thread| thread.send(ThreadInput::Drain));
    let unanswered = || server.counters.sum(|thread| &thread.unanswered);
    until("it waits", || unanswered() == 1);
    let reply = vec![b'x'; 100 << 10];
    server.send(one.answered(reply.clone()));
    until("the socket has the whole reply", || unanswered() == 0);
    // Longer than any connection is kept without a reason.
    for _ in 0..40 {
        client.write_all(b"more\n").unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut read = Vec::new();
    client.read_to_end(&mut read).unwrap();
    assert!(read == reply, "{} bytes", read.len());
    assert_eq!(server.counters.open(), 1, "it is open until its client has closed it");
    drop(client);
    until("it is closed", || server.counters.open() == 0);
}
