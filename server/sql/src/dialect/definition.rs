//! The statement of SQLite's that made a table, in parts that ALTER TABLE changes.

/// Words that begin a clause of a column.
const CLAUSES: [&str; 11] = [
    "NOT",
    "NULL",
    "PRIMARY",
    "DEFAULT",
    "CONSTRAINT",
    "CHECK",
    "UNIQUE",
    "REFERENCES",
    "COLLATE",
    "GENERATED",
    "AS",
];
/// Words that begin a constraint of a table.
const CONSTRAINTS: [&str; 5] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"];

/// A table's statement: its columns, then its constraints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    head: String,
    /// Columns in order.
    pub columns: Vec<ColumnText>,
    /// Constraints of the table in order.
    pub constraints: Vec<String>,
    tail: String,
}

/// A column's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnText {
    /// Without quotes.
    pub name: String,
    /// The words of its type.
    pub of: String,
    /// What follows: `NOT NULL`, `DEFAULT 1` and the like.
    pub clauses: Vec<String>,
}

impl Definition {
    /// Reads a statement; none if it is none of CREATE TABLE with columns.
    pub fn read(sql: &str) -> Option<Self> {
        let pieces = pieces(sql);
        let at = pieces.iter().position(|piece| piece.starts_with('('))?;
        let start = pieces[at].as_ptr() as usize - sql.as_ptr() as usize;
        let body = pieces[at].strip_prefix('(')?.strip_suffix(')')?;
        let head = sql[..start].trim_end().to_owned();
        let tail = sql[start + pieces[at].len()..].trim().to_owned();
        let (mut columns, mut constraints) = (Vec::new(), Vec::new());
        for item in items(body) {
            let words = self::pieces(item);
            let first = words.first()?;
            if CONSTRAINTS.iter().any(|word| word.eq_ignore_ascii_case(first)) {
                constraints.push(item.trim().to_owned());
            } else {
                columns.push(ColumnText::read(&words)?);
            }
        }
        Some(Definition { head, columns, constraints, tail })
    }

    /// The statement.
    pub fn sql(&self) -> String {
        let columns = self.columns.iter().map(ColumnText::sql);
        let items: Vec<String> = columns.chain(self.constraints.iter().cloned()).collect();
        format!("{} ({}) {}", self.head, items.join(", "), self.tail).trim_end().to_owned()
    }

    /// A column by its name.
    pub fn column(&mut self, name: &str) -> Option<&mut ColumnText> {
        self.columns.iter_mut().find(|column| column.name == name)
    }

    /// The index of the constraint with this name.
    pub fn constraint(&self, name: &str) -> Option<usize> {
        self.constraints.iter().position(|item| constraint_name(item).as_deref() == Some(name))
    }

    /// Names of constraints.
    pub fn constraint_names(&self) -> Vec<String> {
        self.constraints.iter().filter_map(|item| constraint_name(item)).collect()
    }

    /// Takes away foreign keys that refer to this table; false if there is one that stands with a column.
    pub fn forget(&mut self, table: &str) -> bool {
        let quoted = super::names::quoted(table);
        let refers = |item: &str| {
            pieces(item)
                .windows(2)
                .any(|pair| pair[0].eq_ignore_ascii_case("REFERENCES") && pair[1] == quoted)
        };
        self.constraints.retain(|item| !refers(item));
        let mut clauses = self.columns.iter().flat_map(|column| &column.clauses);
        !clauses.any(|clause| clause.to_ascii_uppercase().contains("REFERENCES"))
    }

    /// Names of constraints that have this column.
    pub fn constraints_with(&self, column: &str) -> Vec<Option<String>> {
        let quoted = super::names::quoted(column);
        let has = |item: &&String| pieces(item).iter().any(|piece| mentions(piece, &quoted));
        self.constraints.iter().filter(has).map(|item| constraint_name(item)).collect()
    }
}

impl ColumnText {
    fn read(words: &[&str]) -> Option<Self> {
        let is_clause = |word: &str| CLAUSES.iter().any(|clause| clause.eq_ignore_ascii_case(word));
        let mut words = words.iter();
        let name = unquoted(words.next()?);
        let (mut of, mut clauses): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
        let mut before = "";
        for word in words {
            // NOT NULL is one clause, and NULL may be a default or what a key is set to.
            let is_part = ["NOT", "DEFAULT", "SET"].iter().any(|one| one.eq_ignore_ascii_case(before))
                || clauses
                    .last()
                    .is_some_and(|last| last.starts_with("CONSTRAINT") && pieces(last).len() == 2);
            match clauses.last_mut() {
                _ if is_clause(word) && !is_part => clauses.push((*word).to_owned()),
                Some(last) => *last = format!("{last} {word}"),
                None if word.starts_with('(') => {
                    let with_numbers = format!("{}{word}", of.join(" "));
                    of.clear();
                    clauses.push(with_numbers);
                }
                None => of.push(word),
            }
            before = word;
        }
        // `numeric(10,2)`: a type with numbers, which was read as the first clause.
        let mut of = of.join(" ");
        if of.is_empty() && clauses.first().is_some_and(|first| first.ends_with(')') && !is_clause(first)) {
            of = clauses.remove(0);
        }
        Some(ColumnText { name, of, clauses })
    }

