//! A group that grows and shrinks at a batch: what was executed before is judged by as many as there were then.

use bytes::Bytes;
use smallvec::smallvec;

use crate::event::{Pairs, RequestInfo};
use crate::{Command, Config, Event, Message, Place, Replica, RequestResult, Voter};

/// The voter of replica 0 in a group of so many, and what it has released.
struct Node {
    voter: Voter,
    released: Vec<u64>,
    /// The digest of its results of each batch.
    digests: Vec<u128>,
}

impl Node {
    fn of(replicas: u8) -> Node {
        Node { voter: Voter::new(Config::new(replicas, 0, 4, 1)), released: Vec::new(), digests: vec![0] }
    }

    fn perform(&mut self, mut commands: Vec<Command>) {
        self.voter.flush(1, &mut commands);
        for command in commands {
            match command {
                Command::Release { place, .. } => self.released.push(place.batch),
                Command::Send { message: Message::Check { first, digests }, .. } => {
                    assert_eq!(first, self.digests.len() as u64);
                    self.digests.extend(digests);
                }
                Command::ReplaceSelf(why) => panic!("it replaces itself: {why}"),
                _ => {}
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let mut commands = Vec::new();
        self.voter.handle(event, 1, &mut commands);
        self.perform(commands);
    }

    /// Executes a batch with one request of an own client.
    fn execute(&mut self, batch: u64) {
        let request_info = RequestInfo { position: batch, mine: true, ..RequestInfo::default() };
        let requests = vec![RequestResult::new(request_info, Pairs::new(), Bytes::from_static(b"STORED"))];
        self.handle(Event::Executed { batch, requests });
    }

    fn resize(&mut self, after: u64, replicas: u8) {
        let mut commands = Vec::new();
        self.voter.resize(after, replicas, 1, &mut commands);
        self.perform(commands);
    }

    /// These replicas have this digest of a batch.
    fn check(&mut self, from: &[Replica], batch: u64, digest: u128) {
        for &from in from {
            self.handle(Event::Message {
                from,
                message: Message::Check { first: batch, digests: smallvec![digest] },
            });
        }
    }

    fn agree(&mut self, from: &[Replica], batch: u64) {
        self.check(from, batch, self.digests[batch as usize]);
    }
}

#[test]
fn a_batch_before_a_growth_needs_two_of_three_and_one_after_it_three_of_five() {
    let mut node = Node::of(3);
    node.execute(1);
    node.resize(2, 5);
    node.execute(2);
    node.execute(3);
    node.agree(&[3, 4], 1);
    node.agree(&[3, 4], 2);
    assert_eq!(node.released, [0; 0], "who was added has no vote on what was before");
    node.agree(&[2], 1);
    node.agree(&[1], 2);
    node.agree(&[1], 3);
    assert_eq!(node.released, [1, 2]);
    node.agree(&[4], 3);
    assert_eq!(node.released, [1, 2, 3]);
}

#[test]
fn a_batch_after_a_shrinking_needs_two_of_those_that_stay() {
    let mut node = Node::of(5);
    node.execute(1);
    // They were faster, and the group has let one of them go.
    let mut other = Node::of(5);
    other.execute(1);
    other.execute(2);
    let digest = other.digests[2];
    node.check(&[3, 4], 2, digest);
    node.resize(1, 3);
    node.execute(2);
    assert_eq!(node.released, [0; 0], "they have no vote any more, and had none when they voted");
    node.agree(&[3], 1);
    assert_eq!(node.released, [0; 0]);
    node.agree(&[4], 1);
    assert_eq!(node.released, [1], "on what was before they have one");
    node.agree(&[3, 4], 2);
    assert_eq!(node.released, [1]);
    node.agree(&[2], 2);
    assert_eq!(node.released, [1, 2]);
}

#[test]
fn who_was_added_holds_no_batch_open_from_before() {
    let mut node = Node::of(3);
    node.execute(1);
    node.agree(&[1, 2], 1);
    node.resize(1, 5);
    node.execute(2);
    for replica in [3, 4] {
        node.handle(Event::PeerReplaced { replica, first_batch: 2 });
        node.handle(Event::PeerUp(replica));
    }
    assert_eq!(node.voter.open_below(2), None);
    node.agree(&[1, 2], 2);
    assert_eq!(node.released, [1, 2]);
    assert!(node.voter.open_below(3).is_some(), "the added ones are waited for");
    node.agree(&[3, 4], 2);
    assert_eq!(node.voter.open_below(3), None);
    let statuses = [1, 2].map(|batch| node.voter.statuses(Place::new(batch, 0)).map_or(0, |all| all.len()));
    assert_eq!(statuses, [3, 5]);
}

/// Those that were let go are up, and have not voted on what was before: the others are enough to close it.
#[test]
fn who_was_let_go_holds_no_batch_open() {
    let mut node = Node::of(5);
    node.execute(1);
    node.agree(&[1, 2], 1);
    assert!(node.voter.open_below(2).is_some());
    node.resize(1, 3);
    assert_eq!((node.voter.open_below(2), node.released), (None, vec![1]));
}

#[test]
fn a_wrong_one_among_the_added_is_found_by_the_new_majority() {
    let mut node = Node::of(3);
    node.resize(0, 5);
    [3, 4].into_iter().for_each(|replica| node.handle(Event::PeerUp(replica)));
    node.execute(1);
    node.check(&[4], 1, 77);
    node.agree(&[1, 2, 3], 1);
    assert_eq!(node.released, [1]);
    let asked = node.voter.open_below(2);
    assert!(asked.is_some(), "replica 4 has to say what it has");
}
