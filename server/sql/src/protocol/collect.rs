//! The extended protocol: messages up to where the client waits become one run.

use std::sync::Arc;

use crosscheck::{Action, Progress};

use super::messages::{Fields, Framed, framed};
use super::prepared::NamedPortal;
use super::{MAX_RUN_BYTES, PgConnection, too_long};
use crate::error::SqlError;
use crate::request::{ClientRun, Parameter, Portal, RunPart, Statement};
use crate::words::{deallocated, only_reads};

/// Messages of a run at most. Numbers of statements and portals have 16 bits, and each message adds one of both at
/// most.
const MAX_PARTS: usize = 4000;

/// Where the client waits: behind how many bytes, or how many are needed to tell.
enum WaitsAt {
    Bytes(usize),
    NeedMore(usize),
    TooLong(usize),
}

/// Finds the end of the messages that are executed together.
fn waits_at(input: &[u8]) -> WaitsAt {
    let (mut at, mut count) = (0, 0);
    loop {
        match framed(&input[at..]) {
            Framed::Message { kind, used, .. } => {
                // What is not of the extended protocol is another request.
                if !b"PBDECSH".contains(&kind) {
                    return WaitsAt::Bytes(at);
                }
                at += used;
                count += 1;
                if kind == b'S' || kind == b'H' || at >= MAX_RUN_BYTES || count >= MAX_PARTS {
                    return WaitsAt::Bytes(at);
                }
            }
            Framed::NeedMore(bytes) => return WaitsAt::NeedMore(at + bytes),
            Framed::TooLong(bytes) => return WaitsAt::TooLong(bytes),
        }
    }
}

impl PgConnection {
    /// Takes the messages up to where the client waits.
    pub(super) fn collect(&mut self, input: &[u8]) -> Progress {
        let used = match waits_at(input) {
            WaitsAt::Bytes(used) => used,
            WaitsAt::NeedMore(bytes) => return Progress::NeedMore(bytes),
            WaitsAt::TooLong(bytes) => return too_long(input.len(), bytes),
        };
        let run = ClientRun {
            dialect: self.dialect,
            statements: Vec::new(),
            portals: Vec::new(),
            parts: Vec::new(),
        };
        let mut collector = Collector { connection: self, run, statements: Vec::new(), portals: Vec::new() };
        let mut rest = &input[..used];
        while let Framed::Message { kind, body, used } = framed(rest) {
            rest = &rest[used..];
            let part = collector
                .message(kind, Fields::of(body))
                .unwrap_or_else(|error| Some(RunPart::Refused(error)));
            collector.run.parts.extend(part);
        }
        let run = collector.run;
        // A Flush behind nothing: every reply has left already.
        let action = if run.parts.is_empty() { Action::Nothing } else { self.order(run) };
        Progress::Done { used, action }
    }
}

impl PgConnection {
    /// Takes lines of a COPY.
    pub(super) fn collect_lines(&mut self, text: &str, input: &[u8]) -> Progress {
        let (mut at, mut data, mut end) = (0, Vec::new(), None);
        while end.is_none() && data.len() < MAX_RUN_BYTES / 2 {
            match framed(&input[at..]) {
                Framed::Message { kind: b'd', body, used } => {
                    data.extend_from_slice(body);
                    at += used;
                }
                Framed::Message { kind: b'c', used, .. } => {
                    end = Some(RunPart::CopyEnd { statement: 0 });
                    at += used;
                }
                Framed::Message { kind: b'f', body, used } => {
                    let why = Fields::of(body).text().unwrap_or_default();
                    let message = format!("COPY from stdin failed: {why}");
                    end = Some(RunPart::Refused(SqlError::plain("57014", message)));
                    at += used;
                }
                // What else is sent is not for the COPY.
                Framed::Message { .. } => break,
                Framed::NeedMore(bytes) => return Progress::NeedMore(at + bytes),
                Framed::TooLong(bytes) => return too_long(input.len(), bytes),
            }
        }
        let mut run = ClientRun::of_query(self.dialect, text);
        run.parts = vec![RunPart::CopyData { statement: 0, data }];
        if let Some(end) = end {
            self.copy = None;
            run.parts.push(end);
            if matches!(run.parts.last(), Some(RunPart::Refused(_))) {
                run.parts.push(RunPart::Sync);
            }
        }
        Progress::Done { used: at, action: self.order(run) }
    }
}

/// Makes a run of messages.
struct Collector<'c> {
    connection: &'c mut PgConnection,
    run: ClientRun,
    /// Those of the run, to tell which are there already.
    statements: Vec<Arc<Statement>>,
    portals: Vec<Arc<Portal>>,
}

