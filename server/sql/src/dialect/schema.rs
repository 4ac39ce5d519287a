//! Statements on the schema but CREATE TABLE and ALTER TABLE: indexes, views, DROP and TRUNCATE.

use sqlparser::ast::{
    CascadeOption, CreateIndex, CreateView, IndexType, ObjectName, ObjectType, Statement, Truncate,
    TruncateIdentityOption,
};

use super::insert::own;
use super::names::{self, folded, quoted, quoted_list, text_literal};
use super::query::Want;
use super::scope::Scope;
use super::statement::nothing;
use super::table::{exists_already, schema_part, stored};
use super::translator::{Translator, no_table};
use super::{StatementKind, Translated};
use crate::error::SqlError;
use crate::types::PgType;

fn unsupported(what: &str, hint: &str) -> SqlError {
    SqlError::unsupported(format!("{what} is not supported"), hint)
}

/// The types of the columns of a view that this dialect has made, from its statement.
pub fn view_types(definition: &str) -> Option<Vec<PgType>> {
    let (_, rest) = definition.split_once(" AS /* ")?;
    let (types, _) = rest.split_once(" */")?;
    Some(types.split("; ").map(PgType::declared).collect())
}

impl Translator<'_> {
    /// A statement on the schema.
    pub fn schema(&mut self, statement: &Statement) -> Result<Vec<Translated>, SqlError> {
        match statement {
            Statement::CreateTable(create) => self.create_table(create),
            Statement::CreateIndex(create) => self.create_index(create),
            Statement::CreateView(create) => self.create_view(create),
            Statement::Drop {
                object_type, if_exists, names, cascade, temporary: false, table: None, ..
            } => self.drop(*object_type, *if_exists, names, *cascade),
            Statement::Truncate(truncate) => self.truncate(truncate),
            Statement::AlterTable(alter) => self.alter_table(alter),
            Statement::AlterIndex { name, operation } => self.alter_index(name, operation),
            other => {
                Err(unsupported(&other.to_string(), "The documentation lists the statements there are."))
            }
        }
    }

    fn create_index(&mut self, create: &CreateIndex) -> Result<Vec<Translated>, SqlError> {
        let table = names::object(&create.table_name)?;
        let columns = self.target(&table)?;
        if let Some(
            IndexType::GIN | IndexType::GiST | IndexType::SPGiST | IndexType::BRIN | IndexType::Bloom,
        ) = create.using
        {
            let hint = "Use a plain index, on an expression such as (data ->> 'key').";
            return Err(unsupported("an index of this kind", hint));
        }
        if create.nulls_distinct == Some(false) {
            return Err(unsupported("NULLS NOT DISTINCT", "Use a partial index: .. WHERE a IS NULL."));
        }
        let scope = Scope { relations: vec![own(&table, &columns, true)], ..Scope::default() };
        let (keys, words, condition) = self.scoped(scope, |own| {
            let (mut keys, mut words) = (Vec::new(), Vec::new());
            for column in &create.columns {
                // Where NULL is put changes no result: SQLite's indexes have it first.
                let order = &column.column.options;
                let value = own.expression(&column.column.expr)?;
                words.push(super::select::result_name(&column.column.expr).replace("?column?", "expr"));
                let is_descending = matches!(order.sort, Some(sqlparser::ast::OrderBySort::Desc));
                keys.push(format!("{}{}", value.sql, if is_descending { " DESC" } else { "" }));
            }
            let condition = create.predicate.as_ref().map(|one| own.condition(one, "WHERE")).transpose()?;
            Ok((keys, words, condition.map_or(String::new(), |one| format!(" WHERE {}", one.sql))))
        })?;
        self.no_parameters()?;
        let name = match &create.name {
            Some(name) => names::object(name)?,
            None => self.free_index_name(&table, &format!("{table}_{}_idx", words.join("_"))),
        };
        let unique = if create.unique { "UNIQUE " } else { "" };
        let exists = if create.if_not_exists { "IF NOT EXISTS " } else { "" };
        let (name, table) = (quoted(&name), quoted(&table));
        let sql = format!("CREATE {unique}INDEX {exists}{name} ON {table} ({}){condition}", keys.join(", "));
        Ok(vec![schema_part(sql, "CREATE INDEX")])
    }

    /// A name as PostgreSQL makes it, with a number if it is taken.
    pub fn free_index_name(&self, table: &str, name: &str) -> String {
        let indexes = self.tables.indexes(table);
        let is_free = |name: &String| indexes.iter().all(|index| index.name != *name);
        let numbered = (1..).map(|number| format!("{name}{number}"));
        std::iter::once(name.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
    }

    fn create_view(&mut self, create: &CreateView) -> Result<Vec<Translated>, SqlError> {
        let name = names::object(&create.name)?;
        if create.materialized || create.temporary {
            return Err(unsupported("a materialized or temporary view", "Use CREATE VIEW."));
        }
        let renamed: Vec<String> = create.columns.iter().map(|column| folded(&column.name)).collect();
        let want = Want { names: (!renamed.is_empty()).then_some(&renamed), ..Want::default() };
        let rows = self.query(&create.query, &want)?;
        self.no_parameters()?;
        let mut parts = Vec::new();
        if self.tables.columns(&name).is_some() {
            let is_view = self.tables.definition(&name).is_some_and(|sql| is_view(&sql));
            if !is_view || !create.or_replace {
                return Err(exists_already(&name));
            }
            parts.push(schema_part(format!("DROP VIEW {}", quoted(&name)), "CREATE VIEW"));
        }
        let types: Vec<String> = rows.columns.iter().map(|column| stored(column.of).declaration()).collect();
        let columns = quoted_list(rows.columns.iter().map(|column| &column.name));
        // SQLite keeps the comment with the statement, and has no other place for the types.
        let sql =
            format!("CREATE VIEW {} ({columns}) AS /* {} */ {}", quoted(&name), types.join("; "), rows.sql);
        parts.push(schema_part(sql, "CREATE VIEW"));
        Ok(parts)
    }

    fn drop(
        &mut self,
        what: ObjectType,
        if_exists: bool,
        names: &[ObjectName],
        is_cascade: bool,
    ) -> Result<Vec<Translated>, SqlError> {
        let names = names.iter().map(names::object).collect::<Result<Vec<_>, _>>()?;
        let plain = |word: &str, tag| {
            let exists = if if_exists { "IF EXISTS " } else { "" };
            let part = |name: &String| schema_part(format!("DROP {word} {exists}{}", quoted(name)), tag);
            Ok(names.iter().map(part).collect())
        };
        match what {
            ObjectType::Table => self.drop_tables(&names, if_exists, is_cascade),
            ObjectType::View => {
                for name in names.iter().filter(|_| !if_exists) {
                    self.tables.columns(name).ok_or_else(|| no_table(name))?;
                }
                let mut parts = self.dependent_views(&names, is_cascade, "DROP VIEW")?;
                parts.extend(plain("VIEW", "DROP VIEW")?);
                Ok(parts)
            }
            ObjectType::Index => plain("INDEX", "DROP INDEX"),
            ObjectType::Sequence => self.drop_sequences(&names, if_exists),
            ObjectType::Type if if_exists => Ok(nothing(StatementKind::Nothing("DROP TYPE"))),
            ObjectType::MaterializedView if if_exists => {
                Ok(nothing(StatementKind::Nothing("DROP MATERIALIZED VIEW")))
            }
            _ => Err(unsupported(&format!("DROP {what}"), "There are tables, views and indexes.")),
        }
    }

    fn drop_tables(
        &mut self,
        names: &[String],
        if_exists: bool,
        is_cascade: bool,
    ) -> Result<Vec<Translated>, SqlError> {
        let mut there: Vec<String> = Vec::new();
        for name in names {
            match self.tables.columns(name) {
                Some(_) if self.tables.definition(name).is_some_and(|sql| is_view(&sql)) => {
                    let message = format!("\"{name}\" is not a table");
                    return Err(SqlError::new("42809", message, "Use DROP VIEW to remove a view."));
                }
                Some(_) if !there.contains(name) => there.push(name.clone()),
                None if !if_exists => {
                    return Err(SqlError::plain("42P01", format!("table \"{name}\" does not exist")));
                }
                _ => {}
            }
        }
        let mut parts = self.dependent_views(&there, is_cascade, "DROP TABLE")?;
        for name in &there {
            for other in self.tables.referring(name).iter().filter(|other| !there.contains(other)) {
                if !is_cascade {
                    let message = format!("cannot drop table {name} because other objects depend on it");
                    let hint = format!(
                        "Table {other} has a foreign key to it. Use DROP ... CASCADE to drop that too."
                    );
                    return Err(SqlError::new("2BP01", message, &hint));
                }
                parts.extend(self.forget_references(name, other, "DROP TABLE")?);
            }
        }
        if there.is_empty() {
            return Ok(nothing(StatementKind::Nothing("DROP TABLE")));
        }
        let (order, has_cycle) = self.referring_first(&there);
        if has_cycle {
            // SQLite deletes the rows of a table that it drops, and checks those that refer to them.
            parts.push(schema_part("PRAGMA defer_foreign_keys = ON".to_owned(), "DROP TABLE"));
            let delete = |name: &String| schema_part(format!("DELETE FROM {}", quoted(name)), "DROP TABLE");
            parts.extend(order.iter().map(delete));
        }
        parts.extend(
            order.iter().map(|name| schema_part(format!("DROP TABLE {}", quoted(name)), "DROP TABLE")),
        );
        Ok(parts)
    }

    /// The statements that drop the views of tables and views; an error if there are some that may not go.
    fn dependent_views(
        &self,
        names: &[String],
        is_cascade: bool,
        tag: &'static str,
    ) -> Result<Vec<Translated>, SqlError> {
        let (mut gone, mut parts, mut at) = (names.to_vec(), Vec::new(), 0);
        while at < gone.len() {
            for (view, definition) in self.tables.views() {
                if gone.contains(&view) || !selects_from(&definition, &gone[at]) {
                    continue;
                }
                if !is_cascade {
                    let message = format!("cannot drop {} because other objects depend on it", gone[at]);
                    let hint = format!("View {view} depends on it. Use DROP ... CASCADE to drop that too.");
                    return Err(SqlError::new("2BP01", message, &hint));
                }
                parts.push(schema_part(format!("DROP VIEW {}", quoted(&view)), tag));
                gone.push(view);
            }
            at += 1;
        }
        Ok(parts)
    }

    /// Tables in an order in which those that refer to others come before them, and whether there is none.
    fn referring_first(&self, tables: &[String]) -> (Vec<String>, bool) {
        let mut rest: Vec<String> = tables.to_vec();
        let mut order: Vec<String> = Vec::with_capacity(rest.len());
        let mut has_cycle = false;
        while !rest.is_empty() {
            let is_free = |name: &String| {
                let referring = self.tables.referring(name);
                referring.iter().all(|other| other == name || order.contains(other) || !rest.contains(other))
            };
            let at = rest.iter().position(is_free);
            has_cycle |= at.is_none();
            order.push(rest.remove(at.unwrap_or(0)));
        }
        (order, has_cycle)
    }

    fn truncate(&mut self, truncate: &Truncate) -> Result<Vec<Translated>, SqlError> {
        let names = truncate.table_names.iter().map(|target| names::object(&target.name));
        let mut names = names.collect::<Result<Vec<_>, _>>()?;
        let mut at = 0;
        while at < names.len() {
            let name = names[at].clone();
            self.tables.columns(&name).ok_or_else(|| no_table(&name))?;
            for other in self.tables.referring(&name) {
                if names.contains(&other) {
                    continue;
                }
                if truncate.cascade != Some(CascadeOption::Cascade) {
                    let message = "cannot truncate a table referenced in a foreign key constraint";
                    let hint =
                        format!("Truncate table \"{other}\" at the same time, or use TRUNCATE ... CASCADE.");
                    return Err(SqlError::new("0A000", message, &hint));
                }
                names.push(other);
            }
            at += 1;
        }
        let (order, has_cycle) = self.referring_first(&names);
        let part = |sql: String| schema_part(sql, "TRUNCATE TABLE");
        let mut parts = Vec::new();
        if has_cycle {
            parts.push(part("PRAGMA defer_foreign_keys = ON".to_owned()));
        }
        for name in order {
            parts.push(part(format!("DELETE FROM {}", quoted(&name))));
            let gives_ids = self.target(&name)?.iter().any(|column| column.gives_ids);
            if gives_ids && truncate.identity == Some(TruncateIdentityOption::Restart) {
                parts.push(part(format!("DELETE FROM sqlite_sequence WHERE name = {}", text_literal(&name))));
            }
        }
        Ok(parts)
    }
}

/// Whether the query of a view has this table in a FROM; names that may be a column's are not looked at.
pub fn selects_from(definition: &str, table: &str) -> bool {
    let name = quoted(table);
    let is_source = |start: &str| definition.contains(&format!("{start}{name}"));
    let beside = [format!(", {name} AS "), format!(", {name} WHERE "), format!(", {name} JOIN ")];
    definition.ends_with(&format!(", {name}"))
        || is_source("FROM ")
        || is_source("JOIN ")
        || is_source("FROM (")
        || beside.iter().any(|part| definition.contains(part))
}

/// Whether a statement of SQLite's makes a view.
pub fn is_view(definition: &str) -> bool {
    let mut words = definition.split_whitespace().map(str::to_ascii_uppercase).skip(1);
    matches!(words.next().as_deref(), Some("VIEW" | "TEMP" | "TEMPORARY"))
}
