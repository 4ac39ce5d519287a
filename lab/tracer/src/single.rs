//! One injection into a single server: draw, start, land, inject, and judge by its replies.

use std::path::Path;
use std::time::Duration;

use wire::SplitMix64;

use crate::callers::{callers, names};
use crate::client::ClientOutcome;
use crate::code::Code;
use crate::draw;
use crate::fault::{Bits, TracerFault};
use crate::inject::{Flip, Missed, TargetThread};
use crate::parts::HandlerPart;
use crate::profile::{Profile, Route, file_name, module_of};
use crate::record::{InjectionClass, InjectionRecord};
use crate::session::{self, ProcessEnd, RunResult, TracedServer};
use crate::symbols::Symbols;
use crate::sys::{self, Resume};
use crate::target::{RunPlace, Target};
use crate::trace::Trace;

/// Attempts at a run whose fault could not be injected at the intended place.
const ATTEMPTS: u32 = 4;

/// The settings that all injections of a campaign share.
#[derive(Clone, Copy, Debug)]
pub struct SingleInjection<'a> {
    /// The target.
    pub target: &'a Target,
    /// Its requests.
    pub trace: &'a Trace,
    /// Its golden run.
    pub profile: &'a Profile,
    /// The part of a handler that each of its steps is in; empty where the program is not hardened.
    pub parts: &'a [HandlerPart],
    /// The campaign's seed.
    pub seed: u64,
    /// Which bits are flipped.
    pub bits: Bits,
    /// False for the null campaign.
    pub flips: bool,
    /// Land by single steps alone.
    pub steps_only: bool,
}

/// The result of the tracer's part of a run.
#[derive(Debug)]
struct InjectionAttempt {
    flip: Option<Flip>,
    callers: Vec<u64>,
    why_not: &'static str,
}

impl SingleInjection<'_> {
    /// Carries out injection `id` of type `fault`. `number` is different for all runs of this process at the same time.
    ///
    /// # Errors
    /// When the target does not run.
    pub fn inject(
        &self,
        fault: TracerFault,
        id: u64,
        dir: &Path,
        number: u64,
        symbols: &mut Symbols,
    ) -> anyhow::Result<InjectionRecord> {
        let mut stream = draw::stream(self.seed, fault.number(), id);
        let mut retries = 0;
        let site = self.profile.draw(fault, &mut stream);
        let Some(mut site) = site else { anyhow::bail!("no instruction of the trace can carry {fault}") };
        loop {
            let mut attempt = stream.clone();
            let code = self.profile.code(site);
            let route = self.route(site);
            let place = RunPlace::new(dir, number * u64::from(ATTEMPTS) + u64::from(retries));
            let ran = session::run(
                self.target,
                self.trace,
                Some(&self.profile.head.golden),
                &place,
                |session, _| {
                    let injected = land(session, &route, code).map_or_else(
                        |why| Ok(InjectionAttempt::not(why)),
                        |()| self.inject_at_site(session, fault, code, &mut attempt),
                    );
                    session.release()?;
                    injected
                },
            );
            let ran = match ran {
                Err(_) if retries + 1 < ATTEMPTS => {
                    retries += 1;
                    continue;
                }
                other => other?,
            };
            if ran.part.flip.is_none() && retries + 1 < ATTEMPTS {
                retries += 1;
                if ran.part.why_not == OUT_OF_REACH {
                    stream = attempt;
                    site = self.profile.draw(fault, &mut stream).unwrap_or(site);
                }
                continue;
            }
            return Ok(self.record(fault, id, site, route, retries, &ran, symbols));
        }
    }

    fn route(&self, site: usize) -> Route {
        if self.steps_only { Route { anchor: None, hits: 0, steps: site } } else { self.profile.route(site) }
    }

    fn inject_at_site(
        &self,
        session: &mut TracedServer,
        fault: TracerFault,
        code: &Code,
        stream: &mut SplitMix64,
    ) -> std::io::Result<InjectionAttempt> {
        let (threads, memory) = (&mut session.threads, &session.memory);
        let thread = threads.worker;
        let callers = callers(thread, memory, &self.profile.head.modules)?;
        let mut step = || threads.until_trap(Resume::Step);
        let victim = TargetThread { thread, memory, flips: self.flips, step: &mut step };
        Ok(match victim.inject(fault, code, self.bits, stream) {
            Ok(flip) => InjectionAttempt { flip: Some(flip), callers, why_not: "" },
            Err(Missed::OutOfReach) => InjectionAttempt::not(OUT_OF_REACH),
            Err(Missed::Gone) => InjectionAttempt::not("the thread was gone"),
            // A process that ends at this moment has no memory and no registers: one run of many, which is lost.
            Err(Missed::Failed(_)) => {
                InjectionAttempt::not("a system call of the tracer failed at the instruction")
            }
        })
    }

    #[allow(clippy::too_many_arguments, reason = "they are the record's parts")]
    fn record(
        &self,
        fault: TracerFault,
        id: u64,
        site: usize,
        route: Route,
        retries: u32,
        ran: &RunResult<InjectionAttempt>,
        symbols: &mut Symbols,
    ) -> InjectionRecord {
        let code = self.profile.code(site);
        let (module, offset) = module_of(&self.profile.head.modules, code.address);
        let (class, subclass, message, details) = match ran.part.flip {
            None => (InjectionClass::Lost, ran.part.why_not.to_owned(), None, String::new()),
            Some(_) => judge(self.target, ran),
        };
        InjectionRecord {
            id,
            seed: self.seed,
            fault,
            bits: self.bits,
            flips: self.flips,
            profile: self.profile.head.hash.clone(),
            index: site as u64,
            address: code.address,
            module: file_name(module).to_owned(),
            offset,
            symbol: symbols.name(module, offset),
            callers: names(&ran.part.callers, &self.profile.head.modules, symbols),
            part: self.parts.get(site).copied(),
            text: code.text(),
            hits: route.hits,
            flip: ran.part.flip.clone(),
            class,
            subclass,
            message: message.map(|message| message as u64),
            details,
            states_equal: None,
            noticed: Vec::new(),
            signal: ran.crashed,
            exit: match ran.ended {
                Some(ProcessEnd::Exited(code)) => Some(code),
                _ => None,
            },
            start_us: micros(ran.start),
            total_us: micros(ran.total),
            retries,
        }
    }
}

