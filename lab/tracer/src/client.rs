//! The client of one run of a single server: drives the trace, compares every reply, and ends the server when it has
//! the outcome.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use crate::protocol::{Discards, ReplyFrame, Wrong};
use crate::record::InjectionClass;
use crate::target::Target;
use crate::trace::{Trace, TraceRequest};

/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_micros(300);
/// Pause between two checks of a server that sends nothing.
const LOOK: Duration = Duration::from_millis(10);
/// If the server is not held for this long after a poke, it gets another one.
const POKE_AGAIN: Duration = Duration::from_millis(30);
/// A crash later than this after the last reply does not count as late any more.
const AFTERWARDS: Duration = Duration::from_micros(800);
/// Discarded messages in a row after which no valid one can come: a request has no reply, and all later replies are
/// taken for those of earlier requests.
const OUT_OF_STEP: u32 = 4;
/// Longest time of a whole run before its fault is injected; a stepped run takes half a minute.
const LANDING: Duration = Duration::from_secs(600);

/// The progress of client and tracer, shared between them.
#[derive(Debug, Default)]
pub struct RunProgress {
    phase: AtomicU8,
    replies: AtomicU64,
}

/// Phases of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RunPhase {
    /// The warm-up is not over.
    Warming,
    /// The poke was sent.
    Poking,
    /// The poke was answered: the server may be held where it waits next.
    Poked,
    /// The server is held.
    Held,
    /// The fault is injected: from now on silence counts.
    Injected,
    /// All replies were received.
    Complete,
}

impl RunProgress {
    /// Whether this phase has begun.
    pub fn reached(&self, phase: RunPhase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    /// Begins a phase.
    pub fn enter(&self, phase: RunPhase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The number of measured replies received so far.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Acquire)
    }
}

/// The outcome of the measured part, as the client observed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOutcome {
    /// All replies were right.
    Right,
    /// The first wrong reply.
    Deviates {
        /// Its number, from 0.
        message: usize,
        /// How it deviates.
        wrong: Wrong,
        /// Its bytes, as text if they are text.
        got: String,
    },
    /// The connection ended.
    Closed {
        /// Before this reply was whole.
        message: usize,
        /// Whether a part of it was received.
        within: bool,
    },
    /// All threads slept, and no reply came.
    Stalled {
        /// Before this reply.
        message: usize,
    },
    /// Some thread ran, and no reply came.
    Spun {
        /// Before this reply.
        message: usize,
    },
}

/// What the client has of the measured part.
#[derive(Debug, Default)]
struct Received {
    /// The beginning of the next reply.
    bytes: Vec<u8>,
    /// Whole replies.
    replies: Vec<Vec<u8>>,
    /// The first message that it discarded.
    discarded: Option<ClientOutcome>,
    /// Discarded messages since the last valid one.
    in_a_row: u32,
    /// The last request that was sent, where they take turns.
    last_request: usize,
}

/// One run's client.
#[derive(Debug)]
pub struct TraceClient<'a> {
    /// The target.
    pub target: &'a Target,
    /// The requests.
    pub trace: &'a Trace,
    /// The right replies; none while the golden run determines them.
    pub golden: Option<&'a [Vec<u8>]>,
    /// The address on which it listens.
    pub address: String,
    /// A handle that ends it in any state.
    pub process: OwnedFd,
    /// Its process id, to check whether it sleeps.
    pub id: i32,
    /// Shared with the tracer.
    pub progress: &'a RunProgress,
    /// Reports that the server is held.
    pub held: mpsc::Receiver<()>,
    /// Reports that all requests are queued.
    pub queued: mpsc::Sender<()>,
}

