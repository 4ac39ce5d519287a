//! One engine alone: what it accepts, hands on, asks for and forgets.

use super::*;
use crate::batch::{Batch, Request, checksum};

const EXECUTORS: u16 = 0b111;

/// Batch `number` of an origin, stamped, with one request.
pub(super) fn part(origin: u8, number: u64) -> Encoded {
    let bytes = Bytes::copy_from_slice(&[origin, number as u8]);
    let request = Request { checksum: checksum(&bytes), stream: 0, bytes };
    Batch::new(origin, 1 << 32 | 1, number, &[request]).encode().stamped(5, 6, true).unwrap()
}

pub(super) fn view(number: u64, primary: u8, next: u64) -> PrimaryView {
    PrimaryView { number, primary, executors: EXECUTORS, next, sequential: false }
}

/// The engine of the replica in `slot` of three, connected to the others, in view 1 of replica 0.
pub(super) fn engine(slot: u8) -> PrimaryEngine {
    let mut engine = outside(slot);
    engine.begin_view(view(1, 0, 1));
    pumped(&mut engine);
    engine
}

/// The same before its first view.
pub(super) fn outside(slot: u8) -> PrimaryEngine {
    let mut engine = PrimaryEngine::new(PrimaryConfig { slot, replicas: 3, incarnation: 7, start: 1 }, 0);
    (0..3).filter(|peer| *peer != slot).for_each(|peer| engine.peer_up(peer));
    pumped(&mut engine);
    engine
}

/// What a pump gave: messages about batches with their receivers, and what was committed.
#[derive(Default)]
pub(super) struct Pumped {
    pub batches: Vec<(u8, BatchMessage)>,
    pub committed: Vec<Committed>,
    pub others: Vec<Output>,
}

impl Pumped {
    pub fn numbers(&self) -> Vec<u64> {
        self.committed.iter().filter(|entry| entry.ends).map(|entry| entry.number).collect()
    }

    pub fn asked(&self) -> Vec<(u8, u64)> {
        let asked = |(to, message): &(u8, BatchMessage)| match message {
            BatchMessage::Ask { number, .. } => Some((*to, *number)),
            _ => None,
        };
        self.batches.iter().filter_map(asked).collect()
    }

    pub fn stops(&self) -> bool {
        self.others.iter().any(|output| matches!(output, Output::FailStop(_)))
    }
}

pub(super) fn pumped(engine: &mut PrimaryEngine) -> Pumped {
    let mut out = EngineOut::default();
    engine.pump(&mut out);
    let mut pumped = Pumped { committed: out.committed.into(), ..Pumped::default() };
    for output in out.outputs {
        match output {
            Output::Send { to, kind: FrameKind::Batch, body, .. } => {
                pumped.batches.push((to, BatchMessage::decode(&body.joined()).unwrap()));
            }
            other => pumped.others.push(other),
        }
    }
    pumped
}

pub(super) fn batch(view: u64, number: u64) -> PrimaryBatch {
    PrimaryBatch::new(view, number, false, &[part(0, number), part(1, number)]).unwrap()
}

pub(super) fn receive(engine: &mut PrimaryEngine, from: u8, batch: &PrimaryBatch) -> Result<(), Blame> {
    engine.on_frame(from, FrameKind::Batch, batch.message.clone())
}

pub(super) fn say(engine: &mut PrimaryEngine, from: u8, message: BatchMessage) -> Result<(), Blame> {
    engine.on_frame(from, FrameKind::Batch, message.encode())
}

pub(super) fn report(engine: &mut PrimaryEngine, from: u8, progress: Progress) -> Result<(), Blame> {
    engine.on_frame(from, FrameKind::Control, PrimaryControl::Progress(progress).encode())
}

/// Everything that was committed is delivered.
pub(super) fn deliver(engine: &mut PrimaryEngine, pumped: &Pumped) {
    pumped.committed.iter().for_each(|entry| engine.delivered(entry.index));
}

fn full_batch(number: u64) -> Encoded {
    let request = Request { checksum: checksum(b"x"), stream: 0, bytes: Bytes::from_static(b"x") };
    Batch::new(0, 1, number, &vec![request; limits::BATCH_REQUESTS]).encode()
}

