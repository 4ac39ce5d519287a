//! Any bytes of a client, cut in any way: each step makes progress, each request decodes, and cutting changes nothing.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use crosscheck::{Action, ClientCounters, Progress, Protocol};
use libfuzzer_sys::fuzz_target;
use memcached::command::{decode, encode};
use memcached::stats::Stats;
use memcached::{Config, Connection};

fn connection() -> Connection {
    Connection::new(Arc::new(Stats::new(Config::default())), Arc::new(ClientCounters::default()))
}

/// The answer to `stats` without its text: it has times that go on.
fn without_figures(action: Action) -> Action {
    match action {
        Action::Reply(text) if text.starts_with(b"STAT ") || text.starts_with(b"\x81\x10") => {
            Action::Reply(b"STAT".to_vec())
        }
        action => action,
    }
}

/// The steps that the bytes cause. Only the last step over `input` may need more bytes.
fn actions(connection: &mut Connection, pending: &mut Vec<u8>, out: &mut Vec<Action>) {
    loop {
        match connection.next(pending) {
            Progress::NeedMore(wanted) => {
                assert!(wanted > pending.len());
                return;
            }
            Progress::Done { used, action } => {
                assert!(used > 0 && used <= pending.len());
                pending.drain(..used);
                if let Action::Order(ordered) = &action {
                    let command = decode(&Bytes::copy_from_slice(ordered)).expect("what a protocol orders \
                        can be decoded");
                    assert_eq!(&encode(&command), ordered, "the encoding is canonical");
                    assert!(ordered[0] < 0xf0);
                }
                let action = without_figures(action);
                let closes = matches!(action, Action::Close(_));
                if action != Action::Nothing {
                    out.push(action);
                }
                if closes {
                    pending.clear();
                    return;
                }
            }
        }
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    // Any bytes, as a request and as what it is compared with: what fits is what would be decoded.
    let (ordered, sent) = bytes.split_at(usize::from(cut).min(bytes.len()));
    if let Some(used) = connection().rendered(sent, ordered) {
        let meant = Progress::Done { used, action: Action::Order(ordered.to_vec()) };
        assert_eq!(connection().next(sent), meant);
    }
    let mut whole = Vec::new();
    actions(&mut connection(), &mut bytes.to_vec(), &mut whole);
    let (mut pieces, mut cutting, mut pending) = (Vec::new(), connection(), Vec::new());
    for piece in bytes.chunks(usize::from(cut) + 1) {
        pending.extend_from_slice(piece);
        actions(&mut cutting, &mut pending, &mut pieces);
        if matches!(pieces.last(), Some(Action::Close(_))) {
            break;
        }
    }
    assert_eq!(whole, pieces);
});
