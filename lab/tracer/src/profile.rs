//! The golden run, stepped once: the sequence of instructions of the measured part. Sites are drawn from it, and it
//! gives the route to each of them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, bail};
use iced_x86::InstructionInfoFactory;
use serde::{Deserialize, Serialize};
use wire::SplitMix64;
use xxhash_rust::xxh3::xxh3_64;

use crate::client::{RunPhase, RunProgress};
use crate::code::{Code, LONGEST};
use crate::fault::TracerFault;
use crate::memory::Module;
use crate::session::{self, TracedServer};
use crate::sys::{self, Resume};
use crate::target::{RunPlace, Target};
use crate::trace::Trace;

/// How far before the site its anchor may be, in steps.
const REACH: usize = 20_000;
/// The cost of one more hit of the anchor, in steps: both stop the thread once.
const HIT_COST: f64 = 1.1;
/// System calls that send a reply: write, writev, sendto, sendmsg.
const SENDS: [u64; 4] = [1, 20, 44, 46];
/// Longest profile that is kept, in steps: 8 bytes each.
const LONGEST_PROFILE: usize = 200_000_000;

/// The golden run.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The identity of the run.
    pub head: ProfileHead,
    /// The static instructions.
    pub codes: Vec<Code>,
    /// The dynamic ones, as numbers of static ones.
    pub steps: Vec<u32>,
    /// Which hit of its instruction each step is, from 1.
    ranks: Vec<u32>,
}

/// The first line of a profile's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileHead {
    /// Identifies the target: program, arguments, requests.
    pub identity: String,
    /// Hash of the sequence of addresses.
    pub hash: String,
    /// The modules and their addresses.
    pub modules: Vec<Module>,
    /// The right replies.
    pub golden: Vec<Vec<u8>>,
    /// Static instructions.
    pub codes: usize,
    /// Dynamic ones.
    pub steps: usize,
}

/// How to reach a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Address of the breakpoint; none = only single steps.
    pub anchor: Option<u64>,
    /// The number of the hit to stop at.
    pub hits: u32,
    /// Steps from there.
    pub steps: usize,
}

/// The data that the tracer's part of the golden run collects.
#[derive(Debug, Default)]
struct Recording {
    codes: Vec<Code>,
    numbers: HashMap<u64, u32>,
    steps: Vec<u32>,
    end: usize,
    modules: Vec<Module>,
}

impl Profile {
    /// Steps the target through its measured part.
    ///
    /// # Errors
    /// When it does not start, does not finish the trace, or runs another way each time.
    pub fn record(target: &Target, trace: &Trace, place: &RunPlace) -> anyhow::Result<Self> {
        if target.is_sampled() {
            bail!(
                "{}: no run of several threads or processes is like another, so none is golden",
                target.title
            );
        }
        let ran = session::run(target, trace, None, place, Recording::of)?;
        if ran.replies.len() != trace.measured.len() {
            bail!(
                "the golden run gave {} of {} replies: {:?}",
                ran.replies.len(),
                trace.measured.len(),
                ran.seen
            );
        }
        for (number, (request, reply)) in trace.measured.iter().zip(&ran.replies).enumerate() {
            if !target.protocol.is_sound(request, reply) {
                bail!(
                    "the golden run's reply {number} is wrong: its CRC does not fit, or the zone says otherwise"
                );
            }
        }
        let Recording { codes, mut steps, end, modules, .. } = ran.part;
        steps.truncate(end);
        let head = ProfileHead {
            identity: target.identity()?,
            hash: hash(&codes, &steps),
            modules,
            golden: ran.replies,
            codes: codes.len(),
            steps: steps.len(),
        };
        Ok(Profile::new(head, codes, steps))
    }

    fn new(head: ProfileHead, codes: Vec<Code>, steps: Vec<u32>) -> Self {
        let mut hits = vec![0; codes.len()];
        let rank = |&code: &u32| {
            hits[code as usize] += 1;
            hits[code as usize]
        };
        let ranks = steps.iter().map(rank).collect();
        Profile { head, codes, steps, ranks }
    }

