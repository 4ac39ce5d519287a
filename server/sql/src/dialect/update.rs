//! UPDATE and DELETE, with the tables that they look into.

use sqlparser::ast::{Delete, FromTable, TableFactor, TableWithJoins, Update, UpdateTableFromKind};

use super::insert::{ChangedRows, own};
use super::names::{self, folded, quoted};
use super::scope::Scope;
use super::translator::Translator;
use crate::error::SqlError;

/// The table that is changed: its name, and what it is called.
fn changed(target: &TableWithJoins) -> Result<(String, String), SqlError> {
    match &target.relation {
        TableFactor::Table { name, alias, args: None, .. } if target.joins.is_empty() => {
            let table = names::object(name)?;
            let alias = alias.as_ref().map_or(table.clone(), |alias| folded(&alias.name));
            Ok((table, alias))
        }
        _ => Err(SqlError::plain("42601", "syntax error: only a table can be changed")),
    }
}

fn called(table: &str, alias: &str) -> String {
    if table == alias { quoted(table) } else { format!("{} AS {}", quoted(table), quoted(alias)) }
}

impl Translator<'_> {
    /// An UPDATE, with the text of WITH before it.
    pub fn update(&mut self, update: &Update, with: &str) -> Result<ChangedRows, SqlError> {
        let is_postgres = update.or.is_none()
            && update.order_by.is_empty()
            && update.limit.is_none()
            && update.output.is_none()
            && update.settings.is_none();
        if !is_postgres {
            return Err(SqlError::plain("42601", "syntax error: a clause that PostgreSQL does not have"));
        }
        let (table, alias) = changed(&update.table)?;
        let all = self.target(&table)?;
        let scope = Scope { relations: vec![own(&alias, &all, false)], ..Scope::default() };
        let mut sql = self.scoped(scope, |own| {
            let from = match &update.from {
                None => String::new(),
                Some(UpdateTableFromKind::AfterSet(from) | UpdateTableFromKind::BeforeSet(from)) => {
                    format!(" FROM {}", own.sources(from)?)
                }
            };
            let set = own.assignments(&update.assignments, &table, &all)?;
            let condition = update.selection.as_ref().map(|one| own.condition(one, "WHERE")).transpose()?;
            let condition = condition.map_or(String::new(), |one| format!(" WHERE {}", one.sql));
            Ok(format!("{with}UPDATE {} SET {set}{from}{condition}", called(&table, &alias)))
        })?;
        let columns = self.returning(update.returning.as_deref(), &alias, &all, &mut sql)?;
        Ok(ChangedRows { sql, columns })
    }

    /// A DELETE, with the text of WITH before it.
    pub fn delete(&mut self, delete: &Delete, with: &str) -> Result<ChangedRows, SqlError> {
        let is_postgres = delete.tables.is_empty()
            && delete.order_by.is_empty()
            && delete.limit.is_none()
            && delete.output.is_none()
            && delete.settings.is_none();
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let ([target], true) = (&from[..], is_postgres) else {
            return Err(SqlError::plain("42601", "syntax error: a clause that PostgreSQL does not have"));
        };
        let (table, alias) = changed(target)?;
        let all = self.target(&table)?;
        let scope = Scope { relations: vec![own(&alias, &all, false)], ..Scope::default() };
        let mut sql = self.scoped(scope, |own| {
            let using = delete.using.as_ref().map(|using| own.sources(using)).transpose()?;
            let condition = delete.selection.as_ref().map(|one| own.condition(one, "WHERE")).transpose()?;
            let condition = condition.map_or(String::new(), |one| format!(" WHERE {}", one.sql));
            // SQLite has no USING: the rows are those for which there is one of the others.
            let condition = match using {
                None => condition,
                Some(using) => format!(" WHERE EXISTS (SELECT 1 FROM {using}{condition})"),
            };
            Ok(format!("{with}DELETE FROM {}{condition}", called(&table, &alias)))
        })?;
        let columns = self.returning(delete.returning.as_deref(), &alias, &all, &mut sql)?;
        Ok(ChangedRows { sql, columns })
    }
}
