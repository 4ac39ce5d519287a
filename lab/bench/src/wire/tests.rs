//! Every dialect: a reply is taken when its last byte has arrived and not before, and wrong bytes are never a reply.

use super::*;

fn value(bytes: &[u8], unique: u64) -> Reply<'static> {
    Reply::Value { key: None, bytes: Cow::Owned(bytes.to_vec()), unique }
}

/// Takes `reply` whole, checks that no shorter piece is taken, and returns the reply.
fn whole(dialect: Dialect, op: Op, reply: &[u8]) -> Reply<'static> {
    for cut in 0..reply.len() {
        assert_eq!(dialect.take(op, &reply[..cut]), Taken::Incomplete, "{op:?} cut at {cut}");
    }
    let longer = [reply, b"STORED\r\n"].concat();
    match dialect.take(op, &longer) {
        Taken::Whole(used, found) if used == reply.len() => match found {
            Reply::Value { bytes, unique, .. } => value(&bytes, unique),
            Reply::Refused(words) => Reply::Refused(Cow::Owned(words.into_owned())),
            Reply::Stored => Reply::Stored,
            Reply::NotStored => Reply::NotStored,
            Reply::Missing => Reply::Missing,
            Reply::Deleted => Reply::Deleted,
            Reply::Number(number) => Reply::Number(number),
        },
        other => panic!("{op:?} {}: {other:?}", String::from_utf8_lossy(reply)),
    }
}

#[test]
fn memcached_replies() {
    let take = |op, reply| whole(Dialect::Memcached, op, reply);
    assert_eq!(take(Op::Get, b"VALUE k 0 4\r\na\r\nb\r\nEND\r\n"), value(b"a\r\nb", 0));
    assert_eq!(take(Op::Gets, b"VALUE k 0 1 77\r\na\r\nEND\r\n"), value(b"a", 77));
    assert_eq!(take(Op::Get, b"END\r\n"), Reply::Missing);
    assert_eq!(take(Op::Set, b"STORED\r\n"), Reply::Stored);
    assert_eq!(take(Op::Add, b"NOT_STORED\r\n"), Reply::NotStored);
    assert_eq!(take(Op::Cas, b"EXISTS\r\n"), Reply::NotStored);
    assert_eq!(take(Op::Delete, b"DELETED\r\n"), Reply::Deleted);
    assert_eq!(take(Op::Incr, b"12\r\n"), Reply::Number(12));
    let refused = Reply::Refused(Cow::Borrowed(&b"SERVER_ERROR busy"[..]));
    assert_eq!(take(Op::Incr, b"SERVER_ERROR busy\r\n"), refused);
}

#[test]
fn memcached_nonsense() {
    for (op, reply) in [
        (Op::Get, &b"STORED\r\n"[..]),
        (Op::Set, b"END\r\n"),
        (Op::Get, b"VALUE k 0 1\r\nab\r\nEND\r\n"),
        (Op::Get, b"VALUE k 0 99999999999999999999\r\n"),
        (Op::Incr, b"1a\r\n"),
    ] {
        assert!(matches!(Dialect::Memcached.take(op, reply), Taken::Nonsense(_)), "{op:?}");
    }
}

#[test]
fn memcached_requests() {
    let mut out = Vec::new();
    let mut request = WireRequest { op: Op::Set, key: b"k", value: b"vv", ttl: 300, unique: 9 };
    Dialect::Memcached.write(&request, &mut out);
    request.op = Op::Cas;
    Dialect::Memcached.write(&request, &mut out);
    request.op = Op::Incr;
    Dialect::Memcached.write(&request, &mut out);
    assert_eq!(out, b"set k 0 300 2\r\nvv\r\ncas k 0 300 2 9\r\nvv\r\nincr k 1\r\n");
}

#[test]
fn redis_writes_wait_and_reads_do_not() {
    let dialect = Dialect::Redis { wait: 1 };
    let mut out = Vec::new();
    dialect.write(&WireRequest { op: Op::Set, key: b"k", value: b"vv", ttl: 0, unique: 0 }, &mut out);
    assert_eq!(
        out,
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nvv\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n2000\r\n"
    );
    assert_eq!(whole(dialect, Op::Set, b"+OK\r\n:2\r\n"), Reply::Stored);
    assert!(matches!(whole(dialect, Op::Set, b"+OK\r\n:0\r\n"), Reply::Refused(_)));
    assert_eq!(whole(dialect, Op::Add, b"$-1\r\n:1\r\n"), Reply::NotStored);
    assert_eq!(whole(dialect, Op::Get, b"$3\r\na\r\n\r\n"), value(b"a\r\n", 0));
    assert_eq!(whole(dialect, Op::Get, b"$-1\r\n"), Reply::Missing);
    assert!(matches!(dialect.take(Op::Get, b"+OK\r\n"), Taken::Nonsense(_)));
}

#[test]
fn etcd_with_a_length_and_in_chunks() {
    let body = br#"{"header":{"revision":"2"}}"#;
    let put =
        [format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
    assert_eq!(whole(Dialect::Etcd, Op::Set, &put), Reply::Stored);
    let first = br#"{"header":{"revision":"2"},"kvs":[{"key":"aw==","#;
    let second = br#""value":"dnY="}],"count":"1"}"#;
    let mut get = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for piece in [&first[..], second, b""] {
        get.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        get.extend_from_slice(piece);
        get.extend_from_slice(b"\r\n");
    }
    assert_eq!(whole(Dialect::Etcd, Op::Get, &get), value(b"vv", 0));
    let bad = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno";
    assert_eq!(whole(Dialect::Etcd, Op::Set, bad), Reply::Refused(Cow::Borrowed(b"no")));
}
