//! What clients' bytes may take in one replica, and who waits when there is no room.
//!
//! Everything that a client can make a replica hold is counted: input that is not decoded yet, requests on their way, replies that are
//! promised to them, replies that wait for their socket. A connection is not read from while there is no room for what it asks.
//!
//! Who asks for little must not wait for those who ask for much. So there are two pools for requests and replies, by what a connection
//! holds of them, and two bounds on what is in execution, by what a request costs: large ones wait for one another, and small ones pass
//! them. What waits is served in its order. Where nothing moves, connections that hold room and do not move themselves are closed
//! (`Clients::make_room`), as Redis does with `maxmemory-clients`.
//!
//! Nobody may wait for room that is given back only when it is served itself. So input has pools of its own: a request that has been read
//! waits for those that are on their way, whose room comes back as their clients read, and never for input. A long request waits for
//! others that are being sent. Short ones are read ahead in large pieces while there is room for that, and in small ones otherwise.

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

/// What one connection holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Short requests that were read ahead.
    pub ahead: usize,
    /// A long request: what has come of it, and room for the rest; or one that waits to be ordered.
    pub long: usize,
    /// Requests on their way, and replies.
    pub outgoing: usize,
}

impl Holding {
    /// All of it.
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
    /// For requests and replies of connections that hold little of them, all together.
    small: usize,
    /// For those of connections that hold much, all together.
    large: usize,
    /// Requests and replies of one connection; beyond it no further request of it is taken.
    pub connection: usize,
    /// Cost of requests in execution, of large ones and of small ones.
    in_execution: usize,
}

impl Shares {
    /// Of so many bytes for clients.
    pub fn of(bytes: usize) -> Self {
        let sixteenth = bytes / 16;
        Shares {
            ahead: sixteenth,
            long: 5 * sixteenth,
            small: 4 * sixteenth,
            large: 6 * sixteenth,
            connection: sixteenth.min(limits::UNSENT_PER_CONNECTION),
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
    ahead: usize,
    long: usize,
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
            ahead: 0,
            long: 0,
            small: 0,
            large: 0,
            small_in_execution: 0,
            large_in_execution: 0,
            queues: Default::default(),
        }
    }

    /// Bytes that connections hold.
    pub fn held(&self) -> usize {
        self.ahead + self.long + self.small + self.large
    }

    /// A connection that holds so much is at work.
    pub fn take_out(&mut self, held: Holding) {
        for (pool, bytes) in self.pools(held) {
            *pool = pool.saturating_sub(bytes);
        }
    }

    /// It holds so much now.
    pub fn put_back(&mut self, held: Holding) {
        for (pool, bytes) in self.pools(held) {
            *pool += bytes;
        }
    }

    fn pools(&mut self, held: Holding) -> [(&mut usize, usize); 3] {
        let outgoing = if is_large(held.outgoing) { &mut self.large } else { &mut self.small };
        [(&mut self.ahead, held.ahead), (&mut self.long, held.long), (outgoing, held.outgoing)]
    }

    /// Whether a connection at work may read ahead until it holds so many bytes.
    pub fn may_read_ahead(&self, ahead: usize) -> bool {
        self.ahead + ahead <= self.shares.ahead
    }

    /// Whether a long request may take so many bytes, of which `counted` are counted here already (none while its connection is at
    /// work).
    pub fn may_read(&self, long: usize, counted: usize) -> bool {
        fits(self.long.saturating_sub(counted), long, self.shares.long)
    }

    /// Whether a connection may have so many bytes of requests on their way and of replies, of which `counted` are counted here
    /// already.
    pub fn may_send(&self, outgoing: usize, counted: usize) -> bool {
        let (all, pool) = match is_large(outgoing) {
            true => (self.large, self.shares.large),
            false => (self.small, self.shares.small),
        };
        let own = if is_large(outgoing) == is_large(counted) { counted } else { 0 };
        fits(all.saturating_sub(own), outgoing, pool)
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

fn is_large(outgoing: usize) -> bool {
    outgoing > limits::SMALL_HOLDING
}

/// Whether so many bytes fit into a pool beside those of the others. What is longer than half of the pool goes beyond it once the others
/// have left the other half: everything finds room, and nothing has to wait until the last slow client has gone.
fn fits(others: usize, bytes: usize, pool: usize) -> bool {
    others + bytes <= pool || (bytes > pool / 2 && others <= pool / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn room() -> Room {
        Room::new(Shares::of(64 * MB))
    }

    fn outgoing(bytes: usize) -> Holding {
        Holding { outgoing: bytes, ..Holding::default() }
    }

    #[test]
    fn large_holdings_wait_for_one_another_and_small_ones_for_nobody_else() {
        let mut room = room();
        room.put_back(outgoing(12 * MB));
        assert!(room.may_send(63 * MB, 0), "one, whatever it is, beside those who hold half");
        room.put_back(outgoing(4 * MB));
        assert!(room.may_send(8 * MB, 0) && !room.may_send(9 * MB, 0) && !room.may_send(63 * MB, 0));
        assert!(room.may_send(9 * MB, MB), "of which a part is counted");
        assert!(room.may_send(limits::SMALL_HOLDING, 0));
        (0..16 * MB / limits::SMALL_HOLDING).for_each(|_| room.put_back(outgoing(limits::SMALL_HOLDING)));
        assert!(
            !room.may_send(limits::SMALL_HOLDING, 0) && room.may_send(8 * MB, 0),
            "the other pool is apart"
        );
        room.take_out(outgoing(4 * MB));
        assert!(room.may_send(63 * MB, 0));
        assert_eq!(room.held(), 28 * MB);
    }

    #[test]
    fn what_has_been_read_keeps_no_request_from_its_way() {
        let mut room = room();
        let read = Holding { ahead: 40 * MB, long: 40 * MB, outgoing: 0 };
        room.put_back(read);
        assert!(room.may_send(16 * MB, 0) && room.may_send(100, 0));
        assert!(!room.may_read(1, 0) && room.may_read(20 * MB, 40 * MB) && !room.may_read_ahead(1));
        room.take_out(read);
        assert!(room.may_read(63 * MB, 0), "one, whatever it is");
        assert!(room.may_read_ahead(4 * MB) && !room.may_read_ahead(4 * MB + 1), "smaller pieces will do");
        assert_eq!(room.held(), 0);
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
