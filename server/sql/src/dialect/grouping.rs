//! GROUP BY and ORDER BY: what they mean by a number or a name, groups, and where NULL is put.

use sqlparser::ast::{
    Expr, GroupByExpr, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, OrderBySort, SelectItem, Value,
};

use super::expression::Expression;
use super::names::{folded, quoted};
use super::operators::bare;
use super::query::RowColumn;
use super::translator::Translator;
use crate::error::SqlError;

/// Items of SELECT, for what follows it.
pub struct Items<'i> {
    /// What they are named.
    pub columns: &'i [RowColumn],
    /// As SQLite has them.
    pub written: &'i [String],
    /// Whether equal rows are one.
    pub is_distinct: bool,
}

impl Translator<'_> {
    /// The expressions of GROUP BY, as SQLite has them.
    pub fn group_by(
        &mut self,
        group_by: &GroupByExpr,
        projection: &[SelectItem],
    ) -> Result<Vec<String>, SqlError> {
        let GroupByExpr::Expressions(exprs, modifiers) = group_by else {
            return Err(SqlError::unsupported("GROUP BY ALL is not supported", "Name the columns."));
        };
        if !modifiers.is_empty() || exprs.iter().any(is_grouping_set) {
            let hint = "Use a query for each set of columns, and UNION ALL.";
            return Err(SqlError::unsupported("GROUPING SETS, CUBE and ROLLUP are not supported", hint));
        }
        let mut written = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let expr = self.meant_by(expr, projection)?;
            let value = self.expression(expr)?;
            written.push(self.settled(value)?.sql);
        }
        self.group_by_key(&written);
        Ok(written)
    }

    /// An item of SELECT, where GROUP BY has its number or its alias.
    fn meant_by<'e>(&self, expr: &'e Expr, projection: &'e [SelectItem]) -> Result<&'e Expr, SqlError> {
        match bare(expr) {
            Expr::Value(value) => {
                let Value::Number(digits, _) = &value.value else { return Ok(expr) };
                let at = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                match at.and_then(|at| projection.get(at)) {
                    Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => Ok(expr),
                    _ => Err(no_position("GROUP BY", digits)),
                }
            }
            Expr::Identifier(name) => {
                let own = folded(name);
                if self.find(None, &own).is_ok_and(|found| found.scope + 1 == self.scopes.len()) {
                    return Ok(expr);
                }
                let named = projection.iter().find_map(|item| match item {
                    SelectItem::ExprWithAlias { expr, alias } if folded(alias) == own => Some(expr),
                    _ => None,
                });
                Ok(named.unwrap_or(expr))
            }
            _ => Ok(expr),
        }
    }

    /// Notes the tables whose primary key is in GROUP BY.
    fn group_by_key(&mut self, groups: &[String]) {
        for relation in &mut self.scope().relations {
            let name = |column: &str| format!("{}.{}", quoted(&relation.name), quoted(column));
            let mut keys = relation.columns.iter().filter(|column| column.is_key).peekable();
            relation.is_grouped_by_key =
                keys.peek().is_some() && keys.all(|key| groups.contains(&name(&key.name)));
        }
    }

    /// ORDER BY of a SELECT; empty if there is none.
    pub fn order_by(&mut self, order: Option<&OrderBy>, items: &Items<'_>) -> Result<String, SqlError> {
        let Some(order) = order else { return Ok(String::new()) };
        let OrderByKind::Expressions(terms) = &order.kind else { return Err(no_order()) };
        if order.interpolate.is_some() {
            return Err(no_order());
        }
        let mut written = Vec::with_capacity(terms.len());
        for term in terms {
            written.push(match position(&term.expr, items)? {
                Some(at) => placed_nulls((at + 1).to_string(), items.columns[at].is_nullable, &term.options)?,
                None => {
                    let value = self.expression(&term.expr)?;
                    let value = self.settled(value)?;
                    if items.is_distinct && !items.written.contains(&value.sql) {
                        let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                        return Err(SqlError::plain("42P10", message));
                    }
                    placed_nulls(not_a_number(&value), value.is_nullable, &term.options)?
                }
            });
        }
        Ok(if written.is_empty() { String::new() } else { format!(" ORDER BY {}", written.join(", ")) })
    }

    /// A term of ORDER BY in a window or an aggregate.
    pub fn order_term(&mut self, term: &OrderByExpr) -> Result<String, SqlError> {
        let value = self.expression(&term.expr)?;
        let value = self.settled(value)?;
        placed_nulls(not_a_number(&value), value.is_nullable, &term.options)
    }
}

