//! The bank against a plain model: every reply equals the model's, and money is neither made nor lost.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may do what a handler may not"
)]

use std::collections::{BTreeMap, VecDeque};

use bank::{Bank, MAX_BALANCE, MAX_SECONDS, RespConnection};
use crosscheck::Owed;
use crosscheck::testing::{Replica, START_US};
use proptest::prelude::*;

/// A client's command, or time that passes.
#[derive(Clone, Debug)]
enum Step {
    Open(u32, u64),
    Deposit(u32, u64),
    Withdraw(u32, u64),
    Transfer(u32, u32, u64),
    Balance(u32),
    Total,
    Interest(u32, u64),
    Link(u32, u32),
    Sweep(u32),
    Pay(u32, u32, u64, u64),
    Waiting(u32),
    Pass(u64),
}

impl Step {
    fn text(&self) -> String {
        match self {
            Step::Open(number, amount) => format!("OPEN {number} somebody {amount}\r\n"),
            Step::Deposit(number, amount) => format!("DEPOSIT {number} {amount}\r\n"),
            Step::Withdraw(number, amount) => format!("WITHDRAW {number} {amount}\r\n"),
            Step::Transfer(from, to, amount) => format!("TRANSFER {from} {to} {amount}\r\n"),
            Step::Balance(number) => format!("BALANCE {number}\r\n"),
            Step::Total => "TOTAL\r\n".to_owned(),
            Step::Interest(rate, seconds) => format!("INTEREST {rate} {seconds}\r\n"),
            Step::Link(from, to) => format!("LINK {from} {to}\r\n"),
            Step::Sweep(from) => format!("SWEEP {from}\r\n"),
            Step::Pay(from, to, amount, seconds) => format!("PAY {from} {to} {amount} {seconds}\r\n"),
            Step::Waiting(number) => format!("WAITING {number}\r\n"),
            Step::Pass(_) => String::new(),
        }
    }
}

/// The bank without locks, objects or a schedule.
#[derive(Default)]
struct Model {
    balances: BTreeMap<u32, u64>,
    linked: BTreeMap<u32, u32>,
    /// The longest waiting first.
    waiting: Vec<Payment>,
    /// How many payments have waited: the number of the next one.
    waited: usize,
    /// What became of payments that have waited, by their numbers.
    ended: Vec<(usize, &'static str)>,
    /// When the payments that wait for an account are tried again.
    alarms: BTreeMap<u32, u64>,
    rate: u32,
    period_us: u64,
    tick_us: Option<u64>,
}

/// A payment that waits: from, to, amount, deadline, and its number.
type Payment = (u32, u32, u64, u64, usize);

/// The reply to a request that cannot be executed; its reason is not compared.
const REFUSED: &str = "-ERR";
/// Its reply comes later.
const WAITS: &str = "waits";

impl Model {
    /// One request at an ordered time, or the timers due by then; and the requests that it starts.
    fn run(&mut self, step: &Step, now_us: u64) -> String {
        if self.tick_us.is_some_and(|tick_us| tick_us <= now_us) {
            self.tick_us = (self.rate > 0).then_some(now_us + self.period_us);
            for balance in self.balances.values_mut() {
                *balance = (*balance + *balance * u64::from(self.rate) / 10_000).min(MAX_BALANCE);
            }
        }
        let mut due: Vec<(u64, u32)> =
            self.alarms.iter().map(|(number, time_us)| (*time_us, *number)).collect();
        due.retain(|(time_us, _)| *time_us <= now_us);
        due.sort_unstable();
        let mut tried = VecDeque::new();
        for (_, number) in due {
            self.alarms.remove(&number);
            tried.extend(self.notified(number));
        }
        let before = self.balances.clone();
        let reply = self.reply(step, now_us).unwrap_or_else(|| REFUSED.to_owned());
        let richer: Vec<u32> = self
            .balances
            .iter()
            .filter(|(number, has)| before.get(number) < Some(has))
            .map(|(number, _)| *number)
            .collect();
        for number in richer {
            tried.extend(self.notified(number));
        }
        while let Some(payment @ (from, to, amount, until, number)) = tried.pop_front() {
            if self.transfer(from, to, amount).is_some() {
                self.ended.push((number, "+PAID\r\n"));
                tried.extend(self.notified(to));
            } else if now_us < until {
                self.wait(payment);
            } else {
                self.ended.push((number, "+NOT_PAID\r\n"));
            }
        }
        reply
    }

    /// Takes out the payments that wait for money of an account.
    fn notified(&mut self, number: u32) -> Vec<Payment> {
        let (notified, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|payment| payment.0 == number);
        self.waiting = waiting;
        notified
    }

