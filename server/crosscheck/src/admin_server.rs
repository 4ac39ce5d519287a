//! The admin endpoint: one thread per connection reads JSON lines and passes the commands to the order thread, which
//! has the answers.

mod open;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::admin::{AdminCommand, AdminStream, Endpoint, Refused, Token, line};
use crate::socket_file::SocketFile;
use crate::{ServeError, limits};

/// A command to the order thread, with the channel for its answer.
#[derive(Debug)]
pub struct Call {
    /// The command.
    pub command: AdminCommand,
    /// Receives the answer, one JSON value. A caller that has disconnected is no error.
    pub answer: mpsc::Sender<serde_json::Value>,
}

impl Call {
    /// Answers with `value`.
    pub fn reply(self, value: &impl serde::Serialize) {
        let value = serde_json::to_value(value).unwrap_or_else(|error| refused(&error.to_string()));
        let _ = self.answer.send(value);
    }

    /// Answers that the command cannot be carried out, with the reason and the remedy.
    pub fn refuse(self, why: &str) {
        let _ = self.answer.send(refused(why));
    }
}

fn refused(why: &str) -> serde_json::Value {
    serde_json::json!(Refused { error: why.to_owned() })
}

/// The bounds on callers.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at the same time.
    pub connections: usize,
    /// How long a connection may take to present the secret.
    pub token: Duration,
    /// How long a connection may take to send its next line.
    pub idle: Duration,
    /// How long an answer may wait for a caller that reads nothing.
    pub write: Duration,
    /// How long a command may wait for its ordered position.
    pub answer: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            connections: limits::ADMIN_CONNECTIONS,
            token: limits::ADMIN_TOKEN,
            idle: limits::ADMIN_IDLE,
            write: limits::ADMIN_WRITE,
            answer: limits::ADMIN_ANSWER,
        }
    }
}

/// Accepts connections on `endpoint` and hands every command to `ask`. The threads it starts end with the
/// process; the socket file is removed when the returned value is dropped.
///
/// # Errors
/// [`ServeError::Operator`] when the socket file must not be at this path, [`ServeError::Io`] when the kernel refuses
/// or another process listens there. The message names the endpoint and the remedy.
pub fn listen(
    endpoint: &Endpoint,
    bounds: Bounds,
    ask: impl Fn(Call) + Clone + Send + 'static,
) -> Result<Option<SocketFile>, ServeError> {
    let (listener, file) = open::open(endpoint)?;
    let token = match endpoint {
        Endpoint::Unix(_) => None,
        Endpoint::Tcp { token, .. } => Some(token.clone()),
    };
    let open = Arc::new(AtomicUsize::new(0));
    let strangers = token.map(|token| (token, Strangers::default()));
    thread::Builder::new().name("admin".into()).spawn(move || {
        loop {
            match listener.accept() {
                Ok(stream) => serve(stream, strangers.clone(), bounds, &open, ask.clone()),
                // The process is probably out of descriptors: only waiting helps.
                Err(_) => thread::sleep(limits::ADMIN_RETRY),
            }
        }
    })?;
    Ok(file)
}

/// Gives a connection a thread of its own, or one line with the reason why not. Where callers need a secret, a caller
/// that has not presented it takes no place of one that has.
fn serve(
    mut stream: AdminStream,
    strangers: Option<(Token, Strangers)>,
    bounds: Bounds,
    open: &Arc<AtomicUsize>,
    ask: impl Fn(Call) + Send + 'static,
) {
    let place = if strangers.is_none() { AdminSlot::take(open, bounds.connections) } else { None };
    if strangers.is_none() && place.is_none() {
        return refuse_full(&mut stream, bounds.connections);
    }
    let stranger = strangers.and_then(|(token, strangers)| Some((token, strangers.take_in(&stream)?)));
    let open = open.clone();
    // Without a thread to serve it, the caller sees its connection close.
    let _ = thread::Builder::new().name("admin-call".into()).spawn(move || {
        let mut lines = Lines::default();
        let place = match (place, stranger) {
            (Some(place), _) => place,
            (None, Some((token, _until_it_is_known))) => {
                if !matches!(is_known(&mut stream, &mut lines, &token, bounds), Ok(true)) {
                    return;
                }
                let Some(place) = AdminSlot::take(&open, bounds.connections) else {
                    return refuse_full(&mut stream, bounds.connections);
                };
                place
            }
            (None, None) => return,
        };
        let _ = converse(&mut stream, lines, bounds, &ask);
        drop(place);
    });
}

