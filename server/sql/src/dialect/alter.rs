//! ALTER TABLE: changes of a table's definition, of its rows where they need one, and checks of what they have.
//!
//! SQLite's own ALTER TABLE lacks most of it, and a table that others refer to cannot be replaced by a new one, since
//! that would count as rows that are gone. So the definition is changed where SQLite keeps it: rows stay where they
//! are. `DROP COLUMN` and `RENAME` are SQLite's own.

use sqlparser::ast::{
    AlterColumnOperation, AlterIndexOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption,
    DropBehavior, Expr, Ident, ObjectName, RenameTableNameKind, TableConstraint,
};

use super::coerce::{family, type_name};
use super::data_type::{self, ColumnType};
use super::definition::{ColumnText, Definition};
use super::insert::own;
use super::names::{self, folded, quoted, quoted_list, text_literal};
use super::schema::selects_from;
use super::scope::Scope;
use super::statement::nothing;
use super::table::{Constraints, Read, declaration, key_columns, plain_unique, read_column, schema_part};
use super::translator::{Translator, no_table};
use super::{Column, StatementKind, Translated};
use crate::error::SqlError;
use crate::types::PgType;

const TAG: &str = "ALTER TABLE";

fn unsupported(what: &str, hint: &str) -> SqlError {
    SqlError::unsupported(format!("{what} is not supported"), hint)
}

/// A table that is being altered.
struct Altered {
    table: String,
    columns: Vec<Column>,
    definition: Definition,
    is_edited: bool,
    parts: Vec<Translated>,
    /// What is run once the definition is changed.
    after: Vec<String>,
}

impl Altered {
    fn run(&mut self, sql: String) {
        self.parts.push(schema_part(sql, TAG));
    }

    /// Writes the definition as it is now, then runs what waits for it.
    fn flush(&mut self) {
        if std::mem::take(&mut self.is_edited) {
            self.parts.extend(redefined(&self.table, &self.definition, TAG));
        }
        for sql in std::mem::take(&mut self.after) {
            self.run(sql);
        }
    }

    /// Fails with this error if there is a row that meets the condition.
    fn must_not_have(&mut self, condition: &str, code: &str, message: &str) {
        let sql = self.refusal(condition, code, message);
        self.after.push(sql);
    }

    fn refusal(&self, condition: &str, code: &str, message: &str) -> String {
        let table = quoted(&self.table);
        let raise = format!("raise_pg({}, {})", text_literal(code), text_literal(message));
        format!("SELECT {raise} FROM (SELECT 1 FROM {table} WHERE {condition} LIMIT 1)")
    }

    fn find(&self, name: &str) -> Result<usize, SqlError> {
        let at = self.columns.iter().position(|column| column.name == name);
        at.ok_or_else(|| {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", self.table);
            SqlError::plain("42703", message)
        })
    }

    fn text(&mut self, name: &str) -> Result<&mut ColumnText, SqlError> {
        self.is_edited = true;
        self.definition.column(name).ok_or_else(no_definition)
    }

    fn constraints(&self, translator: &Translator<'_>) -> Constraints {
        let mut made = Constraints::new(&self.table);
        made.names = self.definition.constraint_names();
        made.names.extend(translator.tables.indexes(&self.table).into_iter().map(|index| index.name));
        made
    }

    fn add(&mut self, made: Constraints) {
        self.is_edited |= !made.written.is_empty();
        self.definition.constraints.extend(made.written);
        self.after.extend(made.indexes);
    }
}

/// The statements that put another definition in a table's place.
fn redefined(table: &str, definition: &Definition, tag: &'static str) -> Vec<Translated> {
    let (sql, name) = (text_literal(&definition.sql()), text_literal(table));
    let statements = [
        "PRAGMA writable_schema = ON".to_owned(),
        format!("UPDATE sqlite_schema SET sql = {sql} WHERE type = 'table' AND name = {name}"),
        "PRAGMA writable_schema = RESET".to_owned(),
        // Tells SQLite, and its other connections, that the schema is another one.
        "CREATE VIEW \"schema has changed\" AS SELECT 1".to_owned(),
        "DROP VIEW \"schema has changed\"".to_owned(),
    ];
    statements.into_iter().map(|sql| schema_part(sql, tag)).collect()
}

