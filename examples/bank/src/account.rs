//! An account: a critical struct, whose members are others in release 2 than in release 1.

use crosscheck::object::critical;
use crosscheck::schedule::{Spawn, Waiters};

use crate::request::{Payment, Request};
use crate::state::Number;

/// One account.
#[critical(version = 2)]
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
    /// How often it was to be swept, and had no money.
    #[since(2, default = 0)]
    empty_sweeps: u32,
}

#[critical]
impl Account {
    /// An account with this balance, in cents.
    pub fn new(number: Number, owner: &str, balance: u64) -> Self {
        let owner = owner.to_owned();
        let waiting = Waiters::new();
        let (card, linked, pending, alarm_us, empty_sweeps) = (0, 0, 0, 0, 0);
        Self { number, owner, balance, card, linked, pending, waiting, alarm_us, empty_sweeps }
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

    /// It was to be swept, and had no money; returns how often.
    pub fn swept_empty(&mut self) -> u32 {
        self.empty_sweeps = self.empty_sweeps.saturating_add(1);
        self.empty_sweeps
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

    /// Sets its balance; the branch counts all money.
    pub fn set_balance(&mut self, balance: u64) {
        self.balance = balance;
    }
}
