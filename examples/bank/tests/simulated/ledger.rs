//! The bank as one sequential program, which knows what has to run beside the clients' commands: payments that are
//! tried again, ends of waits, ticks and interest.

use std::collections::BTreeMap;

use bank::{Payment, Request};
use crosscheck::Owed;
use sim::{ReferenceModel, Turn, same_bytes};
use vote::Place;

use super::Command;

/// A way in which the model differs from the bank, on purpose: so a bank with such a fault is noticed, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Payments wait on when their time is over.
    WaitsForEver,
    /// The first period that is over is the last one.
    TicksOnce,
    /// A change of the interest begins another series of periods.
    TicksTwice,
    /// Interest is a cent too much.
    OneCentMore,
    /// The model misses no request that the bank should have started.
    MissesNothing,
}

/// The right answer to a command.
#[derive(Clone, Debug)]
pub enum Answer {
    Text(String),
    /// The card of this account: the one that was answered before, or any.
    Card(u32),
    /// What becomes of the payment of this amount, which no other one has.
    Later(u64),
    /// None: something should have run before.
    Never(String),
}

#[derive(Clone, Default)]
struct Account {
    balance: u64,
    linked: Option<u32>,
    card: Option<Vec<u8>>,
    empty_sweeps: u32,
    /// Payments that wait, or are being tried again.
    pending: u32,
    /// Those that wait, the longest waiting first.
    waiting: Vec<Payment>,
    alarm_us: u64,
}

/// A request that the bank has to start itself.
#[derive(Clone)]
struct Awaited {
    request: Request,
    /// It may run at this ordered time at the earliest.
    from_us: u64,
    /// The first time that the model knows of which is not earlier.
    noticed_us: Option<u64>,
}

/// All accounts, and all that has to run.
#[derive(Clone, Default)]
pub struct Ledger {
    accounts: BTreeMap<u32, Account>,
    rate: u32,
    period_us: u64,
    is_ticking: bool,
    awaited: Vec<Awaited>,
    /// Replies to payments that have waited, by their amounts, until it is known here what becomes of these.
    paid: BTreeMap<u64, Vec<u8>>,
    now_us: u64,
    flaw: Option<Flaw>,
}

type Refused<T> = Result<T, String>;

const BRANCHES: u32 = 8;
const BUCKETS: u32 = 64;
const MAX_WAITING: u32 = 16;
const WAITS: &str = "the reply comes later";
const SAME: &str = "payer and payee are the same account";
/// For how long a request may be due before the model takes it for forgotten, in microseconds of ordered time.
const LATE_US: u64 = 2_000_000;

fn missing(number: u32) -> String {
    format!("account {number} does not exist")
}

fn too_little(number: u32, balance: u64) -> String {
    format!("insufficient funds: account {number} has {balance}")
}

impl Ledger {
    /// Without accounts.
    pub fn new(flaw: Option<Flaw>) -> Self {
        Ledger { flaw, ..Ledger::default() }
    }

    /// The bank has run a request at this ordered time that it had started itself.
    ///
    /// # Errors
    /// It should not have started it.
    pub fn started(&mut self, request: &Request, time_us: u64) -> Refused<()> {
        self.at(time_us, |ledger| ledger.run(request))
    }

    /// A request that missed a lock runs at its own time, which is earlier than that of others before it.
    fn at<T>(&mut self, time_us: u64, run: impl FnOnce(&mut Self) -> T) -> T {
        let now_us = std::mem::replace(&mut self.now_us, time_us);
        let done = run(self);
        self.now_us = now_us;
        done
    }

    fn run(&mut self, request: &Request) -> Refused<()> {
        let now_us = self.now_us;
        // The model does not know which clients wait: it compares the replies.
        let request = match *request {
            Request::Settle(payment) => &Request::Settle(Payment { owed: Owed::NOTHING, ..payment }),
            _ => request,
        };
        let is_this = |awaited: &Awaited| awaited.request == *request && awaited.from_us <= now_us;
        let at = self.awaited.iter().position(is_this).ok_or("nothing of that kind had to be started")?;
        self.awaited.remove(at);
        match *request {
            Request::Settle(payment) => self.settle(payment)?,
            Request::Expire { number } => self.expire(number),
            Request::Tick => self.tick(),
            Request::Accrue { branch, bucket, rate } => self.accrue(branch, bucket, rate),
            _ => return Err("a client's request".to_owned()),
        }
        Ok(())
    }

    fn start(&mut self, from_us: u64, request: Request) {
        self.awaited.push(Awaited { request, from_us, noticed_us: None });
    }

    fn account(&mut self, number: u32) -> Refused<&mut Account> {
        self.accounts.get_mut(&number).ok_or_else(|| missing(number))
    }

