//! Executes what statements of PostgreSQL's dialect were translated to: rows, cursors, savepoints, parameters of the
//! session.

use std::collections::VecDeque;

use rusqlite::types::Value;

use crate::dialect::{self, Kind, Translated};
use crate::error::SqlError;
use crate::perform::{Performer, TransactionRules};
use crate::plan::{self, Plan, PlanStep};
use crate::query::QueryFailure;
use crate::reply::ReplyWriter;
use crate::request::{Dialect, Statement};
use crate::rows::{self, Asked, Cursor, RowsEnd};
use crate::settings;
use crate::types::PgType;
use crate::vfs;
use crate::words::{TransactionChange, is_single};

/// Bytes that the rows of a transaction's cursors may have.
const MAX_CURSOR_BYTES: usize = 16 << 20;

impl Performer<'_> {
    /// All statements of a text. Returns whether there is none.
    pub(crate) fn postgres_query(
        &mut self,
        text: &str,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<bool, QueryFailure> {
        if is_single(text) {
            // A query of a transaction is executed again with each later one: what it means is kept.
            let statement = Statement { text: text.to_owned(), types: Vec::new() };
            let plan = self.plan(Dialect::Postgres, &statement)?;
            without_parameters(&plan.parameters)?;
            if !plan.steps.is_empty() {
                self.steps(&plan, &[], Asked::SIMPLE, reply)?;
            }
            return Ok(plan.steps.is_empty());
        }
        let parsed = dialect::statements(text)?;
        self.is_together = parsed.len() > 1;
        for statement in &parsed {
            let steps = self.connected.look_up(|tables| dialect::translate(statement, tables, &[]))?;
            without_parameters(steps.first().map_or(&[], |first| &first.parameters))?;
            let plan =
                Plan { parameters: Vec::new(), steps: steps.into_iter().map(PlanStep::Postgres).collect() };
            self.steps(&plan, &[], Asked::SIMPLE, reply)?;
        }
        Ok(parsed.is_empty())
    }

    /// Executes a statement: the steps that it was translated to, of which the last one says what was done.
    pub(crate) fn steps(
        &mut self,
        plan: &Plan,
        values: &[Value],
        asked: Asked<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), QueryFailure> {
        rows::room(reply)?;
        let asked = if plan.is_query() { asked } else { Asked { limit: 0, ..asked } };
        if asked.skip > 0 && !plan.is_query() {
            // It was executed when the client asked for the first rows, and all of them were returned.
            reply.complete("SELECT 0");
            return Ok(());
        }
        // A statement of several steps happens as a whole.
        let was_together = self.is_together;
        self.is_together |= plan.steps.len() > 1;
        for (number, step) in plan.steps.iter().enumerate() {
            match step {
                PlanStep::Sqlite { text, .. } => self.sqlite_step(text, values, asked, reply)?,
                PlanStep::Postgres(step) => {
                    let tag = self.translated(step, values, asked, reply)?;
                    if number + 1 == plan.steps.len()
                        && let Some(tag) = tag
                    {
                        reply.complete(&tag);
                    }
                }
            }
        }
        self.is_together = was_together;
        Ok(())
    }

    fn sqlite_step(
        &mut self,
        text: &str,
        values: &[Value],
        asked: Asked<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), QueryFailure> {
        self.connected.take_change();
        let mut statement = self.connected.compile(|connection| connection.prepare(text))?;
        let change = self.connected.take_change();
        vfs::begin_statement();
        if !self.changes(change, reply)? {
            self.begin_implicit(change.is_none(), !statement.readonly())?;
            plan::bind(&mut statement, values)?;
            rows::of_sqlite(self.connection(), &mut statement, asked, reply)?;
        }
        self.is_implicit &= change.is_none();
        Ok(())
    }

    /// Executes a step. Returns what it says that was done, unless that is said already.
    fn translated(
        &mut self,
        step: &Translated,
        values: &[Value],
        asked: Asked<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<Option<String>, QueryFailure> {
        let tag = match &step.kind {
            Kind::Select
            | Kind::Insert
            | Kind::Update
            | Kind::Delete
            | Kind::CreateTableAs
            | Kind::Schema(_) => {
                return self.table_step(step, values, asked, reply);
            }
            Kind::Begin { .. } => return self.transaction(TransactionChange::Begin, false, reply),
            Kind::Commit { is_chained } => {
                return self.transaction(TransactionChange::Commit, *is_chained, reply);
            }
            Kind::Rollback { is_chained } => {
                return self.transaction(TransactionChange::RollBack, *is_chained, reply);
            }
            Kind::Savepoint(name) => self.savepoint(("SAVEPOINT", "SAVEPOINT"), name)?,
            Kind::Release(name) => self.savepoint(("RELEASE", "RELEASE"), name)?,
            Kind::RollbackTo(name) => self.savepoint(("ROLLBACK", "ROLLBACK TO"), name)?,
            Kind::SetTransaction { is_read_only, is_for_session } => {
                self.set_transaction(*is_read_only, *is_for_session)?;
                "SET".to_owned()
            }
            Kind::Set { name, value, .. } => {
                settings::set(name, value.as_deref())?;
                "SET".to_owned()
            }
            Kind::Reset(name) => {
                name.as_deref().map_or(Ok(()), |name| settings::set(name, None))?;
                "RESET".to_owned()
            }
            Kind::Show(name) => {
                show(name.as_deref(), asked, reply)?;
                "SHOW".to_owned()
            }
            Kind::DiscardAll => "DISCARD ALL".to_owned(),
            Kind::Deallocate(_) => "DEALLOCATE".to_owned(),
            Kind::Declare { name, is_held } => self.declare(step, name, *is_held, values)?,
            Kind::Fetch { name, count, is_move } => self.fetch(name, (*count, *is_move), asked, reply)?,
            Kind::CloseCursor(name) => self.close_cursor(name.as_deref())?,
            Kind::CopyIn(_) => {
                let hint = "Send COPY .. FROM STDIN as a query of its own, by the simple protocol.";
                return Err(SqlError::unsupported("COPY stands among other messages", hint).into());
            }
            Kind::CopyOut(format) => self.copy_out(step, format, reply)?,
            Kind::Explain => self.explain(step, values, asked, reply)?,
            Kind::Nothing(tag) => (*tag).to_owned(),
        };
        Ok(Some(tag))
    }

    /// A statement that reads or changes tables.
    fn table_step(
        &mut self,
        step: &Translated,
        values: &[Value],
        asked: Asked<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<Option<String>, QueryFailure> {
        let connection = self.connection();
        let mut count = RowsEnd::All(0);
        if !step.sql.is_empty() {
            self.connected.change_schema(matches!(step.kind, Kind::Schema(_)));
            let prepared = self.connected.prepare(&step.sql);
            self.connected.change_schema(false);
            let mut statement = prepared?;
            self.begin_implicit(true, !statement.readonly())?;
            plan::bind(&mut statement, values)?;
            count = match &step.columns {
                Some(columns) => {
                    if asked.is_described {
                        reply.describe(Some(columns), asked.are_binary);
                    }
                    let types: Vec<PgType> = columns.iter().map(|(_, of)| *of).collect();
                    rows::typed(&mut statement, &types, asked, reply)?
                }
                None => rows::each(&mut statement, Asked::SIMPLE, |_| Ok(()))?,
            };
        }
        let RowsEnd::All(count) = count else {
            reply.suspended();
            return Ok(None);
        };
        let changed = connection.changes();
        Ok(Some(match step.kind {
            Kind::Insert => format!("INSERT 0 {changed}"),
            Kind::Update => format!("UPDATE {changed}"),
            Kind::Delete => format!("DELETE {changed}"),
            Kind::CreateTableAs => format!("SELECT {changed}"),
            Kind::Schema(tag) => tag.to_owned(),
            _ => format!("SELECT {count}"),
        }))
    }

    fn transaction(
        &mut self,
        change: TransactionChange,
        is_chained: bool,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<Option<String>, QueryFailure> {
        if is_chained {
            return Err(SqlError::unsupported("AND CHAIN is not supported", "Send BEGIN afterwards.").into());
        }
        if self.changes(Some(change), reply)? {
            // What was begun for several statements does not end with them then.
            self.is_implicit &= change != TransactionChange::Begin;
            return Ok(None);
        }
        let (sql, tag) = match change {
            TransactionChange::Begin => ("BEGIN", "BEGIN"),
            TransactionChange::Commit => ("COMMIT", "COMMIT"),
            TransactionChange::RollBack => ("ROLLBACK", "ROLLBACK"),
        };
        self.connected.execute(sql)?;
        self.is_implicit = false;
        Ok(Some(tag.to_owned()))
    }

    fn needs_transaction(&self, what: &str) -> Result<(), SqlError> {
        if self.connection().is_autocommit() && self.rules == TransactionRules::Own {
            return Err(SqlError::plain("25P01", format!("{what} can only be used in transaction blocks")));
        }
        Ok(())
    }

    fn savepoint(&mut self, (tag, words): (&str, &str), name: &str) -> Result<String, QueryFailure> {
        self.needs_transaction(tag)?;
        let name = name.replace('"', "\"\"");
        self.connected.execute(&format!("{words} \"{name}\""))?;
        Ok(tag.to_owned())
    }

    fn set_transaction(
        &mut self,
        is_read_only: Option<bool>,
        is_for_session: bool,
    ) -> Result<(), QueryFailure> {
        match is_read_only {
            Some(true) if is_for_session => {
                let message = "a session that may only read is not supported";
                Err(SqlError::unsupported(message, "Begin each transaction with READ ONLY.").into())
            }
            Some(is_read_only) if !is_for_session => {
                self.context.is_read_only = is_read_only;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Its rows are those of now, whatever the transaction changes afterwards.
    fn declare(
        &mut self,
        step: &Translated,
        name: &str,
        is_held: bool,
        values: &[Value],
    ) -> Result<String, QueryFailure> {
        if is_held {
            let hint = "Read all rows within the transaction.";
            return Err(SqlError::unsupported("a cursor WITH HOLD is not supported", hint).into());
        }
        self.needs_transaction("DECLARE CURSOR")?;
        if self.context.cursors.contains_key(name) {
            return Err(SqlError::plain("42P03", format!("cursor \"{name}\" already exists")).into());
        }
        let columns = step.columns.clone().unwrap_or_default();
        let mut statement = self.connected.prepare(&step.sql)?;
        plan::bind(&mut statement, values)?;
        let (held, mut all, mut bytes) = (self.context.cursor_bytes, VecDeque::new(), 0);
        rows::each(&mut statement, Asked::SIMPLE, |row| {
            let one: Vec<Value> =
                (0..columns.len()).map(|column| row.get(column)).collect::<Result<_, _>>()?;
            bytes += one.iter().map(size).sum::<usize>();
            if held + bytes > MAX_CURSOR_BYTES {
                let message = format!("the rows of cursors have more than {} MiB", MAX_CURSOR_BYTES >> 20);
                return Err(
                    SqlError::new("54000", message, "Ask for fewer rows, with WHERE and LIMIT.").into()
                );
            }
            all.push_back(one);
            Ok(())
        })?;
        drop(statement);
        self.context.cursor_bytes += bytes;
        self.context.cursors.insert(name.to_owned(), Cursor { columns, rows: all });
        Ok("DECLARE CURSOR".to_owned())
    }

    fn fetch(
        &mut self,
        name: &str,
        (count, is_move): (Option<u64>, bool),
        asked: Asked<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<String, QueryFailure> {
        let cursor = self.context.cursors.get_mut(name).ok_or_else(|| no_cursor(name))?;
        let most = usize::try_from(count.unwrap_or(u64::MAX)).unwrap_or(usize::MAX).min(cursor.rows.len());
        let taken: Vec<_> = cursor.rows.drain(..most).collect();
        if is_move {
            return Ok(format!("MOVE {}", taken.len()));
        }
        if asked.is_described {
            reply.describe(Some(&cursor.columns), asked.are_binary);
        }
        let types: Vec<PgType> = cursor.columns.iter().map(|(_, of)| *of).collect();
        for row in &taken {
            rows::room(reply)?;
            reply.data_row(&types, asked.are_binary, |column| Ok((&row[column]).into()))?;
        }
        Ok(format!("FETCH {}", taken.len()))
    }

    fn close_cursor(&mut self, name: Option<&str>) -> Result<String, QueryFailure> {
        match name {
            None => self.context.cursors.clear(),
            Some(name) => {
                self.context.cursors.remove(name).ok_or_else(|| no_cursor(name))?;
            }
        }
        Ok("CLOSE CURSOR".to_owned())
    }

    /// Names and types of a statement's columns. A cursor has its own.
    pub(crate) fn columns_of(&self, plan: &Plan) -> Result<Option<Vec<(String, PgType)>>, QueryFailure> {
        let Some(PlanStep::Postgres(step)) = plan.steps.last() else {
            return Ok(plan.columns().map(<[_]>::to_vec));
        };
        Ok(match &step.kind {
            Kind::Fetch { name, is_move: false, .. } => {
                Some(self.context.cursors.get(name).ok_or_else(|| no_cursor(name))?.columns.clone())
            }
            Kind::Declare { .. } | Kind::CopyIn(_) | Kind::CopyOut(_) => None,
            Kind::Show(name) => Some(show_columns(name.as_deref())),
            Kind::Explain => Some(vec![("QUERY PLAN".to_owned(), PgType::Text)]),
            _ => step.columns.clone(),
        })
    }

    /// How SQLite would execute a statement.
    fn explain(
        &mut self,
        step: &Translated,
        values: &[Value],
        asked: Asked<'_>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<String, QueryFailure> {
        let mut statement = self.connected.prepare(&step.sql)?;
        plan::bind(&mut statement, values)?;
        if asked.is_described {
            reply.describe(Some(&[("QUERY PLAN".to_owned(), PgType::Text)]), asked.are_binary);
        }
        rows::each(&mut statement, Asked::SIMPLE, |row| {
            // Behind the numbers of the node, of its parent and of nothing.
            reply.data_row(&[PgType::Text], asked.are_binary, |_| row.get_ref(3))
        })?;
        Ok("EXPLAIN".to_owned())
    }
}

/// A query of the simple protocol brings no values.
fn without_parameters(parameters: &[PgType]) -> Result<(), SqlError> {
    if parameters.is_empty() {
        return Ok(());
    }
    let hint = "Prepare the statement, or put values into the text of the query.";
    Err(SqlError::new("42P02", "there is no value for a parameter", hint))
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::plain("34000", format!("cursor \"{name}\" does not exist"))
}

/// Bytes of memory, about.
fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) => 32 + text.len(),
        Value::Blob(bytes) => 32 + bytes.len(),
        _ => 32,
    }
}

fn show_columns(name: Option<&str>) -> Vec<(String, PgType)> {
    let column = |name: &str| (name.to_owned(), PgType::Text);
    match name {
        Some(name) => vec![column(name)],
        None => ["name", "setting", "description"].map(column).to_vec(),
    }
}

fn show(name: Option<&str>, asked: Asked<'_>, reply: &mut ReplyWriter<'_>) -> Result<(), QueryFailure> {
    let shown = match name {
        Some(name) => vec![vec![settings::value(name)?]],
        None => settings::all().map(|(name, value)| vec![name, value, ""]).collect(),
    };
    let columns = show_columns(name);
    if asked.is_described {
        reply.describe(Some(&columns), asked.are_binary);
    }
    let types = vec![PgType::Text; columns.len()];
    for row in shown {
        let value = |column: usize| Ok(rusqlite::types::ValueRef::Text(row[column].as_bytes()));
        reply.data_row(&types, asked.are_binary, value)?;
    }
    Ok(())
}