impl TraceClient<'_> {
    /// Drives the server to its end; at the latest, this client ends it. Returns the outcome, and all whole replies.
    ///
    /// # Errors
    /// When the server did not reach the measured part.
    pub fn run(self) -> anyhow::Result<(ClientOutcome, Vec<Vec<u8>>)> {
        let outcome = self.drive();
        // If the server has ended already, the signal is not needed.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        outcome
    }

    fn drive(&self) -> anyhow::Result<(ClientOutcome, Vec<Vec<u8>>)> {
        let begun = Instant::now();
        let patience = Duration::from_millis(self.target.start_ms);
        let mut stream = loop {
            match TargetStream::connect(&self.address) {
                Ok(stream) => break stream,
                Err(error) if begun.elapsed() > patience => {
                    return Err(error).with_context(|| format!("connecting to {}", self.address));
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        };
        stream.patience(patience)?;
        self.exchange(&mut stream, &self.trace.warmup).context("warm-up")?;
        loop {
            self.progress.enter(RunPhase::Poking);
            self.exchange(&mut stream, std::slice::from_ref(&self.trace.poke))
                .context("between the parts")?;
            self.progress.enter(RunPhase::Poked);
            match self.held.recv_timeout(POKE_AGAIN) {
                Ok(()) => break,
                Err(mpsc::RecvTimeoutError::Timeout) if begun.elapsed() < patience => {}
                Err(_) => bail!("the thread {:?} was never seen waiting for requests", self.target.thread),
            }
        }
        self.progress.enter(RunPhase::Held);
        let queued = match self.target.protocol.takes_turns() {
            true => self.trace.measured[0].bytes.clone(),
            false => self.trace.measured_bytes(),
        };
        stream.write_all(&queued).context("queueing the requests")?;
        let _ = self.queued.send(());
        self.listen(&mut stream)
    }

    /// Sends requests one after another, and waits for each reply.
    fn exchange(&self, stream: &mut TargetStream, requests: &[TraceRequest]) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        let begun = Instant::now();
        let patience = Duration::from_millis(self.target.start_ms);
        for request in requests {
            while let Err(error) = self.ask(stream, request, &mut bytes) {
                // Datagrams have no connection that shows whether a process listens yet.
                let refused = error.downcast_ref::<io::Error>().map(io::Error::kind);
                if refused != Some(io::ErrorKind::ConnectionRefused) || begun.elapsed() > patience {
                    return Err(error);
                }
                std::thread::sleep(RETRY);
            }
        }
        Ok(())
    }

    /// Sends a request, and takes its reply off the received bytes.
    fn ask(
        &self,
        stream: &mut TargetStream,
        request: &TraceRequest,
        bytes: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        stream.write_all(&request.bytes)?;
        loop {
            match self.target.protocol.frame(bytes) {
                ReplyFrame::Whole(length) => {
                    bytes.drain(..length);
                    return Ok(());
                }
                ReplyFrame::Malformed => bail!("not a reply: {:?}", String::from_utf8_lossy(bytes)),
                ReplyFrame::Part if stream.more(bytes)? == 0 => bail!("it closed the connection"),
                ReplyFrame::Part => {}
            }
        }
    }

    fn listen(&self, stream: &mut TargetStream) -> anyhow::Result<(ClientOutcome, Vec<Vec<u8>>)> {
        stream.patience(LOOK)?;
        let mut received = Received::default();
        let seen = self.receive(stream, &mut received)?;
        // A client that has discarded a message knows of the fault, unless a valid reply was wrong.
        let seen = match (&seen, received.discarded) {
            (ClientOutcome::Deviates { wrong, .. }, _) if wrong.class() == InjectionClass::Undetected => seen,
            (_, discarded) => discarded.unwrap_or(seen),
        };
        Ok((seen, received.replies))
    }

    fn receive(&self, stream: &mut TargetStream, received: &mut Received) -> anyhow::Result<ClientOutcome> {
        let begun = Instant::now();
        let mut news = None;
        loop {
            if let Some(seen) = self.take_apart(received) {
                return Ok(seen);
            }
            if received.replies.len() == self.trace.measured.len() {
                self.progress.enter(RunPhase::Complete);
                std::thread::sleep(AFTERWARDS);
                return Ok(ClientOutcome::Right);
            }
            let (message, within) = (received.replies.len(), !received.bytes.is_empty());
            if self.target.protocol.takes_turns() && message > received.last_request {
                received.last_request = message;
                if stream.write_all(&self.trace.measured[message].bytes).is_err() {
                    return Ok(ClientOutcome::Closed { message, within });
                }
            }
            match stream.more(&mut received.bytes) {
                Ok(0) => return Ok(ClientOutcome::Closed { message, within }),
                Ok(_) => news = None,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if !self.progress.reached(RunPhase::Injected) {
                        if begun.elapsed() > LANDING {
                            bail!("the fault was never injected");
                        }
                        continue;
                    }
                    if matches!(stream, TargetStream::Datagrams(_)) && self.has_ended() {
                        return Ok(ClientOutcome::Closed { message, within });
                    }
                    let quiet = news.get_or_insert_with(Instant::now).elapsed() + LOOK;
                    if quiet > Duration::from_millis(self.target.stall_ms) && all_asleep(self.id) {
                        return Ok(ClientOutcome::Stalled { message });
                    }
                    if quiet > Duration::from_millis(self.target.hang_ms) {
                        return Ok(ClientOutcome::Spun { message });
                    }
                }
                Err(_) => return Ok(ClientOutcome::Closed { message, within }),
            }
        }
    }

    /// Whether the process has ended, of which datagrams say nothing.
    fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Cuts whole replies off the received bytes; returns the first wrong one. A message whose CRC does not fit, or
    /// that is no reply to the request, is discarded, and the client goes on: what matters more is whether a valid
    /// reply is wrong later.
    fn take_apart(&self, received: &mut Received) -> Option<ClientOutcome> {
        let Received { bytes, replies, discarded, in_a_row, .. } = received;
        let mut at = 0;
        let seen = loop {
            let message = replies.len();
            if message == self.trace.measured.len() {
                break None;
            }
            let deviates = |wrong, got: &[u8]| {
                let text = String::from_utf8_lossy(&got[..got.len().min(400)]).into_owned();
                ClientOutcome::Deviates { message, wrong, got: text }
            };
            match self.target.protocol.frame(&bytes[at..]) {
                ReplyFrame::Part => break None,
                ReplyFrame::Malformed => break Some(deviates(Wrong::Malformed, &bytes[at..])),
                ReplyFrame::Whole(length) => {
                    let got = bytes[at..at + length].to_vec();
                    at += length;
                    let Some(wrong) = self.difference(message, &got) else {
                        *in_a_row = 0;
                        replies.push(got);
                        continue;
                    };
                    let discards = self.target.protocol.discards(wrong);
                    if discards == Discards::Nothing {
                        break Some(deviates(wrong, &got));
                    }
                    *in_a_row += 1;
                    let first = discarded.get_or_insert_with(|| deviates(wrong, &got));
                    if *in_a_row == OUT_OF_STEP {
                        break Some(first.clone());
                    }
                    if discards == Discards::Reply {
                        replies.push(got);
                    }
                }
            }
        };
        bytes.drain(..at);
        self.progress.replies.store(replies.len() as u64, Ordering::Release);
        seen
    }

    /// How reply number `message` deviates; while the golden run determines the right replies, in nothing.
    fn difference(&self, message: usize, got: &[u8]) -> Option<Wrong> {
        let right = self.golden.and_then(|golden| golden.get(message))?;
        let TraceRequest { keys, seed, .. } = &self.trace.measured[message];
        self.target.protocol.difference(keys, *seed, right, got)
    }
}

