//! memcached's binary protocol: packets, as PHP's sessions, memjs and older releases of Dalli send them by default.
//!
//! A packet becomes the same classic command that a line would, with a [`BinaryHead`] around it. The answers to wrong
//! packets are stock memcached's, which closes the connection after most of them.

use bytes::Bytes;

use crate::command::binary::{BinaryHead, HEADER_BYTES, REQUEST, ResponseContent, ResponseStatus, opcode};
use crate::command::{Command, Key, Keys, StoreMode};
use crate::limits::KEY_BYTES;
use crate::protocol::text::is_too_large;
use crate::protocol::{Step, VERSION, login};

/// The expiry time by which a client says that `incr` and `decr` create nothing.
const CREATE_NOTHING: u32 = u32::MAX;
/// Longest value of a packet that has no value of an item: names and passwords.
const OTHER_VALUE_BYTES: usize = 1024;

/// The progress over the bytes of one packet.
pub(super) enum Decoded<'a> {
    /// So many bytes are needed in all.
    NeedMore(usize),
    /// A request.
    Step {
        /// What it asks for.
        step: Step,
        /// Bytes of the packet, without the value that a [`Step::Value`] or a [`Step::Skip`] takes.
        used: usize,
    },
    /// A request that the connection answers itself.
    Own(Packet<'a>),
}

/// A whole packet.
pub(super) struct Packet<'a> {
    /// Its operation and numbers.
    pub(super) head: BinaryHead,
    /// The key: the name of statistics or of a mechanism.
    pub(super) key: &'a [u8],
    /// The value.
    pub(super) value: &'a [u8],
}

impl Packet<'_> {
    /// The packet's length.
    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + self.key.len() + self.value.len()
    }
}

/// The lengths and numbers in a header.
struct Header {
    head: BinaryHead,
    extras: usize,
    key: usize,
    body: usize,
}

impl Header {
    /// None of a packet that is no request.
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let [magic, opcode, key @ ..] = bytes;
        if *magic != REQUEST {
            return None;
        }
        let [k1, k0, extras, _type, _, _, b3, b2, b1, b0, o3, o2, o1, o0, compare @ ..] = key;
        let head = BinaryHead {
            opcode: *opcode,
            opaque: u32::from_be_bytes([*o3, *o2, *o1, *o0]),
            compare: u64::from_be_bytes(*compare),
            initial: None,
        };
        Some(Header {
            head,
            extras: usize::from(*extras),
            key: usize::from(u16::from_be_bytes([*k1, *k0])),
            body: u32::from_be_bytes([*b3, *b2, *b1, *b0]) as usize,
        })
    }
}

/// The numbers before the key.
struct Extras<'a>(&'a [u8]);

impl Extras<'_> {
    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn u64(&self, at: usize) -> u64 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }
}

/// A failed request, after which the connection ends: the rest cannot be trusted to begin with a packet.
fn refuse(head: &BinaryHead, status: ResponseStatus, used: usize) -> Decoded<'static> {
    let mut reply = Vec::new();
    head.fail(status, &mut reply);
    Decoded::Step { step: Step::Close(reply), used }
}

/// A failed request whose body of `skip` further bytes is passed over.
fn pass_over(head: &BinaryHead, status: ResponseStatus, used: usize, skip: usize) -> Decoded<'static> {
    let mut reply = Vec::new();
    head.fail(status, &mut reply);
    Decoded::Step { step: Step::Skip { now: Box::new(Step::Reply(reply)), bytes: skip as u64 }, used }
}

/// The next packet of `input`, of a client that has logged in if `may_ask`.
pub(super) fn next<'a>(input: &'a [u8], may_ask: bool) -> Decoded<'a> {
    let Some(bytes) = input.first_chunk() else {
        let is_other = input.first().is_some_and(|magic| *magic != REQUEST);
        let closed = Decoded::Step { step: Step::Close(Vec::new()), used: input.len() };
        return if is_other { closed } else { Decoded::NeedMore(HEADER_BYTES) };
    };
    let Some(Header { head, extras, key, body }) = Header::parse(bytes) else {
        return Decoded::Step { step: Step::Close(Vec::new()), used: input.len() };
    };
    if key + extras > body {
        return refuse(&head, ResponseStatus::Unknown, HEADER_BYTES);
    }
    if !may_ask && !login::is_free(head.opcode) {
        return refuse(&head, ResponseStatus::Unauthenticated, HEADER_BYTES);
    }
    if key > KEY_BYTES {
        return refuse(&head, ResponseStatus::Invalid, HEADER_BYTES);
    }
    let value = body - key - extras;
    match form_of(head.opcode) {
        None => pass_over(&head, ResponseStatus::Unknown, HEADER_BYTES, body),
        Some(form) if !form.fits(extras, key, value) => refuse(&head, ResponseStatus::Invalid, HEADER_BYTES),
        Some(form) => {
            let used = HEADER_BYTES + extras + key;
            // The value of an item is waited for by the step: it may be too large to be kept.
            let whole = if form.value == ValueForm::OfItem { used } else { HEADER_BYTES + body };
            let Some(packet) = input.get(HEADER_BYTES..whole) else { return Decoded::NeedMore(whole) };
            let (extras, rest) = packet.split_at(extras);
            let (key, value_bytes) = rest.split_at(key);
            if form.is_own {
                return Decoded::Own(Packet { head, key, value: value_bytes });
            }
            ordered(head, &Extras(extras), Key::new(key), value, used)
        }
    }
}

/// The value that a packet of an operation may have.
#[derive(PartialEq, Eq)]
enum ValueForm {
    None,
    OfItem,
    Other,
}

