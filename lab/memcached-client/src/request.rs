//! The requests of memcached's text protocol, classic and meta: one command on one key, and its bytes.

use std::borrow::Cow;

use wire::SplitMix64;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreVerb {
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

/// One command on one key. Lifetimes are in seconds: 0 is for ever, and a negative one is over at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCommand<'a> {
    /// Read the value; `unique`: also its number for `cas`; `touch`: with a new lifetime.
    Read {
        /// Whether the number is requested.
        unique: bool,
        /// The new lifetime.
        touch: Option<i64>,
    },
    /// Store a value.
    Store {
        /// When and where.
        verb: StoreVerb,
        /// The client's 32 bits.
        flags: u32,
        /// The lifetime.
        expiry: i64,
        /// The bytes.
        value: Cow<'a, [u8]>,
    },
    /// Store a value if that of this number is still there.
    Cas {
        /// The number.
        unique: u64,
        /// The client's 32 bits.
        flags: u32,
        /// The lifetime.
        expiry: i64,
        /// The bytes.
        value: Cow<'a, [u8]>,
    },
    /// Delete.
    Delete,
    /// Count up or down.
    Count {
        /// Up.
        up: bool,
        /// By how much.
        by: u64,
    },
    /// Give a new lifetime.
    Touch {
        /// The lifetime.
        expiry: i64,
    },
}

/// How a command is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// `get`, `set`, ...
    Classic,
    /// The same with `noreply`: stores, deletes, and counts only.
    Silent,
    /// `mg`, `ms`, ..., with these flags, which ask for what the reply repeats.
    Meta(Cow<'static, str>),
}

/// A command in one of its syntaxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRequest<'a> {
    /// The command.
    pub command: KeyCommand<'a>,
    /// How it is written.
    pub syntax: Syntax,
}

impl<'a> KeyCommand<'a> {
    /// `get`.
    pub const GET: KeyCommand<'static> = KeyCommand::Read { unique: false, touch: None };
    /// `gets`.
    pub const GETS: KeyCommand<'static> = KeyCommand::Read { unique: true, touch: None };

    /// A value that is stored for ever, with flags 0.
    pub fn store(verb: StoreVerb, value: &'a [u8]) -> Self {
        KeyCommand::Store { verb, flags: 0, expiry: 0, value: Cow::Borrowed(value) }
    }

    /// The command in its classic syntax.
    pub fn classic(self) -> KeyRequest<'a> {
        KeyRequest { command: self, syntax: Syntax::Classic }
    }

    /// The command as a meta command with these flags.
    pub fn meta(self, flags: impl Into<Cow<'static, str>>) -> KeyRequest<'a> {
        KeyRequest { command: self, syntax: Syntax::Meta(flags.into()) }
    }

    /// Whether it can change an item, its lifetime aside.
    pub fn writes(&self) -> bool {
        match self {
            KeyCommand::Read { touch, .. } => touch.is_some_and(|expiry| expiry < 0),
            KeyCommand::Touch { expiry } => *expiry < 0,
            _ => true,
        }
    }

    fn value(&self) -> Option<&[u8]> {
        match self {
            KeyCommand::Store { value, .. } | KeyCommand::Cas { value, .. } => Some(value),
            _ => None,
        }
    }
}

impl KeyRequest<'_> {
    /// Whether a reply comes.
    pub fn is_answered(&self) -> bool {
        self.syntax != Syntax::Silent
    }

    /// The bytes.
    pub fn bytes(&self, key: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + key.len() + self.command.value().map_or(0, <[u8]>::len));
        self.write(key, &mut out);
        out
    }

    /// Appends the bytes.
    pub fn write(&self, key: &[u8], out: &mut Vec<u8>) {
        match &self.syntax {
            Syntax::Classic => self.command.write_classic(key, "", out),
            Syntax::Silent => self.command.write_classic(key, " noreply", out),
            Syntax::Meta(flags) => self.command.write_meta(key, flags, out),
        }
        if let Some(value) = self.command.value() {
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

impl KeyCommand<'_> {
    fn write_classic(&self, key: &[u8], end: &str, out: &mut Vec<u8>) {
        let mut line = RequestLine(out);
        match self {
            KeyCommand::Read { unique, touch: None } => {
                line.word(if *unique { "gets " } else { "get " }).key(key)
            }
            KeyCommand::Read { unique, touch: Some(expiry) } => {
                line.word(if *unique { "gats " } else { "gat " }).signed(*expiry).word(" ").key(key)
            }
            KeyCommand::Store { verb, flags, expiry, value } => {
                let line = line.word(verb.word()).word(" ").key(key).number(u64::from(*flags));
                line.signed_after(*expiry).number(value.len() as u64)
            }
            KeyCommand::Cas { unique, flags, expiry, value } => {
                let line = line.word("cas ").key(key).number(u64::from(*flags)).signed_after(*expiry);
                line.number(value.len() as u64).number(*unique)
            }
            KeyCommand::Delete => line.word("delete ").key(key),
            KeyCommand::Count { up, by } => {
                line.word(if *up { "incr " } else { "decr " }).key(key).number(*by)
            }
            KeyCommand::Touch { expiry } => line.word("touch ").key(key).signed_after(*expiry),
        }
        .word(end)
        .word("\r\n");
    }

    fn write_meta(&self, key: &[u8], flags: &str, out: &mut Vec<u8>) {
        let mut line = RequestLine(out);
        match self {
            KeyCommand::Read { touch: None, .. } => line.word("mg ").key(key),
            KeyCommand::Read { touch: Some(expiry), .. } | KeyCommand::Touch { expiry } => {
                line.word("mg ").key(key).word(" T").signed(*expiry)
            }
            KeyCommand::Store { verb, flags, expiry, value } => {
                let line = line.word("ms ").key(key).number(value.len() as u64).word(" F");
                line.digits(u64::from(*flags)).word(" T").signed(*expiry).word(" M").word(verb.letter())
            }
            KeyCommand::Cas { unique, flags, value, .. } => {
                let line = line.word("ms ").key(key).number(value.len() as u64).word(" F");
                line.digits(u64::from(*flags)).word(" C").digits(*unique)
            }
            KeyCommand::Delete => line.word("md ").key(key),
            KeyCommand::Count { up, by } => {
                line.word("ma ").key(key).word(" D").digits(*by).word(if *up { " MI" } else { " MD" })
            }
        };
        if !flags.is_empty() {
            line.word(" ").word(flags);
        }
        line.word("\r\n");
    }
}

/// Appends a `get` of several keys, or a `gets`.
pub fn write_get<K: AsRef<[u8]>>(unique: bool, keys: &[K], out: &mut Vec<u8>) {
    out.extend_from_slice(if unique { b"gets" } else { b"get" });
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key.as_ref());
    }
    out.extend_from_slice(b"\r\n");
}