impl InjectionAttempt {
    fn not(why: &'static str) -> Self {
        InjectionAttempt { flip: None, callers: Vec::new(), why_not: why }
    }
}

const OUT_OF_REACH: &str = "the operand is out of reach";

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Brings the thread to the instruction at the end of its route.
fn land(session: &mut TracedServer, route: &Route, code: &Code) -> Result<(), &'static str> {
    let threads = &mut session.threads;
    let failed = |_| "a system call of the tracer failed on the way";
    if let Some(anchor) = route.anchor {
        // The measured part may begin at the anchor itself.
        let here = sys::instruction_pointer(threads.worker).map_err(failed)? == anchor;
        let hits = route.hits - u32::from(here);
        if hits > 0 {
            sys::set_breakpoint(threads.worker, Some(anchor))
                .map_err(|_| "hardware breakpoints are not permitted")?;
            for _ in 0..hits {
                if !threads.until_trap(Resume::Freely).map_err(failed)? {
                    return Err("the run ended on the way");
                }
                if sys::instruction_pointer(threads.worker).map_err(failed)? != anchor {
                    return Err("another stop than the breakpoint");
                }
            }
            sys::set_breakpoint(threads.worker, None).map_err(failed)?;
        }
    }
    for _ in 0..route.steps {
        if !threads.until_trap(Resume::Step).map_err(failed)? {
            return Err("the run ended on the way");
        }
    }
    match sys::instruction_pointer(threads.worker).map_err(failed)? == code.address {
        true => Ok(()),
        false => Err("another instruction than the profile's"),
    }
}

/// Class, subclass, number of the first wrong reply, and details.
fn judge<T>(target: &Target, ran: &RunResult<T>) -> (InjectionClass, String, Option<usize>, String) {
    let exit = match ran.ended {
        Some(ProcessEnd::Exited(code)) => Some(code),
        _ => None,
    };
    let of_its_own = exit.is_some_and(|code| target.detected_exits.contains(&code));
    match &ran.seen {
        ClientOutcome::Right if ran.crashed.is_some() || exit.is_some() => {
            (InjectionClass::Late, how(ran, "exit"), None, String::new())
        }
        ClientOutcome::Right => (InjectionClass::Masked, String::new(), None, String::new()),
        ClientOutcome::Deviates { message, wrong, got } => {
            let detected = target.detected_replies.iter().any(|begin| got.starts_with(begin));
            let class = if detected { InjectionClass::Detected } else { wrong.class() };
            (class, wrong.name(), Some(*message), got.clone())
        }
        ClientOutcome::Closed { message, within } => {
            let class = if of_its_own { InjectionClass::Detected } else { InjectionClass::Otherwise };
            let details = if *within { "within the reply" } else { "" };
            (class, how(ran, "closed"), Some(*message), details.into())
        }
        ClientOutcome::Stalled { message } => {
            (InjectionClass::Otherwise, how(ran, "stall"), Some(*message), String::new())
        }
        ClientOutcome::Spun { message } => {
            (InjectionClass::Otherwise, how(ran, "hang"), Some(*message), String::new())
        }
    }
}

fn how<T>(ran: &RunResult<T>, otherwise: &str) -> String {
    match (ran.crashed, ran.ended) {
        (Some(signal), _) => format!("signal-{signal}"),
        (None, Some(ProcessEnd::Exited(code))) => format!("exit-{code}"),
        _ => otherwise.to_owned(),
    }
}
