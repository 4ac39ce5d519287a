//! The possible states of a key: the sequential meaning of every command, over the set of states that no reply has
//! excluded.

use super::pattern::Pattern;

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
pub struct Item {
    /// The client's 32 bits.
    pub flags: u32,
    /// The data block.
    pub value: Vec<u8>,
    /// Its CAS unique.
    pub cas: Cas,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Always.
    Set,
    /// Only where nothing is.
    Add,
    /// Only where something is.
    Replace,
    /// After the stored value; flags stay.
    Append,
    /// Before the stored value; flags stay.
    Prepend,
}

/// One command on one key, in either protocol.
#[derive(Clone, Debug)]
pub enum Act {
    /// `get`, `gets`, `gat`, `gats`.
    Get { cas: bool, touch: Option<i32> },
    /// `set` and its kin, and `ms` with mode.
    Store { verb: Verb, flags: u32, exptime: i32, value: Vec<u8>, meta: bool, noreply: bool },
    /// `cas`, and `ms` with `C`.
    Cas { unique: u64, flags: u32, value: Vec<u8>, meta: bool },
    /// `delete` and `md`.
    Delete { meta: bool, noreply: bool },
    /// `incr`, `decr` and `ma`.
    Count { up: bool, delta: u64, meta: bool },
    /// `touch`, and `mg` with `T`.
    Touch { exptime: i32, meta: bool },
    /// `mg`: with value, with CAS unique, with opaque.
    MetaGet { value: bool, cas: bool, opaque: u32 },
}

impl Act {
    /// Whether the command can change anything.
    pub fn writes(&self) -> bool {
        match self {
            Act::Get { touch, .. } => touch.is_some_and(|exptime| exptime < 0),
            Act::Touch { exptime, .. } => *exptime < 0,
            Act::MetaGet { .. } => false,
            _ => true,
        }
    }

    /// Whether the command has a reply.
    pub fn answered(&self) -> bool {
        !matches!(self, Act::Store { noreply: true, .. } | Act::Delete { noreply: true, .. })
    }

    /// The command's bytes.
    pub fn request(&self, key: &str) -> Vec<u8> {
        let with_data = |mut head: Vec<u8>, value: &[u8]| {
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
            head
        };
        match self {
            Act::Get { cas: false, touch: None } => format!("get {key}\r\n").into(),
            Act::Get { cas: true, touch: None } => format!("gets {key}\r\n").into(),
            Act::Get { cas: false, touch: Some(exptime) } => format!("gat {exptime} {key}\r\n").into(),
            Act::Get { cas: true, touch: Some(exptime) } => format!("gats {exptime} {key}\r\n").into(),
            Act::Store { verb, flags, exptime, value, meta: false, noreply } => {
                let tail = if *noreply { " noreply" } else { "" };
                with_data(
                    format!("{} {key} {flags} {exptime} {}{tail}\r\n", verb.word(), value.len()).into(),
                    value,
                )
            }
            Act::Store { verb, flags, exptime, value, meta: true, .. } => {
                let head = format!("ms {key} {} F{flags} T{exptime} M{}\r\n", value.len(), verb.letter());
                with_data(head.into(), value)
            }
            Act::Cas { unique, flags, value, meta: false } => {
                with_data(format!("cas {key} {flags} 0 {} {unique}\r\n", value.len()).into(), value)
            }
            Act::Cas { unique, flags, value, meta: true } => {
                with_data(format!("ms {key} {} C{unique} F{flags} k\r\n", value.len()).into(), value)
            }
            Act::Delete { meta: false, noreply } => {
                format!("delete {key}{}\r\n", if *noreply { " noreply" } else { "" }).into()
            }
            Act::Delete { meta: true, .. } => format!("md {key} O77 k\r\n").into(),
            Act::Count { up, delta, meta: false } => {
                format!("{} {key} {delta}\r\n", if *up { "incr" } else { "decr" }).into()
            }
            Act::Count { up, delta, meta: true } => {
                format!("ma {key} v D{delta} M{}\r\n", if *up { 'I' } else { 'D' }).into()
            }
            Act::Touch { exptime, meta: false } => format!("touch {key} {exptime}\r\n").into(),
            Act::Touch { exptime, meta: true } => format!("mg {key} T{exptime}\r\n").into(),
            Act::MetaGet { value, cas, opaque } => {
                format!("mg {key} s{}{} f k O{opaque}\r\n", when(*value, " v"), when(*cas, " c")).into()
            }
        }
    }