impl StoreVerb {
    /// Its name in the classic syntax.
    pub const fn word(self) -> &'static str {
        match self {
            StoreVerb::Set => "set",
            StoreVerb::Add => "add",
            StoreVerb::Replace => "replace",
            StoreVerb::Append => "append",
            StoreVerb::Prepend => "prepend",
        }
    }

    /// The mode in the meta syntax.
    const fn letter(self) -> &'static str {
        match self {
            StoreVerb::Set => "S",
            StoreVerb::Add => "E",
            StoreVerb::Replace => "R",
            StoreVerb::Append => "A",
            StoreVerb::Prepend => "P",
        }
    }

    /// Whether it sets the lifetime; one that extends a value keeps it.
    pub const fn sets_expiry(self) -> bool {
        !matches!(self, StoreVerb::Append | StoreVerb::Prepend)
    }
}

/// Writes the words of a line. Millions of requests are written while a server is measured.
struct RequestLine<'o>(&'o mut Vec<u8>);

impl RequestLine<'_> {
    fn word(&mut self, word: &str) -> &mut Self {
        self.0.extend_from_slice(word.as_bytes());
        self
    }

    fn key(&mut self, key: &[u8]) -> &mut Self {
        self.0.extend_from_slice(key);
        self
    }

    /// A blank and a number.
    fn number(&mut self, number: u64) -> &mut Self {
        self.word(" ").digits(number)
    }

    fn digits(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                self.0.extend_from_slice(&digits[at..]);
                return self;
            }
        }
    }

    fn signed(&mut self, number: i64) -> &mut Self {
        if number < 0 {
            self.word("-");
        }
        self.digits(number.unsigned_abs())
    }

    fn signed_after(&mut self, number: i64) -> &mut Self {
        self.word(" ").signed(number)
    }
}

/// So many lower-case letters.
pub fn letters(count: u64, stream: &mut SplitMix64) -> Vec<u8> {
    (0..count).map(|_| b'a' + stream.below(26) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_bytes_in_every_syntax() {
        let value = || Cow::Borrowed(&b"ab"[..]);
        let (verb, flags, unique) = (StoreVerb::Append, 7, u64::MAX);
        let store = |expiry| KeyCommand::Store { verb, flags, expiry, value: value() };
        let cas = || KeyCommand::Cas { unique, flags, expiry: 5, value: value() };
        let touched = |unique, touch| KeyCommand::Read { unique, touch: Some(touch) };
        for (request, bytes) in [
            (KeyCommand::GET.classic(), "get k\r\n"),
            (KeyCommand::GETS.classic(), "gets k\r\n"),
            (touched(false, -1).classic(), "gat -1 k\r\n"),
            (touched(true, 30).classic(), "gats 30 k\r\n"),
            (store(-1).classic(), "append k 7 -1 2\r\nab\r\n"),
            (cas().classic(), "cas k 7 5 2 18446744073709551615\r\nab\r\n"),
            (KeyCommand::Delete.classic(), "delete k\r\n"),
            (KeyCommand::Count { up: true, by: 10 }.classic(), "incr k 10\r\n"),
            (KeyCommand::Touch { expiry: 0 }.classic(), "touch k 0\r\n"),
            (KeyRequest { command: KeyCommand::Delete, syntax: Syntax::Silent }, "delete k noreply\r\n"),
            (KeyRequest { command: store(0), syntax: Syntax::Silent }, "append k 7 0 2 noreply\r\nab\r\n"),
            (KeyCommand::GET.meta("f v"), "mg k f v\r\n"),
            (KeyCommand::Touch { expiry: 3 }.meta(""), "mg k T3\r\n"),
            (store(9).meta(""), "ms k 2 F7 T9 MA\r\nab\r\n"),
            (cas().meta("k"), "ms k 2 F7 C18446744073709551615 k\r\nab\r\n"),
            (KeyCommand::Delete.meta("O77 k"), "md k O77 k\r\n"),
            (KeyCommand::Count { up: false, by: 2 }.meta("v"), "ma k D2 MD v\r\n"),
        ] {
            assert_eq!(String::from_utf8_lossy(&request.bytes(b"k")), bytes);
        }
        let mut several = Vec::new();
        write_get(true, &["a", "b"], &mut several);
        assert_eq!(several, b"gets a b\r\n");
    }
}
