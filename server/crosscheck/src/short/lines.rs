//! A line for each command, and a line for each answer: for `nc` and for scripts.

use super::{Answer, Language, Unread};

/// Longest line, in bytes.
const MAX_LINE: usize = 64 << 10;

/// Commands are lines of words with spaces between them. Answers are lines: `OK`, a word, a number, a text with its
/// line breaks escaped, `NONE`, or `ERROR` and why.
#[derive(Clone, Copy, Debug)]
pub struct Lines;

impl Language for Lines {
    fn read(input: &[u8]) -> Result<(usize, Vec<&[u8]>), Unread> {
        let Some(end) = input.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
            let is_too_long = input.len() >= MAX_LINE;
            return Err(if is_too_long {
                Unread::Broken("a line is too long")
            } else {
                Unread::NeedMore(input.len() + 1)
            });
        };
        let words = input[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        Ok((end + 1, words.collect()))
    }

    fn write(answer: &Answer, reply: &mut Vec<u8>) {
        match answer {
            Answer::Later => return,
            Answer::List(answers) => {
                reply.extend_from_slice(answers.len().to_string().as_bytes());
                reply.push(b'\n');
                return answers.iter().for_each(|one| Self::write(one, reply));
            }
            Answer::Done => reply.extend_from_slice(b"OK"),
            Answer::Word(word) => reply.extend_from_slice(word.as_bytes()),
            Answer::Number(number) => reply.extend_from_slice(number.to_string().as_bytes()),
            Answer::Bytes(bytes) => reply.extend(bytes.escape_ascii()),
            Answer::Nothing => reply.extend_from_slice(b"NONE"),
            Answer::Error(why) => reply.extend(format!("ERROR {why}").bytes().map(no_line_break)),
        }
        reply.push(b'\n');
    }
}

/// A line has no other line in it.
pub(super) fn no_line_break(byte: u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }
}
