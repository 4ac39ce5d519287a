//! Words with their lengths in front: for programs whose arguments have any bytes in them.

use super::{Answer, Language, Unread};

/// Longest command, in bytes.
const MAX_COMMAND: usize = 1 << 20;
/// Most words of one.
const MAX_WORDS: usize = 64;

/// A command is the number of its words (u32, as all numbers here little-endian), and for each word its length and its
/// bytes. An answer is its length, a byte that says what it is, and its bytes: `0` done or a word, `1` a number in
/// decimal digits, `2` bytes, `3` nothing, `4` an error, `5` a list of such answers.
#[derive(Clone, Copy, Debug)]
pub struct Frames;

impl Language for Frames {
    fn read(input: &[u8]) -> Result<(usize, Vec<&[u8]>), Unread> {
        let number = |at: usize| match input.get(at..at + 4) {
            Some(&[a, b, c, d]) => Ok(u32::from_le_bytes([a, b, c, d]) as usize),
            _ => Err(Unread::NeedMore(at + 4)),
        };
        let count = number(0)?;
        if count > MAX_WORDS {
            return Err(Unread::Broken("a command has too many words"));
        }
        let mut at = 4;
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let (begin, length) = (at + 4, number(at)?);
            at = begin.saturating_add(length);
            if at > MAX_COMMAND {
                return Err(Unread::Broken("a command is too long"));
            }
            words.push(input.get(begin..at).ok_or(Unread::NeedMore(at))?);
        }
        Ok((at, words))
    }

    fn write(answer: &Answer, reply: &mut Vec<u8>) {
        if *answer == Answer::Later {
            return;
        }
        let begin = reply.len();
        reply.extend_from_slice(&[0; 4]);
        match answer {
            Answer::Later => {}
            Answer::Done => reply.extend_from_slice(b"\0OK"),
            Answer::Word(word) => put(reply, 0, word.as_bytes()),
            Answer::Number(number) => put(reply, 1, number.to_string().as_bytes()),
            Answer::Bytes(bytes) => put(reply, 2, bytes),
            Answer::Nothing => reply.push(3),
            Answer::Error(why) => put(reply, 4, why.as_bytes()),
            Answer::List(answers) => {
                reply.push(5);
                answers.iter().for_each(|one| Self::write(one, reply));
            }
        }
        let length = (reply.len() - begin - 4) as u32;
        reply[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    }
}

fn put(reply: &mut Vec<u8>, what: u8, bytes: &[u8]) {
    reply.push(what);
    reply.extend_from_slice(bytes);
}
