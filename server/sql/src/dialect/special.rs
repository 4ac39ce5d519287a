//! Expressions of all forms, each written for SQLite or refused.

use sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, CastKind, CeilFloorKind, DataType, Expr, InTarget, Query,
    TrimWhereField, TypedString, Value,
};

use super::coerce::{Family, call, converted, family, relation_number};
use super::data_type;
use super::expression::{Expression, Of};
use super::literals;
use super::names::{self, folded, text_literal};
use super::operators::{bare, common, like_of_pattern, no_operator};
use super::query::Want;
use super::scope::Place;
use super::translator::Translator;
use crate::catalog;
use crate::error::SqlError;
use crate::types::PgType;

/// Functions that are called without brackets, and are no words to the parser.
const BARE: [&str; 3] = ["current_schema", "current_catalog", "current_role"];

/// What no client of a database of tables needs.
fn unsupported(expr: &Expr) -> SqlError {
    let text: String = expr.to_string().chars().take(60).collect();
    let hint = "The documentation lists the forms of expressions there are.";
    SqlError::unsupported(format!("an expression of this form is not supported: {text}"), hint)
}

/// Bytes that an expression may have in SQLite's words: some forms write their parts several times.
const MAX_WRITTEN: usize = 1 << 20;

impl Translator<'_> {
    /// An expression.
    pub fn expression(&mut self, expr: &Expr) -> Result<Expression, SqlError> {
        let before = self.scope().ungrouped.len();
        let written = self.deeper(|own| own.form(expr))?;
        if written.sql.len() > MAX_WRITTEN {
            let message = "the statement is too long for SQLite";
            return Err(SqlError::new("54001", message, "Make it simpler, or split it."));
        }
        let scope = self.scope();
        if scope.place == Place::Groups && scope.groups.contains(&written.sql) {
            scope.ungrouped.truncate(before);
        }
        Ok(written)
    }

    fn form(&mut self, expr: &Expr) -> Result<Expression, SqlError> {
        match expr {
            Expr::Identifier(name) => match self.column(None, &folded(name)) {
                // A function that is called without brackets.
                Err(_) if name.quote_style.is_none() && BARE.contains(&folded(name).as_str()) => {
                    self.named_call(&folded(name), &[])
                }
                column => column,
            },
            Expr::CompoundIdentifier(parts) => match &parts[..] {
                [table, name] => self.column(Some(&folded(table)), &folded(name)),
                [schema, table, name] if ["public", "pg_catalog"].contains(&folded(schema).as_str()) => {
                    self.column(Some(&folded(table)), &folded(name))
                }
                _ => Err(unsupported(expr)),
            },
            Expr::Nested(inner) => self.expression(inner),
            Expr::Value(value) => self.value(&value.value),
            Expr::TypedString(typed) => self.typed_string(typed),
            Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr, data_type, format: None } => {
                self.cast_to(expr, data_type)
            }
            Expr::UnaryOp { op, expr } => self.unary(op, expr),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            Expr::Function(function) => self.function(function),
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())
            }
            Expr::Exists { subquery, negated } => {
                let rows = self.query(subquery, &Want { may_be_empty: true, ..Want::default() })?;
                let sql = format!("{}EXISTS ({})", if *negated { "NOT " } else { "" }, rows.sql);
                Ok(Expression { is_nullable: false, ..Expression::operation(sql, PgType::Bool) })
            }
            Expr::Subquery(query) => self.scalar(query),
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_deref(), ("like_pg", *negated))
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_deref(), ("ilike_pg", *negated))
            }
            Expr::SimilarTo { .. } | Expr::RLike { .. } => Err(no_pattern()),
            Expr::Array(array) => self.array(&array.elem),
            Expr::Collate { expr, collation } => self.collated(expr, collation),
            Expr::Interval(_) => Err(literals::no_interval(&expr.to_string())),
            Expr::AtTimeZone { timestamp, time_zone } => self.at_zone(timestamp, time_zone),
            Expr::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain, expr),
            other => self.test(other),
        }
    }

    /// What gives a boolean.
    fn test(&mut self, expr: &Expr) -> Result<Expression, SqlError> {
        match expr {
            Expr::IsNull(value) => self.is_null(value, "IS NULL"),
            Expr::IsNotNull(value) => self.is_null(value, "IS NOT NULL"),
            Expr::IsTrue(value) => self.is_truth(value, "IS TRUE"),
            Expr::IsNotTrue(value) => self.is_truth(value, "IS NOT TRUE"),
            Expr::IsFalse(value) => self.is_truth(value, "IS FALSE"),
            Expr::IsNotFalse(value) => self.is_truth(value, "IS NOT FALSE"),
            Expr::IsUnknown(value) => self.is_truth(value, "IS NULL"),
            Expr::IsNotUnknown(value) => self.is_truth(value, "IS NOT NULL"),
            Expr::IsDistinctFrom(left, right) => self.distinct(left, "IS NOT", right),
            Expr::IsNotDistinctFrom(left, right) => self.distinct(left, "IS", right),
            Expr::Between { expr, negated, low, high } => self.between(expr, *negated, low, high),
            Expr::In { expr, target: InTarget::List(list), negated, .. } => {
                self.in_list(expr, list, *negated)
            }
            Expr::In { expr, target: InTarget::Subquery(query), negated, .. } => {
                self.in_query(expr, query, *negated)
            }
            Expr::AnyOp { left, compare_op, right, .. } => self.any(left, compare_op, right, false),
            Expr::AllOp { left, compare_op, right } => self.any(left, compare_op, right, true),
            other => self.call_of_words(other),
        }
    }

    /// Functions that SQL writes with words between the arguments.
    fn call_of_words(&mut self, expr: &Expr) -> Result<Expression, SqlError> {
        match expr {
            Expr::Extract { field, expr, .. } => {
                let field = field.to_string().to_ascii_lowercase();
                self.extract(&field, expr)
            }
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(_) } => self.named_call("ceil", &[expr]),
            Expr::Floor { expr, field: CeilFloorKind::DateTimeField(_) } => self.named_call("floor", &[expr]),
            Expr::Position { expr, r#in } => self.named_call("strpos", &[r#in, expr]),
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let one = Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
                let from = substring_from.as_deref().unwrap_or(&one);
                match substring_for {
                    Some(length) => self.named_call("substring", &[expr, from, length]),
                    None => self.named_call("substring", &[expr, from]),
                }
            }
            Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                let listed = trim_characters.as_deref().unwrap_or(&[]);
                match (trim_what.as_deref(), listed) {
                    (Some(what), []) => self.named_call(name, &[expr, what]),
                    (None, [what]) => self.named_call(name, &[expr, what]),
                    (None, []) => self.named_call(name, &[expr]),
                    _ => Err(unsupported(expr)),
                }
            }
            other => Err(unsupported(other)),
        }
    }

    fn typed_string(&mut self, typed: &TypedString) -> Result<Expression, SqlError> {
        if matches!(typed.data_type, DataType::Interval { .. }) {
            return Err(literals::no_interval(&typed.to_string()));
        }
        let value = self.value(&typed.value.value)?;
        self.cast(value, data_type::of_cast(&typed.data_type)?)
    }

    fn cast_to(&mut self, expr: &Expr, to: &DataType) -> Result<Expression, SqlError> {
        if matches!(to, DataType::Interval { .. }) {
            return Err(literals::no_interval(&expr.to_string()));
        }
        let value = self.expression(expr)?;
        if data_type::is_bare_numeric(to) {
            // As many digits as there are: an exact number stays, any other one is of double precision.
            if value.known().is_some_and(PgType::is_numeric) {
                return Ok(value);
            }
            return self.cast(value, PgType::Double);
        }
        let to_name = to.to_string().to_ascii_lowercase();
        let of = data_type::of_cast(to)?;
        let is_regclass = to_name.trim_start_matches("pg_catalog.") == "regclass";
        if is_regclass && value.known().is_some_and(PgType::is_integer) {
            // A number of a table is shown as its name.
            let name = catalog::expression("regclass_out", 1).unwrap_or("?1");
            return Ok(Expression::new(name.replace("?1", &value.sql), PgType::Text));
        }
        let is_name = value.known().is_some_and(PgType::is_text);
        if of == PgType::Oid && is_regclass && matches!(value.of, Of::Parameter(_)) {
            let name = self.typed(value, PgType::Text)?;
            return Ok(Expression::new(relation_number(&name.sql), of));
        }
        if of == PgType::Oid && is_name {
            return Ok(Expression::new(relation_number(&value.sql), of));
        }
        if matches!(value.of, Of::Literal(Some(_)))
            && ["regtype", "regproc", "regnamespace"].contains(&&*to_name)
        {
            let to_name =
                if to_name == "regproc" { "cast_int8".to_owned() } else { format!("{to_name}_in_pg") };
            return Ok(Expression::constant(format!("{to_name}({})", value.sql), of));
        }
        self.cast(value, of)
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
    ) -> Result<Expression, SqlError> {
        let operand = operand.map(|operand| self.expression(operand)).transpose()?;
        let mut tests = Vec::new();
        for CaseWhen { condition, .. } in conditions {
            tests.push(match &operand {
                None => self.condition(condition, "CASE/WHEN")?.sql,
                Some(operand) => {
                    let value = self.expression(condition)?;
                    let (own, value) = self.comparable(operand.clone(), "=", value)?;
                    format!("{} = {}", own.atom(), value.atom())
                }
            });
        }
        let results = conditions.iter().map(|when| &when.result).chain(otherwise);
        let results = results.map(|result| self.expression(result)).collect::<Result<Vec<_>, _>>()?;
        let (results, of) = self.unified(results, "CASE")?;
        let mut sql = "CASE".to_owned();
        for (test, result) in tests.iter().zip(&results) {
            sql.push_str(&format!(" WHEN {test} THEN {}", result.sql));
        }
        if let Some(last) = results.get(tests.len()) {
            sql.push_str(&format!(" ELSE {}", last.sql));
        }
        sql.push_str(" END");
        let is_exact = results.iter().all(|result| result.is_exact);
        let is_nullable = otherwise.is_none() || results.iter().any(|result| result.is_nullable);
        Ok(Expression { is_exact, is_nullable, ..Expression::new(sql, of) })
    }

    /// Values that are alternatives of each other, in one type.
    pub fn unified(
        &mut self,
        values: Vec<Expression>,
        what: &str,
    ) -> Result<(Vec<Expression>, PgType), SqlError> {
        let mut of: Option<PgType> = None;
        for known in values.iter().filter_map(Expression::known) {
            of = Some(of.map_or(Ok(known), |of| common(of, known, what))?);
        }
        let of = of.unwrap_or(PgType::Text);
        let mut unified = Vec::with_capacity(values.len());
        for value in values {
            let value = self.typed(value, of)?;
            unified.push(self.widened(value, of));
        }
        Ok((unified, of))
    }

    /// A value of a type of the same family, in the form of this type. Ranges are not checked.
    pub fn widened(&mut self, value: Expression, of: PgType) -> Expression {
        let from = value.known_or_text();
        let is_alike = from == of || value.is_null() || family(of) != Family::Moment && of != PgType::Double;
        if is_alike { Expression { of: Of::Known(of), ..value } } else { converted(value, of) }
    }

    fn is_null(&mut self, value: &Expr, words: &str) -> Result<Expression, SqlError> {
        if let Expr::Tuple(_) = bare(value) {
            return Err(SqlError::unsupported("a row cannot be NULL", "Test column by column."));
        }
        let value = self.expression(value)?;
        let value = self.settled(value)?;
        let sql = format!("{} {words}", value.atom());
        Ok(Expression { is_nullable: false, ..Expression::operation(sql, PgType::Bool) })
    }

    fn is_truth(&mut self, value: &Expr, words: &str) -> Result<Expression, SqlError> {
        let value = self.condition(value, words)?;
        let sql = format!("{} {words}", value.atom());
        Ok(Expression { is_nullable: false, ..Expression::operation(sql, PgType::Bool) })
    }

    fn distinct(&mut self, left: &Expr, words: &str, right: &Expr) -> Result<Expression, SqlError> {
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        let (left, right) = self.comparable(left, "=", right)?;
        // Beside TRUE and FALSE, SQLite's IS asks for truth.
        let sql = format!("{} {words} {}", left.atom(), right.atom());
        Ok(Expression { is_nullable: false, ..Expression::operation(sql, PgType::Bool) })
    }

    fn between(
        &mut self,
        value: &Expr,
        negated: bool,
        low: &Expr,
        high: &Expr,
    ) -> Result<Expression, SqlError> {
        let (value, low, high) = (self.expression(value)?, self.expression(low)?, self.expression(high)?);
        let (value, low) = self.comparable(value, ">=", low)?;
        let (value, high) = self.comparable(value, "<=", high)?;
        let (value, low) = self.comparable(value, ">=", low)?;
        let not = if negated { "NOT " } else { "" };
        let sql = format!("{} {not}BETWEEN {} AND {}", value.atom(), low.atom(), high.atom());
        Ok(Expression::operation(sql, PgType::Bool).nullable_as(&[&value, &low, &high]))
    }

    fn in_list(&mut self, value: &Expr, list: &[Expr], negated: bool) -> Result<Expression, SqlError> {
        let not = if negated { "NOT " } else { "" };
        if let Expr::Tuple(parts) = bare(value) {
            return self.rows_in_list(parts, list, not);
        }
        let mut value = self.expression(value)?;
        let mut others = list.iter().map(|one| self.expression(one)).collect::<Result<Vec<_>, _>>()?;
        if value.is_open() {
            let of = others.iter().find_map(Expression::known).unwrap_or(PgType::Text);
            value = self.typed(value, of)?;
        }
        let mut written = Vec::with_capacity(others.len());
        for other in others.drain(..) {
            let (own, other) = self.comparable(value.clone(), "=", other)?;
            if own.sql != value.sql {
                return Err(mixed_types());
            }
            written.push(other.sql);
        }
        let sql = format!("{} {not}IN ({})", value.atom(), written.join(", "));
        Ok(Expression::operation(sql, PgType::Bool))
    }

    fn rows_in_list(&mut self, parts: &[Expr], list: &[Expr], not: &str) -> Result<Expression, SqlError> {
        let mut own = parts.iter().map(|part| self.expression(part)).collect::<Result<Vec<_>, _>>()?;
        let mut rows = Vec::new();
        for row in list {
            let Expr::Tuple(values) = bare(row) else { return Err(unsupported(row)) };
            if values.len() != own.len() {
                return Err(SqlError::plain("42601", "unequal number of entries in row expressions"));
            }
            let mut written = Vec::new();
            for (own, value) in own.iter_mut().zip(values) {
                let value = self.expression(value)?;
                let (left, value) = self.comparable(own.clone(), "=", value)?;
                *own = left;
                written.push(value.sql);
            }
            rows.push(format!("({})", written.join(", ")));
        }
        let own = own.iter().map(|part| part.sql.as_str()).collect::<Vec<_>>().join(", ");
        Ok(Expression::operation(format!("({own}) {not}IN (VALUES {})", rows.join(", ")), PgType::Bool))
    }

    fn in_query(&mut self, value: &Expr, query: &Query, negated: bool) -> Result<Expression, SqlError> {
        let rows = self.query(query, &Want::default())?;
        let parts = match bare(value) {
            Expr::Tuple(parts) => parts.iter().collect(),
            one => vec![one],
        };
        if parts.len() != rows.columns.len() {
            return Err(SqlError::plain("42601", "subquery has too many columns"));
        }
        let mut own = Vec::new();
        for (part, column) in parts.into_iter().zip(&rows.columns) {
            let part = self.expression(part)?;
            let other = Expression::new(String::new(), column.of);
            let (part, other) = self.comparable(part, "=", other)?;
            if !other.sql.is_empty() {
                return Err(mixed_types());
            }
            own.push(part.atom());
        }
        let own = if own.len() == 1 { own.remove(0) } else { format!("({})", own.join(", ")) };
        let not = if negated { "NOT " } else { "" };
        Ok(Expression::operation(format!("{own} {not}IN ({})", rows.sql), PgType::Bool))
    }

    /// `= ANY (..)` and `<> ALL (..)`.
    fn any(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
        is_all: bool,
    ) -> Result<Expression, SqlError> {
        let negated = match (operator, is_all) {
            (BinaryOperator::Eq, false) => false,
            (BinaryOperator::NotEq, true) => true,
            (BinaryOperator::PGCustomBinaryOperator(parts), false)
                if parts.last().is_some_and(|last| last == "=") =>
            {
                false
            }
            _ => {
                let word = if is_all { "ALL" } else { "ANY" };
                let hint =
                    "There are = ANY (..) and <> ALL (..); otherwise compare with min or max of a subquery.";
                return Err(SqlError::unsupported(format!("{operator} {word} is not supported"), hint));
            }
        };
        match bare(right) {
            Expr::Subquery(query) => self.in_query(left, query, negated),
            Expr::Array(array) if !array.elem.is_empty() => self.in_list(left, &array.elem, negated),
            Expr::Function(function) => match array_of_query(function) {
                Some(query) => self.in_query(left, query, negated),
                None => self.in_array(left, right, negated),
            },
            _ => self.in_array(left, right, negated),
        }
    }

    fn in_array(&mut self, left: &Expr, right: &Expr, negated: bool) -> Result<Expression, SqlError> {
        let value = self.expression(left)?;
        let array = self.expression(right)?;
        let value = match array.known().and_then(PgType::element) {
            Some(element) => self.typed(value, element)?,
            None => self.settled(value)?,
        };
        let of = array_of(value.known_or_text());
        let array = self.typed(array, of)?;
        let element = array.known().and_then(PgType::element);
        if element.is_none_or(|element| !is_element(value.known_or_text(), element)) {
            return Err(no_operator(&value, "= ANY", &array));
        }
        let not = if negated { "NOT " } else { "" };
        // What is kept as text in one form may be written in another one.
        let of = value.known_or_text();
        let is_kept = element.is_some_and(|element| family(element) == family(of));
        let each = if is_kept { "value".to_owned() } else { call(of, "value") };
        let sql = format!("{} {not}IN (SELECT {each} FROM json_each({}))", value.atom(), array.sql);
        Ok(Expression::operation(sql, PgType::Bool))
    }

    /// An array is kept as JSON.
    fn array(&mut self, elements: &[Expr]) -> Result<Expression, SqlError> {
        let values = elements.iter().map(|one| self.expression(one)).collect::<Result<Vec<_>, _>>()?;
        let (values, of) = self.unified(values, "ARRAY")?;
        let sql = values.iter().map(|value| value.sql.as_str()).collect::<Vec<_>>().join(", ");
        Ok(Expression { is_nullable: false, ..Expression::new(format!("json_array({sql})"), array_of(of)) })
    }

    fn scalar(&mut self, query: &Query) -> Result<Expression, SqlError> {
        let rows = self.query(query, &Want::default())?;
        let [column] = &rows.columns[..] else {
            return Err(SqlError::plain("42601", "subquery must return only one column"));
        };
        // SQLite takes the first of several rows, where PostgreSQL fails.
        let sql = match rows.is_one_row {
            true => format!("({})", rows.sql),
            false => format!("(SELECT single_pg({}) FROM ({}))", names::quoted(&column.name), rows.sql),
        };
        Ok(Expression::new(sql, column.of))
    }

    /// LIKE; the function's name, and whether it is negated.
    pub fn like(
        &mut self,
        value: &Expr,
        pattern: &Expr,
        escape: Option<&Expr>,
        (function, negated): (&str, bool),
    ) -> Result<Expression, SqlError> {
        let (value, pattern) = (self.expression(value)?, self.expression(pattern)?);
        let (value, pattern) = (self.settled(value)?, self.settled(pattern)?);
        if !value.known_or_text().is_text() || !pattern.known_or_text().is_text() {
            return Err(no_operator(&value, "~~", &pattern));
        }
        let mut arguments = format!("{}, {}", value.sql, pattern.sql);
        if let Some(escape) = escape {
            let escape = self.expression(escape)?;
            arguments.push_str(&format!(", {}", self.settled(escape)?.sql));
        }
        let not = if negated { "NOT " } else { "" };
        let sql = format!("{not}{function}({arguments})");
        Ok(Expression::operation(sql, PgType::Bool).nullable_as(&[&value, &pattern]))
    }

    /// A regular expression, as far as LIKE can tell the same.
    pub fn pattern(
        &mut self,
        value: &Expr,
        pattern: &Expr,
        (function, negated): (&str, bool),
    ) -> Result<Expression, SqlError> {
        let pattern = match bare(pattern) {
            Expr::Collate { expr, .. } => bare(expr),
            other => other,
        };
        let Expr::Value(pattern) = pattern else { return Err(no_pattern()) };
        let (Value::SingleQuotedString(pattern) | Value::EscapedStringLiteral(pattern)) = &pattern.value
        else {
            return Err(no_pattern());
        };
        let like = like_of_pattern(pattern).ok_or_else(no_pattern)?;
        let value = self.expression(value)?;
        let value = self.settled(value)?;
        let not = if negated { "NOT " } else { "" };
        let sql = format!("{not}{function}({}, {})", value.sql, text_literal(&like));
        Ok(Expression::operation(sql, PgType::Bool).nullable_as(&[&value]))
    }

    fn collated(
        &mut self,
        expr: &Expr,
        collation: &sqlparser::ast::ObjectName,
    ) -> Result<Expression, SqlError> {
        match names::parts(collation)?.1.as_str() {
            "default" | "C" | "POSIX" | "ucs_basic" => self.expression(expr),
            other => Err(SqlError::new(
                "42704",
                format!("collation \"{other}\" for encoding \"UTF8\" does not exist"),
                "Text is ordered by its bytes here, as collation \"C\" does.",
            )),
        }
    }

    /// The session's zone is UTC.
    fn at_zone(&mut self, moment: &Expr, zone: &Expr) -> Result<Expression, SqlError> {
        let is_utc = match bare(zone) {
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(zone) => ["utc", "gmt", "etc/utc", "z", "zulu", "utc0"]
                    .contains(&zone.to_ascii_lowercase().as_str()),
                _ => false,
            },
            _ => false,
        };
        if !is_utc {
            let message = "AT TIME ZONE with another zone than 'UTC' is not supported";
            return Err(SqlError::unsupported(message, "Convert to local time in the client."));
        }
        let moment = self.expression(moment)?;
        let moment = self.typed(moment, PgType::Timestamptz)?;
        match moment.known_or_text() {
            PgType::Timestamptz => Ok(converted(moment, PgType::Timestamp)),
            PgType::Timestamp | PgType::Date => Ok(converted(moment, PgType::Timestamptz)),
            of => Err(SqlError::plain("42883", format!("function timezone(unknown, {of:?}) does not exist"))),
        }
    }

    /// An element of an array, which is counted from 1.
    fn access(&mut self, root: &Expr, chain: &[AccessExpr], whole: &Expr) -> Result<Expression, SqlError> {
        use sqlparser::ast::Subscript::Index;
        let (array, index) = match (root, chain) {
            (root, [AccessExpr::Subscript(Index { index })]) => (self.expression(root)?, index),
            // A column with its table's name.
            (
                Expr::Identifier(table),
                [AccessExpr::Dot(Expr::Identifier(column)), AccessExpr::Subscript(Index { index })],
            ) => {
                let column = Expr::CompoundIdentifier(vec![table.clone(), column.clone()]);
                (self.expression(&column)?, index)
            }
            _ => return Err(unsupported(whole)),
        };
        let index = self.expression(index)?;
        let index = self.typed(index, PgType::Int4)?;
        let element = array.known().and_then(PgType::element).ok_or_else(|| unsupported(whole))?;
        let sql = format!("json_extract({}, '$[' || ({} - 1) || ']')", array.sql, index.atom());
        Ok(Expression::new(sql, element))
    }
}

