//! One SELECT: its items and their names, what it selects from, groups, and the order of its rows.

use sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Function, FunctionArguments, NamedWindowDefinition, NamedWindowExpr,
    OrderBy, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
    WildcardAdditionalOptions,
};

use super::expression::Expression;
use super::grouping::Items;
use super::names::{self, folded, quoted};
use super::operators::bare;
use super::query::{RowColumn, Rows, Want, WantedValues};
use super::scope::{Place, Relation};
use super::translator::Translator;
use crate::error::SqlError;
use crate::types::PgType;

/// Items of a SELECT so far.
#[derive(Default)]
struct Selected {
    written: Vec<String>,
    columns: Vec<RowColumn>,
}

impl Translator<'_> {
    /// A SELECT, in a scope of its own.
    pub fn select(
        &mut self,
        select: &Select,
        order: Option<&OrderBy>,
        want: &Want<'_>,
    ) -> Result<Rows, SqlError> {
        refuse(select)?;
        let from = self.sources(&select.from)?;
        let mut rest = String::new();
        if let Some(condition) = &select.selection {
            rest.push_str(&format!(" WHERE {}", self.condition(condition, "WHERE")?.sql));
        }
        let mut is_one_row = self.finds_one(select);
        let groups = self.group_by(&select.group_by, &select.projection)?;
        if !groups.is_empty() {
            rest.push_str(&format!(" GROUP BY {}", groups.join(", ")));
        }
        let is_grouped = !groups.is_empty();
        self.scope().groups = groups;
        self.scope().place = Place::Groups;
        self.scope().windows = select.named_window.iter().map(|window| folded(&window.0)).collect();
        let selected = self.items(&select.projection, want)?;
        if let Some(having) = &select.having {
            rest.push_str(&format!(" HAVING {}", self.condition(having, "HAVING")?.sql));
        }
        rest.push_str(&self.windows(&select.named_window)?);
        let is_distinct = select.distinct == Some(Distinct::Distinct);
        let items = Items { columns: &selected.columns, written: &selected.written, is_distinct };
        rest.push_str(&self.order_by(order, &items)?);
        let has_groups = is_grouped || select.having.is_some() || self.scope().has_aggregate;
        if has_groups && let Some(name) = self.scope().ungrouped.first() {
            let message = format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            );
            return Err(SqlError::plain("42803", message));
        }
        is_one_row |= !is_grouped && self.scope().has_aggregate;
        let distinct = if is_distinct { "DISTINCT " } else { "" };
        let (list, columns) = named(selected, want);
        let unnested =
            self.scope().unnested.iter().map(|array| format!("json_each({array}) AS \"unnested item\""));
        let from = Some(from)
            .filter(|from| !from.is_empty())
            .into_iter()
            .chain(unnested)
            .collect::<Vec<_>>()
            .join(", ");
        let from = if from.is_empty() { from } else { format!(" FROM {from}") };
        is_one_row &= self.scope().unnested.is_empty();
        let sql = format!("SELECT {distinct}{list}{from}{rest}");
        Ok(Rows { sql, columns, is_one_row, is_compound: false })
    }

    fn items(&mut self, projection: &[SelectItem], want: &Want<'_>) -> Result<Selected, SqlError> {
        let mut selected = Selected::default();
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(expr) => self.item(expr, result_name(expr), want, &mut selected)?,
                SelectItem::ExprWithAlias { expr, alias } => {
                    self.item(expr, folded(alias), want, &mut selected)?
                }
                SelectItem::Wildcard(options) if is_plain(options) => {
                    let columns = starred(&self.scope().relations);
                    if columns.is_empty() {
                        return Err(SqlError::plain(
                            "42601",
                            "SELECT * with no tables specified is not valid",
                        ));
                    }
                    for (table, name) in columns {
                        self.starred_item(table.as_deref(), name, want, &mut selected)?;
                    }
                }
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(table),
                    options,
                ) if is_plain(options) => {
                    let table = names::object(table)?;
                    let relations = &self.scope().relations;
                    let Some(relation) = relations.iter().find(|one| one.name == table) else {
                        let message = format!("missing FROM-clause entry for table \"{table}\"");
                        return Err(SqlError::plain("42P01", message));
                    };
                    for name in relation.columns.iter().map(|one| one.name.clone()).collect::<Vec<_>>() {
                        self.starred_item(Some(&table), name, want, &mut selected)?;
                    }
                }
                other => {
                    let message = format!("an item of this form is not supported: {other}");
                    return Err(SqlError::unsupported(message, "Select columns and expressions."));
                }
            }
        }
        if selected.columns.is_empty() && !want.may_be_empty {
            return Err(SqlError::unsupported(
                "a SELECT without items is not supported",
                "Select a constant.",
            ));
        }
        if let WantedValues::Columns(columns) = want.target
            && selected.columns.len() > columns.len()
        {
            return Err(SqlError::plain("42601", "INSERT has more expressions than target columns"));
        }
        Ok(selected)
    }

    fn item(
        &mut self,
        expr: &Expr,
        name: String,
        want: &Want<'_>,
        out: &mut Selected,
    ) -> Result<(), SqlError> {
        let value = self.expression(expr)?;
        self.push_item(value, name, want, out)
    }

    fn starred_item(
        &mut self,
        table: Option<&str>,
        name: String,
        want: &Want<'_>,
        out: &mut Selected,
    ) -> Result<(), SqlError> {
        let value = self.column(table, &name)?;
        self.push_item(value, name, want, out)
    }

    fn push_item(
        &mut self,
        value: Expression,
        name: String,
        want: &Want<'_>,
        out: &mut Selected,
    ) -> Result<(), SqlError> {
        let at = out.columns.len();
        let is_open = value.is_open();
        let value = match want.target {
            WantedValues::Columns(columns) => match columns.get(at) {
                Some(column) => self.assigned(value, column)?,
                None => value,
            },
            WantedValues::Types(types) => match types.get(at) {
                Some(of) => {
                    let value = self.typed(value, *of)?;
                    self.widened(value, *of)
                }
                None => value,
            },
            WantedValues::Any if want.keeps_open => value,
            WantedValues::Any => self.settled(value)?,
        };
        let of = value.known_or_text();
        let is_open = is_open && want.keeps_open;
        out.columns.push(RowColumn { name, of, is_open, is_nullable: value.is_nullable });
        out.written.push(value.sql);
        Ok(())
    }

    fn windows(&mut self, windows: &[NamedWindowDefinition]) -> Result<String, SqlError> {
        let mut parts = Vec::new();
        for NamedWindowDefinition(name, window) in windows {
            let NamedWindowExpr::WindowSpec(spec) = window else {
                return Err(SqlError::plain("42601", "syntax error in WINDOW"));
            };
            parts.push(format!("{} AS ({})", quoted(&folded(name)), self.window(spec)?));
        }
        Ok(if parts.is_empty() { String::new() } else { format!(" WINDOW {}", parts.join(", ")) })
    }

    /// Whether at most one row meets the condition: it gives a value to each column of a key.
    fn finds_one(&self, select: &Select) -> bool {
        let [item] = &select.from[..] else { return select.from.is_empty() };
        let TableFactor::Table { name, args: None, .. } = &item.relation else { return false };
        let (Some(scope), Some(condition)) = (self.scopes.last(), &select.selection) else { return false };
        let ([relation], Ok(name)) = (&scope.relations[..], names::object(name)) else { return false };
        let mut given = Vec::new();
        self.given_columns(condition, &mut given);
        let has = |column: &String| given.contains(column);
        let mut keys =
            relation.columns.iter().filter(|column| column.is_key).map(|column| &column.name).peekable();
        let is_base = !self.with.iter().any(|(with, _)| *with == name);
        let unique = |index: &super::Index| index.is_unique && index.columns.iter().all(has);
        is_base && (keys.peek().is_some() && keys.all(has) || self.tables.indexes(&name).iter().any(unique))
    }

    fn given_columns(&self, condition: &Expr, given: &mut Vec<String>) {
        let Expr::BinaryOp { left, op, right } = bare(condition) else { return };
        match op {
            BinaryOperator::And => {
                self.given_columns(left, given);
                self.given_columns(right, given);
            }
            BinaryOperator::Eq => {
                for (one, other) in [(left, right), (right, left)] {
                    if let Some((true, name)) = self.is_own(one)
                        && self.is_fixed(other)
                    {
                        given.push(name);
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a column is of the innermost query, and its name; none if it is no column.
    fn is_own(&self, expr: &Expr) -> Option<(bool, String)> {
        let found = match bare(expr) {
            Expr::Identifier(name) => self.find(None, &folded(name)),
            Expr::CompoundIdentifier(parts) => match &parts[..] {
                [table, name] => self.find(Some(&folded(table)), &folded(name)),
                _ => return None,
            },
            _ => return None,
        };
        found.ok().map(|found| (found.scope + 1 == self.scopes.len(), found.column.name))
    }

    /// Whether it has one value for all rows of the innermost query.
    fn is_fixed(&self, expr: &Expr) -> bool {
        match bare(expr) {
            Expr::Value(_) => true,
            Expr::Cast { expr, .. } => self.is_fixed(expr),
            other => matches!(self.is_own(other), Some((false, _))),
        }
    }
}

fn refuse(select: &Select) -> Result<(), SqlError> {
    if let Some(Distinct::On(_)) = select.distinct {
        let hint =
            "Number the rows with row_number() OVER (PARTITION BY .. ORDER BY ..), and select those with 1.";
        return Err(SqlError::unsupported("DISTINCT ON is not supported", hint));
    }
    if select.into.is_some() {
        return Err(SqlError::unsupported("SELECT INTO is not supported", "Use CREATE TABLE .. AS SELECT."));
    }
    let is_postgres = select.top.is_none()
        && select.exclude.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty()
        && select.qualify.is_none()
        && select.value_table_mode.is_none()
        && select.select_modifiers.is_none();
    match is_postgres {
        true => Ok(()),
        false => Err(SqlError::plain("42601", "syntax error: a clause that PostgreSQL does not have")),
    }
}

fn is_plain(options: &WildcardAdditionalOptions) -> bool {
    options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
        && options.opt_alias.is_none()
}

/// The columns of `*`: of each item of FROM those that USING has merged, then the others.
fn starred(relations: &[Relation]) -> Vec<(Option<String>, String)> {
    let mut columns = Vec::new();
    let last = relations.iter().map(|one| one.item).max().unwrap_or(0);
    for item in 0..=last {
        let here = || relations.iter().filter(|one| one.item == item && !one.is_named_only);
        let mut merged: Vec<&String> = Vec::new();
        for name in here().rev().flat_map(|one| &one.using) {
            if !merged.contains(&name) {
                merged.push(name);
            }
        }
        columns.extend(merged.iter().map(|name| (None, (*name).clone())));
        for relation in here() {
            let own = relation.columns.iter().filter(|column| !merged.contains(&&column.name));
            columns.extend(own.map(|column| (Some(relation.name.clone()), column.name.clone())));
        }
    }
    columns
}

/// The list of items with their names, and its columns.
fn named(selected: Selected, want: &Want<'_>) -> (String, Vec<RowColumn>) {
    let Selected { written, mut columns } = selected;
    let mut list = Vec::with_capacity(written.len());
    for (at, (sql, column)) in written.iter().zip(&mut columns).enumerate() {
        if let Some(name) = want.names.and_then(|names| names.get(at)) {
            column.name.clone_from(name);
        }
        list.push(format!("{sql} AS {}", quoted(&column.name)));
    }
    // EXISTS (SELECT FROM ..) has no items.
    (if list.is_empty() { "1".to_owned() } else { list.join(", ") }, columns)
}

/// How PostgreSQL names an expression that has no alias.
pub fn result_name(expr: &Expr) -> String {
    name_of(expr).map_or("?column?".to_owned(), |(name, _)| name)
}

/// The name, and whether a cast around it keeps it.
fn name_of(expr: &Expr) -> Option<(String, bool)> {
    let fixed = |name: &str| Some((name.to_owned(), true));
    match expr {
        Expr::Identifier(name) => Some((folded(name), true)),
        Expr::CompoundIdentifier(parts) => parts.last().map(|name| (folded(name), true)),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name_of(inner),
        Expr::CompoundFieldAccess { root, .. } => name_of(root),
        Expr::Cast { expr, data_type, .. } => match name_of(expr) {
            Some((name, true)) => Some((name, true)),
            _ => Some((type_word(super::data_type::of_cast(data_type).ok()?).to_owned(), false)),
        },
        Expr::TypedString(typed) => {
            Some((type_word(super::data_type::of_cast(&typed.data_type).ok()?).to_owned(), false))
        }
        Expr::Function(function) => function_word(function).map(|name| (name, true)),
        Expr::Case { else_result, .. } => match else_result.as_deref().and_then(name_of) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".to_owned(), false)),
        },
        Expr::Exists { .. } => fixed("exists"),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::ExprWithAlias { alias, .. }) => Some((folded(alias), true)),
                Some(SelectItem::UnnamedExpr(expr)) => name_of(expr),
                _ => None,
            },
            _ => None,
        },
        Expr::Array(_) => fixed("array"),
        Expr::Extract { .. } => fixed("extract"),
        Expr::Position { .. } => fixed("position"),
        Expr::Substring { .. } => fixed("substring"),
        Expr::Trim { trim_where, .. } => fixed(match trim_where {
            Some(sqlparser::ast::TrimWhereField::Leading) => "ltrim",
            Some(sqlparser::ast::TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::Ceil { .. } => fixed("ceil"),
        Expr::Floor { .. } => fixed("floor"),
        Expr::AtTimeZone { .. } => fixed("timezone"),
        _ => None,
    }
}

fn function_word(function: &Function) -> Option<String> {
    let name = names::parts(&function.name).ok()?.1;
    let is_query = matches!(function.args, FunctionArguments::Subquery(_));
    Some(if is_query { "array".to_owned() } else { name })
}

/// The name of a type in the catalogue.
fn type_word(of: PgType) -> &'static str {
    match of {
        PgType::Bool => "bool",
        PgType::Int2 => "int2",
        PgType::Int4 => "int4",
        PgType::Int8 => "int8",
        PgType::Real => "float4",
        PgType::Double => "float8",
        PgType::Numeric { .. } => "numeric",
        PgType::Text => "text",
        PgType::Varchar(_) => "varchar",
        PgType::Char(_) => "bpchar",
        PgType::Bytea => "bytea",
        PgType::Date => "date",
        PgType::Time => "time",
        PgType::Timestamp => "timestamp",
        PgType::Timestamptz => "timestamptz",
        PgType::Uuid => "uuid",
        PgType::Json => "json",
        PgType::Jsonb => "jsonb",
        PgType::Name => "name",
        PgType::Oid => "oid",
        PgType::Letter => "char",
        _ => "array",
    }
}

impl Translator<'_> {
    /// A list of items in the present scope, for RETURNING.
    pub fn item_list(&mut self, items: &[SelectItem]) -> Result<(String, Vec<(String, PgType)>), SqlError> {
        let want = Want::default();
        let selected = self.items(items, &want)?;
        let (list, columns) = named(selected, &want);
        Ok((list, columns.into_iter().map(|column| (column.name, column.of)).collect()))
    }
}
