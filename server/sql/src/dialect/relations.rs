//! FROM: tables, subqueries and joins, and the columns that they bring in sight.

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Join, JoinConstraint, JoinOperator, ObjectName, TableAlias,
    TableFactor, TableWithJoins,
};

use super::expression::Expression;
use super::names::{self, folded, quoted};
use super::query::Want;
use super::scope::{Relation, ScopeColumn};
use super::translator::{Translator, no_table, scope_columns};
use crate::error::SqlError;
use crate::types::PgType;

/// Which side of a join may lack a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outer {
    None,
    Left,
    Right,
    Full,
}

impl Translator<'_> {
    /// The list behind FROM; its tables come into sight.
    pub fn sources(&mut self, from: &[TableWithJoins]) -> Result<String, SqlError> {
        let mut items = Vec::with_capacity(from.len());
        for (at, item) in from.iter().enumerate() {
            let sql = self.joined(item, at)?;
            // SQLite would join all tables before with those behind RIGHT JOIN.
            let is_outer = |join: &Join| matches!(outer(&join.join_operator), Outer::Right | Outer::Full);
            items.push(if at > 0 && item.joins.iter().any(is_outer) { format!("({sql})") } else { sql });
        }
        let relations = &self.scope().relations;
        for (at, one) in relations.iter().enumerate() {
            if relations[..at].iter().any(|other| other.name == one.name) {
                let message = format!("table name \"{}\" specified more than once", one.name);
                return Err(SqlError::plain("42712", message));
            }
        }
        Ok(items.join(", "))
    }

    fn joined(&mut self, item: &TableWithJoins, number: usize) -> Result<String, SqlError> {
        let begin = self.scope().relations.len();
        let mut sql = self.factor(&item.relation)?;
        for Join { relation, join_operator, global } in &item.joins {
            let before = self.scope().relations.len();
            let right = self.factor(relation)?;
            let (words, constraint) = join_words(join_operator)?;
            if *global {
                return Err(SqlError::plain("42601", "syntax error at or near \"global\""));
            }
            let constraint = self.join_condition(constraint, begin, before)?;
            let relations = &mut self.scope().relations;
            let outer = outer(join_operator);
            if matches!(outer, Outer::Left | Outer::Full) {
                relations[before..].iter_mut().for_each(Relation::make_nullable);
            }
            if matches!(outer, Outer::Right | Outer::Full) {
                relations[begin..before].iter_mut().for_each(Relation::make_nullable);
            }
            sql.push_str(&format!(" {words} {right}{constraint}"));
        }
        self.scope().relations[begin..].iter_mut().for_each(|one| one.item = number);
        Ok(sql)
    }

    fn join_condition(
        &mut self,
        constraint: &JoinConstraint,
        begin: usize,
        before: usize,
    ) -> Result<String, SqlError> {
        let shared = match constraint {
            JoinConstraint::None => return Ok(String::new()),
            JoinConstraint::On(condition) => {
                return Ok(format!(" ON {}", self.condition(condition, "JOIN/ON")?.sql));
            }
            JoinConstraint::Using(columns) => {
                columns.iter().map(names::column).collect::<Result<Vec<_>, _>>()?
            }
            JoinConstraint::Natural => {
                let relations = &self.scope().relations;
                let has = |one: &Relation, name: &str| one.columns.iter().any(|column| column.name == name);
                let left = relations[begin..before].iter().flat_map(|one| &one.columns);
                let left = left.filter(|column| !column.is_merged).map(|column| column.name.clone());
                left.filter(|name| relations[before..].iter().any(|one| has(one, name))).collect()
            }
            JoinConstraint::UsingAlias(..) => {
                let message = "an alias of USING is not supported";
                return Err(SqlError::unsupported(message, "Use ON with both columns."));
            }
        };
        for name in &shared {
            let relations = &mut self.scope().relations;
            let (left, right) = relations.split_at_mut(before);
            let find = |one: &&ScopeColumn| one.name == *name && !one.is_merged;
            let ours = left[begin..].iter().flat_map(|one| &one.columns).find(find);
            let theirs = right.iter_mut().find_map(|one| {
                let at = one.columns.iter().position(|column| column.name == *name)?;
                one.using.push(name.clone());
                Some(&mut one.columns[at])
            });
            let (Some(ours), Some(theirs)) = (ours, theirs) else {
                let message =
                    format!("column \"{name}\" specified in USING clause does not exist in both tables");
                return Err(SqlError::plain("42703", message));
            };
            let column = |of| Expression::new(String::new(), of);
            let (ours, theirs_type) = (column(ours.of), column(theirs.of));
            theirs.is_merged = true;
            let (one, other) = self.comparable(ours, "=", theirs_type)?;
            if !one.sql.is_empty() || !other.sql.is_empty() {
                let message = format!("types of column \"{name}\" differ in USING");
                return Err(SqlError::unsupported(message, "Use ON with a cast."));
            }
        }
        Ok(match shared.is_empty() {
            true => String::new(),
            false => format!(" USING ({})", names::quoted_list(&shared)),
        })
    }

    fn factor(&mut self, factor: &TableFactor) -> Result<String, SqlError> {
        match factor {
            TableFactor::Table { name, alias, args: None, sample: None, with_ordinality: false, .. } => {
                self.table(name, alias.as_ref())
            }
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                self.table_function(name, &args.args, *with_ordinality, alias.as_ref())
            }
            TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                self.table_function(name, args, *with_ordinality, alias.as_ref())
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality, .. } => {
                self.unnest(&array_exprs.iter().collect::<Vec<_>>(), *with_ordinality, alias.as_ref())
            }
            TableFactor::Derived { lateral: false, subquery, alias, sample: None } => {
                let names = alias.as_ref().map_or_else(Vec::new, alias_columns);
                let want = Want { names: (!names.is_empty()).then_some(&names), ..Want::default() };
                let rows = self.hidden(|own| own.query(subquery, &want))?;
                let name = alias.as_ref().map_or_else(|| self.unnamed(), |alias| folded(&alias.name));
                let sql = format!("({}) AS {}", rows.sql, quoted(&name));
                self.scope().relations.push(Relation::new(name, rows.scope_columns()));
                Ok(sql)
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                Ok(format!("({})", self.joined(table_with_joins, 0)?))
            }
            TableFactor::Derived { lateral: true, .. } => {
                let hint = "Use a join with the grouped rows, or a subquery for each column.";
                Err(SqlError::unsupported("LATERAL is not supported", hint))
            }
            other => {
                let text: String = other.to_string().chars().take(60).collect();
                let message = format!("a table of this form is not supported: {text}");
                Err(SqlError::unsupported(message, "Name a table, or use a subquery."))
            }
        }
    }

    fn unnamed(&mut self) -> String {
        format!("unnamed_subquery_{}", self.scope().relations.len())
    }

    /// Runs a step that does not see the tables beside it, but those of queries around.
    fn hidden<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let beside = std::mem::take(&mut self.scope().relations);
        let result = step(self);
        self.scope().relations = beside;
        result
    }

    fn table(&mut self, name: &ObjectName, alias: Option<&TableAlias>) -> Result<String, SqlError> {
        let (schema, table) = names::parts(name)?;
        let with = self.with.iter().rev().find(|(name, _)| *name == table && schema.is_none());
        let (sql, columns) = match (with, schema.as_deref()) {
            (Some((_, columns)), _) => (quoted(&table), columns.clone()),
            (None, _) if names::is_reserved(&table) => return Err(no_table(&table)),
            (None, None | Some("public")) => match self.tables.columns(&table) {
                Some(columns) => (quoted(&table), scope_columns(&columns)),
                None if schema.is_none() && table.starts_with("pg_") => {
                    self.of_catalogue("pg_catalog", &table)?
                }
                None => return Err(no_table(&name.to_string())),
            },
            (None, Some(schema @ ("pg_catalog" | "information_schema"))) => {
                self.of_catalogue(schema, &table)?
            }
            (None, Some(schema)) => return Err(names::other_schema(schema)),
        };
        self.add(sql, &table, columns, alias)
    }

    fn of_catalogue(&self, schema: &str, name: &str) -> Result<(String, Vec<ScopeColumn>), SqlError> {
        let found = self.tables.catalogue(schema, name);
        let (sql, columns) = found.ok_or_else(|| no_table(&format!("{schema}.{name}")))?;
        Ok((format!("({sql})"), scope_columns(&columns)))
    }

    /// Brings a table into sight, with the names of its alias.
    fn add(
        &mut self,
        sql: String,
        name: &str,
        mut columns: Vec<ScopeColumn>,
        alias: Option<&TableAlias>,
    ) -> Result<String, SqlError> {
        let own = alias.map_or(name.to_owned(), |alias| folded(&alias.name));
        let renamed = alias.map_or_else(Vec::new, alias_columns);
        if renamed.len() > columns.len() {
            let message =
                format!("table \"{own}\" has {} columns available but more specified", columns.len());
            return Err(SqlError::plain("42P10", message));
        }
        let source = if renamed.is_empty() {
            sql
        } else {
            let mut parts = Vec::new();
            for (at, column) in columns.iter_mut().enumerate() {
                let before = quoted(&column.name);
                if let Some(name) = renamed.get(at) {
                    column.name.clone_from(name);
                }
                parts.push(format!("{before} AS {}", quoted(&column.name)));
            }
            format!("(SELECT {} FROM {sql})", parts.join(", "))
        };
        let is_plain = source == quoted(&own);
        self.scope().relations.push(Relation::new(own.clone(), columns));
        Ok(if is_plain { source } else { format!("{source} AS {}", quoted(&own)) })
    }

    fn table_function(
        &mut self,
        name: &ObjectName,
        arguments: &[FunctionArg],
        is_numbered: bool,
        alias: Option<&TableAlias>,
    ) -> Result<String, SqlError> {
        let function = super::functions::function_name(name)?;
        let plain = |argument| match argument {
            &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expr)) => Ok(expr),
            _ => Err(SqlError::plain("42601", "syntax error in the arguments of a function")),
        };
        let arguments = arguments.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        match (function.as_str(), arguments.len()) {
            ("generate_series", 2 | 3) if !is_numbered => self.series(&arguments, alias),
            ("pg_partition_ancestors", 1) => {
                // No table is a part of another one.
                let table = self.expression(arguments[0])?;
                let json = format!("json_array({})", self.typed(table, PgType::Oid)?.sql);
                self.each(&json, ("relid", PgType::Oid), is_numbered, alias)
            }
            ("unnest", 1..) => self.unnest(&arguments, is_numbered, alias),
            (
                "json_array_elements"
                | "jsonb_array_elements"
                | "json_array_elements_text"
                | "jsonb_array_elements_text",
                1,
            ) => {
                let json = self.expression(arguments[0])?;
                let json = self.typed(json, PgType::Json)?;
                let gives = match function.as_str() {
                    "json_array_elements" => PgType::Json,
                    "jsonb_array_elements" => PgType::Jsonb,
                    _ => PgType::Text,
                };
                self.each(&json.sql, ("value", gives), is_numbered, alias)
            }
            _ => Err(SqlError::new(
                "42883",
                format!("function {function} does not exist as a table"),
                "There are generate_series, unnest, json_array_elements and json_array_elements_text.",
            )),
        }
    }

    /// The elements of a JSON array as rows. SQLite lets its argument name columns of tables before.
    fn each(
        &mut self,
        json: &str,
        (name, of): (&str, PgType),
        is_numbered: bool,
        alias: Option<&TableAlias>,
    ) -> Result<String, SqlError> {
        let table = alias.map_or(name.to_owned(), |alias| folded(&alias.name));
        let own = quoted(&table);
        let value = match of {
            PgType::Json | PgType::Jsonb => format!(
                "CASE WHEN {own}.type IN ('object', 'array') THEN {own}.value WHEN {own}.type = 'text' THEN \
                 json_quote({own}.value) WHEN {own}.type IN ('true', 'false', 'null') THEN {own}.type ELSE \
                 CAST({own}.value AS TEXT) END"
            ),
            PgType::Text => format!(
                "CASE WHEN {own}.type IN ('true', 'false') THEN {own}.type ELSE CAST({own}.value AS TEXT) END"
            ),
            _ => format!("{own}.value"),
        };
        let names = alias.map_or_else(Vec::new, alias_columns);
        // A function whose column has no name gives it that of its alias.
        let first = if alias.is_some() && name == "unnest" { table.clone() } else { name.to_owned() };
        let mut columns = vec![ScopeColumn { computed: Some(value), ..nullable_column((first, of)) }];
        if is_numbered {
            let number = nullable_column(("ordinality".to_owned(), PgType::Int8));
            columns.push(ScopeColumn {
                computed: Some(format!("({own}.key + 1)")),
                is_nullable: false,
                ..number
            });
        }
        for (column, name) in columns.iter_mut().zip(names) {
            column.name = name;
        }
        self.scope().relations.push(Relation::new(table, columns));
        Ok(format!("json_each({json}) AS {own}"))
    }

    /// A function with one column is named as its alias, if that names no columns.
    fn add_function(
        &mut self,
        sql: String,
        function: &str,
        columns: Vec<(String, PgType)>,
        alias: Option<&TableAlias>,
    ) -> Result<String, SqlError> {
        let mut columns: Vec<ScopeColumn> = columns.into_iter().map(nullable_column).collect();
        let has_names = alias.is_some_and(|alias| !alias.columns.is_empty());
        if let ([column], Some(alias), false) = (&mut columns[..], alias, has_names) {
            let name = folded(&alias.name);
            let sql = format!("(SELECT {} AS {} FROM {sql})", quoted(&column.name), quoted(&name));
            column.name.clone_from(&name);
            return self.add(sql, function, columns, Some(alias));
        }
        self.add(sql, function, columns, alias)
    }

    fn series(&mut self, arguments: &[&Expr], alias: Option<&TableAlias>) -> Result<String, SqlError> {
        let mut values = Vec::new();
        for argument in arguments {
            let value = self.hidden(|own| own.expression(argument))?;
            values.push(self.typed(value, PgType::Int4)?);
        }
        if !values.iter().all(|value| value.known_or_text().is_integer()) {
            let message = "generate_series of other types than integers is not supported";
            return Err(SqlError::unsupported(message, "Generate integers, and compute from them."));
        }
        let of = values.iter().map(Expression::known_or_text).fold(PgType::Int4, super::operators::wider);
        let (first, last) = (values[0].atom(), values[1].atom());
        let step = values.get(2).map_or("1".to_owned(), Expression::atom);
        let sql = format!(
            "(WITH RECURSIVE s(v, l, d) AS (SELECT {first}, {last}, {step} WHERE CASE WHEN {step} > 0 THEN {first} <= \
             {last} ELSE {step} < 0 AND {first} >= {last} END UNION ALL SELECT v + d, l, d FROM s WHERE CASE WHEN d > \
             0 THEN v + d <= l ELSE v + d >= l END) SELECT v AS generate_series FROM s)"
        );
        self.add_function(sql, "generate_series", vec![("generate_series".to_owned(), of)], alias)
    }

    fn unnest(
        &mut self,
        arrays: &[&Expr],
        is_numbered: bool,
        alias: Option<&TableAlias>,
    ) -> Result<String, SqlError> {
        let mut values = Vec::new();
        for array in arrays {
            values.push(self.array_value(array)?);
        }
        if let [(value, element)] = &values[..] {
            return self.each(value, ("unnest", *element), is_numbered, alias);
        }
        if is_numbered {
            let message = "WITH ORDINALITY of several arrays is not supported";
            return Err(SqlError::unsupported(message, "Number the rows with row_number()."));
        }
        // Arrays side by side, as long as the longest.
        let (mut columns, mut parts, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (value, element)) in values.iter().enumerate() {
            keys.push(format!("SELECT key FROM json_each({value})"));
            parts.push(format!("json_extract({value}, '$[' || key || ']') AS \"unnest{at}\""));
            columns.push((format!("unnest{at}"), *element));
        }
        let sql = format!("(SELECT {} FROM ({}) ORDER BY key)", parts.join(", "), keys.join(" UNION "));
        self.add_function(sql, "unnest", columns, alias)
    }

    /// An array, and the type of its elements.
    pub fn array_value(&mut self, array: &Expr) -> Result<(String, PgType), SqlError> {
        let value = self.expression(array)?;
        let value = self.typed(value, PgType::TextArray)?;
        match value.known_or_text().element() {
            Some(element) => Ok((value.sql, element)),
            None => Err(super::functions::no_function("unnest", &[value])),
        }
    }

    /// `unnest` and `generate_subscripts` as items of SELECT: a table that is joined, of one array.
    pub fn unnested_item(&mut self, array: &Expr, is_number: bool) -> Result<Expression, SqlError> {
        let (array, element) = self.placed(super::scope::Place::Groups, |own| own.array_value(array))?;
        let unnested = &mut self.scope().unnested;
        if unnested.iter().any(|other| *other != array) {
            let message = "several arrays in the items of SELECT are not supported";
            return Err(SqlError::unsupported(message, "Use unnest(a, b) in FROM."));
        }
        if unnested.is_empty() {
            unnested.push(array);
        }
        Ok(match is_number {
            true => Expression::operation("\"unnested item\".key + 1".to_owned(), PgType::Int4),
            false => Expression::new("\"unnested item\".value".to_owned(), element),
        })
    }
}

fn nullable_column((name, of): (String, PgType)) -> ScopeColumn {
    ScopeColumn { name, of, is_nullable: true, is_key: false, is_merged: false, computed: None }
}

/// The names of columns in an alias.
pub fn alias_columns(alias: &TableAlias) -> Vec<String> {
    alias.columns.iter().map(|column| folded(&column.name)).collect()
}

fn outer(operator: &JoinOperator) -> Outer {
    match operator {
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => Outer::Left,
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => Outer::Right,
        JoinOperator::FullOuter(_) => Outer::Full,
        _ => Outer::None,
    }
}

fn join_words(operator: &JoinOperator) -> Result<(&'static str, &JoinConstraint), SqlError> {
    Ok(match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => ("JOIN", constraint),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => ("LEFT JOIN", constraint),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => ("RIGHT JOIN", constraint),
        JoinOperator::FullOuter(constraint) => ("FULL JOIN", constraint),
        // In SQLite, CROSS JOIN fixes the order of the tables.
        JoinOperator::CrossJoin(constraint) => ("JOIN", constraint),
        _ => return Err(SqlError::plain("42601", "syntax error: no such join")),
    })
}
