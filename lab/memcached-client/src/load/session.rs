//! One client: draws commands, sends them a few at a time, and compares every byte of every reply with the model.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::draw::LoadDraw;
use super::shared::{Seen, Shared};
use super::wire::{ExchangeFailure, Wire};
use super::{CheckedLoad, LoadTally};
use crate::model::{State, States};
use crate::pattern::{Pattern, shown};
use crate::request::{KeyCommand, KeyRequest, StoreVerb, write_get};

/// The next action of this client.
enum SessionStep {
    /// A command on one of its own keys.
    Own(usize, KeyRequest<'static>),
    /// One command on several of its own keys.
    Many(Vec<usize>, Many),
    /// `incr` by one of a counter that all clients use.
    Count(usize),
    /// `set` of a value that all clients write.
    Put(usize, u32, Vec<u8>),
    /// `get` of such a value.
    Look(usize),
}

/// The ways to read several keys.
#[derive(Clone, Copy)]
enum Many {
    /// `get a b c`.
    Get,
    /// `gets a b c`.
    Gets,
    /// `mg a v q`, `mg b v q`, ..., `mn`: no reply on a miss.
    Quiet,
}

/// One client with its keys.
#[derive(Debug)]
pub struct Session {
    number: usize,
    load: Arc<CheckedLoad>,
    shared: Arc<Shared>,
    tally: Arc<LoadTally>,
    draw: LoadDraw,
    keys: Vec<States>,
    set_aside: Vec<States>,
    generation: u64,
    endpoint: usize,
    wire: Option<Wire>,
    seen: Seen,
    /// States before commands without a reply, until a later reply shows that they were executed.
    unconfirmed: Vec<(usize, Vec<State>, KeyRequest<'static>)>,
}

/// Every third key of a client holds numbers.
fn holds_number(key: usize) -> bool {
    key % 3 == 2
}

impl Session {
    /// A client that has not connected yet.
    pub fn new(number: usize, load: Arc<CheckedLoad>, shared: Arc<Shared>, tally: Arc<LoadTally>) -> Self {
        let draw = LoadDraw::new(load.seed.wrapping_mul(0x1_0000_01B3) ^ number as u64);
        let endpoint = number % load.endpoints.len();
        let mut session = Session {
            number,
            draw,
            keys: Vec::new(),
            set_aside: Vec::new(),
            generation: 0,
            endpoint,
            wire: None,
            seen: Seen::new(),
            unconfirmed: Vec::new(),
            load,
            shared,
            tally,
        };
        session.keys = (0..session.load.keys).map(|place| session.fresh_key(place)).collect();
        session
    }

    fn fresh_key(&self, place: usize) -> States {
        States::unused(format!("{}c{}k{place}g{}", self.load.prefix, self.number, self.generation))
    }

    /// Works until the load is stopped or its commands are sent; false after a wrong byte.
    pub fn work(&mut self) -> bool {
        let mut done = 0;
        while !self.tally.stopped() && self.load.commands.is_none_or(|share| done < share) {
            if self.wire.is_none() && !self.reconnect() {
                continue;
            }
            let steps = self.draw_steps();
            let mut request = Vec::new();
            for step in &steps {
                self.render(step, &mut request);
            }
            match self.exchange(&steps, &request) {
                Ok(()) => done += steps.len() as u64,
                Err(ExchangeFailure::Wrong { received, expected }) => {
                    self.report(&request, &received, &expected);
                    return false;
                }
                Err(ExchangeFailure::Refused(line)) => {
                    self.tally.refused(line);
                    self.leave();
                }
                Err(ExchangeFailure::Lost { timeout }) => {
                    self.tally.lost(timeout);
                    self.leave();
                }
            }
        }
        true
    }

    /// Reads every key that it ever used at `server`, and compares it with all possible states.
    pub fn audit(&mut self, server: SocketAddr, deadline: Instant) -> bool {
        self.wire = None;
        let mut keys: Vec<States> = std::mem::take(&mut self.set_aside);
        keys.append(&mut self.keys);
        let right = keys.iter_mut().all(|key| self.audit_key(key, server, deadline));
        self.keys = keys;
        right
    }

