//! Sequences: rows of a table of our own. `nextval` is a number that an UPDATE in front of the statement has reserved,
//! so it stands only where it is computed once: in VALUES of an INSERT, and in a SELECT without FROM.
//!
//! Unlike PostgreSQL's, a number that was drawn is rolled back with its transaction: two transactions that draw from
//! one sequence, and show the number before they commit, conflict (40001).

use sqlparser::ast::{Expr, ObjectName, Query, SequenceOptions, SetExpr, Statement, Value};

use super::expression::Expression;
use super::names::{self, text_literal};
use super::operators::bare;
use super::statement::one;
use super::table::{exists_already, schema_part};
use super::translator::{Translator, no_table};
use super::{StatementKind, Translated};
use crate::catalog::INTERNAL;
use crate::error::SqlError;
use crate::types::PgType;

/// What a statement draws from a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceUse {
    /// So many numbers.
    Next(u32),
    /// Its last number becomes this expression of SQLite's, unless that is NULL; and whether that number was drawn.
    Set(String, bool),
}

/// The table: the name, the step between two numbers, the last number before the statement or what `setval` was given,
/// and the last number of all.
fn table() -> String {
    format!("{INTERNAL}sequences")
}

/// Whether `nextval` may stand in the outermost query of a statement.
pub fn draws_once(statement: &Statement) -> bool {
    match statement {
        Statement::Query(query) => is_single_row(query),
        Statement::Insert(insert) => {
            insert.source.as_ref().is_some_and(|query| matches!(query.body.as_ref(), SetExpr::Values(_)))
        }
        _ => false,
    }
}

/// A SELECT of one row that reads no table.
fn is_single_row(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let has_rest = query.with.is_some() || query.limit_clause.is_some() || query.fetch.is_some();
    select.from.is_empty() && select.selection.is_none() && select.having.is_none() && !has_rest
}

/// In front of a statement: the numbers that it draws.
pub fn reserved(drawn: &[(String, SequenceUse)]) -> Vec<Translated> {
    let step = |(name, drawn): &(String, SequenceUse)| {
        let change = match drawn {
            SequenceUse::Next(count) => {
                format!("before = last, last = add_pg(last, multiply_pg({count}, step))")
            }
            SequenceUse::Set(value, is_called) => {
                let last = if *is_called { "value" } else { "subtract_pg(value, step)" };
                format!(
                    "(before, last) = (WITH given (value) AS MATERIALIZED (SELECT {value}) \
                        SELECT value, ifnull({last}, last) FROM given)"
                )
            }
        };
        let sql = format!("UPDATE {} SET {change} WHERE name = {}", table(), text_literal(name));
        one(sql, None, StatementKind::Update)
    };
    drawn.iter().flat_map(step).collect()
}

