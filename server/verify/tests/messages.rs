//! The wire form of messages and the saved form of a record: what is written is read again, and nothing else is.

use proptest::prelude::*;
use verify::limits::{MAX_SLOTS, MESSAGES_PER_BODY};
use verify::{
    AskRound, CrashVector, Here, Lineup, Reason, SAVED_BYTES, SavedRecord, Slots, StateToken, TokenRecord,
    VerifyMessage, Version,
};

fn version() -> impl Strategy<Value = Version> {
    (any::<u64>(), any::<u128>()).prop_map(|(number, token)| Version { number, token: StateToken(token) })
}

fn record() -> impl Strategy<Value = TokenRecord> {
    let lineup = (0..MAX_SLOTS as u8, any::<[u16; 2]>(), any::<bool>(), any::<bool>());
    (any::<u64>(), version(), lineup).prop_map(|(view, version, (primary, sets, sequential, extra))| {
        let executors = Slots(sets[0]).with(primary);
        // Only two executors take one in.
        let joining = Slots(sets[1]).and(executors).and(Slots::first(4)).without(primary);
        TokenRecord { view, version, lineup: Lineup { primary, executors, joining, sequential, extra } }
    })
}

fn crashes(most: usize) -> impl Strategy<Value = CrashVector> {
    let some = |counts: Vec<u16>| CrashVector::of(&counts).unwrap_or(CrashVector::new(0));
    proptest::collection::vec(any::<u16>(), 0..=most).prop_map(some)
}

fn reason() -> impl Strategy<Value = Reason> {
    use Reason::*;
    proptest::sample::select(vec![Diverged, Extra, Late, PrimaryGone, Joined])
}

fn round() -> impl Strategy<Value = AskRound> {
    use AskRound::*;
    proptest::sample::select(vec![CatchUp, Incarnations, Adopt, Found, Alive, Stalled])
}

fn message() -> impl Strategy<Value = VerifyMessage> {
    let all = || crashes(MAX_SLOTS);
    let here = (any::<[u64; 3]>(), round(), proptest::option::of((any::<u64>(), record())), all()).prop_map(
        |([incarnation, own_incarnation, founding], round, memory, crashes)| {
            VerifyMessage::Here(Here { incarnation, round, own_incarnation, founding, memory, crashes })
        },
    );
    prop_oneof![
        (any::<u64>(), version(), any::<u128>(), any::<u32>()).prop_map(
            |(view, version, parent, incarnation)| {
                VerifyMessage::Verify { view, version, parent: StateToken(parent), incarnation }
            }
        ),
        (record(), all()).prop_map(|(record, crashes)| VerifyMessage::Recorded { record, crashes }),
        (any::<u64>(), reason(), record(), all()).prop_map(|(view, reason, record, crashes)| {
            VerifyMessage::ViewChange { view, reason, record, crashes }
        }),
        (record(), all()).prop_map(|(record, crashes)| VerifyMessage::NewView { record, crashes }),
        (any::<u64>(), round(), all()).prop_map(|(incarnation, round, crashes)| VerifyMessage::Where {
            incarnation,
            round,
            crashes
        }),
        here,
        any::<[u64; 2]>().prop_map(|[incarnation, round]| VerifyMessage::ReadWhere { incarnation, round }),
        (any::<[u64; 4]>(), all()).prop_map(|([incarnation, round, view, number], crashes)| {
            VerifyMessage::ReadHere { incarnation, round, view, number, crashes }
        }),
    ]
}

fn encoded(messages: &[VerifyMessage]) -> Vec<u8> {
    let mut body = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut body));
    body
}

proptest! {
    #[test]
    fn a_body_is_read_as_it_was_written(messages in proptest::collection::vec(message(), 0..6)) {
        let body = encoded(&messages);
        prop_assert_eq!(VerifyMessage::decode_all(&body), Ok(messages));
    }

    #[test]
    fn a_message_that_ends_early_is_refused(message in message(), at in any::<prop::sample::Index>()) {
        let body = encoded(&[message]);
        let cut = 1 + at.index(body.len() - 1);
        prop_assert!(VerifyMessage::decode_all(&body[..cut]).is_err());
    }

    #[test]
    fn any_bytes_are_messages_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(messages) = VerifyMessage::decode_all(&bytes) {
            prop_assert_eq!(encoded(&messages), bytes);
        }
    }

    #[test]
    fn a_flipped_bit_never_panics(message in message(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let mut body = encoded(&[message]);
        let at = at.index(body.len());
        body[at] ^= 1u8 << bit;
        if let Ok(messages) = VerifyMessage::decode_all(&body) {
            prop_assert_eq!(encoded(&messages), body);
        }
    }

    #[test]
    fn a_saved_record_is_read_as_it_was_written(
        promised in any::<u64>(), record in record(), crashes in crashes(5), verifier in 0..16u8,
        at in 0..SAVED_BYTES, bit in 0..8u32,
    ) {
        let saved = SavedRecord { promised, record, crashes, verifier };
        let mut bytes = saved.encode().expect("five verifiers fit");
        prop_assert_eq!(SavedRecord::decode(&bytes), Ok(saved));
        bytes[at] ^= 1u8 << bit;
        prop_assert!(SavedRecord::decode(&bytes).is_err(), "a flipped bit is found");
    }
}

#[test]
fn bounds_hold() {
    let where_to = |crashes| VerifyMessage::Where { incarnation: 1, round: AskRound::Incarnations, crashes };
    let one = where_to(CrashVector::new(MAX_SLOTS as u8));
    let most = vec![one.clone(); MESSAGES_PER_BODY];
    assert_eq!(VerifyMessage::decode_all(&encoded(&most)), Ok(most.clone()));
    let mut more = most;
    more.push(one);
    assert!(VerifyMessage::decode_all(&encoded(&more)).is_err(), "a body has a bound");

    let mut body = encoded(&[where_to(CrashVector::new(0))]);
    *body.last_mut().expect("the count of verifiers") = 17;
    body.extend([0; 34]);
    assert!(VerifyMessage::decode_all(&body).is_err(), "17 verifiers are too many");

    assert_eq!(CrashVector::of(&[0; 17]), None);
    assert!(!Slots(u16::MAX).contains(16) && Slots::EMPTY.with(16).is_empty());
    let saved = |verifiers| {
        let lineup = Lineup {
            primary: 0,
            executors: Slots::first(3),
            joining: Slots::EMPTY,
            sequential: false,
            extra: false,
        };
        let record = TokenRecord { view: 0, version: Version::default(), lineup };
        SavedRecord { promised: 0, record, crashes: CrashVector::new(verifiers), verifier: 0 }.encode()
    };
    assert!(saved(5).is_some() && saved(6).is_none(), "no more than five verifiers fit a saved record");
}

#[test]
fn sizes_are_those_of_the_design() {
    let record = |crashes| {
        let lineup = Lineup {
            primary: 0,
            executors: Slots::first(3),
            joining: Slots::EMPTY,
            sequential: false,
            extra: false,
        };
        let record = TokenRecord { view: 1, version: Version::default(), lineup };
        VerifyMessage::Recorded { record, crashes }
    };
    assert_eq!(encoded(&[record(CrashVector::new(3))]).len(), 44);
    let verify =
        VerifyMessage::Verify { view: 1, version: Version::default(), parent: StateToken(0), incarnation: 1 };
    assert_eq!(encoded(&[verify]).len(), 53);
    let crashes = CrashVector::new(3);
    let here = VerifyMessage::ReadHere { incarnation: 1, round: 1, view: 1, number: 1, crashes };
    assert_eq!(encoded(&[here]).len(), 40);
}
