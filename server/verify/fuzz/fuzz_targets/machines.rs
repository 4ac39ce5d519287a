//! A verifier and an executor that get any valid messages, at any times: they never panic, and what the executor has
//! stable only grows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use verify::{
    Config, Executor, ExecutorEvent, Layout, StateToken, Verifier, VerifierEvent, VerifyMessage, Version,
};

fuzz_target!(|data: &[u8]| {
    let Some((first, mut rest)) = data.split_first() else { return };
    let layout = match first % 3 {
        0 => Layout::Pair,
        1 => Layout::PairWithWitness,
        _ => Layout::Crash { failures: 1 },
    };
    let config = Config::new(layout, first / 3 % 2, 7, StateToken(0)).with_extra_protection(Some(1));
    let (mut verifier, mut executor) = (Verifier::new(config.clone()), Executor::new(config));
    let (mut now_us, mut stable) = (0, 0);
    let (mut to_verify, mut to_execute) = (Vec::new(), Vec::new());
    // Frames of one length byte, one byte for the sender or the kind, and the messages.
    while let [length, what, tail @ ..] = rest {
        let (frame, next) = tail.split_at((*length as usize).min(tail.len()));
        rest = next;
        now_us += 10_000 * (*what as u64 >> 4);
        match what & 15 {
            0 => verifier.handle(VerifierEvent::Tick, now_us, &mut to_verify),
            1 => executor.handle(ExecutorEvent::Tick, now_us, &mut to_execute),
            2 => verifier.handle(VerifierEvent::Connected(what >> 6), now_us, &mut to_verify),
            3 => verifier.handle(VerifierEvent::Disconnected(what >> 6), now_us, &mut to_verify),
            4 => verifier.handle(VerifierEvent::ProcessGone(what >> 6), now_us, &mut to_verify),
            5 => {
                let (has, blank) = (executor.newest(), [(what >> 6, 9)].into());
                verifier.handle(VerifierEvent::GoAlone { has, blank }, now_us, &mut to_verify)
            }
            6 => {
                let (parent, view) = (executor.newest(), executor.view().unwrap_or(0));
                let token = StateToken(u128::from(*what) + 1);
                let version = Version { number: parent.number.saturating_add(1), token };
                let event = ExecutorEvent::Executed { view, version, parent: parent.token };
                executor.handle(event, now_us, &mut to_execute);
            }
            7 => {
                if let Some(version) = executor.wanted() {
                    executor.handle(ExecutorEvent::Installed(version), now_us, &mut to_execute);
                }
            }
            8 => executor.handle(ExecutorEvent::Read, now_us, &mut to_execute),
            _ => {
                for message in VerifyMessage::decode_all(frame).unwrap_or_default() {
                    let from = what & 3;
                    let event = VerifierEvent::Message { from, message: message.clone() };
                    verifier.handle(event, now_us, &mut to_verify);
                    executor.handle(ExecutorEvent::Message { from, message }, now_us, &mut to_execute);
                }
            }
        }
        assert!(executor.stable().number >= stable);
        stable = executor.stable().number;
        to_verify.clear();
        to_execute.clear();
    }
});
