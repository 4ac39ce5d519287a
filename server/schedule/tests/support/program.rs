//! Random lock programs: requests that nest, branch, choose locks from data, spawn, set timers, release early
//! and panic.

use std::sync::Arc;

use schedule::{Footprint, LockId, SplitMix64};

/// A request of the fuzz: its effect is a function of its operations and of the values that the machine returns.
#[derive(Debug)]
pub struct Program {
    /// Locks the operations name by index; always at least one.
    pub locks: Vec<LockId>,
    pub ops: Vec<Op>,
    /// Locks passed early, in the shrinking phase at the end.
    pub release: Vec<usize>,
    pub footprint: Footprint,
}

/// Kinds that predicted programs have. The last two have the same place in the predictor and replace each other there.
pub fn kinds() -> [u32; 4] {
    let rival = (4..).find(|&kind| place(kind) == place(3)).unwrap();
    [1, 2, 3, rival]
}

/// Place of a kind in the predictor, of ten bits; written down a second time.
pub fn place(kind: u32) -> u32 {
    kind.wrapping_mul(0x9e37_79b9) >> 22
}

#[derive(Debug)]
pub enum Op {
    /// Change the value behind a lock.
    Bump(usize, u64),
    /// Read the value behind a lock.
    Peek(usize),
    /// Hold the first lock while taking the second, and change both.
    Transfer(usize, usize, u64),
    /// Change a lock whose number comes from data: among the program's own (`true`), or among all.
    Choose(bool),
    /// Read a lock whose number comes from data.
    ChoosePeek(bool),
    /// Mix time, randomness and position in.
    Look,
    /// Skip the next operation, depending on the value that was read.
    Branch,
    /// Start a request.
    Spawn(Arc<Program>),
    /// Start a request some time later.
    Timer(u64, Arc<Program>),
    /// Panic, depending on the value that was read (one time out of the number).
    Panic(u64),
    /// Give other threads a chance to run in between.
    Dawdle,
}

/// The lock was outside the footprint.
pub struct Missed;

/// Payload of the fuzz's own panics.
pub struct Boom;

/// The machine under a program: the scheduler under test, or the oracle.
pub trait Machine {
    fn locks(&self) -> u32;
    fn bump(&mut self, lock: LockId, by: u64) -> Result<u64, Missed>;
    fn peek(&mut self, lock: LockId) -> Result<u64, Missed>;
    fn transfer(&mut self, from: LockId, to: LockId, by: u64) -> Result<u64, Missed>;
    fn release(&mut self, lock: LockId);
    fn look(&mut self) -> u64;
    fn now_us(&self) -> u64;
    fn spawn(&mut self, program: Arc<Program>);
    fn at(&mut self, time_us: u64, program: Arc<Program>);
    fn dawdle(&mut self);
}

