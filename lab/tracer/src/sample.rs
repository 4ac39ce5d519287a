//! The instructions that a server's threads execute under load, sampled; and a fault at the next execution of one of
//! them. For servers whose runs cannot be repeated exactly: a cluster, or one process with several busy threads.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;

use anyhow::{Context, bail};
use iced_x86::InstructionInfoFactory;
use wire::SplitMix64;

use crate::callers::callers;
use crate::code::{Code, LONGEST};
use crate::fault::{Bits, TracerFault};
use crate::inject::{Flip, Missed, TargetThread};
use crate::memory::{Memory, Module};
use crate::profile::module_of;
use crate::record::InjectionRecord;
use crate::seized::Seized;
use crate::symbols::Symbols;
use crate::sys;
use crate::target::Target;

/// Attempts to stop a thread while it runs its own code.
const MOMENTS: u32 = 10_000;
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// The sampled instructions.
#[derive(Debug)]
pub struct Sample {
    codes: Vec<Code>,
    steps: Vec<u32>,
    modules: Vec<Module>,
    /// Of each of the instructions: no fault is injected into it.
    spared: Vec<bool>,
}

/// How much is sampled.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Stretches of execution.
    pub count: u32,
    /// Instructions of each, single-stepped.
    pub steps: u32,
}

/// The settings of a campaign whose sites are sampled.
#[derive(Clone, Copy, Debug)]
pub struct SampledInjection<'a> {
    /// The target; it has a group or worker threads.
    pub target: &'a Target,
    /// The campaign's seed.
    pub seed: u64,
    /// Which bits are flipped.
    pub bits: Bits,
    /// False for the null campaign.
    pub flips: bool,
}

impl SampledInjection<'_> {
    /// One of its faults.
    pub fn fault_in<'a>(&self, fault: TracerFault, code: &'a Code) -> SampledFault<'a> {
        SampledFault { fault, code, bits: self.bits, flips: self.flips }
    }
}

/// A fault in a sampled instruction.
#[derive(Clone, Copy, Debug)]
pub struct SampledFault<'a> {
    /// Its type.
    pub fault: TracerFault,
    /// The instruction.
    pub code: &'a Code,
    /// Which bits are flipped.
    pub bits: Bits,
    /// False for the null campaign.
    pub flips: bool,
}

impl Sample {
    /// Steps the threads, which take turns, through windows of their execution at random moments. `ready` returns when
    /// the server serves its clients again, which wait while it is stepped.
    ///
    /// A window begins where the thread was running. If windows also began where a sleeping thread wakes up, half of
    /// them would contain the code that runs first after that, which reads from clients.
    ///
    /// # Errors
    /// When tracing is not permitted, a thread ends, or `ready` fails.
    pub fn take(
        process: i32,
        threads: &[i32],
        windows: Windows,
        stream: &mut SplitMix64,
        mut ready: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let memory = Memory::open(process)?;
        let mut sample = Sample { codes: vec![], steps: vec![], modules: memory.modules()?, spared: vec![] };
        let mut numbers = HashMap::new();
        let mut factory = InstructionInfoFactory::new();
        for (_, &thread) in (0..windows.count).zip(threads.iter().cycle()) {
            ready()?;
            let mut seized = stopped_on_its_way(thread, &memory, stream)?;
            for _ in 0..windows.steps {
                let address = sys::instruction_pointer(thread)?;
                let number = *numbers.entry(address).or_insert_with(|| {
                    let mut bytes = [0; LONGEST];
                    memory.read_some(address, &mut bytes);
                    sample.codes.push(Code::decode(address, bytes, &mut factory));
                    sample.codes.len() as u32 - 1
                });
                sample.steps.push(number);
                if !seized.step()? {
                    bail!("the victim ended while it was sampled");
                }
            }
        }
        sample.spared.resize(sample.codes.len(), false);
        Ok(sample)
    }

