//! Threads of its own for the client side: for replicas whose workers have threads of their own.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Registry, Token, Waker};

use super::accepting::Accepted;
use super::{ClientSide, Reply, ReplyTo, Submission};
use crate::limits;
use crate::mailbox::Mailbox;

/// The messages to a client thread.
#[derive(Debug)]
pub enum ThreadInput {
    /// A connection that the first thread accepted, for this one.
    Serve(Accepted),
    /// The validated reply.
    Reply(ReplyTo, Reply),
    /// There is no correct reply: the connection is closed rather than answered wrongly.
    Drop(ReplyTo),
    /// The reply comes later ([`ClientSide::owe`]).
    Owe(ReplyTo),
    /// A reply that came later; none if there is no correct one.
    Owed(ReplyTo, Option<Reply>),
    /// This replica is about to stop ([`ClientSide::drain`]).
    Drain,
    /// Stop: close the listener and every connection.
    Stop,
}

const MAILBOX: Token = Token(0);

/// A client thread that has not begun: its poll is there for what it will serve, and its mailbox for others.
pub struct ClientThread {
    poll: Poll,
    inbox: Mailbox<ThreadInput>,
}

impl ClientThread {
    /// A thread that has not begun.
    ///
    /// # Errors
    /// When the kernel gives no poll.
    pub fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let inbox = Mailbox::new(&Arc::new(Waker::new(poll.registry(), MAILBOX)?));
        Ok(ClientThread { poll, inbox })
    }

    /// The end that sends to it.
    pub fn mailbox(&self) -> Mailbox<ThreadInput> {
        self.inbox.clone()
    }

    /// Where it registers its sockets.
    ///
    /// # Errors
    /// When the kernel gives no second descriptor of the poll.
    pub fn registry(&self) -> io::Result<Registry> {
        self.poll.registry().try_clone()
    }

    /// Begins to run `clients`, as number `number` from 0. `submit` takes the requests of one round.
    ///
    /// # Errors
    /// When the kernel creates no thread.
    pub fn start<C: ClientSide + 'static>(
        self,
        number: usize,
        clients: C,
        submit: impl FnMut(&mut Vec<Submission>) + Send + 'static,
    ) -> io::Result<()> {
        let name = std::thread::Builder::new().name(format!("clients-{number}"));
        name.spawn(move || run(self.poll, clients, &self.inbox, submit)).map(drop)
    }
}

/// Serves until [`ThreadInput::Stop`].
fn run(
    mut poll: Poll,
    mut clients: impl ClientSide,
    inbox: &Mailbox<ThreadInput>,
    mut submit: impl FnMut(&mut Vec<Submission>),
) {
    let mut events = Events::with_capacity(1024);
    let (mut inputs, mut submissions) = (Vec::new(), Vec::new());
    let mut ticked = Instant::now();
    loop {
        let pause = if clients.has_unread() { Duration::ZERO } else { limits::IDLE };
        if let Err(error) = poll.poll(&mut events, Some(pause))
            && error.kind() != io::ErrorKind::Interrupted
        {
            crate::message(format_args!("clients can no longer be served: {error}"));
            return;
        }
        inbox.take(&mut inputs);
        for input in inputs.drain(..) {
            match input {
                ThreadInput::Serve(accepted) => clients.adopt(accepted),
                ThreadInput::Reply(to, reply) => clients.answer(to, Some(reply)),
                ThreadInput::Drop(to) => clients.answer(to, None),
                ThreadInput::Owe(to) => clients.owe(to),
                ThreadInput::Owed(to, reply) => clients.answer_owed(to, reply),
                ThreadInput::Drain => clients.drain(&mut submissions),
                ThreadInput::Stop => return,
            }
        }
        clients.flush();
        for event in events.iter().filter(|event| event.token() != MAILBOX) {
            clients.on_event(event, &mut submissions);
        }
        if ticked.elapsed() >= limits::TICK {
            ticked = Instant::now();
            clients.tick(&mut submissions);
        }
        clients.read_on(&mut submissions);
        if !submissions.is_empty() {
            submit(&mut submissions);
            submissions.clear();
        }
    }
}
