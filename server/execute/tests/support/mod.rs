//! A bank of two accounts whose requests run in turns of one worker.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use execute::{End, Protection, ReadEnd, Regions, Repeat, Reproduced, Runner, SealHook, Stopped};
use object::{Injection, Kept, Protect, Region, RegionId, critical, genesis};
use schedule::{
    Access, BatchRow, Config, Cx, DetMutex, Entry, Footprint, Lock, LockRules, Outcome, Retry, Schedule,
    Turn, Worker,
};
use vote::{Pairs, RequestInfo, RequestResult, RunDigests, digest};

#[critical]
pub struct Account {
    balance: u64,
    owner: String,
}

#[critical]
impl Account {
    fn new(owner: &str) -> Self {
        Self { balance: 100, owner: owner.to_owned() }
    }

    pub fn balance(&self) -> u64 {
        self.balance
    }

    fn pay_in(&mut self, amount: u64) {
        self.balance += amount;
    }
}

/// A request, as a client's bytes are decoded.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    Read,
    PayIn(u64),
    PayInThenPanic(u64),
    PayInThenOther(u64),
    PayInBoth(u64),
    /// Pays in, and starts a request that pays in again.
    PayInTwice(u64),
}

impl Request {
    /// Its ordered bytes.
    pub fn encode(self) -> [u8; 9] {
        let (kind, amount) = match self {
            Request::Read => (0, 0),
            Request::PayIn(amount) => (1, amount),
            Request::PayInThenPanic(amount) => (2, amount),
            Request::PayInThenOther(amount) => (3, amount),
            Request::PayInBoth(amount) => (4, amount),
            Request::PayInTwice(amount) => (5, amount),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&u64::to_le_bytes(amount));
        bytes
    }

    fn decode(bytes: &[u8; 9]) -> Option<Request> {
        let amount = u64::from_le_bytes(*bytes.last_chunk()?);
        Some(match bytes[0] {
            0 => Request::Read,
            1 => Request::PayIn(amount),
            2 => Request::PayInThenPanic(amount),
            3 => Request::PayInThenOther(amount),
            4 => Request::PayInBoth(amount),
            5 => Request::PayInTwice(amount),
            _ => return None,
        })
    }
}

/// A request in the schedule.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub decoded: Request,
    pub ordered: [u8; 9],
    pub checksum: u32,
}

impl Sent {
    /// The request as it should be.
    pub fn new(request: Request) -> Self {
        let ordered = request.encode();
        Sent { decoded: request, ordered, checksum: checksum(&ordered) }
    }
}

fn checksum(ordered: &[u8]) -> u32 {
    digest::content(ordered) as u32
}

/// The request, decoded again as a second run needs it.
pub fn decode_again(sent: &Sent) -> Result<Request, Stopped> {
    let is_intact = checksum(&sent.ordered) == sent.checksum;
    Request::decode(&sent.ordered).filter(|_| is_intact).ok_or(Stopped::Undecodable)
}

/// What [`Bank::reproduce`] found.
pub struct Repeated {
    pub ran: Ran,
    pub how: Reproduced,
    pub runs: RunDigests,
    /// How often the handler ran, and how often it was counted.
    pub times: (u32, u32),
    /// The request, as the gate before the client knows it.
    pub request_info: RequestInfo,
}

impl Repeated {
    /// The result that goes to the gate.
    pub fn result(&self) -> RequestResult {
        let pairs = match &self.ran.end {
            End::Done(touched) => Pairs::from_slice(touched.pairs()),
            _ => Pairs::new(),
        };
        let reply = self.ran.reply.clone().into_bytes().into();
        RequestResult::of_two_runs(self.request_info, pairs, Some(reply), self.runs)
    }

    /// The bytes that leave; none if the gate holds them.
    pub fn leaves(&self) -> Option<&str> {
        vote::twice_may_leave(&self.result()).is_ok().then_some(&*self.ran.reply)
    }
}

/// A run of a handler: its number, and what [`handle`] gets.
pub type Handler<'h> =
    &'h dyn Fn(u8, &[DetMutex<Account>; 2], &Cx<'_, Sent>, &Sent, &mut Vec<u8>) -> Result<(), Stopped>;

