//! Donors and a receiver, with messages that are changed or lost between them.

use bytes::Bytes;

use super::{CopyRoom, Donor, Message, Offer, Receiver, StateEnd, copy_of};
use crate::limits;
use crate::packed_state::{PackWriter, PackedState};

const COPY: u64 = 40;
/// Between two polls.
const STEP_US: u64 = limits::TRANSFER_PATIENCE.as_micros() as u64 / 4;
const PIECE: usize = 100;

fn packed(bytes: &[u8]) -> PackedState {
    let mut writer = PackWriter::new(PIECE);
    writer.put(bytes);
    writer.finish()
}

fn state(seed: u8) -> PackedState {
    let bytes = (0..10 * PIECE + 17).map(|i| (i as u8).wrapping_mul(31) ^ seed);
    packed(&bytes.collect::<Vec<_>>())
}

fn donor(index: u64, seed: u8) -> Donor {
    let mut donor = Donor::default();
    donor.offer(index, &state(seed), 0);
    donor
}

fn ask(donor: &mut Donor, message: &Message, now_us: u64) -> Option<Message> {
    donor.on_message(1, message, false, now_us)
}

fn ask_state(at_least: u64) -> Message {
    Message::AskState { at_least, copy: 0, known: 0, taken: 0 }
}

/// Replica 2, which receives, with its donors 0 and 1.
struct Group {
    donors: [Donor; 2],
    receiver: Receiver,
    taken: Vec<Bytes>,
    now_us: u64,
}

impl Group {
    fn new(donors: [Donor; 2], at_least: u64) -> Self {
        Group { donors, receiver: Receiver::new(2, 3, at_least), taken: Vec::new(), now_us: 1 }
    }

    /// One poll, whose answers are changed by `tamper`. Returns the end, with it.
    fn step(&mut self, tamper: impl Fn(u8, Message) -> Option<Message>) -> Option<StateEnd> {
        self.now_us += STEP_US;
        for (to, ask) in self.receiver.poll(self.now_us) {
            let ask = Message::decode(ask.encode()).unwrap();
            let donor = &mut self.donors[usize::from(to)];
            let answer = donor.on_message(2, &ask, false, self.now_us);
            if let Some(answer) = answer.and_then(|answer| tamper(to, answer)) {
                self.receiver.on_message(to, Message::decode(answer.encode()).unwrap(), to == 0);
            }
        }
        while let Some(piece) = self.receiver.take_piece() {
            if piece.number == 0 {
                self.taken.clear();
            }
            assert_eq!(piece.number as usize, self.taken.len());
            self.taken.push(piece.bytes);
        }
        self.receiver.ended()
    }

    fn run(&mut self, tamper: impl Fn(u8, Message) -> Option<Message>) -> Option<u64> {
        let end = (0..100).find_map(|_| self.step(&tamper))?;
        Some(end.index)
    }

    fn has(&self, state: &PackedState) -> bool {
        self.taken.as_slice() == state.pieces()
    }

    /// Both donors make the same next pieces.
    fn add(&mut self, seed: u8) {
        let now_us = self.now_us;
        for (from, donor) in self.donors.iter_mut().enumerate() {
            for (peer, message) in donor.add(COPY, &state(seed), now_us) {
                assert_eq!(peer, 2);
                self.receiver.on_message(from as u8, message, from == 0);
            }
        }
    }
}

#[test]
fn two_agreeing_donors_fill_the_third() {
    let mut group = Group::new([donor(9, 1), donor(9, 1)], 5);
    assert_eq!(group.run(|_, message| Some(message)), Some(9));
    assert!(group.has(&state(1)));
}

#[test]
fn donors_that_differ_are_not_believed_nor_is_a_single_one() {
    for other in [donor(9, 2), Donor::default()] {
        let mut group = Group::new([donor(9, 1), other], 5);
        assert_eq!(group.run(|_, message| Some(message)), None);
        assert!(group.taken.is_empty());
    }
}

#[test]
fn corrupt_and_lost_pieces_come_from_the_other_donor() {
    let tamper = |from: u8, message: Message| match message {
        Message::Piece { copy, piece, bytes } if from == 0 => {
            let mut wrong = bytes.to_vec();
            wrong[7] ^= 4;
            (piece != 1).then(|| Message::Piece { copy, piece, bytes: wrong.into() })
        }
        other => Some(other),
    };
    let mut group = Group::new([donor(9, 1), donor(9, 1)], 5);
    assert_eq!(group.run(tamper), Some(9));
    assert!(group.has(&state(1)));
}

