//! RESP2, the protocol of `redis-cli`: the commands of the bank, and their replies. For any bytes there is a request,
//! an error reply, or the number of bytes that are needed.

use std::fmt::Display;

use crosscheck::short::{Unread, words};
use crosscheck::{Action, Progress, Protocol};

use crate::request::Request;
use crate::state::{Number, Refusal};
use crate::{MAX_AMOUNT, MAX_OWNER_BYTES, MAX_RATE, MAX_SECONDS};

/// Words of a command at most.
const MAX_WORDS: usize = 16;
/// Longest word, in bytes.
const MAX_WORD: usize = 256;

/// One client's connection. It keeps nothing from one command to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RespConnection;

impl Protocol for RespConnection {
    fn next(&mut self, input: &[u8]) -> Progress {
        match words(input, MAX_WORDS, MAX_WORD) {
            Ok((used, words)) => Progress::Done { used, action: command(&words) },
            Err(Unread::NeedMore(bytes)) => Progress::NeedMore(bytes),
            Err(Unread::Broken(why)) => {
                // The beginning of the next command is not known any more.
                let mut reply = Vec::new();
                error(&mut reply, format_args!("Protocol error: {why}"));
                Progress::Done { used: input.len(), action: Action::Close(reply) }
            }
        }
    }

    fn reply_bytes(&self) -> usize {
        64
    }
}

/// Appends a status, or the reason why there is none.
pub fn simple(reply: &mut Vec<u8>, status: Result<&str, Refusal>) {
    match status {
        Ok(status) => reply.extend_from_slice(format!("+{status}\r\n").as_bytes()),
        Err(refusal) => error(reply, refusal),
    }
}

/// Appends `OK`, or the reason why the request failed.
pub fn done(reply: &mut Vec<u8>, result: Result<(), Refusal>) {
    simple(reply, result.map(|()| "OK"));
}

/// Appends a number, or the reason why there is none.
pub fn integer(reply: &mut Vec<u8>, number: Result<u64, Refusal>) {
    match number {
        Ok(number) => reply.extend_from_slice(format!(":{number}\r\n").as_bytes()),
        Err(refusal) => error(reply, refusal),
    }
}

/// Appends a string, or the reason why there is none.
pub fn bulk(reply: &mut Vec<u8>, text: Result<String, Refusal>) {
    match text {
        Ok(text) => reply.extend_from_slice(format!("${}\r\n{text}\r\n", text.len()).as_bytes()),
        Err(refusal) => error(reply, refusal),
    }
}

/// Appends an error; `why` has no line breaks.
pub fn error(reply: &mut Vec<u8>, why: impl Display) {
    reply.extend_from_slice(format!("-ERR {why}\r\n").as_bytes());
}