/// The form of an operation's packets.
struct PacketForm {
    /// Bytes of the extras.
    extras: &'static [usize],
    /// Whether it has a key; `None` if it may.
    key: Option<bool>,
    value: ValueForm,
    /// Whether the connection answers it itself.
    is_own: bool,
}

impl PacketForm {
    fn fits(&self, extras: usize, key: usize, value: usize) -> bool {
        let value_fits = match self.value {
            ValueForm::None => value == 0,
            ValueForm::OfItem => true,
            ValueForm::Other => value <= OTHER_VALUE_BYTES,
        };
        self.extras.contains(&extras) && self.key.is_none_or(|wanted| wanted == (key > 0)) && value_fits
    }
}

fn form_of(code: u8) -> Option<PacketForm> {
    use opcode::*;
    let form = |extras, key, value, is_own| Some(PacketForm { extras, key, value, is_own });
    match code {
        GET | GETQ | GETK | GETKQ | DELETE | DELETEQ => form(&[0], Some(true), ValueForm::None, false),
        SET | SETQ | ADD | ADDQ | REPLACE | REPLACEQ => form(&[8], Some(true), ValueForm::OfItem, false),
        APPEND | APPENDQ | PREPEND | PREPENDQ => form(&[0], Some(true), ValueForm::OfItem, false),
        INCREMENT | INCREMENTQ | DECREMENT | DECREMENTQ => form(&[20], Some(true), ValueForm::None, false),
        TOUCH | GAT | GATQ | GATK | GATKQ => form(&[4], Some(true), ValueForm::None, false),
        FLUSH | FLUSHQ => form(&[0, 4], Some(false), ValueForm::None, false),
        NOOP | VERSION | QUIT | QUITQ | SASL_LIST_MECHS => form(&[0], Some(false), ValueForm::None, true),
        STAT => form(&[0], None, ValueForm::None, true),
        SASL_AUTH | SASL_STEP => form(&[0], Some(true), ValueForm::Other, true),
        _ => None,
    }
}

/// A request that is ordered.
fn ordered(
    mut head: BinaryHead,
    extras: &Extras<'_>,
    key: Option<Key>,
    value: usize,
    used: usize,
) -> Decoded<'static> {
    use opcode::*;
    let classic = match (head.opcode, key) {
        (FLUSH | FLUSHQ, _) => Command::FlushAll { delay: i64::from(extras.u32(0)), quiet: false },
        (GET | GETQ | GETK | GETKQ, Some(key)) => {
            Command::Get { keys: Keys::from_iter([key]), with_unique: true, touch: None }
        }
        (GAT | GATQ | GATK | GATKQ, Some(key)) => {
            let touch = Some(i64::from(extras.u32(0)));
            Command::Get { keys: Keys::from_iter([key]), with_unique: true, touch }
        }
        (TOUCH, Some(key)) => Command::Touch { key, expiry: i64::from(extras.u32(0)), quiet: false },
        (DELETE | DELETEQ, Some(key)) => Command::Delete { key, quiet: false },
        (INCREMENT | INCREMENTQ | DECREMENT | DECREMENTQ, Some(key)) => {
            let expiry = extras.u32(16);
            head.initial = (expiry != CREATE_NOTHING).then(|| (extras.u64(8), expiry));
            let up = matches!(head.opcode, INCREMENT | INCREMENTQ);
            Command::Arithmetic { key, up, delta: extras.u64(0), quiet: false }
        }
        (_, Some(key)) => return store(head, extras, key, value, used),
        (_, None) => return refuse(&head, ResponseStatus::Invalid, used),
    };
    Decoded::Step { step: Step::Order(Command::Binary { head, command: Box::new(classic) }), used }
}

fn store(head: BinaryHead, extras: &Extras<'_>, key: Key, length: usize, used: usize) -> Decoded<'static> {
    use opcode::*;
    let mode = match head.opcode {
        SET | SETQ => StoreMode::Set,
        ADD | ADDQ => StoreMode::Add,
        REPLACE | REPLACEQ => StoreMode::Replace,
        APPEND | APPENDQ => StoreMode::Append,
        _ => StoreMode::Prepend,
    };
    let (flags, expiry) = (extras.u32(0), i64::from(extras.u32(4)));
    if is_too_large(&key, flags, length) {
        if mode != StoreMode::Set {
            return pass_over(&head, ResponseStatus::TooLarge, used, length);
        }
        let command = Box::new(Command::TooLarge { key, quiet: false });
        let now = Box::new(Step::Order(Command::Binary { head, command }));
        return Decoded::Step { step: Step::Skip { now, bytes: length as u64 }, used };
    }
    let command = Command::Store { mode, key, flags, expiry, unique: 0, value: Bytes::new(), quiet: false };
    let command = Command::Binary { head, command: Box::new(command) };
    Decoded::Step { step: Step::Value { command, length, end: b"", loud: true }, used }
}

/// The answer to a packet that needs no order and is about neither statistics nor passwords.
pub(super) fn own(packet: &Packet<'_>) -> Step {
    let Packet { head, .. } = packet;
    let mut reply = Vec::new();
    match head.opcode {
        opcode::NOOP => head.succeed(ResponseContent::default(), &mut reply),
        opcode::VERSION => {
            head.succeed(
                ResponseContent { value: VERSION.as_bytes(), ..ResponseContent::default() },
                &mut reply,
            );
        }
        opcode::QUIT | opcode::QUITQ => {
            head.succeed(ResponseContent::default(), &mut reply);
            return Step::Close(reply);
        }
        _ => head.fail(ResponseStatus::Unknown, &mut reply),
    }
    Step::Reply(reply)
}
