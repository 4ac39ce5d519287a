//! Statements: each kind goes to the part that knows it, or is refused.

use sqlparser::ast::{AnalyzeFormatKind, Query, SetExpr, Statement, UtilityOption};

use super::insert::ChangedRows;
use super::parse::{ParsedStatement, ReadStatement};
use super::query::{Want, no_change_within};
use super::translator::Translator;
use super::{StatementKind, Tables, Translated, sequences};
use crate::error::SqlError;
use crate::types::PgType;

/// Translates a statement; one of PostgreSQL may be several of SQLite's, which are run in order.
///
/// # Errors
/// 0A000 for what is not supported, with what to do instead; PostgreSQL's own codes for what it refuses too.
pub fn translate(
    statement: &ParsedStatement,
    tables: &dyn Tables,
    parameters: &[Option<PgType>],
) -> Result<Vec<Translated>, SqlError> {
    let mut translator = Translator::new(tables, parameters);
    let mut parts = match &statement.tree {
        ReadStatement::Parsed(tree) => {
            if sequences::draws_once(tree) {
                translator.draw_once();
            }
            translator.statement(tree, false)?
        }
        ReadStatement::Move(tree) => translator.statement(tree, true)?,
        ReadStatement::Nothing(tag) => nothing(StatementKind::Nothing(tag)),
        ReadStatement::DeferConstraints => {
            one("PRAGMA defer_foreign_keys = ON".to_owned(), None, StatementKind::Schema("SET CONSTRAINTS"))
        }
    };
    parts.splice(0..0, sequences::reserved(&translator.drawn));
    let types = translator.parameter_types();
    for part in &mut parts {
        part.parameters.clone_from(&types);
    }
    Ok(parts)
}

/// A statement of one part. The types of its parameters are put there last.
pub fn one(sql: String, columns: Option<Vec<(String, PgType)>>, kind: StatementKind) -> Vec<Translated> {
    vec![Translated { sql, parameters: Vec::new(), columns, kind }]
}

/// What nothing is done for.
pub fn nothing(kind: StatementKind) -> Vec<Translated> {
    one(String::new(), None, kind)
}

impl Translator<'_> {
    fn statement(&mut self, statement: &Statement, is_move: bool) -> Result<Vec<Translated>, SqlError> {
        match statement {
            Statement::Query(query) => self.query_statement(query),
            Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => self.change(statement, ""),
            Statement::Explain { statement, analyze, format, options, .. } => {
                self.explain(statement, *analyze, format.as_ref(), options.as_deref())
            }
            Statement::CreateTable(_)
            | Statement::CreateView(_)
            | Statement::CreateIndex(_)
            | Statement::AlterTable(_)
            | Statement::AlterIndex { .. }
            | Statement::Drop { .. }
            | Statement::Truncate(_) => self.schema(statement),
            Statement::CreateSequence { temporary, if_not_exists, name, sequence_options } => {
                self.create_sequence(name, (*temporary, *if_not_exists), sequence_options)
            }
            other => self.session(other, is_move),
        }
    }

    fn query_statement(&mut self, query: &Query) -> Result<Vec<Translated>, SqlError> {
        if let SetExpr::Insert(statement) | SetExpr::Update(statement) | SetExpr::Delete(statement) =
            query.body.as_ref()
        {
            let is_plain = query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
            if !is_plain {
                return Err(no_change_within());
            }
            let sight = self.with.len();
            let with = self.with_clause(query.with.as_ref())?;
            let translated = self.change(statement, &with);
            self.with.truncate(sight);
            return translated;
        }
        let rows = self.query(query, &Want::default())?;
        if !self.drawn.is_empty() && !rows.is_one_row {
            let hint = "Ask with SELECT nextval(..) alone.";
            return Err(SqlError::unsupported(
                "a number of a sequence for several rows is not supported",
                hint,
            ));
        }
        let columns = rows.described();
        Ok(one(rows.sql, Some(columns), StatementKind::Select))
    }

    fn change(&mut self, statement: &Statement, with: &str) -> Result<Vec<Translated>, SqlError> {
        let (ChangedRows { sql, columns }, kind) = match statement {
            Statement::Insert(insert) => (self.insert(insert, with)?, StatementKind::Insert),
            Statement::Update(update) => (self.update(update, with)?, StatementKind::Update),
            Statement::Delete(delete) => (self.delete(delete, with)?, StatementKind::Delete),
            _ => return Err(no_change_within()),
        };
        Ok(one(sql, columns, kind))
    }

    fn explain(
        &mut self,
        statement: &Statement,
        is_analyze: bool,
        format: Option<&AnalyzeFormatKind>,
        options: Option<&[UtilityOption]>,
    ) -> Result<Vec<Translated>, SqlError> {
        let options = options.unwrap_or(&[]);
        let has = |name: &str| options.iter().any(|option| option.name.value.eq_ignore_ascii_case(name));
        if is_analyze || has("analyze") || format.is_some() || has("format") {
            let hint = "EXPLAIN alone shows SQLite's plan.";
            return Err(SqlError::unsupported("EXPLAIN ANALYZE and FORMAT are not supported", hint));
        }
        let mut parts = self.statement(statement, false)?;
        let [part] = &mut parts[..] else {
            return Err(SqlError::unsupported("this statement has no plan", "Explain a query."));
        };
        if !matches!(
            part.kind,
            StatementKind::Select | StatementKind::Insert | StatementKind::Update | StatementKind::Delete
        ) {
            return Err(SqlError::unsupported("this statement has no plan", "Explain a query."));
        }
        let sql = format!("EXPLAIN QUERY PLAN {}", part.sql);
        Ok(one(sql, Some(vec![("QUERY PLAN".to_owned(), PgType::Text)]), StatementKind::Explain))
    }
}
