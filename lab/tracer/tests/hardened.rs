//! The tracer against memcached and dnscache hardened by `crosscheck harden`, end to end and small: the tracer disturbs
//! nothing, the parts of handlers are found, and what the hardened program detects is counted as its own detection.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use harden::compile::Variant;
use harden::pipeline::{self, Places};
use harden::recipe::App;
use harden::tool::is_lack;
use skipped::skipped;
use tracer::campaign::Campaign;
use tracer::fault::{Bits, TracerFault};
use tracer::parts::{HandlerPart, parts};
use tracer::profile::Profile;
use tracer::record::{InjectionClass, InjectionRecord};
use tracer::sample::SampledInjection;
use tracer::single::SingleInjection;
use tracer::symbols::Symbols;
use tracer::target::{RunPlace, Target};
use tracer::threads;
use tracer::trace::{Recipe, Trace};

#[path = "../../../hardening/sei/tests/support/skipped.rs"]
mod skipped;

/// The hardened program; none, with one line, where this machine lacks what it takes. In CI that is a failure.
fn program(app: &str) -> Option<PathBuf> {
    let places = Places { out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("harden"), ..Places::default() };
    match pipeline::build(&App::find(app).expect("a recipe"), Variant::Sei, &places) {
        Ok(built) => Some(built.program),
        Err(error) if is_lack(&error) => {
            skipped(&format!("{error:#}"));
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

fn shipped(app: &str, name: &str) -> Option<Target> {
    let program = program(app)?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets").join(name);
    let mut target = Target::load(&file).expect("the shipped target");
    target.argv[0] = program.display().to_string();
    Some(target)
}

#[test]
fn one_worker_is_undisturbed_and_detects() {
    let Some(mut target) = shipped("memcached", "memcached-unit-sei.toml") else { return };
    target.trace = Recipe { keys: 2, warmup: 4, requests: 8, sum: true, ..Recipe::default() };
    is_undisturbed_and_detects(&target);
}

#[test]
fn a_resolver_is_undisturbed_and_detects() {
    let Some(mut target) = shipped("dnscache", "dnscache-sei.toml") else { return };
    (target.trace.warmup, target.trace.requests) = (3, 4);
    is_undisturbed_and_detects(&target);
}

fn is_undisturbed_and_detects(target: &Target) {
    let trace = Trace::new(&target.trace);
    let dir = tempfile::tempdir().expect("a folder");
    let profile = match Profile::record(target, &trace, &RunPlace::new(dir.path(), 61_000)) {
        Ok(profile) => profile,
        Err(error) if ["not permitted", "port 53"].iter().any(|lack| format!("{error:#}").contains(lack)) => {
            return skipped(&format!("this machine permits no tracing, or no port 53: {error:#}"));
        }
        Err(error) => panic!("{error:#}"),
    };
    let parts = parts(&profile, &mut Symbols::default());
    let met: BTreeSet<HandlerPart> = parts.iter().copied().collect();
    assert_eq!(met.len(), 6, "each handler begins, runs twice and ends: {met:?}");
    let plan = SingleInjection {
        target,
        trace: &trace,
        profile: &profile,
        parts: &parts,
        seed: 11,
        bits: Bits::FULL,
        flips: false,
        steps_only: false,
    };
    let run = |plan: SingleInjection<'_>, faults: &[TracerFault], runs: u64| -> Vec<InjectionRecord> {
        Campaign { plan, faults, runs, jobs: 2 }.run(|_| Ok(true)).expect("a campaign")
    };
    let null = run(plan, &TracerFault::ALL, 3);
    if null.iter().any(|record| record.subclass.contains("hardware breakpoints")) {
        return skipped("this machine permits no hardware breakpoints");
    }
    let disturbed: Vec<_> = null.iter().filter(|record| record.class != InjectionClass::Masked).collect();
    assert!(disturbed.is_empty(), "{disturbed:#?}");
    // Low bits lead to wrong results more often than to crashes.
    let plan = SingleInjection { flips: true, bits: "0..7".parse().expect("bits"), ..plan };
    let injected = run(plan, &[TracerFault::Wreg, TracerFault::Wval, TracerFault::Rreg], 20);
    let exits = injected.iter().filter(|record| record.class == InjectionClass::Detected);
    assert!(exits.filter(|record| record.exit == Some(86)).count() >= 5, "the library detects faults");
    let undetected: Vec<_> = injected.iter().filter(|record| record.class.is_failure()).collect();
    assert!(undetected.is_empty(), "{undetected:#?}");
}

#[test]
fn four_workers_are_undisturbed() {
    let Some(mut target) = shipped("memcached", "memcached-threads-sei.toml") else { return };
    let threads = target.threads.as_mut().expect("a target with threads");
    (threads.windows, threads.window_steps) = (16, 200);
    let plan = SampledInjection { target: &target, seed: 5, bits: Bits::FULL, flips: false };
    let mut records = Vec::new();
    let done = threads::campaign(&plan, &[TracerFault::Wreg, TracerFault::Rval], 3, |record| {
        records.push(record.clone());
        Ok(true)
    });
    if let Err(error) = done {
        assert!(format!("{error:#}").contains("ptrace"), "{error:#}");
        return skipped(&format!("{error:#}"));
    }
    let undisturbed =
        |record: &InjectionRecord| matches!(record.class, InjectionClass::Masked | InjectionClass::Lost);
    assert!(records.len() == 6 && records.iter().all(undisturbed), "{records:#?}");
    assert!(records.iter().any(|record| record.class == InjectionClass::Masked), "{records:#?}");
}
