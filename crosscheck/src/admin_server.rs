//! The admin socket: one thread per connection reads JSON lines and asks the order thread, which knows the answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use crate::admin::{Command, Refused};
use crate::limits;

/// A command on its way to the order thread, with the way back.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub command: Command,
    /// Takes the answer, one JSON value. A caller that has gone is no error.
    pub answer: mpsc::Sender<serde_json::Value>,
}

impl Call {
    /// Answers with `value`.
    pub fn reply(self, value: &impl serde::Serialize) {
        let value = serde_json::to_value(value).unwrap_or_else(|error| refused(&error.to_string()));
        let _ = self.answer.send(value);
    }

    /// Answers that it cannot be done, why, and what would help.
    pub fn refuse(self, why: &str) {
        let _ = self.answer.send(refused(why));
    }
}

fn refused(why: &str) -> serde_json::Value {
    serde_json::json!(Refused { error: why.to_owned() })
}

/// An ordered command (a digest) waits at most this long for its position.
const PATIENCE: Duration = Duration::from_secs(30);

/// Listens on `address` and hands every command to `ask`. The threads it starts end with the process.
///
/// # Errors
/// When the address cannot be bound; the message names it.
pub fn listen(address: SocketAddr, ask: impl Fn(Call) + Clone + Send + 'static) -> io::Result<()> {
    let listener = TcpListener::bind(address).map_err(|error| {
        io::Error::new(error.kind(), format!("the admin socket {address} cannot be opened: {error}"))
    })?;
    std::thread::Builder::new().name("admin".into()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            let ask = ask.clone();
            // Without a thread to serve it, the caller sees its connection close.
            let _ = std::thread::Builder::new().name("admin-call".into()).spawn(move || {
                let _ = converse(stream, &ask);
            });
        }
    })?;
    Ok(())
}

fn converse(mut stream: TcpStream, ask: &impl Fn(Call)) -> io::Result<()> {
    let _ = stream.set_nodelay(true);
    let mut lines = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        let read = lines.by_ref().take(limits::ADMIN_LINE as u64).read_line(&mut line)?;
        if read == 0 {
            return Ok(());
        }
        let value = answer(&line, ask);
        let mut text = value.to_string();
        text.push('\n');
        stream.write_all(text.as_bytes())?;
        if !line.ends_with('\n') {
            return Ok(());
        }
    }
}

fn answer(line: &str, ask: &impl Fn(Call)) -> serde_json::Value {
    let command = match serde_json::from_str::<Command>(line) {
        Ok(command) => command,
        Err(error) => return refused(&format!("not an admin command: {error}")),
    };
    let (answer, answered) = mpsc::channel();
    ask(Call { command, answer });
    answered.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        refused("no answer: the replica is busy, without a leader, or on its way out; try again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(line: &str) -> serde_json::Value {
        answer(line, &|call: Call| match call.command {
            Command::Evidence { after } => call.reply(&after),
            _ => call.refuse("not now"),
        })
    }

    #[test]
    fn commands_reach_the_order_thread_and_answers_come_back() {
        assert_eq!(ask(r#"{"cmd":"evidence","after":7}"#), serde_json::json!(7));
        assert_eq!(ask(r#"{"cmd":"status"}"#)["error"], "not now");
    }

    #[test]
    fn a_line_that_is_no_command_is_refused_with_the_reason() {
        let error = ask(r#"{"cmd":"dance"}"#)["error"].to_string();
        assert!(error.contains("not an admin command") && error.contains("dance"), "{error}");
    }
}