/// Whether all threads of the process sleep.
fn all_asleep(process: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return true };
    let state = |stat: String| stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes()[0]);
    !threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok())
        .filter_map(state)
        .any(|state| state == b'R')
}

/// A connection of any kind.
#[derive(Debug)]
pub enum TargetStream {
    /// A Unix socket.
    Unix(UnixStream),
    /// A TCP socket on loopback.
    Tcp(TcpStream),
    /// Datagrams on loopback. Here each has its length before it, in two bytes.
    Datagrams(UdpSocket),
}

impl TargetStream {
    /// Connects to `unix:PATH`, `tcp:HOST:PORT` or `udp:HOST:PORT`.
    ///
    /// # Errors
    /// When no process listens there yet.
    pub fn connect(address: &str) -> io::Result<Self> {
        match address.split_once(':') {
            Some(("unix", path)) => UnixStream::connect(path).map(TargetStream::Unix),
            Some(("tcp", host)) => {
                let stream = TcpStream::connect(host)?;
                stream.set_nodelay(true)?;
                Ok(TargetStream::Tcp(stream))
            }
            Some(("udp", host)) => {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                socket.connect(host)?;
                Ok(TargetStream::Datagrams(socket))
            }
            _ => Err(io::Error::other(format!("{address} is not unix:PATH, tcp:HOST:PORT or udp:HOST:PORT"))),
        }
    }