/// A number in digits; no sign.
fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// The action for a command.
fn command(words: &[&[u8]]) -> Action {
    let Some((name, arguments)) = words.split_first() else { return Action::Nothing };
    let name = name.to_ascii_uppercase();
    match (&name[..], arguments) {
        (b"PING", []) => Action::Reply(b"+PONG\r\n".to_vec()),
        (b"PING", [text]) => {
            Action::Reply([format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat())
        }
        (b"QUIT", _) => Action::Close(b"+OK\r\n".to_vec()),
        // `redis-cli` requests its list of commands for help; it is empty.
        (b"COMMAND", _) => Action::Reply(b"*0\r\n".to_vec()),
        _ => match request(&name, arguments) {
            Ok(request) => Action::Order(request.encode()),
            Err(why) => {
                let mut reply = Vec::new();
                error(&mut reply, why);
                Action::Reply(reply)
            }
        },
    }
}

/// The request of a command, or its error.
fn request(name: &[u8], arguments: &[&[u8]]) -> Result<Request, String> {
    Ok(match (name, arguments) {
        (b"OPEN", [number, owner]) => {
            Request::Open { number: account(number)?, owner: owner_name(owner)?, amount: 0 }
        }
        (b"OPEN", [number, owner, amount]) => {
            Request::Open { number: account(number)?, owner: owner_name(owner)?, amount: cents(amount)? }
        }
        (b"DEPOSIT", [number, amount]) => {
            Request::Deposit { number: account(number)?, amount: cents(amount)? }
        }
        (b"WITHDRAW", [number, amount]) => {
            Request::Withdraw { number: account(number)?, amount: cents(amount)? }
        }
        (b"TRANSFER", [from, to, amount]) => {
            Request::Transfer { from: account(from)?, to: account(to)?, amount: cents(amount)? }
        }
        (b"BALANCE", [number]) => Request::Balance { number: account(number)? },
        (b"TOTAL", []) => Request::Total,
        (b"INTEREST", [rate, period]) => {
            Request::Interest { rate: interest(rate)?, seconds: seconds(period)? }
        }
        (b"LINK", [from, to]) => Request::Link { from: account(from)?, to: account(to)? },
        (b"SWEEP", [from]) => Request::Sweep { from: account(from)? },
        (b"PAY", [from, to, amount, wait]) => Request::Pay {
            from: account(from)?,
            to: account(to)?,
            amount: cents(amount)?,
            seconds: seconds(wait)?,
        },
        (b"WAITING", [number]) => Request::Waiting { number: account(number)? },
        (b"CARD", [number]) => Request::Card { number: account(number)? },
        _ => return Err(unfit(name)),
    })
}

/// The error of a command of this name with too many or too few arguments.
fn unfit(name: &[u8]) -> String {
    let usage = match name {
        b"OPEN" => "OPEN account owner [cents]",
        b"DEPOSIT" => "DEPOSIT account cents",
        b"WITHDRAW" => "WITHDRAW account cents",
        b"TRANSFER" => "TRANSFER from to cents",
        b"BALANCE" => "BALANCE account",
        b"TOTAL" => "TOTAL",
        b"INTEREST" => "INTEREST hundredths-of-a-percent seconds",
        b"LINK" => "LINK from to",
        b"SWEEP" => "SWEEP account",
        b"PAY" => "PAY from to cents seconds",
        b"WAITING" => "WAITING account",
        b"CARD" => "CARD account",
        b"PING" => "PING [text]",
        _ => return format!("unknown command '{}'", name.escape_ascii()),
    };
    format!("wrong number of arguments; use {usage}")
}

fn account(word: &[u8]) -> Result<Number, String> {
    let number = number(word).filter(|number| *number > 0);
    number.ok_or_else(|| {
        format!("'{}' is no account; use a number from 1 to {}", word.escape_ascii(), Number::MAX)
    })
}

fn cents(word: &[u8]) -> Result<u64, String> {
    bounded(word, "amount in cents", 1, MAX_AMOUNT)
}

fn seconds(word: &[u8]) -> Result<u64, String> {
    bounded(word, "number of seconds", 1, MAX_SECONDS)
}

fn interest(word: &[u8]) -> Result<u32, String> {
    bounded(word, "rate in hundredths of a percent", 0, u64::from(MAX_RATE)).map(|rate| rate as u32)
}

fn bounded(word: &[u8], what: &str, least: u64, most: u64) -> Result<u64, String> {
    let number = number(word).filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("'{}' is no {what}; use {least} to {most}", word.escape_ascii()))
}

