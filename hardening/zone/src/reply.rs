//! Whether a resolver's reply is what the zone says: taken apart, with all its names made whole, and compared.

use crate::question::{CNAME, DATAGRAM, INTERNET, MX, NS, Question, TTL, ZoneRecord};

/// How a reply deviates from the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongAnswer {
    /// Not a reply of the protocol.
    Malformed,
    /// A reply to another query.
    Foreign,
    /// The server reports a failure.
    Failure,
    /// It says that it is cut off: the client asks again over a stream.
    Truncated,
    /// Another code, or other flags.
    Status,
    /// The data of a record.
    Value,
    /// A record is not there.
    Missing,
    /// A record too many.
    Extra,
}

/// Flags of a right reply: a reply, recursion desired and available.
const FLAGS: u16 = 0x8180;
/// The flag of a reply with authority; dnscache sets it where a name does not exist.
const AUTHORITY: u16 = 0x0400;
/// The flag of a reply that is cut off.
const CUT_OFF: u16 = 0x0200;
/// The bits of the code.
const CODE: u16 = 0x000f;
/// The code of a name that does not exist.
const ABSENT: u16 = 3;
/// Longest name, and most references in one.
const NAME: usize = 255;

/// The id of a message.
pub fn id(message: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes([*message.first()?, *message.get(1)?]))
}

/// Compares the reply to `query` with what the zone says. The time that is left of a record is a clock's, and any that
/// is not longer than the zone's is right.
///
/// # Errors
/// How the reply deviates.
pub fn check(query: &[u8], reply: &[u8]) -> Result<(), WrongAnswer> {
    let question = Question::of(query).ok_or(WrongAnswer::Malformed)?;
    let sent_question = &query[12..];
    if id(query) != id(reply) {
        return Err(WrongAnswer::Foreign);
    }
    let mut rest = MessageReader { bytes: reply, at: 2 };
    let [flags, questions, answers, authorities, more] = rest.head().ok_or(WrongAnswer::Malformed)?;
    if flags & 0x8000 == 0 || questions != 1 {
        return Err(WrongAnswer::Malformed);
    }
    match rest.question() {
        None => return Err(WrongAnswer::Malformed),
        Some(found) if found != sent_question => return Err(WrongAnswer::Foreign),
        Some(_) => {}
    }
    if flags & CUT_OFF != 0 {
        return Err(WrongAnswer::Truncated);
    }
    if !matches!(flags & CODE, 0 | ABSENT) {
        return Err(WrongAnswer::Failure);
    }
    let mut found = Vec::new();
    for _ in 0..answers {
        found.push(rest.record().ok_or(WrongAnswer::Malformed)?);
    }
    let (mut right, code) = question.answer();
    let whole = FLAGS | u16::from(code);
    // Other records than answers are none that the program gives.
    if authorities != 0 || more != 0 || rest.at != reply.len() {
        return Err(WrongAnswer::Malformed);
    }
    if flags != whole && !(u16::from(code) == ABSENT && flags == whole | AUTHORITY) {
        return Err(WrongAnswer::Status);
    }
    found.sort();
    right.sort();
    match found.len() {
        _ if found == right => Ok(()),
        length if length < right.len() => Err(WrongAnswer::Missing),
        length if length > right.len() => Err(WrongAnswer::Extra),
        _ => Err(WrongAnswer::Value),
    }
}

/// A message that is read from its beginning.
struct MessageReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl MessageReader<'_> {
    /// Flags and the four counts.
    fn head(&mut self) -> Option<[u16; 5]> {
        let mut words = [0; 5];
        for word in &mut words {
            *word = self.word()?;
        }
        Some(words)
    }

    fn word(&mut self) -> Option<u16> {
        let bytes = self.bytes.get(self.at..self.at + 2)?;
        self.at += 2;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    }

    /// Name, type and class of the question, as a query has them.
    fn question(&mut self) -> Option<Vec<u8>> {
        let mut question = self.name()?;
        let end = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        question.extend_from_slice(end);
        Some(question)
    }

    /// A record of the zone; none if it has a longer time, or another class.
    fn record(&mut self) -> Option<ZoneRecord> {
        let (name, kind, class) = (self.name()?, self.word()?, self.word()?);
        let time = u32::from(self.word()?) << 16 | u32::from(self.word()?);
        let length = usize::from(self.word()?);
        let end = self.at + length;
        let mut data = Vec::new();
        if kind == MX {
            data.extend_from_slice(self.bytes.get(self.at..self.at + 2)?);
            self.at += 2;
        }
        if matches!(kind, MX | CNAME | NS) {
            data.extend(self.name()?);
        } else {
            data.extend_from_slice(self.bytes.get(self.at..end)?);
            self.at = end;
        }
        (self.at == end && class == INTERNET && time <= TTL).then_some(ZoneRecord { name, kind, data })
    }

    /// A whole name: references to earlier bytes are followed.
    fn name(&mut self) -> Option<Vec<u8>> {
        let mut name = Vec::new();
        let (mut at, mut end) = (self.at, None);
        for _ in 0..NAME {
            let length = usize::from(*self.bytes.get(at)?);
            if length >= 0xc0 {
                let low = usize::from(*self.bytes.get(at + 1)?);
                end = end.or(Some(at + 2));
                at = (length & 0x3f) << 8 | low;
                continue;
            }
            name.extend_from_slice(self.bytes.get(at..=at + length)?);
            at += 1 + length;
            if length == 0 {
                self.at = end.unwrap_or(at);
                return (name.len() <= NAME).then_some(name);
            }
        }
        None
    }
}

