//! What clients have asked for and this service lacks, counted by name for operators: it is not part of the state.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::SqlError;

/// Names that are counted, at most; others count under [`REST`].
const MAX_NAMES: usize = 40;
/// Characters of a name at most.
const MAX_NAME: usize = 100;
/// What is counted when there are too many names.
const REST: &str = "other forms";
/// SQLSTATEs of what is not there: a form, a table, a function, a type.
const LACKS: [&str; 4] = ["0A000", "42P01", "42883", "42704"];

/// How often what was refused.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<String, u64>>);

impl Refusals {
    /// Counts an error, if it says that something is lacking. Tables and functions count if they are of the catalogue
    /// or have no quotes of the client's own: `no such function: txid_current` does, a misspelt table of the client's
    /// is its own matter.
    pub fn count(&self, error: &SqlError) {
        let is_lacking = LACKS.contains(&error.code.as_str());
        let is_table = error.code == "42P01";
        let is_of_catalogue = error.message.contains("pg_") || error.message.contains("information_schema");
        if !is_lacking || is_table && !is_of_catalogue {
            return;
        }
        let name: String = name(error).chars().take(MAX_NAME).collect();
        let mut counts = self.0.lock();
        let is_new = !counts.contains_key(&name);
        let name = if is_new && counts.len() >= MAX_NAMES { REST.to_owned() } else { name };
        *counts.entry(name).or_default() += 1;
    }

    /// The counts, by name.
    pub fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }
}

/// What is lacking, without what the client has written: names of functions, types and tables of the catalogue are none
/// of its data, values and expressions are.
fn name(error: &SqlError) -> &str {
    if error.code != "0A000" {
        return &error.message;
    }
    let end = error.message.find([':', '"', '\'']).unwrap_or(error.message.len());
    let name = &error.message[..end];
    name.split(" cannot be set to ").next().unwrap_or(name).trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_counted_by_name_and_names_are_bounded() {
        let refusals = Refusals::default();
        for _ in 0..2 {
            refusals.count(&SqlError::unsupported("LISTEN is not supported", "Poll a table."));
        }
        refusals.count(&SqlError::plain("23505", "duplicate key"));
        refusals.count(&SqlError::unsupported("this form is not supported: a + 'secret'", "Write another."));
        refusals.count(&SqlError::unsupported("parameter x cannot be set to secret", "Leave it."));
        refusals.count(&SqlError::plain("42P01", "relation \"mine\" does not exist"));
        refusals.count(&SqlError::plain("42P01", "relation \"pg_locks\" does not exist"));
        let expected = [
            ("LISTEN is not supported", 2),
            ("parameter x", 1),
            ("relation \"pg_locks\" does not exist", 1),
            ("this form is not supported", 1),
        ];
        assert_eq!(refusals.all(), expected.map(|(name, count)| (name.to_owned(), count)).into());
        for number in 0..2 * MAX_NAMES {
            refusals.count(&SqlError::plain(
                "42883",
                format!("function f{number}() does not exist {}", "x".repeat(200)),
            ));
        }
        let all = refusals.all();
        assert_eq!((all.len(), all[REST]), (MAX_NAMES + 1, MAX_NAMES as u64 + 4));
        assert!(all.keys().all(|name| name.chars().count() <= MAX_NAME));
    }
}
