//! The bank in a simulated group, with its timers and waits: ten seeds with flipped bits, a few with every kind of
//! fault in each mode, and faults of the bank and of the framework, which are noticed.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

mod ledger;

use std::sync::Arc;

use bank::{Bank, Request, RespConnection};
use crosscheck::MakeProtocol;
use crosscheck::faults::Sabotage;
use ledger::{Flaw, Ledger};
use sim::testing::{all_faults_keep_every_promise, flips_are_repaired, short};
use sim::{Breach, CommandSource, Options, Turn, Where, Workload, simulate};
use wire::SplitMix64;

/// Accounts that clients use, of several branches.
const ACCOUNTS: u32 = 12;

/// A client's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Open { number: u32, amount: u64 },
    Deposit { number: u32, amount: u64 },
    Withdraw { number: u32, amount: u64 },
    Transfer { from: u32, to: u32, amount: u64 },
    Link { from: u32, to: u32 },
    Sweep { from: u32 },
    Balance { number: u32 },
    Total,
    Pay { from: u32, to: u32, amount: u64, seconds: u64 },
    Waiting { number: u32 },
    Interest { rate: u32, seconds: u64 },
    Card { number: u32 },
}

impl Command {
    fn text(&self) -> String {
        match self {
            Command::Open { number, amount } => format!("OPEN {number} somebody {amount}"),
            Command::Deposit { number, amount } => format!("DEPOSIT {number} {amount}"),
            Command::Withdraw { number, amount } => format!("WITHDRAW {number} {amount}"),
            Command::Transfer { from, to, amount } => format!("TRANSFER {from} {to} {amount}"),
            Command::Link { from, to } => format!("LINK {from} {to}"),
            Command::Sweep { from } => format!("SWEEP {from}"),
            Command::Balance { number } => format!("BALANCE {number}"),
            Command::Total => "TOTAL".to_owned(),
            Command::Pay { from, to, amount, seconds } => format!("PAY {from} {to} {amount} {seconds}"),
            Command::Waiting { number } => format!("WAITING {number}"),
            Command::Interest { rate, seconds } => format!("INTEREST {rate} {seconds}"),
            Command::Card { number } => format!("CARD {number}"),
        }
    }
}

#[derive(Clone, Default)]
struct OfBank {
    /// On purpose: the bank is not as its model.
    flaw: Option<Flaw>,
    /// On purpose: it does not say what the bank does.
    is_silent: bool,
}

impl Workload for OfBank {
    type Service = Bank;
    type Protocol = RespConnection;
    type Command = Command;
    type Source = Customer;
    type Model = Ledger;

    fn start(&self) -> Result<(Bank, MakeProtocol<RespConnection>), String> {
        Ok((Bank::new(), Arc::new(|_| RespConnection)))
    }

    fn bytes(&self, command: &Command) -> Vec<u8> {
        format!("{}\r\n", command.text()).into_bytes()
    }

    fn source(&self, client: usize) -> Customer {
        Customer { client: client as u64, moved: 0 }
    }

    fn model(&self) -> Ledger {
        Ledger::new(self.flaw)
    }

    fn final_reads(&self) -> Vec<Command> {
        let reads = |number| [Command::Balance { number }, Command::Waiting { number }];
        (1..=ACCOUNTS).flat_map(reads).chain([Command::Total]).collect()
    }

    fn object(&self, draws: &mut SplitMix64) -> Option<String> {
        Some(format!("account:{}", 1 + draws.modulo(u64::from(ACCOUNTS))))
    }

    /// A sweep takes the lock of an account that only another account names.
    fn may_miss_locks(&self) -> bool {
        !self.is_silent
    }

    /// Payments that wait, and interest.
    fn starts_requests(&self) -> bool {
        !self.is_silent
    }

    fn started(model: &mut Ledger, request: &Request, turn: Turn) -> Result<(), String> {
        model.started(request, turn.time_us)
    }
}

/// A client that moves sums that no other client moves.
struct Customer {
    client: u64,
    moved: u64,
}

impl CommandSource for Customer {
    type Command = Command;

    fn draw(&mut self, draws: &mut SplitMix64) -> Command {
        let mut number = || 1 + draws.modulo(u64::from(ACCOUNTS)) as u32;
        let (from, to) = (number(), number());
        self.moved += 1;
        let amount = self.moved << 6 | self.client;
        match draws.modulo(48) {
            0..=6 => Command::Open { number: to, amount: 10 * amount },
            7..=13 => Command::Deposit { number: to, amount: 4 * amount },
            14..=16 => Command::Withdraw { number: from, amount },
            17..=23 => Command::Transfer { from, to, amount },
            24..=25 => Command::Link { from, to },
            26..=28 => Command::Sweep { from },
            29..=30 => Command::Total,
            // Each period is 512 requests.
            31 if draws.chance(300) => {
                Command::Interest { rate: draws.modulo(4) as u32 * 50, seconds: draws.within(1, 4) }
            }
            31..=32 => Command::Card { number: to },
            33..=38 => Command::Pay { from, to, amount: 12 * amount, seconds: draws.within(1, 4) },
            39..=41 => Command::Waiting { number: from },
            _ => Command::Balance { number: to },
        }
    }
}