    fn deposit(&mut self, number: u32, amount: u64) -> Refused<u64> {
        let account = self.account(number)?;
        account.balance += amount;
        let balance = account.balance;
        self.notify(number);
        Ok(balance)
    }

    fn withdraw(&mut self, number: u32, amount: u64) -> Refused<u64> {
        let account = self.account(number)?;
        let rest = account.balance.checked_sub(amount).ok_or_else(|| too_little(number, account.balance))?;
        account.balance = rest;
        Ok(rest)
    }

    fn transfer(&mut self, from: u32, to: u32, amount: u64) -> Refused<()> {
        if from == to {
            return Err(SAME.to_owned());
        }
        let balance = self.account(from)?.balance;
        balance.checked_sub(amount).ok_or_else(|| too_little(from, balance))?;
        self.deposit(to, amount)?;
        self.withdraw(from, amount).map(drop)
    }

    /// The payments that wait for money of an account are tried again.
    fn notify(&mut self, number: u32) {
        let waiting =
            self.account(number).map_or_else(|_| Vec::new(), |one| std::mem::take(&mut one.waiting));
        waiting.into_iter().for_each(|payment| self.start(0, Request::Settle(payment)));
    }

    fn wait(&mut self, payment: Payment) {
        let Payment { from: number, deadline_us, .. } = payment;
        let Ok(account) = self.account(number) else { return };
        account.waiting.push(payment);
        if account.alarm_us == 0 || deadline_us < account.alarm_us {
            account.alarm_us = deadline_us;
            self.start(deadline_us, Request::Expire { number });
        }
    }

    /// Whether it is paid, and does not wait.
    fn pay(&mut self, payment: Payment) -> Refused<bool> {
        let Payment { from, to, amount, .. } = payment;
        self.account(to)?;
        if from != to && self.account(from)?.balance < amount {
            let account = self.account(from)?;
            if account.pending >= MAX_WAITING {
                return Err(format!("{MAX_WAITING} payments wait for money of account {from} already"));
            }
            account.pending += 1;
            self.wait(payment);
            return Ok(false);
        }
        self.transfer(from, to, amount).map(|()| true)
    }

    /// A payment that has waited is tried again. If that ends it, its client has the right reply, if any.
    fn settle(&mut self, payment: Payment) -> Refused<()> {
        let Payment { from, to, amount, deadline_us, .. } = payment;
        let is_paid = self.transfer(from, to, amount).is_ok();
        if !is_paid && self.now_us < deadline_us {
            self.wait(payment);
            return Ok(());
        }
        if let Ok(account) = self.account(from) {
            account.pending -= 1;
        }
        let right: &[u8] = if is_paid { b"+PAID\r\n" } else { b"+NOT_PAID\r\n" };
        self.paid.remove(&amount).map_or(Ok(()), |reply| same_bytes(right, &reply))
    }

    fn expire(&mut self, number: u32) {
        let now_us = self.now_us;
        let is_current = self.account(number).is_ok_and(|account| {
            let rings = account.alarm_us != 0 && account.alarm_us <= now_us;
            account.alarm_us *= u64::from(!rings);
            rings
        });
        if is_current && self.flaw != Some(Flaw::WaitsForEver) {
            self.notify(number);
        }
    }

    fn set_interest(&mut self, rate: u32, seconds: u64) {
        (self.rate, self.period_us) = (rate, seconds * 1_000_000);
        if rate > 0 && (!self.is_ticking || self.flaw == Some(Flaw::TicksTwice)) {
            self.is_ticking = true;
            self.start(self.now_us + self.period_us, Request::Tick);
        }
    }

    fn tick(&mut self) {
        self.is_ticking = self.rate > 0;
        if self.is_ticking {
            if self.flaw != Some(Flaw::TicksOnce) {
                self.start(self.now_us + self.period_us, Request::Tick);
            }
            let rate = self.rate;
            (0..BRANCHES).for_each(|branch| self.start(0, Request::Accrue { branch, bucket: 0, rate }));
        }
    }

    fn accrue(&mut self, branch: u32, bucket: u32, rate: u32) {
        let more = u64::from(self.flaw == Some(Flaw::OneCentMore));
        for (number, account) in &mut self.accounts {
            if number % BRANCHES == branch && number / BRANCHES % BUCKETS == bucket {
                account.balance += account.balance * u64::from(rate) / 10_000 + more;
            }
        }
        if bucket + 1 < BUCKETS {
            self.start(0, Request::Accrue { branch, bucket: bucket + 1, rate });
        }
    }

