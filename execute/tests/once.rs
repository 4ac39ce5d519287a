//! One handler from its scope to its seal: the effects of each end, and of each protection.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use execute::{Between, End, Protection, Reproduced, Runner};
use object::{Injection, ObjectId, Region, critical, genesis};
use schedule::{
    Access, Config, Cx, DetMutex, Entry, Footprint, Lock, LockRules, Outcome, Retry, Schedule, Turn, Work,
    Worker,
};

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
    PayInBoth(u64),
}

const FULL: Protection = Protection { guard: true, undo: true };
const BARE: Protection = Protection { guard: false, undo: true };

/// Two accounts behind two locks, and a schedule of one worker.
struct Bank {
    accounts: [DetMutex<Account>; 2],
    schedule: Schedule<Request>,
    worker: RefCell<Worker<Request>>,
    next: u64,
}

struct Ran {
    end: End,
    reply: String,
}

impl Bank {
    fn new() -> Self {
        let config = Config { mode: LockRules::Sequential, lag: 4, ..Config::new(1, 2) };
        let (schedule, mut workers) =
            schedule::open(config, |_: &Request, footprint: &mut Footprint| footprint.write(0));
        let accounts = [genesis(0, || Account::new("ada")), genesis(1, || Account::new("bob"))];
        let [ada, bob] = accounts;
        let worker = RefCell::new(workers.remove(0));
        Bank { accounts: [DetMutex::new(0, ada), DetMutex::new(1, bob)], schedule, worker, next: 1 }
    }

    fn run(&mut self, request: Request, protection: Protection, between: &impl Between) -> Ran {
        self.with_turn(request, |turn, locks, accounts| {
            let mut reply = Vec::new();
            let runner = Runner { locks, protection, between };
            let (end, outcome) =
                runner.once(turn, &mut reply, |cx, request, reply| handle(accounts, cx, *request, reply));
            (Ran { end, reply: String::from_utf8(reply).unwrap() }, outcome)
        })
    }

    /// Runs it until two runs agree; also returns how often the handler ran, and how often it was counted.
    fn reproduce(&mut self, request: Request, between: &impl Between) -> (Ran, Reproduced, u32, u32) {
        let (runs, counted) = (Cell::new(0), Cell::new(0));
        let (ran, how) = self.with_turn(request, |turn, locks, accounts| {
            let mut reply = Vec::new();
            let handler = |cx: &Cx<'_, Request>, request: &Request, reply: &mut Vec<u8>| {
                runs.set(runs.get() + 1);
                counted.set(counted.get() + u32::from(cx.is_counted()));
                handle(accounts, cx, *request, reply)
            };
            let runner = Runner { locks, protection: FULL, between };
            let (end, outcome, how) = runner.reproduced(turn, &mut reply, handler);
            ((Ran { end, reply: String::from_utf8(reply).unwrap() }, how), outcome)
        });
        (ran, how, runs.get(), counted.get())
    }

    fn with_turn<T>(
        &mut self,
        request: Request,
        perform: impl FnOnce(&mut Turn<'_, Request>, &[&dyn Lock], &[DetMutex<Account>; 2]) -> (T, Outcome),
    ) -> T {
        let mut footprint = Footprint::one(0);
        if let Request::PayInBoth(_) = request {
            footprint.write(1);
        }
        let work = Work { request, footprint, stream: None };
        let entry =
            Entry { index: self.next, time_us: self.next, seed: 0, drain: true, requests: vec![work] };
        self.next += 1;
        self.schedule.append(Arc::new(entry));
        let locks: [&dyn Lock; 2] = [&self.accounts[0], &self.accounts[1]];
        let mut worker = self.worker.borrow_mut();
        let mut turn = worker.next_blocking().expect("the entry runs");
        let (told, outcome) = perform(&mut turn, &locks, &self.accounts);
        turn.finish(outcome);
        told
    }

    fn damage(&mut self) {
        self.damage_behind(0);
    }

    fn damage_behind(&mut self, lock: usize) {
        let account = self.accounts[lock].get_mut();
        let id = account.root();
        account
            .inject(id, &Injection::Flip { member: Some(0), bit: Some(3), seed: 0 })
            .expect("the flip fits");
    }
}