/// What two donors have agreed on stays true when one of them has another state by now.
#[test]
fn a_donor_that_has_gone_on_is_not_waited_for() {
    let mut group = Group::new([donor(9, 1), donor(9, 1)], 5);
    let begun_us = group.now_us;
    assert_eq!(group.step(|_, message| matches!(message, Message::Offer(_)).then_some(message)), None);
    group.donors[0].offer(11, &state(2), 0);
    let end = group.run(|_, message| Some(message));
    assert_eq!(end, Some(9));
    assert!(group.has(&state(1)));
    assert!(group.now_us - begun_us < 4 * limits::TRANSFER_PATIENCE.as_micros() as u64);
}

#[test]
fn a_donor_announces_its_checkpoint_to_those_that_wait_for_it() {
    let mut donor = donor(3, 1);
    assert_eq!(ask(&mut donor, &ask_state(5), 0), Some(Message::Nothing { copy: 0 }));
    assert!(donor.is_awaited_by(1));
    assert_eq!(donor.offer(4, &state(1), 0), [], "too old");
    assert!(donor.is_awaited_by(1));
    let [(1, Message::Offer(Offer { copy, end: Some(end), first: 0, .. }))] =
        donor.offer(6, &state(2), 0)[..]
    else {
        panic!("no offer");
    };
    assert_eq!((copy, end.index, donor.is_awaited_by(1)), (copy_of(6), 6, false));
}

#[test]
fn a_donor_keeps_a_checkpoint_as_long_as_somebody_asks_for_it() {
    let kept_us = limits::OFFER_KEPT.as_micros() as u64;
    let mut donor = donor(9, 1);
    assert_eq!((donor.free_unused(kept_us), donor.is_fetched()), (None, false));
    ask(&mut donor, &ask_state(9), kept_us);
    assert_eq!((donor.free_unused(2 * kept_us), donor.is_fetched()), (None, false));
    ask(&mut donor, &Message::AskPiece { copy: copy_of(9), piece: 3 }, 2 * kept_us);
    assert_eq!((donor.free_unused(3 * kept_us), donor.is_fetched()), (None, true));
    ask(&mut donor, &Message::AskPiece { copy: copy_of(8), piece: 3 }, 3 * kept_us);
    assert_eq!(donor.free_unused(3 * kept_us + 1), Some(9), "nobody asked for it");
    assert_eq!((donor.offered(), donor.is_fetched()), (None, false));
    let nothing = ask(&mut donor, &Message::AskPiece { copy: copy_of(9), piece: 0 }, 0);
    assert_eq!(nothing, Some(Message::Nothing { copy: copy_of(9) }));
}

/// Lets `receiver` poll until `until_us`, with an offer of the leader, replica 0, at each poll.
fn offered(receiver: &mut Receiver, until_us: u64, donor: &mut Donor, alone: bool) {
    for now_us in (0..=until_us).step_by(100_000) {
        receiver.poll(now_us);
        let offer = donor.on_message(2, &ask_state(9), alone, now_us);
        receiver.on_message(0, offer.unwrap(), true);
    }
}

#[test]
fn the_leader_alone_is_believed_after_a_while_if_it_says_that_nobody_else_can_help() {
    let patience_us = limits::ALONE_PATIENCE.as_micros() as u64;
    let mut leader = donor(9, 1);
    let mut receiver = Receiver::new(2, 3, 9);
    offered(&mut receiver, patience_us + 500_000, &mut leader, false);
    assert!(!receiver.is_agreed(), "it does not say so");
    let mut receiver = Receiver::new(2, 3, 9);
    offered(&mut receiver, patience_us - 100_000, &mut leader, true);
    assert!(!receiver.is_agreed(), "too early");
    offered(&mut receiver, patience_us + 500_000, &mut leader, true);
    assert_eq!((receiver.is_agreed(), receiver.believes()), (true, Some(0)));
    let mut group = Group { receiver, ..Group::new([leader, Donor::default()], 9) };
    assert_eq!(group.run(|_, message| Some(message)), Some(9));
    assert!(group.has(&state(1)));
}

