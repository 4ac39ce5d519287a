//! Copies at two replicas, without threads or a network.

use object::{Ref, Region, ScopeOptions, Store, critical, genesis, request};

use super::*;

const REGIONS: u32 = 5;
const PIECE: usize = 200;
const ROOM: CopyRoom = CopyRoom { has_receiver: true, is_full: false };

#[critical]
struct Shelf {
    books: Store<Book>,
    #[uncritical]
    order: Vec<Ref<Book>>,
}

#[critical]
struct Book {
    text: Vec<u8>,
}

#[critical]
impl Book {
    fn new(text: &[u8]) -> Self {
        Self { text: text.to_vec() }
    }
    fn rewrite(&mut self, text: &[u8]) {
        self.text = text.to_vec();
    }
}

#[critical]
impl Shelf {
    fn new() -> Self {
        Self { books: Store::new(), order: Vec::new() }
    }
    fn add(&mut self, text: &[u8]) {
        let book = self.books.insert(Book::new(text));
        self.order.push(book);
    }
    fn rewrite(&mut self, number: usize, text: &[u8]) {
        let book = self.order[number % self.order.len()];
        self.books.expect_mut(book).rewrite(text);
    }
}

/// A replica with its regions, as its order thread and its workers would use them.
struct Node {
    copies: Copies,
    current: CurrentCopy,
    shelves: Vec<Shelf>,
    position: u64,
    now_us: u64,
    /// Parts are packed in the order in which they come.
    is_in_turn: bool,
    /// The batch of the checkpoint does not become stable.
    is_unstable: bool,
    /// The pieces that were made so far.
    state: PackedState,
    is_on_disk: bool,
}

impl Node {
    fn new(books: u32) -> Self {
        let shelves = (0..REGIONS).map(|region_id| genesis(region_id, Shelf::new)).collect();
        let mut node = Node {
            copies: Copies::default(),
            current: CurrentCopy::default(),
            shelves,
            is_in_turn: false,
            is_unstable: false,
            position: 1,
            now_us: 1,
            state: PackedState::default(),
            is_on_disk: false,
        };
        (0..books).for_each(|number| node.run(number, true));
        node
    }

    /// A client's request, which adds a book or changes one.
    fn run(&mut self, number: u32, adds: bool) {
        let region_id = number % REGIONS;
        let protect = request::Protect::Check;
        request::begin(ScopeOptions { position: self.position, protect, keep_before_images: true });
        self.position += 1;
        let shelf = &mut self.shelves[region_id as usize];
        match adds {
            true => shelf.add(&[number as u8; 30]),
            false => shelf.rewrite((number / REGIONS) as usize, &[number as u8; 20]),
        }
        shelf.seal(region_id);
        if self.current.is_active() {
            self.current.on_sealed(true);
        }
        request::abandon();
    }

    /// Executes a request of the pipeline; with a checkpoint, returns the packed parts.
    fn execute(&mut self, control: &Control) -> Option<PackedState> {
        match *control {
            Control::CopyPart { session, number, region_id, count } => {
                let times = (self.now_us, self.now_us);
                let copy = self.copies.on_delivered(
                    (session, number),
                    (REGIONS, PIECE, self.is_in_turn),
                    times,
                    &self.current,
                )?;
                let regions = region_id..region_id + u32::from(count);
                let pack = |id: RegionId| (id, copy.pack(id, &self.shelves[id as usize], PIECE));
                let part = regions.map(pack).collect();
                self.copies.on_part((session, number), part, (Duration::ZERO, self.now_us), REGIONS);
                self.state.extend(self.copies.take_pieces()?.1);
                None
            }
            Control::Checkpoint { session, limit } => {
                let copy = self.copies.running.as_ref()?.copy.clone();
                if copy.left().objects > limit as usize {
                    self.copies.on_too_much(session, self.now_us);
                    return None;
                }
                let regions = (0..REGIONS).zip(&self.shelves);
                let rest: Vec<_> =
                    regions.filter_map(|(id, shelf)| Some((id, copy.pack_rest(id, shelf)?))).collect();
                let end = CopyEnd { batch: 1, index: 1, packed: PackedState::default() };
                self.copies.on_cut(session, &rest, Some(end));
                if self.is_unstable {
                    return None;
                }
                self.state.extend(self.copies.on_stable(1, self.is_on_disk, &self.current)?.last);
                Some(std::mem::take(&mut self.state))
            }
            _ => None,
        }
    }
}

/// Lets the first node lead a copy of the whole state, with `writes` requests after each part; the states of both.
fn copied(
    nodes: &mut [Node; 2],
    writes: u32,
    after: impl FnMut(&mut [Node; 2], usize),
) -> [Option<PackedState>; 2] {
    nodes[0].copies.want(Extent::Whole, (7, 0), |_| ROOM);
    finished(nodes, writes, after)
}