impl Collector<'_> {
    fn message(&mut self, kind: u8, fields: Fields<'_>) -> Result<Option<RunPart>, SqlError> {
        Ok(match kind {
            b'P' => Some(self.parse(fields)?),
            b'B' => Some(self.bind(fields)?),
            b'D' => Some(self.describe(fields)?),
            b'E' => Some(self.execute(fields)?),
            b'C' => Some(self.close(fields)?),
            b'S' => Some(RunPart::Sync),
            // Flush: the client waits, and the run ends here.
            _ => None,
        })
    }

    fn parse(&mut self, mut fields: Fields<'_>) -> Result<RunPart, SqlError> {
        let (name, text) = (fields.text()?, fields.text()?.to_owned());
        let types = (0..fields.short()?).map(|_| fields.long()).collect::<Result<_, _>>()?;
        fields.end()?;
        let statement = Arc::new(Statement { text, types });
        if !self.connection.prepared.prepare(name, statement.clone()) {
            let hint = "Close statements that are not used any more: DEALLOCATE.";
            return Err(SqlError::new("54000", "the connection has too many prepared statements", hint));
        }
        Ok(RunPart::Parse { statement: self.number_of(&statement) })
    }

    fn bind(&mut self, mut fields: Fields<'_>) -> Result<RunPart, SqlError> {
        let (name, statement) = (fields.text()?, self.statement(fields.text()?)?);
        let formats = fields.shorts()?.into_iter().map(is_binary).collect::<Result<Vec<_>, _>>()?;
        let count = usize::from(fields.short()?);
        if formats.len() > 1 && formats.len() != count {
            return Err(SqlError::plain("08P01", "there are not as many formats as parameters"));
        }
        let mut parameters = Vec::new();
        for number in 0..count {
            let is_binary = formats.get(number).or(formats.first().filter(|_| formats.len() == 1));
            let bytes = fields.value()?.map(<[u8]>::to_vec);
            parameters.push(Parameter { is_binary: is_binary.copied().unwrap_or(false), bytes });
        }
        let are_binary = fields.shorts()?.into_iter().map(is_binary).collect::<Result<_, _>>()?;
        fields.end()?;
        let portal = Arc::new(Portal { statement: 0, parameters, are_binary });
        let portal = NamedPortal { statement, portal, handed: 0, is_old: false };
        let part = RunPart::Bind { portal: self.number_of_portal(&portal) };
        if !self.connection.prepared.open(name, portal) {
            let hint = "Close portals that are not used any more, and send long values in parts.";
            return Err(SqlError::new("54000", "the connection has too many portals", hint));
        }
        Ok(part)
    }

    fn describe(&mut self, mut fields: Fields<'_>) -> Result<RunPart, SqlError> {
        let (kind, name) = (fields.byte()?, fields.only_text()?);
        if kind == b'S' {
            let statement = self.statement(name)?;
            return Ok(RunPart::DescribeStatement { statement: self.number_of(&statement) });
        }
        // Cursors have names of portals. Which there are is known where the run is executed.
        let Ok(portal) = self.portal(name) else { return Ok(RunPart::DescribeCursor(name.to_owned())) };
        Ok(RunPart::DescribePortal { portal: self.number_of_portal(&portal) })
    }

    fn execute(&mut self, mut fields: Fields<'_>) -> Result<RunPart, SqlError> {
        let (name, limit) = (fields.text()?, fields.long()?);
        fields.end()?;
        let portal = self.portal(name)?;
        if portal.is_old {
            let hint = "Read all rows of a query before tables change, or use DECLARE CURSOR.";
            return Err(SqlError::new("24000", "the rows of the portal may have changed", hint));
        }
        let skip = portal.handed;
        if !only_reads(&portal.statement.text) {
            self.connection.prepared.change_tables();
        }
        let handed = if limit == 0 { u64::MAX } else { skip.saturating_add(u64::from(limit)) };
        self.connection.prepared.hand(name, handed);
        match deallocated(&portal.statement.text) {
            Some(None) => self.connection.prepared.forget_all(),
            Some(Some(statement)) => self.connection.prepared.forget(&statement),
            None => {}
        }
        Ok(RunPart::Execute { portal: self.number_of_portal(&portal), skip, limit })
    }

    fn close(&mut self, mut fields: Fields<'_>) -> Result<RunPart, SqlError> {
        match (fields.byte()?, fields.only_text()?) {
            (b'S', name) => self.connection.prepared.forget(name),
            (_, name) => self.connection.prepared.close(name),
        }
        Ok(RunPart::Close)
    }

    fn statement(&self, name: &str) -> Result<Arc<Statement>, SqlError> {
        let statement = self.connection.prepared.statement(name).cloned();
        statement
            .ok_or_else(|| SqlError::plain("26000", format!("prepared statement \"{name}\" does not exist")))
    }

    fn portal(&self, name: &str) -> Result<NamedPortal, SqlError> {
        let portal = self.connection.prepared.portal(name).cloned();
        portal.ok_or_else(|| SqlError::plain("34000", format!("portal \"{name}\" does not exist")))
    }

    /// The number of a statement in the run.
    fn number_of(&mut self, statement: &Arc<Statement>) -> u16 {
        let known = self.statements.iter().rposition(|known| Arc::ptr_eq(known, statement));
        let number = known.unwrap_or_else(|| {
            self.run.statements.push((**statement).clone());
            self.statements.push(statement.clone());
            self.statements.len() - 1
        });
        number as u16
    }

    /// The number of a portal in the run.
    fn number_of_portal(&mut self, named: &NamedPortal) -> u16 {
        let statement = self.number_of(&named.statement);
        let known = self.portals.iter().rposition(|known| Arc::ptr_eq(known, &named.portal));
        let number = known.unwrap_or_else(|| {
            self.run.portals.push(Portal { statement, ..(*named.portal).clone() });
            self.portals.push(named.portal.clone());
            self.portals.len() - 1
        });
        number as u16
    }
}

fn is_binary(format: u16) -> Result<bool, SqlError> {
    match format {
        0 => Ok(false),
        1 => Ok(true),
        format => Err(SqlError::plain("08P01", format!("unknown format {format} of a value"))),
    }
}
