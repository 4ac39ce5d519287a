//! The network of a simulated cluster: every byte between two replicas passes here, with a delay from the seed.
//!
//! A connection is two pipes of chunks. A chunk has the bytes of one `write`, in practice whole frames, so that
//! loss, duplication and reordering of chunks are those of messages. The replicas' own code dials, shakes
//! hands, decodes and hangs up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use crosscheck::stepped::{LISTENER, Net, Ready};
use mio::{Interest, Token};
use wire::SplitMix64;

/// The network faults around one replica; chances in a thousand chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// The chunk is lost.
    pub loss: u64,
    /// The chunk arrives twice.
    pub duplication: u64,
    /// The chunk may be overtaken.
    pub reordering: u64,
    /// One bit of the chunk is flipped.
    pub corruption: u64,
    /// Microseconds that every chunk takes longer.
    pub delay_us: u64,
}

/// The end of a connection that is no replica's.
const STRANGER: u8 = u8::MAX;
/// Chunks that a stranger has recorded on the network.
const RECORDED: usize = 32;

/// One direction of a connection.
#[derive(Debug, Default)]
struct Pipe {
    /// By arrival and number.
    chunks: BTreeMap<(u64, u64), Vec<u8>>,
    /// Bytes of the first chunk that were read already.
    read: usize,
    last_us: u64,
    /// The first chunk is on its way; it names the sender. A stream has it once and at its beginning, whatever the
    /// network faults.
    has_sent: bool,
    closed: bool,
}

#[derive(Debug)]
struct SimConnection {
    /// The dialling and the dialled end.
    ends: [u8; 2],
    /// The bytes that each end wrote.
    pipes: [Pipe; 2],
    tokens: [Option<Token>; 2],
    /// When the other end learns of it.
    opened_us: u64,
    accepted: bool,
}

struct NetState {
    now_us: u64,
    rng: SplitMix64,
    weather: Vec<Weather>,
    /// Pairs of sender and receiver whose messages are blocked.
    blocked: BTreeSet<(u8, u8)>,
    alive: Vec<bool>,
    /// How many microseconds each replica is later than the run, after a long handler in its step.
    late_us: Vec<u64>,
    /// The reasons of the delay: its length then, and whether the order thread was busy with it.
    stretches: Vec<Vec<(u64, bool)>>,
    connections: BTreeMap<u64, SimConnection>,
    opened: u64,
    chunks: u64,
    /// Chunks that met a network fault.
    pub faulty_chunks: u64,
    /// Recorded chunks: sender, receiver, whether it was the first of its connection, and the bytes.
    tapped: bool,
    recorded: VecDeque<Recorded>,
    /// Connections of strangers that a replica took for a peer's.
    intrusions: u64,
}

/// A chunk that was recorded on its way.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Sender and receiver.
    pub ends: (u8, u8),
    /// Whether its connection began with it.
    pub is_first: bool,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The network, shared by the simulation and the replicas' streams; no two of them run at the same time.
#[derive(Clone)]
pub struct SimNetwork(Arc<Mutex<NetState>>);