/// The handler as it should be: only the first run uses the request as it was decoded.
pub fn healthy(
    run: u8,
    accounts: &[DetMutex<Account>; 2],
    cx: &Cx<'_, Sent>,
    sent: &Sent,
    reply: &mut Vec<u8>,
) -> Result<(), Stopped> {
    let request = if run == 1 { sent.decoded } else { decode_again(sent)? };
    Ok(handle(accounts, cx, request, reply)?)
}

pub const FULL: Protection = Protection { protect: Protect::Check, undo: true };
pub const BARE: Protection = Protection { protect: Protect::Nothing, undo: true };

/// Two accounts behind two locks, and a schedule of one worker.
pub struct Bank {
    pub accounts: [DetMutex<Account>; 2],
    schedule: Schedule<Sent>,
    worker: RefCell<Worker<Sent>>,
    next: u64,
}

pub struct Ran {
    pub end: End,
    pub reply: String,
}

impl Bank {
    pub fn new() -> Self {
        let config = Config { mode: LockRules::Sequential, lag: 4, ..Config::new(1, 2) };
        let (schedule, mut workers) =
            schedule::open(config, |_: &Sent, footprint: &mut Footprint| footprint.write(0));
        let accounts = [genesis(0, || Account::new("ada")), genesis(1, || Account::new("bob"))];
        let [ada, bob] = accounts;
        let worker = RefCell::new(workers.remove(0));
        Bank { accounts: [DetMutex::new(0, ada), DetMutex::new(1, bob)], schedule, worker, next: 1 }
    }

    pub fn run(&mut self, request: Request, protection: Protection, seal_hook: &impl SealHook) -> Ran {
        self.with_turn(Sent::new(request), |turn, locks, accounts| {
            let mut reply = Vec::new();
            let runner = Runner { locks, protection, seal_hook };
            let (end, outcome) =
                runner.once(turn, &mut reply, |cx, sent, reply| handle(accounts, cx, sent.decoded, reply));
            (Ran { end, reply: String::from_utf8(reply).unwrap() }, outcome)
        })
    }

    /// Runs it as one that only reads.
    pub fn read_only(&mut self, request: Request) -> (ReadEnd, String) {
        self.with_turn(Sent::new(request), |turn, locks, accounts| {
            let mut reply = Vec::new();
            let runner = Runner { locks, protection: FULL, seal_hook: &() };
            let read_only =
                runner.read_only(turn, &mut reply, |cx, reply| handle(accounts, cx, request, reply));
            ((read_only, String::from_utf8(reply).unwrap()), Outcome::Done)
        })
    }

    /// Runs it once, and keeps what takes it back.
    pub fn keep(&mut self, request: Request, room: Kept) -> (Ran, Kept) {
        self.with_turn(Sent::new(request), |turn, locks, accounts| {
            let mut reply = Vec::new();
            let runner = Runner { locks, protection: FULL, seal_hook: &() };
            let (end, outcome, kept) = runner.once_keeping(turn, &mut reply, room, |cx, sent, reply| {
                handle(accounts, cx, sent.decoded, reply)
            });
            ((Ran { end, reply: String::from_utf8(reply).unwrap() }, kept), outcome)
        })
    }

    /// Runs it until two runs agree.
    pub fn reproduce(&mut self, request: Request, seal_hook: &impl SealHook) -> Repeated {
        self.repeat(Sent::new(request), seal_hook, &healthy, |sent| &sent.ordered)
    }

