//! The bank in a simulated group: ten seeds with flipped bits, and a few with every kind of fault.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bank::{Bank, RespConnection};
use crosscheck::MakeProtocol;
use crosscheck::faults::Sabotage;
use sim::testing::{all_faults_keep_every_promise, flips_are_repaired, short};
use sim::{Breach, CommandSource, Options, ReferenceModel, Turn, Where, Workload, same_bytes, simulate};
use vote::Place;
use wire::SplitMix64;

/// Accounts that clients use, of several branches.
const ACCOUNTS: u32 = 12;

/// A client's command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Command {
    Open { number: u32, amount: u64 },
    Deposit { number: u32, amount: u64 },
    Withdraw { number: u32, amount: u64 },
    Transfer { from: u32, to: u32, amount: u64 },
    Link { from: u32, to: u32 },
    Sweep { from: u32 },
    Balance { number: u32 },
    Total,
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
        }
    }
}

#[derive(Clone)]
struct OfBank;

impl Workload for OfBank {
    type Service = Bank;
    type Protocol = RespConnection;
    type Command = Command;
    type Source = Customer;
    type Model = Balances;

    fn start(&self) -> Result<(Bank, MakeProtocol<RespConnection>), String> {
        Ok((Bank::new(), Arc::new(|_| RespConnection)))
    }

    fn bytes(&self, command: &Command) -> Vec<u8> {
        format!("{}\r\n", command.text()).into_bytes()
    }

    fn source(&self, client: usize) -> Customer {
        Customer { client: client as u64, moved: 0 }
    }

    fn model(&self) -> Balances {
        Balances::default()
    }

    fn final_reads(&self) -> Vec<Command> {
        (1..=ACCOUNTS).map(|number| Command::Balance { number }).chain([Command::Total]).collect()
    }

    fn object(&self, draws: &mut SplitMix64) -> Option<String> {
        Some(format!("account:{}", 1 + draws.modulo(u64::from(ACCOUNTS))))
    }

    /// A sweep takes the lock of an account that only another account names.
    fn may_miss_locks(&self) -> bool {
        true
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
        match draws.modulo(16) {
            0..=2 => Command::Open { number: to, amount: 10 * amount },
            3..=5 => Command::Deposit { number: to, amount: 4 * amount },
            6 => Command::Withdraw { number: from, amount },
            7..=9 => Command::Transfer { from, to, amount },
            10 => Command::Link { from, to },
            11 => Command::Sweep { from },
            12 => Command::Total,
            _ => Command::Balance { number: to },
        }
    }
}

/// Balance and linked account of each account, and how often each was to be swept without money.
#[derive(Clone, Default)]
struct Balances(BTreeMap<u32, (u64, Option<u32>)>, BTreeMap<u32, u32>);

impl Balances {
    fn reply(&mut self, command: &Command, behavior: u16) -> Result<String, String> {
        let missing = |number: u32| format!("account {number} does not exist");
        let has =
            |balances: &Self, number: u32| balances.0.get(&number).copied().ok_or_else(|| missing(number));
        Ok(match *command {
            Command::Open { number, amount } => {
                if self.0.contains_key(&number) {
                    return Err(format!("account {number} exists already"));
                }
                self.0.insert(number, (amount, None));
                "+OK".to_owned()
            }
            Command::Deposit { number, amount } => {
                let (balance, linked) = has(self, number)?;
                self.0.insert(number, (balance + amount, linked));
                format!(":{}", balance + amount)
            }
            Command::Withdraw { number, amount } => {
                let (balance, linked) = has(self, number)?;
                let rest = balance.checked_sub(amount).ok_or_else(|| too_little(number, balance))?;
                self.0.insert(number, (rest, linked));
                format!(":{rest}")
            }
            Command::Transfer { from, to, amount } => {
                self.transfer(from, to, amount)?;
                "+OK".to_owned()
            }
            Command::Link { from, to } => {
                if from == to {
                    return Err(SAME.to_owned());
                }
                has(self, to)?;
                let (balance, _) = has(self, from)?;
                self.0.insert(from, (balance, Some(to)));
                "+OK".to_owned()
            }
            Command::Sweep { from } => {
                let (balance, linked) = has(self, from)?;
                let to = linked.ok_or_else(|| format!("account {from} has no linked account; use LINK"))?;
                if balance == 0 && behavior >= 2 {
                    let times = self.1.entry(from).or_default();
                    *times += 1;
                    return Err(format!("account {from} has no money to sweep (asked {times} times)"));
                }
                self.transfer(from, to, balance)?;
                format!(":{balance}")
            }
            Command::Balance { number } => format!(":{}", has(self, number)?.0),
            Command::Total => format!(":{}", self.0.values().map(|(balance, _)| balance).sum::<u64>()),
        })
    }

    fn transfer(&mut self, from: u32, to: u32, amount: u64) -> Result<(), String> {
        let missing = |number: u32| format!("account {number} does not exist");
        if from == to {
            return Err(SAME.to_owned());
        }
        let (balance, linked) = self.0.get(&from).copied().ok_or_else(|| missing(from))?;
        let rest = balance.checked_sub(amount).ok_or_else(|| too_little(from, balance))?;
        self.0.get_mut(&to).ok_or_else(|| missing(to))?.0 += amount;
        self.0.insert(from, (rest, linked));
        Ok(())
    }
}

const SAME: &str = "payer and payee are the same account";

fn too_little(number: u32, balance: u64) -> String {
    format!("insufficient funds: account {number} has {balance}")
}

impl ReferenceModel for Balances {
    type Command = Command;
    type Expected = String;

    fn apply(&mut self, command: &Command, turn: Turn) -> String {
        match self.reply(command, turn.behavior) {
            Ok(reply) => format!("{reply}\r\n"),
            Err(refusal) => format!("-ERR {refusal}\r\n"),
        }
    }

    fn compare(&mut self, expected: &String, _place: Place, reply: &[u8]) -> Result<(), String> {
        same_bytes(expected.as_bytes(), reply)
    }

    fn clear(&mut self) {
        *self = Balances::default();
    }
}

#[test]
fn flipped_bits_in_accounts_are_repaired_in_ten_seeds() {
    flips_are_repaired(&OfBank, 1..=10);
}

#[test]
fn every_kind_of_fault_leaves_every_promise_kept() {
    all_faults_keep_every_promise(&OfBank, 1..=4);
}

/// Replicas of both releases, each of which is started with the later one sooner or later.
#[test]
fn replicas_of_two_releases_answer_alike_and_change_at_one_position() {
    let mut changed = 0;
    for seed in 21..=26 {
        let options = Options { disk: seed % 3 == 1, workers: 1 + seed as usize % 3, ..short("crash") };
        let summary = simulate(&OfBank, seed, &options);
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
            simulate(&OfBank, *seed, &options).violation.is_some()
        };
        (21..=26).filter(breaks).count()
    };
    assert!(broken(Where::All) > 0);
    assert_eq!(broken(Where::One), 0);
}
