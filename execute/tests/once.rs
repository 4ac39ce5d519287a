//! One handler from its scope to its seal: what each end leaves behind, and what each protection is for.

use std::cell::RefCell;
use std::sync::Arc;

use execute::{Between, End, Protection, once};
use object::{Injection, ObjectId, Region, critical, genesis};
use schedule::{Access, Config, Cx, DetMutex, Entry, Footprint, Lock, Lot, Mode, Retry, Work, Worker};

#[critical]
struct Account {
    balance: u64,
    owner: String,
}

#[critical]
impl Account {
    fn new(owner: &str) -> Self {
        Self { balance: 100, owner: owner.to_owned() }
    }

    fn balance(&self) -> u64 {
        self.balance
    }

    fn pay_in(&mut self, amount: u64) {
        self.balance += amount;
    }
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Read,
    PayIn(u64),
    PayInThenPanic(u64),
    PayInThenOther(u64),
}

const FULL: Protection = Protection { guard: true, undo: true };
const BARE: Protection = Protection { guard: false, undo: true };

/// Two accounts behind two locks, and a schedule of one worker.
struct Bank {
    accounts: [DetMutex<Account>; 2],
    lot: Lot<Request>,
    worker: RefCell<Worker<Request>>,
    next: u64,
}

struct Ran {
    end: End,
    reply: String,
}

impl Bank {
    fn new() -> Self {
        let config = Config { mode: Mode::Sequential, lag: 4, ..Config::new(1, 2) };
        let (lot, mut workers) =
            schedule::open(config, |_: &Request, footprint: &mut Footprint| footprint.write(0));
        let accounts = ["ada", "bob"].map(|owner| genesis(0, || Account::new(owner)));
        let [ada, bob] = accounts;
        let worker = RefCell::new(workers.remove(0));
        Bank { accounts: [DetMutex::new(0, ada), DetMutex::new(1, bob)], lot, worker, next: 1 }
    }

    fn run(&mut self, request: Request, protection: Protection, between: &impl Between) -> Ran {
        let work = Work { request, footprint: Footprint::one(0), stream: None };
        let entry =
            Entry { index: self.next, time_us: self.next, seed: 0, drain: true, requests: vec![work] };
        self.next += 1;
        self.lot.append(Arc::new(entry));
        let locks: [&dyn Lock; 2] = [&self.accounts[0], &self.accounts[1]];
        let mut reply = Vec::new();
        let mut worker = self.worker.borrow_mut();
        let mut turn = worker.next_blocking().expect("the entry runs");
        let (end, outcome) =
            once(&mut turn, &locks, protection, &mut reply, between, |cx, request, reply| {
                handle(&self.accounts, cx, *request, reply)
            });
        turn.finish(outcome);
        Ran { end, reply: String::from_utf8(reply).unwrap() }
    }

    fn damage(&mut self) {
        let account = self.accounts[0].get_mut();
        let id = account.root();
        account
            .inject(id, &Injection::Flip { member: Some(0), bit: Some(3), seed: 0 })
            .expect("the flip fits");
    }
}

fn handle(
    accounts: &[DetMutex<Account>; 2],
    cx: &Cx<'_>,
    request: Request,
    reply: &mut Vec<u8>,
) -> Result<(), Retry> {
    let mut account = cx.lock(&accounts[0])?;
    match request {
        Request::Read => {}
        Request::PayIn(amount) | Request::PayInThenPanic(amount) | Request::PayInThenOther(amount) => {
            account.pay_in(amount);
        }
    }
    reply.extend_from_slice(account.balance().to_string().as_bytes());
    match request {
        Request::PayInThenPanic(_) => panic!("a bug in the handler"),
        Request::PayInThenOther(_) => drop(cx.lock(&accounts[1])?),
        Request::Read | Request::PayIn(_) => {}
    }
    Ok(())
}

fn sum_of(ran: &Ran) -> u64 {
    match &ran.end {
        End::Done(touched) => touched.pairs().first().expect("the account was touched").sum,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_state_delta_holds_the_sum_after_the_change() {
    let mut bank = Bank::new();
    let before = sum_of(&bank.run(Request::Read, FULL, &()));
    let paid = bank.run(Request::PayIn(5), FULL, &());
    assert_eq!(paid.reply, "105");
    let after = sum_of(&bank.run(Request::Read, FULL, &()));
    assert_ne!(before, sum_of(&paid), "the seal renews the sum");
    assert_eq!(sum_of(&paid), after, "and the next request finds it so");
}

#[test]
fn a_flip_in_a_resting_object_stops_the_request_and_names_the_object() {
    let mut bank = Bank::new();
    bank.damage();
    let ran = bank.run(Request::PayIn(1), FULL, &());
    let End::Corrupted(corrupted, wrong) = ran.end else { panic!("{:?}", ran.end) };
    assert_eq!(wrong, [(0, corrupted.object)]);
    assert_eq!(ran.reply, "", "nothing of the reply is left");
}

#[test]
fn without_the_entry_check_the_same_flip_reaches_the_reply() {
    let mut bank = Bank::new();
    bank.damage();
    assert_eq!(bank.run(Request::Read, BARE, &()).reply, (100 ^ 8).to_string());
}

/// Flips a bit of the account after the handler and before the seal.
struct Strike;

impl Between for Strike {
    fn before_seal(&self, _lock: u32, access: &mut Access<'_>) {
        if let Access::Exclusive(region) = access {
            let id: ObjectId = region.root();
            region
                .inject(id, &Injection::Flip { member: Some(0), bit: Some(1), seed: 0 })
                .expect("the flip fits");
        }
    }
}

#[test]
fn a_flip_before_the_seal_is_in_the_delta_so_that_replicas_disagree() {
    let (mut healthy, mut struck) = (Bank::new(), Bank::new());
    let right = healthy.run(Request::PayIn(5), FULL, &());
    let wrong = struck.run(Request::PayIn(5), FULL, &Strike);
    assert_eq!(right.reply, wrong.reply, "the reply was rendered before");
    assert_ne!(sum_of(&right), sum_of(&wrong));
}

#[test]
fn a_panic_is_undone() {
    let mut bank = Bank::new();
    let before = sum_of(&bank.run(Request::Read, FULL, &()));
    let ran = bank.run(Request::PayInThenPanic(7), FULL, &());
    assert!(matches!(ran.end, End::Panicked), "{:?}", ran.end);
    assert_eq!(ran.reply, "");
    let after = bank.run(Request::Read, FULL, &());
    assert_eq!((after.reply.as_str(), sum_of(&after)), ("100", before));
}

#[test]
fn a_lock_outside_the_footprint_is_undone_and_asked_for() {
    let mut bank = Bank::new();
    let ran = bank.run(Request::PayInThenOther(7), FULL, &());
    assert!(matches!(ran.end, End::Retry(retry) if retry.lock() == 1), "{:?}", ran.end);
    assert_eq!(bank.accounts[0].get_mut().balance(), 100);
}
