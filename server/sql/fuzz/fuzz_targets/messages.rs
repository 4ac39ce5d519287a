//! Any bytes of a client, cut in any way: each step makes progress, each request decodes to what encodes to the same
//! bytes, two instances agree, and cutting changes nothing.
#![no_main]

use std::sync::{Arc, LazyLock};

use crosscheck::object::{from_bytes, to_bytes};
use crosscheck::{Action, Passwords, Progress, Protocol};
use libfuzzer_sys::fuzz_target;
use sql::scram::Users;
use sql::{Dialect, PgConnection, SqlRequest};

static USERS: LazyLock<Arc<Users>> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("sql-fuzz-{}", std::process::id()));
    std::fs::write(&path, "ann:pencil\n").expect("a file");
    let passwords = Passwords::open(&path).expect("a line");
    std::fs::remove_file(&path).expect("it is there");
    Arc::new(Users::new(passwords))
});

/// A connection in one of the states in which it begins.
fn connection(start: u8) -> PgConnection {
    match start % 5 {
        0 => PgConnection::new(7),
        1 => PgConnection::new(7).guarded_by(USERS.clone(), [3; 18]),
        2 => PgConnection::new(7).only_with_tls(),
        3 => PgConnection::started(7, Dialect::Sqlite),
        _ => PgConnection::started(7, Dialect::Postgres),
    }
}

/// The steps that the bytes cause, and whether the connection has ended.
fn actions(one: &mut PgConnection, pending: &mut Vec<u8>, out: &mut Vec<Action>) -> bool {
    let mut other = one.clone();
    loop {
        let progress = one.next(pending);
        assert!(progress == other.next(pending), "two instances agree");
        match progress {
            Progress::NeedMore(wanted) => {
                assert!(wanted > pending.len());
                return false;
            }
            Progress::Done { used, action } => {
                assert!(used > 0 && used <= pending.len());
                if let Action::Order(ordered) = &action {
                    let request: SqlRequest = from_bytes(ordered).expect("what a protocol orders can be decoded");
                    assert!(to_bytes(&request) == *ordered, "the encoding is canonical");
                    assert!(ordered[0] < 0xf0);
                }
                pending.drain(..used);
                let ends = matches!(action, Action::Close(_));
                if action != Action::Nothing {
                    out.push(action);
                }
                if ends {
                    return true;
                }
            }
        }
    }
}

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (start, cut, bytes) = input;
    let (mut whole, mut pending, mut expected) = (connection(start), bytes.to_vec(), Vec::new());
    actions(&mut whole, &mut pending, &mut expected);
    let (mut again, mut pending, mut found) = (connection(start), Vec::new(), Vec::new());
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    for part in [first, second] {
        pending.extend_from_slice(part);
        if actions(&mut again, &mut pending, &mut found) {
            break;
        }
    }
    // Lines of a COPY become requests as they come, so that their number depends on the cut.
    let copies = |actions: &[Action]| actions.len() > 1 && bytes.contains(&b'd');
    assert!(expected == found || copies(&expected) || copies(&found), "{expected:?}\n{found:?}");
});
