//! CREATE TABLE: columns with their types, ids that are given, defaults and constraints.

use sqlparser::ast::{
    CheckConstraint, ColumnDef, ColumnOption, ColumnOptionDef, ConstraintReferenceMatchKind, CreateTable,
    DeferrableInitial, Expr, ForeignKeyConstraint, GeneratedAs, Ident, IndexColumn, NullsDistinctOption,
    ReferentialAction, TableConstraint, UniqueConstraint, WithData,
};

use super::data_type::{self, ColumnType};
use super::insert::own;
use super::names::{self, folded, quoted, quoted_list};
use super::query::Want;
use super::scope::Scope;
use super::translator::{Translator, no_table};
use super::{Column, StatementKind, Translated};
use crate::error::SqlError;
use crate::types::PgType;

/// A statement that changes the schema.
pub fn schema_part(sql: String, tag: &'static str) -> Translated {
    Translated { sql, parameters: Vec::new(), columns: None, kind: StatementKind::Schema(tag) }
}

/// A table or the like that there is already.
pub fn exists_already(name: &str) -> SqlError {
    SqlError::plain("42P07", format!("relation \"{name}\" already exists"))
}

/// What is read of the definition of a column.
pub struct Read<'c> {
    /// As it is written.
    pub definition: &'c ColumnDef,
    /// What is known of it.
    pub column: Column,
    /// Whether it is the primary key alone.
    pub is_primary: bool,
}