fn no_definition() -> SqlError {
    unsupported("a change of a table that was defined in this way", "Make a new table, and copy the rows.")
}

impl Translator<'_> {
    /// ALTER TABLE.
    pub fn alter_table(&mut self, alter: &AlterTable) -> Result<Vec<Translated>, SqlError> {
        let table = names::object(&alter.name)?;
        let Some(columns) = self.tables.columns(&table) else {
            return match alter.if_exists {
                true => Ok(nothing(StatementKind::Nothing(TAG))),
                false => Err(no_table(&table)),
            };
        };
        let definition = self.tables.definition(&table).and_then(|sql| Definition::read(&sql));
        let definition = definition.ok_or_else(no_definition)?;
        let is_own = |operation: &&AlterTableOperation| {
            use AlterTableOperation as O;
            matches!(operation, O::DropColumn { .. } | O::RenameColumn { .. } | O::RenameTable { .. })
        };
        if alter.operations.len() > 1 && alter.operations.iter().any(|operation| is_own(&operation)) {
            let is_drop =
                |operation: &AlterTableOperation| matches!(operation, AlterTableOperation::DropColumn { .. });
            if !alter.operations.iter().all(is_drop) {
                let hint = "Send DROP COLUMN and RENAME as statements of their own.";
                return Err(unsupported("this combination of changes", hint));
            }
        }
        let (parts, after) = (Vec::new(), Vec::new());
        let mut altered = Altered { table, columns, definition, is_edited: false, parts, after };
        for operation in &alter.operations {
            self.alter_operation(operation, &mut altered)?;
        }
        altered.flush();
        self.no_parameters()?;
        if altered.parts.is_empty() {
            return Ok(nothing(StatementKind::Nothing(TAG)));
        }
        Ok(altered.parts)
    }

    fn alter_operation(&mut self, operation: &AlterTableOperation, on: &mut Altered) -> Result<(), SqlError> {
        use AlterTableOperation as O;
        match operation {
            O::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
                self.add_column(column_def, *if_not_exists, on)
            }
            O::DropColumn { column_names, if_exists, drop_behavior, .. } => {
                for name in column_names {
                    self.drop_column(
                        &folded(name),
                        *if_exists,
                        *drop_behavior == Some(DropBehavior::Cascade),
                        on,
                    )?;
                }
                Ok(())
            }
            O::RenameColumn { old_column_name, new_column_name } => {
                let old = folded(old_column_name);
                on.find(&old)?;
                let (table, new) = (quoted(&on.table), quoted(&folded(new_column_name)));
                on.run(format!("ALTER TABLE {table} RENAME COLUMN {} TO {new}", quoted(&old)));
                Ok(())
            }
            O::RenameTable { table_name: RenameTableNameKind::To(name) | RenameTableNameKind::As(name) } => {
                let new = names::object(name)?;
                if self.tables.columns(&new).is_some() {
                    return Err(super::table::exists_already(&new));
                }
                on.run(format!("ALTER TABLE {} RENAME TO {}", quoted(&on.table), quoted(&new)));
                Ok(())
            }
            O::AlterColumn { column_name, op } => self.alter_column(&folded(column_name), op, on),
            O::AddConstraint { constraint, not_valid } => self.add_constraint(constraint, *not_valid, on),
            O::DropConstraint { if_exists, name, .. } => self.drop_constraint(&folded(name), *if_exists, on),
            O::RenameConstraint { old_name, new_name } => self.rename_constraint(old_name, new_name, on),
            // All constraints are checked when they are made, and every user is an owner.
            O::ValidateConstraint { .. } | O::OwnerTo { .. } | O::SetLogged | O::SetUnlogged => Ok(()),
            other => {
                Err(unsupported(&format!("ALTER TABLE .. {other}"), "Make a new table, and copy the rows."))
            }
        }
    }

    /// Takes the foreign keys that refer to a table out of another one.
    pub fn forget_references(
        &self,
        table: &str,
        other: &str,
        tag: &'static str,
    ) -> Result<Vec<Translated>, SqlError> {
        let definition = self.tables.definition(other).and_then(|sql| Definition::read(&sql));
        let mut definition = definition.ok_or_else(no_definition)?;
        match definition.forget(table) {
            true => Ok(redefined(other, &definition, tag)),
            false => Err(no_definition()),
        }
    }

    fn add_column(
        &mut self,
        definition: &ColumnDef,
        is_optional: bool,
        on: &mut Altered,
    ) -> Result<(), SqlError> {
        let Read { column, is_primary, .. } = read_column(definition, &[])?;
        if on.columns.iter().any(|other| other.name == column.name) {
            let message = format!("column \"{}\" of relation \"{}\" already exists", column.name, on.table);
            return if is_optional { Ok(()) } else { Err(SqlError::plain("42701", message)) };
        }
        if definition.options.iter().any(|one| matches!(one.option, ColumnOption::PrimaryKey(_))) {
            return Err(unsupported(
                "a primary key that is added with its column",
                "Add the column, then the key.",
            ));
        }
        let default = definition.options.iter().find_map(|one| match &one.option {
            ColumnOption::Default(value) => Some(value),
            _ => None,
        });
        let default = default.map(|value| self.default_sql(value, &column)).transpose()?.flatten();
        let name = column.name.clone();
        let of = declaration(&column, is_primary);
        on.definition.columns.push(ColumnText { name: name.clone(), of, clauses: Vec::new() });
        on.columns.push(column.clone());
        on.is_edited = true;
        if let Some(default) = &default {
            if !is_constant(default) {
                // SQLite gives rows that are there a constant only.
                on.after.push(format!("UPDATE {} SET {} = {default}", quoted(&on.table), quoted(&name)));
                on.flush();
            }
            on.text(&name)?.clauses.push(format!("DEFAULT {default}"));
        }
        if column.is_not_null {
            on.text(&name)?.clauses.insert(0, "NOT NULL".to_owned());
            if default.is_none() {
                let message = format!("column \"{name}\" of relation \"{}\" contains null values", on.table);
                on.must_not_have("true", "23502", &message);
            }
        }
        let mut made = on.constraints(self);
        self.column_constraints(definition, &on.columns, &mut made)?;
        self.check_rows(&made, on);
        on.add(made);
        Ok(())
    }

    /// Rows that are there have to meet new constraints.
    fn check_rows(&self, made: &Constraints, on: &mut Altered) {
        for constraint in &made.written {
            if let Some((name, condition)) = constraint.split_once(" CHECK ") {
                let name = name.trim_start_matches("CONSTRAINT ").replace('"', "");
                let message = format!(
                    "check constraint \"{name}\" of relation \"{}\" is violated by some row",
                    on.table
                );
                on.must_not_have(&format!("NOT {condition}"), "23514", &message);
            } else if let Some((condition, name)) = orphans(constraint) {
                let message = format!(
                    "insert or update on table \"{}\" violates foreign key constraint \"{name}\"",
                    on.table
                );
                on.must_not_have(&condition, "23503", &message);
            }
        }
    }

    fn set_not_null(&mut self, name: &str, on: &mut Altered) -> Result<(), SqlError> {
        let at = on.find(name)?;
        on.columns[at].is_not_null = true;
        let text = on.text(name)?;
        if !text.clauses.iter().any(|clause| clause == "NOT NULL" || clause.starts_with("PRIMARY")) {
            text.clauses.insert(0, "NOT NULL".to_owned());
        }
        let message = format!("column \"{name}\" of relation \"{}\" contains null values", on.table);
        // Before: SQLite would not look for NULL in a column that is said to have none.
        let sql = on.refusal(&format!("{} IS NULL", quoted(name)), "23502", &message);
        on.run(sql);
        Ok(())
    }

    fn drop_column(
        &mut self,
        name: &str,
        is_optional: bool,
        is_cascade: bool,
        on: &mut Altered,
    ) -> Result<(), SqlError> {
        let at = match on.find(name) {
            Err(_) if is_optional => return Ok(()),
            found => found?,
        };
        if on.columns[at].is_key {
            let hint = "Make a new table without it, and copy the rows.";
            return Err(unsupported("dropping a column of the primary key", hint));
        }
        let indexes = self.tables.indexes(&on.table);
        let with: Vec<_> =
            indexes.iter().filter(|index| index.columns.iter().any(|one| one == name)).collect();
        for index in &with {
            if index.is_unique && index.columns.len() == 1 && !self.tables.referring(&on.table).is_empty() {
                self.must_not_be_referred(&on.table, &index.columns, is_cascade)?;
            }
            if index.definition.is_none() {
                return Err(unsupported(
                    "dropping a column of such a constraint",
                    "Drop the constraint first.",
                ));
            }
            let sql = format!("DROP INDEX {}", quoted(&index.name));
            on.run(sql);
        }
        let table = quoted(&on.table);
        for constraint in on.definition.constraints_with(name) {
            let constraint = constraint.ok_or_else(|| {
                unsupported(
                    "dropping a column of a constraint without a name",
                    "Make a new table, and copy the rows.",
                )
            })?;
            on.run(format!("ALTER TABLE {table} DROP CONSTRAINT {}", quoted(&constraint)));
        }
        on.run(format!("ALTER TABLE {table} DROP COLUMN {}", quoted(name)));
        Ok(())
    }

    fn must_not_be_referred(
        &self,
        table: &str,
        columns: &[String],
        is_cascade: bool,
    ) -> Result<(), SqlError> {
        for other in self.tables.referring(table) {
            let definition = self.tables.definition(&other).unwrap_or_default();
            if definition.contains(&format!("REFERENCES {} ({})", quoted(table), quoted_list(columns))) {
                let message = format!("cannot drop it because a foreign key of table {other} depends on it");
                let hint =
                    if is_cascade { "Drop that constraint first." } else { "Drop the foreign key first." };
                return Err(SqlError::new("2BP01", message, hint));
            }
        }
        Ok(())
    }

    fn alter_column(
        &mut self,
        name: &str,
        operation: &AlterColumnOperation,
        on: &mut Altered,
    ) -> Result<(), SqlError> {
        let at = on.find(name)?;
        match operation {
            AlterColumnOperation::SetNotNull => self.set_not_null(name, on),
            AlterColumnOperation::DropNotNull => {
                if on.columns[at].is_key {
                    let message = format!("column \"{name}\" is in a primary key");
                    return Err(SqlError::plain("42P16", message));
                }
                on.columns[at].is_not_null = false;
                on.text(name)?.remove("NOT NULL");
                Ok(())
            }
            AlterColumnOperation::SetDefault { value } => {
                let default = self.default_sql(value, &on.columns[at].clone())?;
                let text = on.text(name)?;
                text.remove("DEFAULT");
                text.clauses.extend(default.map(|default| format!("DEFAULT {default}")));
                Ok(())
            }
            AlterColumnOperation::DropDefault => {
                on.text(name)?.remove("DEFAULT");
                Ok(())
            }
            AlterColumnOperation::SetDataType { data_type, using, .. } => {
                let ColumnType::Plain(of) = data_type::of_column(data_type)? else {
                    return Err(unsupported(
                        "a change to serial",
                        "Make the table with a serial primary key.",
                    ));
                };
                self.set_type(at, of, using.as_ref(), on)
            }
            other => {
                Err(unsupported(&format!("ALTER COLUMN .. {other}"), "Make a new table, and copy the rows."))
            }
        }
    }

    fn set_type(
        &mut self,
        at: usize,
        of: PgType,
        using: Option<&Expr>,
        on: &mut Altered,
    ) -> Result<(), SqlError> {
        let before = on.columns[at].clone();
        let is_row_id = on.definition.columns[at].clauses.iter().any(|clause| clause.starts_with("PRIMARY"));
        if is_row_id && !of.is_integer() {
            return Err(unsupported(
                "another type of the primary key",
                "Make a new table, and copy the rows.",
            ));
        }
        if self.tables.views().iter().any(|(_, definition)| selects_from(definition, &on.table)) {
            let hint = "Drop the views of the table first, and make them again.";
            return Err(unsupported("another type for a column of a table that has views", hint));
        }
        let has_default = before.default.is_some();
        if has_default && family(before.of) != family(of) {
            let message = format!(
                "default for column \"{}\" cannot be cast automatically to type {}",
                before.name,
                type_name(of)
            );
            return Err(SqlError::new("42804", message, "Drop the default first, and set a new one."));
        }
        let after = Column { of, ..before.clone() };
        let scope = Scope { relations: vec![own(&on.table, &on.columns, true)], ..Scope::default() };
        let name = quoted(&before.name);
        let value = self.scoped(scope, |own| match using {
            Some(using) => {
                let value = own.expression(using)?;
                own.assigned(value, &after)
            }
            None => {
                let value = own.column(None, &before.name)?;
                own.assigned(value, &after).map_err(|error| match error.code.as_str() {
                    "42804" => {
                        let to = type_name(of);
                        let message =
                            format!("column \"{}\" cannot be cast automatically to type {to}", before.name);
                        SqlError::new("42804", message, "You might need to specify \"USING\".")
                    }
                    _ => error,
                })
            }
        })?;
        let is_alike = value.sql == name;
        on.definition.columns[at].of = declaration(&after, is_row_id);
        on.columns[at].of = of;
        on.is_edited = true;
        if !is_alike || family(before.of) != family(of) || of == PgType::Double {
            let table = quoted(&on.table);
            // Keys of indexes are in the form of the column's type: first those of the values before.
            on.after.push(format!("REINDEX {table}"));
            on.after.push(format!("UPDATE {table} SET {name} = {}", value.sql));
        }
        on.flush();
        Ok(())
    }

    fn add_constraint(
        &mut self,
        constraint: &TableConstraint,
        is_not_valid: bool,
        on: &mut Altered,
    ) -> Result<(), SqlError> {
        if let TableConstraint::PrimaryKey(key) = constraint {
            if on.columns.iter().any(|column| column.is_key) {
                let message = format!("multiple primary keys for table \"{}\" are not allowed", on.table);
                return Err(SqlError::plain("42P16", message));
            }
            let columns = key_columns(&key.columns, &on.columns)?;
            for column in &columns {
                self.set_not_null(column, on)?;
            }
            let (table, list) = (quoted(&on.table), quoted_list(&columns));
            // By this name, it is known for the primary key.
            let name = quoted(&format!("{}_pkey", on.table));
            on.after.push(format!("CREATE UNIQUE INDEX {name} ON {table} ({list})"));
            return Ok(());
        }
        if let TableConstraint::Unique(unique) = constraint {
            plain_unique(unique)?;
        }
        let mut made = on.constraints(self);
        if let TableConstraint::Check(_) | TableConstraint::Unique(_) | TableConstraint::ForeignKey(_) =
            constraint
            && let Some(name) = given_name(constraint)
            && made.names.contains(&name)
        {
            let message = format!("constraint \"{name}\" for relation \"{}\" already exists", on.table);
            return Err(SqlError::plain("42710", message));
        }
        self.constraint(constraint, &on.columns, &mut made)?;
        if !is_not_valid {
            self.check_rows(&made, on);
        }
        on.add(made);
        Ok(())
    }

    fn drop_constraint(&mut self, name: &str, is_optional: bool, on: &mut Altered) -> Result<(), SqlError> {
        if let Some(at) = on.definition.constraint(name) {
            let words: Vec<&str> = on.definition.constraints[at].split_whitespace().skip(2).take(1).collect();
            if words == ["PRIMARY"] || words == ["UNIQUE"] {
                return Err(unsupported("dropping this constraint", "Make a new table, and copy the rows."));
            }
            on.definition.constraints.remove(at);
            on.is_edited = true;
            return Ok(());
        }
        let indexes = self.tables.indexes(&on.table);
        if let Some(index) = indexes.iter().find(|index| index.name == name && index.definition.is_some()) {
            self.must_not_be_referred(&on.table, &index.columns, false)?;
            on.after.push(format!("DROP INDEX {}", quoted(name)));
            return Ok(());
        }
        if is_optional {
            return Ok(());
        }
        if name == format!("{}_pkey", on.table) {
            return Err(unsupported("dropping the primary key", "Make a new table, and copy the rows."));
        }
        let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", on.table);
        Err(SqlError::plain("42704", message))
    }

    fn rename_constraint(&mut self, old: &Ident, new: &Ident, on: &mut Altered) -> Result<(), SqlError> {
        let (old, new) = (folded(old), folded(new));
        if let Some(at) = on.definition.constraint(&old) {
            let (before, after) = (quoted(&old), quoted(&new));
            on.definition.constraints[at] = on.definition.constraints[at].replacen(&before, &after, 1);
            on.is_edited = true;
            return Ok(());
        }
        let parts = self.renamed_index(&on.table, &old, &new)?;
        on.after.extend(parts);
        Ok(())
    }

    /// SQLite cannot rename an index: it is made again.
    fn renamed_index(&self, table: &str, old: &str, new: &str) -> Result<Vec<String>, SqlError> {
        let index = self.tables.indexes(table).into_iter().find(|index| index.name == old);
        let definition = index.and_then(|index| index.definition);
        let renamed = definition.and_then(|sql| {
            let (before, after) = (format!("INDEX {} ON", quoted(old)), format!("INDEX {} ON", quoted(new)));
            sql.contains(&before).then(|| sql.replacen(&before, &after, 1))
        });
        let renamed = renamed.ok_or_else(|| SqlError::plain("42704", format!("\"{old}\" does not exist")))?;
        Ok(vec![format!("DROP INDEX {}", quoted(old)), renamed])
    }

    /// ALTER INDEX .. RENAME TO.
    pub fn alter_index(
        &mut self,
        name: &ObjectName,
        operation: &AlterIndexOperation,
    ) -> Result<Vec<Translated>, SqlError> {
        let AlterIndexOperation::RenameIndex { index_name } = operation;
        let (old, new) = (names::object(name)?, names::object(index_name)?);
        let table = self.tables.table_of_index(&old);
        let table =
            table.ok_or_else(|| SqlError::plain("42P01", format!("relation \"{old}\" does not exist")))?;
        let parts = self.renamed_index(&table, &old, &new)?;
        Ok(parts.into_iter().map(|sql| schema_part(sql, "ALTER INDEX")).collect())
    }
}

