//! The memory budget for clients' bytes in one client thread, and the queues of connections that wait for it.
//!
//! Everything that a client can make a replica hold is counted: input that is not decoded yet, requests in flight, the
//! replies expected for them, replies that wait for their socket. A connection is not read from while there is no
//! budget for its request.
//!
//! Small requests must not wait for large ones. So each request has one of three sizes, and each size has a pool for
//! requests and replies, a bound on the cost in execution, and a queue. The size of a request includes the present
//! holding of its connection. Requests larger than half a pool are executed and sent one at a time, by all threads
//! together ([`super::excess`]). Each queue is served in its order. If a queue makes no progress, connections that hold
//! budget and make none themselves are closed (`Clients::make_room`), as Redis does with `maxmemory-clients`.
//!
//! No connection may wait for budget that is released only when the connection itself is served. So input has pools of
//! its own: a request that has been read waits for requests in flight, whose budget is released as their clients read,
//! and never for input. A long request waits for others that are being sent. Short ones are read ahead in large pieces
//! while there is budget for that, and in small ones otherwise.

use std::collections::VecDeque;

use super::excess::OwnExcess;
use crate::limits;

/// The bytes that one request takes while it is in flight: those of the request, and those of its expected reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The ordered request.
    pub request: u32,
    /// The reply, as its protocol expects it.
    pub reply: u32,
}

impl Cost {
    /// The cost of a request of so many bytes, with an expected reply of so many.
    pub fn new(request: usize, reply: usize) -> Self {
        let bytes = |count: usize| u32::try_from(count).unwrap_or(u32::MAX >> 1);
        Cost { request: bytes(request), reply: bytes(reply).max(limits::SMALLEST_REPLY) }
    }

    /// Both.
    pub fn bytes(self) -> usize {
        self.request as usize + self.reply as usize
    }
}

/// The size of a request or a holding: no connection waits for one with a larger size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Size {
    Small,
    Large,
    /// Larger than half a pool: one at a time.
    Huge,
}

/// The kinds of budget that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Budget for a request with a low cost, on a connection with a small holding.
    Small,
    /// Budget for one with a high cost, or on a connection with a large holding.
    Large,
    /// Budget for one that costs more than half of the pool for these.
    Huge,
    /// Budget to read the rest of a long request.
    Input,
}

/// Requests that are complete go before input, which may never become one.
const WAITS: [Wait; 4] = [Wait::Small, Wait::Large, Wait::Huge, Wait::Input];

/// The holding of one connection, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Short requests that were read ahead.
    pub ahead: usize,
    /// A long request: the bytes that have come, and budget for the rest; or one that waits to be ordered.
    pub long: usize,
    /// Requests in flight, and replies.
    pub outgoing: usize,
}

impl Usage {
    /// The total.
    pub fn bytes(self) -> usize {
        self.ahead + self.long + self.outgoing
    }
}

/// How the bytes for clients are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// For short requests that are read ahead.
    ahead: usize,
    /// For long requests until they are ordered.
    long: usize,
    /// For requests and replies of all connections with a small holding together.
    small: usize,
    /// For those of all connections with a large holding together. One connection may hold more in addition.
    large: usize,
    /// For requests and replies of one connection; beyond it no further request of the connection is taken.
    pub connection: usize,
    /// For the cost of requests in execution: a bound for the large ones, and one for the small ones.
    in_execution: usize,
}

impl Shares {
    /// The shares of one client thread of so many, which have so many bytes for clients together.
    pub fn of(bytes: usize, threads: usize) -> Self {
        let bytes = bytes / threads;
        let sixteenth = bytes / 16;
        Shares {
            ahead: sixteenth,
            long: 5 * sixteenth,
            small: 4 * sixteenth,
            large: 6 * sixteenth,
            connection: sixteenth.min(limits::UNSENT_PER_CONNECTION),
            in_execution: (bytes / 8).min(limits::COST_IN_EXECUTION / threads),
        }
    }

    /// The size of a connection's holding of requests in flight and replies.
    fn size_of_holding(&self, outgoing: usize) -> Size {
        self.size(outgoing, limits::SMALL_HOLDING)
    }

    /// The size of one request's cost.
    fn size_of_cost(&self, cost: usize) -> Size {
        self.size(cost, limits::SMALL_COST)
    }

    fn size(&self, bytes: usize, most_of_small: usize) -> Size {
        match bytes {
            _ if bytes <= most_of_small => Size::Small,
            _ if bytes <= self.large / 2 => Size::Large,
            _ => Size::Huge,
        }
    }
}

