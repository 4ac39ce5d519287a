//! A voter between two peers that send any valid messages: it never panics, and releases no reply without the agreement
//! of a peer.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use vote::{RequestInfo, Config, Event, Message, Pairs, Place, Recover, RequestResult, Voter};

fuzz_target!(|data: &[u8]| {
    let mut voter = Voter::new(Config::new(3, 0, 4, 0));
    let mut commands = Vec::new();
    let mut now_us = 0;
    let mut batch = 0;
    let mut rest = data;
    // Frames of one length byte, one byte for the sender or the kind, and the message.
    while let [length, what, tail @ ..] = rest {
        let (frame, next) = tail.split_at((*length as usize).min(tail.len()));
        rest = next;
        now_us += 1_000 * (*what as u64 >> 4);
        match what & 15 {
            0 => {
                let reply = Bytes::copy_from_slice(frame);
                let request_info = || RequestInfo { mine: true, ..RequestInfo::default() };
                let one = |_| RequestResult::new(request_info(), Pairs::new(), reply.clone());
                let requests = (0..2).map(one).collect();
                voter.handle(Event::Executed { batch, requests }, now_us, &mut commands);
                batch += 1;
            }
            1 => voter.handle(Event::Tick, now_us, &mut commands),
            2 => voter.handle(Event::PeerDown(what >> 6), now_us, &mut commands),
            3 => voter.handle(Event::PeerUp(what >> 6), now_us, &mut commands),
            4 => {
                if let Ok(recover) = Recover::decode(&Bytes::copy_from_slice(frame)) {
                    let turn = Place::new(batch, 0);
                    let event = Event::RecoverTurn { turn, time_us: now_us, recover, packed: Vec::new() };
                    voter.handle(event, now_us, &mut commands);
                    batch += 1;
                }
            }
            _ => {
                if let Ok(message) = Message::decode(&Bytes::copy_from_slice(frame)) {
                    voter.handle(Event::Message { from: what & 3, message }, now_us, &mut commands);
                }
            }
        }
        voter.flush(now_us, &mut commands);
        commands.clear();
    }
});
