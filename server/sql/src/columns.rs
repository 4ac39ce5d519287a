//! The columns of a table by the statement that made it: a row's record has their values without their names.

/// The columns of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableColumns {
    /// Their names, in the order of their values in a record.
    pub stored: Vec<String>,
    /// Numbers in `stored` of those of the primary key.
    pub key: Vec<usize>,
    /// The primary key is the row id.
    pub key_is_rowid: bool,
    /// Its rows are in an index by its primary key.
    pub is_without_rowid: bool,
}

/// A part of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SqlToken {
    text: String,
    /// It is a name, whatever it says.
    is_quoted: bool,
    /// In so many parentheses.
    depth: usize,
}

impl SqlToken {
    fn is(&self, word: &str) -> bool {
        !self.is_quoted && self.text.eq_ignore_ascii_case(word)
    }

    fn is_one_of(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }
}

/// What a constraint of a table begins with.
const OF_TABLE: [&str; 5] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"];
/// What ends the type of a column.
const BEHIND_TYPE: [&str; 11] = [
    "CONSTRAINT",
    "PRIMARY",
    "NOT",
    "NULL",
    "UNIQUE",
    "CHECK",
    "DEFAULT",
    "COLLATE",
    "REFERENCES",
    "GENERATED",
    "AS",
];

impl TableColumns {
    /// The columns that a CREATE TABLE, as it is in the schema, makes. None if it has no list of them.
    pub fn of(sql: &str) -> Option<Self> {
        let tokens = tokens(sql);
        let begin = tokens.iter().position(|token| token.is("("))? + 1;
        let length = tokens.get(begin..)?.iter().position(|token| token.depth == 0)?;
        let (list, behind) = tokens.get(begin..)?.split_at(length);
        let mut columns = TableColumns::default();
        let mut key: Vec<String> = Vec::new();
        let mut integers: Vec<&str> = Vec::new();
        for part in list.split(|token| token.depth == 1 && token.is(",")) {
            let Some(first) = part.first() else { continue };
            if first.is_one_of(&OF_TABLE) {
                key.extend(primary_key(part));
                continue;
            }
            if is_virtual(part) {
                continue;
            }
            if is_integer(part) {
                integers.push(&first.text);
            }
            if find_primary_key(part).is_some() {
                key.push(first.text.clone());
            }
            columns.stored.push(first.text.clone());
        }
        columns.is_without_rowid = behind.windows(2).any(|two| two[0].is("WITHOUT") && two[1].is("ROWID"));
        columns.key_is_rowid = !columns.is_without_rowid
            && matches!(&key[..], [only] if integers.iter().any(|name| name.eq_ignore_ascii_case(only)));
        columns.set_key(&key);
        Some(columns)
    }

    /// Without row ids the columns of the key come first in the record.
    fn set_key(&mut self, key: &[String]) {
        let place = |name: &String| self.stored.iter().position(|one| one.eq_ignore_ascii_case(name));
        let mut places: Vec<usize> = Vec::new();
        for place in key.iter().filter_map(place) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        if self.is_without_rowid {
            let rest = (0..self.stored.len()).filter(|place| !places.contains(place));
            let order: Vec<usize> = places.iter().copied().chain(rest).collect();
            self.stored = order.iter().map(|place| self.stored[*place].clone()).collect();
            places = (0..places.len()).collect();
        }
        self.key = places;
    }
}

/// Whether a column has no value in a record.
fn is_virtual(part: &[SqlToken]) -> bool {
    let is_generated = part.windows(2).any(|two| two[0].depth == 1 && two[0].is("AS") && two[1].is("("));
    is_generated && !part.iter().any(|token| token.depth == 1 && token.is("STORED"))
}

/// Whether the type of a column is INTEGER, so that as a primary key it is the row id.
fn is_integer(part: &[SqlToken]) -> bool {
    let named = part.iter().skip(1).take_while(|token| !token.is_one_of(&BEHIND_TYPE));
    let mut named = named.map(|token| token.text.as_str());
    let is_integer = named.next().is_some_and(|word| word.eq_ignore_ascii_case("INTEGER"));
    // An old quirk of SQLite's: with DESC it is not.
    let descends =
        find_primary_key(part).is_some_and(|behind| behind.first().is_some_and(|one| one.is("DESC")));
    is_integer && named.next().is_none() && !descends
}

/// What is behind PRIMARY KEY.
fn find_primary_key(part: &[SqlToken]) -> Option<&[SqlToken]> {
    let is_there = |two: &[SqlToken]| two[0].depth == 1 && two[0].is("PRIMARY") && two[1].is("KEY");
    let place = part.windows(2).position(is_there)?;
    part.get(place + 2..)
}

