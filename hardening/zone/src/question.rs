//! The names of the zone, what is known about each, and the queries for them.

/// Types of records.
pub const A: u16 = 1;
/// A name server.
pub const NS: u16 = 2;
/// Another name of the same thing.
pub const CNAME: u16 = 5;
/// The head of a zone.
pub const SOA: u16 = 6;
/// A mail exchange.
pub const MX: u16 = 15;
/// Text.
pub const TXT: u16 = 16;

/// How long a record may be kept, in seconds.
pub const TTL: u32 = 3_600;
/// Longest reply in a datagram.
pub const DATAGRAM: usize = 512;
/// Bytes of records that fit into a datagram with the longest names of the zone.
const FITS: usize = 370;
/// The class of all records: the Internet.
pub(crate) const INTERNET: u16 = 1;

/// A question about `hHOST.zZONE.test`. Zones with an odd number are delegated to the second server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Question {
    /// The number of the name in its zone.
    pub host: u64,
    /// The number of the zone.
    pub zone: u64,
    /// The type of the records.
    pub kind: u16,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneRecord {
    /// The name that it belongs to.
    pub name: Vec<u8>,
    /// Its type.
    pub kind: u16,
    /// Its data; names in it are whole.
    pub data: Vec<u8>,
}

/// What is known about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownRecords {
    /// These records: (type, data).
    Records(Vec<(u16, Vec<u8>)>),
    /// It has records, but none of this type.
    Nothing,
    /// There is no such name.
    Absent,
}

impl Question {
    /// The name, as messages have it.
    pub fn name(&self) -> Vec<u8> {
        labels(&[&format!("h{}", self.host), &format!("z{}", self.zone), "test"])
    }

    /// A query for it.
    pub fn query(&self, id: u16) -> Vec<u8> {
        let head = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
        [&head[..], &self.name(), &self.kind.to_be_bytes(), &INTERNET.to_be_bytes()].concat()
    }

    /// The question of a query, or of a reply to it.
    pub fn of(message: &[u8]) -> Option<Self> {
        let rest = message.get(12..)?;
        let end = rest.iter().position(|&byte| byte == 0)? + 1;
        let (name, rest) = rest.split_at(end);
        let [high, low, 0, 1] = *rest.get(..4)? else { return None };
        let question = Question {
            host: number(name, 0)?,
            zone: number(name, 1)?,
            kind: u16::from_be_bytes([high, low]),
        };
        (question.name() == name).then_some(question)
    }

    /// What the zone knows about this name alone.
    pub fn known(&self) -> KnownRecords {
        let Question { host, zone, kind } = *self;
        let other = self.next().name();
        let records: Vec<(u16, Vec<u8>)> = match host % 5 {
            // A chain of names: it ends where the number is no longer of this kind, at 0 at last.
            1 if host > 1 => vec![(CNAME, other)],
            2 => return KnownRecords::Absent,
            _ => {
                let addresses = (0..1 + host % 4).map(|at| (A, vec![10, zone as u8, at as u8, host as u8]));
                let exchanges = (0..host % 3).map(|at| (MX, [&[0, at as u8][..], &other].concat()));
                let lines = 1 + host % 7;
                let text = (0..lines).map(|at| (TXT, [&[120][..], &[b'a' + at as u8; 120]].concat()));
                addresses.chain(exchanges).chain(text).collect()
            }
        };
        let fitting: Vec<_> = records.into_iter().filter(|(of, _)| *of == kind || *of == CNAME).collect();
        if fitting.is_empty() { KnownRecords::Nothing } else { KnownRecords::Records(fitting) }
    }

    /// The question that a chain of names leads to.
    fn next(&self) -> Self {
        Question { host: self.host / 2, ..*self }
    }

    /// The records of the right reply, with all names of a chain, and its code.
    pub fn answer(&self) -> (Vec<ZoneRecord>, u8) {
        let mut question = *self;
        let mut answer = Vec::new();
        loop {
            let records = match question.known() {
                KnownRecords::Absent => return (answer, 3),
                KnownRecords::Nothing => return (answer, 0),
                KnownRecords::Records(records) => records,
            };
            let goes_on = records[0].0 == CNAME && self.kind != CNAME;
            let name = question.name();
            answer.extend(records.into_iter().map(|(kind, data)| ZoneRecord {
                name: name.clone(),
                kind,
                data,
            }));
            if !goes_on {
                return (answer, 0);
            }
            question = question.next();
        }
    }

    /// Whether the reply fits into a datagram, that of the zone's own server too.
    pub fn fits(&self) -> bool {
        // Name, type, class, time and length of a record; the name is a reference where it is the question's.
        let size = |record: &ZoneRecord| 12 + record.data.len();
        self.answer().0.iter().map(size).sum::<usize>() <= FITS
    }
}

/// A name of these labels.
pub(crate) fn labels(of: &[&str]) -> Vec<u8> {
    let mut name = Vec::new();
    for label in of {
        name.push(label.len() as u8);
        name.extend_from_slice(label.as_bytes());
    }
    name.push(0);
    name
}

/// The number behind the first letter of a label of a name.
pub(crate) fn number(name: &[u8], label: usize) -> Option<u64> {
    let mut at = 0;
    for _ in 0..label {
        at += 1 + usize::from(*name.get(at)?);
    }
    let length = usize::from(*name.get(at)?);
    std::str::from_utf8(name.get(at + 2..at + 1 + length)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_of_a_query_is_found_again() {
        let question = Question { host: 31, zone: 4, kind: TXT };
        let query = question.query(7);
        assert_eq!(Question::of(&query), Some(question));
        for length in 0..query.len() {
            assert_eq!(Question::of(&query[..length]), None, "{length} bytes");
        }
        let mut other = query;
        let last = other.len() - 1;
        other[last] = 3;
        assert_eq!(Question::of(&other), None, "of another class");
    }

    #[test]
    fn a_chain_of_names_is_followed_to_its_end() {
        let kinds = |host, kind| {
            let (records, code) = Question { host, zone: 0, kind }.answer();
            (records.iter().map(|record| record.kind).collect::<Vec<_>>(), code)
        };
        assert_eq!(kinds(3, A), (vec![A, A, A, A], 0));
        assert_eq!(kinds(6, A), (vec![CNAME, A, A, A, A], 0), "h6, h3");
        assert_eq!(kinds(6, CNAME), (vec![CNAME], 0));
        assert_eq!(kinds(2, A), (vec![], 3));
        assert_eq!(kinds(3, MX), (vec![], 0), "no mail exchange");
    }
}
