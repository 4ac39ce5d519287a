//! A second service under simulation: a few registers, its model, and ten seeds in which flipped bits are repaired.
//!
//! It shows that the simulation does not depend on memcached, and what another service has to provide.

use std::sync::Arc;

use bytes::Bytes;
use crosscheck::object::{ObjectId, Region, RegionId, critical, genesis};
use crosscheck::schedule::{DetMutex, Footprint, Locks, Retry};
use crosscheck::{Action, Cx, MakeProtocol, Malformed, NeedsBatch, Progress, Protocol, Service};
use sim::testing::{all_faults_keep_every_promise, flips_are_repaired, short};
use sim::{CommandSource, Options, ReferenceModel, Turn, Workload, same_bytes, simulate};
use vote::Place;
use wire::SplitMix64;

const REGISTERS: u8 = 4;

/// One register.
#[critical]
pub struct Register {
    total: u64,
    writes: u64,
}

#[critical]
impl Register {
    /// A register without a write.
    #[allow(clippy::new_without_default, reason = "a register is made once, at the genesis")]
    pub fn new() -> Self {
        Self { total: 0, writes: 0 }
    }

    /// Adds to the total.
    pub fn add(&mut self, amount: u64) {
        self.total = self.total.wrapping_add(amount);
        self.writes += 1;
    }

    /// The total.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Total and number of writes, as a client reads them.
    pub fn line(&self) -> String {
        format!("{} after {}\n", self.total, self.writes)
    }
}

#[derive(Locks)]
struct Registers {
    registers: Vec<DetMutex<Register>>,
    /// Reads may take no batch.
    #[locks(skip)]
    reads: bool,
}

/// The requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// Adds to a register; nothing, for a read.
    Add { register: u8, amount: u64 },
    /// Adds 1 to another register, whose number is the total of this one: the lock follows from the data only.
    Point { register: u8 },
}

const MALFORMED: Malformed = Malformed("not a register and what to add");

/// The register at which a total points.
fn target(total: u64) -> u8 {
    (total % u64::from(REGISTERS)) as u8
}

impl Service for Registers {
    type Request = Command;

    fn decode(&self, ordered: &Bytes) -> Result<Command, Malformed> {
        let text = std::str::from_utf8(ordered).map_err(|_| MALFORMED)?;
        let (register, what) = text.trim_end().split_once(' ').ok_or(MALFORMED)?;
        let register = register.parse().ok().filter(|number| *number < REGISTERS).ok_or(MALFORMED)?;
        if what == "point" {
            return Ok(Command::Point { register });
        }
        Ok(Command::Add { register, amount: what.parse().map_err(|_| MALFORMED)? })
    }

    fn encode(&self, command: &Command) -> Vec<u8> {
        match *command {
            Command::Add { register, amount } => format!("{register} {amount}").into_bytes(),
            Command::Point { register } => format!("{register} point").into_bytes(),
        }
    }

    fn footprint(&self, command: &Command, footprint: &mut Footprint) {
        match *command {
            Command::Add { register, .. } => footprint.write(RegionId::from(register)),
            Command::Point { register } => {
                footprint.write(RegionId::from(register));
                footprint.predict(u32::from(register));
            }
        }
    }

    fn execute(&self, cx: &Cx<'_, Self>, command: &Command, reply: &mut Vec<u8>) -> Result<(), Retry> {
        match *command {
            Command::Add { register, amount } => {
                let mut register = cx.lock(&self.registers[usize::from(register)])?;
                if amount > 0 {
                    register.add(amount);
                }
                reply.extend_from_slice(register.line().as_bytes());
            }
            Command::Point { register } => {
                let total = cx.lock(&self.registers[usize::from(register)])?.total();
                let mut other = cx.lock(&self.registers[usize::from(target(total))])?;
                other.add(1);
                reply.extend_from_slice(other.line().as_bytes());
            }
        }
        Ok(())
    }

    fn reads_only(&self, command: &Command) -> bool {
        self.reads && matches!(command, Command::Add { amount: 0, .. })
    }

    fn read(
        &self,
        cx: &Cx<'_, Self>,
        _latest_us: u64,
        command: &Command,
        reply: &mut Vec<u8>,
    ) -> Result<(), NeedsBatch> {
        self.execute(cx, command, reply).map_err(|_| NeedsBatch)
    }

    fn panicked(&self, _command: &Command, reply: &mut Vec<u8>) {
        reply.extend_from_slice(b"error\n");
    }

    fn region_id_of(&self, name: &str) -> Option<RegionId> {
        name.parse().ok().filter(|region_id| *region_id < RegionId::from(REGISTERS))
    }

    fn find(&self, cx: &Cx<'_, Self>, name: &str) -> Option<ObjectId> {
        Some(cx.lock(&self.registers[self.region_id_of(name)? as usize]).ok()?.root())
    }
}

/// One line is one request, ordered as it is.
#[derive(Clone, PartialEq)]
struct Lines;

impl Protocol for Lines {
    fn next(&mut self, input: &[u8]) -> Progress {
        match input.iter().position(|byte| *byte == b'\n') {
            Some(end) => Progress::Done { used: end + 1, action: Action::Order(input[..=end].to_vec()) },
            None => Progress::NeedMore(input.len() + 1),
        }
    }
}

#[derive(Clone)]
struct OfRegisters {
    /// Clients send [`Command::Point`], too.
    points: bool,
    /// Reads may take no batch.
    reads: bool,
    /// On purpose: the model ignores every write of this amount and more.
    forgets: u64,
}