    /// Reads a profile of `identity`; none if the file has another identity.
    ///
    /// # Errors
    /// When the file is damaged.
    pub fn load(path: &Path, identity: &str) -> anyhow::Result<Option<Self>> {
        let mut file =
            BufReader::new(File::open(path).with_context(|| format!("profile {}", path.display()))?);
        let mut line = String::new();
        file.read_line(&mut line)?;
        let head: ProfileHead =
            serde_json::from_str(&line).with_context(|| format!("profile {}", path.display()))?;
        if head.identity != identity {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let entry = 8 + LONGEST;
        if bytes.len() != head.codes * entry + head.steps * 4 {
            bail!("profile {}: it is cut off", path.display());
        }
        let (codes, steps) = bytes.split_at(head.codes * entry);
        let mut factory = InstructionInfoFactory::new();
        let code = |entry: &[u8]| {
            let (address, rest) = entry.split_at(8);
            let mut bytes = [0; LONGEST];
            bytes.copy_from_slice(rest);
            Code::decode(address.try_into().map(u64::from_le_bytes).unwrap_or(0), bytes, &mut factory)
        };
        let codes: Vec<Code> = codes.chunks_exact(entry).map(code).collect();
        let number = |word: &[u8]| word.try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX);
        let steps: Vec<u32> = steps.chunks_exact(4).map(number).collect();
        if steps.iter().any(|&step| step as usize >= codes.len()) || hash(&codes, &steps) != head.hash {
            bail!("profile {}: it is damaged", path.display());
        }
        Ok(Some(Profile::new(head, codes, steps)))
    }

    /// Writes the profile to a file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let mut file =
            BufWriter::new(File::create(path).with_context(|| format!("profile {}", path.display()))?);
        writeln!(file, "{}", serde_json::to_string(&self.head)?)?;
        for code in &self.codes {
            file.write_all(&code.address.to_le_bytes())?;
            file.write_all(&code.bytes)?;
        }
        for step in &self.steps {
            file.write_all(&step.to_le_bytes())?;
        }
        Ok(file.flush()?)
    }

    /// The instruction at a step.
    pub fn code(&self, step: usize) -> &Code {
        &self.codes[self.steps[step] as usize]
    }

    /// Draws a step, uniformly among those that can carry `fault`. None if there is none.
    pub fn draw(&self, fault: TracerFault, stream: &mut SplitMix64) -> Option<usize> {
        if !self.codes.iter().any(|code| code.can(fault)) || self.steps.is_empty() {
            return None;
        }
        loop {
            let step = stream.below(self.steps.len() as u64) as usize;
            if self.code(step).can(fault) {
                return Some(step);
            }
        }
    }

    /// The cheapest route to `step`: a breakpoint on an instruction that is rare before it, and single steps for the
    /// rest.
    pub fn route(&self, step: usize) -> Route {
        let mut best = Route { anchor: None, hits: 0, steps: step };
        let mut cost = step as f64;
        for at in (step.saturating_sub(REACH)..=step).rev() {
            let distance = (step - at) as f64;
            if distance >= cost {
                break;
            }
            let price = f64::from(self.ranks[at]) * HIT_COST + distance;
            if price < cost && !self.is_bad_anchor(at) {
                cost = price;
                best = Route { anchor: Some(self.code(at).address), hits: self.ranks[at], steps: step - at };
            }
        }
        best
    }

    /// Instructions at which a breakpoint does not stop exactly once per step: repeated string instructions, and the
    /// one after a system call, which a step passes and a breakpoint may pass too.
    fn is_bad_anchor(&self, step: usize) -> bool {
        self.code(step).repeats() || self.code(step).is_syscall()
    }

    /// How many steps can carry `fault`.
    pub fn carriers(&self, fault: TracerFault) -> usize {
        let can: Vec<bool> = self.codes.iter().map(|code| code.can(fault)).collect();
        self.steps.iter().filter(|&&step| can[step as usize]).count()
    }

    /// Steps by module, most first: file name and count.
    pub fn by_module(&self) -> Vec<(String, usize)> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let names: Vec<&str> =
            self.codes.iter().map(|code| module_of(&self.head.modules, code.address).0).collect();
        for &step in &self.steps {
            *counts.entry(names[step as usize]).or_default() += 1;
        }
        let mut counts: Vec<(String, usize)> =
            counts.into_iter().map(|(name, count)| (file_name(name).to_owned(), count)).collect();
        counts.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        counts
    }
}

