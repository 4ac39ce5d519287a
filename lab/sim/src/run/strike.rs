//! Injects faults, and ends lasting ones.

use crosscheck::admin::{AdminCommand, Corruption, Inject};
use wire::{ReplicaId, SplitMix64};

use super::{Event, Run};
use crate::fault::{SimFault, rests};
use crate::net::Weather;
use crate::plan::Stroke;
use crate::rng::stream;
use crate::workload::Workload;

impl<W: Workload> Run<W> {
    /// Injects a fault into its victim.
    pub(super) fn strike(&mut self, stroke: &Stroke) {
        let Stroke { victim, fault, seed, .. } = *stroke;
        let mut draws = stream(seed, 7);
        self.trace.record(
            self.now_us,
            format_args!("FAULT {} at replica {}", fault.entry().name, ReplicaId(victim)),
        );
        self.facts.disturbed = true;
        if !self.facts.next_victims.is_empty() {
            self.facts.victims = std::mem::take(&mut self.facts.next_victims);
        }
        for (number, slot) in (0..).zip(&mut self.slots) {
            slot.calm_us = slot.calm_us.max(self.now_us);
            if number == victim || matches!(fault, SimFault::Blackout | SimFault::Slow | SimFault::Interleave)
            {
                slot.faults_since_equal.insert(fault);
            }
        }
        let count = self.summary.faults.entry(fault).or_default();
        count.tried += 1;
        count.injected += u64::from(!fault.is_of_memory());
        self.lasting -= u64::from(fault == SimFault::Founding);
        if fault == SimFault::Interleave {
            self.facts.corrupted.extend(0..self.options.replicas);
        } else if fault.is_corruption() {
            self.facts.corrupted.insert(victim);
        }
        let lasts = match fault {
            SimFault::Settings => self.set_wrong(victim, &mut draws),
            SimFault::Stranger => Some(self.call_as_stranger(victim, &mut draws)),
            SimFault::DiskFull => {
                self.set_full(victim, true);
                Some(draws.within(10_000, 2_000_000))
            }
            SimFault::ClockJump => {
                let day = 24 * 3_600_000_000;
                self.set_clock(victim, draws.within(0, 2 * day) as i64 - day as i64);
                Some(draws.within(10_000, 4_000_000))
            }
            SimFault::Partition | SimFault::Mute | SimFault::Deaf => {
                self.set_blocked(victim, fault, true);
                Some(draws.within(10_000, 4_000_000))
            }
            SimFault::TwoIncarnations => {
                self.stop(victim, 0);
                Some(draws.within(300_000, 1_500_000))
            }
            SimFault::Loss
            | SimFault::Duplication
            | SimFault::Reordering
            | SimFault::Delay
            | SimFault::Noise => Some(self.set_weather(victim, fault, &mut draws)),
            _ => {
                self.strike_once(stroke, &mut draws);
                None
            }
        };
        if let Some(lasts) = lasts {
            self.lasting += 1;
            self.at(lasts, Event::Over(stroke.clone()));
        }
    }

    /// A fault without duration.
    fn strike_once(&mut self, stroke: &Stroke, draws: &mut SplitMix64) {
        let Stroke { victim, fault, .. } = *stroke;
        match fault {
            SimFault::Crash => self.stop(victim, draws.modulo(2_000_000)),
            SimFault::Founding | SimFault::Memories => self.lose_memory(stroke),
            SimFault::Token
            | SimFault::Tally
            | SimFault::Leaf
            | SimFault::Node
            | SimFault::Kept
            | SimFault::Groups => {
                self.corrupt_verification(victim, fault, draws.next_u64());
            }
            SimFault::Flag | SimFault::BodyLost | SimFault::Forgets => {
                self.corrupt_verification(victim, fault, draws.next_u64());
            }
            SimFault::Interleave => self.overlook(draws),
            SimFault::ViewStorm => self.storm(victim, draws.within(2, 20)),
            SimFault::SlowExecutor => {
                let count = draws.within(2, 30);
                let times: Vec<u64> = (0..count).map(|_| draws.within(2_000, 120_000)).collect();
                self.slow.slow_down(victim, times.into_iter());
            }
            SimFault::Slow | SimFault::Hang | SimFault::SlowCore => self.slow_down(victim, fault, draws),
            SimFault::Forged => self.forge(victim, draws),
            SimFault::Power | SimFault::Blackout => {
                if fault == SimFault::Blackout {
                    self.look_after_blackout();
                }
                self.cut_power(victim, fault, draws);
            }
            SimFault::DiskLost | SimFault::DiskFlip => {
                self.stop(victim, draws.modulo(2_000_000));
                self.damage_disk(victim, fault, draws);
            }
            SimFault::DiskError => {
                if let Some(storage) = &self.slots[usize::from(victim)].storage {
                    storage.disk.fail_sync();
                }
            }
            SimFault::Stuck => self.stick(victim, draws),
            SimFault::Entry | SimFault::Number | SimFault::Queue | SimFault::Clock | SimFault::Stamp => {
                self.corrupt_order(victim, fault, draws.next_u64())
            }
            SimFault::Pause => {
                let slot = &mut self.slots[usize::from(victim)];
                slot.paused_us = slot.paused_us.max(self.now_us + draws.within(1_000, 2_000_000));
            }
            SimFault::Reset => self.network.reset(victim),
            SimFault::Suspend => self.suspend(victim, draws.within(1_000, 2_000_000)),
            SimFault::Corruption(kind) => self.corrupt(victim, fault, kind, draws),
            _ => unreachable!("it lasts"),
        }
    }