fn given_name(constraint: &TableConstraint) -> Option<String> {
    let name = match constraint {
        TableConstraint::Check(check) => &check.name,
        TableConstraint::Unique(unique) => &unique.name,
        TableConstraint::ForeignKey(key) => &key.name,
        _ => return None,
    };
    name.as_ref().map(folded)
}

/// Whether SQLite gives it to rows that are there without computing anything.
fn is_constant(default: &str) -> bool {
    let plain = default.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(default);
    plain.parse::<f64>().is_ok() || default.starts_with('\'')
}

/// The condition of rows that refer to no row, and the name of the constraint.
fn orphans(constraint: &str) -> Option<(String, String)> {
    let (name, rest) = constraint.strip_prefix("CONSTRAINT ")?.split_once(" FOREIGN KEY (")?;
    let (own, rest) = rest.split_once(") REFERENCES ")?;
    let (parent, rest) = rest.split_once(" (")?;
    let (referred, _) = rest.split_once(')')?;
    let given =
        own.split(", ").map(|column| format!("{column} IS NOT NULL")).collect::<Vec<_>>().join(" AND ");
    let condition = format!("{given} AND ({own}) NOT IN (SELECT {referred} FROM {parent})");
    Some((condition, name.trim_matches('"').to_owned()))
}