fn refuse_full(stream: &mut AdminStream, most: usize) {
    // The answer fits into an empty socket; a caller for which it does not sees its connection close.
    let why = format!("{most} admin connections are open, and no more are served; close some");
    let _ = stream.set_nonblocking(true).and_then(|()| send(stream, &refused(&why)));
    // Reads what the caller has sent already: if it were left unread, the kernel would discard the answer.
    let _ = stream.read(&mut [0; 4096]);
}

/// Connections whose callers have not presented the secret, the oldest first. Their number is small, and a later one
/// takes the place of an older one, so that no caller can keep others out.
#[derive(Clone, Default)]
struct Strangers(Arc<Mutex<VecDeque<(u64, AdminStream)>>>);

impl Strangers {
    /// Adds a connection; none when there is no descriptor left for it.
    fn take_in(&self, stream: &AdminStream) -> Option<Stranger> {
        let second = stream.try_clone().ok()?;
        let mut all = self.0.lock();
        let number = all.back().map_or(0, |(last, _)| last + 1);
        if all.len() >= limits::ADMIN_STRANGERS
            && let Some((_, oldest)) = all.pop_front()
        {
            let _ = oldest.end();
        }
        all.push_back((number, second));
        Some(Stranger { number, all: self.clone() })
    }
}

/// One of these connections, until it is dropped.
struct Stranger {
    number: u64,
    all: Strangers,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.0.lock().retain(|(number, _)| *number != self.number);
    }
}

/// One of a bounded number of connections, until it is dropped.
struct AdminSlot(Arc<AtomicUsize>);

impl AdminSlot {
    fn take(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let more = |now: usize| (now < most).then_some(now + 1);
        open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(AdminSlot(open.clone()))
    }
}

impl Drop for AdminSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether the caller presents the secret in its first line.
fn is_known(stream: &mut AdminStream, lines: &mut Lines, token: &Token, bounds: Bounds) -> io::Result<bool> {
    stream.set_write_timeout(bounds.write)?;
    let Some(first) = lines.next(stream, bounds.token)? else { return Ok(false) };
    match line::presents(&first, token) {
        Ok(()) => Ok(true),
        Err(refusal) => send(stream, &serde_json::json!(refusal)).map(|()| false),
    }
}

/// Answers line by line, until the caller ends the connection, is silent for too long, or sends a line that is no
/// command.
fn converse(
    stream: &mut AdminStream,
    mut lines: Lines,
    bounds: Bounds,
    ask: &impl Fn(Call),
) -> io::Result<()> {
    stream.set_write_timeout(bounds.write)?;
    while let Some(next) = lines.next(stream, bounds.idle)? {
        match line::command(&next) {
            Ok(command) => send(stream, &answer(command, bounds.answer, ask))?,
            // The following lines may be the body of an HTTP request from a web page.
            Err(refusal) => return send(stream, &serde_json::json!(refusal)),
        }
    }
    Ok(())
}

fn send(stream: &mut AdminStream, value: &serde_json::Value) -> io::Result<()> {
    let mut text = value.to_string();
    text.push('\n');
    stream.write_all(text.as_bytes())
}

fn answer(command: AdminCommand, patience: Duration, ask: &impl Fn(Call)) -> serde_json::Value {
    let (answer, answered) = mpsc::channel();
    let changes = matches!(command, AdminCommand::Settings { change: Some(_) });
    ask(Call { command, answer });
    answered.recv_timeout(patience).unwrap_or_else(|_| {
        refused(match changes {
            true => {
                "no answer: the group orders nothing now, or this replica is busy or on its way out. The change may \
                    still take effect, once the group orders requests again: list the settings then"
            }
            false => "no answer: the replica is busy, without a leader, or on its way out; try again",
        })
    })
}

/// Splits the bytes of a connection into lines.
#[derive(Default)]
struct Lines {
    unread: Vec<u8>,
}

impl Lines {
    /// The next line with its end; at the end of the connection the remaining bytes, then none. Of a line that is too
    /// long, returns the part that was read: [`line::command`] refuses it.
    ///
    /// # Errors
    /// Those of the socket, and a line that is not whole after `patience`.
    fn next(&mut self, stream: &mut AdminStream, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + patience;
        let mut seen = 0;
        loop {
            if let Some(end) = self.unread[seen..].iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(seen + end + 1);
                return Ok(Some(std::mem::replace(&mut self.unread, rest)));
            }
            seen = self.unread.len();
            if seen > limits::ADMIN_LINE {
                return Ok(Some(std::mem::take(&mut self.unread)));
            }
            // An occasional byte does not keep a connection open: the whole line has one deadline.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(left)?;
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(0) if self.unread.is_empty() => return Ok(None),
                Ok(0) => return Ok(Some(std::mem::take(&mut self.unread))),
                Ok(count) => self.unread.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
