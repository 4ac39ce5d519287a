//! Queries: SELECT, VALUES, UNION and its like, WITH, LIMIT.

use sqlparser::ast::{
    Cte, Expr, Fetch, LimitClause, Query, SetExpr, SetOperator, SetQuantifier, Value, Values, With,
};

use super::Column;
use super::expression::{Expression, Of};
use super::grouping::order_by_columns;
use super::names::{folded, quoted, quoted_list};
use super::operators::common;
use super::relations::alias_columns;
use super::scope::{Scope, ScopeColumn};
use super::translator::Translator;
use crate::error::SqlError;
use crate::types::PgType;

/// What the values of a query have to be.
#[derive(Clone, Copy, Debug, Default)]
pub enum WantedValues<'w> {
    /// Whatever they are.
    #[default]
    Any,
    /// Of these types, of the same families.
    Types(&'w [PgType]),
    /// Values for these columns.
    Columns(&'w [Column]),
}

/// What whoever asks for a query wants of its columns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Want<'w> {
    /// Their names, which may be fewer.
    pub names: Option<&'w [String]>,
    /// Their types.
    pub target: WantedValues<'w>,
    /// Whether types that nothing says stay open.
    pub keeps_open: bool,
    /// Whether there may be no columns: in EXISTS.
    pub may_be_empty: bool,
}

/// A query for SQLite.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The statement.
    pub sql: String,
    /// What it returns.
    pub columns: Vec<RowColumn>,
    /// Whether it is known to return one row at most.
    pub is_one_row: bool,
    /// Whether it is two queries with UNION or its like between them.
    pub is_compound: bool,
}

/// A column of the rows of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowColumn {
    /// As PostgreSQL names it.
    pub name: String,
    /// Its type.
    pub of: PgType,
    /// Whether nothing has said its type.
    pub is_open: bool,
    /// Whether it may be NULL.
    pub is_nullable: bool,
}

impl Rows {
    /// The columns in a FROM around the query.
    pub fn scope_columns(&self) -> Vec<ScopeColumn> {
        let column = |column: &RowColumn| ScopeColumn {
            name: column.name.clone(),
            of: column.of,
            is_nullable: column.is_nullable,
            is_key: false,
            is_merged: false,
            computed: None,
        };
        self.columns.iter().map(column).collect()
    }

    /// Names and types.
    pub fn described(&self) -> Vec<(String, PgType)> {
        self.columns.iter().map(|column| (column.name.clone(), column.of)).collect()
    }

    /// As one operand of UNION and its like.
    fn operand(&self, is_left: bool) -> String {
        match self.is_compound && !is_left {
            true => format!("SELECT * FROM ({})", self.sql),
            false => self.sql.clone(),
        }
    }
}

/// What may not change anything.
pub fn no_change_within() -> SqlError {
    let hint = "Send the INSERT, UPDATE or DELETE as a statement of its own, in a transaction with the rest.";
    SqlError::unsupported("INSERT, UPDATE and DELETE within a query are not supported", hint)
}

