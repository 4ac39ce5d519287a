//! What connections make of clients' bytes, right ones and others.

use crosscheck::{Action, Progress, Protocol};
use proptest::prelude::*;
use sql::{PgConnection, SqlRequest};

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

fn startup(code: u32) -> Vec<u8> {
    let body = [&code.to_be_bytes()[..], b"user\0me\0database\0bank\0\0"].concat();
    [&(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
}

fn done(connection: &mut PgConnection, input: &[u8]) -> Action {
    match connection.next(input) {
        Progress::Done { used, action } if used == input.len() => action,
        other => panic!("{}: {other:?}", input.escape_ascii()),
    }
}

#[test]
fn a_client_is_let_in_and_asks() {
    let mut connection = PgConnection::new(7);
    let ssl = [8_u32.to_be_bytes(), 80_877_103_u32.to_be_bytes()].concat();
    assert_eq!(done(&mut connection, &ssl), Action::Reply(b"N".to_vec()));
    let Action::Reply(welcome) = done(&mut connection, &startup(3 << 16)) else { panic!("no reply") };
    assert!(welcome.starts_with(b"R\0\0\0\x08\0\0\0\0") && welcome.ends_with(b"Z\0\0\0\x05I"));
    let query = message(b'Q', b"SELECT 1\0");
    let Action::Order(ordered) = done(&mut connection, &query) else { panic!("no request") };
    assert_eq!(ordered, crosscheck::object::to_bytes(&SqlRequest::query("SELECT 1")));
    assert_eq!(connection.rendered(&[&query[..], b"more"].concat(), &ordered), Some(query.len()));
    assert_eq!(connection.rendered(&message(b'Q', b"SELECT 2\0"), &ordered), None);
    assert_eq!(done(&mut connection, &message(b'X', b"")), Action::Close(Vec::new()));
    let Action::Reply(newer) = done(&mut PgConnection::new(7), &startup((3 << 16) + 2)) else {
        panic!("no reply")
    };
    assert_eq!(newer[0], b'v', "it is told which version is spoken");
}

#[test]
fn what_is_not_supported_is_refused_up_to_sync() {
    let mut connection = PgConnection::started(7);
    let Action::Reply(error) = done(&mut connection, &message(b'P', b"\0SELECT $1\0\0\0")) else {
        panic!("no reply")
    };
    let text = String::from_utf8_lossy(&error).into_owned();
    assert!(text.contains("C0A000") && text.contains("pgbench -M simple"), "{text}");
    for kind in [b'B', b'D', b'E', b'Q'] {
        assert_eq!(done(&mut connection, &message(kind, b"x\0")), Action::Nothing);
    }
    assert_eq!(done(&mut connection, &message(b'S', b"")), Action::Reply(b"Z\0\0\0\x05I".to_vec()));
    assert!(matches!(done(&mut connection, &message(b'Q', b"SELECT 1\0")), Action::Order(_)));
    for body in [&b"no end"[..], b"a\0b\0", b"\xff\0"] {
        assert!(matches!(done(&mut connection, &message(b'Q', body)), Action::Reply(_)));
    }
    assert!(matches!(done(&mut connection, &message(b'?', b"")), Action::Close(_)));
}

proptest! {
    /// Any bytes are answered, and never more than there are is used.
    #[test]
    fn any_bytes_do_no_harm(input in prop::collection::vec(any::<u8>(), 0..200), is_started in any::<bool>()) {
        let mut connection = if is_started { PgConnection::started(7) } else { PgConnection::new(7) };
        let mut rest = &input[..];
        while !rest.is_empty() {
            match connection.next(rest) {
                Progress::NeedMore(bytes) => {
                    prop_assert!(bytes > rest.len() && bytes < 2 << 20);
                    break;
                }
                Progress::Done { used, action } => {
                    prop_assert!(used > 0 && used <= rest.len());
                    rest = &rest[used..];
                    if let Action::Close(_) = action {
                        break;
                    }
                }
            }
        }
    }
}