impl Translator<'_> {
    /// CREATE TABLE.
    pub fn create_table(&mut self, create: &CreateTable) -> Result<Vec<Translated>, SqlError> {
        let name = names::object(&create.name)?;
        refuse(create)?;
        if self.tables.columns(&name).is_some() {
            return match create.if_not_exists {
                true => Ok(super::statement::nothing(StatementKind::Nothing("CREATE TABLE"))),
                false => Err(exists_already(&name)),
            };
        }
        if let Some(query) = &create.query {
            return self.create_table_as(&name, create, query);
        }
        let parts = self.table_sql(&name, &create.columns, &create.constraints)?;
        Ok(parts.into_iter().map(|sql| schema_part(sql, "CREATE TABLE")).collect())
    }

    /// The statements of SQLite's for a table of these columns and constraints. UNIQUE is an index, since SQLite cannot
    /// drop it otherwise; all constraints have names, by which they are dropped.
    fn table_sql(
        &mut self,
        name: &str,
        definitions: &[ColumnDef],
        constraints: &[TableConstraint],
    ) -> Result<Vec<String>, SqlError> {
        let keys = primary_key(definitions, constraints)?;
        let mut read = Vec::with_capacity(definitions.len());
        for definition in definitions {
            let one = read_column(definition, &keys)?;
            if read.iter().any(|other: &Read<'_>| other.column.name == one.column.name) {
                let message = format!("column \"{}\" specified more than once", one.column.name);
                return Err(SqlError::plain("42701", message));
            }
            read.push(one);
        }
        let columns: Vec<Column> = read.iter().map(|one| one.column.clone()).collect();
        if let Some(lost) = keys.iter().find(|key| columns.iter().all(|column| column.name != **key)) {
            let message = format!("column \"{lost}\" named in key does not exist");
            return Err(SqlError::plain("42703", message));
        }
        let mut made = Constraints::new(name);
        let mut parts = Vec::with_capacity(read.len() + constraints.len());
        for one in &read {
            parts.push(self.column_sql(one, &columns, &mut made)?);
        }
        for constraint in constraints {
            match constraint {
                TableConstraint::PrimaryKey(_) if keys.len() == 1 => {}
                TableConstraint::PrimaryKey(key) => {
                    let own = made.name(key.name.as_ref(), &[], "pkey");
                    let list = quoted_list(&key_columns(&key.columns, &columns)?);
                    made.written.push(format!("CONSTRAINT {} PRIMARY KEY ({list})", quoted(&own)));
                }
                other => self.constraint(other, &columns, &mut made)?,
            }
        }
        parts.append(&mut made.written);
        let mut statements = vec![format!("CREATE TABLE {} ({})", quoted(name), parts.join(", "))];
        statements.append(&mut made.indexes);
        Ok(statements)
    }

    fn column_sql(
        &mut self,
        read: &Read<'_>,
        columns: &[Column],
        made: &mut Constraints,
    ) -> Result<String, SqlError> {
        let column = &read.column;
        let mut sql = format!("{} {}", quoted(&column.name), declaration(column, read.is_primary));
        if column.is_not_null && !(read.is_primary && column.of.is_integer()) {
            sql.push_str(" NOT NULL");
        }
        if read.is_primary {
            sql.push_str(if column.gives_ids { " PRIMARY KEY AUTOINCREMENT" } else { " PRIMARY KEY" });
        }
        for option in &read.definition.options {
            match &option.option {
                ColumnOption::Default(value) => {
                    if let Some(value) = self.default_sql(value, column)? {
                        sql.push_str(&format!(" DEFAULT {value}"));
                    }
                }
                ColumnOption::Collation(collation) => collated(&names::parts(collation)?.1)?,
                ColumnOption::Null
                | ColumnOption::NotNull
                | ColumnOption::PrimaryKey(_)
                | ColumnOption::Unique(_)
                | ColumnOption::Check(_)
                | ColumnOption::ForeignKey(_)
                | ColumnOption::Generated { .. } => {}
                other => return Err(no_option(other)),
            }
        }
        self.column_constraints(read.definition, columns, made)?;
        Ok(sql)
    }

    /// The constraints that stand behind a column, as those of its table.
    pub fn column_constraints(
        &mut self,
        definition: &ColumnDef,
        columns: &[Column],
        made: &mut Constraints,
    ) -> Result<(), SqlError> {
        let column = folded(&definition.name);
        for ColumnOptionDef { name, option } in &definition.options {
            match option {
                ColumnOption::Unique(unique) => {
                    plain_unique(unique)?;
                    made.unique(name.as_ref().or(unique.name.as_ref()), std::slice::from_ref(&column));
                }
                ColumnOption::Check(check) => {
                    let sql = self.check_sql(check, &made.table, columns)?;
                    let own = made.name(
                        name.as_ref().or(check.name.as_ref()),
                        std::slice::from_ref(&column),
                        "check",
                    );
                    made.written.push(format!("CONSTRAINT {} {sql}", quoted(&own)));
                }
                ColumnOption::ForeignKey(key) => {
                    let references = self.references_sql(key, &made.table, columns, 1)?;
                    let own =
                        made.name(name.as_ref().or(key.name.as_ref()), std::slice::from_ref(&column), "fkey");
                    let list = quoted(&column);
                    made.written
                        .push(format!("CONSTRAINT {} FOREIGN KEY ({list}) {references}", quoted(&own)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The default of a column; none if it is NULL.
    pub fn default_sql(&mut self, value: &Expr, column: &Column) -> Result<Option<String>, SqlError> {
        let value = self.scoped(Scope::default(), |own| {
            let value = own.expression(value)?;
            own.assigned(value, column)
        })?;
        self.no_parameters()?;
        if value.is_null() || value.sql == "NULL" {
            return Ok(None);
        }
        let is_plain =
            value.sql.parse::<f64>().is_ok() || value.sql.starts_with(['\'', '(']) && value.is_atom;
        Ok(Some(if is_plain { value.sql } else { format!("({})", value.sql) }))
    }

    /// A definition cannot have parameters.
    pub fn no_parameters(&self) -> Result<(), SqlError> {
        match self.parameters.len() {
            0 => Ok(()),
            _ => Err(SqlError::plain("42P02", "there is no parameter $1 in a definition")),
        }
    }

    pub fn check_sql(
        &mut self,
        check: &CheckConstraint,
        table: &str,
        columns: &[Column],
    ) -> Result<String, SqlError> {
        if check.enforced == Some(false) {
            return Err(SqlError::unsupported("NOT ENFORCED is not supported", "Leave the constraint out."));
        }
        let scope = Scope { relations: vec![own(table, columns, true)], ..Scope::default() };
        let condition = self.scoped(scope, |own| own.condition(&check.expr, "CHECK"))?;
        self.no_parameters()?;
        Ok(format!("CHECK ({})", condition.sql))
    }

    /// A constraint of a table: UNIQUE, CHECK or FOREIGN KEY.
    pub fn constraint(
        &mut self,
        constraint: &TableConstraint,
        columns: &[Column],
        made: &mut Constraints,
    ) -> Result<(), SqlError> {
        match constraint {
            TableConstraint::Unique(unique) => {
                plain_unique(unique)?;
                let list = key_columns(&unique.columns, columns)?;
                made.unique(unique.name.as_ref(), &list);
            }
            TableConstraint::Check(check) => {
                let sql = self.check_sql(check, &made.table, columns)?;
                let own = made.name(check.name.as_ref(), &[], "check");
                made.written.push(format!("CONSTRAINT {} {sql}", quoted(&own)));
            }
            TableConstraint::ForeignKey(key) => {
                let list: Vec<String> = key.columns.iter().map(folded).collect();
                for name in &list {
                    if columns.iter().all(|column| column.name != *name) {
                        let message =
                            format!("column \"{name}\" referenced in foreign key constraint does not exist");
                        return Err(SqlError::plain("42703", message));
                    }
                }
                let references = self.references_sql(key, &made.table, columns, list.len())?;
                let own = made.name(key.name.as_ref(), &list, "fkey");
                let list = quoted_list(&list);
                made.written.push(format!("CONSTRAINT {} FOREIGN KEY ({list}) {references}", quoted(&own)));
            }
            other => {
                return Err(SqlError::unsupported(
                    format!("a constraint of this form is not supported: {other}"),
                    "There are PRIMARY KEY, UNIQUE, CHECK and FOREIGN KEY.",
                ));
            }
        }
        Ok(())
    }

    pub fn references_sql(
        &mut self,
        key: &ForeignKeyConstraint,
        table: &str,
        columns: &[Column],
        width: usize,
    ) -> Result<String, SqlError> {
        let parent = names::object(&key.foreign_table)?;
        let own = (parent == table).then(|| columns.to_vec());
        let is_own = own.is_some();
        let found = own.or_else(|| self.tables.columns(&parent)).ok_or_else(|| no_table(&parent))?;
        let mut referred: Vec<String> = key.referred_columns.iter().map(folded).collect();
        let keys = found.iter().filter(|column| column.is_key).map(|column| column.name.clone());
        let keys: Vec<String> = keys.collect();
        if referred.is_empty() {
            referred.clone_from(&keys);
        }
        let same = |other: &[String]| {
            other.len() == referred.len() && other.iter().all(|one| referred.contains(one))
        };
        let is_unique = is_own
            || same(&keys)
            || self.tables.indexes(&parent).iter().any(|index| index.is_unique && same(&index.columns));
        if !is_unique || referred.is_empty() || referred.len() != width {
            let message = format!(
                "there is no unique constraint matching given keys for referenced table \"{parent}\""
            );
            return Err(SqlError::plain("42830", message));
        }
        if key.match_kind == Some(ConstraintReferenceMatchKind::Full) && width > 1 {
            let hint = "Add a CHECK that all columns of the key are NULL, or none.";
            return Err(SqlError::unsupported("MATCH FULL is not supported", hint));
        }
        let mut sql = format!("REFERENCES {} ({})", quoted(&parent), quoted_list(&referred));
        for (event, action) in [("DELETE", key.on_delete), ("UPDATE", key.on_update)] {
            if let Some(action) = action {
                sql.push_str(&format!(" ON {event} {}", action_words(action)));
            }
        }
        if let Some(when) = &key.characteristics {
            if when.enforced == Some(false) {
                return Err(SqlError::unsupported(
                    "NOT ENFORCED is not supported",
                    "Leave the constraint out.",
                ));
            }
            sql.push_str(match (when.deferrable, when.initially) {
                (_, Some(DeferrableInitial::Deferred)) => " DEFERRABLE INITIALLY DEFERRED",
                (Some(true), _) => " DEFERRABLE INITIALLY IMMEDIATE",
                _ => "",
            });
        }
        Ok(sql)
    }

    fn create_table_as(
        &mut self,
        name: &str,
        create: &CreateTable,
        query: &sqlparser::ast::Query,
    ) -> Result<Vec<Translated>, SqlError> {
        let renamed: Vec<String> = create.columns.iter().map(|column| folded(&column.name)).collect();
        let want = Want { names: (!renamed.is_empty()).then_some(&renamed), ..Want::default() };
        let rows = self.query(query, &want)?;
        self.no_parameters()?;
        let columns = rows.columns.iter();
        let columns =
            columns.map(|column| format!("{} {}", quoted(&column.name), stored(column.of).declaration()));
        let sql = format!("CREATE TABLE {} ({})", quoted(name), columns.collect::<Vec<_>>().join(", "));
        let mut parts = vec![schema_part(sql, "CREATE TABLE AS")];
        if create.with_data.as_ref().is_none_or(is_with_data) {
            let sql = format!("INSERT INTO {} {}", quoted(name), rows.sql);
            parts.extend(super::statement::one(sql, None, StatementKind::CreateTableAs));
        }
        Ok(parts)
    }
}

fn is_with_data(with: &WithData) -> bool {
    with.data
}

/// The type of a column that keeps values of an expression.
pub fn stored(of: PgType) -> PgType {
    match of {
        PgType::Name | PgType::Letter => PgType::Text,
        array if array.element().is_some() => PgType::Jsonb,
        other => other,
    }
}

/// How a column is declared. A key of one integer is SQLite's own number of the row: in capitals it is a bigint.
pub fn declaration(column: &Column, is_primary: bool) -> String {
    match (column.of, is_primary) {
        (PgType::Int8, true) => "INTEGER".to_owned(),
        (PgType::Int4, true) => "integer".to_owned(),
        (PgType::Int2, true) if column.gives_ids => "integer".to_owned(),
        (of, _) => of.declaration(),
    }
}

/// Constraints of a table that are made: those of its definition, and indexes.
pub struct Constraints {
    /// The table's name.
    pub table: String,
    /// For its definition.
    pub written: Vec<String>,
    /// Statements that make indexes.
    pub indexes: Vec<String>,
    /// Names that are taken.
    pub names: Vec<String>,
}

impl Constraints {
    /// None yet.
    pub fn new(table: &str) -> Self {
        Constraints { table: table.to_owned(), written: Vec::new(), indexes: Vec::new(), names: Vec::new() }
    }

    /// The name of a constraint, as PostgreSQL makes it where there is none.
    pub fn name(&mut self, given: Option<&Ident>, columns: &[String], kind: &str) -> String {
        let name = given.map(folded).unwrap_or_else(|| {
            let words: Vec<&str> = [self.table.as_str()]
                .into_iter()
                .chain(columns.iter().map(String::as_str))
                .chain([kind])
                .collect();
            let base = words.join("_");
            let numbered = (1..).map(|number| format!("{base}{number}"));
            std::iter::once(base.clone())
                .chain(numbered)
                .find(|name| !self.names.contains(name))
                .unwrap_or_default()
        });
        self.names.push(name.clone());
        name
    }

    /// UNIQUE on these columns.
    pub fn unique(&mut self, given: Option<&Ident>, columns: &[String]) {
        let name = quoted(&self.name(given, columns, "key"));
        let table = quoted(&self.table);
        self.indexes.push(format!("CREATE UNIQUE INDEX {name} ON {table} ({})", quoted_list(columns)));
    }
}

fn primary_key(definitions: &[ColumnDef], constraints: &[TableConstraint]) -> Result<Vec<String>, SqlError> {
    let is_key =
        |one: &&ColumnDef| one.options.iter().any(|one| matches!(one.option, ColumnOption::PrimaryKey(_)));
    let mut keys: Vec<Vec<String>> = Vec::new();
    keys.extend(definitions.iter().filter(is_key).map(|one| vec![folded(&one.name)]));
    for constraint in constraints {
        if let TableConstraint::PrimaryKey(key) = constraint {
            keys.push(key.columns.iter().map(key_column).collect::<Result<_, _>>()?);
        }
    }
    match keys.len() {
        0 => Ok(Vec::new()),
        1 => Ok(keys.remove(0)),
        _ => Err(SqlError::plain("42P16", "multiple primary keys for a table are not allowed")),
    }
}

/// The column of a key, which has no expressions.
fn key_column(column: &IndexColumn) -> Result<String, SqlError> {
    match &column.column.expr {
        Expr::Identifier(name) => Ok(folded(name)),
        _ => Err(SqlError::plain("42601", "syntax error: a key has columns only")),
    }
}

/// The columns of a key, which are there.
pub fn key_columns(key: &[IndexColumn], columns: &[Column]) -> Result<Vec<String>, SqlError> {
    let names = key.iter().map(key_column).collect::<Result<Vec<_>, _>>()?;
    match names.iter().find(|name| columns.iter().all(|column| column.name != **name)) {
        Some(lost) => Err(SqlError::plain("42703", format!("column \"{lost}\" named in key does not exist"))),
        None => Ok(names),
    }
}

/// Reads the definition of a column, with the columns of the primary key.
pub fn read_column<'c>(definition: &'c ColumnDef, keys: &[String]) -> Result<Read<'c>, SqlError> {
    let name = folded(&definition.name);
    let is_key = keys.contains(&name);
    let is_primary = is_key && keys.len() == 1;
    let (of, mut gives_ids) = match data_type::of_column(&definition.data_type)? {
        ColumnType::Plain(of) => (of, false),
        ColumnType::Serial(of) => (of, true),
    };
    let mut is_not_null = is_key || gives_ids;
    for option in &definition.options {
        match &option.option {
            ColumnOption::NotNull => is_not_null = true,
            ColumnOption::Generated { generated_as, generation_expr: None, sequence_options, .. }
                if *generated_as != GeneratedAs::ExpStored =>
            {
                if sequence_options.as_ref().is_some_and(|options| !options.is_empty()) {
                    let message = "options of an identity are not supported";
                    return Err(SqlError::unsupported(message, "Leave them out: ids begin at 1."));
                }
                (gives_ids, is_not_null) = (true, true);
            }
            ColumnOption::Generated { .. } => {
                let hint = "Compute it in a view, or in the INSERT and UPDATE.";
                return Err(SqlError::unsupported("a generated column is not supported", hint));
            }
            _ => {}
        }
    }
    if gives_ids && !(is_primary && of.is_integer()) {
        let message = format!("column \"{name}\" is given ids, and is not the primary key");
        return Err(SqlError::unsupported(
            message,
            "Make it the primary key: SQLite gives ids to that column only.",
        ));
    }
    let column = Column { name, of, is_not_null, is_key, default: None, gives_ids };
    Ok(Read { definition, column, is_primary })
}

/// UNIQUE that an index is the same as.
pub fn plain_unique(unique: &UniqueConstraint) -> Result<(), SqlError> {
    let is_late = unique.characteristics.as_ref().is_some_and(|when| when.deferrable == Some(true));
    if is_late || unique.nulls_distinct == NullsDistinctOption::NotDistinct {
        let message = "UNIQUE that is DEFERRABLE, or has NULLS NOT DISTINCT, is not supported";
        return Err(SqlError::unsupported(message, "Use UNIQUE alone."));
    }
    Ok(())
}

fn action_words(action: ReferentialAction) -> &'static str {
    match action {
        ReferentialAction::Restrict => "RESTRICT",
        ReferentialAction::Cascade => "CASCADE",
        ReferentialAction::SetNull => "SET NULL",
        ReferentialAction::NoAction => "NO ACTION",
        ReferentialAction::SetDefault => "SET DEFAULT",
    }
}

fn collated(collation: &str) -> Result<(), SqlError> {
    match ["C", "POSIX", "default", "ucs_basic"].contains(&collation) {
        true => Ok(()),
        false => Err(SqlError::unsupported(
            format!("collation \"{collation}\" is not supported"),
            "Text is ordered by its bytes here, as collation \"C\" does.",
        )),
    }
}

fn no_option(option: &ColumnOption) -> SqlError {
    SqlError::unsupported(format!("an option of a column is not supported: {option}"), "Leave it out.")
}

fn refuse(create: &CreateTable) -> Result<(), SqlError> {
    let unsupported =
        |what: &str, hint: &str| Err(SqlError::unsupported(format!("{what} is not supported"), hint));
    if create.temporary {
        return unsupported("a temporary table", "Use a common table expression, or a table that you drop.");
    }
    if create.like.is_some() || create.inherits.is_some() {
        return unsupported("CREATE TABLE with LIKE or INHERITS", "Write the columns out.");
    }
    if create.partition_by.is_some() || create.partition_of.is_some() {
        return unsupported("a partitioned table", "Use one table with an index.");
    }
    if create.or_replace || create.external || create.clone.is_some() || create.on_commit.is_some() {
        return unsupported("this CREATE TABLE", "Use CREATE TABLE name (columns).");
    }
    Ok(())
}
