//! Any text as a query, in both dialects: the reply is messages of the protocol and ends with ReadyForQuery, nothing
//! fails within the service, and two replicas say the same and have the same pages.
#![no_main]

use std::cell::RefCell;

use crosscheck::object::to_bytes;
use crosscheck::testing::{Replica, RequestEnd};
use libfuzzer_sys::fuzz_target;
use sql::request::ClientRun;
use sql::{Dialect, Sql, SqlRequest};

const TABLES: &str = "CREATE TABLE t (a serial PRIMARY KEY, b int, c text, d timestamptz, e jsonb, f numeric(8, 2)); \
    CREATE INDEX tb ON t (b); CREATE VIEW v AS SELECT a, c FROM t WHERE b > 0; \
    INSERT INTO t (b, c, d, e, f) VALUES (1, 'x', '2024-01-31', '{\"k\": [1]}', 1.5), (2, NULL, NULL, 'null', NULL)";

fn request(dialect: Dialect, text: &str) -> Vec<u8> {
    to_bytes(&SqlRequest::Alone { reads: false, run: ClientRun::of_query(dialect, text) })
}

fn fresh() -> Replica<Sql> {
    let mut replica = Replica::new(Sql::new());
    run(&mut replica, &request(Dialect::Postgres, TABLES));
    replica
}

fn run(replica: &mut Replica<Sql>, request: &[u8]) -> Vec<u8> {
    match replica.run(request) {
        RequestEnd::Replied(reply) => reply,
        RequestEnd::Corrupted(wrong) => panic!("{wrong:?}"),
    }
}

thread_local! {
    /// Two, whose tables are those of fresh ones in front of each query, and what those have for digests.
    static REPLICAS: RefCell<([Replica<Sql>; 2], Vec<u128>)> = RefCell::new(anew());
}

fn anew() -> ([Replica<Sql>; 2], Vec<u128>) {
    let mut replicas = [fresh(), fresh()];
    let digests = replicas[0].digests();
    (replicas, digests)
}

fuzz_target!(|input: (bool, &str)| {
    let (is_sqlite, text) = input;
    if text.len() > 4096 || text.contains('\0') {
        return;
    }
    let request = request(if is_sqlite { Dialect::Sqlite } else { Dialect::Postgres }, text);
    REPLICAS.with_borrow_mut(|(replicas, digests)| {
        let [reply, other] = replicas.each_mut().map(|replica| run(replica, &request));
        let (mut rest, mut last) = (&reply[..], 0);
        while let [kind, a, b, c, d, ..] = *rest {
            last = kind;
            rest = &rest[1 + u32::from_be_bytes([a, b, c, d]) as usize..];
        }
        assert!(rest.is_empty(), "{}", reply.escape_ascii());
        assert!(last == b'Z', "{}", reply.escape_ascii());
        assert!(!reply.windows(6).any(|part| part == b"CXX000"), "{}", reply.escape_ascii());
        assert!(reply == other, "{}\n{}", reply.escape_ascii(), other.escape_ascii());
        let [now, then] = replicas.each_mut().map(Replica::digests);
        assert!(now == then, "the replicas differ");
        if now != *digests {
            (*replicas, *digests) = anew();
        }
    });
});