    /// Sets the longest wait for bytes.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn patience(&self, patience: Duration) -> io::Result<()> {
        match self {
            TargetStream::Unix(stream) => stream.set_read_timeout(Some(patience)),
            TargetStream::Tcp(stream) => stream.set_read_timeout(Some(patience)),
            TargetStream::Datagrams(socket) => socket.set_read_timeout(Some(patience)),
        }
    }

    /// Appends the received bytes to `bytes`, at least one byte unless the other end has closed.
    ///
    /// # Errors
    /// When nothing was received in time, or the connection broke.
    pub fn more(&mut self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        let mut buffer = [0; 16 << 10];
        let count = match self {
            TargetStream::Unix(stream) => stream.read(&mut buffer),
            TargetStream::Tcp(stream) => stream.read(&mut buffer),
            TargetStream::Datagrams(socket) => {
                let count = socket.recv(&mut buffer[2..])?;
                buffer[..2].copy_from_slice(&(count as u16).to_be_bytes());
                Ok(2 + count)
            }
        }?;
        bytes.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// When the connection broke.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            TargetStream::Unix(stream) => stream.write_all(bytes),
            TargetStream::Tcp(stream) => stream.write_all(bytes),
            TargetStream::Datagrams(socket) => {
                let mut rest = bytes;
                while let [high, low, more @ ..] = rest {
                    let length = usize::from(u16::from_be_bytes([*high, *low])).min(more.len());
                    socket.send(&more[..length])?;
                    rest = &more[length..];
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use crate::trace::Recipe;

    /// The outcome of a client that receives the right replies with some of them replaced.
    fn outcome(replace: impl Fn(usize, &mut Vec<u8>)) -> ClientOutcome {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("t.toml");
        std::fs::write(&file, "title = 't'\nargv = ['x']\nthread = 't'\n[trace]\nsum = true")
            .expect("written");
        let target = Target::load(&file).expect("a target");
        let trace = Trace::new(&Recipe { sum: true, requests: 12, ..Recipe::default() });
        let golden: Vec<Vec<u8>> = trace
            .measured
            .iter()
            .map(|request| Protocol::MemcachedSummed.reply(request.seed, b"END\r\n".to_vec()))
            .collect();
        let mut replies = golden.clone();
        replies.iter_mut().enumerate().for_each(|(number, reply)| replace(number, reply));
        let (mut server, client) = UnixStream::pair().expect("sockets");
        server.write_all(&replies.concat()).expect("sent");
        drop(server);
        let (_, held) = mpsc::channel();
        let (queued, _all) = mpsc::channel();
        let progress = RunProgress::default();
        let client_of_run = TraceClient {
            target: &target,
            trace: &trace,
            golden: Some(&golden),
            address: String::new(),
            process: std::fs::File::open("/dev/null").expect("a file").into(),
            id: 0,
            progress: &progress,
            held,
            queued,
        };
        client_of_run.listen(&mut TargetStream::Unix(client)).expect("an outcome").0
    }

    fn message(outcome: &ClientOutcome) -> Option<(usize, Wrong)> {
        match outcome {
            ClientOutcome::Deviates { message, wrong, .. } => Some((*message, *wrong)),
            _ => None,
        }
    }

    #[test]
    fn a_client_goes_on_after_a_message_that_it_discards() {
        assert_eq!(outcome(|_, _| {}), ClientOutcome::Right);
        let one = outcome(|number, reply| reply[0] ^= u8::from(number == 2));
        assert_eq!(message(&one), Some((2, Wrong::InvalidSum)));
        let all = outcome(|number, reply| reply[0] ^= u8::from(number > 2));
        assert_eq!(message(&all), Some((3, Wrong::InvalidSum)), "the connection is out of step");
        let trace = Trace::new(&Recipe { sum: true, requests: 12, ..Recipe::default() });
        let later = outcome(|number, reply| match number {
            2 => reply[0] ^= 1,
            5 => *reply = Protocol::MemcachedSummed.reply(trace.measured[5].seed, b"STORED\r\n".to_vec()),
            _ => {}
        });
        assert_eq!(message(&later), Some((5, Wrong::Status)), "a valid reply that is wrong decides");
        let closed = outcome(
            |number, reply| if number == 6 { reply.clear() } else { reply[0] ^= u8::from(number == 4) },
        );
        assert_eq!(message(&closed).map(|(number, _)| number), Some(4));
    }
}