const _: () = assert!(NAME < DATAGRAM, "a name and its record fit into a datagram");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::{A, TXT};

    /// The right reply as a resolver gives it: names of records refer to the question where they can.
    fn reply(question: Question, id: u16) -> Vec<u8> {
        let (records, code) = question.answer();
        let mut bytes = question.query(id);
        bytes[2..4].copy_from_slice(&(FLAGS | u16::from(code)).to_be_bytes());
        bytes[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for ZoneRecord { name, kind, data } in records {
            if name == question.name() {
                bytes.extend([0xc0, 12])
            } else {
                bytes.extend(&name)
            }
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 14, 16]);
            bytes.extend((data.len() as u16).to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }

    fn judged(host: u64, kind: u16, change: impl Fn(&mut Vec<u8>)) -> Result<(), WrongAnswer> {
        let question = Question { host, zone: 2, kind };
        let mut reply = reply(question, 9);
        change(&mut reply);
        check(&question.query(9), &reply)
    }

    #[test]
    fn right_replies_are_right() {
        for host in 0..40 {
            for kind in [A, MX, TXT, CNAME] {
                assert_eq!(judged(host, kind, |_| {}), Ok(()), "h{host} {kind}");
            }
        }
        assert_eq!(judged(2, A, |reply| reply[2] |= 4), Ok(()), "a name that does not exist, with authority");
    }

    #[test]
    fn what_is_wrong_is_named() {
        use WrongAnswer::{Extra, Failure, Foreign, Malformed, Missing, Status, Truncated, Value};
        assert_eq!(judged(3, A, |reply| reply[1] ^= 1), Err(Foreign), "the id");
        assert_eq!(judged(3, A, |reply| reply[14] ^= 1), Err(Foreign), "the name that was asked for");
        assert_eq!(judged(3, A, |reply| reply[2] &= 0x7f), Err(Malformed), "a query");
        assert_eq!(judged(3, A, |reply| reply.push(0)), Err(Malformed), "a byte too many");
        assert_eq!(judged(3, A, |reply| reply.truncate(reply.len() - 1)), Err(Malformed), "a byte too few");
        assert_eq!(judged(3, A, |reply| reply[3] |= 2), Err(Failure));
        assert_eq!(judged(3, A, |reply| reply[2] |= 2), Err(Truncated));
        assert_eq!(judged(3, A, |reply| reply[3] |= 3), Err(Status), "no such name");
        assert_eq!(judged(3, A, |reply| reply[2] |= 4), Err(Status), "with authority");
        assert_eq!(judged(3, A, |reply| *reply.last_mut().unwrap() ^= 1), Err(Value));
        let cut = |reply: &mut Vec<u8>| {
            reply.truncate(reply.len() - 16);
            reply[7] -= 1;
        };
        assert_eq!(judged(3, A, cut), Err(Missing));
        let doubled = |reply: &mut Vec<u8>| {
            let last = reply[reply.len() - 16..].to_vec();
            reply.extend(last);
            reply[7] += 1;
        };
        assert_eq!(judged(3, A, doubled), Err(Extra));
        assert_eq!(judged(3, A, |reply| reply[12 + 16 + 2 + 2 + 2] = 0x80), Err(Malformed), "a longer time");
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let question = Question { host: 6, zone: 1, kind: MX };
        let right = reply(question, 1);
        for at in 0..right.len() {
            let _ = check(&question.query(1), &right[..at]);
            for byte in 0..=255 {
                let mut other = right.clone();
                other[at] = byte;
                let is_right = check(&question.query(1), &other).is_ok();
                assert!(!is_right || other == right || is_time(&right, at), "byte {at} is {byte}");
            }
        }
        let loop_of_names = [&right[..12], &[0xc0, 12, 0, 1, 0, 1]].concat();
        assert_eq!(check(&question.query(1), &loop_of_names), Err(WrongAnswer::Malformed));
    }

    /// Whether this byte belongs to the time of a record, which follows type and class.
    fn is_time(reply: &[u8], at: usize) -> bool {
        (at.saturating_sub(3)..=at).any(|begin| reply.get(begin..begin + 4) == Some(&TTL.to_be_bytes()[..]))
    }
}