impl Translator<'_> {
    /// `nextval('s')`, `setval('s', 7)`, `setval('s', 7, false)`.
    pub fn sequence_call(&mut self, name: &str, arguments: &[&Expr]) -> Result<Expression, SqlError> {
        let [first, rest @ ..] = arguments else {
            return Err(SqlError::plain("42883", format!("function {name}() does not exist")));
        };
        if !self.draws_here() {
            let message =
                format!("{name} in this place is not supported: it would be computed several times");
            let hint = "Write it in VALUES of an INSERT, or ask with SELECT nextval(..) first.";
            return Err(SqlError::unsupported(message, hint));
        }
        let sequence = self.sequence_name(first)?;
        let drawn = match (name, rest) {
            ("nextval", []) => SequenceUse::Next(1),
            ("setval", [value]) => SequenceUse::Set(self.number(value)?, true),
            ("setval", [value, is_called]) => match bare(is_called) {
                Expr::Value(known) if matches!(known.value, Value::Boolean(_)) => {
                    SequenceUse::Set(self.number(value)?, known.value == Value::Boolean(true))
                }
                _ => {
                    let message = "the third argument of setval has to be a literal";
                    return Err(SqlError::unsupported(message, "Write true or false."));
                }
            },
            _ => return Err(SqlError::plain("42883", format!("function {name} does not exist so"))),
        };
        let is_set = matches!(drawn, SequenceUse::Set(..));
        let known = self.drawn.iter_mut().find(|(of, _)| *of == sequence);
        let (value, is_mixed) = match known {
            Some((_, SequenceUse::Next(count))) if !is_set => {
                *count += 1;
                (format!("add_pg(before, {count} * step)"), false)
            }
            known => {
                let is_mixed = known.is_some();
                self.drawn.push((sequence.clone(), drawn));
                (if is_set { "before" } else { "add_pg(before, step)" }.to_owned(), is_mixed)
            }
        };
        if is_mixed {
            let message = "nextval and setval of one sequence in one statement are not supported";
            return Err(SqlError::unsupported(message, "Send two statements."));
        }
        let missing = format!("relation \"{sequence}\" does not exist");
        let sql = format!(
            "(SELECT CASE count(*) WHEN 0 THEN raise_pg('42P01', {}) ELSE max({value}) END FROM {} WHERE name = {})",
            text_literal(&missing),
            table(),
            text_literal(&sequence)
        );
        Ok(Expression { is_nullable: is_set, ..Expression::new(sql, PgType::Int8) })
    }

    fn number(&mut self, value: &Expr) -> Result<String, SqlError> {
        let value = self.expression(value)?;
        let value = self.typed(value, PgType::Int8)?;
        if !value.known_or_text().is_integer() {
            return Err(SqlError::plain("42883", "setval takes a number"));
        }
        Ok(value.sql)
    }

    /// The name in `'s'` or `'s'::regclass`.
    fn sequence_name(&mut self, expr: &Expr) -> Result<String, SqlError> {
        let text = match bare(expr) {
            Expr::Value(value) => value.value.clone().into_string(),
            Expr::Cast { expr, .. } => match bare(expr) {
                Expr::Value(value) => value.value.clone().into_string(),
                _ => None,
            },
            _ => None,
        };
        let Some(text) = text else {
            let message = "the name of a sequence has to be a literal";
            return Err(SqlError::unsupported(message, "Write nextval('name')."));
        };
        let name = text.strip_prefix("public.").or(text.strip_prefix("\"public\".")).unwrap_or(&text);
        let name = match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
            Some(quoted) => quoted.to_owned(),
            None => name.to_ascii_lowercase(),
        };
        match self.tables.definition(&table()) {
            Some(_) => Ok(name),
            None => Err(no_table(&name)),
        }
    }

    /// `CREATE SEQUENCE`.
    pub fn create_sequence(
        &mut self,
        name: &ObjectName,
        (is_temporary, if_not_exists): (bool, bool),
        options: &[SequenceOptions],
    ) -> Result<Vec<Translated>, SqlError> {
        const TAG: &str = "CREATE SEQUENCE";
        let name = names::object(name)?;
        if is_temporary {
            let hint = "Create one that stays, and drop it.";
            return Err(SqlError::unsupported("temporary sequences are not supported", hint));
        }
        if self.tables.columns(&name).is_some() {
            return Err(exists_already(&name));
        }
        let (mut step, mut start) = (1, None);
        for option in options {
            match option {
                SequenceOptions::IncrementBy(value, _) => step = whole(value)?,
                SequenceOptions::StartWith(value, _) => start = Some(whole(value)?),
                SequenceOptions::MinValue(None)
                | SequenceOptions::MaxValue(None)
                | SequenceOptions::DataType(_)
                | SequenceOptions::Cache(_)
                // NO CYCLE, as the parser has it.
                | SequenceOptions::Cycle(true) => {}
                SequenceOptions::MinValue(Some(value)) if whole(value)? == 1 => {}
                SequenceOptions::MaxValue(Some(value)) if whole(value)? == i64::MAX => {}
                other => {
                    let hint = "Leave it out: numbers go up to the largest bigint.";
                    return Err(SqlError::unsupported(
                        format!("{other} of a sequence is not supported"),
                        hint,
                    ));
                }
            }
        }
        if step == 0 {
            return Err(SqlError::plain("22023", "INCREMENT must not be zero"));
        }
        let first = start.unwrap_or(if step > 0 { 1 } else { -1 });
        let last = first.checked_sub(step).ok_or_else(|| {
            SqlError::plain("22023", format!("START value ({first}) is too close to the end of bigint"))
        })?;
        let literal = text_literal(&name);
        let made = format!(
            "CREATE TABLE IF NOT EXISTS {} (name TEXT PRIMARY KEY NOT NULL, step INTEGER NOT NULL, \
                before INTEGER, last INTEGER NOT NULL)",
            table()
        );
        let message = text_literal(&format!("relation \"{name}\" already exists"));
        let known = format!("SELECT 1 FROM {} WHERE name = {literal}", table());
        let added = match if_not_exists {
            true => format!("INSERT OR IGNORE INTO {} VALUES ({literal}, {step}, {last}, {last})", table()),
            false => format!(
                "INSERT INTO {} SELECT CASE WHEN EXISTS ({known}) THEN raise_pg('42P07', {message}) \
                    ELSE {literal} END, {step}, {last}, {last}",
                table()
            ),
        };
        Ok(vec![schema_part(made, TAG), schema_part(added, TAG)])
    }

    /// `DROP SEQUENCE`.
    pub fn drop_sequences(&mut self, names: &[String], if_exists: bool) -> Result<Vec<Translated>, SqlError> {
        const TAG: &str = "DROP SEQUENCE";
        if self.tables.definition(&table()).is_none() {
            return match names.first() {
                Some(name) if !if_exists => Err(no_table(name)),
                _ => Ok(one(String::new(), None, StatementKind::Nothing(TAG))),
            };
        }
        let dropped = |name: &String| {
            let literal = text_literal(name);
            let message = text_literal(&format!("sequence \"{name}\" does not exist"));
            let missing = format!(
                "ifnull((SELECT name FROM {} WHERE name = {literal}), raise_pg('42P01', {message}))",
                table()
            );
            let found = if if_exists { literal } else { missing };
            schema_part(format!("DELETE FROM {} WHERE name = {found}", table()), TAG)
        };
        Ok(names.iter().map(dropped).collect())
    }
}

/// A literal number, with a sign or without.
fn whole(value: &Expr) -> Result<i64, SqlError> {
    let text = value.to_string().replace(' ', "");
    text.parse().map_err(|_| SqlError::plain("22023", format!("{text} is no number for a sequence")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::parse::ReadStatement;

    #[test]
    fn numbers_are_drawn_where_they_are_computed_once() {
        let draws = |text: &str| match crate::dialect::statements(text).expect(text).remove(0).tree {
            ReadStatement::Parsed(tree) => draws_once(&tree),
            _ => false,
        };
        assert!(draws("SELECT nextval('s'), 1") && draws("INSERT INTO t VALUES (nextval('s'), 2), (3, 4)"));
        for text in [
            "SELECT nextval('s') FROM t",
            "INSERT INTO t SELECT nextval('s')",
            "SELECT 1 WHERE a",
            "UPDATE t SET a = nextval('s')",
            "SELECT nextval('s') LIMIT 0",
            "VALUES (nextval('s'))",
        ] {
            assert!(!draws(text), "{text}");
        }
    }
}
