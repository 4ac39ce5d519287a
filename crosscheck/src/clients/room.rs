//! What clients' bytes may take in one replica, and who waits when there is no room.
//!
//! Everything that a client can make a replica hold is counted: input that is not decoded yet, requests on their way, replies that are
//! promised to them, replies that wait for their socket. A connection is not read from while there is no room for what it asks.
//!
//! Who asks for little must not wait for those who ask for much. So there are two pools, by what a connection holds, and two bounds on
//! what is in execution, by what a request costs: large ones wait for one another, and small ones pass them. What waits is served in its
//! order. Where nothing moves, connections that hold room and do not move themselves are closed (`Clients::make_room`), as Redis does with
//! `maxmemory-clients`.

use std::collections::VecDeque;

use crate::limits;

/// What one request takes while it is on its way, in bytes: itself, and the reply it is expected to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The ordered request.
    pub request: u32,
    /// The reply, as its protocol expects it.
    pub reply: u32,
}

impl Cost {
    /// Of a request of so many bytes, with an expected reply of so many.
    pub fn new(request: usize, reply: usize) -> Self {
        let bytes = |count: usize| u32::try_from(count).unwrap_or(u32::MAX >> 1);
        Cost { request: bytes(request), reply: bytes(reply).max(limits::SMALLEST_REPLY) }
    }

    /// Both.
    pub fn bytes(self) -> usize {
        self.request as usize + self.reply as usize
    }

    fn is_large(self) -> bool {
        self.bytes() > limits::SMALL_COST
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Room for a request that costs little.
    Small,
    /// Room for one that costs much.
    Large,
    /// Room to read the rest of a long request.
    Input,
}

/// Requests that are complete go before input, which may never become one.
const WAITS: [Wait; 3] = [Wait::Small, Wait::Large, Wait::Input];

/// How the bytes for clients are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// For connections that hold little, all together.
    small: usize,
    /// For connections that hold much, all together.
    large: usize,
    /// Requests and replies of one connection; beyond it no further request of it is taken.
    pub connection: usize,
    /// Cost of requests in execution, of large ones and of small ones.
    in_execution: usize,
}

impl Shares {
    /// Of so many bytes for clients.
    pub fn of(bytes: usize) -> Self {
        Shares {
            small: bytes / 4,
            large: bytes - bytes / 4,
            connection: (bytes / 16).min(limits::UNSENT_PER_CONNECTION),
            in_execution: (bytes / 8).min(limits::COST_IN_EXECUTION),
        }
    }
}

/// Connections that wait for one kind of room, first come first.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(u32, u32)>,
    /// Tick at which the first one got its place at the head.
    since: u64,
}

/// The room of one client side. While a connection is at work its own holding is taken out: the rest is what others hold.
#[derive(Debug)]
pub struct Room {
    shares: Shares,
    small: usize,
    large: usize,
    small_in_execution: usize,
    large_in_execution: usize,
    queues: [Queue; 3],
}

impl Room {
    /// All of it.
    pub fn new(shares: Shares) -> Self {
        Room {
            shares,
            small: 0,
            large: 0,
            small_in_execution: 0,
            large_in_execution: 0,
            queues: Default::default(),
        }
    }

    /// Bytes that connections hold.
    pub fn held(&self) -> usize {
        self.small + self.large
    }

    /// A connection that holds so much is at work.
    pub fn take_out(&mut self, held: usize) {
        let pool = self.pool(held);
        *pool = pool.saturating_sub(held);
    }

    /// It holds so much now.
    pub fn put_back(&mut self, held: usize) {
        *self.pool(held) += held;
    }

    fn pool(&mut self, held: usize) -> &mut usize {
        if held > limits::SMALL_HOLDING { &mut self.large } else { &mut self.small }
    }

    /// Whether a connection may hold so many bytes, of which `counted` are counted here already (none while it is at work). One that
    /// holds much may hold more than the pool when it is the only one: a single request always finds room.
    pub fn may_hold(&self, held: usize, counted: usize) -> bool {
        let is_large = |held: usize| held > limits::SMALL_HOLDING;
        let (all, pool) = match is_large(held) {
            true => (self.large, self.shares.large),
            false => (self.small, self.shares.small),
        };
        let own = if is_large(held) == is_large(counted) { counted } else { 0 };
        let others = all.saturating_sub(own);
        others == 0 || others + held <= pool
    }

    /// Whether a request of this cost may be executed now, with those that are on their way.
    pub fn may_execute(&self, cost: Cost) -> bool {
        let others = if cost.is_large() { self.large_in_execution } else { self.small_in_execution };
        others == 0 || others + cost.bytes() <= self.shares.in_execution
    }