    fn audit_key(&mut self, key: &mut States, server: SocketAddr, deadline: Instant) -> bool {
        let act = KeyCommand::GETS.classic();
        let request = act.bytes(key.name.as_bytes());
        loop {
            key.add_possible_states();
            let outcome = match &mut self.wire {
                Some(wire) => wire.send(&request).and_then(|()| read_own(wire, key, &act)),
                None => match Wire::connect(server, self.load.patience) {
                    Ok(wire) => {
                        self.wire = Some(wire);
                        continue;
                    }
                    Err(_) => Err(ExchangeFailure::Lost { timeout: false }),
                },
            };
            match outcome {
                Ok(()) => return true,
                Err(ExchangeFailure::Wrong { received, expected }) => {
                    self.tally
                        .wrong(format!("audit of {} at {server}: {received}; may be {expected}", key.name));
                    return false;
                }
                Err(_) if Instant::now() > deadline => {
                    self.tally.wrong(format!("audit of {} at {server}: no answer", key.name));
                    return false;
                }
                Err(_) => {
                    self.wire = None;
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    fn draw_steps(&mut self) -> Vec<SessionStep> {
        let count = 1 + self.draw.below(self.load.pipeline as u64);
        let mut steps: Vec<SessionStep> = (0..count).map(|_| self.draw_step()).collect();
        if !steps.iter().next_back().is_some_and(SessionStep::answered) {
            steps.push(SessionStep::Own(0, KeyCommand::GET.classic()));
        }
        steps
    }

    fn draw_step(&mut self) -> SessionStep {
        let shared = self.shared.count() as u64;
        if shared > 0 && self.draw.once_in(8) {
            let which = self.draw.below(shared) as usize;
            match self.draw.below(4) {
                0 | 1 => return SessionStep::Count(which),
                2 => {
                    if let Some((flags, value)) = self.shared.next_value(self.number) {
                        return SessionStep::Put(which, flags, value);
                    }
                }
                _ => return SessionStep::Look(which),
            }
        }
        let key = self.draw.below(self.keys.len() as u64) as usize;
        if self.draw.once_in(12) {
            let span = 2 + self.draw.below(6) as usize;
            let keys = (0..span.min(self.keys.len())).map(|n| (key + n) % self.keys.len()).collect();
            return SessionStep::Many(
                keys,
                [Many::Get, Many::Gets, Many::Quiet][self.draw.below(3) as usize],
            );
        }
        let act = if holds_number(key) {
            self.draw.number_request(self.load.huge_numbers)
        } else {
            self.draw.text_request(&self.keys[key], self.load.longest_value)
        };
        SessionStep::Own(key, act)
    }

    fn render(&self, step: &SessionStep, request: &mut Vec<u8>) {
        match step {
            SessionStep::Own(key, act) => act.write(self.keys[*key].name.as_bytes(), request),
            SessionStep::Many(keys, Many::Quiet) => {
                for &key in keys {
                    request.extend(format!("mg {} v q k\r\n", self.keys[key].name).bytes());
                }
                request.extend(b"mn\r\n");
            }
            SessionStep::Many(keys, how) => {
                let names: Vec<&str> = keys.iter().map(|&key| &self.keys[key].name[..]).collect();
                write_get(matches!(how, Many::Gets), &names, request);
            }
            SessionStep::Count(counter) => {
                let by_one = KeyCommand::Count { up: true, by: 1 }.classic();
                by_one.write(self.shared.counter_key(*counter).as_bytes(), request);
            }
            SessionStep::Put(key, flags, value) => {
                let value = Cow::Borrowed(&value[..]);
                let put =
                    KeyCommand::Store { verb: StoreVerb::Set, flags: *flags, expiry: 0, value }.classic();
                put.write(self.shared.value_key(*key).as_bytes(), request);
            }
            SessionStep::Look(key) => {
                KeyCommand::GET.classic().write(self.shared.value_key(*key).as_bytes(), request)
            }
        }
    }

    /// Sends and judges; commands that were not judged when the connection broke are recorded as possibly executed.
    fn exchange(&mut self, steps: &[SessionStep], request: &[u8]) -> Result<(), ExchangeFailure> {
        let mut wire = self.wire.take().expect("connected");
        let begun = Instant::now();
        let sent = wire.send(request);
        for (at, step) in steps.iter().enumerate() {
            let judged = match &sent {
                Ok(()) => self.judge(&mut wire, step, begun),
                Err(_) => Err(ExchangeFailure::Lost { timeout: false }),
            };
            if let Err(failure) = judged {
                self.roll_back_unconfirmed();
                steps[at..].iter().for_each(|step| self.mark_lost(step));
                return Err(failure);
            }
        }
        if wire.has_leftovers() {
            let expected = "nothing more".into();
            return Err(ExchangeFailure::Wrong { received: "bytes behind the last reply".into(), expected });
        }
        self.wire = Some(wire);
        Ok(())
    }

    fn judge(&mut self, wire: &mut Wire, step: &SessionStep, begun: Instant) -> Result<(), ExchangeFailure> {
        match step {
            SessionStep::Own(place, act) => {
                let key = &mut self.keys[*place];
                key.add_possible_states();
                if !act.is_answered() {
                    self.unconfirmed.push((*place, key.states.clone(), act.clone()));
                    let states = key.outcomes(act).into_iter().map(|(state, _)| state).collect();
                    key.keep(states);
                    return Ok(());
                }
                read_own(wire, key, act)?;
            }
            SessionStep::Many(keys, how) => self.judge_many(wire, keys, *how)?,
            SessionStep::Count(counter) => {
                let reply = Pattern::default().fresh_number(None).and("\r\n");
                let value = wire.next(&[&reply])?[0].1.expect("the pattern captures");
                self.shared.counted(*counter, value);
            }
            SessionStep::Put(..) => drop(wire.next(&[&Pattern::text("STORED\r\n")])?),
            SessionStep::Look(key) => self.judge_look(wire, *key)?,
        }
        self.unconfirmed.clear();
        self.tally.answered(begun.elapsed());
        Ok(())
    }

    fn judge_many(&mut self, wire: &mut Wire, keys: &[usize], how: Many) -> Result<(), ExchangeFailure> {
        for &place in keys {
            let key = &mut self.keys[place];
            key.add_possible_states();
            let rendered = |state: &State| match (&state.item, how) {
                (None, _) => Pattern::default(),
                (Some(item), Many::Quiet) => {
                    Pattern::text(format!("VA {} k{}\r\n", item.value.len(), key.name))
                        .and(&item.value)
                        .and("\r\n")
                }
                (Some(item), how) => item.rendered(&key.name, matches!(how, Many::Gets)),
            };
            let outcomes = key.states.iter().map(|state| (state.clone(), rendered(state))).collect();
            keep_what_fits(wire, key, outcomes)?;
        }
        let end = if matches!(how, Many::Quiet) { "MN\r\n" } else { "END\r\n" };
        wire.next(&[&Pattern::text(end)]).map(drop)
    }

    fn judge_look(&mut self, wire: &mut Wire, key: usize) -> Result<(), ExchangeFailure> {
        let name = self.shared.value_key(key);
        let head = Pattern::text(format!("VALUE {name} ")).fresh_number(None);
        let fits = wire.next(&[&Pattern::text("END\r\n"), &head])?;
        let Some(flags) = fits[0].1 else { return Ok(()) };
        let value = self.shared.expected(key, flags, &mut self.seen).map_err(|expected| {
            ExchangeFailure::Wrong { received: format!("{name} with flags {flags}"), expected }
        })?;
        let rest = Pattern::text(format!(" {}\r\n", value.len())).and(value).and("\r\nEND\r\n");
        wire.next(&[&rest]).map(drop)
    }

    fn roll_back_unconfirmed(&mut self) {
        for (place, states, act) in self.unconfirmed.drain(..).rev().collect::<Vec<_>>() {
            self.keys[place].states = states;
            self.keys[place].lost(&act);
        }
    }

    fn mark_lost(&mut self, step: &SessionStep) {
        match step {
            SessionStep::Own(key, act) => self.keys[*key].lost(act),
            SessionStep::Count(counter) => self.shared.maybe_counted(*counter),
            SessionStep::Put(..) => self.shared.write_lost(self.number),
            SessionStep::Many(..) | SessionStep::Look(_) => {}
        }
    }

    /// Connects to the next server; keys with too many possible states are not used until the audit.
    fn leave(&mut self) {
        self.wire = None;
        self.endpoint = (self.endpoint + 1) % self.load.endpoints.len();
        self.generation += 1;
        for place in 0..self.keys.len() {
            if self.keys[place].is_blurred() {
                let fresh = self.fresh_key(place);
                self.set_aside.push(std::mem::replace(&mut self.keys[place], fresh));
            }
        }
    }

    fn reconnect(&mut self) -> bool {
        match Wire::connect(self.load.endpoints[self.endpoint], self.load.patience) {
            Ok(wire) => self.wire = Some(wire),
            Err(_) => {
                self.endpoint = (self.endpoint + 1) % self.load.endpoints.len();
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.wire.is_some()
    }

    fn report(&self, request: &[u8], received: &str, expected: &str) {
        let server = self.load.endpoints[self.endpoint];
        self.tally.wrong(format!(
            "seed {} client {} at {server} sent {}\n      received {received}\n      may be   {expected}",
            self.load.seed,
            self.number,
            shown(request),
        ));
    }
}

impl SessionStep {
    fn answered(&self) -> bool {
        !matches!(self, SessionStep::Own(_, act) if !act.is_answered())
    }
}

/// Reads the reply to `act` and keeps the states that it leaves possible.
fn read_own(wire: &mut Wire, key: &mut States, act: &KeyRequest<'static>) -> Result<(), ExchangeFailure> {
    let outcomes = key.outcomes(act);
    keep_what_fits(wire, key, outcomes)
}

fn keep_what_fits(
    wire: &mut Wire,
    key: &mut States,
    outcomes: Vec<(State, Pattern)>,
) -> Result<(), ExchangeFailure> {
    let patterns: Vec<&Pattern> = outcomes.iter().map(|(_, pattern)| pattern).collect();
    let fits = wire.next(&patterns)?;
    let states = fits.into_iter().map(|(place, number)| {
        let mut state = outcomes[place].0.clone();
        if let Some(unique) = number {
            state.learn(unique);
        }
        state
    });
    let states = states.collect();
    key.keep(states);
    Ok(())
}
