//! Executes the parts of a run, one after the other, and appends their replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::Value;
use rusqlite::{Batch, Connection};

use crate::copy::CopyProgress;
use crate::dialect::{CopyFormat, Kind, Translated};
use crate::engine::Connected;
use crate::error::SqlError;
use crate::plan::{self, Plan, PlanStep};
use crate::query::QueryFailure;
use crate::reply::ReplyWriter;
use crate::request::{ClientRun, Dialect, Portal, RunPart, Statement};
use crate::rows::{self, Asked};
use crate::types::PgType;
use crate::values::{self, Format};
use crate::vfs;
use crate::words::{TransactionChange, is_single};

/// Bytes of a statement whose meaning is kept, at most.
const MAX_KEPT_BYTES: usize = 16 << 10;

/// Which statements that begin and end transactions a run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionRules {
    /// Its own.
    Own,
    /// None: it is a part of one.
    None,
}

/// What a transaction has besides the database: it ends with it.
#[derive(Default)]
pub struct TransactionContext {
    /// Rows of open cursors that were not fetched yet, by name.
    pub cursors: BTreeMap<String, rows::Cursor>,
    /// Bytes of the rows that were put into cursors.
    pub cursor_bytes: usize,
    /// How far a COPY from the client has come.
    pub copy: CopyProgress,
    /// It may change nothing.
    pub is_read_only: bool,
}

/// Executes a run.
pub struct Performer<'p> {
    pub(crate) connected: &'p Connected,
    pub(crate) context: &'p mut TransactionContext,
    pub(crate) rules: TransactionRules,
    /// Several statements are one transaction.
    pub(crate) is_together: bool,
    /// It was begun here for several statements.
    pub(crate) is_implicit: bool,
    /// How many parts were executed, and the length of the reply behind them.
    done: (usize, usize),
}

impl<'p> Performer<'p> {
    /// With this connection.
    pub fn new(
        connected: &'p Connected,
        context: &'p mut TransactionContext,
        rules: TransactionRules,
    ) -> Self {
        Performer { connected, context, rules, is_together: false, is_implicit: false, done: (0, 0) }
    }

    /// Executes the parts.
    ///
    /// # Errors
    /// Of the first part that fails: those behind it are not executed.
    pub fn run(&mut self, run: &ClientRun, reply: &mut ReplyWriter<'_>) -> Result<(), QueryFailure> {
        let executes = run.parts.iter().filter(|part| matches!(part, RunPart::Execute { .. })).count();
        self.is_together = executes > 1 || run.is_copied();
        for (number, part) in run.parts.iter().enumerate() {
            self.part(run, part, reply)?;
            self.done = (number + 1, reply.length());
        }
        self.commit_implicit()
    }

    /// How many parts of the run were executed, and the length of the reply behind them.
    pub fn done(&self) -> (usize, usize) {
        self.done
    }

    fn part(
        &mut self,
        run: &ClientRun,
        part: &RunPart,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), QueryFailure> {
        let statement = || run.statement_of(part).ok_or_else(broken);
        let portal = |number| run.portal(number).ok_or_else(broken);
        match *part {
            RunPart::Query { .. } => {
                let text = &statement()?.text;
                self.is_together = !is_single(text);
                self.query(run.dialect, text, reply)?;
            }
            RunPart::Parse { .. } => {
                let plan = self.plan(run.dialect, statement()?)?;
                // Its lines would be expected behind a message that no Sync follows.
                if copied(&plan).is_ok() {
                    let hint = "Send COPY .. FROM STDIN as a query of its own, by the simple protocol.";
                    return Err(SqlError::unsupported("COPY FROM STDIN cannot be prepared", hint).into());
                }
                reply.parsed();
            }
            RunPart::Bind { portal: number } => {
                let plan = self.plan(run.dialect, statement()?)?;
                self.values(&plan, portal(number)?)?;
                reply.bound();
            }
            RunPart::DescribeStatement { .. } => {
                let plan = self.plan(run.dialect, statement()?)?;
                reply.parameters(&plan.parameters);
                reply.describe(self.columns_of(&plan)?.as_deref(), &[]);
            }
            RunPart::DescribePortal { portal: number } => {
                let plan = self.plan(run.dialect, statement()?)?;
                reply.describe(self.columns_of(&plan)?.as_deref(), &portal(number)?.are_binary);
            }
            RunPart::DescribeCursor(ref name) => {
                let cursor = self.context.cursors.get(name);
                let message = || format!("portal \"{name}\" does not exist");
                let cursor = cursor.ok_or_else(|| SqlError::plain("34000", message()))?;
                reply.describe(Some(&cursor.columns), &[]);
            }
            RunPart::Execute { portal: number, skip, limit } => {
                let portal = portal(number)?;
                let plan = self.plan(run.dialect, statement()?)?;
                let values = self.values(&plan, portal)?;
                let asked = Asked { are_binary: &portal.are_binary, is_described: false, skip, limit };
                match plan.steps.is_empty() {
                    true => reply.empty(),
                    false => self.steps(&plan, &values, asked, reply)?,
                }
            }
            RunPart::CopyBegin { .. } => {
                let plan = self.plan(run.dialect, statement()?)?;
                self.copy_begins(copied(&plan)?.0, reply)?;
            }
            RunPart::CopyData { ref data, .. } => {
                let plan = self.plan(run.dialect, statement()?)?;
                self.copy_data(copied(&plan)?, data, false)?;
            }
            RunPart::CopyEnd { .. } => {
                let plan = self.plan(run.dialect, statement()?)?;
                self.copy_ends(copied(&plan)?, reply)?;
            }
            RunPart::Close => reply.closed(),
            RunPart::Refused(ref error) => return Err(QueryFailure::Refused(error.clone())),
            RunPart::Sync => {}
        }
        Ok(())
    }

