//! The bank as a service: its locks, the footprint of each request, and the handlers.

use bytes::Bytes;
use crosscheck::object::{Members, ObjectId, Reader, RegionId, Shape, genesis};
use crosscheck::schedule::{DetMutex, DetRwLock, Footprint, Locks, Retry};
use crosscheck::{Behaviors, Cx, Malformed, Owed, Service};

use crate::office::Office;
use crate::request::{Payment, Request};
use crate::resp;
use crate::state::{BRANCHES, BUCKETS, Branch, MAX_WAITING, Number, Refusal, branch_of};

/// Number of the lock behind which the [`Office`] is; those of the branches are below.
const OFFICE: RegionId = BRANCHES;
/// Cards have sixteen digits.
const CARDS: u64 = 10_000_000_000_000_000;

/// The behavior from which on an account without money cannot be swept. Release 1 answered 0.
const REFUSES_EMPTY_SWEEP: u16 = 2;

/// The result of a request: the inner error is the client's, the outer one the schedule's.
type Attempt<T> = Result<Result<T, Refusal>, Retry>;

/// The bank's state, behind its locks, and its handlers.
#[derive(Locks)]
pub struct Bank {
    branches: Vec<DetRwLock<Branch>>,
    office: DetMutex<Office>,
}

impl Bank {
    /// A bank without accounts.
    pub fn new() -> Self {
        let branch = |region_id| DetRwLock::new(region_id, genesis(region_id, || Branch::new(region_id)));
        Bank {
            branches: (0..BRANCHES).map(branch).collect(),
            office: DetMutex::new(OFFICE, genesis(OFFICE, Office::new)),
        }
    }

    fn branch(&self, number: Number) -> &DetRwLock<Branch> {
        &self.branches[branch_of(number) as usize]
    }

    fn deposit(&self, cx: &Cx<'_, Bank>, number: Number, amount: u64) -> Attempt<u64> {
        let deposited = cx.write(self.branch(number))?.deposit(number, amount);
        if deposited.is_ok() {
            self.notify(cx, number)?;
        }
        Ok(deposited)
    }

    /// Moves money over two locks. A guard is dropped before the next one is taken, because both accounts may be of one
    /// branch; the turn at the lock is kept to the end of the request. Everything is checked before anything changes.
    fn transfer(&self, cx: &Cx<'_, Bank>, from: Number, to: Number, amount: u64) -> Attempt<()> {
        if from == to {
            return Ok(Err(Refusal::SameAccount));
        }
        if let Err(refusal) = cx.read(self.branch(from))?.check_withdrawal(from, amount) {
            return Ok(Err(refusal));
        }
        if let Err(refusal) = self.deposit(cx, to, amount)? {
            return Ok(Err(refusal));
        }
        Ok(cx.write(self.branch(from))?.withdraw(from, amount).map(drop))
    }

    /// Tries the payments again that wait for money of an account.
    fn notify(&self, cx: &Cx<'_, Bank>, number: Number) -> Result<(), Retry> {
        let mut branch = cx.write(self.branch(number))?;
        match branch.account_mut(number) {
            Ok(account) if account.pending() > 0 => account.notify(cx),
            Ok(_) | Err(_) => {}
        }
        Ok(())
    }

    fn total(&self, cx: &Cx<'_, Bank>) -> Result<u64, Retry> {
        let mut total = 0;
        for branch in &self.branches {
            total += cx.read(branch)?.money();
            // The turn at this branch is not needed any more: requests that wait for it need not wait for the other
            // branches.
            cx.release_early(branch);
        }
        Ok(total)
    }

    fn set_interest(&self, cx: &Cx<'_, Bank>, rate: u32, seconds: u64) -> Result<(), Retry> {
        let first = cx.lock(&self.office)?.set(rate, seconds * 1_000_000, cx.now_us());
        first.into_iter().for_each(|time_us| cx.at(time_us, Request::Tick));
        Ok(())
    }

    /// Interest is paid bucket by bucket, so that no request holds a branch for long.
    fn tick(&self, cx: &Cx<'_, Bank>) -> Result<(), Retry> {
        let mut office = cx.lock(&self.office)?;
        let rate = office.rate();
        if let Some(next_us) = office.tick(cx.now_us()) {
            cx.at(next_us, Request::Tick);
            (0..BRANCHES).for_each(|branch| cx.spawn(Request::Accrue { branch, bucket: 0, rate }));
        }
        Ok(())
    }

    fn accrue(&self, cx: &Cx<'_, Bank>, branch: u32, bucket: u32, rate: u32) -> Result<(), Retry> {
        let Some(lock) = self.branches.get(branch as usize) else { return Ok(()) };
        cx.write(lock)?.accrue(bucket, rate);
        if bucket + 1 < BUCKETS {
            cx.spawn(Request::Accrue { branch, bucket: bucket + 1, rate });
        }
        Ok(())
    }