/// Connections that wait for one kind of budget, in order of arrival.
#[derive(Debug, Default)]
struct WaitQueue {
    waiting: VecDeque<(u32, u32)>,
    /// Tick at which the first one came to the head.
    since: u64,
}

/// The budget of one client thread. While a connection is processed, its own holding is subtracted: the rest is the
/// holding of others.
#[derive(Debug)]
pub struct Budget {
    shares: Shares,
    ahead: usize,
    long: usize,
    /// Held bytes by [`Size`].
    outgoing: [usize; 3],
    in_execution: [usize; 3],
    queues: [WaitQueue; 4],
    /// The right to a request larger than half a pool, and to input that exceeds its pool.
    huge: OwnExcess,
    over: OwnExcess,
}

impl Budget {
    /// The total of a thread, with its rights to exceed it.
    pub fn new(shares: Shares, [huge, over]: [OwnExcess; 2]) -> Self {
        Budget {
            shares,
            huge,
            over,
            ahead: 0,
            long: 0,
            outgoing: [0; 3],
            in_execution: [0; 3],
            queues: Default::default(),
        }
    }

    /// Its division.
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// Bytes that connections hold.
    pub fn held(&self) -> usize {
        self.ahead + self.long + self.outgoing.iter().sum::<usize>()
    }

    /// Subtracts the holding of a connection that is processed now.
    pub fn take_out(&mut self, held: Usage) {
        for (pool, bytes) in self.pools(held) {
            *pool = pool.saturating_sub(bytes);
        }
    }

    /// Adds its holding after that.
    pub fn put_back(&mut self, held: Usage) {
        for (pool, bytes) in self.pools(held) {
            *pool += bytes;
        }
        self.give_back_excess();
    }

    /// Gives back the rights that are not used.
    pub fn give_back_excess(&mut self) {
        let huge = Size::Huge as usize;
        if self.outgoing[huge] == 0 && self.in_execution[huge] == 0 {
            self.huge.give_back();
        }
        if self.long <= self.shares.long {
            self.over.give_back();
        }
    }

    fn pools(&mut self, held: Usage) -> [(&mut usize, usize); 3] {
        let outgoing = &mut self.outgoing[self.shares.size_of_holding(held.outgoing) as usize];
        [(&mut self.ahead, held.ahead), (&mut self.long, held.long), (outgoing, held.outgoing)]
    }

    /// Whether the connection that is processed may read ahead until it holds so many bytes.
    pub fn may_read_ahead(&self, ahead: usize) -> bool {
        self.ahead + ahead <= self.shares.ahead
    }

    /// Whether a long request may take so many bytes, of which `counted` are counted here already (none while its
    /// connection is processed).
    pub fn may_read(&self, long: usize, counted: usize) -> bool {
        let others = self.long.saturating_sub(counted);
        fits(others, long, self.shares.long) && (others + long <= self.shares.long || self.over.take())
    }

    /// Whether a connection may have so many bytes of requests in flight and of replies, of which `counted` are counted
    /// here already.
    pub fn may_send(&self, outgoing: usize, counted: usize) -> bool {
        let size = self.shares.size_of_holding(outgoing);
        let own = if self.shares.size_of_holding(counted) == size { counted } else { 0 };
        let others = self.outgoing[size as usize].saturating_sub(own);
        match size {
            Size::Small => fits(others, outgoing, self.shares.small),
            Size::Large => fits(others, outgoing, self.shares.large),
            Size::Huge => others == 0 && self.huge.take(),
        }
    }

    /// Whether a request of this cost may be executed now, with those in flight.
    pub fn may_execute(&self, cost: Cost) -> bool {
        let size = self.shares.size_of_cost(cost.bytes());
        let others = self.in_execution[size as usize];
        match size {
            Size::Huge => others == 0 && self.huge.take(),
            Size::Small | Size::Large => others == 0 || others + cost.bytes() <= self.shares.in_execution,
        }
    }

    /// A request is submitted; returns the cost to release when it has its reply.
    pub fn begin(&mut self, cost: Cost) -> u32 {
        let size = self.shares.size_of_cost(cost.bytes());
        self.in_execution[size as usize] += cost.bytes();
        cost.bytes() as u32
    }

    /// A request has its reply, or none will come.
    pub fn end(&mut self, cost: u32) {
        let size = self.shares.size_of_cost(cost as usize);
        let pool = &mut self.in_execution[size as usize];
        *pool = pool.saturating_sub(cost as usize);
    }