#[test]
fn a_primary_joins_what_waits_and_numbers_two_batches_ahead() {
    let mut primary = engine(0);
    assert_eq!(primary.backlog(), 0);
    let taken = (1..).take_while(|number| primary.propose(part(0, *number)).is_ok()).count();
    assert_eq!(taken, 32, "two batches of sixteen parts");
    let first = pumped(&mut primary);
    assert_eq!(first.numbers(), [1, 2]);
    assert_eq!(first.batches.len(), 4, "two to each of the others");
    let indices: Vec<u64> = first.committed.iter().map(|entry| entry.index).collect();
    assert_eq!(indices, (16..48).collect::<Vec<u64>>());
    assert_eq!(first.committed.iter().filter(|entry| entry.ends).count(), 2);
    assert_eq!((primary.propose(part(0, 33)), primary.backlog()), (Err(NotNow), u64::MAX));
    // Not before the last part of the first is delivered.
    (16..31).for_each(|index| primary.delivered(index));
    assert_eq!(primary.propose(part(0, 33)), Err(NotNow));
    primary.delivered(31);
    assert_eq!(primary.backlog(), 0);
    primary.propose(part(0, 33)).unwrap();
    assert_eq!(pumped(&mut primary).numbers(), [3], "small, as nothing else waits");
}

#[test]
fn a_batch_has_bounds_of_requests_and_bytes() {
    let mut primary = engine(0);
    let taken = (1..).take_while(|number| primary.propose(full_batch(*number)).is_ok()).count();
    assert_eq!(taken, 16);
    let parts: Vec<u64> = pumped(&mut primary).committed.iter().map(|entry| entry.number).collect();
    assert_eq!(parts, [[1; 8], [2; 8]].concat(), "1,024 requests each");
    let mut primary = engine(0);
    let long = |number| {
        let bytes = Bytes::from(vec![0; limits::REQUEST_BYTES]);
        Batch::new(0, 1, number, &[Request { checksum: checksum(&bytes), stream: 0, bytes }]).encode()
    };
    primary.propose(long(1)).unwrap();
    primary.propose(part(0, 2)).unwrap();
    let numbered = pumped(&mut primary);
    assert_eq!(numbered.numbers(), [1, 2], "the long one is alone");
    let is_short =
        |message: &(u8, BatchMessage)| message.1.encode().len() + crate::frame::HEADER < limits::FRAME_BODY;
    assert!(numbered.batches.iter().all(is_short));
}

#[test]
fn the_first_batch_of_a_view_is_sequential_if_asked() {
    let mut primary = engine(0);
    primary.begin_view(PrimaryView { sequential: true, ..view(2, 0, 1) });
    let mut seen = Vec::new();
    for number in 1..3 {
        primary.propose(part(0, number)).unwrap();
        seen.extend(pumped(&mut primary).committed.iter().map(|entry| entry.sequential));
    }
    assert_eq!(seen, [true, false]);
    let mut backup = engine(1);
    receive(&mut backup, 0, &PrimaryBatch::new(1, 1, true, &[part(0, 1)]).unwrap()).unwrap();
    assert!(pumped(&mut backup).committed[0].sequential);
}

#[test]
fn a_replica_hands_on_in_order_and_asks_for_what_is_missing() {
    let mut backup = engine(1);
    receive(&mut backup, 0, &batch(1, 1)).unwrap();
    receive(&mut backup, 0, &batch(1, 1)).unwrap();
    receive(&mut backup, 0, &batch(1, 4)).unwrap();
    let first = pumped(&mut backup);
    assert_eq!((first.numbers(), first.asked()), (vec![1], vec![(0, 2), (0, 3)]));
    receive(&mut backup, 0, &batch(1, 3)).unwrap();
    assert_eq!(pumped(&mut backup).asked(), [], "once");
    // The primary does not answer, and the other one has it not.
    (0..limits::ASK_TICKS).for_each(|_| backup.tick());
    assert_eq!(pumped(&mut backup).asked(), [(2, 2)]);
    say(&mut backup, 2, BatchMessage::Gone { view: 1, number: 2 }).unwrap();
    assert_eq!(pumped(&mut backup).asked(), [(0, 2)], "at once the next");
    receive(&mut backup, 2, &batch(1, 2)).unwrap();
    let last = pumped(&mut backup);
    assert_eq!((last.numbers(), last.asked()), (vec![2, 3, 4], vec![]), "also of another than the primary");
    // A report of the primary tells that there is one more; that of another does not.
    let progress = Progress { incarnation: 1, view: 1, last: 5, stable: 0 };
    report(&mut backup, 2, progress).unwrap();
    assert_eq!(pumped(&mut backup).asked(), []);
    report(&mut backup, 0, progress).unwrap();
    assert_eq!(pumped(&mut backup).asked(), [(0, 5)]);
}

