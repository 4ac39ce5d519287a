//! Takes typed values out of a TOML table and collects all problems with their lines.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crosscheck::Address;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, line_of, meant};

/// Fields of earlier releases: what became of each, and what to do.
const REMOVED: [(&str, &str, &str); 1] = [(
    "alone_after_silence",
    "was removed: where only the link had failed, both replicas went on, and clients saw two histories",
    "remove it; add a witness, and either replica goes on without the other",
)];

/// One table of the file, and the problems found in it so far.
pub struct TableReader<'t> {
    text: &'t str,
    table: &'t DeTable<'t>,
    /// Prefix of the fields' names in messages: empty or `replica[2].`.
    prefix: String,
    /// Line of the table's head, for problems of missing fields; none for the whole file.
    head: Option<usize>,
    /// The problems found so far, in no order.
    pub problems: Vec<Problem>,
}

impl<'t> TableReader<'t> {
    /// Reads `table` of `text`; every name outside `known` is a problem.
    pub fn new(
        text: &'t str,
        table: &'t DeTable<'t>,
        prefix: &str,
        head: Option<usize>,
        known: &[&str],
    ) -> Self {
        let mut reader = TableReader { text, table, prefix: prefix.to_owned(), head, problems: Vec::new() };
        reader.check_names(known, &[]);
        reader
    }

    /// Reads the whole file, of which only builds of the laboratory know the names in `lab`.
    pub(super) fn of_file(text: &'t str, table: &'t DeTable<'t>, known: &[&str], lab: &[&str]) -> Self {
        let mut reader = TableReader { text, table, prefix: String::new(), head: None, problems: Vec::new() };
        if cfg!(feature = "lab") {
            reader.check_names(&[known, lab].concat(), &[]);
        } else {
            reader.check_names(known, lab);
        }
        reader
    }

