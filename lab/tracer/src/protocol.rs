//! Finds the end of each reply, and classifies how a wrong one deviates: for memcached's text protocol, with or without
//! CRCs, DNS, MQTT, PostgreSQL's, or plain lines.

use crc32c::{crc32c, crc32c_append};
use memcached_client::reply::{self, Longest, TakenReply, TextReply, ValueRead};
use serde::{Deserialize, Serialize};
use zone::{Question, WrongAnswer};

use crate::mqtt;
use crate::postgres;
use crate::record::InjectionClass;
use crate::trace::TraceRequest;

/// The format of a target's replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// memcached's text protocol, one reply per request.
    #[default]
    Memcached,
    /// memcached's text protocol with CRC-32Cs, as programs of `crosscheck harden` have it: a line with the request's
    /// before each request, and behind each reply a line with the CRC of the reply, continued from the request's. The
    /// requests of a target have CRCs if its trace says so, which decides this.
    #[serde(skip)]
    MemcachedSummed,
    /// One line per request.
    Lines,
    /// DNS, each message with its length before it, as over a stream. A target speaks it if its trace asks for names of
    /// a zone.
    #[serde(skip)]
    Dns,
    /// MQTT: a reply is what the broker sends up to the answer to a ping behind the request. A target speaks it if its
    /// trace has messages.
    #[serde(skip)]
    Mqtt,
    /// PostgreSQL's: a reply is what the server sends up to ReadyForQuery. A target speaks it if its trace has
    /// statements.
    #[serde(skip)]
    Postgres,
}

/// What the beginning of a stream of replies contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFrame {
    /// A reply of this many bytes.
    Whole(usize),
    /// An incomplete reply.
    Part,
    /// No reply of this protocol begins like this.
    Malformed,
}

/// How a reply deviates from the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wrong {
    /// A stored value differs, or a number does.
    Value,
    /// A stored value is not returned: legal for a cache, wrong against the trace.
    Missing,
    /// A value is returned that is not stored.
    Extra,
    /// Another outcome than the right one.
    Status,
    /// The server reports a failure.
    ErrorReply,
    /// A value for a key that was not requested: a client detects this.
    ForeignKey,
    /// Not a reply of the protocol.
    Malformed,
    /// The reply's CRC does not fit it, or fits another request: the client discards it.
    #[serde(rename = "invalid message")]
    InvalidSum,
    /// The reply says that it is cut off, where the right one is not: the client asks again over a stream.
    Truncated,
}

impl Wrong {
    /// What the deviation is for the client of a single server.
    pub fn class(self) -> InjectionClass {
        match self {
            // The hardened program's own protection: its client recognises the message as corrupt.
            Wrong::InvalidSum => InjectionClass::Detected,
            Wrong::ErrorReply | Wrong::ForeignKey | Wrong::Malformed | Wrong::Truncated => {
                InjectionClass::Otherwise
            }
            Wrong::Value | Wrong::Missing | Wrong::Extra | Wrong::Status => InjectionClass::Undetected,
        }
    }

    /// Its name in records.
    pub fn name(self) -> String {
        let word = serde_json::to_value(self).ok().and_then(|word| word.as_str().map(str::to_owned));
        word.unwrap_or_default()
    }
}

/// The line with a reply's CRC, `@` and eight hexadecimal digits.
const SUM_LINE: usize = 11;

/// The longest line and value that are accepted.
const LONGEST: Longest = Longest { line: 2048, value: 1 << 20 };

impl From<WrongAnswer> for Wrong {
    fn from(wrong: WrongAnswer) -> Self {
        match wrong {
            WrongAnswer::Malformed => Wrong::Malformed,
            WrongAnswer::Foreign => Wrong::ForeignKey,
            WrongAnswer::Failure => Wrong::ErrorReply,
            WrongAnswer::Truncated => Wrong::Truncated,
            WrongAnswer::Status => Wrong::Status,
            WrongAnswer::Value => Wrong::Value,
            WrongAnswer::Missing => Wrong::Missing,
            WrongAnswer::Extra => Wrong::Extra,
        }
    }
}

/// What a client does with a message that is not a valid reply to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discards {
    /// Nothing: the reply counts as the request's.
    Nothing,
    /// It discards the message, which was the request's reply.
    Reply,
    /// It discards the message and waits for another one.
    Message,
}

impl Protocol {
    /// Whether the client sends a request only when it has the reply to the one before. A resolver waits for other
    /// servers: with several queries at a time, the order of its work would differ with each run.
    pub fn takes_turns(self) -> bool {
        self == Protocol::Dns
    }

