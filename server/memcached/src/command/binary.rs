//! What a request of memcached's binary protocol has besides its command, and the packets that answer it.
//!
//! Shapes and numbers are those of memcached's `protocol_binary.h`: a packet has a header of [`HEADER_BYTES`] bytes,
//! then extras, key and value; numbers are big-endian.

use crosscheck::object::Shaped;

/// Bytes of a packet's header.
pub const HEADER_BYTES: usize = 24;
/// First byte of a request.
pub const REQUEST: u8 = 0x80;
/// First byte of a response.
pub const RESPONSE: u8 = 0x81;

/// The names of the operations, by their numbers.
#[expect(missing_docs, reason = "their names are those of the protocol")]
pub mod opcode {
    pub const GET: u8 = 0x00;
    pub const SET: u8 = 0x01;
    pub const ADD: u8 = 0x02;
    pub const REPLACE: u8 = 0x03;
    pub const DELETE: u8 = 0x04;
    pub const INCREMENT: u8 = 0x05;
    pub const DECREMENT: u8 = 0x06;
    pub const QUIT: u8 = 0x07;
    pub const FLUSH: u8 = 0x08;
    pub const GETQ: u8 = 0x09;
    pub const NOOP: u8 = 0x0a;
    pub const VERSION: u8 = 0x0b;
    pub const GETK: u8 = 0x0c;
    pub const GETKQ: u8 = 0x0d;
    pub const APPEND: u8 = 0x0e;
    pub const PREPEND: u8 = 0x0f;
    pub const STAT: u8 = 0x10;
    pub const SETQ: u8 = 0x11;
    pub const ADDQ: u8 = 0x12;
    pub const REPLACEQ: u8 = 0x13;
    pub const DELETEQ: u8 = 0x14;
    pub const INCREMENTQ: u8 = 0x15;
    pub const DECREMENTQ: u8 = 0x16;
    pub const QUITQ: u8 = 0x17;
    pub const FLUSHQ: u8 = 0x18;
    pub const APPENDQ: u8 = 0x19;
    pub const PREPENDQ: u8 = 0x1a;
    pub const TOUCH: u8 = 0x1c;
    pub const GAT: u8 = 0x1d;
    pub const GATQ: u8 = 0x1e;
    pub const SASL_LIST_MECHS: u8 = 0x20;
    pub const SASL_AUTH: u8 = 0x21;
    pub const SASL_STEP: u8 = 0x22;
    pub const GATK: u8 = 0x23;
    pub const GATKQ: u8 = 0x24;
}

/// The status of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseStatus {
    /// Done.
    Ok = 0x00,
    /// No such item.
    NotFound = 0x01,
    /// There is one, or it has another unique.
    Exists = 0x02,
    /// The value exceeds the item limit.
    TooLarge = 0x03,
    /// The packet has a wrong form.
    Invalid = 0x04,
    /// The condition of `append` or `prepend` is not met.
    NotStored = 0x05,
    /// The item is no number.
    NonNumeric = 0x06,
    /// The client has not given a name and password that are valid.
    Unauthenticated = 0x20,
    /// No such operation.
    Unknown = 0x81,
    /// A fault of the server.
    Internal = 0x84,
}

impl ResponseStatus {
    /// The text that stock memcached sends as the value of such a response.
    fn text(self) -> &'static str {
        match self {
            ResponseStatus::Ok => "",
            ResponseStatus::NotFound => "Not found",
            ResponseStatus::Exists => "Data exists for key.",
            ResponseStatus::TooLarge => "Too large.",
            ResponseStatus::Invalid => "Invalid arguments",
            ResponseStatus::NotStored => "Not stored.",
            ResponseStatus::NonNumeric => "Non-numeric server-side value for incr or decr",
            ResponseStatus::Unauthenticated => "Auth failure.",
            ResponseStatus::Unknown => "Unknown command",
            ResponseStatus::Internal => "Internal error",
        }
    }
}