    fn wait(&mut self, payment: Payment) {
        self.waiting.push(payment);
        let alarm = self.alarms.entry(payment.0).or_insert(payment.3);
        *alarm = payment.3.min(*alarm);
    }

    fn reply(&mut self, step: &Step, now_us: u64) -> Option<String> {
        Some(match *step {
            Step::Open(number, amount) => {
                if self.balances.contains_key(&number) {
                    return None;
                }
                self.balances.insert(number, amount);
                "+OK".to_owned()
            }
            Step::Deposit(number, amount) => format!(":{}", self.deposit(number, amount)?),
            Step::Withdraw(number, amount) => {
                let balance = self.balances.get_mut(&number)?;
                *balance = balance.checked_sub(amount)?;
                format!(":{balance}")
            }
            Step::Transfer(from, to, amount) => {
                self.transfer(from, to, amount)?;
                "+OK".to_owned()
            }
            Step::Balance(number) => format!(":{}", self.balances.get(&number)?),
            Step::Total => format!(":{}", self.balances.values().sum::<u64>()),
            Step::Interest(rate, seconds) => {
                (self.rate, self.period_us) = (rate, seconds * 1_000_000);
                if rate > 0 && self.tick_us.is_none() {
                    self.tick_us = Some(now_us + self.period_us);
                }
                "+OK".to_owned()
            }
            Step::Link(from, to) => {
                (from != to && self.balances.contains_key(&from)).then_some(())?;
                self.balances.get(&to)?;
                self.linked.insert(from, to);
                "+OK".to_owned()
            }
            Step::Sweep(from) => {
                let (to, amount) = (*self.linked.get(&from)?, *self.balances.get(&from)?);
                (amount > 0).then_some(())?;
                self.transfer(from, to, amount)?;
                format!(":{amount}")
            }
            Step::Pay(from, to, amount, seconds) => {
                self.balances.get(&to)?;
                let has = *self.balances.get(&from)?;
                (from != to).then_some(())?;
                if has >= amount {
                    self.transfer(from, to, amount)?;
                    return Some("+PAID".to_owned());
                }
                let waiting = self.waiting.iter().filter(|payment| payment.0 == from).count();
                (waiting < 16).then_some(())?;
                self.wait((from, to, amount, now_us + seconds * 1_000_000, self.waited));
                self.waited += 1;
                WAITS.to_owned()
            }
            Step::Waiting(number) => {
                self.balances.get(&number)?;
                format!(":{}", self.waiting.iter().filter(|payment| payment.0 == number).count())
            }
            Step::Pass(_) => String::new(),
        })
    }

    fn deposit(&mut self, number: u32, amount: u64) -> Option<u64> {
        let balance = self.balances.get_mut(&number)?;
        let more = (*balance + amount <= MAX_BALANCE).then_some(*balance + amount)?;
        *balance = more;
        Some(more)
    }

    fn transfer(&mut self, from: u32, to: u32, amount: u64) -> Option<()> {
        (from != to && *self.balances.get(&from)? >= amount).then_some(())?;
        self.deposit(to, amount)?;
        *self.balances.get_mut(&from)? -= amount;
        Some(())
    }
}

/// Accounts of one branch and of several, one bucket and several; most of them exist soon.
fn number() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![1, 2, 8, 9, 17, 1 + 8 * 64])
}

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1..500u64, 1 => Just(MAX_BALANCE), 1 => MAX_BALANCE - 500..MAX_BALANCE]
}