    /// What its client does with a reply that is wrong like this.
    pub fn discards(self, wrong: Wrong) -> Discards {
        match (self, wrong) {
            (Protocol::Dns, Wrong::ForeignKey | Wrong::Malformed) => Discards::Message,
            (_, Wrong::InvalidSum) => Discards::Reply,
            _ => Discards::Nothing,
        }
    }

    /// A request of memcached's text protocol as it is sent, and the CRC from which that of its reply is continued.
    pub fn request(self, plain: Vec<u8>) -> (Vec<u8>, u32) {
        if self != Protocol::MemcachedSummed {
            return (plain, 0);
        }
        let end = plain.iter().position(|&byte| byte == b'\n').map_or(plain.len(), |at| at + 1);
        let (line, data) = plain.split_at(end);
        let (of_line, of_data) = (crc32c(line), crc32c(data));
        let mut bytes = format!("@{of_line:08x} {of_data:08x}\r\n").into_bytes();
        bytes.extend_from_slice(&plain);
        (bytes, if data.is_empty() { of_line } else { of_data })
    }

    /// Classifies the beginning of `bytes`.
    pub fn frame(self, bytes: &[u8]) -> ReplyFrame {
        if self == Protocol::Dns {
            let length = zone::id(bytes).map(|length| 2 + usize::from(length));
            return length
                .filter(|&length| length <= bytes.len())
                .map_or(ReplyFrame::Part, ReplyFrame::Whole);
        }
        if self == Protocol::Mqtt {
            return mqtt_frame(bytes);
        }
        if self == Protocol::Postgres {
            return postgres::frame(bytes);
        }
        if self != Protocol::MemcachedSummed {
            return self.plain_frame(bytes);
        }
        let length = match self.plain_frame(bytes) {
            ReplyFrame::Whole(length) => length,
            ReplyFrame::Part => return ReplyFrame::Part,
            // It ends with the next line that has a CRC, which the client waits for.
            ReplyFrame::Malformed => match bytes.windows(3).position(|three| three == b"\r\n@") {
                Some(at) => at + 2,
                None => return ReplyFrame::Part,
            },
        };
        if bytes.len() >= length + SUM_LINE { ReplyFrame::Whole(length + SUM_LINE) } else { ReplyFrame::Part }
    }

    fn plain_frame(self, bytes: &[u8]) -> ReplyFrame {
        if self == Protocol::Lines {
            let end = bytes.iter().take(LONGEST.line).position(|&byte| byte == b'\n');
            let part = if bytes.len() >= LONGEST.line { ReplyFrame::Malformed } else { ReplyFrame::Part };
            return end.map_or(part, |end| ReplyFrame::Whole(end + 1));
        }
        match reply::take(bytes, LONGEST) {
            TakenReply::Whole(length, _) => ReplyFrame::Whole(length),
            TakenReply::Incomplete => ReplyFrame::Part,
            TakenReply::Malformed(_) => ReplyFrame::Malformed,
        }
    }

    /// How the reply `got` to a request deviates, if `right` is the right one. The request was for `keys`, and the
    /// CRC of its reply is continued from `seed`.
    pub fn difference(self, keys: &[Vec<u8>], seed: u32, right: &[u8], got: &[u8]) -> Option<Wrong> {
        if right == got {
            return None;
        }
        match self {
            Protocol::Lines => return Some(Wrong::Value),
            Protocol::Dns => return Some(dns_difference(right, got)),
            Protocol::Mqtt => return Some(mqtt_difference(right, got)),
            Protocol::Postgres => return Some(postgres::difference(right, got)),
            Protocol::Memcached => {}
            Protocol::MemcachedSummed => {
                let (Some(right), Some(got)) = (without_sum(right, seed), without_sum(got, seed)) else {
                    return Some(Wrong::InvalidSum);
                };
                return match self.plain_frame(got) {
                    ReplyFrame::Whole(length) if length == got.len() => {
                        Protocol::Memcached.difference(keys, seed, right, got)
                    }
                    _ => Some(Wrong::Malformed),
                };
            }
        }
        match (parsed(right), parsed(got)) {
            (_, Some(TextReply::Error(_))) => Some(Wrong::ErrorReply),
            (Some(TextReply::Values(right)), Some(TextReply::Values(got))) => {
                Some(value_difference(keys, &right.collect::<Vec<_>>(), &got.collect::<Vec<_>>()))
            }
            (Some(TextReply::Number(_)), Some(TextReply::Number(_))) => Some(Wrong::Value),
            _ => Some(Wrong::Status),
        }
    }

