//! The tracer against stock memcached, end to end and small: the null campaign is masked, the same seed gives the same
//! records, and landing by breakpoint gives the same result as landing by steps.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;

use tracer::campaign::Campaign;
use tracer::fault::{Bits, TracerFault};
use tracer::profile::Profile;
use tracer::record::{InjectionClass, InjectionRecord};
use tracer::single::SingleInjection;
use tracer::target::{RunPlace, Target};
use tracer::trace::{Recipe, Trace};

#[path = "../../../hardening/sei/tests/support/skipped.rs"]
mod skipped;

/// The shipped target with a trace of a few requests: its profile takes seconds, not a minute.
fn target() -> Option<Target> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("targets/memcached.toml");
    let mut target = Target::load(&file).expect("the shipped target");
    if let Err(error) = target.program() {
        skipped::skipped(&format!("{error}; install it with: apt-get install memcached"));
        return None;
    }
    target.trace = Recipe { keys: 4, warmup: 8, requests: 16, ..Recipe::default() };
    Some(target)
}

#[test]
fn null_is_masked_and_seeds_and_landings_agree() {
    let Some(target) = target() else { return };
    let trace = Trace::new(&target.trace);
    let dir = tempfile::tempdir().expect("a folder");
    let profile = match Profile::record(&target, &trace, &RunPlace::new(dir.path(), 60_000)) {
        Ok(profile) => profile,
        Err(error) if format!("{error:#}").contains("not permitted") => {
            eprintln!("skipped: this machine permits no tracing: {error:#}");
            return;
        }
        Err(error) => panic!("{error:#}"),
    };
    assert!(profile.steps.len() > 10_000, "{} instructions", profile.steps.len());
    let plan = SingleInjection {
        target: &target,
        trace: &trace,
        profile: &profile,
        parts: &[],
        seed: 11,
        bits: Bits::FULL,
        flips: true,
        steps_only: false,
    };
    let run = |plan: SingleInjection<'_>, faults: &[TracerFault], runs: u64| -> Vec<InjectionRecord> {
        Campaign { plan, faults, runs, jobs: 2 }.run(|_| Ok(true)).expect("a campaign")
    };
    let null = run(SingleInjection { flips: false, ..plan }, &TracerFault::ALL, 4);
    let disturbed: Vec<&InjectionRecord> =
        null.iter().filter(|record| record.class != InjectionClass::Masked).collect();
    if disturbed.iter().any(|record| record.subclass.contains("hardware breakpoints")) {
        eprintln!("skipped: this machine permits no hardware breakpoints");
        return;
    }
    assert!(disturbed.is_empty(), "{disturbed:#?}");

    let first = run(plan, &TracerFault::ALL, 4);
    assert!(first.iter().any(|record| record.class.is_manifested()), "faults that never show are none");
    let again = run(plan, &TracerFault::ALL, 4);
    let stepped = run(SingleInjection { steps_only: true, ..plan }, &[TracerFault::Cf, TracerFault::Wreg], 2);
    for record in again.iter().chain(&stepped) {
        let same = first.iter().find(|other| (other.fault, other.id) == (record.fault, record.id));
        assert_eq!(same.expect("a twin").essence(), record.essence());
    }
}