/// Payments wait, or interest is paid: which one comes first where both become due is the schedule's choice.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let without = |steps: Vec<Step>, is_pay: bool| {
        let stays = |step: &Step| {
            if is_pay { !matches!(step, Step::Pay(..)) } else { !matches!(step, Step::Interest(..)) }
        };
        steps.into_iter().filter(stays).collect()
    };
    (prop::collection::vec(step(), 1..120), any::<bool>())
        .prop_map(move |(steps, is_pay)| without(steps, is_pay))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (number(), 1..500u64).prop_map(|(number, amount)| Step::Open(number, amount)),
        4 => (number(), amount()).prop_map(|(number, amount)| Step::Deposit(number, amount)),
        3 => (number(), amount()).prop_map(|(number, amount)| Step::Withdraw(number, amount)),
        6 => (number(), number(), amount()).prop_map(|(from, to, amount)| Step::Transfer(from, to, amount)),
        3 => number().prop_map(Step::Balance),
        2 => Just(Step::Total),
        1 => (0..300u32, 1..20u64).prop_map(|(rate, seconds)| Step::Interest(rate, seconds)),
        2 => (number(), number()).prop_map(|(from, to)| Step::Link(from, to)),
        3 => number().prop_map(Step::Sweep),
        6 => (number(), number(), amount(), 1..30u64)
            .prop_map(|(from, to, amount, seconds)| Step::Pay(from, to, amount, seconds)),
        3 => number().prop_map(Step::Waiting),
        4 => (1..20u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_reply_is_as_the_model_says(steps in steps()) {
        let (mut bank, mut model) = (Replica::new(Bank::new()), Model::default());
        let mut owed = Vec::new();
        for step in &steps {
            prop_assert_eq!(ends(&mut bank, &owed), std::mem::take(&mut model.ended), "before {:?}", step);
            if let Step::Pass(seconds) = step {
                let microseconds = seconds * 1_000_000;
                model.run(step, bank.now_us + microseconds);
                bank.pass_time(microseconds);
                continue;
            }
            let expected = model.run(step, bank.now_us);
            let reply = ask(&mut bank, &step.text());
            if expected == WAITS {
                prop_assert_eq!(&reply, "", "{:?}", step);
                owed.push(bank.owed());
            } else if expected == REFUSED {
                prop_assert!(reply.starts_with("-ERR "), "{step:?}: {reply} instead of a refusal");
            } else {
                prop_assert_eq!(&reply, &format!("{expected}\r\n"), "{:?}", step);
            }
        }
        let total = model.balances.values().sum::<u64>();
        prop_assert_eq!(ask(&mut bank, "TOTAL\r\n"), format!(":{total}\r\n"));
        for (number, balance) in &model.balances {
            prop_assert_eq!(ask(&mut bank, &format!("BALANCE {number}\r\n")), format!(":{balance}\r\n"));
        }
    }

    #[test]
    fn any_bytes_are_answered_within_bounds(bytes in prop::collection::vec(byte(), 0..400)) {
        use crosscheck::{Progress, Protocol};
        let mut rest = &bytes[..];
        loop {
            match RespConnection.next(rest) {
                Progress::NeedMore(length) => {
                    prop_assert!(length > rest.len() && length <= rest.len() + 1024, "{length}");
                    break;
                }
                Progress::Done { used, .. } => {
                    prop_assert!((1..=rest.len()).contains(&used), "{used}");
                    rest = &rest[used..];
                }
            }
        }
    }
}

/// Bytes that are often valid protocol.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => prop::sample::select(b"*$\r\n\r\n0123456789 -BALANCETOTL".to_vec()), 1 => any::<u8>()]
}

/// What became of payments that have waited since this was last asked, by their numbers; `owed` is what they owe.
fn ends(bank: &mut Replica<Bank>, owed: &[Owed]) -> Vec<(usize, &'static str)> {
    let number = |of: Owed| owed.iter().position(|one| *one == of).expect("a payment that waits");
    let word = |reply: &[u8]| if reply == b"+PAID\r\n" { "+PAID\r\n" } else { "+NOT_PAID\r\n" };
    bank.take_later().into_iter().map(|(of, reply)| (number(of), word(&reply))).collect()
}

fn ask(bank: &mut Replica<Bank>, text: &str) -> String {
    String::from_utf8(bank.talk(&mut RespConnection, text.as_bytes())).expect("replies are text")
}

fn opened(accounts: &[(u32, u64)]) -> Replica<Bank> {
    let mut bank = Replica::new(Bank::new());
    for (number, amount) in accounts {
        assert_eq!(ask(&mut bank, &format!("OPEN {number} somebody {amount}\r\n")), "+OK\r\n");
    }
    bank
}

#[test]
fn refusals_say_why_and_change_nothing() {
    let mut bank = opened(&[(1, 100), (2, MAX_BALANCE)]);
    let before = bank.digests();
    for (command, why) in [
        ("TRANSFER 1 2 30", "-ERR account 2 would have more than 10000000000000, the largest balance\r\n"),
        ("TRANSFER 1 2 101", "-ERR insufficient funds: account 1 has 100\r\n"),
        ("TRANSFER 1 1 5", "-ERR payer and payee are the same account\r\n"),
        ("TRANSFER 1 3 5", "-ERR account 3 does not exist\r\n"),
        ("TRANSFER 3 1 5", "-ERR account 3 does not exist\r\n"),
        ("WITHDRAW 1 101", "-ERR insufficient funds: account 1 has 100\r\n"),
        ("OPEN 1 bob", "-ERR account 1 exists already\r\n"),
        ("SWEEP 1", "-ERR account 1 has no linked account; use LINK\r\n"),
        ("PAY 1 3 200 5", "-ERR account 3 does not exist\r\n"),
        ("PAY 1 1 200 5", "-ERR payer and payee are the same account\r\n"),
    ] {
        assert_eq!(ask(&mut bank, &format!("{command}\r\n")), why, "{command}");
        assert_eq!(bank.digests(), before, "{command}");
    }
}