#[test]
fn flipped_bits_in_accounts_are_repaired_in_ten_seeds() {
    flips_are_repaired(&OfBank::default(), 1..=10);
}

#[test]
fn every_kind_of_fault_leaves_every_promise_kept() {
    all_faults_keep_every_promise(&OfBank::default(), 1..=4);
}

/// Mode R0GV: what the bank starts itself in a batch runs in the next one, and is rolled back with it.
#[test]
fn a_bank_that_executes_first_keeps_every_promise() {
    for seed in 1..=3 {
        let options = Options { verified: true, workers: 1 + seed as usize % 3, ..short("all") };
        let summary = simulate(&OfBank::default(), seed, &options);
        assert_eq!(summary.violation, None, "seed {seed}");
    }
}

/// Mode 00GT: a single node, which orders nothing while it is idle.
#[test]
fn a_bank_on_one_node_keeps_every_promise() {
    for seed in 1..=6 {
        let options = Options { replicas: 1, twice: true, ..short("in-request,skip,twice") };
        let summary = simulate(&OfBank::default(), seed, &options);
        assert_eq!(summary.violation, None, "seed {seed}");
        assert!(summary.started > 0, "seed {seed}: nothing was started");
    }
}

/// A workload that does not say that its service starts requests: no model is right without them.
#[test]
fn a_workload_has_to_say_that_its_service_starts_requests() {
    let silent = OfBank { flaw: None, is_silent: true };
    let how = simulate(&silent, 1, &short("none")).violation.map(|violation| violation.how);
    assert!(how.is_some_and(|how| how.contains("`Workload::starts_requests`")));
}

/// Replicas that miss what others learn of the locks of a sweep, or learn something else, are repaired. With seed 25
/// one of them ran a sweep at another position, long after that and while another replica was faulty.
#[test]
fn a_repaired_replica_sweeps_as_its_peers_do() {
    for seed in 24..=27 {
        let options =
            Options { episodes: 5, workers: 1 + seed as usize % 3, ..short("footprint,skip,request") };
        assert_eq!(simulate(&OfBank::default(), seed, &options).violation, None, "seed {seed}");
    }
}

/// How a run breaks a promise of the bank, in one of a few seeds.
fn broken(workload: &OfBank, options: &Options) -> String {
    let runs = (1..=8).filter_map(|seed| simulate(workload, seed, options).violation);
    runs.map(|violation| violation.how).next().unwrap_or_default()
}

/// A bank whose timers' handlers do something else than the model: one that forgets what it has to start, starts
/// something else, or computes another sum.
#[test]
fn a_bank_with_wrong_timers_is_noticed() {
    let flaws = [
        (Flaw::WaitsForEver, "nothing of that kind had to be started"),
        (Flaw::TicksOnce, "nothing of that kind had to be started"),
        (Flaw::TicksTwice, "Tick has to run"),
        (Flaw::OneCentMore, "instead of"),
    ];
    for (flaw, words) in flaws {
        let how = broken(
            &OfBank { flaw: Some(flaw), is_silent: false },
            &Options { requests: 600, ..short("none") },
        );
        assert!(how.contains(words), "{flaw:?}: {how}");
    }
}

/// Replicas that all forget what some requests have started: they agree, and a model that is given nothing misses
/// nothing. The simulation does.
#[test]
fn a_group_that_forgets_what_was_started_is_noticed() {
    let sabotage = vec![(Breach::Pipeline(Sabotage::LosesStarted), Where::All)];
    let group = Options { sabotage, ..short("none") };
    for options in [
        group.clone(),
        Options { verified: true, ..group.clone() },
        Options { replicas: 1, twice: true, ..group.clone() },
    ] {
        let how = broken(&OfBank { flaw: Some(Flaw::MissesNothing), is_silent: false }, &options);
        assert!(how.contains("has not run by"), "{options:?}: {how}");
    }
}

/// Replicas of both releases, each of which is started with the later one sooner or later.
#[test]
fn replicas_of_two_releases_answer_alike_and_change_at_one_position() {
    let mut changed = 0;
    for seed in 21..=26 {
        let options = Options { disk: seed % 3 == 1, workers: 1 + seed as usize % 3, ..short("crash") };
        let summary = simulate(&OfBank::default(), seed, &options);
        assert_eq!(summary.violation, None, "seed {seed}");
        changed += u32::from(summary.behavior == 2);
    }
    assert!((1..6).contains(&changed), "{changed} of 6 groups act as the new release in the end");
}

/// The rule that all have to know a behavior is taken away: those that do not know it end. One replica alone that
/// breaks it changes nothing.
#[test]
fn a_change_that_not_all_know_ends_replicas_and_takes_more_than_one_of_them() {
    let broken = |whom: Where| {
        let breaks = |seed: &u64| {
            let sabotage = vec![(Breach::Pipeline(Sabotage::ChangesAlone), whom)];
            let options = Options { sabotage, ..short("crash") };
            simulate(&OfBank::default(), *seed, &options).violation.is_some()
        };
        (21..=26).filter(breaks).count()
    };
    assert!(broken(Where::All) > 0);
    assert_eq!(broken(Where::One), 0);
}