    /// Cost of all requests in flight.
    pub fn cost_in_execution(&self) -> usize {
        self.in_execution.iter().sum()
    }

    /// The budget that a request of this cost waits for, on a connection that holds so much.
    pub fn wait_of(&self, cost: Cost, outgoing: usize) -> Wait {
        let holds = self.shares.size_of_holding(outgoing + cost.bytes());
        match self.shares.size_of_cost(cost.bytes()).max(holds) {
            Size::Small => Wait::Small,
            Size::Large => Wait::Large,
            Size::Huge => Wait::Huge,
        }
    }

    /// Whether this connection is in a queue.
    pub fn has(&self, connection: (u32, u32)) -> bool {
        self.queues.iter().any(|queue| queue.waiting.contains(&connection))
    }

    /// A connection (slot and generation) waits from now on.
    pub fn enqueue(&mut self, wait: Wait, connection: (u32, u32), tick: u64) {
        let queue = self.queue(wait);
        if queue.waiting.is_empty() {
            queue.since = tick;
        }
        queue.waiting.push_back(connection);
    }

    /// The next connection that waits for this.
    pub fn head(&self, wait: Wait) -> Option<(u32, u32)> {
        self.queues[wait as usize].waiting.front().copied()
    }

    /// Removes that connection from the queue.
    pub fn dequeue(&mut self, wait: Wait, tick: u64) {
        let queue = self.queue(wait);
        queue.waiting.pop_front();
        queue.since = tick;
    }

    fn queue(&mut self, wait: Wait) -> &mut WaitQueue {
        &mut self.queues[wait as usize]
    }

    /// All kinds of waits, complete requests first.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + use<> {
        WAITS.into_iter()
    }

    /// Restarts the time of a starved queue, after connections were closed for it.
    pub fn look_again(&mut self, wait: Wait, tick: u64) {
        self.queue(wait).since = tick;
        match wait {
            Wait::Huge => self.huge.wait_again(),
            Wait::Input => self.over.wait_again(),
            Wait::Small | Wait::Large => {}
        }
    }

    /// The number of connections that wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }

    /// The first wait whose queue has had the same head for longer than [`limits::ROOM_PATIENCE`]; or one of another
    /// thread, for which a right of this thread is in the way as long.
    pub fn starved(&mut self, tick: u64) -> Option<Wait> {
        let patience = limits::ticks(limits::ROOM_PATIENCE);
        let is_starved = |wait: &Wait| {
            let queue = &self.queues[*wait as usize];
            !queue.waiting.is_empty() && tick.saturating_sub(queue.since) >= patience
        };
        self.waits().find(is_starved).or_else(|| {
            let huge = self.huge.is_overdue(tick, patience).then_some(Wait::Huge);
            huge.or_else(|| self.over.is_overdue(tick, patience).then_some(Wait::Input))
        })
    }
}