#[test]
fn a_payment_waits_for_money_and_no_longer_than_its_time() {
    let mut bank = opened(&[(1, 10), (2, 0), (10, 50)].map(|(number, amount)| (number, amount.max(1))));
    assert_eq!(ask(&mut bank, "PAY 1 2 100 60\r\n"), "", "the client waits");
    let first = bank.owed();
    assert_eq!(ask(&mut bank, "WAITING 1\r\n"), ":1\r\n");
    assert_eq!(ask(&mut bank, "DEPOSIT 1 40\r\n"), ":50\r\n");
    assert_eq!(ask(&mut bank, "BALANCE 2\r\n"), ":1\r\n", "50 are not enough");
    assert_eq!(bank.take_later(), []);
    assert_eq!(ask(&mut bank, "TRANSFER 10 1 50\r\n"), "+OK\r\n");
    assert_eq!(bank.take_later(), [(first, b"+PAID\r\n".to_vec())]);
    assert_eq!(ask(&mut bank, "BALANCE 2\r\n"), ":101\r\n");
    assert_eq!(ask(&mut bank, "WAITING 1\r\n"), ":0\r\n");
    assert_eq!(ask(&mut bank, "PAY 1 2 100 60\r\n"), "");
    let second = bank.owed();
    bank.pass_time(59_000_000);
    assert_eq!(ask(&mut bank, "WAITING 1\r\n"), ":1\r\n");
    bank.pass_time(2_000_000);
    assert_eq!(bank.take_later(), [(second, b"+NOT_PAID\r\n".to_vec())]);
    assert_eq!(ask(&mut bank, "WAITING 1\r\n"), ":0\r\n");
    assert_eq!(ask(&mut bank, "DEPOSIT 1 200\r\n"), ":200\r\n");
    assert_eq!(ask(&mut bank, "BALANCE 2\r\n"), ":101\r\n", "it was given up");
}

#[test]
fn interest_comes_by_the_ordered_clock() {
    let mut bank = opened(&[(1, 1_000), (2, 2_000), (513, 50)]);
    assert_eq!(ask(&mut bank, "INTEREST 100 60\r\n"), "+OK\r\n");
    bank.pass_time(59_000_000);
    assert_eq!(ask(&mut bank, "TOTAL\r\n"), ":3050\r\n");
    bank.pass_time(1_000_000);
    assert_eq!(ask(&mut bank, "TOTAL\r\n"), ":3080\r\n", "one percent, cents are cut off");
    assert_eq!(ask(&mut bank, "INTEREST 0 60\r\n"), "+OK\r\n");
    bank.pass_time(MAX_SECONDS * 1_000_000);
    assert_eq!(ask(&mut bank, "TOTAL\r\n"), ":3080\r\n");
}

#[test]
fn a_card_is_drawn_once_and_equally_in_equal_logs() {
    let cards = |_| {
        let mut bank = opened(&[(1, 1), (2, 1)]);
        let cards = ["CARD 1\r\n", "CARD 2\r\n", "CARD 1\r\n"].map(|command| ask(&mut bank, command));
        assert!(cards[0] == cards[2] && cards[0] != cards[1], "{cards:?}");
        assert!(cards[0].starts_with("$16\r\n") && cards[0].len() == 5 + 16 + 2, "{cards:?}");
        cards
    };
    assert_eq!(cards(0), cards(1));
}

#[test]
fn operators_name_accounts_branches_and_the_office() {
    let mut bank = opened(&[(1, 5), (9, 5)]);
    for (name, class) in
        [("account:1", "Account"), ("account:9", "Account"), ("branch:1", "Branch"), ("office", "Office")]
    {
        let (region_id, id) = bank.find(name).unwrap_or_else(|| panic!("{name}"));
        let found = bank.with_region(region_id, |region| {
            let packed = region.pack(id).expect("it is there");
            let members = region.members(&packed).expect("whole");
            (members.class, <Bank as crosscheck::Service>::name_of(&members))
        });
        assert_eq!(found, (class, Some(name.replace(':', " "))));
    }
    for name in ["account:2", "account:x", "branch:8", "office:1", "teller"] {
        assert_eq!(bank.find(name), None, "{name}");
    }
    assert!(bank.now_us > START_US);
}
