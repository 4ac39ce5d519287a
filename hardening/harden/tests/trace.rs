//! Random requests for a memcached: all commands of the text protocol that handlers serve, wrong ones among them.

use wire::SplitMix64;

/// A request: its line, and its data block where it has one. Both have their line ends.
#[derive(Clone, Debug)]
pub struct Request {
    /// The command line.
    pub line: Vec<u8>,
    /// The data block.
    pub data: Option<Vec<u8>>,
}

/// Makes requests from a seed.
pub struct Trace {
    random: SplitMix64,
    keys: u64,
    prefix: String,
    largest: u64,
    has_cas: bool,
}

impl Trace {
    /// Requests for so many keys with this prefix, with values up to `largest` bytes. `has_cas`: whether replies
    /// contain the numbers of versions, which the server assigns to all connections.
    pub fn new(seed: u64, prefix: &str, keys: u64, largest: u64, has_cas: bool) -> Trace {
        Trace { random: SplitMix64::new(seed), keys, prefix: prefix.to_owned(), largest, has_cas }
    }

    /// The next request.
    pub fn next(&mut self) -> Request {
        let key = self.key();
        let noreply = self.random.once_in(12);
        let end = if noreply { " noreply" } else { "" };
        match self.random.below(100) {
            0..30 => self.store(&key, noreply),
            30..50 => line(format!("get {}", self.several(&key))),
            50..54 if self.has_cas => line(format!("gets {}", self.several(&key))),
            54..58 => line(format!("gat {} {}", self.time(), self.several(&key))),
            58..63 => line(format!("delete {key}{end}")),
            63..71 => {
                let verb = *self.random.pick(&["incr", "decr"]);
                let by = if self.random.once_in(20) {
                    "many".into()
                } else {
                    self.random.below(1 << 40).to_string()
                };
                line(format!("{verb} {key} {by}{end}"))
            }
            71..74 => line(format!("touch {key} {}{end}", self.time())),
            74..80 => {
                let flags = *self.random.pick(&["v", "v f s k q", "k", "v N10000", "s v O7 q", "h v"]);
                // Not what a clock decides: the time to live, the time since the last access.
                line(format!("mg {key} {flags}"))
            }
            80..84 => self.meta_set(&key),
            84..86 => line(format!("md {key} {}", self.random.pick(&["q", "O3", ""]))),
            86..90 => {
                let flags = *self.random.pick(&["v", "N0 J5 v", "MD D3 v", "q", "J9 N10000 v"]);
                line(format!("ma {key} {flags}"))
            }
            90 if self.random.once_in(20) && self.has_cas => line("flush_all".into()),
            91 => line("version".into()),
            92 => line(self.random.pick(&["nonsense", "get", "set a b", "incr k", "mg", "  "]).to_string()),
            // A get would take unsent replies of its batch with it, as upstream has it.
            93 => line(format!("delete {}", "x".repeat(251))),
            94 => self.broken_store(&key),
            _ => line(format!("get {key}")),
        }
    }

    fn key(&mut self) -> String {
        // Half of all requests are for a tenth of the keys.
        let among = if self.random.once_in(2) { self.keys.div_ceil(10) } else { self.keys };
        format!("{}{}", self.prefix, self.random.below(among))
    }

    fn several(&mut self, first: &str) -> String {
        let more = if self.random.once_in(50) { 30 } else { self.random.below(4) };
        (0..more).fold(first.to_owned(), |all, _| format!("{all} {}", self.key()))
    }

    fn time(&mut self) -> &'static str {
        self.random.pick::<&str>(&["0", "0", "10000", "-1"])
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.below(20) {
            0 => self.random.below(self.largest),
            1..4 => self.random.below(1_500),
            4..7 => return self.random.below(1 << 45).to_string().into_bytes(),
            7 => return self.random.next_u64().to_string().into_bytes(),
            _ => self.random.below(80),
        };
        let first = self.random.below(26) as u8;
        (0..length).map(|at| b'a' + (first + (at % 23) as u8) % 26).collect()
    }

    fn store(&mut self, key: &str, noreply: bool) -> Request {
        let value = self.value();
        let flags = if self.random.once_in(3) { self.random.below(1 << 32) } else { 0 };
        let verbs = ["set", "set", "set", "set", "add", "replace", "append", "prepend", "cas"];
        let among = if self.has_cas { verbs.len() } else { verbs.len() - 1 };
        let verb = *self.random.pick(&verbs[..among]);
        let unique = if verb == "cas" { format!(" {}", self.random.below(5_000)) } else { String::new() };
        let end = if noreply { " noreply" } else { "" };
        let time = self.time();
        let head = format!("{verb} {key} {flags} {time} {}{unique}{end}", value.len());
        Request { data: Some([&value[..], b"\r\n"].concat()), ..line(head) }
    }

    fn meta_set(&mut self, key: &str) -> Request {
        let value = self.value();
        let flags = *self.random.pick(&["", "T0 F5", "ME", "MA", "MR", "T10000 k", "q"]);
        let head = format!("ms {key} {} {flags}", value.len());
        Request { data: Some([&value[..], b"\r\n"].concat()), ..line(head) }
    }

    /// The data block is longer than announced: an error, after which the rest is a line of its own.
    fn broken_store(&mut self, key: &str) -> Request {
        Request { data: Some(b"abcdefgh\r\n".to_vec()), ..line(format!("set {key} 0 0 4")) }
    }
}

fn line(text: String) -> Request {
    Request { line: format!("{}\r\n", text).into_bytes(), data: None }
}