    /// A bit of an ordered entry in memory, or of a number of the order engine; or a request that waits to be ordered.
    fn corrupt_order(&mut self, victim: u8, fault: SimFault, seed: u64) {
        let process = self.slots[usize::from(victim)].process.as_mut();
        let hit = process.is_some_and(|process| match fault {
            SimFault::Entry => process.replica.corrupt_entry(seed),
            SimFault::Queue => process.replica.corrupt_queue(),
            SimFault::Stamp => process.replica.corrupt_stamp(seed as u32),
            SimFault::Clock => {
                process.replica.corrupt_clock(seed as u32);
                true
            }
            _ => process.replica.corrupt_number(seed),
        });
        self.summary.faults.entry(fault).or_default().injected += u64::from(hit);
    }

    /// Its machine is suspended for this long.
    fn suspend(&mut self, victim: u8, us: u64) {
        let slot = &mut self.slots[usize::from(victim)];
        // A machine that is paused already makes no step until then, and its clock stops only afterwards.
        let from_us = slot.paused_us.max(self.now_us);
        slot.paused_us = slot.paused_us.max(self.now_us + us);
        if let Some(process) = &mut slot.process {
            process.replica.world().asleep_us += slot.paused_us - from_us;
        }
    }

    /// A wall clock that is this much ahead or behind from now on.
    fn set_clock(&mut self, victim: u8, skew_us: i64) {
        let slot = &mut self.slots[usize::from(victim)];
        slot.skew_us = skew_us;
        if let Some(process) = &mut slot.process {
            process.replica.world().skew_us = slot.skew_us;
        }
    }

    /// Network faults around a replica; returns how long they last.
    fn set_weather(&mut self, victim: u8, fault: SimFault, draws: &mut SplitMix64) -> u64 {
        let chance = draws.within(5, 150);
        let mut weather = Weather::default();
        match fault {
            SimFault::Loss => weather.loss = chance,
            SimFault::Duplication => weather.duplication = chance,
            SimFault::Reordering => weather.reordering = chance,
            SimFault::Noise => weather.corruption = chance / 5 + 1,
            _ => weather.delay_us = draws.within(100, 40_000),
        }
        self.network.set_weather(victim, weather);
        draws.within(10_000, 1_500_000)
    }

    /// A lasting fault is over.
    pub(super) fn end_stroke(&mut self, stroke: &Stroke) {
        self.trace.record(
            self.now_us,
            format_args!("{} at replica {} is over", stroke.fault.entry().name, ReplicaId(stroke.victim)),
        );
        self.lasting -= 1;
        if !matches!(stroke.fault, SimFault::Settings | SimFault::Stranger) {
            self.slots.iter_mut().for_each(|slot| slot.calm_us = slot.calm_us.max(self.now_us));
        }
        match stroke.fault {
            SimFault::Partition | SimFault::Mute | SimFault::Deaf => {
                self.set_blocked(stroke.victim, stroke.fault, false);
            }
            SimFault::DiskFull => self.set_full(stroke.victim, false),
            SimFault::TwoIncarnations => self.stop(stroke.victim, 0),
            SimFault::Settings => self.set_right(stroke.victim),
            SimFault::Stranger => self.count_strangers(stroke.victim),
            SimFault::ClockJump => self.set_clock(stroke.victim, 0),
            _ => self.network.set_weather(stroke.victim, Weather::default()),
        }
    }