impl SimNetwork {
    /// A network of `replicas` without faults.
    pub fn new(replicas: u8, rng: SplitMix64) -> Self {
        let count = usize::from(replicas);
        SimNetwork(Arc::new(Mutex::new(NetState {
            now_us: 0,
            rng,
            weather: vec![Weather::default(); count],
            blocked: BTreeSet::new(),
            alive: vec![false; count],
            late_us: vec![0; count],
            stretches: vec![Vec::new(); count],
            connections: BTreeMap::new(),
            opened: 0,
            chunks: 0,
            faulty_chunks: 0,
            tapped: false,
            recorded: VecDeque::new(),
            intrusions: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, NetState> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The one clock of the run.
    pub fn now_us(&self) -> u64 {
        self.state().now_us
    }

    /// Advances the time.
    pub fn set_now(&self, now_us: u64) {
        self.state().now_us = now_us;
    }

    /// A handler of this replica's step takes this long, on its order thread or another one: the rest of the step
    /// happens later.
    pub fn fall_behind(&self, replica: u8, time_us: u64, is_order: bool) {
        let (mut state, replica) = (self.state(), usize::from(replica));
        state.late_us[replica] += time_us;
        let late_us = state.late_us[replica];
        state.stretches[replica].push((late_us, is_order));
    }

    /// The reasons of the replica's delay: each period with its end, and whether the order thread is busy in it.
    pub fn stretches(&self, replica: u8) -> Vec<(u64, bool)> {
        self.state().stretches[usize::from(replica)].clone()
    }

    /// How much later than the run the replica is.
    pub fn late_us(&self, replica: u8) -> u64 {
        self.state().late_us[usize::from(replica)]
    }

    /// That time has passed.
    pub fn catch_up(&self, replica: u8) {
        let mut state = self.state();
        state.late_us[usize::from(replica)] = 0;
        state.stretches[usize::from(replica)].clear();
    }

    /// Chunks that met a fault.
    pub fn faulty_chunks(&self) -> u64 {
        self.state().faulty_chunks
    }

    /// Changes the network faults around one replica.
    pub fn set_weather(&self, replica: u8, weather: Weather) {
        self.state().weather[usize::from(replica)] = weather;
    }

    /// Blocks messages from `from` to `to`, or lets them pass again. Messages on their way wait.
    pub fn set_blocked(&self, from: u8, to: u8, blocked: bool) {
        let mut state = self.state();
        if blocked {
            state.blocked.insert((from, to));
        } else {
            state.blocked.remove(&(from, to));
        }
    }

    /// Whether messages from `from` to `to` are blocked now.
    pub fn is_blocked(&self, from: u8, to: u8) -> bool {
        self.state().is_blocked(from, to)
    }

    /// A replica's process is up, or gone with all its connections.
    pub fn set_alive(&self, replica: u8, alive: bool) {
        let mut state = self.state();
        state.alive[usize::from(replica)] = alive;
        for connection in state.connections.values_mut().filter(|one| one.ends.contains(&replica)) {
            connection.pipes.iter_mut().for_each(|pipe| pipe.closed = true);
        }
    }

    /// Resets every connection of one replica.
    pub fn reset(&self, replica: u8) {
        let alive = self.state().alive[usize::from(replica)];
        self.set_alive(replica, alive);
    }

    /// From now on chunks are recorded.
    pub fn tap(&self) {
        self.state().tapped = true;
    }

    /// The last recorded chunks.
    pub fn recorded(&self) -> Vec<Recorded> {
        self.state().recorded.iter().cloned().collect()
    }

    /// Connections of strangers that a replica took for a peer's.
    pub fn intrusions(&self) -> u64 {
        self.state().intrusions
    }

    /// A stranger opens a connection to a replica; none when no process is up.
    pub fn call(&self, to: u8) -> Option<Call> {
        let mut state = self.state();
        let id = state.alive[usize::from(to)].then(|| state.open(STRANGER, to))?;
        Some(Call(SimStream { network: self.clone(), id, side: 0 }))
    }

    /// Puts bytes into the stream from one replica to another, behind the bytes on their way; false when there is no
    /// stream.
    pub fn inject(&self, from: u8, to: u8, bytes: &[u8]) -> bool {
        let mut state = self.state();
        let is_theirs = |(id, one): (&u64, &SimConnection)| {
            let side = [[from, to], [to, from]].iter().position(|ends| *ends == one.ends)?;
            (one.accepted && one.pipes[side].has_sent && !one.pipes[side].closed).then_some((*id, side))
        };
        let Some((id, side)) = state.connections.iter().find_map(is_theirs) else { return false };
        state.chunks += 1;
        let (now_us, number) = (state.now_us, state.chunks);
        if let Some(one) = state.connections.get_mut(&id) {
            let pipe = &mut one.pipes[side];
            pipe.last_us = pipe.last_us.max(now_us + 1);
            pipe.chunks.insert((pipe.last_us, number), bytes.to_vec());
        }
        true
    }

    /// The readiness of the streams of `me`.
    pub fn ready(&self, me: u8) -> Vec<Ready> {
        let state = self.state();
        let mut ready = Vec::new();
        if state.connections.values().any(|one| state.waits(one, me)) {
            ready.push(Ready { token: LISTENER, readable: true, writable: false });
        }
        for connection in state.connections.values() {
            for side in (0..2).filter(|side| connection.ends[*side] == me) {
                if let Some(token) = connection.tokens[side]
                    && state.arrival(connection, side).is_some_and(|at| at <= state.now_us)
                {
                    ready.push(Ready { token, readable: true, writable: true });
                }
            }
        }
        ready
    }

    /// When `me` can next read something.
    pub fn next_arrival(&self, me: u8) -> Option<u64> {
        let state = self.state();
        let reads = state.connections.values().flat_map(|one| {
            (0..2)
                .filter(move |side| one.ends[*side] == me && one.tokens[*side].is_some())
                .filter_map(|side| state.arrival(one, side))
        });
        let opens = state
            .connections
            .values()
            .filter(|one| one.ends[1] == me && !one.accepted && !state.is_blocked(one.ends[0], me))
            .map(|one| one.opened_us);
        reads.chain(opens).min()
    }
}

impl NetState {
    fn is_blocked(&self, from: u8, to: u8) -> bool {
        self.blocked.contains(&(from, to))
    }

    /// Whether a connection waits to be accepted by `me`.
    fn waits(&self, one: &SimConnection, me: u8) -> bool {
        one.ends[1] == me
            && !one.accepted
            && one.opened_us <= self.now_us
            && !self.is_blocked(one.ends[0], me)
    }

    /// When the end `side` of a connection has something to read, or learns of its end.
    fn arrival(&self, one: &SimConnection, side: usize) -> Option<u64> {
        let (from, to) = (one.ends[1 - side], one.ends[side]);
        let pipe = &one.pipes[1 - side];
        if self.is_blocked(from, to) {
            return None;
        }
        pipe.chunks.keys().next().map(|(at, _)| *at).or(pipe.closed.then_some(0))
    }

    /// Opens a connection to a replica; returns its number.
    fn open(&mut self, from: u8, to: u8) -> u64 {
        self.opened += 1;
        let opened_us = self.now_us + self.rng.within(20, 100);
        let one = SimConnection {
            ends: [from, to],
            pipes: Default::default(),
            tokens: [None; 2],
            opened_us,
            accepted: false,
        };
        self.connections.insert(self.opened, one);
        self.opened
    }

    /// Records a chunk between two replicas.
    fn record(&mut self, ends: (u8, u8), is_first: bool, bytes: &[u8]) {
        if self.tapped && ends.0 != STRANGER && ends.1 != STRANGER {
            self.recorded.push_back(Recorded { ends, is_first, bytes: bytes.to_vec() });
            // First chunks are rare, and more useful.
            let same = self.recorded.iter().filter(|one| one.is_first == is_first).count();
            let oldest = self.recorded.iter().position(|one| one.is_first == is_first);
            if let (true, Some(oldest)) = (same > RECORDED / 2, oldest) {
                self.recorded.remove(oldest);
            }
        }
    }

    fn write(&mut self, id: u64, side: usize, bytes: &[u8]) -> io::Result<usize> {
        let Some(one) = self.connections.get(&id) else { return Err(io::ErrorKind::BrokenPipe.into()) };
        if one.pipes[side].closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let ends = (one.ends[side], one.ends[1 - side]);
        let is_first = !one.pipes[side].has_sent;
        let late_us = self.late_us.get(usize::from(ends.0)).copied().unwrap_or(0);
        self.record(ends, is_first, bytes);
        let [weather, other] =
            [ends.0, ends.1].map(|end| self.weather.get(usize::from(end)).copied().unwrap_or_default());
        let rng = &mut self.rng;
        let base = rng.within(10, 60);
        let delay = weather.delay_us.max(other.delay_us);
        let delay = base + if delay > 0 { rng.modulo(delay) } else { 0 };
        let strikes = |rng: &mut SplitMix64, chance: fn(&Weather) -> u64| {
            let chance = chance(&weather).max(chance(&other));
            chance > 0 && rng.chance(chance)
        };
        let lost = strikes(rng, |weather| weather.loss);
        let is_message = !is_first;
        let twice = strikes(rng, |weather| weather.duplication) && is_message;
        let overtaken = strikes(rng, |weather| weather.reordering) && is_message;
        let corrupt = strikes(rng, |weather| weather.corruption);
        let mut chunk = bytes.to_vec();
        if corrupt {
            let bit = rng.modulo(chunk.len() as u64 * 8) as usize;
            chunk[bit / 8] ^= 1 << (bit % 8);
        }
        let late = if overtaken { rng.within(100, 5000) } else { 0 };
        self.faulty_chunks += u64::from(lost) + u64::from(twice) + u64::from(overtaken) + u64::from(corrupt);
        let Some(one) = self.connections.get_mut(&id) else { return Ok(bytes.len()) };
        let pipe = &mut one.pipes[side];
        pipe.has_sent = true;
        let at = (self.now_us + late_us + delay).max(pipe.last_us);
        pipe.last_us = at;
        if !lost {
            let copies = if twice { 2 } else { 1 };
            for _ in 0..copies {
                self.chunks += 1;
                pipe.chunks.insert((at + late, self.chunks), chunk.clone());
            }
        }
        Ok(bytes.len())
    }

    /// Takes the arrived bytes, as far as there is space; from time to time less, so that a frame comes in two reads.
    fn read(&mut self, id: u64, side: usize, into: &mut [u8]) -> io::Result<usize> {
        let limit = if self.rng.chance(20) { self.rng.within(1, 200) as usize } else { into.len() };
        let end = limit.min(into.len());
        let into = &mut into[..end];
        let mut count = self.read_chunk(id, side, into)?;
        while count > 0
            && count < into.len()
            && let Ok(more @ 1..) = self.read_chunk(id, side, &mut into[count..])
        {
            count += more;
        }
        Ok(count)
    }

    fn read_chunk(&mut self, id: u64, side: usize, into: &mut [u8]) -> io::Result<usize> {
        let now_us = self.now_us;
        let Some(one) = self.connections.get(&id) else { return Ok(0) };
        if self.arrival(one, side).is_none_or(|at| at > now_us) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some(one) = self.connections.get_mut(&id) else { return Ok(0) };
        let pipe = &mut one.pipes[1 - side];
        let Some(mut first) = pipe.chunks.first_entry() else { return Ok(0) };
        let rest = &first.get_mut()[pipe.read..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        pipe.read += count;
        if pipe.read == first.get().len() {
            first.remove();
            pipe.read = 0;
        }
        Ok(count)
    }
}

/// The network as one process of a replica sees it.
pub struct Port {
    /// The replica.
    pub me: u8,
    /// All of it.
    pub network: SimNetwork,
}

/// One end of a connection.
pub struct SimStream {
    network: SimNetwork,
    id: u64,
    side: usize,
}

/// A stranger's end of a connection to a replica. Dropping it hangs up.
pub struct Call(SimStream);

impl Call {
    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        // An end that has hung up does not receive them.
        let _ = self.0.write(bytes);
    }

    /// The bytes received so far.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut received = vec![0; 1 << 16];
        let count = self.0.read(&mut received).unwrap_or(0);
        received.truncate(count);
        received
    }

    /// Whether the replica has taken all bytes that were sent.
    pub fn is_received(&self) -> bool {
        let state = self.0.network.state();
        state.connections.get(&self.0.id).is_none_or(|one| one.accepted && one.pipes[0].chunks.is_empty())
    }
}

impl Port {
    fn stream(&self, id: u64, side: usize) -> SimStream {
        SimStream { network: self.network.clone(), id, side }
    }

    fn set_token(&self, stream: &SimStream, token: Option<Token>) {
        if let Some(one) = self.network.state().connections.get_mut(&stream.id) {
            one.tokens[stream.side] = token;
        }
    }
}

impl Net for Port {
    type Stream = SimStream;

    fn connect(&mut self, peer: u8) -> io::Result<SimStream> {
        let mut state = self.network.state();
        if !state.alive[usize::from(peer)] {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let id = state.open(self.me, peer);
        drop(state);
        Ok(self.stream(id, 0))
    }

    fn accept(&mut self) -> io::Result<SimStream> {
        let mut state = self.network.state();
        let waits = |(id, one): (&u64, &SimConnection)| state.waits(one, self.me).then_some(*id);
        let Some(id) = state.connections.iter().find_map(waits) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        if let Some(one) = state.connections.get_mut(&id) {
            one.accepted = true;
        }
        drop(state);
        Ok(self.stream(id, 1))
    }

    fn register(&mut self, stream: &mut SimStream, token: Token, _interest: Interest) -> io::Result<()> {
        self.set_token(stream, Some(token));
        Ok(())
    }

    /// Only a connection that has become a peer's gets another token.
    fn reregister(&mut self, stream: &mut SimStream, token: Token, _interest: Interest) -> io::Result<()> {
        let mut state = self.network.state();
        let is_strangers = state.connections.get(&stream.id).is_some_and(|one| one.ends[0] == STRANGER);
        state.intrusions += u64::from(is_strangers);
        drop(state);
        self.set_token(stream, Some(token));
        Ok(())
    }

    fn deregister(&mut self, stream: &mut SimStream) {
        self.set_token(stream, None);
    }

    fn tune(&mut self, _stream: &SimStream) {}
}

impl Read for SimStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.network.state().read(self.id, self.side, into)
    }
}

impl Write for SimStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.network.state().write(self.id, self.side, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut state = self.network.state();
        let Some(one) = state.connections.get_mut(&self.id) else { return };
        one.tokens[self.side] = None;
        one.pipes.iter_mut().for_each(|pipe| pipe.closed = true);
        one.pipes[1 - self.side].chunks.clear();
        // Both ends are gone: the connection is not used again.
        if one.accepted && one.tokens.iter().all(Option::is_none) {
            state.connections.remove(&self.id);
        }
    }
}
