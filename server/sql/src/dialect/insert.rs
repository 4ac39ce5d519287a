//! INSERT: values in the form of their columns, conflicts, and what it returns.

use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, DoUpdate, Expr, Insert, OnConflict, OnConflictAction,
    OnInsert, Query, SelectItem, SetExpr, TableObject,
};

use super::Column;
use super::expression::Expression;
use super::literals;
use super::names::{self, folded, quoted, quoted_list, text_literal};
use super::query::{Rows, Want, WantedValues};
use super::scope::{Place, Relation, Scope};
use super::translator::{Translator, no_column, scope_columns};
use crate::error::SqlError;
use crate::types::PgType;

/// A statement that changes rows, and what it returns.
pub struct ChangedRows {
    /// For SQLite.
    pub sql: String,
    /// Of RETURNING.
    pub columns: Option<Vec<(String, PgType)>>,
}

impl Translator<'_> {
    /// An INSERT, with the text of WITH before it.
    pub fn insert(&mut self, insert: &Insert, with: &str) -> Result<ChangedRows, SqlError> {
        refuse(insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::plain("42601", "syntax error: INSERT into what is no table"));
        };
        let table = names::object(name)?;
        let all = self.target(&table)?;
        let mut columns = self.named_columns(insert, &all, &table)?;
        let rows = match &insert.source {
            None => None,
            Some(query) if insert.columns.is_empty() => {
                let width = self.width(query)?;
                if width > columns.len() {
                    return Err(SqlError::plain("42601", "INSERT has more expressions than target columns"));
                }
                columns.truncate(width);
                Some(self.source(query, &table, &columns)?)
            }
            Some(query) => Some(self.source(query, &table, &columns)?),
        };
        if rows.is_none() {
            columns.clear();
        }
        self.must_be_given(&table, &all, &columns)?;
        let alias = insert.table_alias.as_ref().map_or(table.clone(), |alias| folded(&alias.alias));
        let mut sql = format!("{with}INSERT INTO {}", quoted(&table));
        if alias != table {
            sql.push_str(&format!(" AS {}", quoted(&alias)));
        }
        match &rows {
            None => sql.push_str(" DEFAULT VALUES"),
            Some(rows) => {
                let names = quoted_list(columns.iter().map(|column| &column.name));
                sql.push_str(&format!(" ({names}) {}", rows.sql));
            }
        }
        if let Some(OnInsert::OnConflict(conflict)) = &insert.on {
            // SQLite would read ON as that of a join.
            if rows
                .as_ref()
                .is_some_and(|rows| rows.sql.starts_with("SELECT") || rows.sql.starts_with("WITH"))
            {
                let rows = rows.as_ref().map_or("", |rows| &rows.sql);
                let wrapped = format!("SELECT * FROM ({rows}) WHERE true");
                sql = sql.replacen(rows, &wrapped, 1);
            }
            sql.push_str(&self.on_conflict(conflict, &table, &alias, &all)?);
        }
        let columns = self.returning(insert.returning.as_deref(), &alias, &all, &mut sql)?;
        Ok(ChangedRows { sql, columns })
    }

    /// The columns that are given values, in the order of the values.
    fn named_columns(&self, insert: &Insert, all: &[Column], table: &str) -> Result<Vec<Column>, SqlError> {
        if insert.columns.is_empty() {
            return Ok(all.to_vec());
        }
        let mut columns: Vec<Column> = Vec::with_capacity(insert.columns.len());
        for name in &insert.columns {
            let name = names::column(name)?;
            let Some(column) = all.iter().find(|column| column.name == name) else {
                let message = format!("column \"{name}\" of relation \"{table}\" does not exist");
                return Err(SqlError::plain("42703", message));
            };
            if columns.iter().any(|column| column.name == name) {
                return Err(SqlError::plain("42701", format!("column \"{name}\" specified more than once")));
            }
            columns.push(column.clone());
        }
        Ok(columns)
    }

    fn source(&mut self, query: &Query, table: &str, columns: &[Column]) -> Result<Rows, SqlError> {
        let want = Want { target: WantedValues::Columns(columns), ..Want::default() };
        let rows = self.query(query, &want)?;
        if rows.columns.len() < columns.len() {
            return Err(SqlError::plain("42601", "INSERT has more target columns than expressions"));
        }
        let is_values = matches!(query.body.as_ref(), SetExpr::Values(_));
        let id = columns.iter().position(|column| is_row_id(column, columns));
        match id.filter(|_| !is_values) {
            None => Ok(rows),
            // A NULL that a query gives for an id must not be taken for "give one".
            Some(at) => {
                let names: Vec<&str> = rows.columns.iter().map(|column| column.name.as_str()).collect();
                let is_unique = (1..names.len()).all(|at| !names[..at].contains(&names[at]));
                if !rows.columns[at].is_nullable {
                    return Ok(rows);
                }
                if !is_unique {
                    let hint = "Give each column of the query an alias of its own.";
                    return Err(SqlError::unsupported("two columns of the query have one name", hint));
                }
                let item = |(other, name): (usize, &&str)| match other == at {
                    true => required(&quoted(name), &columns[at].name, table),
                    false => quoted(name),
                };
                let items = names.iter().enumerate().map(item).collect::<Vec<_>>().join(", ");
                Ok(Rows { sql: format!("SELECT {items} FROM ({})", rows.sql), ..rows })
            }
        }
    }

    /// How many columns the rows have, of an INSERT that names none.
    fn width(&mut self, query: &Query) -> Result<usize, SqlError> {
        match query.body.as_ref() {
            SetExpr::Values(values) => Ok(values.rows.first().map_or(0, |row| row.len())),
            _ => Ok(self.query(query, &Want { keeps_open: true, ..Want::default() })?.columns.len()),
        }
    }

    /// What SQLite would give an id where PostgreSQL fails.
    pub fn must_be_given(&self, table: &str, all: &[Column], given: &[Column]) -> Result<(), SqlError> {
        for column in all.iter().filter(|column| is_row_id(column, all) && !column.gives_ids) {
            if column.default.is_none() && !given.iter().any(|one| one.name == column.name) {
                return Err(null_violation(&column.name, table));
            }
        }
        Ok(())
    }

    /// A value for a column, which may be DEFAULT.
    pub fn for_column(&mut self, value: &Expr, column: &Column) -> Result<Expression, SqlError> {
        if let Expr::Identifier(word) = value
            && word.quote_style.is_none()
            && word.value.eq_ignore_ascii_case("default")
        {
            return Ok(match &column.default {
                Some(default) => Expression::new(format!("({default})"), column.of),
                None if column.is_key && !column.gives_ids && column.of.is_integer() => {
                    return Err(null_violation(&column.name, ""));
                }
                None => literals::null(),
            });
        }
        let value = self.expression(value)?;
        let value = self.assigned(value, column)?;
        Ok(self.never_null(value, column, ""))
    }

    /// SQLite gives an id for NULL, where PostgreSQL fails.
    pub fn never_null(&self, value: Expression, column: &Column, table: &str) -> Expression {
        if column.is_key && column.of.is_integer() && value.is_nullable {
            return Expression::new(required(&value.sql, &column.name, table), column.of);
        }
        value
    }

    fn on_conflict(
        &mut self,
        conflict: &OnConflict,
        table: &str,
        alias: &str,
        all: &[Column],
    ) -> Result<String, SqlError> {
        let target = match &conflict.conflict_target {
            None => String::new(),
            Some(ConflictTarget::Columns { columns, predicate }) => {
                let columns: Vec<String> = columns.iter().map(folded).collect();
                if let Some(lost) = columns.iter().find(|name| all.iter().all(|column| column.name != **name))
                {
                    return Err(no_column(lost));
                }
                let mut sql = format!("({})", quoted_list(&columns));
                if let Some(predicate) = predicate {
                    let scope = Scope { relations: vec![own(alias, all, true)], ..Scope::default() };
                    let condition = self.scoped(scope, |own| own.condition(predicate, "WHERE"))?;
                    sql.push_str(&format!(" WHERE {}", condition.sql));
                }
                sql
            }
            Some(ConflictTarget::OnConstraint(name)) => {
                self.constraint_columns(&names::object(name)?, table, all)?
            }
        };
        let target = if target.is_empty() { target } else { format!(" {target}") };
        match &conflict.action {
            OnConflictAction::DoNothing => Ok(format!(" ON CONFLICT{target} DO NOTHING")),
            OnConflictAction::DoUpdate(_) if target.is_empty() => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                Err(SqlError::plain("42601", message))
            }
            OnConflictAction::DoUpdate(DoUpdate { assignments, selection }) => {
                let mut excluded = own("excluded", all, false);
                excluded.is_named_only = true;
                let scope = Scope { relations: vec![own(alias, all, false), excluded], ..Scope::default() };
                let (set, condition) = self.scoped(scope, |own| {
                    let set = own.assignments(assignments, table, all)?;
                    let condition = selection.as_ref().map(|one| own.condition(one, "WHERE")).transpose()?;
                    Ok((set, condition.map_or(String::new(), |one| format!(" WHERE {}", one.sql))))
                })?;
                Ok(format!(" ON CONFLICT{target} DO UPDATE SET {set}{condition}"))
            }
        }
    }

    /// The columns of a constraint that is named as PostgreSQL names those without a name, or as its index is.
    fn constraint_columns(&self, name: &str, table: &str, all: &[Column]) -> Result<String, SqlError> {
        let keys: Vec<&String> =
            all.iter().filter(|column| column.is_key).map(|column| &column.name).collect();
        if name == format!("{table}_pkey") && !keys.is_empty() {
            return Ok(format!("({})", quoted_list(keys)));
        }
        for index in self.tables.indexes(table).iter().filter(|index| index.is_unique) {
            let made = format!("{table}_{}_key", index.columns.join("_"));
            if index.name == name || made == name {
                return Ok(format!("({})", quoted_list(&index.columns)));
            }
        }
        let message = format!("constraint \"{name}\" for table \"{table}\" does not exist");
        Err(SqlError::new("42704", message, "Name the columns: ON CONFLICT (a, b)."))
    }

    /// The list behind SET.
    pub fn assignments(
        &mut self,
        assignments: &[Assignment],
        table: &str,
        all: &[Column],
    ) -> Result<String, SqlError> {
        let mut written = Vec::with_capacity(assignments.len());
        for Assignment { target, value } in assignments {
            let find = |name: String| {
                let column = all.iter().find(|column| column.name == name);
                column.ok_or_else(|| {
                    let message = format!("column \"{name}\" of relation \"{table}\" does not exist");
                    SqlError::plain("42703", message)
                })
            };
            match target {
                AssignmentTarget::ColumnName(name) => {
                    let column = find(names::column(name)?)?;
                    written.push(format!(
                        "{} = {}",
                        quoted(&column.name),
                        self.for_column(value, column)?.sql
                    ));
                }
                AssignmentTarget::Tuple(targets) => {
                    let columns = targets
                        .iter()
                        .map(|name| find(names::column(name)?))
                        .collect::<Result<Vec<_>, _>>()?;
                    written.push(self.row_assignment(&columns, value)?);
                }
            }
        }
        Ok(written.join(", "))
    }

    fn row_assignment(&mut self, columns: &[&Column], value: &Expr) -> Result<String, SqlError> {
        let names = quoted_list(columns.iter().map(|column| &column.name));
        let columns: Vec<Column> = columns.iter().map(|column| (*column).clone()).collect();
        match super::operators::bare(value) {
            Expr::Tuple(values) if values.len() == columns.len() => {
                let mut written = Vec::new();
                for (value, column) in values.iter().zip(&columns) {
                    written.push(self.for_column(value, column)?.sql);
                }
                Ok(format!("({names}) = ({})", written.join(", ")))
            }
            Expr::Subquery(query) => {
                let rows =
                    self.query(query, &Want { target: WantedValues::Columns(&columns), ..Want::default() })?;
                match rows.is_one_row && rows.columns.len() == columns.len() {
                    true => Ok(format!("({names}) = ({})", rows.sql)),
                    false => Err(SqlError::unsupported(
                        "a row is assigned from a query that may have several rows",
                        "Add LIMIT 1, or assign column by column.",
                    )),
                }
            }
            _ => Err(SqlError::plain("42601", "number of columns does not match number of values")),
        }
    }

    /// RETURNING, which is appended; its columns.
    pub fn returning(
        &mut self,
        items: Option<&[SelectItem]>,
        alias: &str,
        all: &[Column],
        sql: &mut String,
    ) -> Result<Option<Vec<(String, PgType)>>, SqlError> {
        let Some(items) = items else { return Ok(None) };
        let scope =
            Scope { relations: vec![own(alias, all, true)], place: Place::Groups, ..Scope::default() };
        let (list, columns, has_aggregate) = self.scoped(scope, |own| {
            let (list, columns) = own.item_list(items)?;
            Ok((list, columns, own.scope().has_aggregate))
        })?;
        if has_aggregate {
            return Err(SqlError::plain("42803", "aggregate functions are not allowed in RETURNING"));
        }
        sql.push_str(&format!(" RETURNING {list}"));
        Ok(Some(columns))
    }
}

