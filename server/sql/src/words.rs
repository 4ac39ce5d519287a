//! What the first words of a statement say, for what must be known before it is parsed: which lock it needs, and
//! whether it begins or ends a transaction. Where words do not tell, the answer is the careful one.

/// What a statement does to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionChange {
    /// It begins.
    Begin,
    /// It ends, and counts.
    Commit,
    /// It ends, and does not count.
    RollBack,
}

/// What a query does to a transaction, if it is a single statement of this kind, and certainly means that.
pub fn changes_transaction(text: &str) -> Option<TransactionChange> {
    is_single(text).then(|| transaction_change(text)).flatten()
}

/// Only whole statements that mean just this: `ROLLBACK TO`, `COMMIT AND CHAIN` and `COMMIT PREPARED` are others.
fn transaction_change(sql: &str) -> Option<TransactionChange> {
    let (words, rest) = leading_words(sql);
    let is_whole = || match &words[1..] {
        [] => true,
        [word] => ["WORK", "TRANSACTION"].contains(&word.as_str()),
        _ => false,
    };
    let is_end = without_blanks(rest.strip_prefix(';').unwrap_or(rest)).is_empty();
    match words.first()?.as_str() {
        "BEGIN" | "START" => Some(TransactionChange::Begin),
        "COMMIT" | "END" if is_end && is_whole() => Some(TransactionChange::Commit),
        "ROLLBACK" | "ABORT" if is_end && is_whole() => Some(TransactionChange::RollBack),
        _ => None,
    }
}

/// Whether the first thing that a query does is to go back to a savepoint.
pub fn rolls_back_to(text: &str) -> bool {
    let (words, _) = leading_words(text);
    let behind =
        words.get(1).filter(|word| ["WORK", "TRANSACTION"].contains(&word.as_str())).map_or(1, |_| 2);
    words.first().is_some_and(|word| word == "ROLLBACK") && words.get(behind).is_some_and(|word| word == "TO")
}

/// Whether a statement that begins a transaction lets it only read.
pub fn begins_read_only(text: &str) -> bool {
    if text.contains("--") || text.contains("/*") {
        // What is in a comment says nothing: without a sign of it, all is written that may be.
        return false;
    }
    let words: Vec<_> = text.split_ascii_whitespace().map(str::to_ascii_uppercase).collect();
    words.windows(2).any(|pair| pair[0] == "READ" && pair[1].starts_with("ONLY"))
}

/// Whether a query is certainly a single statement.
pub fn is_single(text: &str) -> bool {
    text.split_once(';').is_none_or(|(_, behind)| without_blanks(behind).is_empty())
}

/// Whether a query certainly changes nothing. One that does not look so may still change nothing.
pub fn only_reads(text: &str) -> bool {
    let is_query = is_single(text)
        && leading_words(text)
            .0
            .first()
            .is_some_and(|word| ["SELECT", "VALUES", "SHOW"].contains(&word.as_str()));
    is_query && {
        let lower = text.to_ascii_lowercase();
        !lower.contains("nextval") && !lower.contains("setval")
    }
}

/// The prepared statement that `DEALLOCATE` forgets, or all.
pub fn deallocated(text: &str) -> Option<Option<String>> {
    let (words, _) = leading_words(text);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["DISCARD", "ALL"] | ["DEALLOCATE", "ALL"] | ["DEALLOCATE", "PREPARE", "ALL"] => Some(None),
        ["DEALLOCATE", ..] => {
            let text = text.trim_end().trim_end_matches(';').trim_end();
            let quoted = text.strip_suffix('"').and_then(|text| text.split_once('"'));
            let plain =
                || text.rsplit(|letter: char| letter.is_ascii_whitespace()).next().unwrap_or_default();
            Some(Some(match quoted {
                Some((_, name)) => name.replace("\"\"", "\""),
                None => plain().to_ascii_lowercase(),
            }))
        }
        _ => None,
    }
}

/// Whether a statement is a COPY of lines that the client sends.
pub fn copies_from_client(text: &str) -> bool {
    let words: Vec<_> = text.split_ascii_whitespace().map(str::to_ascii_uppercase).collect();
    words.first().is_some_and(|word| word == "COPY")
        && words.windows(2).any(|pair| pair[0] == "FROM" && pair[1].trim_end_matches(';') == "STDIN")
}

/// The words with which a statement begins, four at most, in capitals, and what is behind them.
pub fn leading_words(sql: &str) -> (Vec<String>, &str) {
    let (mut words, mut rest) = (Vec::new(), without_blanks(sql));
    while words.len() < 4 {
        let end = rest.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        words.push(rest[..end].to_ascii_uppercase());
        rest = without_blanks(&rest[end..]);
    }
    (words, rest)
}

fn without_blanks(mut sql: &str) -> &str {
    loop {
        sql = sql.trim_start();
        if let Some(comment) = sql.strip_prefix("--") {
            sql = comment.split_once('\n').map_or("", |(_, behind)| behind);
        } else if let Some(comment) = sql.strip_prefix("/*") {
            sql = comment.split_once("*/").map_or("", |(_, behind)| behind);
        } else {
            return sql;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_statement_is_found_by_its_name() {
        let cases = [
            ("DEALLOCATE _pg3_0", Some(Some("_pg3_0"))),
            ("deallocate prepare \"A b\";", Some(Some("A b"))),
            ("DEALLOCATE ALL", Some(None)),
            ("DISCARD ALL;", Some(None)),
            ("SELECT 1", None),
        ];
        for (text, name) in cases {
            assert_eq!(deallocated(text), name.map(|name| name.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn only_a_whole_statement_changes_a_transaction() {
        assert_eq!(
            changes_transaction("begin isolation level serializable;"),
            Some(TransactionChange::Begin)
        );
        assert_eq!(changes_transaction("/* x */ COMMIT WORK"), Some(TransactionChange::Commit));
        assert_eq!(changes_transaction("ROLLBACK TO x"), None);
        assert_eq!(changes_transaction("COMMIT; SELECT 1"), None);
        assert!(begins_read_only("START TRANSACTION READ ONLY") && !begins_read_only("BEGIN"));
    }
}
