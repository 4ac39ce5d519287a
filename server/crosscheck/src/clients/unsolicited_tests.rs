//! What a protocol sends without a request: it arrives, and a client that does not read it costs no more than another.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::tests::{bounds, serve_with};
use crate::counters::ClientCounters;
use crate::limits;
use crate::service::{Action, Progress, Protocol};

/// Answers each line with itself, and then has news without end.
#[derive(Clone)]
struct News {
    subscribed: bool,
    sent: Arc<AtomicU64>,
}

impl PartialEq for News {
    fn eq(&self, other: &News) -> bool {
        self.subscribed == other.subscribed
    }
}

impl Protocol for News {
    fn next(&mut self, input: &[u8]) -> Progress {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return Progress::NeedMore(input.len() + 1);
        };
        self.subscribed = true;
        Progress::Done { used: end + 1, action: Action::Reply(input[..=end].to_vec()) }
    }

    fn unsolicited(&mut self, room: usize) -> Vec<u8> {
        let news = vec![b'n'; if self.subscribed { room.min(100_000) } else { 0 }];
        self.sent.fetch_add(news.len() as u64, Relaxed);
        news
    }
}

#[test]
fn news_arrive_and_a_client_that_does_not_read_them_holds_a_bounded_share() {
    let sent = Arc::new(AtomicU64::new(0));
    let counters = Arc::new(ClientCounters::with_threads(1));
    let news = News { subscribed: false, sent: sent.clone() };
    let server = serve_with(Arc::new(move |_| news.clone()), bounds(10, true), counters.clone());

    let mut reader = TcpStream::connect(server.address()).unwrap();
    reader.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(sent.load(Relaxed), 0, "nothing without a subscription");
    reader.write_all(b"hello\n").unwrap();
    let mut reported = vec![0; 300_000];
    reader.read_exact(&mut reported).unwrap();
    assert!(reported.starts_with(b"hello\n") && reported[6..].iter().all(|byte| *byte == b'n'));
    drop(reader);

    let mut silent = TcpStream::connect(server.address()).unwrap();
    silent.write_all(b"hello\n").unwrap();
    let held = || counters.threads()[0].held.load(Relaxed);
    // Its socket fills, and then what it may hold.
    let most = limits::UNASKED as u64;
    let mut before = u64::MAX;
    while sent.load(Relaxed) != before {
        before = sent.load(Relaxed);
        std::thread::sleep(Duration::from_millis(500));
        assert!(held() <= most, "{} of {most}", held());
    }
    assert!(held() > 0);
    let mut other = TcpStream::connect(server.address()).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    other.write_all(b"still here\n").unwrap();
    let mut answer = [0; 11];
    other.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"still here\n");
}