/// Whether so many bytes fit into a pool together with those of the others. More than half of the pool may exceed it
/// once the others hold no more than the other half.
fn fits(others: usize, bytes: usize, pool: usize) -> bool {
    others + bytes <= pool || (bytes > pool / 2 && others <= pool / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::excess::ExcessRights;

    const MB: usize = 1 << 20;

    fn budget() -> Budget {
        Budget::new(Shares::of(64 * MB, 1), ExcessRights::default().of_thread(0))
    }

    fn outgoing(bytes: usize) -> Usage {
        Usage { outgoing: bytes, ..Usage::default() }
    }

    #[test]
    fn nobody_waits_for_who_holds_more() {
        let mut budget = budget();
        assert!(budget.may_send(60 * MB, 0));
        budget.put_back(outgoing(60 * MB));
        assert!(!budget.may_send(13 * MB, 0), "one at a time");
        assert!(budget.may_send(12 * MB, 0) && budget.may_send(limits::SMALL_HOLDING, 0));
        budget.put_back(outgoing(12 * MB));
        budget.put_back(outgoing(4 * MB));
        assert!(budget.may_send(8 * MB, 0) && !budget.may_send(9 * MB, 0));
        assert!(budget.may_send(9 * MB, 4 * MB), "of which a part is counted");
        (0..16 * MB / limits::SMALL_HOLDING).for_each(|_| budget.put_back(outgoing(limits::SMALL_HOLDING)));
        assert!(!budget.may_send(limits::SMALL_HOLDING, 0) && budget.may_send(8 * MB, 0));
        budget.take_out(outgoing(60 * MB));
        assert!(budget.may_send(13 * MB, 0));
        assert_eq!(budget.held(), 32 * MB);
    }

    #[test]
    fn a_request_waits_for_the_room_that_it_needs() {
        let budget = budget();
        let cost = Cost::new(100, 10 << 10);
        assert_eq!(budget.wait_of(cost, 0), Wait::Small);
        assert_eq!(budget.wait_of(cost, limits::SMALL_HOLDING), Wait::Large, "its connection holds much");
        assert_eq!(budget.wait_of(Cost::new(100, 17 << 10), 0), Wait::Large);
        assert_eq!(budget.wait_of(Cost::new(100, 12 * MB), 0), Wait::Huge);
    }

    #[test]
    fn what_has_been_read_keeps_no_request_from_its_way() {
        let mut budget = budget();
        let read = Usage { ahead: 40 * MB, long: 40 * MB, outgoing: 0 };
        budget.put_back(read);
        assert!(budget.may_send(16 * MB, 0) && budget.may_send(100, 0));
        assert!(!budget.may_read(1, 0) && budget.may_read(20 * MB, 40 * MB) && !budget.may_read_ahead(1));
        budget.take_out(read);
        assert!(budget.may_read(63 * MB, 0), "one, whatever it is");
        assert!(
            budget.may_read_ahead(4 * MB) && !budget.may_read_ahead(4 * MB + 1),
            "smaller pieces will do"
        );
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn what_is_in_execution_is_bounded_and_one_request_always_fits() {
        let mut budget = budget();
        let huge = Cost::new(200, 63 * MB);
        let small = Cost::new(100, 500);
        assert!(budget.may_execute(huge));
        let given = budget.begin(huge);
        assert!(
            !budget.may_execute(huge)
                && budget.may_execute(small)
                && budget.may_execute(Cost::new(0, 8 * MB))
        );
        while budget.may_execute(small) {
            budget.begin(small);
        }
        assert!(budget.cost_in_execution() <= 63 * MB + 200 + limits::COST_IN_EXECUTION);
        budget.end(given);
        assert!(budget.may_execute(huge));
    }

    #[test]
    fn who_waits_is_served_in_order_and_starves_only_at_the_head() {
        let mut budget = budget();
        let patience = limits::ticks(limits::ROOM_PATIENCE);
        assert_eq!(budget.starved(1000), None);
        budget.enqueue(Wait::Large, (1, 0), 5);
        budget.enqueue(Wait::Large, (2, 0), 6);
        assert_eq!((budget.head(Wait::Large), budget.waiting()), (Some((1, 0)), 2));
        assert_eq!((budget.starved(4 + patience), budget.starved(5 + patience)), (None, Some(Wait::Large)));
        budget.dequeue(Wait::Large, 5 + patience);
        assert_eq!((budget.head(Wait::Large), budget.starved(6 + patience)), (Some((2, 0)), None));
    }

    /// Each of two threads has a part of the memory, and only one of them exceeds it.
    #[test]
    fn one_thread_at_a_time_has_a_huge_request_and_makes_way_for_the_other() {
        let excess = ExcessRights::default();
        let budget = |thread| Budget::new(Shares::of(64 * MB, 2), excess.of_thread(thread));
        let (mut first, mut second) = (budget(0), budget(1));
        let huge = Cost::new(100, 20 * MB);
        let held = |outgoing| Usage { outgoing, ..Usage::default() };
        assert!(first.may_execute(huge) && first.may_send(huge.bytes(), 0));
        let cost = first.begin(huge);
        first.put_back(held(huge.bytes()));
        assert!(!second.may_execute(huge) && !second.may_send(huge.bytes(), 0));
        assert!(second.may_execute(Cost::new(100, MB)), "others do not wait for it");
        // Its client does not read: after a while connections are to be closed for the other thread's sake.
        first.end(cost);
        let starved = |budget: &mut Budget| (0..1_000).find(|tick| budget.starved(*tick) == Some(Wait::Huge));
        assert!(starved(&mut first).is_some_and(|tick| tick > 1) && starved(&mut second).is_none());
        first.take_out(held(huge.bytes()));
        first.put_back(held(0));
        assert!(second.may_execute(huge) && !first.may_execute(huge));
        // Input beyond its pool is a right of its own.
        assert!(first.may_read(40 * MB, 0) && !second.may_read(40 * MB, 0) && second.may_read(MB, 0));
    }
}
