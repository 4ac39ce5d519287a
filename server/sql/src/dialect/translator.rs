//! The state of a translation: tables, types of parameters, and what names mean.

use super::expression::{Expression, Of};
use super::names::quoted;
use super::scope::{FoundColumn, Place, Relation, Scope, ScopeColumn};
use super::sequences::SequenceUse;
use super::{Column, Tables};
use crate::error::SqlError;
use crate::types::PgType;

/// Parameters of a statement at most: SQLite's limit.
const MAX_PARAMETERS: usize = 32_766;
/// Expressions and queries within one another at most.
const MAX_DEPTH: u32 = 200;

// large: a method for each form of statement and expression, each in the file of its subject.
/// The translation of one statement.
pub struct Translator<'t> {
    /// The tables of the database.
    pub tables: &'t dyn Tables,
    /// Of parameters, as far as they are known.
    pub parameters: Vec<Option<PgType>>,
    /// From the outermost query to the innermost.
    pub scopes: Vec<Scope>,
    /// Tables of WITH that are in sight, the latest last.
    pub with: Vec<(String, Vec<ScopeColumn>)>,
    depth: u32,
    /// Queries within one another, and whether the outermost one is computed once: then it may draw from sequences.
    pub queries: u32,
    draws_once: bool,
    /// What is drawn from which sequence.
    pub drawn: Vec<(String, SequenceUse)>,
}

/// A column that does not exist.
pub fn no_column(name: &str) -> SqlError {
    SqlError::plain("42703", format!("column \"{name}\" does not exist"))
}

/// A table that does not exist.
pub fn no_table(name: &str) -> SqlError {
    SqlError::plain("42P01", format!("relation \"{name}\" does not exist"))
}

impl<'t> Translator<'t> {
    /// With the types of parameters that the client has given.
    pub fn new(tables: &'t dyn Tables, parameters: &[Option<PgType>]) -> Self {
        let (scopes, with) = (Vec::new(), Vec::new());
        let (parameters, drawn) = (parameters.to_vec(), Vec::new());
        Translator { tables, parameters, scopes, with, depth: 0, queries: 0, draws_once: false, drawn }
    }

    /// Its outermost query is computed once.
    pub fn draw_once(&mut self) {
        self.draws_once = true;
    }

    /// Whether a number of a sequence may stand here.
    pub fn draws_here(&self) -> bool {
        self.draws_once && self.queries == 1
    }

    /// The types of all parameters; what nothing has said is text.
    pub fn parameter_types(&self) -> Vec<PgType> {
        self.parameters.iter().map(|of| of.unwrap_or(PgType::Text)).collect()
    }