/// The query of `ARRAY(SELECT ..)`.
pub fn array_of_query(function: &sqlparser::ast::Function) -> Option<&Query> {
    match &function.args {
        sqlparser::ast::FunctionArguments::Subquery(query)
            if function.name.to_string().eq_ignore_ascii_case("array") =>
        {
            Some(query)
        }
        _ => None,
    }
}

fn mixed_types() -> SqlError {
    SqlError::unsupported(
        "types on both sides of IN differ",
        "Cast what stands in brackets to the type on the left.",
    )
}

fn no_pattern() -> SqlError {
    SqlError::unsupported("regular expressions are not supported", "Use LIKE, or match in the client.")
}

/// The array whose elements compare with values of this type.
pub fn array_of(of: PgType) -> PgType {
    match of {
        PgType::Bool => PgType::BoolArray,
        PgType::Int2 | PgType::Int4 => PgType::Int4Array,
        PgType::Int8 => PgType::Int8Array,
        PgType::Oid => PgType::OidArray,
        PgType::Real | PgType::Double | PgType::Numeric { .. } => PgType::DoubleArray,
        PgType::Uuid => PgType::UuidArray,
        _ => PgType::TextArray,
    }
}

fn is_element(of: PgType, element: PgType) -> bool {
    family(of) == family(element)
        || element == PgType::Text && matches!(family(of), Family::Moment | Family::TimeOfDay | Family::Uuid)
}