/// SQLite would take a number alone for a position.
fn not_a_number(value: &Expression) -> String {
    if value.sql.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("+{}", value.sql)
    } else {
        value.sql.clone()
    }
}

/// The item that a term of ORDER BY means by its number or name.
fn position(expr: &Expr, items: &Items<'_>) -> Result<Option<usize>, SqlError> {
    match bare(expr) {
        Expr::Value(value) => {
            let Value::Number(digits, _) = &value.value else { return Ok(None) };
            let at = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let at = at.filter(|at| *at < items.columns.len());
            at.map(Some).ok_or_else(|| no_position("ORDER BY", digits))
        }
        Expr::Identifier(name) => {
            let own = folded(name);
            let mut named = (0..items.columns.len()).filter(|at| items.columns[*at].name == own);
            let first = named.next();
            let is_ambiguous =
                |first: usize| named.any(|at| items.written.get(at) != items.written.get(first));
            if first.is_some_and(is_ambiguous) {
                return Err(SqlError::plain("42702", format!("ORDER BY \"{own}\" is ambiguous")));
            }
            Ok(first)
        }
        _ => Ok(None),
    }
}

/// ORDER BY of a query that is no single SELECT: numbers and names of its columns only.
pub fn order_by_columns(order: Option<&OrderBy>, columns: &[RowColumn]) -> Result<String, SqlError> {
    let Some(order) = order else { return Ok(String::new()) };
    let OrderByKind::Expressions(terms) = &order.kind else { return Err(no_order()) };
    let items = Items { columns, written: &[], is_distinct: false };
    let mut written = Vec::with_capacity(terms.len());
    for term in terms {
        let Some(at) = position(&term.expr, &items)? else {
            return Err(SqlError::new(
                "0A000",
                "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
                "Only result column names can be used, not expressions or functions.",
            ));
        };
        written.push(placed_nulls((at + 1).to_string(), columns[at].is_nullable, &term.options)?);
    }
    Ok(if written.is_empty() { String::new() } else { format!(" ORDER BY {}", written.join(", ")) })
}

/// PostgreSQL takes NULL for larger than any value, SQLite for smaller. It is said only where there may be one:
/// SQLite then uses an index.
fn placed_nulls(sql: String, is_nullable: bool, options: &OrderByOptions) -> Result<String, SqlError> {
    let is_descending = match &options.sort {
        None | Some(OrderBySort::Asc) => false,
        Some(OrderBySort::Desc) => true,
        Some(OrderBySort::Using(_)) => return Err(no_order()),
    };
    let is_first = options.nulls_first.unwrap_or(is_descending);
    let direction = if is_descending { " DESC" } else { "" };
    let nulls = match (is_nullable, is_first) {
        (false, _) => "",
        (true, true) => " NULLS FIRST",
        (true, false) => " NULLS LAST",
    };
    Ok(format!("{sql}{direction}{nulls}"))
}

fn no_order() -> SqlError {
    SqlError::unsupported("ORDER BY of this form is not supported", "Order by columns or expressions.")
}

fn no_position(clause: &str, digits: &str) -> SqlError {
    SqlError::plain("42P10", format!("{clause} position {digits} is not in select list"))
}

fn is_grouping_set(expr: &Expr) -> bool {
    matches!(expr, Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_))
}