    fn link(&self, cx: &Cx<'_, Bank>, from: Number, to: Number) -> Attempt<()> {
        if from == to {
            return Ok(Err(Refusal::SameAccount));
        }
        if let Err(refusal) = cx.read(self.branch(to))?.account(to) {
            return Ok(Err(refusal));
        }
        Ok(cx.write(self.branch(from))?.account_mut(from).map(|account| account.link(to)))
    }

    /// Only the first account names the second one, and so the second lock: the footprint is predicted.
    fn sweep(&self, cx: &Cx<'_, Bank>, from: Number) -> Attempt<u64> {
        let account = |branch: &Branch| {
            let account = branch.account(from)?;
            Ok((account.linked().ok_or(Refusal::NoLink(from))?, account.balance()))
        };
        let (to, balance) = match account(&*cx.read(self.branch(from))?) {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if balance == 0 && cx.behavior() >= REFUSES_EMPTY_SWEEP {
            let times = cx.write(self.branch(from))?.account_mut(from).map(|account| account.swept_empty());
            return Ok(times.and_then(|times| Err(Refusal::NothingToSweep(from, times))));
        }
        Ok(self.transfer(cx, from, to, balance)?.map(|()| balance))
    }

    /// Pays at once, or lets the payment wait, and its client with it. Returns whether it was paid.
    fn pay(&self, cx: &Cx<'_, Bank>, payment: Payment) -> Attempt<bool> {
        if let Err(refusal) = cx.read(self.branch(payment.to))?.account(payment.to) {
            return Ok(Err(refusal));
        }
        match self.transfer(cx, payment.from, payment.to, payment.amount)? {
            Err(Refusal::TooLittle(..)) => {}
            paid => return Ok(paid.map(|()| true)),
        }
        let pending = match cx.read(self.branch(payment.from))?.account(payment.from) {
            Ok(account) => account.pending(),
            Err(refusal) => return Ok(Err(refusal)),
        };
        if pending >= MAX_WAITING {
            return Ok(Err(Refusal::TooManyWaiting(payment.from)));
        }
        self.wait(cx, Payment { owed: cx.owe_reply(), ..payment }, pending + 1)?;
        Ok(Ok(false))
    }

    /// A payment that has waited: it is made, waits on, or is given up. Its client gets to know what became of it.
    fn settle(&self, cx: &Cx<'_, Bank>, payment: Payment) -> Result<(), Retry> {
        let paid = self.transfer(cx, payment.from, payment.to, payment.amount)?;
        let mut branch = cx.write(self.branch(payment.from))?;
        let Ok(account) = branch.account_mut(payment.from) else { return Ok(()) };
        let pending = account.pending();
        if paid.is_ok() || payment.deadline_us <= cx.now_us() {
            account.set_pending(pending.saturating_sub(1));
            let mut reply = Vec::new();
            resp::simple(&mut reply, Ok(if paid.is_ok() { "PAID" } else { "NOT_PAID" }));
            cx.reply_to(payment.owed, &reply);
            return Ok(());
        }
        drop(branch);
        self.wait(cx, payment, pending)
    }

    /// Lets a payment wait for money; `pending` payments are pending then.
    fn wait(&self, cx: &Cx<'_, Bank>, payment: Payment, pending: u32) -> Result<(), Retry> {
        let mut branch = cx.write(self.branch(payment.from))?;
        let Ok(account) = branch.account_mut(payment.from) else { return Ok(()) };
        account.set_pending(pending);
        if let Some(time_us) = account.wait(payment) {
            cx.at(time_us, Request::Expire { number: payment.from });
        }
        Ok(())
    }

    /// The time of some payment is over: all waiting ones are tried, and that one for the last time.
    fn expire(&self, cx: &Cx<'_, Bank>, number: Number) -> Result<(), Retry> {
        let rings =
            cx.write(self.branch(number))?.account_mut(number).is_ok_and(|account| account.ring(cx.now_us()));
        if rings { self.notify(cx, number) } else { Ok(()) }
    }

    /// Random numbers are those of the log: every replica draws the same card.
    fn card(&self, cx: &Cx<'_, Bank>, number: Number) -> Attempt<u64> {
        let mut branch = cx.write(self.branch(number))?;
        let account = match branch.account_mut(number) {
            Ok(account) => account,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if account.card() == 0 {
            account.set_card(cx.rng().within(1, CARDS - 1));
        }
        Ok(Ok(account.card()))
    }
}

impl Default for Bank {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for Bank {
    type Request = Request;

    const BEHAVIORS: Behaviors = Behaviors::up_to(REFUSES_EMPTY_SWEEP);

    fn decode(&self, ordered: &Bytes) -> Result<Request, Malformed> {
        Request::decode(ordered)
    }

    fn encode(&self, request: &Request) -> Vec<u8> {
        request.encode()
    }

    fn shape_of_requests(shape: &mut Shape) {
        shape.add::<Request>();
    }

    fn footprint(&self, request: &Request, footprint: &mut Footprint) {
        match *request {
            Request::Open { number, .. }
            | Request::Deposit { number, .. }
            | Request::Withdraw { number, .. }
            | Request::Card { number }
            | Request::Expire { number } => footprint.write(branch_of(number)),
            Request::Transfer { from, to, .. }
            | Request::Pay { from, to, .. }
            | Request::Settle(Payment { from, to, .. }) => {
                footprint.write(branch_of(from));
                footprint.write(branch_of(to));
            }
            Request::Balance { number } | Request::Waiting { number } => footprint.read(branch_of(number)),
            Request::Total => (0..BRANCHES).for_each(|branch| footprint.read(branch)),
            Request::Interest { .. } | Request::Tick => footprint.write(OFFICE),
            Request::Accrue { branch, .. } => footprint.write(branch),
            Request::Link { from, to } => {
                footprint.write(branch_of(from));
                footprint.read(branch_of(to));
            }
            Request::Sweep { from } => {
                footprint.write(branch_of(from));
                footprint.predict(from);
            }
        }
    }

    fn execute(&self, cx: &Cx<'_, Bank>, request: &Request, reply: &mut Vec<u8>) -> Result<(), Retry> {
        match *request {
            Request::Open { number, ref owner, amount } => {
                let opened = cx.write(self.branch(number))?.open(number, owner, amount);
                resp::done(reply, opened);
            }
            Request::Deposit { number, amount } => resp::integer(reply, self.deposit(cx, number, amount)?),
            Request::Withdraw { number, amount } => {
                resp::integer(reply, cx.write(self.branch(number))?.withdraw(number, amount));
            }
            Request::Transfer { from, to, amount } => {
                resp::done(reply, self.transfer(cx, from, to, amount)?);
            }
            Request::Balance { number } => {
                let branch = cx.read(self.branch(number))?;
                resp::integer(reply, branch.account(number).map(|account| account.balance()));
            }
            Request::Total => resp::integer(reply, Ok(self.total(cx)?)),
            Request::Interest { rate, seconds } => {
                resp::done(reply, Ok(self.set_interest(cx, rate, seconds)?));
            }
            Request::Link { from, to } => resp::done(reply, self.link(cx, from, to)?),
            Request::Sweep { from } => resp::integer(reply, self.sweep(cx, from)?),
            Request::Pay { from, to, amount, seconds } => {
                let deadline_us = cx.now_us().saturating_add(seconds * 1_000_000);
                let payment = Payment { from, to, amount, deadline_us, owed: Owed::NOTHING };
                match self.pay(cx, payment)? {
                    // The reply is owed.
                    Ok(false) => {}
                    paid => resp::simple(reply, paid.map(|_| "PAID")),
                }
            }
            Request::Waiting { number } => {
                let branch = cx.read(self.branch(number))?;
                resp::integer(reply, branch.account(number).map(|account| u64::from(account.pending())));
            }
            Request::Card { number } => {
                resp::bulk(reply, self.card(cx, number)?.map(|card| format!("{card:016}")));
            }
            Request::Tick => self.tick(cx)?,
            Request::Accrue { branch, bucket, rate } => self.accrue(cx, branch, bucket, rate)?,
            Request::Settle(payment) => self.settle(cx, payment)?,
            Request::Expire { number } => self.expire(cx, number)?,
        }
        Ok(())
    }

    fn panicked(&self, _request: &Request, reply: &mut Vec<u8>) {
        resp::error(reply, "internal error; nothing was changed");
    }

    fn kind(&self, request: &Request) -> u16 {
        request.kind()
    }

    fn kind_name(kind: u16) -> Option<&'static str> {
        Request::kind_name(kind)
    }

    fn name_of(object: &Members<'_>) -> Option<String> {
        let number = || Reader::new(object.get("number")?).u32().ok();
        match object.class {
            "Account" => number().map(|number| format!("account {number}")),
            "Branch" => number().map(|number| format!("branch {number}")),
            "Office" => Some("office".to_owned()),
            _ => None,
        }
    }

    fn region_id_of(&self, name: &str) -> Option<RegionId> {
        match name.split_once(':') {
            Some(("account", number)) => number.parse().ok().map(branch_of),
            Some(("branch", branch)) => branch.parse().ok().filter(|branch| *branch < BRANCHES),
            _ => (name == "office").then_some(OFFICE),
        }
    }

    fn find(&self, cx: &Cx<'_, Bank>, name: &str) -> Option<ObjectId> {
        let region_id = self.region_id_of(name)?;
        let Some(branch) = self.branches.get(region_id as usize) else {
            return Some(cx.lock(&self.office).ok()?.object_id());
        };
        let branch = cx.read(branch).ok()?;
        match name.split_once(':')? {
            ("account", number) => branch.object_of(number.parse().ok()?),
            _ => Some(branch.object_id()),
        }
    }
}
