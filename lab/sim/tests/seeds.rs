//! A bounded set of seeds: fixed ones, fresh ones, the same twice, and each checker shown to fail.

use std::collections::BTreeMap;

use crosscheck::faults::Sabotage;
use sim::fault::CATALOGUE;
use sim::mutation::{self, MUTATIONS, caught};
use sim::report::CampaignTotals;
use sim::{Breach, Faults, Options, Where, promises, run};

fn options(faults: &str) -> Options {
    Options { requests: 200, episodes: 3, faults: Faults::parse(faults).unwrap(), ..Options::default() }
}

fn keeps_every_promise(seed: u64, options: &Options) {
    let summary = run(seed, options);
    let broken = summary.violation;
    assert!(broken.is_none(), "crosscheck-lab sim --replay {seed} with {options:?}: {broken:?}");
    assert!(summary.answered >= options.requests, "seed {seed}: {} answers", summary.answered);
}

#[test]
fn without_faults_nothing_is_found() {
    for seed in 1..=5 {
        keeps_every_promise(seed, &options("none"));
    }
}

#[test]
fn fixed_seeds_keep_every_promise() {
    for seed in 1..=8 {
        keeps_every_promise(seed, &options("all"));
    }
}

#[test]
fn two_of_five_replicas_may_be_faulty() {
    for seed in 1..=2 {
        keeps_every_promise(seed, &Options { replicas: 5, ..options("all") });
    }
}

/// Replicas with one, two and three workers, which run in the order that the seed decides.
#[test]
fn replicas_agree_whatever_number_of_workers_they_have() {
    for seed in 1..=3 {
        keeps_every_promise(seed, &Options { workers: 3, ..options("all") });
    }
}

/// Mode 00GT: faults in single runs of handlers are masked, and the same faults reach clients where nothing is
/// compared.
#[test]
fn a_node_that_compares_with_itself_keeps_every_promise() {
    let twice = Options { replicas: 1, twice: true, ..options("in-request,skip,twice") };
    for seed in 1..=6 {
        keeps_every_promise(seed, &twice);
    }
    keeps_every_promise(7, &Options { twice: true, replicas: 1, ..options("none") });
    let injected: u64 = (1..=6)
        .map(|seed| run(seed, &twice))
        .flat_map(|summary| summary.faults.into_values())
        .map(|count| count.injected)
        .sum();
    assert!(injected > 0, "no fault was injected");
}

/// Faults of mode R0GV without those that let the others run far ahead, which takes long to simulate.
const SWIFT: &str =
    "crash,pause,reset,loss,duplication,reordering,delay,noise,in-request,digest,reply,message,request,skip";

/// Mode R0GV: batches are executed first and verified afterwards, with one to three workers.
#[test]
fn replicas_that_execute_first_keep_every_promise() {
    let verified = Options { verified: true, requests: 100, episodes: 2, ..options(SWIFT) };
    for seed in 1..=3 {
        keeps_every_promise(seed, &verified);
        keeps_every_promise(seed, &Options { workers: 3, ..verified.clone() });
    }
    keeps_every_promise(7, &Options { workers: 3, faults: Faults::None, ..verified.clone() });
    keeps_every_promise(8, &Options { replicas: 5, ..verified });
}

/// Faults in what mode R0GV adds to a replica: plans, tokens, tallies, trees, before-images, bodies, memories.
const OF_VERIFICATION: &str = "token,tally,leaf,node,kept,groups,flag,body-lost,view-storm,forgets,two-lives";

#[test]
fn what_verification_adds_may_be_wrong_at_one_replica() {
    for seed in 1..=2 {
        let faults =
            Options { verified: true, workers: 2, requests: 100, episodes: 3, ..options(OF_VERIFICATION) };
        keeps_every_promise(seed, &faults);
    }
}

/// A tree or a before-image is wrong at one replica, and is found when batches are rolled back: it takes the state of
/// the others in place. Its process, and its verifier's memory with it, was lost for that.
#[test]
fn a_state_that_no_object_repairs_is_replaced_without_the_process() {
    let mut took_states = 0;
    for seed in 1..=3 {
        let wrong = Options {
            verified: true,
            workers: 2,
            requests: 100,
            episodes: 3,
            ..options("leaf,kept,groups,in-request")
        };
        let summary = run(seed, &wrong);
        assert!(summary.violation.is_none(), "{:?}", summary.violation);
        assert!(summary.replaced.is_empty(), "{:?}", summary.replaced);
        took_states += summary.verified.took_states;
    }
    assert!(took_states > 0, "no replica took a state");
}

/// Replicas run conflicting requests in different orders, and no reply is wrong.
#[test]
fn states_that_differ_reach_no_client() {
    let keys_are_wrong = Options {
        verified: true,
        dense: true,
        workers: 2,
        clients: 40,
        requests: 100,
        episodes: 1,
        ..options("interleave")
    };
    let summary = run(12, &keys_are_wrong);
    assert!(summary.violation.is_none(), "{:?}", summary.violation);
    assert!(summary.verified.differed > 0, "{:?}", summary.verified);
}