/// The part of a binary request that its classic [command](crate::command::Command) does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Shaped)]
pub struct BinaryHead {
    /// The operation ([`opcode`]); the response repeats it.
    pub opcode: u8,
    /// The client's own number of the request; the response repeats it.
    pub opaque: u32,
    /// The unique that the item must have; 0 for any.
    pub compare: u64,
    /// `incr` and `decr`: the value and the expiry time of an item that is created; `None` if none is.
    pub initial: Option<(u64, u32)>,
}

/// What a response carries besides its status.
#[derive(Clone, Copy, Default)]
pub struct ResponseContent<'a> {
    /// The item's unique; 0 for none.
    pub unique: u64,
    /// The item's client flags.
    pub flags: Option<u32>,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl BinaryHead {
    /// Whether only failures are answered, and of reads only hits.
    pub fn is_quiet(&self) -> bool {
        use opcode::{APPENDQ, FLUSHQ, GATKQ, GATQ, GETKQ, GETQ, PREPENDQ, QUITQ, SETQ};
        matches!(self.opcode, GETQ | GETKQ | SETQ..=QUITQ | FLUSHQ | APPENDQ | PREPENDQ | GATQ | GATKQ)
    }

    /// Whether the response to a read repeats the key.
    pub fn wants_key(&self) -> bool {
        matches!(self.opcode, opcode::GETK | opcode::GETKQ | opcode::GATK | opcode::GATKQ)
    }

    /// Whether the response to a read has the value: `touch` has only the client flags.
    pub fn wants_value(&self) -> bool {
        self.opcode != opcode::TOUCH
    }

    /// Appends a response.
    pub fn respond(&self, status: ResponseStatus, content: ResponseContent<'_>, reply: &mut Vec<u8>) {
        let extras = content.flags.map(u32::to_be_bytes);
        let extras = extras.as_ref().map_or(&[][..], |bytes| bytes);
        let body = extras.len() + content.key.len() + content.value.len();
        reply.reserve(HEADER_BYTES + body);
        reply.extend_from_slice(&[RESPONSE, self.opcode]);
        reply.extend_from_slice(&(content.key.len() as u16).to_be_bytes());
        reply.extend_from_slice(&[extras.len() as u8, 0]);
        reply.extend_from_slice(&(status as u16).to_be_bytes());
        reply.extend_from_slice(&(body as u32).to_be_bytes());
        reply.extend_from_slice(&self.opaque.to_be_bytes());
        reply.extend_from_slice(&content.unique.to_be_bytes());
        reply.extend_from_slice(extras);
        reply.extend_from_slice(content.key);
        reply.extend_from_slice(content.value);
    }

    /// Appends the response to a failed request: its value is a text.
    pub fn fail(&self, status: ResponseStatus, reply: &mut Vec<u8>) {
        self.respond(
            status,
            ResponseContent { value: status.text().as_bytes(), ..ResponseContent::default() },
            reply,
        );
    }

    /// Appends the response to a request that succeeded, unless it is quiet.
    pub fn succeed(&self, content: ResponseContent<'_>, reply: &mut Vec<u8>) {
        if !self.is_quiet() {
            self.respond(ResponseStatus::Ok, content, reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quiet_operations_are_those_of_the_protocol() {
        let quiet = |opcode| BinaryHead { opcode, opaque: 0, compare: 0, initial: None }.is_quiet();
        let all: Vec<u8> = (0..=u8::MAX).filter(|opcode| quiet(*opcode)).collect();
        let named = [0x09, 0x0d, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1e, 0x24];
        assert_eq!(all, named);
    }

    #[test]
    fn a_response_has_its_parts_in_order() {
        let head = BinaryHead { opcode: opcode::GETK, opaque: 0x0102_0304, compare: 0, initial: None };
        let mut reply = Vec::new();
        let content = ResponseContent { unique: 7, flags: Some(0xdead_beef), key: b"key", value: b"value" };
        head.respond(ResponseStatus::Ok, content, &mut reply);
        let expected = [
            &[0x81, 0x0c, 0, 3, 4, 0, 0, 0][..],
            &[0, 0, 0, 12, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 7],
            &[0xde, 0xad, 0xbe, 0xef],
            b"keyvalue",
        ];
        assert_eq!(reply, expected.concat());
    }
}