    /// The power fails at some operation on the disk from now on, or a moment later if there is none.
    fn cut_power(&mut self, victim: u8, fault: SimFault, draws: &mut SplitMix64) {
        for replica in 0..self.options.replicas {
            let slot = &self.slots[usize::from(replica)];
            let is_affected = replica == victim || fault == SimFault::Blackout;
            let (Some(storage), true) = (&slot.storage, is_affected && slot.process.is_some()) else {
                continue;
            };
            storage.disk.fail_power_in(draws.within(1, 12));
            let incarnation = slot.incarnation;
            self.at(draws.within(1_000, 100_000), Event::PowerOff { replica, incarnation });
        }
    }

    fn damage_disk(&mut self, victim: u8, fault: SimFault, draws: &mut SplitMix64) {
        let Some(storage) = &self.slots[usize::from(victim)].storage else { return };
        if fault == SimFault::DiskLost {
            return storage.wipe();
        }
        let flipped = storage.disk.flip(draws.next_u64());
        if !flipped && let Some(count) = self.summary.faults.get_mut(&fault) {
            count.injected -= 1;
        }
    }

    fn set_full(&mut self, victim: u8, full: bool) {
        if let Some(storage) = &self.slots[usize::from(victim)].storage {
            storage.disk.set_full(full);
        }
    }

    pub(super) fn set_blocked(&mut self, victim: u8, fault: SimFault, blocked: bool) {
        for other in (0..self.options.replicas).filter(|other| *other != victim) {
            if fault != SimFault::Deaf {
                self.network.set_blocked(victim, other, blocked);
            }
            if fault != SimFault::Mute {
                self.network.set_blocked(other, victim, blocked);
            }
        }
    }

    fn corrupt(&mut self, victim: u8, fault: SimFault, kind: Corruption, draws: &mut SplitMix64) {
        let object = self.workload.object(draws).filter(|_| rests(kind));
        self.inject(victim, fault, Inject { kind, object, bit: None, member: None, seed: draws.next_u64() });
    }

    /// One bit that is wrong again after every repair: it is flipped repeatedly, if the object is intact by then.
    fn stick(&mut self, victim: u8, draws: &mut SplitMix64) {
        let object = self.workload.worn_object(draws);
        let (bit, seed) = (Some(draws.modulo(64)), draws.next_u64());
        let mut after = 0;
        for _ in 0..draws.within(4, 12) {
            after += draws.within(5_000, 60_000);
            let inject = Inject { kind: Corruption::Flip, object: object.clone(), bit, member: None, seed };
            self.lasting += 1;
            self.at(after, Event::Again { victim, inject });
        }
    }

    /// A stuck bit is wrong again.
    pub(super) fn again(&mut self, victim: u8, inject: Inject) {
        self.lasting -= 1;
        self.inject(victim, SimFault::Stuck, inject);
    }

    pub(super) fn inject(&mut self, victim: u8, fault: SimFault, inject: Inject) {
        let Some(process) = &mut self.slots[usize::from(victim)].process else { return };
        self.placed.push((victim, fault, process.replica.call(AdminCommand::Inject(inject))));
        let slot = &mut self.slots[usize::from(victim)];
        slot.wake_us = slot.wake_us.min(self.now_us);
    }

    /// Counts the armed faults that have taken effect, or will at the next occasion.
    pub(super) fn count_placed(&mut self) {
        let placed = std::mem::take(&mut self.placed);
        for (victim, fault, answered) in placed {
            match answered.try_recv() {
                Ok(answer) => {
                    let done = answer.get("done").and_then(serde_json::Value::as_bool).unwrap_or(false);
                    self.trace.record(self.now_us, format_args!("placed {}: {answer}", fault.entry().name));
                    self.summary.faults.entry(fault).or_default().injected += u64::from(done);
                    let region_id = answer.get("home").and_then(serde_json::Value::as_u64);
                    let id = answer.get("id").and_then(serde_json::Value::as_str);
                    if fault == SimFault::Corruption(Corruption::Image) {
                        self.facts.unknown.insert(victim);
                    }
                    if let (Some(region_id), Some(id)) = (region_id, id) {
                        self.facts.record_hit(victim, region_id, id);
                        if fault == SimFault::Corruption(Corruption::Id) {
                            self.facts.renamed.insert((victim, region_id.to_string()));
                        }
                    }
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => self.placed.push((victim, fault, answered)),
                // Its replica is gone.
                Err(std::sync::mpsc::TryRecvError::Disconnected) => {}
            }
        }
    }
}
