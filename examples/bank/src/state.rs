//! The bank's state: critical structs. Each instance is an object with a checksum.
//!
//! A request pays for whole objects: one that is read is checked as a whole, one that is changed is also summed as
//! a whole. So an account is an object, and the index of a branch is cut into buckets instead of being one long list.

use std::fmt;

use crosscheck::object::{ObjectId, Ref, Store, critical};
use crosscheck::schedule::{Spawn, Waiters};

use crate::request::{Payment, Request};

/// Number of an account, from 1.
pub type Number = u32;

/// Branches of the bank, each behind a lock of its own.
pub const BRANCHES: u32 = 8;
/// Buckets of a branch's index.
pub const BUCKETS: u32 = 64;
/// Accounts in one bucket at most.
pub const BUCKET_ACCOUNTS: usize = 1_000;
/// Largest balance of one account, in cents.
pub const MAX_BALANCE: u64 = 10_000_000_000_000;
/// Payments that may wait for money of one account.
pub const MAX_WAITING: u32 = 16;

// The money of a branch, and the total of the bank, can be counted, and answered as a RESP integer.
const _: () =
    assert!(MAX_BALANCE as u128 * BUCKET_ACCOUNTS as u128 * (BUCKETS * BRANCHES) as u128 <= i64::MAX as u128);

/// Why the bank refuses a request. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such account.
    NoAccount(Number),
    /// There is one already.
    Exists(Number),
    /// The account has too little money.
    TooLittle(Number, u64),
    /// The account would have more than [`MAX_BALANCE`].
    TooMuch(Number),
    /// The index has no place for another account.
    Full,
    /// Payer and payee are one account.
    SameAccount,
    /// The account has no linked one.
    NoLink(Number),
    /// The account that is to be swept has no money.
    NothingToSweep(Number),
    /// [`MAX_WAITING`] payments wait for money of this account.
    TooManyWaiting(Number),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoAccount(number) => write!(f, "account {number} does not exist"),
            Refusal::Exists(number) => write!(f, "account {number} exists already"),
            Refusal::TooLittle(number, balance) => {
                write!(f, "insufficient funds: account {number} has {balance}")
            }
            Refusal::TooMuch(number) => {
                write!(f, "account {number} would have more than {MAX_BALANCE}, the largest balance")
            }
            Refusal::Full => write!(f, "no place for another account with such a number; use another one"),
            Refusal::SameAccount => write!(f, "payer and payee are the same account"),
            Refusal::NoLink(number) => write!(f, "account {number} has no linked account; use LINK"),
            Refusal::NothingToSweep(number) => write!(f, "account {number} has no money to sweep"),
            Refusal::TooManyWaiting(number) => {
                write!(f, "{MAX_WAITING} payments wait for money of account {number} already")
            }
        }
    }
}

/// One account.
#[critical]
pub struct Account {
    number: Number,
    owner: String,
    balance: u64,
    /// Number of its card; 0 for none.
    card: u64,
    /// Where its money is swept to; 0 for nowhere.
    linked: Number,
    /// Payments that wait for money, or that are being tried again just now.
    pending: u32,
    /// Those that wait, the longest waiting first.
    waiting: Waiters<Request>,
    /// The time of a timer that ends waits; 0 for none.
    alarm_us: u64,
}

#[critical]
impl Account {
    fn new(number: Number, owner: &str, balance: u64) -> Self {
        let owner = owner.to_owned();
        let waiting = Waiters::new();
        Self { number, owner, balance, card: 0, linked: 0, pending: 0, waiting, alarm_us: 0 }
    }

    /// Cents on the account.
    pub fn balance(&self) -> u64 {
        self.balance
    }

    /// Number of its card; 0 for none.
    pub fn card(&self) -> u64 {
        self.card
    }

    /// Gives it a card.
    pub fn set_card(&mut self, card: u64) {
        self.card = card;
    }

    /// Where its money is swept to.
    pub fn linked(&self) -> Option<Number> {
        (self.linked != 0).then_some(self.linked)
    }

    /// Sets the account that its money is swept to.
    pub fn link(&mut self, to: Number) {
        self.linked = to;
    }