/// The table itself, as a relation.
pub fn own(name: &str, columns: &[Column], is_bare: bool) -> Relation {
    Relation { is_bare, ..Relation::new(name.to_owned(), scope_columns(columns)) }
}

/// A column that SQLite gives an id if it is NULL.
fn is_row_id(column: &Column, all: &[Column]) -> bool {
    column.is_key && column.of.is_integer() && all.iter().filter(|column| column.is_key).count() == 1
}

fn required(sql: &str, column: &str, table: &str) -> String {
    format!("required_pg({sql}, {}, {})", text_literal(column), text_literal(table))
}

fn null_violation(column: &str, table: &str) -> SqlError {
    let of = if table.is_empty() { String::new() } else { format!(" of relation \"{table}\"") };
    let message = format!("null value in column \"{column}\"{of} violates not-null constraint");
    SqlError::plain("23502", message)
}

fn refuse(insert: &Insert) -> Result<(), SqlError> {
    if insert.overriding.is_some() {
        let message = "OVERRIDING is not supported";
        return Err(SqlError::unsupported(message, "Ids can be given to any column here: leave it out."));
    }
    let is_postgres = insert.or.is_none()
        && !insert.ignore
        && !insert.overwrite
        && !insert.replace_into
        && !insert.by_name
        && insert.assignments.is_empty()
        && insert.partitioned.is_none()
        && insert.after_columns.is_empty()
        && insert.output.is_none()
        && insert.insert_alias.is_none()
        && insert.settings.is_none()
        && insert.format_clause.is_none()
        && insert.multi_table_insert_type.is_none()
        && !matches!(insert.on, Some(OnInsert::DuplicateKeyUpdate(_)));
    match is_postgres {
        true => Ok(()),
        false => Err(SqlError::plain("42601", "syntax error: a clause that PostgreSQL does not have")),
    }
}
