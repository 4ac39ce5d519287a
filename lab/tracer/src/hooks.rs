//! Faults that a replica injects into itself on request: the hooks of builds with the fault injector, one at a time,
//! judged as the flips of single instructions are ([`crate::cluster`]).
//!
//! Every hook hits a place that a flip by the tracer hits once in a million runs: an object at rest, a digest, a CHECK.
//! Code that knows the structures places them, so the counts measure how well each protection does its own work, not
//! how often such errors happen. The records of the two kinds of campaigns differ in shape and never share a table.

use std::time::{Duration, Instant};

use anyhow::bail;
use crosscheck::admin::{AdminCommand, Corruption, Inject, Injected};
use serde::{Deserialize, Serialize};

use crate::draw;
use crate::judge::{BACK, Before, Judged, WatchedCluster};
use crate::record::InjectionClass;
use crate::series::Series;
use crate::target::Target;

/// How long a replica may take to place a fault: one in a resting object waits for an ordered turn.
const PLACING: Duration = Duration::from_secs(3);
/// How long a placed fault may wait until a request triggers it.
const OCCASION: Duration = Duration::from_secs(1);
/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(1);
/// Separates the random streams of hooks from those of the native faults.
const STREAMS: u64 = 1_000;

/// One injection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookRecord {
    /// Number within its campaign and kind.
    pub id: u64,
    /// The campaign's seed: with `kind` and `id` it decides everything except timing.
    pub seed: u64,
    /// The kind of corruption.
    pub kind: Corruption,
    /// The corrupted place, as the replica reported it.
    pub hit: String,
    /// How it ended.
    pub class: InjectionClass,
    /// Details.
    pub subclass: String,
    /// Reports of replicas and clients about it.
    #[serde(rename = "told")]
    pub details: String,
    /// Of several replicas: whether their digests were equal in the end.
    pub states_equal: Option<bool>,
    /// The replicas that detected an error by themselves.
    pub noticed: Vec<u8>,
    /// From the start until the fault had taken effect, in microseconds.
    #[serde(rename = "struck_us")]
    pub injected_us: u64,
    /// From the start to the end.
    pub total_us: u64,
}

impl HookRecord {
    /// The kind's name, as the admin protocol has it.
    pub fn name(&self) -> String {
        self.kind.to_string()
    }
}

/// The settings of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct HookInjection<'a> {
    /// The target; it has a group.
    pub target: &'a Target,
    /// The campaign's seed.
    pub seed: u64,
}

/// The kinds that affect one replica alone, in any mode: objects, handlers, requests and replies.
const ANYWHERE: [Corruption; 16] = [
    Corruption::Flip,
    Corruption::MultiFlip,
    Corruption::Stray,
    Corruption::InRequest,
    Corruption::Sticky,
    Corruption::Erratic,
    Corruption::Checksum,
    Corruption::Id,
    Corruption::Length,
    Corruption::Lost,
    Corruption::Doubled,
    Corruption::Reply,
    Corruption::Request,
    Corruption::Skip,
    Corruption::Twice,
    Corruption::Image,
];

/// The kinds that have a target in mode `mode` (the paper's letters). Not included are kinds that affect several
/// replicas or need a second fault: a request's checksum before it is ordered, and a REPAIR packet.
pub fn kinds(mode: &str) -> Vec<Corruption> {
    let mut kinds = ANYWHERE.to_vec();
    if mode.starts_with("RD") {
        kinds.extend([Corruption::Footprint, Corruption::Message]);
    }
    if mode.contains('X') {
        kinds.extend([Corruption::Position, Corruption::Digest, Corruption::Check]);
    }
    kinds
}

/// The kind with this name in the admin protocol.
///
/// # Errors
/// When there is none.
pub fn kind(word: &str) -> Result<Corruption, String> {
    word.parse()
        .map_err(|_| format!("there is no kind {word}; `crosscheck-lab inject hooks --help` has them"))
}