    /// A reply of memcached's text protocol as it is received, if its CRC is continued from `seed`.
    pub fn reply(self, seed: u32, mut plain: Vec<u8>) -> Vec<u8> {
        if self == Protocol::MemcachedSummed {
            let sum = crc32c_append(seed, &plain);
            plain.extend_from_slice(format!("@{sum:08x}\r\n").as_bytes());
        }
        plain
    }

    /// Whether a reply of the golden run is right as far as the request tells: its CRC, or what the zone says.
    pub fn is_sound(self, request: &TraceRequest, reply: &[u8]) -> bool {
        match self {
            Protocol::MemcachedSummed => without_sum(reply, request.seed).is_some(),
            Protocol::Dns => zone::check(&request.bytes[2..], &reply[2..]).is_ok(),
            Protocol::Memcached | Protocol::Lines | Protocol::Mqtt | Protocol::Postgres => true,
        }
    }
}

/// All packets up to the answer to a ping.
fn mqtt_frame(bytes: &[u8]) -> ReplyFrame {
    let mut at = 0;
    loop {
        match mqtt::length(&bytes[at..]) {
            Err(mqtt::NoPacket) => return ReplyFrame::Malformed,
            Ok(None) => return ReplyFrame::Part,
            Ok(Some(length)) if bytes[at..at + length] == mqtt::PONG => {
                return ReplyFrame::Whole(at + length);
            }
            Ok(Some(length)) => at += length,
        }
    }
}

/// A subscriber to whole trees of topics can recognise no wrong message.
fn mqtt_difference(right: &[u8], got: &[u8]) -> Wrong {
    let [right, got] = [right, got]
        .map(|reply| mqtt::packets(reply).into_iter().filter_map(mqtt::message).collect::<Vec<_>>());
    let lacks = |one: &[mqtt::Publication<'_>], other: &[mqtt::Publication<'_>]| {
        one.iter().any(|message| !other.contains(message))
    };
    match (lacks(&right, &got), lacks(&got, &right)) {
        (true, true) => Wrong::Value,
        (true, false) => Wrong::Missing,
        (false, true) => Wrong::Extra,
        (false, false) if right.len() != got.len() => Wrong::Extra,
        (false, false) => Wrong::Status,
    }
}

/// How one reply deviates from another, which the zone says is right; both with their lengths.
fn dns_difference(right: &[u8], got: &[u8]) -> Wrong {
    let [right, got] = [right, got].map(|reply| reply.get(2..).unwrap_or_default());
    let (Some(question), Some(id)) = (Question::of(right), zone::id(right)) else { return Wrong::Value };
    // Where the zone says nothing else, the time that is left of a record differs.
    zone::check(&question.query(id), got).err().map_or(Wrong::Value, Wrong::from)
}

/// A reply without its last line, if the CRC there fits.
fn without_sum(reply: &[u8], seed: u32) -> Option<&[u8]> {
    let (body, last) = reply.split_at_checked(reply.len().checked_sub(SUM_LINE)?)?;
    (Protocol::MemcachedSummed.reply(seed, body.to_vec()).ends_with(last)).then_some(body)
}

fn parsed(bytes: &[u8]) -> Option<TextReply<'_>> {
    match reply::take(bytes, LONGEST) {
        TakenReply::Whole(_, reply) => Some(reply),
        TakenReply::Incomplete | TakenReply::Malformed(_) => None,
    }
}

