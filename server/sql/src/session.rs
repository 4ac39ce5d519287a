//! Runs of a connection that begins a transaction or has one open: which parts belong to it, and what its end does.

use crosscheck::Cx;
use crosscheck::schedule::Retry;

use crate::engine::Connected;
use crate::error::SqlError;
use crate::file_copy;
use crate::guest::Pages;
use crate::open_transactions::{
    Drawn, IDLE_US, MAX_RUNS, OpenTransaction, OpenTransactions, Opening, Replayed,
};
use crate::query::{self, StepEnd};
use crate::reply::{ReplyWriter, TransactionStatus};
use crate::request::{ClientRun, RunPart};
use crate::service::{Sql, drawn, lock_of};
use crate::words::{TransactionChange, begins_read_only, changes_transaction, rolls_back_to};

/// What a run needs of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseUse {
    /// Nothing.
    None,
    /// To read: nothing of a transaction is written before it is committed.
    Read,
    /// To write.
    Write,
}

/// What a run of a connection that may have a transaction open needs of the database.
pub fn database_use(run: &ClientRun, is_open: bool) -> DatabaseUse {
    let (mut is_open, mut most) = (is_open, DatabaseUse::None);
    for part in &run.parts {
        let change = change_of(run, part);
        match part {
            RunPart::Query { .. } | RunPart::Execute { .. } if change == Some(TransactionChange::Begin) => {
                is_open = true
            }
            RunPart::Query { .. } | RunPart::Execute { .. } if change == Some(TransactionChange::Commit) => {
                return DatabaseUse::Write;
            }
            part if is_control(run, part) => {}
            _ if is_open => most = DatabaseUse::Read,
            _ => return DatabaseUse::Write,
        }
    }
    most
}

fn change_of(run: &ClientRun, part: &RunPart) -> Option<TransactionChange> {
    run.statement_of(part).and_then(|statement| changes_transaction(&statement.text))
}

/// Whether a part needs no database.
fn is_control(run: &ClientRun, part: &RunPart) -> bool {
    match part {
        RunPart::Refused(_) | RunPart::Sync => true,
        // Among parts that are executed it cuts nothing in two.
        RunPart::Close => !run.parts.iter().any(|part| matches!(part, RunPart::Execute { .. })),
        part => change_of(run, part).is_some(),
    }
}

/// A part has failed, and those behind it up to Sync are skipped.
struct PartFailed;

/// The transactions of connections behind one lock, and one of these connections.
struct Talk<'t, 'c> {
    service: &'t Sql,
    cx: &'t Cx<'c, Sql>,
    sessions: &'t mut OpenTransactions,
    session: u64,
    reply: &'t mut Vec<u8>,
    /// The client believes that a transaction is open, and it is not.
    is_missing: bool,
    /// Parts of the run were executed outside of a transaction.
    has_executed: bool,
}

impl Sql {
    /// Executes a run of a connection that begins a transaction, or may have begun one.
    pub(crate) fn in_transaction(
        &self,
        cx: &Cx<'_, Sql>,
        (session, number, is_open): (u64, Option<u32>, bool),
        run: &ClientRun,
        reply: &mut Vec<u8>,
    ) -> Result<(), Retry> {
        let lock = lock_of(session);
        let mut sessions = cx.lock(self.sessions(lock))?;
        sessions.expire(cx.now_us());
        let mut talk = Talk {
            service: self,
            cx,
            sessions: &mut sessions,
            session,
            reply,
            is_missing: false,
            has_executed: false,
        };
        talk.run(run, number, is_open)
    }
}

