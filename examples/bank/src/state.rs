//! The branches of the bank: critical structs. Each instance is an object with a checksum.
//!
//! A request pays for whole objects: one that is read is checked as a whole, one that is changed is also summed as
//! a whole. So an account is an object, and the index of a branch is cut into buckets instead of being one long list.

use std::fmt;

use crosscheck::object::{ObjectId, Ref, Store, critical};

use crate::account::Account;

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
    /// The account that is to be swept has no money, and this has been asked so many times.
    NothingToSweep(Number, u32),
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
            Refusal::NothingToSweep(number, times) => {
                write!(f, "account {number} has no money to sweep (asked {times} times)")
            }
            Refusal::TooManyWaiting(number) => {
                write!(f, "{MAX_WAITING} payments wait for money of account {number} already")
            }
        }
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

/// The branch of an account: the number of its lock.
pub fn branch_of(number: Number) -> u32 {
    number % BRANCHES
}

fn bucket_of(number: Number) -> usize {
    (number / BRANCHES % BUCKETS) as usize
}