/// The same with a copy that is wanted.
fn finished(
    nodes: &mut [Node; 2],
    writes: u32,
    mut after: impl FnMut(&mut [Node; 2], usize),
) -> [Option<PackedState>; 2] {
    for step in 0..10_000 {
        let now_us = nodes[0].now_us;
        let Some(control) = nodes[0].copies.next_control(REGIONS, now_us, |_| ROOM) else { continue };
        let [one, other] = &mut *nodes;
        let states = [one.execute(&control), other.execute(&control)];
        if states[0].is_some() {
            return states;
        }
        for node in &mut *nodes {
            for number in 0..writes {
                // One of each kind where there are few.
                node.run(step as u32 * writes + number, writes < 10 && number == 0);
            }
        }
        after(nodes, step);
    }
    panic!("the copy does not end");
}

#[test]
fn all_put_the_same_copy_together_while_requests_run() {
    let mut nodes = [Node::new(100), Node::new(100)];
    let [one, other] = copied(&mut nodes, 2, |_, _| {});
    let one = one.expect("a state");
    assert!(one.length() > 100 * 50, "{}", one.length());
    assert_eq!(Some(one), other);
    assert!(!nodes[0].current.is_active() && nodes[0].copies.due_us().is_none());
}

#[test]
fn one_that_lacks_a_part_offers_no_copy() {
    let mut nodes = [Node::new(100), Node::new(100)];
    let [one, other] = copied(&mut nodes, 0, |nodes, step| {
        if step == 1 {
            nodes[1].copies = Copies::default();
        }
    });
    assert!(one.is_some() && other.is_none());
}

#[test]
fn another_leader_goes_on_with_the_copy() {
    let mut nodes = [Node::new(100), Node::new(100)];
    let mut session = None;
    nodes[0].copies.want(Extent::Whole, (7, 0), |_| ROOM);
    for _ in 0..3 {
        let control = nodes[0].copies.next_control(REGIONS, 1, |_| ROOM).expect("a part");
        nodes.iter_mut().for_each(|node| drop(node.execute(&control)));
    }
    nodes[0].copies.forget_ordering();
    assert_eq!(nodes[0].copies.next_control(REGIONS, 2, |_| ROOM), None);
    nodes.swap(0, 1);
    let [one, other] = copied(&mut nodes, 1, |nodes, _| {
        session = nodes[0].copies.running.as_ref().map(|running| running.copy.session());
    });
    assert_eq!(session, Some(7));
    assert!(one.is_some() && one == other);
}

#[test]
fn a_lost_part_ends_the_ordering_and_an_abandoned_copy_is_freed() {
    let mut node = Node::new(100);
    node.copies.want(Extent::Whole, (7, 0), |_| ROOM);
    let first = node.copies.next_control(REGIONS, 1, |_| ROOM).expect("a part");
    node.execute(&first);
    assert!(node.copies.next_control(REGIONS, 2, |_| ROOM).is_some());
    let later_us = 3 + limits::COPY_PATIENCE.as_micros() as u64;
    assert_eq!(node.copies.next_control(REGIONS, later_us, |_| ROOM), None);
    assert!(node.copies.ordering.is_none() && node.current.is_active());
    let next =
        node.copies.next_control(REGIONS, later_us, |_| CopyRoom { has_receiver: false, is_full: true });
    assert_eq!(next, None, "it would not end");
    let next = node.copies.next_control(REGIONS, later_us, |_| ROOM);
    assert!(matches!(next, Some(Control::CopyPart { session: 7, number: 1, .. })), "{next:?}");
    node.copies.free_abandoned(3 * limits::COPY_PAUSE.as_micros() as u64, &node.current);
    assert!(node.copies.running.is_none() && !node.current.is_active());
}

#[test]
fn a_copy_ends_although_writes_are_faster() {
    let books = 2 * limits::CUT_OBJECTS as u32;
    let mut nodes = [Node::new(books), Node::new(books)];
    let mut rounds = 0;
    let [one, other] = copied(&mut nodes, 40, |nodes, _| {
        rounds = nodes[0].copies.ordering.as_ref().map_or(rounds, |ordering| ordering.rounds);
    });
    assert!(one.is_some() && one == other);
    assert!(rounds > limits::COPY_ROUNDS, "it ended after {rounds} rounds");
}

/// In verified mode batches are rolled back: parts come twice or not at all, and the checkpoint may not count.
#[test]
fn a_copy_goes_on_after_batches_were_rolled_back() {
    let mut node = Node { is_in_turn: true, ..Node::new(100) };
    node.copies.want(Extent::Whole, (7, 0), |_| ROOM);
    let next = |node: &mut Node| node.copies.next_control(REGIONS, node.now_us, |_| ROOM);
    let first = next(&mut node).expect("a part");
    (0..3).for_each(|_| assert_eq!(node.execute(&first), None));
    assert_eq!(node.copies.marks(), Some((7, 1)));
    assert!(next(&mut node).is_some());
    node.copies.on_rolled_back(0);
    let mut is_cut = false;
    for _ in 0..10_000 {
        let Some(control) = next(&mut node) else { continue };
        let before = node.copies.marks();
        if let (Control::Checkpoint { .. }, false) = (&control, is_cut) {
            is_cut = true;
            node.is_unstable = true;
            assert_eq!(node.execute(&control), None);
            assert_eq!(node.copies.on_stable(2, false, &node.current).map(|_| ()), None, "of another batch");
            node.copies.on_rolled_back(0);
            assert_eq!(
                node.copies.on_stable(1, false, &node.current).map(|_| ()),
                None,
                "it was rolled back"
            );
            assert_eq!((node.copies.marks(), node.current.is_active()), (before, true));
            node.is_unstable = false;
            node.run(1, false);
        } else if let Some(state) = node.execute(&control) {
            assert!(is_cut && state.length() > 100 * 50, "{}", state.length());
            assert!(!node.current.is_active() && node.copies.due_us().is_none());
            return;
        }
    }
    panic!("the copy does not end");
}

