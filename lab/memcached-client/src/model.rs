//! The possible states of a key: the sequential meaning of every command, over the set of states that no reply has
//! excluded.

use crate::pattern::Pattern;
use crate::request::{KeyCommand, KeyRequest, StoreVerb, Syntax};

/// A client's knowledge of an item's CAS unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cas {
    /// A reply contained it, and no command has changed the item since.
    Known(u64),
    /// Unknown since the last change; certainly not the given number.
    Not(Option<u64>),
}

/// An item as a client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedItem {
    /// The client's 32 bits.
    pub flags: u32,
    /// The data block.
    pub value: Vec<u8>,
    /// Its CAS unique.
    pub cas: Cas,
}

impl KeyRequest<'_> {
    /// Every possible result of the command on `item`, each with its reply.
    ///
    /// Only one result is open: a number that lost a digit. The protocol specifies neither that the item keeps its
    /// length (padded with spaces) nor that it does not; memcached pads unless a reply still refers to the item.
    pub fn apply_all(&self, key: &str, item: &Option<CachedItem>) -> Vec<(Option<CachedItem>, Pattern)> {
        let (after, reply) = self.apply(key, item);
        let mut all = Vec::with_capacity(2);
        if let (KeyCommand::Count { .. }, Some(padded)) = (&self.command, &after)
            && padded.value.ends_with(b" ")
        {
            let value = padded.value.trim_ascii_end().to_vec();
            all.push((Some(CachedItem { value, ..padded.clone() }), reply.clone()));
        }
        all.push((after, reply));
        all
    }

    /// The result of the command on `item`, and the reply to it.
    pub fn apply(&self, key: &str, item: &Option<CachedItem>) -> (Option<CachedItem>, Pattern) {
        let (after, outcome) = self.command.apply(item);
        (after, self.reply(key, item, outcome))
    }

    /// The reply that tells of this outcome, where `item` was before.
    pub fn reply(&self, key: &str, item: &Option<CachedItem>, outcome: CommandOutcome) -> Pattern {
        match &self.syntax {
            Syntax::Classic | Syntax::Silent => self.command.classic_reply(key, item, outcome),
            Syntax::Meta(flags) => self.command.meta_reply(key, item, outcome, flags),
        }
    }
}

/// What a command came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandOutcome {
    /// It was done: read, stored, deleted, touched.
    Done,
    /// `add`, `replace` and their kin found another case than theirs.
    NotStored,
    /// The number of a `cas` was another.
    Exists,
    /// There is no such item.
    Missing,
    /// It was counted, to this number.
    Number(u64),
    /// The item to count holds no number.
    NoNumber,
}