    /// Every possible result of the command on `item`, each with its reply.
    ///
    /// Only one result is open: a number that lost a digit. The protocol specifies neither that the item keeps its
    /// length (padded with spaces) nor that it does not; memcached pads unless a reply still refers to the item.
    pub fn apply_all(&self, key: &str, item: &Option<Item>) -> Vec<(Option<Item>, Pattern)> {
        let (after, reply) = self.apply(key, item);
        let mut all = Vec::with_capacity(2);
        if let (Act::Count { .. }, Some(padded)) = (self, &after)
            && padded.value.ends_with(b" ")
        {
            let value = padded.value.trim_ascii_end().to_vec();
            all.push((Some(Item { value, ..padded.clone() }), reply.clone()));
        }
        all.push((after, reply));
        all
    }

    fn apply(&self, key: &str, item: &Option<Item>) -> (Option<Item>, Pattern) {
        let same = |text: &str| (item.clone(), Pattern::text(text));
        match (self, item) {
            (Act::Get { .. }, None) => same("END\r\n"),
            (Act::Get { cas, touch }, Some(found)) => {
                let after = if touch.is_some_and(|exptime| exptime < 0) { None } else { item.clone() };
                (after, found.rendered(key, *cas).and("END\r\n"))
            }
            (Act::Store { verb, flags, exptime, value, meta, .. }, _) => {
                let stored = verb.stores(item, *flags, value);
                let (yes, no) = if *meta { ("HD\r\n", "NS\r\n") } else { ("STORED\r\n", "NOT_STORED\r\n") };
                match stored {
                    Some(_) if *exptime < 0 && verb.sets_exptime() => (None, Pattern::text(yes)),
                    Some(stored) => (Some(stored), Pattern::text(yes)),
                    None => same(no),
                }
            }
            (Act::Cas { meta, .. }, None) => {
                if *meta {
                    same(&format!("NF k{key}\r\n"))
                } else {
                    same("NOT_FOUND\r\n")
                }
            }
            (Act::Cas { unique, flags, value, meta }, Some(found)) => {
                let right = found.cas == Cas::Known(*unique);
                let reply = match (meta, right) {
                    (true, true) => format!("HD k{key}\r\n"),
                    (true, false) => format!("EX k{key}\r\n"),
                    (false, true) => "STORED\r\n".into(),
                    (false, false) => "EXISTS\r\n".into(),
                };
                (
                    Some(if right { found.changed(*flags, value.clone()) } else { found.clone() }),
                    Pattern::text(reply),
                )
            }
            (Act::Delete { meta, .. }, found) => {
                let reply = match (meta, found.is_some()) {
                    (true, true) => format!("HD O77 k{key}\r\n"),
                    (true, false) => format!("NF O77 k{key}\r\n"),
                    (false, true) => "DELETED\r\n".into(),
                    (false, false) => "NOT_FOUND\r\n".into(),
                };
                (None, Pattern::text(reply))
            }
            (Act::Count { meta, .. }, None) => same(if *meta { "NF\r\n" } else { "NOT_FOUND\r\n" }),
            (Act::Count { up, delta, meta }, Some(found)) => count(found, *up, *delta, *meta),
            (Act::Touch { meta, .. }, None) => same(if *meta { "EN\r\n" } else { "NOT_FOUND\r\n" }),
            (Act::Touch { exptime, meta }, Some(found)) => {
                let after = (*exptime >= 0).then(|| found.clone());
                (after, Pattern::text(if *meta { "HD\r\n" } else { "TOUCHED\r\n" }))
            }
            (Act::MetaGet { opaque, .. }, None) => same(&format!("EN k{key} O{opaque}\r\n")),
            (Act::MetaGet { value, cas, opaque }, Some(found)) => {
                (item.clone(), found.meta_rendered(key, *value, *cas, *opaque))
            }
        }
    }
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Verb::Set => "set",
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Append => "append",
            Verb::Prepend => "prepend",
        }
    }

    fn letter(self) -> char {
        match self {
            Verb::Set => 'S',
            Verb::Add => 'E',
            Verb::Replace => 'R',
            Verb::Append => 'A',
            Verb::Prepend => 'P',
        }
    }

    /// Appending keeps the present exptime.
    fn sets_exptime(self) -> bool {
        !matches!(self, Verb::Append | Verb::Prepend)
    }

    fn stores(self, item: &Option<Item>, flags: u32, value: &[u8]) -> Option<Item> {
        match (self, item) {
            (Verb::Set, Some(found)) | (Verb::Replace, Some(found)) => {
                Some(found.changed(flags, value.to_vec()))
            }
            (Verb::Set, None) | (Verb::Add, None) => {
                Some(Item { flags, value: value.to_vec(), cas: Cas::Not(None) })
            }
            (Verb::Append, Some(found)) => {
                Some(found.changed(found.flags, [&found.value[..], value].concat()))
            }
            (Verb::Prepend, Some(found)) => {
                Some(found.changed(found.flags, [value, &found.value[..]].concat()))
            }
            _ => None,
        }
    }
}