impl Talk<'_, '_> {
    fn run(&mut self, run: &ClientRun, number: Option<u32>, is_open: bool) -> Result<(), Retry> {
        let copies = self.sessions.get(self.session).is_some_and(OpenTransaction::copies);
        let is_given_up = self.sessions.get(self.session).is_some_and(OpenTransaction::is_given_up);
        if run.is_copied() && !copies && !is_given_up {
            // It has failed, and the client knows. These lines were under way.
            let now_us = self.cx.now_us();
            self.sessions.get_mut(self.session).iter_mut().for_each(|open| open.count(now_us));
            return Ok(());
        }
        let mut result = self.begin_run(run, number, is_open);
        let mut at = 0;
        while result.is_ok() && at < run.parts.len() {
            let part = &run.parts[at];
            if is_control(run, part) {
                at += 1;
                result = self.control(run, part)?;
            } else {
                let behind = &run.parts[at..];
                let end = at + behind.iter().position(|part| is_control(run, part)).unwrap_or(behind.len());
                result = self.segment(&run.part(at, end))?;
                at = end;
            }
        }
        let is_copy = run.begins_copy() || run.is_copied();
        if let Some(open) = self.sessions.get_mut(self.session) {
            if result.is_err() {
                open.fail();
            }
            open.set_skips(result.is_err() && !is_copy && !run.is_synced());
            open.set_copies(is_copy && result.is_ok() && !run.is_synced());
        }
        // A client whose COPY has failed sends no more of it, or what is not looked at.
        if run.is_synced() || (is_copy && result.is_err()) {
            self.synchronize()?;
        }
        Ok(())
    }

    /// Whether the parts of a run may be executed.
    fn begin_run(&mut self, run: &ClientRun, number: Option<u32>, is_open: bool) -> Result<(), PartFailed> {
        let is_executed = |part: &&RunPart| matches!(part, RunPart::Query { .. } | RunPart::Execute { .. });
        let first = run.parts.iter().find(is_executed).and_then(|part| change_of(run, part));
        // Nothing in front of it would be executed on its own.
        let ends = first == Some(TransactionChange::RollBack);
        let commits = run.parts.iter().any(|part| change_of(run, part) == Some(TransactionChange::Commit));
        let now_us = self.cx.now_us();
        match self.sessions.get_mut(self.session) {
            Some(open) if open.is_given_up() => {
                if ends || commits || open.opening() == Opening::Implicit {
                    self.sessions.end(self.session);
                }
                return if ends { Ok(()) } else { self.fail(&given_up()) };
            }
            // One that was given up and is rolled back now is what the client wants.
            None if is_open && !ends => {
                self.is_missing = !commits;
                return self.fail(&given_up());
            }
            None if !run.is_synced() => self.begin(Opening::Implicit)?,
            None => {}
            Some(open) if number.is_some_and(|number| number != open.sent()) => {
                open.fail();
                if commits {
                    self.sessions.end(self.session);
                }
                return if ends { Ok(()) } else { self.fail(&not_executed()) };
            }
            // Those that a failed part has in front of it in the same run of messages.
            Some(open) if open.skips() => {
                open.count(now_us);
                return Err(PartFailed);
            }
            Some(_) => {}
        }
        if let Some(open) = self.sessions.get_mut(self.session) {
            open.count(now_us);
        }
        Ok(())
    }

    /// The client waits: what was begun by messages in front of a Flush is one transaction up to here.
    fn synchronize(&mut self) -> Result<(), Retry> {
        if let Some(open) = self.sessions.get_mut(self.session) {
            open.set_skips(false);
            if open.opening() == Opening::Implicit {
                // An error has its place among the replies, and what it is does not matter here.
                let _ = self.end(TransactionChange::Commit)?;
            }
        }
        let status = match self.sessions.get(self.session) {
            None if self.is_missing => TransactionStatus::Failed,
            None => TransactionStatus::Idle,
            Some(open) if open.has_failed() => TransactionStatus::Failed,
            Some(_) => TransactionStatus::Open,
        };
        self.writer().ready(status);
        Ok(())
    }

    fn writer(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(self.reply)
    }