#[test]
fn who_delivers_nothing_holds_no_more_than_the_window() {
    let mut backup = engine(1);
    let window = limits::PRIMARY_WINDOW;
    (1..=window + 9).for_each(|number| receive(&mut backup, 0, &batch(1, number)).unwrap());
    let first = pumped(&mut backup);
    assert_eq!((first.numbers(), first.asked()), ((1..=window).collect(), vec![]));
    assert_eq!(backup.held.bytes(), window as usize * batch(1, 1).message.len());
    deliver(&mut backup, &first);
    let asked = pumped(&mut backup).asked();
    let lacked = (window + 1..=window + 9).map(|number| (0, number));
    assert_eq!(asked, lacked.collect::<Vec<_>>(), "it had no room for them");
}

#[test]
fn batches_of_a_later_view_wait_for_it_and_those_of_an_earlier_one_are_late() {
    let mut backup = engine(1);
    receive(&mut backup, 0, &batch(1, 1)).unwrap();
    let first = pumped(&mut backup);
    deliver(&mut backup, &first);
    receive(&mut backup, 2, &batch(2, 2)).unwrap();
    receive(&mut backup, 2, &batch(2, 3)).unwrap();
    receive(&mut backup, 0, &batch(1, 2)).unwrap();
    assert_eq!(pumped(&mut backup).committed[0].entry, batch(1, 2).parts[0]);
    backup.begin_view(view(2, 2, 2));
    receive(&mut backup, 0, &batch(1, 3)).unwrap();
    let second = pumped(&mut backup);
    assert_eq!(second.numbers(), [2, 3]);
    assert!(backup.held.get(1).is_some_and(|held| held.view == 1), "others may need it");
    assert!(backup.held.get(3).is_some_and(|held| held.view == 2));
}

/// A replica that missed a view may hold batches which that view has replaced.
#[test]
fn what_was_not_delivered_before_a_view_is_asked_for() {
    let mut backup = engine(1);
    receive(&mut backup, 0, &batch(1, 1)).unwrap();
    receive(&mut backup, 0, &batch(1, 2)).unwrap();
    backup.delivered(16);
    backup.delivered(17);
    backup.begin_view(view(5, 2, 4));
    let began = pumped(&mut backup);
    assert_eq!((began.numbers(), began.asked()), (vec![], vec![(2, 2), (2, 3)]));
    receive(&mut backup, 2, &batch(3, 2)).unwrap();
    receive(&mut backup, 2, &batch(3, 3)).unwrap();
    receive(&mut backup, 2, &batch(5, 4)).unwrap();
    assert_eq!(pumped(&mut backup).numbers(), [2, 3, 4]);
}

#[test]
fn a_primary_that_is_behind_first_catches_up() {
    let mut primary = outside(0);
    primary.begin_view(view(1, 0, 1));
    primary.propose(part(0, 1)).unwrap();
    let first = pumped(&mut primary);
    deliver(&mut primary, &first);
    primary.begin_view(view(3, 0, 3));
    assert_eq!(primary.propose(part(0, 2)), Err(NotNow));
    assert_eq!(pumped(&mut primary).asked(), [(1, 2)], "it is the primary itself, so it asks another");
    receive(&mut primary, 1, &batch(2, 2)).unwrap();
    assert_eq!(primary.propose(part(0, 2)), Err(NotNow), "it has to be delivered");
    let second = pumped(&mut primary);
    deliver(&mut primary, &second);
    primary.propose(part(0, 2)).unwrap();
    assert_eq!(pumped(&mut primary).numbers(), [3]);
}

#[test]
fn a_view_that_rolls_back_what_was_delivered_stops_the_replica() {
    for (next, stops) in [(2, false), (1, true)] {
        let mut backup = engine(1);
        receive(&mut backup, 0, &batch(1, 1)).unwrap();
        backup.delivered(16);
        backup.begin_view(view(2, 2, next));
        assert_eq!(pumped(&mut backup).stops(), stops, "{next}");
    }
    let impossible =
        [view(0, 0, 1), view(2, 3, 1), view(2, 0, 0), PrimaryView { executors: 6, ..view(2, 0, 1) }];
    for view in impossible {
        let mut fresh = outside(1);
        fresh.begin_view(view);
        assert!(pumped(&mut fresh).stops(), "{view:?}");
    }
}

/// An earlier process in its place may have led the view, and numbered batches in it.
#[test]
fn who_comes_back_leads_no_view_that_has_begun() {
    for (first, leads) in [(view(3, 0, 1), true), (view(3, 0, 2), false)] {
        let mut primary = PrimaryEngine::new(
            PrimaryConfig { slot: 0, replicas: 3, incarnation: 9, start: 1 },
            1 << PART_BITS,
        );
        primary.begin_view(first);
        assert_eq!(primary.propose(part(0, 1)).is_ok(), leads);
        primary.begin_view(view(4, 0, 2));
        assert_eq!(primary.propose(part(0, 1)), Ok(()));
    }
}