    /// How many payments wait for money.
    pub fn pending(&self) -> u32 {
        self.pending
    }

    /// A payment more is pending, or one less.
    pub fn set_pending(&mut self, pending: u32) {
        self.pending = pending;
    }

    /// Lets a payment wait. Returns the time of the timer that has to end the wait, unless an earlier one is set.
    pub fn wait(&mut self, payment: Payment) -> Option<u64> {
        self.waiting.wait(Request::Settle(payment));
        let is_first = self.alarm_us == 0 || payment.deadline_us < self.alarm_us;
        is_first.then(|| self.alarm_us = payment.deadline_us)?;
        Some(payment.deadline_us)
    }

    /// Starts all payments that wait, to be tried again.
    pub fn notify(&mut self, cx: &impl Spawn<Request>) {
        self.waiting.notify_all(cx);
    }

    /// A timer has fired; returns whether it was the current one.
    pub fn ring(&mut self, now_us: u64) -> bool {
        let rings = self.alarm_us != 0 && self.alarm_us <= now_us;
        if rings {
            self.alarm_us = 0;
        }
        rings
    }

    fn set_balance(&mut self, balance: u64) {
        self.balance = balance;
    }
}

/// A part of a branch's index: accounts whose numbers have the same remainder.
#[critical]
pub struct Bucket {
    /// Sorted by number.
    accounts: Vec<(Number, Ref<Account>)>,
}

#[critical]
impl Bucket {
    fn new() -> Self {
        Self { accounts: Vec::new() }
    }

    fn find(&self, number: Number) -> Option<Ref<Account>> {
        let at = self.accounts.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.accounts[at].1)
    }

    fn is_full(&self) -> bool {
        self.accounts.len() >= BUCKET_ACCOUNTS
    }

    fn insert(&mut self, number: Number, account: Ref<Account>) {
        let at = self.accounts.partition_point(|(other, _)| *other < number);
        self.accounts.insert(at, (number, account));
    }

    fn all(&self) -> Vec<Ref<Account>> {
        self.accounts.iter().map(|(_, account)| *account).collect()
    }
}

/// The state behind one lock: the accounts whose numbers have the same remainder.
#[critical]
pub struct Branch {
    number: u32,
    /// Cents on all its accounts.
    money: u64,
    directory: Vec<Ref<Bucket>>,
    buckets: Store<Bucket>,
    accounts: Store<Account>,
}

#[critical]
impl Branch {
    /// A branch without accounts.
    pub fn new(number: u32) -> Self {
        let mut buckets = Store::new();
        let directory = (0..BUCKETS).map(|_| buckets.insert(Bucket::new())).collect();
        Self { number, money: 0, directory, buckets, accounts: Store::new() }
    }

    /// Cents on all its accounts.
    pub fn money(&self) -> u64 {
        self.money
    }

    /// The account, checked.
    ///
    /// # Errors
    /// [`Refusal::NoAccount`].
    pub fn account(&self, number: Number) -> Result<&Account, Refusal> {
        let found = self.find(number).ok_or(Refusal::NoAccount(number))?;
        Ok(self.accounts.expect(found))
    }

    /// The account, checked, to change anything but its balance.
    ///
    /// # Errors
    /// [`Refusal::NoAccount`].
    pub fn account_mut(&mut self, number: Number) -> Result<&mut Account, Refusal> {
        let found = self.find(number).ok_or(Refusal::NoAccount(number))?;
        Ok(self.accounts.expect_mut(found))
    }

    /// Name of the account's object, for an operator.
    pub fn object_of(&self, number: Number) -> Option<ObjectId> {
        self.find(number).map(Ref::id)
    }

    /// Opens an account.
    ///
    /// # Errors
    /// [`Refusal::Exists`], [`Refusal::Full`], [`Refusal::TooMuch`].
    pub fn open(&mut self, number: Number, owner: &str, amount: u64) -> Result<(), Refusal> {
        let bucket = self.directory[bucket_of(number)];
        if self.find(number).is_some() {
            return Err(Refusal::Exists(number));
        }
        if self.buckets.expect(bucket).is_full() {
            return Err(Refusal::Full);
        }
        if amount > MAX_BALANCE {
            return Err(Refusal::TooMuch(number));
        }
        let account = self.accounts.insert(Account::new(number, owner, amount));
        self.buckets.expect_mut(bucket).insert(number, account);
        self.money += amount;
        Ok(())
    }