impl KeyCommand<'_> {
    /// The item afterwards, and what the command came to.
    pub fn apply(&self, item: &Option<CachedItem>) -> (Option<CachedItem>, CommandOutcome) {
        match (self, item) {
            (KeyCommand::Store { verb, flags, expiry, value }, _) => match verb.stores(item, *flags, value) {
                Some(_) if *expiry < 0 && verb.sets_expiry() => (None, CommandOutcome::Done),
                Some(stored) => (Some(stored), CommandOutcome::Done),
                None => (item.clone(), CommandOutcome::NotStored),
            },
            (_, None) => (None, CommandOutcome::Missing),
            (KeyCommand::Read { touch, .. }, Some(_)) => {
                (item.clone().filter(|_| touch.is_none_or(|expiry| expiry >= 0)), CommandOutcome::Done)
            }
            (KeyCommand::Touch { expiry }, Some(_)) => {
                (item.clone().filter(|_| *expiry >= 0), CommandOutcome::Done)
            }
            (KeyCommand::Cas { unique, flags, value, .. }, Some(found)) => {
                if found.cas == Cas::Known(*unique) {
                    (Some(found.changed(*flags, value.to_vec())), CommandOutcome::Done)
                } else {
                    (item.clone(), CommandOutcome::Exists)
                }
            }
            (KeyCommand::Delete, Some(_)) => (None, CommandOutcome::Done),
            (KeyCommand::Count { up, by }, Some(found)) => match found.number() {
                None => (item.clone(), CommandOutcome::NoNumber),
                Some(number) => {
                    let number = if *up { number.wrapping_add(*by) } else { number.saturating_sub(*by) };
                    // A number shorter than its item keeps the item's length: memcached writes it in place and pads
                    // with spaces.
                    let padded = format!("{number:<width$}", width = found.value.len()).into_bytes();
                    (Some(found.changed(found.flags, padded)), CommandOutcome::Number(number))
                }
            },
        }
    }

    fn classic_reply(&self, key: &str, item: &Option<CachedItem>, outcome: CommandOutcome) -> Pattern {
        Pattern::text(match (self, outcome) {
            (KeyCommand::Read { unique, .. }, _) => {
                let value = item.as_ref().map(|found| found.rendered(key, *unique));
                return value.unwrap_or_default().and("END\r\n");
            }
            (_, CommandOutcome::Missing) => "NOT_FOUND\r\n",
            (_, CommandOutcome::NotStored) => "NOT_STORED\r\n",
            (_, CommandOutcome::Exists) => "EXISTS\r\n",
            (_, CommandOutcome::NoNumber) => NO_NUMBER,
            (_, CommandOutcome::Number(number)) => return Pattern::text(format!("{number}\r\n")),
            (KeyCommand::Delete, CommandOutcome::Done) => "DELETED\r\n",
            (KeyCommand::Touch { .. }, CommandOutcome::Done) => "TOUCHED\r\n",
            (_, CommandOutcome::Done) => "STORED\r\n",
        })
    }

    fn meta_reply(
        &self,
        key: &str,
        item: &Option<CachedItem>,
        outcome: CommandOutcome,
        flags: &str,
    ) -> Pattern {
        let is_read = matches!(self, KeyCommand::Read { .. } | KeyCommand::Touch { .. });
        let shown = item.as_ref().filter(|_| is_read);
        let head = match outcome {
            CommandOutcome::Missing if is_read => "EN",
            CommandOutcome::Missing => "NF",
            CommandOutcome::NotStored => "NS",
            CommandOutcome::Exists => "EX",
            CommandOutcome::NoNumber => return Pattern::text(NO_NUMBER),
            CommandOutcome::Number(number) => {
                let number = number.to_string();
                return Pattern::text(format!("VA {}\r\n{number}\r\n", number.len()));
            }
            CommandOutcome::Done => "HD",
        };
        let data = shown.map(|found| &found.value).filter(|_| flags.split(' ').any(|flag| flag == "v"));
        let head = data.map_or_else(|| head.to_owned(), |data| format!("VA {}", data.len()));
        let repeated = flags.split(' ').fold(Pattern::text(head), |line, flag| match (flag, shown) {
            ("k", _) => line.and(format!(" k{key}")),
            ("s", Some(found)) => line.and(format!(" s{}", found.value.len())),
            ("f", Some(found)) => line.and(format!(" f{}", found.flags)),
            ("c", Some(found)) => found.cas_behind(line.and(" c")),
            (opaque, _) if opaque.starts_with('O') => line.and(format!(" {opaque}")),
            _ => line,
        });
        let line = repeated.and("\r\n");
        data.map_or(line.clone(), |data| line.and(data).and("\r\n"))
    }
}

const NO_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

impl StoreVerb {
    fn stores(self, item: &Option<CachedItem>, flags: u32, value: &[u8]) -> Option<CachedItem> {
        match (self, item) {
            (StoreVerb::Set | StoreVerb::Replace, Some(found)) => Some(found.changed(flags, value.to_vec())),
            (StoreVerb::Set | StoreVerb::Add, None) => {
                Some(CachedItem { flags, value: value.to_vec(), cas: Cas::Not(None) })
            }
            (StoreVerb::Append, Some(found)) => {
                Some(found.changed(found.flags, [&found.value[..], value].concat()))
            }
            (StoreVerb::Prepend, Some(found)) => {
                Some(found.changed(found.flags, [value, &found.value[..]].concat()))
            }
            _ => None,
        }
    }
}

impl CachedItem {
    fn changed(&self, flags: u32, value: Vec<u8>) -> CachedItem {
        let cas = match self.cas {
            Cas::Known(old) => Cas::Not(Some(old)),
            unknown => unknown,
        };
        CachedItem { flags, value, cas }
    }

    fn number(&self) -> Option<u64> {
        let digits = std::str::from_utf8(&self.value).ok()?.trim_end_matches(' ');
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    }

    /// `VALUE` line and data block of the text protocol.
    pub fn rendered(&self, key: &str, with_cas: bool) -> Pattern {
        let head = Pattern::text(format!("VALUE {key} {} {}", self.flags, self.value.len()));
        let head = if with_cas { self.cas_behind(head.and(" ")) } else { head };
        head.and("\r\n").and(&self.value).and("\r\n")
    }