    fn check_names(&mut self, known: &[&str], lab: &[&str]) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            let at = Some(key.span().start);
            if let Some((_, what, remedy)) = REMOVED.iter().find(|(removed, ..)| *removed == name) {
                self.report(at, name, what, remedy);
            } else if lab.contains(&name) {
                let what = "is for experiments, and this build has all protections";
                self.report(
                    at,
                    name,
                    what,
                    "remove it, or run the file with crosscheck-lab, the laboratory's build",
                );
            } else if !known.contains(&name) {
                let remedy = match meant(name, known) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("remove it; known here are {}", known.join(", ")),
                };
                self.report(at, name, "there is no such field", &remedy);
            }
        }
    }

    /// Notes a problem at a byte offset of the file, or at the table's head.
    pub fn report(&mut self, at: Option<usize>, name: &str, what: &str, remedy: &str) {
        self.problems.push(Problem {
            line: at.map(|at| line_of(self.text, at)).or(self.head),
            field: format!("{}{name}", self.prefix),
            what: what.to_owned(),
            remedy: remedy.to_owned(),
            may_pass: false,
        });
    }

    /// The offset of a field's value, for a check of several fields.
    pub fn offset(&self, name: &str) -> Option<usize> {
        self.table.get(name).map(|value| value.span().start)
    }

    /// Notes that a required field is missing.
    pub fn require<T>(&mut self, name: &str, value: Option<T>, example: &str) -> Option<T> {
        if value.is_none() && !self.table.contains_key(name) {
            self.report(None, name, "is missing", &format!("add `{name} = {example}`"));
        }
        value
    }

    /// A whole number within `range`, in `unit` (empty for a plain count).
    pub fn integer(&mut self, name: &str, range: RangeInclusive<u64>, unit: &str) -> Option<u64> {
        let value = self.table.get(name)?;
        self.number(name, value, &range, unit)
    }

    /// Two whole numbers `[low, high]`, both within `range`, low at most high.
    pub fn span_of(&mut self, name: &str, range: RangeInclusive<u64>, unit: &str) -> Option<(u64, u64)> {
        let value = self.table.get(name)?;
        let remedy = format!("write `{name} = [LOW, HIGH]`, two whole numbers in {unit}");
        let pair = match value.get_ref() {
            DeValue::Array(array) if array.len() == 2 => array,
            other => {
                let what = format!("expected a pair of numbers, found {}", kind_of(other));
                self.report(Some(value.span().start), name, &what, &remedy);
                return None;
            }
        };
        let low = self.number(name, &pair[0], &range, unit)?;
        let high = self.number(name, &pair[1], &range, unit)?;
        if low > high {
            self.report(Some(value.span().start), name, &format!("{low} is more than {high}"), &remedy);
            return None;
        }
        Some((low, high))
    }

    /// A string.
    pub fn text(&mut self, name: &str) -> Option<&'t str> {
        let value = self.table.get(name)?;
        if let DeValue::String(text) = value.get_ref() {
            return Some(text);
        }
        let what = format!("expected a string, found {}", kind_of(value.get_ref()));
        self.report(Some(value.span().start), name, &what, &format!("write `{name} = \"...\"`"));
        None
    }

    /// A string that `parse` accepts; otherwise its error is reported, with `remedy`.
    pub fn parsed<T>(
        &mut self,
        name: &str,
        remedy: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(name)?;
        match parse(text) {
            Ok(value) => Some(value),
            Err(what) => {
                self.report(self.offset(name), name, &what, remedy);
                None
            }
        }
    }

    /// An address `host:port`; a host name is not resolved.
    pub fn address(&mut self, name: &str) -> Option<Address> {
        let remedy = format!("write `{name} = \"HOST:PORT\"`, for example \"10.0.0.1:12211\"");
        self.parsed(name, &remedy, str::parse)
    }

    /// The first address to which `host:port` resolves now; if it does not resolve, the problem can disappear by
    /// itself.
    pub fn resolved(&mut self, name: &str, remedy: &str) -> Option<SocketAddr> {
        let address: Address = self.parsed(name, remedy, str::parse)?;
        match first_of(&address) {
            Ok(address) => Some(address),
            Err(what) => {
                self.report(self.offset(name), name, &what, "see the name server, or write an IP address");
                self.problems.iter_mut().last()?.may_pass = true;
                None
            }
        }
    }

    /// The tables of an array `[[name]]`, each with the offset of its head.
    pub fn tables(&mut self, name: &str) -> Vec<(&'t DeTable<'t>, usize)> {
        let Some(value) = self.table.get(name) else { return Vec::new() };
        let mut tables = Vec::new();
        if let DeValue::Array(array) = value.get_ref() {
            for element in array.iter() {
                if let DeValue::Table(table) = element.get_ref() {
                    tables.push((table, element.span().start));
                }
            }
            if tables.len() == array.len() {
                return tables;
            }
        }
        let remedy = format!("write one `[[{name}]]` section per replica");
        self.report(Some(value.span().start), name, "expected sections", &remedy);
        Vec::new()
    }

    fn number(
        &mut self,
        name: &str,
        value: &Spanned<DeValue<'_>>,
        range: &RangeInclusive<u64>,
        unit: &str,
    ) -> Option<u64> {
        let at = Some(value.span().start);
        let space = if unit.is_empty() { "" } else { " " };
        let remedy = format!("write a whole number from {} to {}{space}{unit}", range.start(), range.end());
        let DeValue::Integer(digits) = value.get_ref() else {
            let what = format!("expected a whole number, found {}", kind_of(value.get_ref()));
            self.report(at, name, &what, &remedy);
            return None;
        };
        match u64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                self.report(at, name, &format!("{} is out of range", digits.as_str()), &remedy);
                None
            }
        }
    }
}

/// The first address to which `host:port` resolves now.
///
/// # Errors
/// It resolves to none, or has port 0, to which no client can connect.
pub fn resolve(text: &str) -> Result<SocketAddr, String> {
    first_of(&text.parse()?)
}

fn first_of(address: &Address) -> Result<SocketAddr, String> {
    let found = address.resolve()?;
    found.first().copied().ok_or_else(|| format!("`{address}` resolves to no address"))
}

fn kind_of(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string \"{text}\""),
        other => format!("a value of type {}", other.type_str()),
    }
}