/// One that lagged when the primary ended went back behind what it could roll back, and replaced itself: of three
/// memories two were gone, and the group made no progress.
#[test]
fn who_lags_when_the_primary_ends_keeps_its_state() {
    let lags =
        Options { verified: true, workers: 4, requests: 100, episodes: 3, ..options("slow-executor,crash") };
    let summary = run(1, &lags);
    assert!(summary.violation.is_none(), "{:?}", summary.violation);
    assert!(summary.replaced.is_empty(), "{:?}", summary.replaced);
}

/// A replica that misses 1,024 batches stopped until its watchdog ended it after 5 s; a primary that hangs was never
/// replaced.
#[test]
fn who_executes_first_and_was_away_or_hangs_is_replaced_soon() {
    // A replica that takes the others' state after a pause has not repaired anything.
    let first =
        Options { verified: true, requests: 300, episodes: 4, ..options("crash,pause,partition,loss") };
    let summary = run(2, &first);
    assert!(summary.violation.is_none(), "{:?}", summary.violation);
    assert!(summary.longest_heal_us < 4_000_000, "{} us", summary.longest_heal_us);
    keeps_every_promise(1, &Options { verified: true, requests: 100, episodes: 1, ..options("hang") });
}

/// A batch that ended while the service's keys were wrong everywhere became stable when all was healed: the checker
/// had not recorded who came to it.
#[test]
fn what_ends_while_all_replicas_are_hit_may_become_stable_later() {
    let first = Options { verified: true, real_sizes: true, ..Options::default() };
    let two = Options { replicas: 2, ..first.clone() };
    keeps_every_promise(88_100_000, &first);
    keeps_every_promise(91_000_006, &two);
    keeps_every_promise(91_100_007, &Options { workers: 2, ..two });
}

/// A second strike comes while the victim of the first one recovers, and hits as many as the group says may fail.
#[test]
fn a_group_serves_without_as_many_as_it_says_may_fail() {
    let chains = Options { chains: true, requests: 60, episodes: 1, ..options("none") };
    let mut sum = sim::Chains::default();
    let two = Options { verified: true, replicas: 2, ..chains.clone() };
    for (seeds, options) in [(&[5][..], chains), (&[1, 19], two)] {
        for &seed in seeds {
            let summary = run(seed, &options);
            assert!(summary.violation.is_none(), "seed {seed} with {options:?}: {:?}", summary.violation);
            sum.add(&summary.chains);
        }
    }
    assert!(sum.strikes.values().sum::<u64>() > 6, "{sum:?}");
    assert!(sum.offered > 0 && sum.installed > 0, "{sum:?}");
}

/// An operator lets a group go on with one replica of three, whose release knows only the newest behavior, and the
/// group has not changed to it yet: the others take its state as it is.
#[test]
fn a_group_whose_release_has_dropped_the_first_behavior_is_founded_again() {
    keeps_every_promise(4_830_157, &Options { strokes: 6, ..options("all") });
}

/// In verified mode: requests that ask what the group acts as, in the batch that changes it. They may have run before
/// or behind the change.
#[test]
fn a_group_that_verifies_changes_its_behavior_within_a_batch() {
    let verified = Options { verified: true, strokes: 6, ..options("all") };
    for seed in [4_860_036, 4_850_093] {
        keeps_every_promise(seed, &verified);
    }
}

/// Defects of a review, which mutations bring back (`ordered-only`, `half-joined`, `advice`, `impatient`, `accuser`):
/// the runs that show them, without the mutations.
#[test]
fn what_mutations_bring_back_does_not_happen_without_them() {
    let short = Options { requests: 400, episodes: 2, ..options("none") };
    let chains = Options { chains: true, ..short.clone() };
    for seed in [3, 10] {
        keeps_every_promise(seed, &chains);
    }
    let verified = Options { verified: true, workers: 2, ..short.clone() };
    for seed in 1..=3 {
        keeps_every_promise(seed, &Options { busy: true, ..verified.clone() });
        keeps_every_promise(seed, &Options { busy: true, chains: true, replicas: 2, ..verified.clone() });
    }
    let suspended = Options { faults: Faults::parse("suspend,in-request").unwrap(), ..verified };
    keeps_every_promise(35, &suspended);
    keeps_every_promise(1, &Options { faults: Faults::parse("memories").unwrap(), ..short });
}

#[test]
fn where_memory_is_short_only_old_items_go() {
    let short = Options { evicts: true, requests: 4000, ..options("all") };
    for seed in 1..=2 {
        keeps_every_promise(seed, &short);
    }
    let evicted: u64 = (1..=2).map(|seed| run(seed, &short).evicted).sum();
    assert!(evicted > 0, "nothing was evicted");
}