#[test]
fn a_leader_is_known_when_it_has_begun_the_view() {
    let mut backup = outside(1);
    assert_eq!(backup.engine_status(), EngineStatus::default());
    backup.begin_view(view(1, 0, 1));
    assert!(matches!(
        pumped(&mut backup).others[..2],
        [
            Output::Established { incarnation: 0x7_0000_0001, joined: false },
            Output::LeaderChanged { leader: Some(0), term: 1 }
        ]
    ));
    assert_eq!((backup.engine_status().leader, backup.engine_status().term), (None, 1));
    report(&mut backup, 0, Progress { incarnation: 3, view: 1, last: 0, stable: 0 }).unwrap();
    assert_eq!((backup.engine_status().leader, backup.admitted_incarnation(0)), (Some(0), Some(3)));
    backup.peer_down(0);
    assert_eq!((backup.engine_status().leader, backup.admitted_incarnation(0)), (None, None));
    // It began the next view before this replica did.
    backup.peer_up(2);
    report(&mut backup, 2, Progress { incarnation: 3, view: 2, last: 0, stable: 0 }).unwrap();
    backup.begin_view(view(2, 2, 1));
    assert_eq!(backup.engine_status().leader, Some(2));
    let primary = engine(0);
    assert!(primary.engine_status().is_leader && primary.engine_status().leader == Some(0));
}

#[test]
fn a_replica_that_has_a_batch_answers_and_one_without_says_so() {
    let mut backup = engine(1);
    receive(&mut backup, 0, &batch(1, 1)).unwrap();
    pumped(&mut backup);
    let ask = |view, number| BatchMessage::Ask { view, number };
    say(&mut backup, 2, ask(1, 1)).unwrap();
    say(&mut backup, 2, ask(1, 2)).unwrap();
    say(&mut backup, 2, ask(2, 1)).unwrap();
    let gone = BatchMessage::Gone { view: 1, number: 2 };
    assert_eq!(pumped(&mut backup).batches, [(2, BatchMessage::Execute(batch(1, 1))), (2, gone)]);
    // Corrupted in memory: the answer is not spread.
    let mut broken = batch(1, 2);
    broken.parts[0].body = Bytes::from_static(b"wrong");
    backup.held.insert(broken);
    say(&mut backup, 2, ask(1, 2)).unwrap();
    assert_eq!(pumped(&mut backup).batches, [(2, gone_of(2))]);
    // Answers have a bound per tick.
    let large = Bytes::from(vec![0; 1 << 20]);
    let request = Request { checksum: checksum(&large), stream: 0, bytes: large };
    let large = PrimaryBatch::new(1, 3, false, &[Batch::new(0, 1, 3, &[request]).encode()]).unwrap();
    backup.held.insert(large);
    (0..100).for_each(|_| say(&mut backup, 2, ask(1, 3)).unwrap());
    assert_eq!(pumped(&mut backup).batches.len(), 16);
    backup.tick();
    say(&mut backup, 2, ask(1, 3)).unwrap();
    assert_eq!(pumped(&mut backup).batches.len(), 1);
}

pub(super) fn gone_of(number: u64) -> BatchMessage {
    BatchMessage::Gone { view: 1, number }
}

#[test]
fn what_no_healthy_replica_sends_is_blamed_and_changes_nothing() {
    let mut backup = engine(1);
    let ask = |view, number| BatchMessage::Ask { view, number };
    let whys = [
        (receive(&mut backup, 2, &batch(1, 1)), "a batch of a view that another replica leads"),
        (say(&mut backup, 2, gone_of(1)), "it lacks a batch that it was not asked for"),
        (say(&mut backup, 0, ask(limits::TERM_LIMIT, 1)), "a view out of range"),
        (say(&mut backup, 0, ask(1, limits::TERM_LIMIT)), "a number of a batch out of range"),
        (backup.on_frame(0, FrameKind::Order, Bytes::new()), "a frame kind that the engine does not know"),
        (receive(&mut backup, 3, &batch(1, 1)), "sender is not another replica of the group"),
        (receive(&mut backup, 1, &batch(1, 1)), "sender is not another replica of the group"),
    ];
    for (outcome, why) in whys {
        assert_eq!(outcome.map_err(|blame| blame.why), Err(why));
    }
    let reports = [
        Progress { incarnation: 0, view: 1, last: 0, stable: 0 },
        Progress { incarnation: 1, view: limits::TERM_LIMIT, last: 0, stable: 0 },
        Progress { incarnation: 1, view: 1, last: limits::TERM_LIMIT, stable: 0 },
        Progress { incarnation: 1, view: 1, last: 1, stable: 2 },
    ];
    for progress in reports {
        assert!(report(&mut backup, 0, progress).is_err(), "{progress:?}");
    }
    report(&mut backup, 0, Progress { incarnation: 1, view: 1, last: 1, stable: 1 }).unwrap();
    assert!(report(&mut backup, 0, Progress { incarnation: 2, view: 1, last: 1, stable: 1 }).is_err());
    let mut primary = engine(0);
    assert!(receive(&mut primary, 1, &batch(1, 1)).is_err(), "it leads itself");
    let mut broken = batch(1, 1).message.to_vec();
    *broken.last_mut().unwrap() ^= 1;
    let mut backup = engine(1);
    assert!(backup.on_frame(0, FrameKind::Batch, broken.into()).is_err());
    assert_eq!((backup.last, backup.is_led, pumped(&mut backup).numbers()), (0, false, vec![]));
}