/// The columns of a constraint that is the primary key.
fn primary_key(part: &[SqlToken]) -> Vec<String> {
    let Some(behind) = find_primary_key(part) else { return Vec::new() };
    let list = behind.iter().skip(1).take_while(|token| token.depth >= 2);
    let list: Vec<&SqlToken> = list.collect();
    let first = |part: &[&SqlToken]| part.first().map(|token| token.text.clone());
    list.split(|token| token.depth == 2 && token.is(",")).filter_map(first).collect()
}

/// Takes a statement apart. Comments are left out.
fn tokens(sql: &str) -> Vec<SqlToken> {
    let mut tokens = Vec::new();
    let (mut rest, mut depth) = (sql, 0_usize);
    while let Some(first) = rest.chars().next() {
        let length = token_bytes(rest, first);
        let (text, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
        rest = behind;
        let is_comment = text.starts_with("--") || text.starts_with("/*");
        if first.is_whitespace() || is_comment {
            continue;
        }
        // A parenthesis has the depth of what is around it.
        depth = if first == ')' { depth.saturating_sub(1) } else { depth };
        let is_quoted = matches!(first, '"' | '`' | '[' | '\'');
        let text = if is_quoted { unquoted(text, first) } else { text.to_owned() };
        tokens.push(SqlToken { text, is_quoted, depth });
        depth += usize::from(first == '(');
    }
    tokens
}

/// Bytes of the part at the beginning of `rest`.
fn token_bytes(rest: &str, first: char) -> usize {
    let behind = &rest[first.len_utf8()..];
    let until = |end: &str| behind.find(end).map_or(rest.len(), |at| first.len_utf8() + at + end.len());
    match first {
        '-' if behind.starts_with('-') => until("\n"),
        '/' if behind.starts_with('*') => until("*/"),
        '[' => until("]"),
        '"' | '`' | '\'' => quoted_bytes(rest, first),
        _ if is_of_word(first) => rest.find(|next| !is_of_word(next)).unwrap_or(rest.len()),
        _ => first.len_utf8(),
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$' || !letter.is_ascii()
}

/// A quote that is doubled does not end the text.
fn quoted_bytes(rest: &str, quote: char) -> usize {
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    rest.len()
}

fn unquoted(text: &str, quote: char) -> String {
    let end = if quote == '[' { ']' } else { quote };
    let inner = text.strip_prefix(quote).unwrap_or(text);
    let inner = inner.strip_suffix(end).unwrap_or(inner);
    inner.replace(&format!("{end}{end}"), &end.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(sql: &str) -> Vec<String> {
        TableColumns::of(sql).expect("it has columns").stored
    }

    #[test]
    fn names_are_found_among_types_constraints_quotes_and_comments() {
        let sql = "CREATE TABLE a (id INTEGER PRIMARY KEY, -- (the, key)\n \"primary\" TEXT DEFAULT '),(', \
            [two words] DECIMAL(10, 2) CHECK (x IN (1, 2)), `q``q`/* , */ INT, CONSTRAINT c UNIQUE (a, b), \
            FOREIGN KEY (x) REFERENCES y (z))";
        assert_eq!(stored(sql), ["id", "primary", "two words", "q`q"]);
        assert_eq!(TableColumns::of("CREATE TABLE broken"), None);
        assert_eq!(TableColumns::of("CREATE TABLE broken (a, b"), None);
    }

    #[test]
    fn virtual_columns_have_no_value_and_keys_come_first_without_row_ids() {
        let sql =
            "CREATE TABLE a (a INT, b INT AS (a + 1), c INT GENERATED ALWAYS AS (a) STORED, \"as\" INT)";
        assert_eq!(stored(sql), ["a", "c", "as"]);
        let sql = "CREATE TABLE a (a INT, b TEXT, c INT, PRIMARY KEY (c DESC, B)) STRICT, WITHOUT ROWID";
        let columns = TableColumns::of(sql).expect("columns");
        assert_eq!((columns.stored, columns.key), (vec!["c".into(), "b".into(), "a".into()], vec![0, 1]));
        assert!(columns.is_without_rowid && !columns.key_is_rowid);
    }

    #[test]
    fn the_key_is_the_row_id_where_sqlite_says_so() {
        for (definition, expected) in [
            ("k INTEGER PRIMARY KEY, v", true),
            ("k integer not null, v, primary key (K)", true),
            ("k INT PRIMARY KEY, v", false),
            ("k INTEGER PRIMARY KEY DESC, v", false),
            ("k INTEGER, v INTEGER, PRIMARY KEY (k, v)", false),
            ("k TEXT PRIMARY KEY, v INTEGER", false),
        ] {
            let columns = TableColumns::of(&format!("CREATE TABLE t ({definition})")).expect("columns");
            assert_eq!(columns.key_is_rowid, expected, "{definition}");
            assert_eq!(columns.key[0], 0, "{definition}");
        }
    }

    proptest! {
        #[test]
        fn any_text_has_columns_or_none(text in "[a-z(),'\"\\[\\]` \u{e4}/*-]{0,80}", tail in ".{0,40}") {
            let _ = TableColumns::of(&format!("{text}{tail}"));
        }
    }
}