    /// Faults are injected into functions whose name contains one of these `parts` alone; into all if there is none.
    pub fn strike_only(&mut self, parts: &[String], symbols: &mut Symbols) {
        for (code, spared) in self.codes.iter().zip(&mut self.spared) {
            let (module, offset) = module_of(&self.modules, code.address);
            let name = symbols.name(module, offset);
            *spared = !parts.is_empty() && !parts.iter().any(|part| name.contains(part.as_str()));
        }
    }

    /// The site of a recorded injection, in a process of the same program.
    ///
    /// # Errors
    /// When another instruction is there.
    pub fn of_site(process: i32, record: &InjectionRecord) -> anyhow::Result<Self> {
        let memory = Memory::open(process)?;
        let mut bytes = [0; LONGEST];
        memory.read_some(record.address, &mut bytes);
        let code = Code::decode(record.address, bytes, &mut InstructionInfoFactory::new());
        if code.text() != record.text || !code.can(record.fault) {
            bail!("at the recorded site there is `{}`, not `{}`: another build", code.text(), record.text);
        }
        Ok(Sample { codes: vec![code], steps: vec![0], modules: memory.modules()?, spared: vec![false] })
    }

    /// The first instruction.
    pub fn first(&self) -> &Code {
        &self.codes[0]
    }

    /// The modules of the process.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Draws a step, uniformly among those that can carry `fault`. None if there is none.
    pub fn draw(&self, fault: TracerFault, stream: &mut SplitMix64) -> Option<(usize, &Code)> {
        let may = |number: usize| self.codes[number].can(fault) && !self.spared[number];
        if !(0..self.codes.len()).any(may) {
            return None;
        }
        loop {
            let step = stream.below(self.steps.len() as u64) as usize;
            let number = self.steps[step] as usize;
            if may(number) {
                return Some((step, &self.codes[number]));
            }
        }
    }

    /// Injects the fault into `thread` at its next execution of the instruction; also returns the callers there.
    ///
    /// # Errors
    /// Why it could not be injected.
    pub fn inject(
        &self,
        what: SampledFault<'_>,
        process: i32,
        thread: i32,
        stream: &mut SplitMix64,
    ) -> Result<(Flip, Vec<u64>), String> {
        let text = |error: &dyn Display| error.to_string();
        let memory = Memory::open(process).map_err(|error| text(&error))?;
        let mut seized = Seized::new(thread).map_err(|error| text(&error))?;
        if !seized.interrupt().map_err(|error| text(&error))? {
            return Err("the victim ended by itself".into());
        }
        if !seized.run_to(what.code.address).map_err(|error| text(&error))? {
            return Err("the site was not executed in time".into());
        }
        let callers = callers(thread, &memory, &self.modules).map_err(|error| text(&error))?;
        let mut step = || seized.step();
        let victim = TargetThread { thread, memory: &memory, flips: what.flips, step: &mut step };
        match victim.inject(what.fault, what.code, what.bits, stream) {
            Ok(flip) => Ok((flip, callers)),
            Err(Missed::OutOfReach) => Err("the operand is out of reach".into()),
            Err(Missed::Gone) => Err("the thread was gone".into()),
            Err(Missed::Failed(error)) => Err(error.to_string()),
        }
    }
}

/// The thread, stopped at a random moment while it runs its own code.
fn stopped_on_its_way(thread: i32, memory: &Memory, stream: &mut SplitMix64) -> anyhow::Result<Seized> {
    for _ in 0..MOMENTS {
        std::thread::sleep(Duration::from_micros(stream.below(2_000)));
        let mut seized = Seized::new(thread).context("tracing the victim: is ptrace permitted here?")?;
        if !seized.interrupt()? {
            bail!("the victim ended while it was sampled");
        }
        // A thread that was stopped within a system call stands behind it, or before it if the call will be repeated.
        let around = sys::instruction_pointer(thread)?.wrapping_sub(SYSCALL.len() as u64);
        let mut bytes = [0; 2 * SYSCALL.len()];
        memory.read_some(around, &mut bytes);
        if !bytes.chunks(SYSCALL.len()).any(|instruction| instruction == SYSCALL) {
            return Ok(seized);
        }
    }
    bail!("the victim's thread sleeps: there is nothing to sample")
}