#[test]
fn batches_are_held_until_every_live_executor_is_beyond_them() {
    let mut primary = engine(0);
    for number in 1..=6 {
        primary.propose(part(0, number)).unwrap();
        let numbered = pumped(&mut primary);
        deliver(&mut primary, &numbered);
    }
    let progress = |stable| Progress { incarnation: 1, view: 1, last: 6, stable };
    primary.stable(5);
    assert_eq!(primary.held.first_number(), Some(1), "the others have said nothing");
    report(&mut primary, 1, progress(4)).unwrap();
    report(&mut primary, 2, progress(2)).unwrap();
    assert_eq!(primary.held.first_number(), Some(3));
    primary.peer_down(2);
    primary.tick();
    assert_eq!(primary.held.first_number(), Some(3), "it may come back");
    (0..limits::LOST_TICKS).for_each(|_| primary.tick());
    primary.stable(5);
    assert_eq!(primary.held.first_number(), Some(5));
    report(&mut primary, 1, progress(6)).unwrap();
    primary.stable(100);
    assert_eq!(primary.held.first_number(), None, "all that was delivered here is stable");
    assert_eq!(primary.stable, 6);
}

/// The engine's own state goes back with the orderer's, and the batches of the view are handed on again.
#[test]
fn a_rewind_within_a_view_hands_on_the_same_batches_again() {
    let mut backup = engine(1);
    (1..=5).for_each(|number| receive(&mut backup, 0, &batch(1, number)).unwrap());
    let first = pumped(&mut backup);
    deliver(&mut backup, &first);
    backup.stable(2);
    backup.rewind_to(3 << PART_BITS | 1);
    let again = pumped(&mut backup);
    assert_eq!(again.committed[..], first.committed[6..]);
    // In the middle of a batch: it is handed on as a whole, and the orderer skips what it had.
    backup.rewind_to(4 << PART_BITS);
    assert_eq!(pumped(&mut backup).numbers(), [4, 5]);
    // The state of others, of a batch that was never here.
    backup.rewind_to(8 << PART_BITS);
    receive(&mut backup, 0, &batch(1, 9)).unwrap();
    assert_eq!(pumped(&mut backup).numbers(), [9]);
    backup.rewind_to(1 << PART_BITS | 1);
    assert!(pumped(&mut backup).stops(), "the second is stable");
}

#[test]
fn a_primary_whose_stamps_are_too_late_is_refused_and_reported() {
    // The parts of these batches are stamped with 5.
    for (until_us, is_accepted) in [(u64::MAX, true), (5, true), (4, false)] {
        let mut engine = engine(1);
        engine.accept_stamps(until_us);
        let batch = PrimaryBatch::new(1, 1, false, &[part(2, 1)]).unwrap();
        let received = engine.on_frame(0, FrameKind::Batch, batch.message);
        assert_eq!(
            (received.is_ok(), pumped(&mut engine).numbers()),
            (is_accepted, [1][..usize::from(is_accepted)].to_vec())
        );
        for tick in 1..=limits::REFUSED_STAMPS_TICKS {
            engine.tick();
            let mut reported = pumped(&mut engine).others.into_iter();
            let reported = reported.find(|output| matches!(output, Output::StampsRefused { .. }));
            let is_due = !is_accepted && tick == limits::REFUSED_STAMPS_TICKS;
            assert_eq!(
                reported,
                is_due.then_some(Output::StampsRefused { leader: 0, ahead_us: 1 }),
                "tick {tick}"
            );
        }
    }
}