    fn fail<T>(&mut self, why: &SqlError) -> Result<T, PartFailed> {
        self.writer().error(why);
        Err(PartFailed)
    }

    /// A part that needs no database, but for COMMIT.
    fn control(&mut self, run: &ClientRun, part: &RunPart) -> Result<Result<(), PartFailed>, Retry> {
        match part {
            RunPart::Query { .. } | RunPart::Execute { .. } => {
                let text = run.statement_of(part).map_or("", |statement| &statement.text);
                return match changes_transaction(text) {
                    Some(TransactionChange::Begin) => Ok(self.begin_explicit(text)),
                    Some(change) => self.end(change),
                    None => Ok(Ok(())),
                };
            }
            RunPart::Parse { .. } => self.writer().parsed(),
            RunPart::Bind { .. } => self.writer().bound(),
            RunPart::DescribeStatement { .. } => {
                let mut writer = self.writer();
                writer.parameters(&[]);
                writer.describe(None, &[]);
            }
            RunPart::DescribePortal { .. } => self.writer().describe(None, &[]),
            RunPart::Close => self.writer().closed(),
            // It has no statement.
            RunPart::DescribeCursor(_) => {}
            // No statement of a COPY changes a transaction.
            RunPart::CopyBegin { .. } | RunPart::CopyData { .. } | RunPart::CopyEnd { .. } => {}
            RunPart::Refused(error) => return Ok(self.fail(error)),
            RunPart::Sync => {}
        }
        Ok(Ok(()))
    }

    fn begin(&mut self, opening: Opening) -> Result<(), PartFailed> {
        if self.sessions.begin(self.session, opening, self.cx.now_us()) {
            return Ok(());
        }
        let message = "too many transactions are open";
        self.fail(&SqlError::new("53300", message, "Roll back, and try again later."))
    }

    fn begin_explicit(&mut self, text: &str) -> Result<(), PartFailed> {
        let opening = Opening::Explicit { is_read_only: begins_read_only(text) };
        match self.sessions.get_mut(self.session) {
            Some(open) if open.has_failed() => return self.fail(&SqlError::aborted()),
            Some(open) if open.opening() == Opening::Implicit => open.set_opening(opening),
            // PostgreSQL warns that one is open.
            Some(_) => {}
            None if self.has_executed => {
                let message = "BEGIN stands behind other statements";
                return self.fail(&SqlError::unsupported(message, "Send a Sync before it."));
            }
            None => {
                self.begin(opening)?;
                let now_us = self.cx.now_us();
                self.sessions.get_mut(self.session).iter_mut().for_each(|open| open.count(now_us));
            }
        }
        self.writer().complete("BEGIN");
        Ok(())
    }

    /// COMMIT or ROLLBACK.
    fn end(&mut self, change: TransactionChange) -> Result<Result<(), PartFailed>, Retry> {
        let is_explicit = |open: &OpenTransaction| open.opening() != Opening::Implicit;
        let (mut is_done, mut tag) = (true, "ROLLBACK");
        if let Some(open) = self.sessions.get(self.session) {
            let is_told = is_explicit(open);
            if change == TransactionChange::Commit && !open.has_failed() {
                let mut database = self.cx.write(self.service.database())?;
                let (runs, reply) = (open.runs(), &mut *self.reply);
                if let Some(error) = file_copy::refused(&database) {
                    drop(database);
                    self.sessions.end(self.session);
                    return Ok(self.fail(&error));
                }
                is_done = runs.is_empty()
                    || self.service.exclusively(
                        &mut database,
                        drawn(self.cx, "COMMIT"),
                        reply,
                        |connected, reply| query::commit(connected, runs, reply),
                    );
                tag = "COMMIT";
            }
            self.sessions.end(self.session);
            if !is_told {
                return Ok(if is_done { Ok(()) } else { Err(PartFailed) });
            }
        } else if change == TransactionChange::Commit {
            tag = "COMMIT";
        }
        if !is_done {
            return Ok(Err(PartFailed));
        }
        self.writer().complete(tag);
        Ok(Ok(()))
    }

