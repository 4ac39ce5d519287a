//! One replica in the test's process, and its replies as a client reads them.

use crosscheck::object::{ObjectId, to_bytes};
use crosscheck::testing::{Replica, RequestEnd};
use sql::{Sql, SqlRequest};

/// The encoding of a query.
pub fn encoded(text: &str) -> Vec<u8> {
    to_bytes(&SqlRequest::query(text))
}

/// A message of PostgreSQL's protocol.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// A replica with an empty database.
pub fn replica() -> Replica<Sql> {
    Replica::new(Sql::new())
}

/// The reply's bytes.
pub fn bytes(replica: &mut Replica<Sql>, text: &str) -> Vec<u8> {
    match replica.run(&encoded(text)) {
        RequestEnd::Replied(reply) => reply,
        RequestEnd::Corrupted(wrong) => panic!("{text}: {wrong:?}"),
    }
}

/// What a client reads of a reply.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Names of the last columns, their types' numbers, and values of all rows, with `|` between them.
    pub columns: String,
    pub types: String,
    pub rows: Vec<String>,
    /// What each statement did.
    pub tags: Vec<String>,
    /// SQLSTATE, message and hint.
    pub error: Option<[String; 3]>,
}

/// Reads a reply.
pub fn read(reply: &[u8]) -> Answer {
    let mut rest = reply;
    let (mut answer, mut is_ready) = (Answer::default(), false);
    while let [kind, a, b, c, d, behind @ ..] = rest {
        assert!(!is_ready, "nothing follows ReadyForQuery");
        let (body, behind) = behind.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize - 4);
        match kind {
            b'T' => (answer.columns, answer.types) = columns(body),
            b'D' => answer.rows.push(values(body)),
            b'C' => answer.tags.push(text(body).trim_end_matches('\0').to_owned()),
            b'E' => answer.error = Some(['C', 'M', 'H'].map(|name| field(&text(body), name))),
            b'Z' => is_ready = true,
            kind => assert_eq!(*kind, b'I'),
        }
        rest = behind;
    }
    assert!(rest.is_empty() && is_ready, "a reply ends with ReadyForQuery");
    answer
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn field(body: &str, name: char) -> String {
    body.split('\0').find_map(|field| field.strip_prefix(name)).unwrap_or_default().to_owned()
}

fn columns(body: &[u8]) -> (String, String) {
    let (count, mut rest) = body.split_at(2);
    let (mut names, mut types) = (Vec::new(), Vec::new());
    for _ in 0..u16::from_be_bytes([count[0], count[1]]) {
        let end = rest.iter().position(|byte| *byte == 0).expect("a name ends with a zero");
        names.push(text(&rest[..end]));
        let number = rest[end + 7..].first_chunk().expect("a type");
        types.push(u32::from_be_bytes(*number).to_string());
        rest = &rest[end + 19..];
    }
    (names.join("|"), types.join("|"))
}

fn values(body: &[u8]) -> String {
    let (count, mut rest) = body.split_at(2);
    let mut values = Vec::new();
    for _ in 0..u16::from_be_bytes([count[0], count[1]]) {
        let (length, behind) = rest.split_first_chunk().expect("a length");
        let length = i32::from_be_bytes(*length);
        let (value, behind) = behind.split_at(length.max(0) as usize);
        values.push(if length < 0 { "NULL".to_owned() } else { text(value) });
        rest = behind;
    }
    values.join("|")
}

/// The answer to a query.
pub fn ask(replica: &mut Replica<Sql>, query: &str) -> Answer {
    read(&bytes(replica, query))
}

/// The rows of the answer to a query that must succeed.
pub fn rows(replica: &mut Replica<Sql>, query: &str) -> Vec<String> {
    let answer = ask(replica, query);
    assert_eq!(answer.error, None, "{query}");
    answer.rows
}

/// SQLSTATE of a query that must fail.
pub fn error(replica: &mut Replica<Sql>, query: &str) -> String {
    let [code, ..] = ask(replica, query).error.unwrap_or_else(|| panic!("{query} must fail"));
    code
}

/// The objects of all pages.
pub fn pages(one: &mut Replica<Sql>) -> Vec<ObjectId> {
    (1..).map_while(|number| one.find(&format!("page:{number}"))).map(|(_, id)| id).collect()
}

/// The file as they have it.
pub fn file(one: &mut Replica<Sql>) -> Vec<u8> {
    let pages = pages(one);
    let bytes = |page: &ObjectId| {
        one.with_region(0, |region| {
            let packed = region.pack(*page).expect("a page");
            let members = region.members(&packed).expect("of a class");
            members.byte_string("bytes").expect("its bytes").to_vec()
        })
    };
    pages.iter().flat_map(bytes).collect()
}