impl Translator<'_> {
    /// A query.
    pub fn query(&mut self, query: &Query, want: &Want<'_>) -> Result<Rows, SqlError> {
        let sight = self.with.len();
        self.queries += 1;
        let result = self.deeper(|own| own.query_in_sight(query, want));
        self.queries -= 1;
        self.with.truncate(sight);
        result
    }

    fn query_in_sight(&mut self, query: &Query, want: &Want<'_>) -> Result<Rows, SqlError> {
        let is_plain =
            query.for_clause.is_none() && query.settings.is_none() && query.format_clause.is_none();
        if !is_plain || !query.pipe_operators.is_empty() {
            return Err(SqlError::plain("42601", "syntax error: a clause that PostgreSQL does not have"));
        }
        let with = self.with_clause(query.with.as_ref())?;
        let limit = self.limit(query.limit_clause.as_ref(), query.fetch.as_ref())?;
        let mut rows = match query.body.as_ref() {
            SetExpr::Select(select) => {
                self.scoped(Scope::default(), |own| own.select(select, query.order_by.as_ref(), want))?
            }
            body => {
                let mut rows = self.body(body, want)?;
                let order = order_by_columns(query.order_by.as_ref(), &rows.columns)?;
                let is_bounded = !order.is_empty() || !limit.is_empty();
                if is_bounded && matches!(body, SetExpr::Query(_) | SetExpr::Values(_)) {
                    rows.sql = format!("SELECT * FROM ({})", rows.sql);
                }
                rows.sql.push_str(&order);
                rows
            }
        };
        rows.sql = format!("{with}{}{limit}", rows.sql);
        rows.is_one_row |= limit.starts_with(" LIMIT 1") && limit.trim_start_matches(" LIMIT 1").is_empty();
        // What has an order, a limit or WITH is no operand of UNION as it is.
        rows.is_compound |= !with.is_empty() || !limit.is_empty() || query.order_by.is_some();
        Ok(rows)
    }

    fn body(&mut self, body: &SetExpr, want: &Want<'_>) -> Result<Rows, SqlError> {
        match body {
            SetExpr::Select(select) => self.scoped(Scope::default(), |own| own.select(select, None, want)),
            SetExpr::Query(query) => self.query(query, want),
            SetExpr::Values(values) => self.values(values, want),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                self.deeper(|own| own.set_operation((left, right), *op, *set_quantifier, want))
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(no_change_within())
            }
            SetExpr::Table(_) => {
                Err(SqlError::unsupported("TABLE is not supported here", "Use SELECT * FROM."))
            }
        }
    }

    fn set_operation(
        &mut self,
        (left, right): (&SetExpr, &SetExpr),
        operator: SetOperator,
        quantifier: SetQuantifier,
        want: &Want<'_>,
    ) -> Result<Rows, SqlError> {
        let words = match (operator, quantifier) {
            (SetOperator::Union, SetQuantifier::All) => "UNION ALL",
            (SetOperator::Union, SetQuantifier::None | SetQuantifier::Distinct) => "UNION",
            (SetOperator::Intersect, SetQuantifier::None | SetQuantifier::Distinct) => "INTERSECT",
            (SetOperator::Except, SetQuantifier::None | SetQuantifier::Distinct) => "EXCEPT",
            _ => {
                let message = format!("{operator} {quantifier} is not supported");
                return Err(SqlError::unsupported(
                    message,
                    "Leave ALL out, or number the rows with row_number().",
                ));
            }
        };
        if let WantedValues::Columns(columns) = want.target {
            let free = Want { target: WantedValues::Any, ..*want };
            let rows = self.set_operation((left, right), operator, quantifier, &free)?;
            return self.assigned_rows(rows, columns);
        }
        let open = Want { keeps_open: true, ..*want };
        let (ours, theirs) = (self.body(left, &open)?, self.body(right, &Want { names: None, ..open })?);
        if ours.columns.len() != theirs.columns.len() {
            return Err(SqlError::plain(
                "42601",
                format!("each {operator} query must have the same number of columns"),
            ));
        }
        let mut types = Vec::with_capacity(ours.columns.len());
        for (at, (one, other)) in ours.columns.iter().zip(&theirs.columns).enumerate() {
            let wanted = match want.target {
                WantedValues::Types(types) => types.get(at).copied(),
                _ => None,
            };
            types.push(match (wanted, one.is_open, other.is_open) {
                (Some(of), ..) => of,
                (None, true, _) => other.of,
                (None, false, true) => one.of,
                (None, false, false) => common(one.of, other.of, words)?,
            });
        }
        let is_settled =
            |rows: &Rows| rows.columns.iter().zip(&types).all(|(one, of)| one.of == *of && !one.is_open);
        let typed = Want { target: WantedValues::Types(&types), names: want.names, ..Want::default() };
        let ours = if is_settled(&ours) { ours } else { self.body(left, &typed)? };
        let theirs =
            if is_settled(&theirs) { theirs } else { self.body(right, &Want { names: None, ..typed })? };
        let sql = format!("{} {words} {}", ours.operand(is_chain(left)), theirs.operand(false));
        let mut columns = ours.columns;
        for (own, other) in columns.iter_mut().zip(&theirs.columns) {
            own.is_nullable |= other.is_nullable;
        }
        Ok(Rows { sql, columns, is_one_row: false, is_compound: true })
    }

    /// Rows whose columns are converted for those of a table.
    fn assigned_rows(&mut self, rows: Rows, columns: &[Column]) -> Result<Rows, SqlError> {
        let mut items = Vec::new();
        for (own, column) in rows.columns.iter().zip(columns) {
            let of = Of::Known(own.of);
            let value =
                Expression { of, is_nullable: own.is_nullable, ..Expression::new(quoted(&own.name), own.of) };
            items.push(format!("{} AS {}", self.assigned(value, column)?.sql, quoted(&own.name)));
        }
        let sql = format!("SELECT {} FROM ({})", items.join(", "), rows.sql);
        Ok(Rows { sql, is_compound: false, ..rows })
    }

    fn values(&mut self, values: &Values, want: &Want<'_>) -> Result<Rows, SqlError> {
        let width = values.rows.first().map_or(0, |row| row.len());
        if values.rows.iter().any(|row| row.len() != width) {
            return Err(SqlError::plain("42601", "VALUES lists must all be the same length"));
        }
        let mut table: Vec<Vec<Expression>> = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            table.push(self.values_row(row, want)?);
        }
        let mut columns = Vec::with_capacity(width);
        for at in 0..width {
            columns.push(self.values_column(&mut table, at, want)?);
        }
        let rows = table.iter().map(|row| format!("({})", super::functions::list(row)));
        let sql = format!("VALUES {}", rows.collect::<Vec<_>>().join(", "));
        let is_one_row = table.len() == 1;
        let Some(names) = want.names else {
            return Ok(Rows { sql, columns, is_one_row, is_compound: false });
        };
        let mut items = Vec::new();
        for (at, column) in columns.iter_mut().enumerate() {
            let before = quoted(&column.name);
            if let Some(name) = names.get(at) {
                column.name.clone_from(name);
            }
            items.push(format!("{before} AS {}", quoted(&column.name)));
        }
        let sql = format!("SELECT {} FROM ({sql})", items.join(", "));
        Ok(Rows { sql, columns, is_one_row, is_compound: false })
    }

    fn values_row(&mut self, row: &[Expr], want: &Want<'_>) -> Result<Vec<Expression>, SqlError> {
        let WantedValues::Columns(columns) = want.target else {
            return row.iter().map(|value| self.expression(value)).collect();
        };
        if row.len() > columns.len() {
            return Err(SqlError::plain("42601", "INSERT has more expressions than target columns"));
        }
        let mut written = Vec::with_capacity(row.len());
        for (value, column) in row.iter().zip(columns) {
            written.push(self.for_column(value, column)?);
        }
        Ok(written)
    }

    /// The type of a column of VALUES, to which its values are converted.
    fn values_column(
        &mut self,
        table: &mut [Vec<Expression>],
        at: usize,
        want: &Want<'_>,
    ) -> Result<RowColumn, SqlError> {
        let name = format!("column{}", at + 1);
        if let WantedValues::Columns(columns) = want.target {
            return Ok(RowColumn { name, of: columns[at].of, is_open: false, is_nullable: true });
        }
        let wanted = match want.target {
            WantedValues::Types(types) => types.get(at).copied(),
            _ => None,
        };
        let mut of = wanted;
        for known in table.iter().filter_map(|row| row[at].known()) {
            of = Some(of.map_or(Ok(known), |of| common(of, known, "VALUES"))?);
        }
        if of.is_none() && want.keeps_open {
            return Ok(RowColumn { name, of: PgType::Text, is_open: true, is_nullable: true });
        }
        let of = of.unwrap_or(PgType::Text);
        let mut is_nullable = false;
        for row in table {
            let value = std::mem::replace(&mut row[at], super::literals::null());
            let value = self.typed(value, of)?;
            row[at] = self.widened(value, of);
            is_nullable |= row[at].is_nullable;
        }
        Ok(RowColumn { name, of, is_open: false, is_nullable })
    }

    /// WITH, as text before the query.
    pub fn with_clause(&mut self, with: Option<&With>) -> Result<String, SqlError> {
        let Some(with) = with else { return Ok(String::new()) };
        let mut parts = Vec::new();
        for cte in &with.cte_tables {
            parts.push(self.common_table(cte, with.recursive)?);
        }
        let recursive = if with.recursive { "RECURSIVE " } else { "" };
        Ok(format!("WITH {recursive}{} ", parts.join(", ")))
    }

    fn common_table(&mut self, cte: &Cte, is_recursive: bool) -> Result<String, SqlError> {
        let name = folded(&cte.alias.name);
        let names = alias_columns(&cte.alias);
        let want = Want { names: (!names.is_empty()).then_some(&names), ..Want::default() };
        let own = is_recursive.then(|| cte.query.body.as_ref());
        let rows = match own {
            Some(SetExpr::SetOperation { left, op: SetOperator::Union, .. }) => {
                let sight = self.with.len();
                let first = self.body(left, &want)?;
                self.with.push((name.clone(), all_nullable(first.scope_columns())));
                let rows = self.query(&cte.query, &want);
                self.with.truncate(sight);
                rows?
            }
            _ => self.query(&cte.query, &want)?,
        };
        let columns = rows.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
        let sql = format!("{}({}) AS ({})", quoted(&name), quoted_list(&columns), rows.sql);
        self.with.push((name, rows.scope_columns()));
        Ok(sql)
    }

    fn limit(&mut self, limit: Option<&LimitClause>, fetch: Option<&Fetch>) -> Result<String, SqlError> {
        let (count, offset) = match limit {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(_) => return Err(SqlError::plain("42601", "LIMIT #,# syntax is not supported")),
        };
        let count = match fetch {
            None => count.map(|count| self.count(count, "limit_pg")).transpose()?,
            Some(Fetch { with_ties: false, percent: false, quantity }) => match quantity {
                Some(quantity) => Some(self.count(quantity, "limit_pg")?),
                None => Some("1".to_owned()),
            },
            Some(_) => {
                return Err(SqlError::unsupported(
                    "FETCH WITH TIES is not supported",
                    "Use rank() in a subquery.",
                ));
            }
        };
        let offset = offset.map(|offset| self.count(offset, "offset_pg")).transpose()?;
        Ok(match (count, offset) {
            (None, None) => String::new(),
            (Some(count), None) => format!(" LIMIT {count}"),
            // SQLite has no OFFSET alone.
            (count, Some(offset)) => format!(" LIMIT {} OFFSET {offset}", count.unwrap_or("-1".to_owned())),
        })
    }

    fn count(&mut self, expr: &Expr, function: &str) -> Result<String, SqlError> {
        if let Expr::Value(value) = expr
            && value.value == Value::Null
        {
            return Ok(if function == "limit_pg" { "-1" } else { "0" }.to_owned());
        }
        let value = self.expression(expr)?;
        let value = self.typed(value, PgType::Int8)?;
        if !value.known_or_text().is_integer() {
            return Err(SqlError::plain("42804", "argument of LIMIT and OFFSET must be type bigint"));
        }
        Ok(match value.sql.parse::<u64>() {
            Ok(_) => value.sql,
            Err(_) => format!("{function}({})", value.sql),
        })
    }
}

/// Whether the left operand is SELECT or a chain of operations, which SQLite reads from the left.
fn is_chain(body: &SetExpr) -> bool {
    matches!(body, SetExpr::SetOperation { .. })
}

fn all_nullable(mut columns: Vec<ScopeColumn>) -> Vec<ScopeColumn> {
    columns.iter_mut().for_each(|column| column.is_nullable = true);
    columns
}