    /// The same with another request than that of its bytes, another handler, or another comparison of started
    /// requests.
    pub fn repeat(
        &mut self,
        sent: Sent,
        seal_hook: &impl SealHook,
        handler: Handler<'_>,
        started: fn(&Sent) -> &[u8],
    ) -> Repeated {
        let (runs, counted) = (Cell::new(0), Cell::new(0));
        self.with_turn(sent, |turn, locks, accounts| {
            let mut reply = Vec::new();
            let handler = |run: u8, cx: &Cx<'_, Sent>, sent: &Sent, reply: &mut Vec<u8>| {
                runs.set(runs.get() + 1);
                counted.set(counted.get() + u32::from(cx.is_counted()));
                handler(run, accounts, cx, sent, reply)?;
                Ok(sent.checksum)
            };
            let runner = Runner { locks, protection: FULL, seal_hook };
            let (end, outcome, how, digests) =
                runner.reproduced(turn, &mut reply, &Repeat { handler, started });
            let (position, time_us) = (turn.position(), turn.time_us());
            let repeated = Repeated {
                ran: Ran { end, reply: String::from_utf8(reply).unwrap() },
                how,
                runs: digests,
                times: (runs.get(), counted.get()),
                request_info: RequestInfo {
                    position,
                    time_us,
                    checksum: sent.checksum,
                    mine: true,
                    ..RequestInfo::default()
                },
            };
            (repeated, outcome)
        })
    }

    fn with_turn<T>(
        &mut self,
        request: Sent,
        perform: impl FnOnce(&mut Turn<'_, Sent>, &[&dyn Lock], &[DetMutex<Account>; 2]) -> (T, Outcome),
    ) -> T {
        let mut footprint = Footprint::one(0);
        if let Request::PayInBoth(_) = request.decoded {
            footprint.write(1);
        }
        let row = BatchRow { request, footprint, stream: None };
        let entry = Entry { index: self.next, time_us: self.next, seed: 0, drain: true, rows: vec![row] };
        self.next += 1;
        self.schedule.append(Arc::new(entry));
        let locks: [&dyn Lock; 2] = [&self.accounts[0], &self.accounts[1]];
        let mut worker = self.worker.borrow_mut();
        let mut turn = worker.next_blocking().expect("the entry runs");
        let (reported, outcome) = perform(&mut turn, &locks, &self.accounts);
        turn.finish(outcome);
        reported
    }

    pub fn damage(&mut self) {
        self.damage_behind(0);
    }

    pub fn damage_behind(&mut self, lock: usize) {
        let account = self.accounts[lock].get_mut();
        let id = account.root();
        account
            .inject(id, &Injection::Flip { member: Some(0), bit: Some(3), seed: 0 })
            .expect("the flip fits");
    }
}

impl Regions for Bank {
    fn visit(&mut self, region_id: RegionId, work: &mut dyn FnMut(&mut dyn Region)) {
        if let Some(account) = self.accounts.get_mut(region_id as usize) {
            work(account.get_mut());
        }
    }
}

/// What a request does.
pub fn handle(
    accounts: &[DetMutex<Account>; 2],
    cx: &Cx<'_, Sent>,
    request: Request,
    reply: &mut Vec<u8>,
) -> Result<(), Retry> {
    let mut account = cx.lock(&accounts[0])?;
    match request {
        Request::Read => {}
        Request::PayIn(amount)
        | Request::PayInThenPanic(amount)
        | Request::PayInThenOther(amount)
        | Request::PayInBoth(amount)
        | Request::PayInTwice(amount) => account.pay_in(amount),
    }
    reply.extend_from_slice(account.balance().to_string().as_bytes());
    match request {
        Request::PayInThenPanic(_) => panic!("a bug in the handler"),
        Request::PayInThenOther(_) => drop(cx.lock(&accounts[1])?),
        Request::PayInBoth(amount) => cx.lock(&accounts[1])?.pay_in(amount),
        Request::PayInTwice(amount) => cx.spawn(Sent::new(Request::PayIn(amount))),
        Request::Read | Request::PayIn(_) => {}
    }
    Ok(())
}

/// The checksum of the account that it touched.
pub fn sum_of(ran: &Ran) -> u64 {
    match &ran.end {
        End::Done(touched) => touched.pairs().first().expect("the account was touched").sum,
        other => panic!("{other:?}"),
    }
}

/// Injects a fault in those runs of a request whose numbers it has, each time in another bit.
pub struct FaultIn(pub &'static [u32], pub Cell<u32>);

impl SealHook for FaultIn {
    fn before_seal(&self, _lock: u32, access: &mut Access<'_>) {
        let run = self.1.get();
        self.1.set(run + 1);
        if let (true, Access::Exclusive(region)) = (self.0.contains(&run), access) {
            let flip = Injection::Flip { member: Some(0), bit: Some(u64::from(run) + 1), seed: 0 };
            region.inject(region.root(), &flip).expect("the flip fits");
        }
    }
}
