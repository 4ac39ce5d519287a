//! How a client says who it is, where a password file is used: stock memcached's forms, a `set` of any key with the
//! value `NAME PASSWORD` as the first command of a text connection, or SASL PLAIN (RFC 4616) in the binary protocol.

use crosscheck::{Action, Passwords, Progress};

use crate::command::binary::{ResponseContent, ResponseStatus, opcode};
use crate::limits::LINE_BYTES;
use crate::protocol::binary::Packet;
use crate::protocol::line::{Line, error};
use crate::protocol::text::value_length;

/// The only mechanism of SASL.
const MECHANISM: &[u8] = b"PLAIN";

/// The first commands of a text connection, until one logs in: its progress, and whether it did.
pub(super) fn by_line(
    passwords: &Passwords,
    line: &Line<'_>,
    begin: usize,
    input: &[u8],
) -> (Progress, bool) {
    let reply = |used, text: &str| (Progress::Done { used, action: Action::Reply(error(text)) }, false);
    let length = if line.arguments() >= 4 { value_length(line.token(4)) } else { None };
    let (b"set", Some(length)) = (line.name(), length) else {
        return reply(begin, "CLIENT_ERROR unauthenticated");
    };
    if length > LINE_BYTES {
        let action = Action::Close(error("CLIENT_ERROR bad authentication token format"));
        return (Progress::Done { used: begin, action }, false);
    }
    let whole = begin + length + 2;
    let Some(block) = input.get(begin..whole) else { return (Progress::NeedMore(whole), false) };
    let (value, b"\r\n") = block.split_at(length) else {
        return reply(whole, "CLIENT_ERROR bad command line termination");
    };
    let pair = Line::new(value);
    if pair.arguments() == 0 {
        return reply(whole, "CLIENT_ERROR bad authentication token format");
    }
    if passwords.accepts(pair.name(), pair.token(1)) {
        (Progress::Done { used: whole, action: Action::Reply(error("STORED")) }, true)
    } else {
        reply(whole, "CLIENT_ERROR authentication failure")
    }
}

/// Whether an operation of the binary protocol needs no login.
pub(super) fn is_free(code: u8) -> bool {
    matches!(code, opcode::SASL_LIST_MECHS | opcode::SASL_AUTH | opcode::SASL_STEP | opcode::VERSION)
}

/// The answer to an operation of SASL, and whether it logs in.
pub(super) fn by_packet(passwords: Option<&Passwords>, packet: &Packet<'_>) -> (Vec<u8>, bool) {
    let (head, mut reply) = (&packet.head, Vec::new());
    let Some(passwords) = passwords else {
        head.fail(ResponseStatus::Unknown, &mut reply);
        return (reply, false);
    };
    if head.opcode == opcode::SASL_LIST_MECHS {
        head.succeed(ResponseContent { value: MECHANISM, ..ResponseContent::default() }, &mut reply);
        return (reply, false);
    }
    // Any name to act as, then the name and the password.
    let parts: Vec<&[u8]> = packet.value.splitn(3, |byte| *byte == 0).collect();
    let accepted = head.opcode == opcode::SASL_AUTH
        && packet.key == MECHANISM
        && matches!(parts[..], [_, name, password] if passwords.accepts(name, password));
    if accepted {
        head.succeed(ResponseContent { value: b"Authenticated", ..ResponseContent::default() }, &mut reply);
    } else {
        head.fail(ResponseStatus::Unauthenticated, &mut reply);
    }
    (reply, accepted)
}