#[test]
fn a_part_behind_a_checkpoint_that_is_not_stable_goes_on_with_the_copy() {
    let mut node = Node { is_in_turn: true, is_unstable: true, ..Node::new(100) };
    node.copies.want(Extent::Whole, (7, 0), |_| ROOM);
    let part = node.copies.next_control(REGIONS, 1, |_| ROOM).expect("a part");
    node.execute(&part);
    let limit = u32::MAX;
    let Control::CopyPart { session, .. } = part else { panic!("{part:?}") };
    (0..REGIONS).for_each(|region_id| {
        node.execute(&Control::CopyPart { session, number: 1 + region_id, region_id, count: 1 });
    });
    node.execute(&Control::Checkpoint { session, limit });
    node.execute(&part);
    assert_eq!(node.copies.on_stable(1, false, &node.current).map(|_| ()), None);
    assert_eq!(node.copies.session(), Some(session));
}

/// A copy of what `extent` says, at two replicas on disk, while requests run.
fn copied_to_disk(nodes: &mut [Node; 2], extent: Extent, index: u64) -> PackedState {
    nodes[0].copies.want(extent, (index, 0), |_| ROOM);
    let [one, other] = finished(nodes, 1, |_, _| {});
    assert!(one.is_some() && one == other && nodes.iter().all(|node| node.current.is_active()));
    one.unwrap_or_default()
}

#[test]
fn the_next_copy_on_disk_has_only_what_has_changed() {
    let mut nodes = [Node::new(1000), Node::new(1000)];
    nodes.iter_mut().for_each(|node| node.is_on_disk = true);
    let whole = copied_to_disk(&mut nodes, Extent::Changes, 7).length();
    assert!(whole > 50_000, "there is none that it could be behind: {whole}");
    for index in [8, 9] {
        nodes.iter_mut().for_each(|node| (0..10).for_each(|number| node.run(number, false)));
        let changes = copied_to_disk(&mut nodes, Extent::Changes, index).length();
        assert!((500..5000).contains(&changes), "{changes} of {whole}");
    }
    assert!(copied_to_disk(&mut nodes, Extent::Whole, 10).length() > 50_000);
    // It was not written.
    nodes.iter_mut().for_each(|node| node.copies.on_not_written(&node.current));
    assert!(nodes.iter().all(|node| node.copies.session().is_none()));
    assert!(nodes.iter().all(|node| !node.current.is_active()));
    assert!(copied_to_disk(&mut nodes, Extent::Changes, 11).length() > 50_000);
}

#[test]
fn what_was_packed_of_the_changes_is_not_packed_again_in_another_session() {
    let mut nodes = [Node::new(100), Node::new(100)];
    nodes.iter_mut().for_each(|node| node.is_on_disk = true);
    copied_to_disk(&mut nodes, Extent::Whole, 7);
    nodes.iter_mut().for_each(|node| (0..100).for_each(|number| node.run(number, false)));
    // One has executed parts of a session that its leader did not finish.
    nodes[1].copies.want(Extent::Changes, (8, 0), |_| ROOM);
    for _ in 0..3 {
        let control = nodes[1].copies.next_control(REGIONS, 1, |_| ROOM).expect("a part");
        assert!(nodes[1].execute(&control).is_none());
    }
    nodes[1].copies.forget_ordering();
    let begun = nodes[1].state.length();
    assert!(begun > 0);
    nodes[0].copies.want(Extent::Changes, (9, 0), |_| ROOM);
    let [one, other] = finished(&mut nodes, 0, |_, _| {});
    let lengths = [one, other].map(|state| state.expect("a state").length());
    assert!(lengths[0].abs_diff(lengths[1]) < 300, "{lengths:?}, of which {begun} were there");
}

#[test]
fn a_replica_that_needs_the_state_gets_more_than_changes() {
    let mut nodes = [Node::new(100), Node::new(100)];
    nodes.iter_mut().for_each(|node| node.is_on_disk = true);
    copied_to_disk(&mut nodes, Extent::Whole, 7);
    let [node, _] = &mut nodes;
    node.copies.want(Extent::Changes, (8, 0), |_| ROOM);
    let first = node.copies.next_control(REGIONS, 1, |_| ROOM).expect("a part");
    node.execute(&first);
    assert!(node.copies.session().is_some_and(is_of_changes));
    node.copies.want(Extent::Whole, (9, 0), |_| ROOM);
    let first = node.copies.next_control(REGIONS, 1, |_| ROOM).expect("a part");
    node.execute(&first);
    assert_eq!(node.copies.session(), Some(9));
}