/// Runs `runs` injections of each of `kinds`, or until `on_record`, which receives each record, returns `false`.
///
/// # Errors
/// When no cluster comes up, or its replicas have no injector.
pub fn campaign(
    plan: &HookInjection<'_>,
    kinds: &[Corruption],
    runs: u64,
    on_record: impl FnMut(&HookRecord) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let count = kinds.len() as u64;
    let series = Series { target: plan.target, seed: plan.seed, runs: runs * count };
    let one = |watch: &WatchedCluster<'_>, (): &(), number: u64| {
        plan.carry_out(watch, kinds[(number % count) as usize], number / count)
    };
    series.run(|_| Ok(()), one, on_record)
}

impl HookInjection<'_> {
    /// Returns the record, and whether the cluster can take another injection.
    fn carry_out(
        &self,
        watch: &WatchedCluster<'_>,
        kind: Corruption,
        id: u64,
    ) -> anyhow::Result<(HookRecord, bool)> {
        let begun = Instant::now();
        if !watch.cluster.all_serve(BACK) {
            bail!("the cluster does not serve before an injection");
        }
        let mut stream = draw::stream(self.seed, STREAMS + kind as u64, id);
        let before = watch.before()?;
        std::thread::sleep(Duration::from_micros(stream.below(5_000)));
        let placed = place(watch, &before, kind, stream.next_u64());
        if placed.is_none() && id == 0 {
            bail!("the victim places no fault: was it built with the fault injector?");
        }
        let injected = placed.as_ref().is_some_and(|placed| placed.done && await_occasion(watch));
        let injected_us = begun.elapsed().as_micros() as u64;
        let judged = match (&placed, injected) {
            (Some(_), true) => watch.judge(&before),
            (Some(Injected { done: true, .. }), false) => self.given_up(watch, "its occasion did not come"),
            (Some(_), false) => watch.with_all_serving(Judged::lost("nothing to corrupt".into())),
            (None, _) => self.given_up(watch, "whether it was placed was not reported"),
        };
        let record = HookRecord {
            id,
            seed: self.seed,
            kind,
            hit: placed.map_or_else(String::new, |placed| placed.what),
            class: judged.class,
            subclass: judged.subclass,
            details: judged.details,
            states_equal: judged.states_equal,
            noticed: judged.noticed,
            injected_us,
            total_us: begun.elapsed().as_micros() as u64,
        };
        Ok((record, judged.healthy))
    }

    /// A fault that still waits could take effect in a later run: ending the process removes it.
    fn given_up(&self, watch: &WatchedCluster<'_>, why: &str) -> Judged {
        watch.cluster.kill(watch.victim());
        Judged { healthy: false, ..Judged::lost(why.into()) }
    }
}

/// The command is sent once: a fault whose answer was lost may have been placed, and a second one like it would undo
/// it. `None` when the victim serves and has not answered.
fn place(watch: &WatchedCluster<'_>, before: &Before, kind: Corruption, seed: u64) -> Option<Injected> {
    let inject = Inject { kind, object: None, bit: None, member: None, seed };
    if let Ok(answer) = watch.cluster.replica(watch.victim()).ask(&AdminCommand::Inject(inject), PLACING) {
        return Some(answer);
    }
    // The fault may have been placed before the timeout, and end the victim only now.
    let serves = watch.cluster.all_serve(BACK);
    if watch.has_ended(before) || !serves {
        let what = "the victim ended before it could tell".to_owned();
        return Some(Injected { done: true, what, home: None, id: None });
    }
    None
}

/// Waits until no placed fault is left, or the victim has ended; false when one still waits.
fn await_occasion(watch: &WatchedCluster<'_>) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < OCCASION {
        match watch.cluster.status(watch.victim()) {
            Some(status) if status.armed > 0 => std::thread::sleep(LOOK),
            _ => return true,
        }
    }
    false
}
