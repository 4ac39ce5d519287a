//! A thread of its own for the client side: for replicas whose workers have threads of their own.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Registry, Token, Waker};

use super::{ClientSide, Reply, ReplyTo, Submission};
use crate::limits;
use crate::mailbox::Mailbox;

/// The messages to the thread.
#[derive(Clone, Debug)]
pub enum ThreadAnswer {
    /// The validated reply.
    Reply(ReplyTo, Reply),
    /// There is no correct reply: the connection is closed rather than answered wrongly.
    Drop(ReplyTo),
    /// Stop: close the listener and every connection.
    Stop,
}

const MAILBOX: Token = Token(0);

/// Starts the thread on the client side that `bind` opens, and returns the mailbox for answers. `submit` takes the
/// requests of one round.
///
/// # Errors
/// When a socket cannot be opened, or the kernel creates no thread.
pub fn start<C: ClientSide + 'static>(
    bind: impl FnOnce(Registry) -> io::Result<C>,
    submit: impl FnMut(&mut Vec<Submission>) + Send + 'static,
) -> io::Result<Mailbox<ThreadAnswer>> {
    let poll = Poll::new()?;
    let answers = Mailbox::new(&Arc::new(Waker::new(poll.registry(), MAILBOX)?));
    let clients = bind(poll.registry().try_clone()?)?;
    let inbox = answers.clone();
    std::thread::Builder::new().name("clients".into()).spawn(move || run(poll, clients, &inbox, submit))?;
    Ok(answers)
}

/// Serves until [`ThreadAnswer::Stop`].
fn run(
    mut poll: Poll,
    mut clients: impl ClientSide,
    inbox: &Mailbox<ThreadAnswer>,
    mut submit: impl FnMut(&mut Vec<Submission>),
) {
    let mut events = Events::with_capacity(1024);
    let (mut answers, mut submissions) = (Vec::new(), Vec::new());
    let mut ticked = Instant::now();
    loop {
        let pause = if clients.has_unread() { Duration::ZERO } else { limits::IDLE };
        if let Err(error) = poll.poll(&mut events, Some(pause))
            && error.kind() != io::ErrorKind::Interrupted
        {
            crate::message(format_args!("clients can no longer be served: {error}"));
            return;
        }
        inbox.take(&mut answers);
        for answer in answers.drain(..) {
            match answer {
                ThreadAnswer::Reply(to, reply) => clients.answer(to, Some(reply)),
                ThreadAnswer::Drop(to) => clients.answer(to, None),
                ThreadAnswer::Stop => return,
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