    fn sql(&self) -> String {
        let clauses: String = self.clauses.iter().map(|clause| format!(" {clause}")).collect();
        format!("{} {}{clauses}", super::names::quoted(&self.name), self.of)
    }

    /// Takes away clauses that begin so.
    pub fn remove(&mut self, start: &str) {
        self.clauses.retain(|clause| !clause.to_ascii_uppercase().starts_with(start));
    }
}

/// Whether a piece is this quoted name, or has it within its brackets.
fn mentions(piece: &str, quoted: &str) -> bool {
    match piece.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => pieces(inner).iter().any(|piece| mentions(piece, quoted)),
        None => piece.trim_end_matches(',') == quoted,
    }
}

fn constraint_name(item: &str) -> Option<String> {
    match pieces(item)[..] {
        [word, name, ..] if word.eq_ignore_ascii_case("CONSTRAINT") => Some(unquoted(name)),
        _ => None,
    }
}

fn unquoted(name: &str) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(name) => name.replace("\"\"", "\""),
        None => name.trim_matches(|c| "`[]".contains(c)).to_owned(),
    }
}

/// Where a quoted part that begins here ends.
fn quote_end(text: &str, start: usize) -> Option<usize> {
    let open = text[start..].chars().next()?;
    let close = match open {
        '\'' | '"' | '`' => open,
        '[' => ']',
        _ => return None,
    };
    let mut at = start + 1;
    loop {
        at += text[at..].find(close)? + close.len_utf8();
        // A quote that is written twice is a part of the text.
        if close == ']' || !text[at..].starts_with(close) {
            return Some(at);
        }
        at += close.len_utf8();
    }
}

/// Words, quoted parts, and brackets with all that is in them.
fn pieces(text: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start, mut at) = (Vec::new(), 0_usize, None, 0);
    while let Some(next) = text[at..].chars().next() {
        let after = quote_end(text, at).unwrap_or(at + next.len_utf8());
        let is_quoted = after > at + next.len_utf8();
        match next {
            '(' if depth == 0 => {
                found.extend(start.take().map(|start| &text[start..at]));
                (start, depth) = (Some(at), 1);
            }
            '(' => depth += 1,
            ')' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    found.extend(start.take().map(|start: usize| &text[start..after]));
                }
            }
            _ if depth > 0 => {}
            _ if is_quoted => {
                found.extend(start.take().map(|start| &text[start..at]));
                found.push(&text[at..after]);
            }
            next if next.is_whitespace() => found.extend(start.take().map(|start| &text[start..at])),
            ',' => {
                found.extend(start.take().map(|start| &text[start..at]));
                found.push(&text[at..after]);
            }
            _ => start = start.or(Some(at)),
        }
        at = after;
    }
    found.extend(start.map(|start| &text[start..]));
    found
}

/// Parts between commas that are in no brackets.
fn items(body: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut start = 0;
    for piece in pieces(body) {
        if piece == "," {
            let at = piece.as_ptr() as usize - body.as_ptr() as usize;
            items.push(&body[start..at]);
            start = at + 1;
        }
    }
    items.push(&body[start..]);
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_written_as_it_was_read() {
        let sql = "CREATE TABLE \"t\" (\"id\" INTEGER PRIMARY KEY AUTOINCREMENT, \"a, b\" numeric(10,2) NOT NULL \
                   DEFAULT (lower('),')), \"c\" double precision DEFAULT NULL, CONSTRAINT \"t_c_check\" CHECK \
                   (\"c\" > 1), CONSTRAINT \"f\" FOREIGN KEY (\"c\") REFERENCES \"p\" (\"x\"))";
        let mut read = Definition::read(sql).unwrap();
        assert_eq!(read.sql(), sql);
        assert_eq!(read.columns[1].of, "numeric(10,2)");
        assert_eq!(read.columns[1].clauses, ["NOT NULL", "DEFAULT (lower('),'))"]);
        assert_eq!(read.columns[2].clauses, ["DEFAULT NULL"]);
        assert_eq!(read.constraint("f"), Some(1));
        assert_eq!(read.constraints_with("c").len(), 2);
        read.column("a, b").unwrap().remove("DEFAULT");
        assert_eq!(read.columns[1].clauses, ["NOT NULL"]);
    }
}