fn value_difference(keys: &[Vec<u8>], right: &[ValueRead<'_>], got: &[ValueRead<'_>]) -> Wrong {
    if got.iter().any(|value| !keys.iter().any(|key| key == value.key)) {
        return Wrong::ForeignKey;
    }
    let is_in =
        |value: &ValueRead<'_>, list: &[ValueRead<'_>]| list.iter().any(|other| other.key == value.key);
    let altered =
        |value: &&ValueRead<'_>| right.iter().any(|other| other.key == value.key && other != *value);
    if got.iter().any(|value| altered(&value)) {
        Wrong::Value
    } else if got.iter().any(|value| !is_in(value, right)) || got.len() > right.len() {
        Wrong::Extra
    } else if right.iter().any(|value| !is_in(value, got)) || got.len() < right.len() {
        Wrong::Missing
    } else {
        // The same values in another order.
        Wrong::Value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> ReplyFrame {
        Protocol::Memcached.frame(text.as_bytes())
    }

    fn wrong(keys: &[&str], right: &str, got: &str) -> Option<Wrong> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        Protocol::Memcached.difference(&keys, 0, right.as_bytes(), got.as_bytes())
    }

    #[test]
    fn replies_are_cut_apart() {
        assert_eq!(frame("STORED\r\nEND\r\n"), ReplyFrame::Whole(8));
        assert_eq!(frame("VALUE a 0 3\r\nx\r\n\r\nEND\r\nOK"), ReplyFrame::Whole(23));
        assert_eq!(frame("VALUE a 0 3\r\nxyz\r\nEN"), ReplyFrame::Part);
        assert_eq!(frame("VALUE a 0 3\r\nxyzzy\r\nEND\r\n"), ReplyFrame::Malformed);
        assert_eq!(frame("VALUE a 0 3\r\nxyz\r\nSTORED\r\n"), ReplyFrame::Malformed);
        assert_eq!(frame("STOLED\r\n"), ReplyFrame::Malformed);
        assert_eq!(frame("STOR"), ReplyFrame::Part);
        assert_eq!(frame("12\r\n"), ReplyFrame::Whole(4));
        assert_eq!(frame(&"x".repeat(3000)), ReplyFrame::Malformed);
        assert_eq!(Protocol::Lines.frame(b"anything\nmore"), ReplyFrame::Whole(9));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let one = "VALUE a 0 1\r\nx\r\nEND\r\n";
        assert_eq!(wrong(&["a"], one, one), None);
        assert_eq!(wrong(&["a"], one, "VALUE a 0 1\r\ny\r\nEND\r\n"), Some(Wrong::Value));
        assert_eq!(wrong(&["a"], one, "VALUE a 1 1\r\nx\r\nEND\r\n"), Some(Wrong::Value));
        assert_eq!(wrong(&["a"], one, "END\r\n"), Some(Wrong::Missing));
        assert_eq!(wrong(&["a"], "END\r\n", one), Some(Wrong::Extra));
        assert_eq!(wrong(&["a"], one, "VALUE b 0 1\r\nx\r\nEND\r\n"), Some(Wrong::ForeignKey));
        assert_eq!(wrong(&["a"], "STORED\r\n", "NOT_STORED\r\n"), Some(Wrong::Status));
        assert_eq!(wrong(&["a"], "STORED\r\n", "SERVER_ERROR out of memory\r\n"), Some(Wrong::ErrorReply));
        assert_eq!(wrong(&["a"], "7\r\n", "8\r\n"), Some(Wrong::Value));
    }

    #[test]
    fn messages_of_a_broker_are_compared() {
        let [one, other] = [b"1", b"2"].map(|payload| mqtt::publish(0, "a/b", payload, 0, false));
        let reply = |packets: &[&[u8]]| [packets.concat(), mqtt::PONG.to_vec()].concat();
        let right = reply(&[&mqtt::acknowledge(mqtt::PUBACK, 1), &one]);
        let whole = [&right[..], &one].concat();
        assert_eq!(Protocol::Mqtt.frame(&whole), ReplyFrame::Whole(right.len()));
        assert_eq!(Protocol::Mqtt.frame(&right[..right.len() - 1]), ReplyFrame::Part);
        assert_eq!(Protocol::Mqtt.frame(&[0x40, 9]), ReplyFrame::Malformed);
        for (got, wrong) in [
            (reply(&[&mqtt::acknowledge(mqtt::PUBACK, 1), &other]), Wrong::Value),
            (reply(&[&mqtt::acknowledge(mqtt::PUBACK, 1)]), Wrong::Missing),
            (reply(&[&mqtt::acknowledge(mqtt::PUBACK, 1), &one, &other]), Wrong::Extra),
            (reply(&[&mqtt::acknowledge(mqtt::PUBACK, 1), &one, &one]), Wrong::Extra),
            (reply(&[&mqtt::acknowledge(mqtt::PUBACK, 2), &one]), Wrong::Status),
        ] {
            assert_eq!(Protocol::Mqtt.difference(&[], 0, &right, &got), Some(wrong));
            assert_eq!(wrong.class(), InjectionClass::Undetected);
        }
    }

    #[test]
    fn dns_replies_are_compared_with_the_zone() {
        let question = Question { host: 2, zone: 0, kind: zone::A };
        let with_length = |message: &[u8]| [&(message.len() as u16).to_be_bytes(), message].concat();
        let mut right = question.query(5);
        right[2..4].copy_from_slice(&[0x81, 0x83]);
        let difference = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut got = right.clone();
            change(&mut got);
            Protocol::Dns.difference(&[], 0, &with_length(&right), &with_length(&got))
        };
        assert_eq!(difference(&|_| {}), None);
        assert_eq!(difference(&|got| got[3] = 0x80), Some(Wrong::Status));
        assert_eq!(difference(&|got| got[3] = 0x82), Some(Wrong::ErrorReply));
        assert_eq!(difference(&|got| got[1] = 6), Some(Wrong::ForeignKey));
        assert_eq!(difference(&|got| got.truncate(1)), Some(Wrong::ForeignKey), "no whole id");
        assert_eq!(difference(&|got| got.truncate(20)), Some(Wrong::Malformed));
        assert_eq!(Protocol::Dns.discards(Wrong::ForeignKey), Discards::Message);
        let request = TraceRequest { bytes: with_length(&question.query(5)), keys: vec![], seed: 0 };
        assert!(Protocol::Dns.is_sound(&request, &with_length(&right)));
        assert!(!Protocol::Dns.is_sound(&request, &with_length(&question.query(5))));
        let bytes = with_length(&right);
        assert_eq!(Protocol::Dns.frame(&bytes), ReplyFrame::Whole(bytes.len()));
        assert_eq!(Protocol::Dns.frame(&bytes[..9]), ReplyFrame::Part);
        assert_eq!(Protocol::Dns.frame(&bytes[..1]), ReplyFrame::Part);
    }

    fn with_sum(seed: u32, body: &str) -> Vec<u8> {
        Protocol::MemcachedSummed.reply(seed, body.into())
    }

    #[test]
    fn requests_are_preceded_by_their_sums() {
        let (bytes, seed) = Protocol::MemcachedSummed.request(b"set a 0 0 3\r\nabc\r\n".to_vec());
        let (line, data) = (crc32c(b"set a 0 0 3\r\n"), crc32c(b"abc\r\n"));
        assert_eq!(bytes, format!("@{line:08x} {data:08x}\r\nset a 0 0 3\r\nabc\r\n").into_bytes());
        assert_eq!(seed, data, "of a storage command");
        let (bytes, seed) = Protocol::MemcachedSummed.request(b"get a\r\n".to_vec());
        assert_eq!((bytes.get(9..20), seed), (Some(&b" 00000000\r\n"[..]), crc32c(b"get a\r\n")));
        assert_eq!(Protocol::Memcached.request(b"get a\r\n".to_vec()), (b"get a\r\n".to_vec(), 0));
    }

    /// The reply to a `set` of the hardened memcached 1.6.18, as it was received.
    #[test]
    fn a_real_reply_has_the_sum_that_is_expected() {
        let (_, seed) = Protocol::MemcachedSummed.request(b"set a 0 0 3\r\nabc\r\n".to_vec());
        assert_eq!(with_sum(seed, "STORED\r\n"), b"STORED\r\n@e49e1434\r\n");
    }

    #[test]
    fn a_reply_whose_sum_does_not_fit_is_invalid() {
        let summed = Protocol::MemcachedSummed;
        let difference = |right: &[u8], got: &[u8]| summed.difference(&[b"a".to_vec()], 7, right, got);
        let right = with_sum(7, "VALUE a 0 1\r\nx\r\nEND\r\n");
        assert_eq!(summed.frame(&right), ReplyFrame::Whole(right.len()));
        assert_eq!(summed.frame(&right[..right.len() - 1]), ReplyFrame::Part);
        assert_eq!(difference(&right, &right), None);
        let mut corrupt = right.clone();
        corrupt[13] ^= 1;
        assert_eq!(difference(&right, &corrupt), Some(Wrong::InvalidSum));
        assert_eq!(
            difference(&right, &with_sum(8, "END\r\n")),
            Some(Wrong::InvalidSum),
            "of another request"
        );
        assert_eq!(difference(&right, b"END\r\nEND\r\nEND\r\nE"), Some(Wrong::InvalidSum), "no sum");
        assert_eq!(difference(&right, &with_sum(7, "VALUE a 0 1\r\ny\r\nEND\r\n")), Some(Wrong::Value));
        assert_eq!(difference(&right, &with_sum(7, "END\r\n")), Some(Wrong::Missing));
        assert_eq!(difference(&right, &with_sum(7, "ERROR\r\n")), Some(Wrong::ErrorReply));
        let malformed = with_sum(7, "ENDE\r\n");
        assert_eq!(summed.frame(&malformed), ReplyFrame::Whole(malformed.len()), "the sum is where it ends");
        assert_eq!(difference(&right, &malformed), Some(Wrong::Malformed));
        assert_eq!(summed.frame(b"ENDE\r\nEND\r\n"), ReplyFrame::Part);
    }
}