fn handle(
    accounts: &[DetMutex<Account>; 2],
    cx: &Cx<'_, Request>,
    request: Request,
    reply: &mut Vec<u8>,
) -> Result<(), Retry> {
    let mut account = cx.lock(&accounts[0])?;
    match request {
        Request::Read => {}
        Request::PayIn(amount)
        | Request::PayInThenPanic(amount)
        | Request::PayInThenOther(amount)
        | Request::PayInBoth(amount) => account.pay_in(amount),
    }
    reply.extend_from_slice(account.balance().to_string().as_bytes());
    match request {
        Request::PayInThenPanic(_) => panic!("a bug in the handler"),
        Request::PayInThenOther(_) => drop(cx.lock(&accounts[1])?),
        Request::PayInBoth(amount) => cx.lock(&accounts[1])?.pay_in(amount),
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

/// Found by the simulation's checker of blamed objects: a lock that was searched before the right one was named as
/// well.
#[test]
fn a_damaged_object_is_named_behind_its_own_lock_only() {
    let mut bank = Bank::new();
    bank.damage_behind(1);
    let ran = bank.run(Request::PayInBoth(1), FULL, &());
    let End::Corrupted(corrupted, wrong) = ran.end else { panic!("{:?}", ran.end) };
    assert_eq!(wrong, [(1, corrupted.object)]);
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

/// Injects a fault in those runs of a request whose numbers it has, each time in another bit.
struct StrikeIn(&'static [u32], Cell<u32>);

impl Between for StrikeIn {
    fn before_seal(&self, _lock: u32, access: &mut Access<'_>) {
        let run = self.1.get();
        self.1.set(run + 1);
        if let (true, Access::Exclusive(region)) = (self.0.contains(&run), access) {
            let flip = Injection::Flip { member: Some(0), bit: Some(u64::from(run) + 1), seed: 0 };
            region.inject(region.root(), &flip).expect("the flip fits");
        }
    }
}

#[test]
fn a_request_that_is_run_twice_takes_effect_once() {
    let (mut once, mut twice) = (Bank::new(), Bank::new());
    let right = once.run(Request::PayIn(5), FULL, &());
    let (ran, how, runs, counted) = twice.reproduce(Request::PayIn(5), &());
    assert_eq!((how, runs, counted), (Reproduced::Same, 2, 1));
    assert_eq!((ran.reply.as_str(), sum_of(&ran)), ("105", sum_of(&right)));
    assert_eq!(twice.run(Request::Read, FULL, &()).reply, "105");
}

#[test]
fn a_fault_in_any_single_run_is_masked() {
    for struck in [&[0][..], &[1], &[2]] {
        let (mut healthy, mut bank) = (Bank::new(), Bank::new());
        let right = healthy.run(Request::PayIn(5), FULL, &());
        let (ran, how, ..) = bank.reproduce(Request::PayIn(5), &StrikeIn(struck, Cell::new(0)));
        let expected = if struck == [2] { Reproduced::Same } else { Reproduced::Masked };
        assert_eq!(how, expected, "struck in run {struck:?}");
        assert_eq!((ran.reply.as_str(), sum_of(&ran)), ("105", sum_of(&right)));
        assert_eq!(bank.run(Request::Read, FULL, &()).reply, "105");
    }
}

#[test]
fn without_two_runs_that_agree_nothing_is_kept() {
    let mut bank = Bank::new();
    let before = sum_of(&bank.run(Request::Read, FULL, &()));
    let (ran, how, ..) = bank.reproduce(Request::PayIn(5), &StrikeIn(&[0, 1], Cell::new(0)));
    assert_eq!((how, ran.reply.as_str()), (Reproduced::Never, ""));
    assert!(matches!(ran.end, End::Unreproducible), "{:?}", ran.end);
    let after = bank.run(Request::Read, FULL, &());
    assert_eq!((after.reply.as_str(), sum_of(&after)), ("100", before));
}

#[test]
fn panics_and_misses_are_reproduced_too() {
    let mut bank = Bank::new();
    let (ran, how, runs, _) = bank.reproduce(Request::PayInThenPanic(7), &());
    assert!(matches!(ran.end, End::Panicked), "{:?}", ran.end);
    assert_eq!((how, runs), (Reproduced::Same, 2));
    let (ran, how, ..) = bank.reproduce(Request::PayInThenOther(7), &());
    assert!(matches!(ran.end, End::Retry(retry) if retry.lock() == 1), "{:?}", ran.end);
    assert_eq!(how, Reproduced::Same);
    bank.damage();
    let (ran, how, runs, _) = bank.reproduce(Request::Read, &());
    assert!(matches!(ran.end, End::Corrupted(..) | End::Retry(_)), "{:?}", ran.end);
    assert_eq!((how, runs), (Reproduced::Stopped, 1));
}