impl Workload for OfRegisters {
    type Service = Registers;
    type Protocol = Lines;
    type Command = Command;
    type Source = Draws;
    type Model = Totals;

    fn start(&self) -> Result<(Registers, MakeProtocol<Lines>), String> {
        let register = |region_id| DetMutex::new(region_id, genesis(region_id, Register::new));
        let registers = (0..RegionId::from(REGISTERS)).map(register).collect();
        Ok((Registers { registers, reads: self.reads }, Arc::new(|_| Lines)))
    }

    fn bytes(&self, command: &Command) -> Vec<u8> {
        match command {
            Command::Add { register, amount } => format!("{register} {amount}\n").into_bytes(),
            Command::Point { register } => format!("{register} point\n").into_bytes(),
        }
    }

    fn source(&self, client: usize) -> Draws {
        Draws { points: self.points, client: client as u64, written: 0 }
    }

    fn model(&self) -> Totals {
        Totals { forgets: self.forgets, reads: self.reads, ..Totals::default() }
    }

    fn final_reads(&self) -> Vec<Command> {
        (0..REGISTERS).map(|register| Command::Add { register, amount: 0 }).collect()
    }

    fn may_miss_locks(&self) -> bool {
        self.points
    }

    fn object(&self, draws: &mut SplitMix64) -> Option<String> {
        Some(draws.modulo(u64::from(REGISTERS)).to_string())
    }
}

/// A client that adds numbers no other client adds.
struct Draws {
    points: bool,
    client: u64,
    written: u64,
}

impl CommandSource for Draws {
    type Command = Command;

    fn draw(&mut self, draws: &mut SplitMix64) -> Command {
        let register = draws.modulo(u64::from(REGISTERS)) as u8;
        match draws.modulo(10) {
            0..3 => Command::Add { register, amount: 0 },
            3..6 if self.points => Command::Point { register },
            _ => {
                self.written += 1;
                Command::Add { register, amount: self.written << 8 | self.client }
            }
        }
    }
}

/// The state of one sequential program.
#[derive(Clone, Default)]
struct Totals {
    /// By register: total and writes.
    registers: [(u64, u64); REGISTERS as usize],
    forgets: u64,
    reads: bool,
}

impl ReferenceModel for Totals {
    type Command = Command;
    type Expected = String;

    fn apply(&mut self, command: &Command, _turn: Turn) -> String {
        let (register, amount) = match *command {
            Command::Add { register, amount } => (register, amount),
            Command::Point { register } => (target(self.registers[usize::from(register)].0), 1),
        };
        let (total, writes) = &mut self.registers[usize::from(register)];
        *total += if amount < self.forgets { amount } else { 0 };
        *writes += u64::from(amount > 0);
        format!("{total} after {writes}\n")
    }

    fn for_reads(&self) -> Self {
        assert!(self.reads, "no request of this service only reads: nothing needs the model after a batch");
        self.clone()
    }

    fn compare(&mut self, expected: &String, _place: Place, reply: &[u8]) -> Result<(), String> {
        same_bytes(expected.as_bytes(), reply)
    }

    fn clear(&mut self) {
        self.registers = Default::default();
    }
}

fn of_registers(points: bool) -> OfRegisters {
    OfRegisters { points, reads: false, forgets: u64::MAX }
}

/// Ten seeds with flipped bits in registers: each is noticed, repaired, and no reply is wrong.
#[test]
fn flipped_bits_are_repaired() {
    flips_are_repaired(&of_registers(false), 1..=10);
}

/// All kinds of faults, logs on disk, and several workers.
#[test]
fn all_faults_leave_every_promise_kept() {
    all_faults_keep_every_promise(&of_registers(false), 1..=6);
}

/// Requests that miss a lock run again behind others: the model follows the positions, also with several workers.
#[test]
fn requests_that_miss_locks_are_judged_where_they_ran() {
    for seed in 1..=6 {
        let options = Options { workers: 1 + seed as usize % 3, ..short("crash,flip,in-request,pause") };
        let summary = simulate(&of_registers(true), seed, &options);
        assert_eq!(summary.violation, None, "seed {seed}");
        assert!(summary.answered >= 200, "seed {seed}: {} replies", summary.answered);
    }
}

/// Reads may be answered without a batch in the run of seed 2, and this service has none that could be: the model is
/// not copied after every batch, which took gigabytes of a model that grows.
#[test]
fn no_copy_of_the_model_is_kept_where_no_request_only_reads() {
    for verified in [false, true] {
        let summary = simulate(&of_registers(false), 2, &Options { verified, ..short("none") });
        assert_eq!(summary.violation, None, "{verified}");
    }
}

/// Reads that took no batch are compared with the state after one, at once and at the end of the run.
#[test]
fn reads_without_a_batch_are_judged_in_both_ways() {
    for (points, verified) in [(false, false), (false, true), (true, false), (true, true)] {
        let options = Options { verified, ..short("crash,pause") };
        let right = simulate(&OfRegisters { reads: true, ..of_registers(points) }, 2, &options);
        assert_eq!(right.violation, None, "points: {points}, verified: {verified}");
        assert!(right.verified.local_reads > 0, "points: {points}, verified: {verified}");
    }
}

/// A wrong model of a service is detected as a broken promise, in both ways of judging.
#[test]
fn a_service_that_its_model_does_not_know_is_noticed() {
    for points in [false, true] {
        let summary = simulate(&OfRegisters { forgets: 5 << 8, ..of_registers(points) }, 1, &short("none"));
        assert_eq!(summary.violation.map(|violation| violation.promise), Some("replies"), "{points}");
    }
}