    fn sweep(&mut self, from: u32, behavior: u16) -> Refused<String> {
        let account = self.account(from)?;
        let linked = account.linked;
        let to = linked.ok_or_else(|| format!("account {from} has no linked account; use LINK"))?;
        if account.balance == 0 && behavior >= 2 {
            account.empty_sweeps += 1;
            let times = account.empty_sweeps;
            return Err(format!("account {from} has no money to sweep (asked {times} times)"));
        }
        let balance = account.balance;
        self.transfer(from, to, balance)?;
        Ok(format!(":{balance}"))
    }

    fn reply(&mut self, command: &Command, behavior: u16) -> Refused<String> {
        Ok(match *command {
            Command::Open { number, amount } => {
                if self.accounts.contains_key(&number) {
                    return Err(format!("account {number} exists already"));
                }
                self.accounts.insert(number, Account { balance: amount, ..Account::default() });
                "+OK".to_owned()
            }
            Command::Deposit { number, amount } => format!(":{}", self.deposit(number, amount)?),
            Command::Withdraw { number, amount } => format!(":{}", self.withdraw(number, amount)?),
            Command::Transfer { from, to, amount } => {
                self.transfer(from, to, amount)?;
                "+OK".to_owned()
            }
            Command::Link { from, to } => {
                if from == to {
                    return Err(SAME.to_owned());
                }
                self.account(to)?;
                self.account(from)?.linked = Some(to);
                "+OK".to_owned()
            }
            Command::Sweep { from } => self.sweep(from, behavior)?,
            Command::Balance { number } => format!(":{}", self.account(number)?.balance),
            Command::Total => {
                format!(":{}", self.accounts.values().map(|account| account.balance).sum::<u64>())
            }
            Command::Pay { from, to, amount, seconds } => {
                let deadline_us = self.now_us + seconds * 1_000_000;
                let payment = Payment { from, to, amount, deadline_us, owed: Owed::NOTHING };
                if self.pay(payment)? { "+PAID".to_owned() } else { WAITS.to_owned() }
            }
            Command::Waiting { number } => format!(":{}", self.account(number)?.pending),
            Command::Interest { rate, seconds } => {
                self.set_interest(rate, seconds);
                "+OK".to_owned()
            }
            Command::Card { number } => {
                self.account(number)?;
                String::new()
            }
        })
    }

    /// What has been due for so long that the bank must have forgotten it.
    fn forgotten(&self) -> Option<String> {
        let misses = self.flaw != Some(Flaw::MissesNothing);
        let is_late = |noticed_us: u64| misses && noticed_us + LATE_US < self.now_us;
        let late = self.awaited.iter().find(|awaited| awaited.noticed_us.is_some_and(is_late))?;
        Some(format!("{:?} has to run from {} us on", late.request, late.from_us))
    }

    fn compare_card(&mut self, number: u32, reply: &[u8]) -> Result<(), String> {
        let digits = reply.strip_prefix(b"$16\r\n").and_then(|rest| rest.strip_suffix(b"\r\n"));
        let is_card = |digits: &&[u8]| digits.len() == 16 && digits.iter().all(u8::is_ascii_digit);
        let card = digits.filter(is_card).ok_or_else(|| format!("{reply:?} is no card"))?;
        let known = self.account(number)?.card.get_or_insert_with(|| card.to_vec());
        same_bytes(known, card)
    }
}

impl ReferenceModel for Ledger {
    type Command = Command;
    type Expected = Answer;

    fn begin_batch(&mut self, time_us: u64) {
        self.now_us = time_us;
        for awaited in &mut self.awaited {
            if awaited.from_us <= time_us {
                awaited.noticed_us.get_or_insert(time_us);
            }
        }
    }

    fn apply(&mut self, command: &Command, turn: Turn) -> Answer {
        let reply = self.at(turn.time_us, |ledger| ledger.reply(command, turn.behavior));
        match (self.forgotten(), reply, command) {
            (Some(forgotten), ..) => Answer::Never(forgotten),
            (None, Ok(_), Command::Card { number }) => Answer::Card(*number),
            (None, Ok(reply), Command::Pay { amount, .. }) if reply == WAITS => Answer::Later(*amount),
            (None, Ok(reply), _) => Answer::Text(format!("{reply}\r\n")),
            (None, Err(refusal), _) => Answer::Text(format!("-ERR {refusal}\r\n")),
        }
    }

    fn compare(&mut self, expected: &Answer, _place: Place, reply: &[u8]) -> Result<(), String> {
        match expected {
            Answer::Text(text) => same_bytes(text.as_bytes(), reply),
            Answer::Card(number) => self.compare_card(*number, reply),
            Answer::Later(amount) => {
                self.paid.insert(*amount, reply.to_vec());
                Ok(())
            }
            Answer::Never(forgotten) => Err(forgotten.clone()),
        }
    }

    fn clear(&mut self) {
        *self = Ledger::new(self.flaw);
    }
}