    /// Runs a step that goes deeper into the tree, unless that is too deep.
    pub fn deeper<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, SqlError>) -> Result<T, SqlError> {
        if self.depth >= MAX_DEPTH {
            let hint = "Use fewer brackets and subqueries within one another.";
            return Err(SqlError::new("54001", "the statement is nested too deeply", hint));
        }
        self.depth += 1;
        let result = step(self);
        self.depth -= 1;
        result
    }

    /// Runs a step within a query of its own.
    pub fn scoped<T>(
        &mut self,
        scope: Scope,
        step: impl FnOnce(&mut Self) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        self.scopes.push(scope);
        let result = step(self);
        self.scopes.pop();
        result
    }

    /// The innermost query's tables and groups.
    pub fn scope(&mut self) -> &mut Scope {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    /// Runs a step where aggregates may stand, or may not.
    pub fn placed<T>(
        &mut self,
        place: Place,
        step: impl FnOnce(&mut Self) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let before = std::mem::replace(&mut self.scope().place, place);
        let result = step(self);
        self.scope().place = before;
        result
    }

    /// A parameter, as `$1`.
    pub fn parameter(&mut self, name: &str) -> Result<Expression, SqlError> {
        let number = name.strip_prefix('$').and_then(|digits| digits.parse::<usize>().ok());
        let Some(number) = number.filter(|number| (1..=MAX_PARAMETERS).contains(number)) else {
            return Err(SqlError::plain("42P02", format!("there is no parameter {name}")));
        };
        if self.parameters.len() < number {
            self.parameters.resize(number, None);
        }
        let of = self.parameters[number - 1].map_or(Of::Parameter(number - 1), Of::Known);
        Ok(Expression { of, ..Expression::new(format!("?{number}"), PgType::Text) })
    }

    /// Says the type of a parameter, unless it is known already.
    pub fn set_parameter(&mut self, index: usize, of: PgType) -> PgType {
        *self.parameters[index].get_or_insert(without_modifier(of))
    }

    /// A column by its name, and that of its table if it has one before it.
    pub fn find(&self, table: Option<&str>, name: &str) -> Result<FoundColumn, SqlError> {
        let mut has_table = false;
        for (scope, of) in self.scopes.iter().enumerate().rev() {
            let mut found = Vec::new();
            for relation in
                of.relations.iter().filter(|one| table.map_or(!one.is_named_only, |name| one.name == name))
            {
                has_table = true;
                let columns = relation.columns.iter().filter(|column| column.name == name);
                let columns = columns.filter(|column| table.is_some() || !column.is_merged);
                found.extend(columns.map(|column| (relation, column)));
            }
            let is_merged = table.is_none() && of.relations.iter().any(|one| is_merged(one, name));
            match found[..] {
                [] => {}
                [(relation, column)] => return Ok(place(scope, relation, column, is_merged)),
                _ => {
                    return Err(SqlError::plain(
                        "42702",
                        format!("column reference \"{name}\" is ambiguous"),
                    ));
                }
            }
        }
        match table {
            Some(table) if !has_table => {
                let message = format!("missing FROM-clause entry for table \"{table}\"");
                Err(SqlError::plain("42P01", message))
            }
            Some(table) => Err(SqlError::plain("42703", format!("column {table}.{name} does not exist"))),
            None => Err(no_column(name)),
        }
    }

    /// A column as an expression; what is neither grouped nor within an aggregate is noted.
    pub fn column(&mut self, table: Option<&str>, name: &str) -> Result<Expression, SqlError> {
        let found = match self.find(table, name) {
            Err(error) if table.is_none() => self.only_column(name).ok_or(error)?,
            found => found?,
        };
        let scope = &mut self.scopes[found.scope];
        if scope.place == Place::Groups && !found.is_grouped_by_key && !scope.groups.contains(&found.sql) {
            scope.ungrouped.push(found.full_name);
        }
        let column = found.column;
        Ok(Expression { is_nullable: column.is_nullable, ..Expression::new(found.sql, column.of) })
    }

    /// The column of a function in FROM that has one, by the function's name.
    fn only_column(&self, name: &str) -> Option<FoundColumn> {
        let (scope, of) = self.scopes.iter().enumerate().next_back()?;
        let relation = of.relations.iter().find(|one| one.name == name)?;
        let [column] = &relation.columns[..] else { return None };
        column.computed.is_some().then(|| place(scope, relation, column, false))
    }

    /// The columns of a table that is to be changed.
    pub fn target(&self, table: &str) -> Result<Vec<Column>, SqlError> {
        self.tables.columns(table).ok_or_else(|| no_table(table))
    }
}

fn is_merged(relation: &Relation, name: &str) -> bool {
    relation.columns.iter().any(|column| column.name == name && column.is_merged)
}

fn place(scope: usize, relation: &Relation, column: &ScopeColumn, is_merged: bool) -> FoundColumn {
    let own = quoted(&column.name);
    // SQLite takes the side of an outer join that has a row.
    let sql = match &column.computed {
        Some(sql) => sql.clone(),
        None if relation.is_bare || is_merged => own,
        None => format!("{}.{own}", quoted(&relation.name)),
    };
    FoundColumn {
        scope,
        sql,
        column: column.clone(),
        is_grouped_by_key: relation.is_grouped_by_key,
        full_name: format!("{}.{}", relation.name, column.name),
    }
}

/// What a parameter's type is where it meets this one: lengths are checked when it is assigned.
pub fn without_modifier(of: PgType) -> PgType {
    match of {
        PgType::Varchar(_) | PgType::Char(_) | PgType::Name | PgType::Letter => PgType::Text,
        other => other,
    }
}

/// Columns of a table of the database, in FROM.
pub fn scope_columns(columns: &[Column]) -> Vec<ScopeColumn> {
    let column = |column: &Column| ScopeColumn {
        name: column.name.clone(),
        of: column.of,
        is_nullable: !column.is_not_null,
        is_key: column.is_key,
        is_merged: false,
        computed: None,
    };
    columns.iter().map(column).collect()
}