    fn cas_behind(&self, pattern: Pattern) -> Pattern {
        match self.cas {
            Cas::Known(unique) => pattern.and(unique.to_string()),
            Cas::Not(stale) => pattern.fresh_number(stale),
        }
    }
}

/// One possible state of a key, with the pending commands that are part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The item.
    pub item: Option<CachedItem>,
    /// Bit i: pending command i has taken effect.
    taken: u32,
}

/// A key and all its possible states.
#[derive(Clone, Debug)]
pub struct States {
    /// Its name.
    pub name: String,
    /// All states that no reply has excluded.
    pub states: Vec<State>,
    /// Commands whose reply was lost with the connection: each may take effect at any later time, once, or never.
    pending: Vec<KeyRequest<'static>>,
}

/// With more pending commands or states than this, the key is not used until the final audit.
const MAX_PENDING: usize = 5;
const MAX_STATES: usize = 64;

impl States {
    /// A key that no client has used.
    pub fn unused(name: String) -> Self {
        States { name, states: vec![State { item: None, taken: 0 }], pending: Vec::new() }
    }

    /// Whether the key has so many states that another key is a better test.
    pub fn is_blurred(&self) -> bool {
        self.pending.len() >= MAX_PENDING || self.states.len() > MAX_STATES
    }

    /// The reply to `act` was lost: the command may have been executed, be executed later, or never.
    pub fn lost(&mut self, act: &KeyRequest<'static>) {
        if act.command.writes() {
            self.pending.push(act.clone());
        }
    }

    /// Adds every state to which pending commands may have led.
    pub fn add_possible_states(&mut self) {
        let mut at = 0;
        while at < self.states.len() {
            for (bit, act) in self.pending.iter().enumerate() {
                if self.states[at].taken & (1 << bit) == 0 {
                    for (item, _) in act.apply_all(&self.name, &self.states[at].item) {
                        let next = State { item, taken: self.states[at].taken | (1 << bit) };
                        if !self.states.contains(&next) {
                            self.states.push(next);
                        }
                    }
                }
            }
            at += 1;
        }
    }

    /// The states after `act`, each with the reply that would show it.
    pub fn outcomes(&self, act: &KeyRequest<'static>) -> Vec<(State, Pattern)> {
        self.states
            .iter()
            .flat_map(|state| {
                let after = act.apply_all(&self.name, &state.item);
                after.into_iter().map(|(item, reply)| (State { item, taken: state.taken }, reply))
            })
            .collect()
    }

    /// Keeps the states that a reply left possible.
    pub fn keep(&mut self, states: Vec<State>) {
        self.states.clear();
        for state in states {
            if !self.states.contains(&state) {
                self.states.push(state);
            }
        }
    }
}