/// The module that holds `address`, and the offset in it.
pub fn module_of(modules: &[Module], address: u64) -> (&str, u64) {
    match modules.iter().find(|module| (module.base..module.end).contains(&address)) {
        Some(module) => (&module.path, address - module.base),
        None => ("?", address),
    }
}

/// The last part of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Recording {
    fn of(session: &mut TracedServer, progress: &RunProgress) -> io::Result<Self> {
        let mut recording = Recording { modules: session.memory.modules()?, ..Recording::default() };
        if session.holds_others {
            session.threads.hold_others()?;
        }
        let mut factory = InstructionInfoFactory::new();
        while !progress.reached(RunPhase::Complete) && recording.steps.len() < LONGEST_PROFILE {
            let Ok(address) = sys::instruction_pointer(session.threads.worker) else { break };
            let number = match recording.numbers.get(&address) {
                Some(&number) => number,
                None => recording.meet(session, address, &mut factory),
            };
            recording.steps.push(number);
            if recording.codes[number as usize].is_syscall() {
                let registers = sys::registers(session.threads.worker)?;
                if SENDS.contains(&registers.rax) {
                    recording.end = recording.steps.len();
                }
            }
            if !session.threads.until_trap(Resume::Step)? {
                break;
            }
        }
        session.release()?;
        Ok(recording)
    }

    fn meet(&mut self, session: &TracedServer, address: u64, factory: &mut InstructionInfoFactory) -> u32 {
        let mut bytes = [0; LONGEST];
        session.memory.read_some(address, &mut bytes);
        let number = self.codes.len() as u32;
        self.codes.push(Code::decode(address, bytes, factory));
        self.numbers.insert(address, number);
        number
    }
}

fn hash(codes: &[Code], steps: &[u32]) -> String {
    let mut bytes = Vec::with_capacity(steps.len() * 8);
    for &step in steps {
        bytes.extend_from_slice(&codes[step as usize].address.to_le_bytes());
    }
    format!("{:016x}", xxh3_64(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_threads_have_no_golden_run() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets/memcached-threads-sei.toml");
        let target = Target::load(&file).expect("the shipped target");
        let place = RunPlace::new(Path::new("/nowhere"), 1);
        let error = Profile::record(&target, &Trace::new(&target.trace), &place).expect_err("no golden run");
        assert!(error.to_string().contains("none is golden"), "{error:#}");
    }

    /// A profile over one-byte instructions at 0x1000 and on, in the order of `steps`.
    fn profile(steps: &[u32]) -> Profile {
        let mut factory = InstructionInfoFactory::new();
        let codes: Vec<Code> =
            (0..4).map(|number| Code::decode(0x1000 + number, [0x90; LONGEST], &mut factory)).collect();
        let head = ProfileHead {
            identity: "x".into(),
            hash: hash(&codes, steps),
            modules: vec![],
            golden: vec![],
            codes: codes.len(),
            steps: steps.len(),
        };
        Profile::new(head, codes, steps.to_vec())
    }

    #[test]
    fn the_route_prefers_a_rare_instruction_nearby() {
        let mut steps = vec![0; 1000];
        steps[900] = 1;
        let route = profile(&steps).route(905);
        assert_eq!(route, Route { anchor: Some(0x1001), hits: 1, steps: 5 });
        assert_eq!(profile(&[0, 1, 2]).route(0), Route { anchor: None, hits: 0, steps: 0 });
    }

    #[test]
    fn a_saved_profile_is_read_back_and_a_damaged_one_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("p");
        let saved = profile(&[0, 1, 0, 2]);
        saved.save(&file).expect("saved");
        let read = Profile::load(&file, "x").expect("read").expect("of the same target");
        assert_eq!((read.steps, read.ranks), (saved.steps.clone(), vec![1, 1, 2, 1]));
        assert!(Profile::load(&file, "y").expect("read").is_none(), "of another target");
        let mut bytes = std::fs::read(&file).unwrap();
        let last = bytes.len() - 4;
        bytes[last] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert!(Profile::load(&file, "x").is_err());
    }
}