fn owner_name(word: &[u8]) -> Result<String, String> {
    let name = std::str::from_utf8(word).ok().filter(|name| !name.is_empty());
    let name = name.filter(|name| name.len() <= MAX_OWNER_BYTES && !name.chars().any(char::is_control));
    name.map(str::to_owned)
        .ok_or_else(|| format!("the owner's name is no text of 1 to {MAX_OWNER_BYTES} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(input: &[u8]) -> Progress {
        RespConnection.next(input)
    }

    fn reply(input: &str) -> String {
        match next(input.as_bytes()) {
            Progress::Done { action: Action::Reply(reply) | Action::Close(reply), .. } => {
                String::from_utf8(reply).expect("text")
            }
            other => panic!("{input:?}: {other:?}"),
        }
    }

    fn ordered(input: &str) -> Request {
        match next(input.as_bytes()) {
            Progress::Done { used, action: Action::Order(bytes) } if used == input.len() => {
                Request::decode(&bytes).expect("what the protocol orders can be decoded")
            }
            other => panic!("{input:?}: {other:?}"),
        }
    }

    #[test]
    fn a_command_is_the_same_as_an_array_and_inline() {
        let request = Request::Transfer { from: 1, to: 2, amount: 30 };
        assert_eq!(ordered("*4\r\n$8\r\nTRANSFER\r\n$1\r\n1\r\n$1\r\n2\r\n$2\r\n30\r\n"), request);
        assert_eq!(ordered("transfer 1  2 30\r\n"), request);
        assert_eq!(ordered("Transfer 1 2 30\n"), request);
    }

    #[test]
    fn an_incomplete_command_asks_for_more_than_is_there() {
        for whole in ["*3\r\n$7\r\nDEPOSIT\r\n$1\r\n1\r\n$3\r\n100\r\n", "DEPOSIT 1 100\r\n"] {
            for cut in 0..whole.len() {
                match next(&whole.as_bytes()[..cut]) {
                    Progress::NeedMore(bytes) => {
                        assert!((cut + 1..=whole.len()).contains(&bytes), "{cut}: {bytes}")
                    }
                    done => panic!("{cut}: {done:?}"),
                }
            }
            assert!(matches!(next(whole.as_bytes()), Progress::Done { used, .. } if used == whole.len()));
        }
    }

    #[test]
    fn what_redis_cli_asks_first_is_answered() {
        assert_eq!(reply("*2\r\n$7\r\nCOMMAND\r\n$4\r\nDOCS\r\n"), "*0\r\n");
        assert_eq!(reply("PING\r\n"), "+PONG\r\n");
        assert_eq!(reply("PING hello\r\n"), "$5\r\nhello\r\n");
        assert!(matches!(next(b"QUIT\r\n"), Progress::Done { action: Action::Close(_), .. }));
        for nothing in ["\r\n", "*0\r\n"] {
            assert!(matches!(next(nothing.as_bytes()), Progress::Done { action: Action::Nothing, .. }));
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (input, why) in [
            ("DEPOSIT 1\r\n", "use DEPOSIT account cents"),
            ("DEPOSIT 1 -5\r\n", "'-5' is no amount in cents; use 1 to"),
            ("DEPOSIT 1 0\r\n", "'0' is no amount"),
            ("DEPOSIT 1 99999999999999999999\r\n", "is no amount"),
            ("DEPOSIT 0 5\r\n", "'0' is no account"),
            ("DEPOSIT 4294967296 5\r\n", "is no account"),
            ("OPEN 1 \u{1}\r\n", "the owner's name is no text"),
            ("INTEREST 10001 5\r\n", "is no rate"),
            ("FROB\\\"\r\n", "unknown command"),
        ] {
            let reply = reply(input);
            assert!(reply.starts_with("-ERR ") && reply.ends_with("\r\n"), "{reply}");
            assert!(reply.contains(why), "{reply}");
            assert_eq!(reply.matches("\r\n").count(), 1, "{reply}");
        }
    }

    #[test]
    fn what_is_too_long_or_no_protocol_ends_the_connection() {
        let long_line = "x".repeat(2_000);
        for input in [
            "*17\r\n",
            "*-1\r\n",
            "*x\r\n",
            "*1\r\n+OK\r\n",
            "*1\r\n$257\r\n",
            "*1\r\n$-1\r\n",
            "*1\r\n$1\r\nab\r\n",
            &long_line,
        ] {
            let progress = next(input.as_bytes());
            let is_closed = matches!(&progress, Progress::Done { used, action: Action::Close(reply) }
                if *used == input.len() && reply.starts_with(b"-ERR Protocol error"));
            assert!(is_closed, "{input:?}: {progress:?}");
        }
    }
}