#[test]
fn one_that_does_not_lead_is_not_believed_alone_and_two_that_agree_come_first() {
    let patience_us = limits::ALONE_PATIENCE.as_micros() as u64;
    let mut receiver = Receiver::new(2, 3, 9);
    let offer = |donor: &mut Donor| donor.on_message(2, &ask_state(9), true, 0).unwrap();
    for now_us in (0..3 * patience_us).step_by(100_000) {
        receiver.poll(now_us);
        receiver.on_message(1, offer(&mut donor(9, 2)), false);
    }
    assert!(!receiver.is_agreed());
    offered(&mut receiver, 100_000, &mut donor(9, 1), true);
    receiver.on_message(1, Message::Nothing { copy: copy_of(9) }, false);
    receiver.on_message(1, offer(&mut donor(9, 1)), false);
    assert_eq!((receiver.is_agreed(), receiver.believes()), (true, None));
}

#[test]
fn a_copy_is_received_while_it_is_made_and_donors_keep_the_last_pieces_only() {
    let mut group = Group::new([Donor::default(), Donor::default()], 0);
    group.donors.iter_mut().for_each(|donor| _ = donor.begin(COPY, 1));
    let mut whole = PackedState::default();
    let rounds = 3 * limits::COPY_RING / state(0).pieces().len();
    for seed in 0..rounds as u8 {
        group.add(seed);
        whole.extend(state(seed));
        (0..3).for_each(|_| assert_eq!(group.step(|_, message| Some(message)), None));
        assert_eq!(group.taken.len(), whole.pieces().len(), "all that there is");
        assert_eq!(group.donors[0].room(COPY, group.now_us), CopyRoom { has_receiver: true, is_full: false });
    }
    let gone = ask(&mut group.donors[0], &Message::AskPiece { copy: COPY, piece: 0 }, 0);
    assert_eq!(gone, Some(Message::Nothing { copy: COPY }));
    let now_us = group.now_us;
    group.donors.iter_mut().for_each(|donor| _ = donor.end(COPY, 77, &state(200), now_us));
    whole.extend(state(200));
    assert_eq!(group.run(|_, message| Some(message)), Some(77));
    assert!(group.has(&whole));
}

#[test]
fn a_slow_receiver_is_waited_for_and_a_silent_one_is_not() {
    let mut group = Group::new([Donor::default(), Donor::default()], 0);
    group.donors.iter_mut().for_each(|donor| _ = donor.begin(COPY, 1));
    let no_pieces = |_, message| (!matches!(message, Message::Piece { .. })).then_some(message);
    while !group.donors[0].room(COPY, group.now_us).is_full {
        group.add(1);
        group.step(no_pieces);
    }
    let full = group.donors[0].room(COPY, group.now_us);
    assert_eq!(full, CopyRoom { has_receiver: true, is_full: true });
    assert!(full.is_of_use());
    (0..40).for_each(|_| _ = group.step(|_, message| Some(message)));
    assert!(!group.donors[0].room(COPY, group.now_us).is_full, "it has taken all");
    let later_us = group.now_us + limits::RECEIVER_SILENT.as_micros() as u64 + 1;
    let silent = group.donors[0].room(COPY, later_us);
    assert_eq!((silent.has_receiver, silent.is_of_use()), (false, false));
}

#[test]
fn one_that_comes_too_late_begins_with_the_next_copy() {
    let mut group = Group::new([Donor::default(), Donor::default()], 0);
    group.donors.iter_mut().for_each(|donor| _ = donor.begin(COPY, 1));
    let first = Message::AskPiece { copy: COPY, piece: 0 };
    while ask(&mut group.donors[1], &first, 0) != Some(Message::Nothing { copy: COPY }) {
        group.donors.iter_mut().for_each(|donor| _ = donor.add(COPY, &state(3), 1));
    }
    (0..9).for_each(|_| assert_eq!(group.step(|_, message| Some(message)), None));
    assert!(group.taken.is_empty() && group.donors[0].is_awaited_by(2));
    group.donors.iter_mut().for_each(|donor| _ = donor.offer(8, &state(4), 1));
    assert_eq!(group.run(|_, message| Some(message)), Some(8));
    assert!(group.has(&state(4)));
}