/// Order-sensitive: a value that is mixed in later has another effect.
pub fn mix(a: u64, b: u64) -> u64 {
    let z = (a.rotate_left(7) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z ^ (z >> 29)
}

impl Program {
    /// Runs the program to its result.
    pub fn interpret(&self, machine: &mut dyn Machine) -> Result<u64, Missed> {
        let mut seen = 1u64;
        let mut taken: Vec<LockId> = Vec::new();
        let mut skip = false;
        for op in &self.ops {
            if std::mem::take(&mut skip) {
                continue;
            }
            skip = matches!(op, Op::Branch) && seen & 1 == 1;
            seen = mix(seen, self.step(op, seen, machine, &mut taken)?);
        }
        for &at in &self.release {
            let lock = self.locks[at];
            if let Some(held) = taken.iter().position(|&held| held == lock) {
                machine.release(lock);
                taken.remove(held);
                machine.dawdle();
            }
        }
        for lock in taken.into_iter().take(2) {
            seen = mix(seen, machine.peek(lock)?);
        }
        Ok(seen)
    }

    fn step(
        &self,
        op: &Op,
        seen: u64,
        machine: &mut dyn Machine,
        taken: &mut Vec<LockId>,
    ) -> Result<u64, Missed> {
        let mut take = |lock: LockId| {
            if !taken.contains(&lock) {
                taken.push(lock);
            }
            lock
        };
        Ok(match op {
            Op::Bump(at, by) => machine.bump(take(self.locks[*at]), *by)?,
            Op::Peek(at) => machine.peek(take(self.locks[*at]))?,
            Op::Transfer(from, to, by) => {
                machine.transfer(take(self.locks[*from]), take(self.locks[*to]), *by)?
            }
            Op::Choose(own) => machine.bump(take(self.choose(*own, seen, machine)), seen)?,
            Op::ChoosePeek(own) => machine.peek(take(self.choose(*own, seen, machine)))?,
            Op::Look => machine.look(),
            Op::Branch => 2,
            Op::Spawn(program) => {
                machine.spawn(Arc::clone(program));
                3
            }
            Op::Timer(after, program) => {
                machine.at(machine.now_us() + after, Arc::clone(program));
                5
            }
            Op::Panic(one_in) if seen.is_multiple_of(*one_in) => std::panic::resume_unwind(Box::new(Boom)),
            Op::Panic(_) => 7,
            Op::Dawdle => {
                machine.dawdle();
                11
            }
        })
    }

    fn choose(&self, own: bool, seen: u64, machine: &dyn Machine) -> LockId {
        if own {
            self.locks[(seen >> 8) as usize % self.locks.len()]
        } else {
            (seen >> 8) as u32 % machine.locks()
        }
    }

    /// The locks that it may take, each for writing; none if it may take any.
    pub fn may_take(&self) -> Option<&[LockId]> {
        let any = |op: &Op| matches!(op, Op::Choose(false) | Op::ChoosePeek(false));
        (!self.ops.iter().any(any)).then_some(&*self.locks)
    }

    /// Runs alone and does nothing: a place to take the state at.
    pub fn cut() -> Program {
        Program { locks: vec![0], ops: Vec::new(), release: Vec::new(), footprint: Footprint::all() }
    }

    /// A random program over locks 0..locks that spawns at most `depth` generations. Programs of a kind mostly name
    /// the same locks, and half of them do the same with them, as long as `fashion` is the same.
    pub fn random(rng: &mut SplitMix64, locks: u32, depth: u32, fashion: u64) -> Program {
        let kind = (rng.below(3) == 0).then(|| kinds()[rng.below(4) as usize]);
        let mut habit = SplitMix64::new(mix(kind.map_or(rng.next_u64(), u64::from), fashion));
        let chosen = if rng.below(8) == 0 { &mut *rng } else { &mut habit };
        let named: Vec<LockId> =
            (0..1 + chosen.below(5)).map(|_| chosen.below(u64::from(locks)) as LockId).collect();
        let pick = |rng: &mut SplitMix64| rng.below(named.len() as u64) as usize;
        let ops = Self::operations(
            if rng.below(2) == 0 { rng } else { &mut habit },
            locks,
            named.len(),
            depth,
            fashion,
        );
        let release = (0..rng.below(3)).map(|_| pick(rng)).collect();
        let mut footprint = Self::forecast(rng, &named, locks);
        if let Some(kind) = kind {
            footprint = Self::declared_part(rng, &footprint);
            footprint.predict(kind);
        }
        Program { locks: named, ops, release, footprint }
    }

    fn operations(rng: &mut SplitMix64, locks: u32, named: usize, depth: u32, fashion: u64) -> Vec<Op> {
        let pick = |rng: &mut SplitMix64| rng.below(named as u64) as usize;
        (0..2 + rng.below(9))
            .map(|_| match rng.below(100) {
                0..25 => Op::Bump(pick(rng), rng.next_u64()),
                25..45 => Op::Peek(pick(rng)),
                45..57 => Op::Transfer(pick(rng), pick(rng), rng.next_u64()),
                57..67 => Op::Choose(true),
                67..69 => Op::Choose(false),
                69..70 => Op::ChoosePeek(false),
                70..76 => Op::ChoosePeek(true),
                76..82 => Op::Look,
                82..88 => Op::Branch,
                88..91 if depth > 0 => Op::Spawn(Arc::new(Self::random(rng, locks, depth - 1, fashion))),
                91..93 if depth > 0 => {
                    Op::Timer(rng.below(60), Arc::new(Self::random(rng, locks, depth - 1, fashion)))
                }
                93..95 => Op::Panic(1 + rng.below(8)),
                _ => Op::Dawdle,
            })
            .collect()
    }

    /// Mostly nothing; otherwise one lock, the whole forecast that could be declared, or every lock.
    fn declared_part(rng: &mut SplitMix64, whole: &Footprint) -> Footprint {
        let mut part = Footprint::new();
        match rng.below(40) {
            0 => part.make_all(),
            1..5 => part = *whole,
            5..15 => whole.iter().take(1).for_each(
                |(lock, shared)| {
                    if shared { part.read(lock) } else { part.write(lock) }
                },
            ),
            _ => {}
        }
        part
    }

    /// Exact, one too small, or up to twelve too large.
    fn forecast(rng: &mut SplitMix64, named: &[LockId], locks: u32) -> Footprint {
        let mut footprint = Footprint::new();
        let leave_out = if rng.below(14) == 0 { rng.below(named.len() as u64) as usize } else { usize::MAX };
        for (at, &lock) in named.iter().enumerate() {
            // Odd locks are DetRwLock: now and then forecast for reading only.
            match rng.below(16) {
                _ if at == leave_out => {}
                0 if lock % 2 == 1 => footprint.read(lock),
                _ => footprint.write(lock),
            }
        }
        if rng.below(4) == 0 {
            for _ in 0..rng.below(13) {
                let lock = rng.below(u64::from(locks)) as LockId;
                if rng.below(2) == 0 { footprint.write(lock) } else { footprint.read(lock) }
            }
        }
        footprint
    }
}