    /// The balance of an account after a deposit.
    ///
    /// # Errors
    /// [`Refusal::NoAccount`], [`Refusal::TooMuch`].
    pub fn check_deposit(&self, number: Number, amount: u64) -> Result<u64, Refusal> {
        let balance = self.account(number)?.balance().checked_add(amount);
        balance.filter(|balance| *balance <= MAX_BALANCE).ok_or(Refusal::TooMuch(number))
    }

    /// The balance of an account after a withdrawal.
    ///
    /// # Errors
    /// [`Refusal::NoAccount`], [`Refusal::TooLittle`].
    pub fn check_withdrawal(&self, number: Number, amount: u64) -> Result<u64, Refusal> {
        let balance = self.account(number)?.balance();
        balance.checked_sub(amount).ok_or(Refusal::TooLittle(number, balance))
    }

    /// Pays money in; returns the new balance.
    ///
    /// # Errors
    /// As [`Branch::check_deposit`].
    pub fn deposit(&mut self, number: Number, amount: u64) -> Result<u64, Refusal> {
        let balance = self.check_deposit(number, amount)?;
        self.account_mut(number)?.set_balance(balance);
        self.money += amount;
        Ok(balance)
    }

    /// Takes money out; returns the new balance.
    ///
    /// # Errors
    /// As [`Branch::check_withdrawal`].
    pub fn withdraw(&mut self, number: Number, amount: u64) -> Result<u64, Refusal> {
        let balance = self.check_withdrawal(number, amount)?;
        self.account_mut(number)?.set_balance(balance);
        self.money -= amount;
        Ok(balance)
    }

    /// Pays interest of `rate` hundredths of a percent to the accounts of a bucket, up to [`MAX_BALANCE`] each.
    pub fn accrue(&mut self, bucket: u32, rate: u32) {
        let Some(bucket) = self.directory.get(bucket as usize) else { return };
        for account in self.buckets.expect(*bucket).all() {
            let account = self.accounts.expect_mut(account);
            let interest = account.balance() * u64::from(rate) / 10_000;
            let balance = account.balance().saturating_add(interest).min(MAX_BALANCE);
            if balance > account.balance() {
                self.money += balance - account.balance();
                account.set_balance(balance);
            }
        }
    }

    fn find(&self, number: Number) -> Option<Ref<Account>> {
        self.buckets.expect(self.directory[bucket_of(number)]).find(number)
    }
}

/// The settings of the whole bank. It is small and seldom changes, so a copy of it costs little: a flipped bit is
/// repaired on the spot.
#[critical(copy)]
pub struct Office {
    /// Interest per period, in hundredths of a percent; 0 for none.
    rate: u32,
    period_us: u64,
    /// A [`crate::Request::Tick`] is on its way.
    is_ticking: bool,
}

#[critical]
impl Office {
    /// No interest.
    #[allow(clippy::new_without_default, reason = "an office is made once, at the genesis")]
    pub fn new() -> Self {
        Self { rate: 0, period_us: 0, is_ticking: false }
    }

    /// Interest per period, in hundredths of a percent.
    pub fn rate(&self) -> u32 {
        self.rate
    }

    /// Sets the interest. Returns the time of the first tick, unless one is on its way.
    pub fn set(&mut self, rate: u32, period_us: u64, now_us: u64) -> Option<u64> {
        (self.rate, self.period_us) = (rate, period_us);
        let starts = rate > 0 && !self.is_ticking;
        self.is_ticking |= starts;
        starts.then_some(now_us + period_us)
    }

    /// A period is over; returns the time of the next tick.
    pub fn tick(&mut self, now_us: u64) -> Option<u64> {
        self.is_ticking = self.rate > 0;
        self.is_ticking.then_some(now_us + self.period_us)
    }
}

/// The branch of an account: the number of its lock.
pub fn branch_of(number: Number) -> u32 {
    number % BRANCHES
}

fn bucket_of(number: Number) -> usize {
    (number / BRANCHES % BUCKETS) as usize
}