#[test]
fn a_copy_whose_donors_differ_is_taken_up_to_there_and_not_begun_again() {
    let mut group = Group::new([Donor::default(), Donor::default()], 0);
    group.donors.iter_mut().for_each(|donor| _ = donor.begin(COPY, 1));
    group.add(1);
    let [one, other] = &mut group.donors;
    one.end(COPY, 7, &state(2), 1);
    other.end(COPY, 7, &state(3), 1);
    assert_eq!(group.run(|_, message| Some(message)), None);
    assert!(group.has(&state(1)) && !group.receiver.is_agreed());
    group.receiver.give_up();
    (0..9).for_each(|_| assert_eq!(group.step(|_, message| Some(message)), None));
    assert!(!group.receiver.is_agreed());
    group.donors.iter_mut().for_each(|donor| _ = donor.offer(8, &state(4), 1));
    assert_eq!(group.run(|_, message| Some(message)), Some(8));
}

#[test]
fn the_engine_may_need_another_state_than_the_one_that_was_begun() {
    let mut group = Group::new([donor(9, 1), donor(9, 1)], 0);
    assert_eq!(group.run(|_, message| Some(message)), Some(9));
    group.receiver.need(9);
    assert_eq!(group.receiver.ended().map(|end| end.index), Some(9));
    group.receiver.need(12);
    assert_eq!((group.receiver.ended(), group.receiver.overtaken_by()), (None, None), "too old");
    group.donors.iter_mut().for_each(|donor| _ = donor.offer(15, &state(2), 1));
    (0..9).for_each(|_| _ = group.step(|_, message| Some(message)));
    assert_eq!(group.receiver.overtaken_by(), Some(15));
}

/// Donors that make a copy and differ from its second part on; the receiver compares the whole state with its proof.
fn differing(distrusted: Option<u8>) -> Group {
    let mut group = Group::new([Donor::default(), Donor::default()], 0);
    group.receiver.believe_one(distrusted);
    group.donors.iter_mut().for_each(|donor| _ = donor.begin(COPY, 1));
    group.add(1);
    assert_eq!(group.step(|_, message| Some(message)), None);
    for (donor, seed) in group.donors.iter_mut().zip([2, 3]) {
        donor.add(COPY, &state(seed), 1);
    }
    group
}

#[test]
fn where_a_state_proves_itself_the_receiver_goes_on_with_one_of_the_donors_that_differ() {
    for (distrusted, seed) in [(None, 2), (Some(1), 2), (Some(0), 3)] {
        let mut group = differing(distrusted);
        assert_eq!(group.step(|_, message| Some(message)), None);
        assert_eq!(group.receiver.believes(), None, "they may agree in a moment");
        (0..3).for_each(|_| assert_eq!(group.step(|_, message| Some(message)), None));
        for donor in &mut group.donors {
            donor.end(COPY, 77, &state(9), 1);
        }
        assert_eq!(group.run(|_, message| Some(message)), Some(77));
        assert_eq!(group.receiver.believes(), Some(seed - 2));
        let mut whole = state(1);
        whole.extend(state(seed));
        whole.extend(state(9));
        assert!(group.has(&whole), "nothing is of the other donor");
    }
}

#[test]
fn donors_that_differ_are_not_both_followed_when_one_has_gone() {
    let mut group = differing(None);
    (0..3).for_each(|_| assert_eq!(group.step(|_, message| Some(message)), None));
    assert_eq!(group.receiver.believes(), Some(0));
    group.donors[0] = Donor::default();
    group.donors[1].end(COPY, 77, &state(9), 1);
    assert_eq!(
        group.run(|_, message| Some(message)),
        None,
        "what came from the first one is not of the second"
    );
    group.receiver.give_up();
    group.donors.iter_mut().for_each(|donor| _ = donor.offer(90, &state(4), 1));
    assert_eq!(group.run(|_, message| Some(message)), Some(90));
    assert!(group.has(&state(4)));
}

#[test]
fn a_state_that_is_too_old_is_not_begun_with() {
    let mut group = Group::new([donor(9, 1), donor(9, 1)], 0);
    group.receiver.raise_floor(10);
    assert_eq!(group.run(|_, message| Some(message)), None);
    group.donors.iter_mut().for_each(|donor| _ = donor.offer(10, &state(2), 1));
    assert_eq!(group.run(|_, message| Some(message)), Some(10));
}