/// New seeds: the process's number is different every time, and the message names the seed.
#[test]
fn fresh_seeds_keep_every_promise() {
    let first = u64::from(std::process::id()) * 1000;
    for seed in first..first + 3 {
        keeps_every_promise(seed, &options("all"));
    }
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    for seed in 21..=23 {
        let once = run(seed, &options("all"));
        assert_eq!(once, run(seed, &options("all")));
        let several = Options { workers: 3, ..options("all") };
        assert_eq!(run(seed, &several), run(seed, &several));
        let verified = Options { verified: true, workers: 3, requests: 50, episodes: 1, ..options(SWIFT) };
        if seed == 21 {
            assert_eq!(run(seed, &verified), run(seed, &verified));
        }
        assert_ne!(once.hash, run(seed + 100, &options("all")).hash);
    }
}

/// One replica alone orders that another one is elsewhere: no other one has seen that, and nothing changes. Where all
/// vouch for it, the replica is moved, and ends.
#[test]
fn one_replica_alone_moves_no_other_one() {
    let sabotage = vec![(Breach::Pipeline(Sabotage::VouchesUnseen), Where::One)];
    for verified in [false, true] {
        keeps_every_promise(7, &Options { sabotage: sabotage.clone(), verified, ..options("none") });
        let sabotage = vec![(Breach::Pipeline(Sabotage::VouchesUnseen), Where::All)];
        let moved = run(7, &Options { sabotage, verified, ..options("none") });
        let how = moved.violation.map(|violation| violation.how).unwrap_or_default();
        assert!(how.contains("the group has replaced this machine"), "{how}");
    }
}

#[test]
fn each_checker_is_seen_to_fail() {
    let mut missing = Vec::new();
    for mutation in &MUTATIONS {
        let broken = caught(mutation, mutation::SEEDS).broken;
        if !broken.contains(mutation.expects) {
            missing.push(format!("{}: {broken:?} instead of {}", mutation.name, mutation.expects));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    for about in promises::all().iter().map(|promise| promise.about()).chain(promises::OF_THE_RUN) {
        assert!(MUTATIONS.iter().any(|mutation| mutation.expects == about.name), "{}", about.name);
    }
}

/// How often each heading of the second level is in a page.
fn headings(page: &str) -> BTreeMap<&str, usize> {
    page.lines().filter_map(|line| line.strip_prefix("## ")).fold(BTreeMap::new(), |mut seen, name| {
        *seen.entry(name).or_default() += 1;
        seen
    })
}

/// As many headings as `names`, each once, and `last` behind them.
fn once_each<'a>(names: impl IntoIterator<Item = &'a str>, last: &'a str) -> BTreeMap<&'a str, usize> {
    names.into_iter().chain([last]).map(|name| (name, 1)).collect()
}

#[test]
fn the_page_of_promises_names_each_checker_and_each_mutation_once() {
    let page = sim::report::promises();
    // By the modules: a checker that was left out of the list of checkers is missing on the page.
    let modules = include_str!("../src/promises/mod.rs")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("mod ")?.strip_suffix(';')?.replace('_', "-")));
    let modules: Vec<String> = modules.collect();
    let names = modules.iter().map(String::as_str).chain(promises::OF_THE_RUN.map(|about| about.name));
    assert_eq!(headings(&page), once_each(names, "Not checked yet"));
    // The page breaks lines.
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for mutation in &MUTATIONS {
        assert_eq!(page.matches(&format!("`{}` (", mutation.name)).count(), 1, "{}", mutation.name);
    }
    assert!(!page.contains("Seen to fail with: ."), "each checker has a mutation");
}

#[test]
fn the_page_of_faults_names_each_kind_once() {
    let none = CampaignTotals::default();
    let alone: Vec<_> = CATALOGUE.iter().map(|entry| (entry.fault, none.clone())).collect();
    let page = sim::report::faults(&alone, &none, "sim --catalogue --seeds 0");
    assert_eq!(headings(&page), once_each(CATALOGUE.iter().map(|entry| entry.name), "All kinds mixed"));
    assert_eq!(page.matches("Not measured in this campaign.").count(), CATALOGUE.len() + 1);
}

/// Checkpoints take up to seconds to reach the disk, and others are made meanwhile, while machines lose their power and
/// their disks.
#[test]
fn a_slow_disk_costs_no_checkpoint() {
    let on_disk = Options { disk: true, requests: 400, ..options("power,disk-lost,disk-full,disk-error") };
    for seed in 1..=4 {
        keeps_every_promise(seed, &on_disk);
    }
    for name in ["checkpoints-together", "unnamed-changes-on-disk"] {
        let mutation = MUTATIONS.iter().find(|mutation| mutation.name == name).unwrap();
        let broken = caught(mutation, mutation::SEEDS).broken;
        assert!(broken.contains(mutation.expects), "{name}: {broken:?}");
    }
}

/// Seeds of a review, in mode R0GV with two workers: a replica that was stopped itself, and whose own clock was wrong,
/// accused the leader's (91400006); one that had run a batch of an earlier view accused itself (26130).
#[test]
fn no_replica_accuses_one_that_is_right() {
    let all = Faults::parse("all").unwrap();
    let verified =
        Options { verified: true, workers: 2, real_sizes: true, faults: all, ..Options::default() };
    for seed in [91_400_006, 26_130] {
        keeps_every_promise(seed, &verified);
    }
}