impl Item {
    fn changed(&self, flags: u32, value: Vec<u8>) -> Item {
        let cas = match self.cas {
            Cas::Known(old) => Cas::Not(Some(old)),
            unknown => unknown,
        };
        Item { flags, value, cas }
    }

    /// `VALUE` line and data block of the text protocol.
    pub fn rendered(&self, key: &str, with_cas: bool) -> Pattern {
        let head = Pattern::text(format!("VALUE {key} {} {}", self.flags, self.value.len()));
        let head = if with_cas { self.cas_behind(head.and(" ")) } else { head };
        head.and("\r\n").and(&self.value).and("\r\n")
    }

    fn meta_rendered(&self, key: &str, value: bool, cas: bool, opaque: u32) -> Pattern {
        let size = self.value.len();
        let head = Pattern::text(if value { format!("VA {size} s{size}") } else { format!("HD s{size}") });
        let head = if cas { self.cas_behind(head.and(" c")) } else { head };
        let head = head.and(format!(" f{} k{key} O{opaque}\r\n", self.flags));
        if value { head.and(&self.value).and("\r\n") } else { head }
    }

    fn cas_behind(&self, pattern: Pattern) -> Pattern {
        match self.cas {
            Cas::Known(unique) => pattern.and(unique.to_string()),
            Cas::Not(stale) => pattern.fresh_number(stale),
        }
    }
}

/// A number shorter than its item keeps the item's length: memcached writes it in place and pads with spaces.
fn count(found: &Item, up: bool, delta: u64, meta: bool) -> (Option<Item>, Pattern) {
    let digits = std::str::from_utf8(&found.value).unwrap_or("x").trim_end_matches(' ');
    let Some(number) = (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse::<u64>().ok())
        .flatten()
    else {
        let refusal = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
        return (Some(found.clone()), Pattern::text(refusal));
    };
    let result = if up { number.wrapping_add(delta) } else { number.saturating_sub(delta) }.to_string();
    let padded = format!("{result:<width$}", width = found.value.len());
    let reply = if meta { format!("VA {}\r\n{result}\r\n", result.len()) } else { format!("{result}\r\n") };
    (Some(found.changed(found.flags, padded.into_bytes())), Pattern::text(reply))
}

fn when(yes: bool, text: &str) -> &str {
    if yes { text } else { "" }
}

/// One possible state of a key, with the pending commands that are part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The item.
    pub item: Option<Item>,
    /// Bit i: pending command i has taken effect.
    taken: u32,
}

/// A key and all its possible states.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// All states that no reply has excluded.
    pub states: Vec<State>,
    /// Commands whose reply was lost with the connection: each may take effect at any later time, once, or never.
    pending: Vec<Act>,
}

/// With more pending commands or states than this, the key is not used until the final audit.
const MAX_PENDING: usize = 5;
const MAX_STATES: usize = 64;

impl Key {
    /// A key that no client has used.
    pub fn unused(name: String) -> Self {
        Key { name, states: vec![State { item: None, taken: 0 }], pending: Vec::new() }
    }

    /// Whether the key has so many states that another key is a better test.
    pub fn is_blurred(&self) -> bool {
        self.pending.len() >= MAX_PENDING || self.states.len() > MAX_STATES
    }

    /// The reply to `act` was lost: the command may have been executed, be executed later, or never.
    pub fn lost(&mut self, act: &Act) {
        if act.writes() {
            self.pending.push(act.clone());
        }
    }

    /// Adds every state to which pending commands may have led.
    pub fn settle(&mut self) {
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
    pub fn outcomes(&self, act: &Act) -> Vec<(State, Pattern)> {
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