impl State {
    /// Records the CAS unique of a reply.
    pub fn learn(&mut self, unique: u64) {
        if let Some(item) = &mut self.item {
            item.cas = Cas::Known(unique);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn item(value: &str) -> Option<CachedItem> {
        Some(CachedItem { flags: 7, value: value.into(), cas: Cas::Known(9) })
    }

    fn replied(request: &KeyRequest<'_>, item: &Option<CachedItem>) -> String {
        String::from_utf8(request.apply("k", item).1.bytes().expect("no number is open")).expect("text")
    }

    #[test]
    fn both_syntaxes_have_the_same_outcomes() {
        let (expiry, flags, value) = (0, 1, Cow::Borrowed(&b"ab"[..]));
        let store = |verb| KeyCommand::Store { verb, flags, expiry, value: value.clone() };
        let cas = |unique| KeyCommand::Cas { unique, flags, expiry, value: value.clone() };
        let up = KeyCommand::Count { up: true, by: 2 };
        for (command, meta, item, classic_reply, meta_reply) in [
            (
                KeyCommand::GET,
                "f v",
                item("a\r\n"),
                "VALUE k 7 3\r\na\r\n\r\nEND\r\n",
                "VA 3 f7\r\na\r\n\r\n",
            ),
            (KeyCommand::GET, "s f k O5", item("a"), "VALUE k 7 1\r\na\r\nEND\r\n", "HD s1 f7 kk O5\r\n"),
            (KeyCommand::GET, "s v k O5", None, "END\r\n", "EN kk O5\r\n"),
            (KeyCommand::GETS, "c", item("a"), "VALUE k 7 1 9\r\na\r\nEND\r\n", "HD c9\r\n"),
            (store(StoreVerb::Add), "", None, "STORED\r\n", "HD\r\n"),
            (store(StoreVerb::Add), "k", item("a"), "NOT_STORED\r\n", "NS kk\r\n"),
            (store(StoreVerb::Append), "", None, "NOT_STORED\r\n", "NS\r\n"),
            (cas(9), "", item("a"), "STORED\r\n", "HD\r\n"),
            (cas(8), "k", item("a"), "EXISTS\r\n", "EX kk\r\n"),
            (cas(9), "", None, "NOT_FOUND\r\n", "NF\r\n"),
            (KeyCommand::Delete, "O77 k", item("a"), "DELETED\r\n", "HD O77 kk\r\n"),
            (KeyCommand::Delete, "", None, "NOT_FOUND\r\n", "NF\r\n"),
            (up.clone(), "v", item("10"), "12\r\n", "VA 2\r\n12\r\n"),
            (up.clone(), "v", item("x"), NO_NUMBER, NO_NUMBER),
            (up, "v", None, "NOT_FOUND\r\n", "NF\r\n"),
            (KeyCommand::Touch { expiry: 5 }, "", item("a"), "TOUCHED\r\n", "HD\r\n"),
            (KeyCommand::Touch { expiry: 5 }, "", None, "NOT_FOUND\r\n", "EN\r\n"),
        ] {
            assert_eq!(replied(&command.clone().classic(), &item), classic_reply);
            assert_eq!(replied(&command.meta(meta), &item), meta_reply);
        }
    }

    #[test]
    fn items_change_as_the_commands_say() {
        let after = |command: KeyCommand<'_>, item| command.apply(&item).0.map(|item| (item.value, item.cas));
        let changed = Cas::Not(Some(9));
        let by = |up, by| KeyCommand::Count { up, by };
        assert_eq!(after(by(false, 1), item("100")), Some((b"99 ".to_vec(), changed)), "it keeps its length");
        assert_eq!(after(by(false, 5), item("3")), Some((b"0".to_vec(), changed)));
        assert_eq!(after(by(true, 1), item("18446744073709551615")).map(|(value, _)| value[0]), Some(b'0'));
        assert_eq!(after(by(true, 1), item("x")), Some((b"x".to_vec(), Cas::Known(9))));
        let store = |verb, expiry| KeyCommand::Store { verb, flags: 0, expiry, value: Cow::Borrowed(b"z") };
        assert_eq!(after(store(StoreVerb::Append, -1), item("a")), Some((b"az".to_vec(), changed)));
        assert_eq!(after(store(StoreVerb::Prepend, 0), item("a")), Some((b"za".to_vec(), changed)));
        assert_eq!(after(store(StoreVerb::Set, -1), item("a")), None, "it is over at once");
        assert_eq!(after(store(StoreVerb::Set, 0), None), Some((b"z".to_vec(), Cas::Not(None))));
        assert_eq!(after(KeyCommand::Touch { expiry: -1 }, item("a")), None);
    }

    #[test]
    fn a_lost_request_leaves_both_states_until_a_reply_excludes_one() {
        let mut key = States::unused("k".into());
        let set = |value: &'static [u8]| KeyCommand::store(StoreVerb::Set, value).classic();
        let stored = key.outcomes(&set(b"a")).into_iter().map(|(state, _)| state).collect();
        key.keep(stored);
        key.lost(&set(b"b"));
        key.add_possible_states();
        let get = KeyCommand::GET.classic();
        let mut replies: Vec<Vec<u8>> =
            key.outcomes(&get).into_iter().filter_map(|(_, reply)| reply.bytes()).collect();
        replies.sort();
        assert_eq!(replies, [&b"VALUE k 0 1\r\na\r\nEND\r\n"[..], b"VALUE k 0 1\r\nb\r\nEND\r\n"]);
        let late = key
            .outcomes(&get)
            .into_iter()
            .filter(|(state, _)| state.item.as_ref().is_some_and(|item| item.value == b"b"));
        let seen: Vec<State> = late.map(|(state, _)| state).collect();
        key.keep(seen);
        key.add_possible_states();
        assert_eq!(key.states.len(), 1, "it takes effect once");
    }
}
