//! An account in release 1.

use crosscheck::object::critical;
use crosscheck::schedule::{Spawn, Waiters};

use crate::request::{Payment, Request};
use crate::state::Number;

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
    pub fn new(number: Number, owner: &str, balance: u64) -> Self {
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

    /// The shared service asks for this in behavior 2 only, which this release does not have.
    pub fn swept_empty(&mut self) -> u32 {
        unreachable!("release 1 acts as behavior 1")
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

    pub fn set_balance(&mut self, balance: u64) {
        self.balance = balance;
    }
}