    /// What a prepared statement means.
    pub(crate) fn plan(&self, dialect: Dialect, statement: &Statement) -> Result<Arc<Plan>, QueryFailure> {
        let make = || match dialect {
            Dialect::Sqlite => plan::of_sqlite(self.connected, statement),
            Dialect::Postgres => plan::of_postgres(self.connected, statement),
        };
        if statement.text.len() > MAX_KEPT_BYTES {
            return make().map(Arc::new);
        }
        self.connected.plan(plan::digest(dialect, statement), make)
    }

    /// The values of a portal, as SQLite keeps them.
    fn values(&self, plan: &Plan, portal: &Portal) -> Result<Vec<Value>, QueryFailure> {
        if plan.parameters.len() != portal.parameters.len() {
            let (are, wants) = (portal.parameters.len(), plan.parameters.len());
            let message = format!("there are {are} values, and the statement has {wants} parameters");
            return Err(SqlError::plain("08P01", message).into());
        }
        let one = |(value, of): (&crate::request::Parameter, &PgType)| match &value.bytes {
            None => Ok(Value::Null),
            Some(bytes) => {
                let format = if value.is_binary { Format::Binary } else { Format::Text };
                Ok(values::from_parameter(bytes, format, *of)?)
            }
        };
        portal.parameters.iter().zip(&plan.parameters).map(one).collect()
    }

    /// All statements of a text.
    fn query(
        &mut self,
        dialect: Dialect,
        text: &str,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), QueryFailure> {
        let is_empty = match dialect {
            Dialect::Sqlite => self.sqlite_query(text, reply)?,
            Dialect::Postgres => self.postgres_query(text, reply)?,
        };
        if is_empty {
            reply.empty();
        }
        Ok(())
    }

    /// Returns whether there is none.
    fn sqlite_query(&mut self, text: &str, reply: &mut ReplyWriter<'_>) -> Result<bool, QueryFailure> {
        let mut rest = Batch::new(self.connected.connection(), text);
        let mut is_empty = true;
        loop {
            // What a statement does to a transaction is as SQLite reads it, whatever its words are.
            self.connected.take_change();
            let Some(mut statement) = self.connected.compile(|_| rest.next())? else { return Ok(is_empty) };
            let change = self.connected.take_change();
            vfs::begin_statement();
            is_empty = false;
            rows::room(reply)?;
            plan::refuse(&statement)?;
            if statement.parameter_count() > 0 {
                let hint = "Prepare the statement, or put values into the text of the query.";
                return Err(SqlError::new("42P02", "there is no value for a parameter", hint).into());
            }
            if !self.changes(change, reply)? {
                let writes = !statement.readonly();
                self.begin_implicit(change.is_none(), writes)?;
                let asked = Asked { are_binary: &[], is_described: true, skip: 0, limit: 0 };
                rows::of_sqlite(self.connected.connection(), &mut statement, asked, reply)?;
            }
            self.is_implicit &= change.is_none();
        }
    }

    /// Does what a statement does to the transaction, unless SQLite has to.
    pub(crate) fn changes(
        &self,
        change: Option<TransactionChange>,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<bool, QueryFailure> {
        let is_none_open = self.connection().is_autocommit();
        match change {
            Some(TransactionChange::Begin) if self.is_implicit || self.rules == TransactionRules::None => {
                reply.complete("BEGIN");
            }
            Some(_) if self.rules == TransactionRules::None => {
                let message = "the end of a transaction stands among other statements";
                let hint = "Send COMMIT or ROLLBACK as a query of its own.";
                return Err(SqlError::unsupported(message, hint).into());
            }
            // PostgreSQL warns that there is none.
            Some(TransactionChange::Commit) if is_none_open => reply.complete("COMMIT"),
            Some(TransactionChange::RollBack) if is_none_open => reply.complete("ROLLBACK"),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What changes something is a transaction that can be rolled back when its reply has an error.
    pub(crate) fn begin_implicit(&mut self, is_part: bool, writes: bool) -> Result<(), QueryFailure> {
        if writes && self.context.is_read_only {
            let message = "cannot change anything in a read-only transaction";
            return Err(SqlError::plain("25006", message).into());
        }
        if is_part && (self.is_together || writes) && self.connection().is_autocommit() {
            self.connected.execute("BEGIN")?;
            self.is_implicit = true;
        }
        Ok(())
    }

    fn commit_implicit(&mut self) -> Result<(), QueryFailure> {
        if self.is_implicit {
            self.connected.execute("COMMIT")?;
            self.is_implicit = false;
        }
        Ok(())
    }

    pub(crate) fn connection(&self) -> &'p Connection {
        self.connected.connection()
    }
}

/// The INSERT of a COPY, and the format of its lines.
fn copied(plan: &Plan) -> Result<(&Translated, &CopyFormat), QueryFailure> {
    if let Some(PlanStep::Postgres(step)) = plan.steps.first()
        && let Kind::CopyIn(format) = &step.kind
    {
        return Ok((step, format));
    }
    let message = "COPY from the client is not supported in this form";
    Err(SqlError::unsupported(message, "Send COPY .. FROM STDIN in PostgreSQL's dialect, on its own.").into())
}

/// A run that refers to what it has not got: no connection makes such.
fn broken() -> QueryFailure {
    SqlError::plain("08P01", "a message refers to what there is not").into()
}