    /// Parts that use the database, in the transaction that is open, or else on their own.
    fn segment(&mut self, run: &ClientRun) -> Result<Result<(), PartFailed>, Retry> {
        let Some(open) = self.sessions.get(self.session) else {
            self.has_executed = true;
            let is_done = self.service.alone(self.cx, run, false, self.reply)?;
            return Ok(if is_done { Ok(()) } else { Err(PartFailed) });
        };
        if let Err(error) = may_go_on(self.sessions, self.session, run) {
            return Ok(self.fail(&error));
        }
        let drawn = drawn_by(self.cx, run);
        let is_read_only = open.opening() == Opening::Explicit { is_read_only: true };
        let (runs, reply) = (open.runs(), &mut *self.reply);
        let step = |connected: &Connected, reply: &mut Vec<u8>| {
            query::step(connected, (runs, is_read_only), (run, drawn), reply)
        };
        let begins_at = reply.len();
        let database = self.cx.read(self.service.database())?;
        if let Some(error) = file_copy::refused(&database) {
            return Ok(self.fail(&error));
        }
        let end =
            self.service.shared(Pages::Shared(&database), drawn, false, |connected| step(connected, reply));
        drop(database);
        let end = match end {
            Some(end) => end,
            None => {
                reply.truncate(begins_at);
                let mut database = self.cx.write(self.service.database())?;
                self.service.exclusively(&mut database, drawn, reply, step)
            }
        };
        let is_told = |part: &RunPart| {
            matches!(
                part,
                RunPart::Parse { .. }
                    | RunPart::Bind { .. }
                    | RunPart::DescribeStatement { .. }
                    | RunPart::DescribePortal { .. }
            )
        };
        let (run, digest, result) = match end {
            StepEnd::Ran(digest) => (run.clone(), digest, Ok(())),
            StepEnd::Failed(parts, digest) => (run.part(0, parts), digest, Err(PartFailed)),
        };
        if !run.parts.iter().all(is_told) {
            self.sessions.get_mut(self.session).iter_mut().for_each(|open| open.recover());
            self.sessions.add(self.session, Replayed { run, drawn, digest });
        }
        Ok(result)
    }
}

/// What a run draws from the log.
pub fn drawn_by(cx: &Cx<'_, Sql>, run: &ClientRun) -> Drawn {
    let text = run.statements.first().map_or("", |statement| &statement.text);
    drawn(cx, text)
}

/// The client believes that its transaction is open.
fn given_up() -> SqlError {
    let message =
        format!("the transaction is not open any more: it had no query for {} s", IDLE_US / 1_000_000);
    SqlError::new("25P03", message, "Run it again from its beginning.")
}

/// A replica has answered a query of the transaction with an error of its own.
fn not_executed() -> SqlError {
    let message = "the transaction is rolled back: one of its queries was not executed";
    SqlError::new("40000", message, "Run it again from its beginning.")
}

/// Whether a run only goes back to a savepoint, which a transaction that has failed goes on from.
fn goes_back(run: &ClientRun) -> bool {
    let is_back = |part| run.statement_of(part).is_some_and(|statement| rolls_back_to(&statement.text));
    run.parts.iter().all(is_back)
}

/// Whether another run may join a transaction.
fn may_go_on(sessions: &OpenTransactions, session: u64, run: &ClientRun) -> Result<(), SqlError> {
    if sessions.get(session).is_some_and(OpenTransaction::has_failed) && !goes_back(run) {
        return Err(SqlError::aborted());
    }
    if !sessions.has_room(session, run.bytes()) {
        let message = format!("a transaction has {MAX_RUNS} queries at most, of 16 MiB in all");
        return Err(SqlError::new("54000", message, "Commit more often."));
    }
    Ok(())
}
