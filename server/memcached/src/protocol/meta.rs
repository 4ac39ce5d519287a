//! The meta commands: their tokens, and memcached's answers to wrong ones.

use bytes::Bytes;

use crate::command::{Command, Key, Meta, MetaError};
use crate::limits::{KEY_BYTES, META_TOKENS};
use crate::protocol::Step;
use crate::protocol::line::{Line, error};
use crate::protocol::text::{is_too_large, value_length};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
const OPAQUE: &str = "CLIENT_ERROR opaque token too long";

/// The request of the meta command `m<letter>` with these tokens.
pub(super) fn step(letter: u8, line: &Line<'_>) -> Step {
    let refused = |text: &str| Step::Reply(error(text));
    match letter {
        b'n' => return Step::Reply(error("MN")),
        b'e' => return debug(line),
        b'g' | b's' | b'd' | b'a' if line.arguments() == 0 => return refused("ERROR"),
        b'g' | b's' | b'd' | b'a' if line.token(1).len() > KEY_BYTES => return refused(BAD_FORMAT),
        b's' if line.arguments() == 1 => return refused(BAD_FORMAT),
        b'g' if line.arguments() + 1 > META_TOKENS => {
            return refused("CLIENT_ERROR options flags are too long");
        }
        b's' | b'd' | b'a' if line.arguments() + 1 > META_TOKENS => {
            return refused("CLIENT_ERROR options flags too long");
        }
        b'g' | b's' | b'd' | b'a' => {}
        _ => return refused("ERROR"),
    }
    match letter {
        b's' => set(line),
        b'g' => match parse(line, 2) {
            Ok((key, meta)) => Step::Order(Command::MetaGet { key, meta }),
            Err(why) => refused(&format!("CLIENT_ERROR {why}")),
        },
        b'd' => match parse(line, 2) {
            Ok((key, meta)) => Step::Order(Command::MetaDelete { key, meta }),
            Err(why) => refused(terse(why)),
        },
        _ => match parse(line, 2) {
            Ok((_, meta)) if meta.adds().is_none() => refused("CLIENT_ERROR invalid mode for ma M token"),
            Ok((key, meta)) => Step::Order(Command::MetaArithmetic { key, meta }),
            Err(why) => refused(terse(why)),
        },
    }
}

fn set(line: &Line<'_>) -> Step {
    let Some(length) = value_length(line.token(2)) else { return Step::Reply(error(BAD_FORMAT)) };
    // From here on the value is skipped after an error, so that it is not taken for commands.
    let skip = |now| Step::Skip { now: Box::new(now), bytes: length as u64 + 2 };
    let refused = |text: &str| skip(Step::Reply(error(text)));
    match parse(line, 3) {
        Err(why) => refused(&format!("CLIENT_ERROR {why}")),
        Ok((_, meta)) if meta.store_mode().is_none() => refused("CLIENT_ERROR invalid mode for ms M token"),
        Ok((key, meta)) if is_too_large(&key, meta.client_flags, length) => {
            skip(Step::Order(Command::TooLarge { key, quiet: false }))
        }
        Ok((key, meta)) => {
            let command = Command::MetaSet { key, meta, value: Bytes::new() };
            Step::Value { command, length, end: b"\r\n", loud: true }
        }
    }
}

/// `md` and `ma` have less precise error messages.
fn terse(why: MetaError) -> &'static str {
    match why {
        MetaError::Opaque => OPAQUE,
        MetaError::PlainKey => BAD_FORMAT,
        _ => BAD_FLAG,
    }
}

fn parse(line: &Line<'_>, first_flag: usize) -> Result<(Key, Box<Meta>), MetaError> {
    let meta = Meta::parse(line.tokens_from(first_flag))?;
    let key = meta.key(line.token(1))?;
    Ok((key, Box::new(meta)))
}

fn debug(line: &Line<'_>) -> Step {
    let token = line.token(1);
    if line.arguments() == 0 || token.len() > KEY_BYTES {
        return Step::Reply(error(BAD_FORMAT));
    }
    let binary = line.token(2) == b"b";
    let meta = Meta { binary_key: binary, ..Meta::default() };
    match meta.key(token) {
        Ok(key) => Step::Order(Command::MetaDebug { key }),
        Err(_) => Step::Reply(error(BAD_FORMAT)),
    }
}
