//! RESP2, the protocol of `redis-cli`: arrays of bulk strings and inline commands in, replies out. The parser is total
//! and bounded: for any bytes it returns a command, or why there is none, or the number of bytes that it needs.

use super::lines::no_line_break;
use super::{Answer, Language};
use crate::service::Action;

/// Longest inline command, and longest line of a header, in bytes.
const MAX_LINE: usize = 1_024;
/// Words of a command at most.
const MAX_WORDS: usize = 64;
/// Longest word, in bytes.
const MAX_WORD: usize = 512 << 10;

/// RESP2, as `redis-cli` and the clients of Redis speak it.
#[derive(Clone, Copy, Debug)]
pub struct Resp;

impl Language for Resp {
    fn read(input: &[u8]) -> Result<(usize, Vec<&[u8]>), Unread> {
        words(input, MAX_WORDS, MAX_WORD)
    }

    fn write(answer: &Answer, reply: &mut Vec<u8>) {
        match answer {
            Answer::Later => {}
            Answer::Done => reply.extend_from_slice(b"+OK\r\n"),
            Answer::Word(word) => reply.extend_from_slice(format!("+{word}\r\n").as_bytes()),
            Answer::Number(number) => reply.extend_from_slice(format!(":{number}\r\n").as_bytes()),
            Answer::Bytes(bytes) => {
                reply.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
                reply.extend_from_slice(bytes);
                reply.extend_from_slice(b"\r\n");
            }
            Answer::Nothing => reply.extend_from_slice(b"$-1\r\n"),
            Answer::List(answers) => {
                reply.extend_from_slice(format!("*{}\r\n", answers.len()).as_bytes());
                answers.iter().for_each(|one| Self::write(one, reply));
            }
            Answer::Error(why) => {
                reply.extend_from_slice(b"-ERR ");
                reply.extend(why.bytes().map(no_line_break));
                reply.extend_from_slice(b"\r\n");
            }
        }
    }

    fn answers(words: &[&[u8]]) -> Option<Action> {
        let (name, arguments) = words.split_first()?;
        let name = name.to_ascii_uppercase();
        Some(match (&name[..], arguments) {
            (b"PING", []) => Action::Reply(b"+PONG\r\n".to_vec()),
            (b"PING", [text]) => {
                let mut reply = Vec::new();
                Self::write(&Answer::Bytes(text.to_vec()), &mut reply);
                Action::Reply(reply)
            }
            (b"QUIT", _) => Action::Close(b"+OK\r\n".to_vec()),
            // `redis-cli` requests its list of commands for help; it is empty.
            (b"COMMAND", _) => Action::Reply(b"*0\r\n".to_vec()),
            _ => return None,
        })
    }
}

/// Why there is no command yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It takes at least this many bytes in all.
    NeedMore(usize),
    /// The bytes are none of the protocol: why, in words.
    Broken(&'static str),
}

/// The words of the command at the beginning of `input`, and its length in bytes; at most so many words of so many
/// bytes each.
///
/// # Errors
/// Why there is none, or none yet.
pub fn words(input: &[u8], max_words: usize, max_word: usize) -> Result<(usize, Vec<&[u8]>), Unread> {
    if input.first() != Some(&b'*') {
        let (line, used) = line(input, 0)?;
        let words: Vec<_> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let fits = words.len() <= max_words && words.iter().all(|word| word.len() <= max_word);
        return if fits { Ok((used, words)) } else { Err(Unread::Broken("too big inline request")) };
    }
    let (header, mut at) = line(input, 1)?;
    let count = length(header, max_words).ok_or(Unread::Broken("invalid multibulk length"))?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        match input.get(at) {
            Some(b'$') => {}
            Some(_) => return Err(Unread::Broken("expected '$'")),
            None => return Err(Unread::NeedMore(at + 1)),
        }
        let (header, start) = line(input, at + 1)?;
        let length = length(header, max_word).ok_or(Unread::Broken("invalid bulk length"))?;
        let end = start + length;
        let word = input.get(start..end).ok_or(Unread::NeedMore(end + 2))?;
        match input.get(end..end + 2) {
            Some(b"\r\n") => words.push(word),
            Some(_) => return Err(Unread::Broken("a bulk string is longer than it says")),
            None => return Err(Unread::NeedMore(end + 2)),
        }
        at = end + 2;
    }
    Ok((at, words))
}

/// The line that begins at `start`, and where the next one begins.
fn line(input: &[u8], start: usize) -> Result<(&[u8], usize), Unread> {
    let rest = input.get(start..).unwrap_or_default();
    match rest.iter().take(MAX_LINE).position(|byte| *byte == b'\n') {
        Some(end) => Ok((rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), start + end + 1)),
        None if rest.len() < MAX_LINE => Err(Unread::NeedMore(input.len() + 1)),
        None => Err(Unread::Broken("a line is too long")),
    }
}

fn length(digits: &[u8], most: usize) -> Option<usize> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten();
    number.filter(|length| *length <= most)
}
