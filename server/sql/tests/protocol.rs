//! What connections make of clients' bytes, right ones and others.

use crosscheck::{Action, Progress, Protocol};
use proptest::prelude::*;
use sql::request::{ClientRun, Parameter, Portal, RunPart, Statement};
use sql::{Dialect, PgConnection, SqlRequest};

use crate::client::message;

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
    let run = ClientRun::of_query(Dialect::Postgres, "SELECT 1");
    assert_eq!(ordered, crosscheck::object::to_bytes(&SqlRequest::Alone { run, reads: true }));
    assert_eq!(connection.rendered(&[&query[..], b"more"].concat(), &ordered), Some(query.len()));
    assert_eq!(connection.rendered(&message(b'Q', b"SELECT 2\0"), &ordered), None);
    assert_eq!(done(&mut connection, &message(b'X', b"")), Action::Close(Vec::new()));
    let Action::Reply(newer) = done(&mut PgConnection::new(7), &startup((3 << 16) + 2)) else {
        panic!("no reply")
    };
    assert_eq!(newer[0], b'v', "it is told which version is spoken");
}

/// What a client asks for with these messages of the extended protocol, up to `Sync`.
fn ordered(connection: &mut PgConnection, messages: &[(u8, &[u8])]) -> SqlRequest {
    let bytes: Vec<u8> = messages.iter().flat_map(|(kind, body)| message(*kind, body)).collect();
    for short in 0..bytes.len() {
        let whole = connection.clone();
        assert!(matches!(connection.next(&bytes[..short]), Progress::NeedMore(more) if more > short));
        assert_eq!(*connection, whole, "nothing has happened yet");
    }
    let Action::Order(ordered) = done(connection, &bytes) else { panic!("no request") };
    crosscheck::object::from_bytes(&ordered).expect("a request")
}

const BIND: &[u8] = b"\0s\0\0\0\0\x01\0\0\0\x017\0\x01\0\x01";

#[test]
fn messages_up_to_sync_are_one_request() {
    let mut connection = PgConnection::new(7);
    done(&mut connection, &startup(3 << 16));
    let parse = b"s\0SELECT $1\0\0\x01\0\0\0\x14";
    let messages: [(u8, &[u8]); 5] =
        [(b'P', parse), (b'B', BIND), (b'D', b"P\0"), (b'E', b"\0\0\0\0\0"), (b'S', b"")];
    let SqlRequest::Alone { run, reads: true } = ordered(&mut connection, &messages) else {
        panic!("no query")
    };
    let statement = Statement { text: "SELECT $1".to_owned(), types: vec![20] };
    let value = Parameter { is_binary: false, bytes: Some(b"7".to_vec()) };
    assert_eq!((run.dialect, &run.statements[..]), (Dialect::Postgres, &[statement][..]));
    assert_eq!(run.portals, [Portal { statement: 0, parameters: vec![value], are_binary: vec![true] }]);
    let parts = [
        RunPart::Parse { statement: 0 },
        RunPart::Bind { portal: 0 },
        RunPart::DescribePortal { portal: 0 },
        RunPart::Execute { portal: 0, skip: 0, limit: 0 },
        RunPart::Sync,
    ];
    assert_eq!(run.parts, parts);
    // The statement has a name, and its portal ended with the Sync.
    let again = [(b'B', BIND), (b'S', b"")];
    let SqlRequest::Alone { run, .. } = ordered(&mut connection, &again) else { panic!("no query") };
    assert_eq!((run.statements.len(), run.parts.len()), (1, 2));
    let SqlRequest::Alone { run, .. } = ordered(&mut connection, &[(b'E', b"\0\0\0\0\0"), (b'S', b"")])
    else {
        panic!("no query")
    };
    assert!(matches!(&run.parts[..], [RunPart::Refused(error), RunPart::Sync] if error.code == "34000"));
    let text = b"DEALLOCATE s\0";
    assert!(matches!(done(&mut connection, &message(b'Q', text)), Action::Order(_)));
    let SqlRequest::Alone { run, .. } = ordered(&mut connection, &again) else { panic!("no query") };
    assert!(matches!(&run.parts[..], [RunPart::Refused(error), RunPart::Sync] if error.code == "26000"));
}

#[test]
fn what_may_be_in_a_transaction_says_so() {
    let mut connection = PgConnection::started(7, Dialect::Postgres);
    let parse = |text: &str| [b"\0", text.as_bytes(), b"\0\0\0"].concat();
    let run = |text: &str, end: u8, connection: &mut PgConnection| {
        let bind = b"\0\0\0\0\0\0\0\0";
        let parse = parse(text);
        let messages = [(b'P', &parse[..]), (b'B', bind), (b'E', b"\0\0\0\0\0"), (end, b"")];
        match ordered(connection, &messages) {
            SqlRequest::Alone { .. } => None,
            SqlRequest::InTransaction { session: 7, number, is_open, .. } => Some((number, is_open)),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(run("SELECT 1", b'S', &mut connection), None);
    assert_eq!(run("BEGIN", b'S', &mut connection), Some((Some(0), false)));
    assert_eq!(run("SELECT 1", b'S', &mut connection), Some((Some(1), true)));
    assert_eq!(run("COMMIT", b'S', &mut connection), Some((Some(2), true)));
    assert_eq!(run("SELECT 1", b'S', &mut connection), None);
    assert_eq!(run("SELECT 1", b'H', &mut connection), Some((Some(0), false)), "a Flush: it goes on");
    assert_eq!(run("SELECT 1", b'S', &mut connection), Some((Some(1), true)));
    assert_eq!(run("SELECT 1", b'S', &mut connection), None, "it ended with the Sync");
}

#[test]
fn lines_of_a_copy_are_collected() {
    let mut connection = PgConnection::started(7, Dialect::Postgres);
    let copy = message(b'Q', b"COPY t FROM STDIN\0");
    assert!(matches!(done(&mut connection, &copy), Action::Order(_)));
    let lines = [(b'd', &b"1\t2\n3"[..]), (b'd', b"\t4\n"), (b'c', b"")];
    let SqlRequest::InTransaction { run, .. } = ordered(&mut connection, &lines) else { panic!("no lines") };
    assert_eq!(
        run.parts,
        [
            RunPart::CopyData { statement: 0, data: b"1\t2\n3\t4\n".to_vec() },
            RunPart::CopyEnd { statement: 0 }
        ]
    );
    assert_eq!(done(&mut connection, &message(b'd', b"late")), Action::Nothing);
    assert!(matches!(done(&mut connection, &message(b'?', b"")), Action::Close(_)));
    for body in [&b"no end"[..], b"a\0b\0", b"\xff\0"] {
        let Action::Order(ordered) = done(&mut connection, &message(b'Q', body)) else {
            panic!("no request")
        };
        let SqlRequest::Alone { run, .. } = crosscheck::object::from_bytes(&ordered).expect("a request")
        else {
            panic!("no query")
        };
        assert!(matches!(run.parts[..], [RunPart::Refused(_), RunPart::Sync]));
    }
}

proptest! {
    /// Any bytes are answered, and never more than there are is used.
    #[test]
    fn any_bytes_do_no_harm(input in prop::collection::vec(any::<u8>(), 0..200), is_started in any::<bool>()) {
        let mut connection = if is_started { PgConnection::started(7, Dialect::Sqlite) } else { PgConnection::new(7) };
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