    /// A request is on its way; says what to give back when it has its reply.
    pub fn begin(&mut self, cost: Cost) -> u32 {
        *self.in_execution(cost.bytes()) += cost.bytes();
        cost.bytes() as u32
    }

    /// It has its reply, or none will come.
    pub fn end(&mut self, cost: u32) {
        let pool = self.in_execution(cost as usize);
        *pool = pool.saturating_sub(cost as usize);
    }

    fn in_execution(&mut self, cost: usize) -> &mut usize {
        match cost > limits::SMALL_COST {
            true => &mut self.large_in_execution,
            false => &mut self.small_in_execution,
        }
    }

    /// Cost of everything on its way.
    pub fn cost_in_execution(&self) -> usize {
        self.small_in_execution + self.large_in_execution
    }

    /// What a request of this cost waits for.
    pub fn wait_of(cost: Cost) -> Wait {
        if cost.is_large() { Wait::Large } else { Wait::Small }
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

    /// It waits no more.
    pub fn dequeue(&mut self, wait: Wait, tick: u64) {
        let queue = self.queue(wait);
        queue.waiting.pop_front();
        queue.since = tick;
    }

    fn queue(&mut self, wait: Wait) -> &mut Queue {
        &mut self.queues[wait as usize]
    }

    /// What is waited for, complete requests first.
    pub fn waits(&self) -> impl Iterator<Item = Wait> + use<> {
        WAITS.into_iter()
    }

    /// Something was done about what starves: it is looked at again in a while.
    pub fn look_again(&mut self, wait: Wait, tick: u64) {
        self.queue(wait).since = tick;
    }

    /// How many connections wait.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiting.len()).sum()
    }

    /// What has been waited for, at the heads of the queues, for longer than [`limits::ROOM_PATIENCE`].
    pub fn starved(&self, tick: u64) -> Option<Wait> {
        let patience = limits::ROOM_PATIENCE.as_micros().div_ceil(limits::TICK.as_micros()) as u64;
        let is_starved = |wait: &Wait| {
            let queue = &self.queues[*wait as usize];
            !queue.waiting.is_empty() && tick.saturating_sub(queue.since) >= patience
        };
        self.waits().find(is_starved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn room() -> Room {
        Room::new(Shares::of(64 * MB))
    }

    #[test]
    fn large_holdings_wait_for_one_another_and_small_ones_for_nobody_else() {
        let mut room = room();
        assert!(room.may_hold(63 * MB, 0), "alone, whatever it is");
        room.put_back(40 * MB);
        assert!(room.may_hold(8 * MB, 0) && !room.may_hold(9 * MB, 0));
        assert!(room.may_hold(limits::SMALL_HOLDING, 0));
        (0..16 * MB / limits::SMALL_HOLDING).for_each(|_| room.put_back(limits::SMALL_HOLDING));
        assert!(
            !room.may_hold(limits::SMALL_HOLDING, 0) && room.may_hold(8 * MB, 0),
            "the other pool is apart"
        );
        room.take_out(40 * MB);
        assert!(room.may_hold(63 * MB, 0));
        assert_eq!(room.held(), 16 * MB);
    }

    #[test]
    fn what_is_in_execution_is_bounded_and_one_request_always_fits() {
        let mut room = room();
        let huge = Cost::new(200, 63 * MB);
        let small = Cost::new(100, 500);
        assert!(room.may_execute(huge));
        let given = room.begin(huge);
        assert!(!room.may_execute(huge) && room.may_execute(small));
        while room.may_execute(small) {
            room.begin(small);
        }
        assert!(room.cost_in_execution() <= 63 * MB + 200 + limits::COST_IN_EXECUTION);
        room.end(given);
        assert!(room.may_execute(huge));
    }

    #[test]
    fn who_waits_is_served_in_order_and_starves_only_at_the_head() {
        let mut room = room();
        let patience = limits::ROOM_PATIENCE.as_micros().div_ceil(limits::TICK.as_micros()) as u64;
        assert_eq!(room.starved(1000), None);
        room.enqueue(Wait::Large, (1, 0), 5);
        room.enqueue(Wait::Large, (2, 0), 6);
        assert_eq!((room.head(Wait::Large), room.waiting()), (Some((1, 0)), 2));
        assert_eq!((room.starved(4 + patience), room.starved(5 + patience)), (None, Some(Wait::Large)));
        room.dequeue(Wait::Large, 5 + patience);
        assert_eq!((room.head(Wait::Large), room.starved(6 + patience)), (Some((2, 0)), None));
    }
}
