//! Operators: which types meet, what they give, and where SQLite's operator means something else.

use sqlparser::ast::{BinaryOperator, DataType, Expr, UnaryOperator, Value};

use super::coerce::{Family, converted, family, type_name};
use super::expression::{Expression, Of};
use super::literals;
use super::translator::Translator;
use crate::error::SqlError;
use crate::types::PgType;
use crate::values::Interval;

/// An operator that no two values of these types have.
pub fn no_operator(left: &Expression, operator: &str, right: &Expression) -> SqlError {
    let name = |one: &Expression| one.known().map_or("unknown".to_owned(), type_name);
    let message = format!("operator does not exist: {} {operator} {}", name(left), name(right));
    let hint =
        "No operator matches the given name and argument types. You might need to add explicit type casts.";
    SqlError::new("42883", message, hint)
}

/// The value in brackets.
pub fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// What an operator is called, without the schema that it may name.
fn plain(operator: &BinaryOperator) -> Option<BinaryOperator> {
    use BinaryOperator as B;
    let B::PGCustomBinaryOperator(parts) = operator else { return Some(operator.clone()) };
    Some(match parts.last()?.as_str() {
        "=" => B::Eq,
        "<>" | "!=" => B::NotEq,
        "<" => B::Lt,
        ">" => B::Gt,
        "<=" => B::LtEq,
        ">=" => B::GtEq,
        "+" => B::Plus,
        "-" => B::Minus,
        "*" => B::Multiply,
        "/" => B::Divide,
        "||" => B::StringConcat,
        "~" => B::PGRegexMatch,
        "~*" => B::PGRegexIMatch,
        "!~" => B::PGRegexNotMatch,
        "!~*" => B::PGRegexNotIMatch,
        "~~" => B::PGLikeMatch,
        "!~~" => B::PGNotLikeMatch,
        _ => return None,
    })
}

impl Translator<'_> {
    /// An operator between two values.
    pub fn binary(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
    ) -> Result<Expression, SqlError> {
        use BinaryOperator as B;
        let unsupported = || {
            let message = format!("operator {operator} is not supported");
            SqlError::unsupported(message, "The documentation lists the operators there are.")
        };
        let plain = plain(operator).ok_or_else(unsupported)?;
        match plain {
            B::And | B::Or => self.chain(left, &plain, right),
            B::Eq | B::NotEq | B::Lt | B::Gt | B::LtEq | B::GtEq => self.comparison(left, &plain, right),
            B::StringConcat => self.concatenation(left, right),
            B::Plus | B::Minus if self.is_interval(left) || self.is_interval(right) => {
                self.shifted(left, &plain, right)
            }
            B::Plus | B::Minus | B::Multiply | B::Divide | B::Modulo | B::PGExp => {
                let (left, right) = (self.expression(left)?, self.expression(right)?);
                self.arithmetic(left, &plain, right)
            }
            B::BitwiseAnd
            | B::BitwiseOr
            | B::PGBitwiseShiftLeft
            | B::PGBitwiseShiftRight
            | B::PGBitwiseXor => self.bits(left, &plain, right),
            B::PGLikeMatch => self.like(left, right, None, ("like_pg", false)),
            B::PGNotLikeMatch => self.like(left, right, None, ("like_pg", true)),
            B::PGILikeMatch => self.like(left, right, None, ("ilike_pg", false)),
            B::PGNotILikeMatch => self.like(left, right, None, ("ilike_pg", true)),
            B::PGRegexMatch => self.pattern(left, right, ("like_pg", false)),
            B::PGRegexNotMatch => self.pattern(left, right, ("like_pg", true)),
            B::PGRegexIMatch => self.pattern(left, right, ("ilike_pg", false)),
            B::PGRegexNotIMatch => self.pattern(left, right, ("ilike_pg", true)),
            B::Arrow => self.member(left, right, "json_get_pg", None),
            B::LongArrow => self.member(left, right, "json_text_pg", Some(PgType::Text)),
            B::AtArrow => self.contained(left, right, PgType::Jsonb),
            B::ArrowAt => self.contained(right, left, PgType::Jsonb),
            B::Question => self.contained(left, right, PgType::Text),
            _ => Err(unsupported()),
        }
    }

    /// Whether a document has another one within it, or a key.
    fn contained(&mut self, whole: &Expr, part: &Expr, of: PgType) -> Result<Expression, SqlError> {
        let (whole, part) = (self.expression(whole)?, self.expression(part)?);
        let (whole, part) = (self.typed(whole, PgType::Jsonb)?, self.typed(part, of)?);
        let is_key = of == PgType::Text;
        let fits = if is_key { part.known_or_text().is_text() } else { part.known_or_text() == of };
        if whole.known_or_text() != PgType::Jsonb || !fits {
            return Err(no_operator(&whole, if is_key { "?" } else { "@>" }, &part));
        }
        let function = if is_key { "jsonb_exists_pg" } else { "jsonb_contains_pg" };
        let sql = format!("{function}({}, {})", whole.sql, part.sql);
        Ok(Expression::new(sql, PgType::Bool).nullable_as(&[&whole, &part]))
    }

    /// `a AND b AND c`, without going deeper for each.
    fn chain(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
    ) -> Result<Expression, SqlError> {
        let mut parts = vec![right];
        let mut rest = left;
        while let Expr::BinaryOp { left, op, right } = bare(rest)
            && op == operator
        {
            parts.push(right);
            rest = left;
        }
        parts.push(rest);
        let mut written = Vec::with_capacity(parts.len());
        let mut is_nullable = false;
        for part in parts.iter().rev() {
            let part = self.condition(part, &operator.to_string())?;
            is_nullable |= part.is_nullable;
            written.push(part.atom());
        }
        let sql = written.join(&format!(" {operator} "));
        Ok(Expression { is_nullable, ..Expression::operation(sql, PgType::Bool) })
    }

    /// A value that has to be a boolean.
    pub fn condition(&mut self, expr: &Expr, place: &str) -> Result<Expression, SqlError> {
        let value = self.expression(expr)?;
        let value = self.typed(value, PgType::Bool)?;
        match value.known_or_text() {
            PgType::Bool => Ok(value),
            other => {
                let message =
                    format!("argument of {place} must be type boolean, not type {}", type_name(other));
                Err(SqlError::plain("42804", message))
            }
        }
    }

    fn comparison(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
    ) -> Result<Expression, SqlError> {
        let words = match operator {
            BinaryOperator::NotEq => "<>".to_owned(),
            other => other.to_string(),
        };
        if let Expr::Tuple(parts) = bare(left) {
            return self.rows_compared(parts, &words, right);
        }
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        let (left, right) = self.comparable(left, &words, right)?;
        let sql = format!("{} {words} {}", left.atom(), right.atom());
        Ok(Expression::operation(sql, PgType::Bool).nullable_as(&[&left, &right]))
    }

    fn rows_compared(&mut self, left: &[Expr], words: &str, right: &Expr) -> Result<Expression, SqlError> {
        let Expr::Tuple(right) = bare(right) else {
            let message = "a row can be compared with a row only";
            return Err(SqlError::unsupported(message, "Compare column by column."));
        };
        if left.len() != right.len() {
            return Err(SqlError::plain("42601", "unequal number of entries in row expressions"));
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for (left, right) in left.iter().zip(right) {
            let (left, right) = (self.expression(left)?, self.expression(right)?);
            let (left, right) = self.comparable(left, words, right)?;
            ours.push(left.sql);
            theirs.push(right.sql);
        }
        let sql = format!("({}) {words} ({})", ours.join(", "), theirs.join(", "));
        Ok(Expression::operation(sql, PgType::Bool))
    }

    /// Two values in forms that SQLite compares as PostgreSQL does.
    pub fn comparable(
        &mut self,
        left: Expression,
        operator: &str,
        right: Expression,
    ) -> Result<(Expression, Expression), SqlError> {
        let (left, right) = self.alike(left, right)?;
        let (from, to) = (left.known_or_text(), right.known_or_text());
        if family(from) != family(to) || from == PgType::Json || to == PgType::Json {
            return Err(no_operator(&left, operator, &right));
        }
        if family(from) != Family::Moment || from == to {
            return Ok((left, right));
        }
        // Text of a date is shorter than that of a point in time, and a zone stands at the end of one kind.
        let finer = match (from, to) {
            (PgType::Date, other) | (other, PgType::Date) => other,
            // In UTC either may be converted: not a column, which may have an index.
            _ if left.sql.starts_with('"') => from,
            _ if right.sql.starts_with('"') => to,
            _ => PgType::Timestamptz,
        };
        Ok((converted(left, finer), converted(right, finer)))
    }

    /// Gives the value without a type that of the other one.
    pub fn alike(
        &mut self,
        left: Expression,
        right: Expression,
    ) -> Result<(Expression, Expression), SqlError> {
        match (left.known(), right.known()) {
            (Some(_), Some(_)) => Ok((left, right)),
            (Some(of), None) => Ok((left, self.typed(right, of)?)),
            (None, Some(of)) => Ok((self.typed(left, of)?, right)),
            (None, None) => Ok((self.settled(left)?, self.settled(right)?)),
        }
    }

    fn concatenation(&mut self, left: &Expr, right: &Expr) -> Result<Expression, SqlError> {
        let mut parts = vec![right];
        let mut rest = left;
        while let Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } = bare(rest) {
            parts.push(right);
            rest = left;
        }
        parts.push(rest);
        let (mut written, mut is_nullable, mut has_text) = (Vec::new(), false, false);
        for part in parts.iter().rev() {
            let part = self.expression(part)?;
            let part = self.settled(part)?;
            is_nullable |= part.is_nullable;
            has_text |= part.known_or_text().is_text();
            if matches!(family(part.known_or_text()), Family::Json | Family::Array | Family::Bytes) {
                let message = format!("operator || of {} is not supported", type_name(part.known_or_text()));
                return Err(SqlError::unsupported(message, "Join such values in the client."));
            }
            written.push(self.text_of(part)?.atom());
        }
        if !has_text {
            let hint = "No operator matches the given name and argument types. Cast one to text.";
            return Err(SqlError::new(
                "42883",
                "operator does not exist: || of values that are no text",
                hint,
            ));
        }
        Ok(Expression { is_nullable, ..Expression::operation(written.join(" || "), PgType::Text) })
    }

    /// A value as text.
    pub fn text_of(&mut self, value: Expression) -> Result<Expression, SqlError> {
        let value = self.settled(value)?;
        Ok(if value.known_or_text().is_text() { value } else { converted(value, PgType::Text) })
    }

    /// `+` and its like.
    pub fn arithmetic(
        &mut self,
        left: Expression,
        operator: &BinaryOperator,
        right: Expression,
    ) -> Result<Expression, SqlError> {
        use BinaryOperator as B;
        let words = if *operator == B::PGExp { "^".to_owned() } else { operator.to_string() };
        if left.known().is_none() && right.known().is_none() {
            let message = format!("operator is not unique: unknown {words} unknown");
            let hint =
                "Could not choose a best candidate operator. You might need to add explicit type casts.";
            return Err(SqlError::new("42725", message, hint));
        }
        if let (Some(PgType::Date), B::Plus | B::Minus) = (left.known(), operator) {
            return self.days(left, operator, right);
        }
        let (left, right) = self.alike(left, right)?;
        let (from, to) = (left.known_or_text(), right.known_or_text());
        if family(from) == Family::Moment && family(to) == Family::Moment && *operator == B::Minus {
            let hint = "Subtract extract(epoch from x) of both: it gives seconds.";
            return Err(SqlError::unsupported("intervals are not supported", hint));
        }
        if family(from) != Family::Number || family(to) != Family::Number {
            return Err(no_operator(&left, &words, &right));
        }
        exact_numbers(&left, &right)?;
        let is_integer = from.is_integer() && to.is_integer();
        let of = if is_integer { wider(from, to) } else { PgType::Double };
        let is_safe = right.sql.parse::<i64>().is_ok_and(|number| number > 0);
        let sql = match operator {
            B::PGExp => {
                let sql = format!("power({}, {})", left.sql, right.sql);
                return Ok(Expression::new(sql, PgType::Double).nullable_as(&[&left, &right]));
            }
            // SQLite's gives NULL where PostgreSQL's fails, and computes with integers only.
            B::Divide if !is_safe => format!("divide_pg({}, {})", left.sql, right.sql),
            B::Modulo if !is_safe || !is_integer => format!("mod({}, {})", left.sql, right.sql),
            B::Modulo => format!("{} % {}", left.atom(), right.atom()),
            // SQLite's sums become real numbers where they leave the range.
            B::Plus if of == PgType::Int8 => format!("add_pg({}, {})", left.sql, right.sql),
            B::Minus if of == PgType::Int8 => format!("subtract_pg({}, {})", left.sql, right.sql),
            B::Multiply if of == PgType::Int8 => format!("multiply_pg({}, {})", left.sql, right.sql),
            _ => format!("{} {words} {}", left.atom(), right.atom()),
        };
        Ok(Expression::operation(sql, of).inexact().nullable_as(&[&left, &right]))
    }

    fn days(
        &mut self,
        left: Expression,
        operator: &BinaryOperator,
        right: Expression,
    ) -> Result<Expression, SqlError> {
        let right =
            self.typed(right, if *operator == BinaryOperator::Plus { PgType::Int4 } else { PgType::Date })?;
        let is_nullable = left.is_nullable || right.is_nullable;
        let (sql, of) = match right.known_or_text() {
            PgType::Int2 | PgType::Int4 | PgType::Int8 => {
                let days = if *operator == BinaryOperator::Plus {
                    right.atom()
                } else {
                    format!("-{}", right.atom())
                };
                (format!("add_days_pg({}, {days})", left.sql), PgType::Date)
            }
            PgType::Date if *operator == BinaryOperator::Minus => {
                let sql = format!("CAST(julianday({}) - julianday({}) AS INTEGER)", left.sql, right.sql);
                (sql, PgType::Int4)
            }
            _ => return Err(no_operator(&left, &operator.to_string(), &right)),
        };
        Ok(Expression { is_nullable, ..Expression::new(sql, of) })
    }

    fn bits(&mut self, left: &Expr, operator: &BinaryOperator, right: &Expr) -> Result<Expression, SqlError> {
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        let (left, right) = self.alike(left, right)?;
        let (from, to) = (left.known_or_text(), right.known_or_text());
        if !from.is_integer() || !to.is_integer() {
            return Err(no_operator(&left, &operator.to_string(), &right));
        }
        let (a, b) = (left.atom(), right.atom());
        let sql = match operator {
            BinaryOperator::PGBitwiseXor => format!("xor_pg({a}, {b})"),
            other => format!("{a} {other} {b}"),
        };
        let is_shift =
            matches!(operator, BinaryOperator::PGBitwiseShiftLeft | BinaryOperator::PGBitwiseShiftRight);
        let of = if is_shift { from } else { wider(from, to) };
        Ok(Expression::operation(sql, of).inexact().nullable_as(&[&left, &right]))
    }

    /// `->` and `->>` of JSON.
    fn member(
        &mut self,
        left: &Expr,
        right: &Expr,
        function: &str,
        gives: Option<PgType>,
    ) -> Result<Expression, SqlError> {
        let (left, right) = (self.expression(left)?, self.expression(right)?);
        let left = self.typed(left, PgType::Json)?;
        let right = self.typed(right, PgType::Text)?;
        let is_key = right.known_or_text().is_text() || right.known_or_text().is_integer();
        if family(left.known_or_text()) != Family::Json || !is_key {
            return Err(no_operator(&left, "->", &right));
        }
        let sql = format!("{function}({}, {})", left.sql, right.sql);
        Ok(Expression::new(sql, gives.unwrap_or(left.known_or_text())))
    }

    /// An operator before a value.
    pub fn unary(&mut self, operator: &UnaryOperator, expr: &Expr) -> Result<Expression, SqlError> {
        use UnaryOperator as U;
        if let (U::Minus, Expr::Value(value)) = (operator, expr)
            && let Value::Number(digits, false) = &value.value
        {
            return literals::number(&format!("-{digits}"));
        }
        if *operator == U::Not {
            let value = self.condition(expr, "NOT")?;
            let sql = format!("NOT {}", value.atom());
            return Ok(Expression::operation(sql, PgType::Bool).nullable_as(&[&value]));
        }
        let value = self.expression(expr)?;
        let value = self.typed(value, PgType::Double)?;
        let of = value.known_or_text();
        if family(of) != Family::Number {
            return Err(SqlError::plain(
                "42883",
                format!("operator does not exist: {operator} {}", type_name(of)),
            ));
        }
        let sql = match operator {
            U::Plus => return Ok(value),
            U::Minus => format!("-{}", value.atom()),
            U::BitwiseNot if of.is_integer() => format!("~{}", value.atom()),
            U::PGAbs => format!("abs({})", value.sql),
            _ => {
                let message = format!("operator {operator} is not supported");
                return Err(SqlError::unsupported(message, "Use the function of the same meaning."));
            }
        };
        Ok(Expression::operation(sql, of).inexact().nullable_as(&[&value]))
    }

    /// Whether it is a length of time: a literal, or a multiple of one.
    fn is_interval(&self, expr: &Expr) -> bool {
        match bare(expr) {
            Expr::Interval(_) => true,
            Expr::Cast { data_type, .. } => matches!(data_type, DataType::Interval { .. }),
            Expr::TypedString(typed) => matches!(typed.data_type, DataType::Interval { .. }),
            Expr::BinaryOp { left, op: BinaryOperator::Multiply, right } => {
                self.is_interval(left) || self.is_interval(right)
            }
            _ => false,
        }
    }

    /// A point in time plus or minus a length of time.
    fn shifted(
        &mut self,
        left: &Expr,
        operator: &BinaryOperator,
        right: &Expr,
    ) -> Result<Expression, SqlError> {
        let (moment, span) = match (self.is_interval(left), self.is_interval(right)) {
            (false, true) => (left, right),
            (true, false) if *operator == BinaryOperator::Plus => (right, left),
            _ => return Err(literals::no_interval(&format!("{left} {operator} {right}"))),
        };
        let moment = self.expression(moment)?;
        let moment = self.typed(moment, PgType::Timestamptz)?;
        let of = match moment.known_or_text() {
            PgType::Date => PgType::Timestamp,
            of @ (PgType::Timestamp | PgType::Timestamptz) => of,
            _ => return Err(literals::no_interval(&format!("{left} {operator} {right}"))),
        };
        let moment = converted(moment, of);
        let sign = if *operator == BinaryOperator::Plus { "" } else { "-" };
        let (span, factor) = self.interval(span)?;
        let part = |amount: i64| match (&factor, amount) {
            (_, 0) => "0".to_owned(),
            (None, amount) if sign.is_empty() => amount.to_string(),
            (None, amount) => (-amount).to_string(),
            (Some(factor), amount) => format!("{sign}({amount} * {factor})"),
        };
        let (months, days, microseconds) = (part(span.months), part(span.days), part(span.us));
        let sql = format!("add_interval_pg({}, {months}, {days}, {microseconds})", moment.sql);
        Ok(Expression::new(sql, of).nullable_as(&[&moment]).nullable_if(factor.is_some()))
    }

    fn interval(&mut self, expr: &Expr) -> Result<(Interval, Option<String>), SqlError> {
        match bare(expr) {
            Expr::Interval(interval) => Ok((literals::interval(interval)?, None)),
            Expr::Cast { expr, .. } => match bare(expr) {
                Expr::Value(value) => match &value.value {
                    Value::SingleQuotedString(text) => Ok((Interval::parse(text)?, None)),
                    other => Err(literals::no_interval(&other.to_string())),
                },
                other => Err(literals::no_interval(&other.to_string())),
            },
            Expr::TypedString(typed) => match &typed.value.value {
                Value::SingleQuotedString(text) => Ok((Interval::parse(text)?, None)),
                other => Err(literals::no_interval(&other.to_string())),
            },
            Expr::BinaryOp { left, op: BinaryOperator::Multiply, right } => {
                let (span, factor) = if self.is_interval(left) { (left, right) } else { (right, left) };
                let (span, none) = self.interval(span)?;
                let factor = self.expression(factor)?;
                let factor = self.typed(factor, PgType::Int4)?;
                if none.is_some() || !factor.known_or_text().is_integer() {
                    return Err(literals::no_interval(&expr.to_string()));
                }
                Ok((span, Some(factor.atom())))
            }
            other => Err(literals::no_interval(&other.to_string())),
        }
    }
}

/// Exact decimals are no numbers that SQLite can compute with.
fn exact_numbers(left: &Expression, right: &Expression) -> Result<(), SqlError> {
    let is_literal = |one: &Expression| one.sql.starts_with(|c: char| c.is_ascii_digit() || c == '(');
    let is_exact = |one: &Expression, other: &Expression| {
        one.known_or_text().is_numeric()
            && (is_literal(other) || !matches!(other.known_or_text(), PgType::Double | PgType::Real))
    };
    if is_exact(left, right) || is_exact(right, left) {
        return Err(no_exact_arithmetic());
    }
    Ok(())
}

/// What is refused of `numeric`.
pub fn no_exact_arithmetic() -> SqlError {
    SqlError::unsupported(
        "arithmetic on numeric is not supported: it would not be exact",
        "Keep amounts as bigint in the smallest unit, or cast to double precision.",
    )
}

/// The wider of two types of integers.
pub fn wider(one: PgType, other: PgType) -> PgType {
    let rank = |of: PgType| match of {
        PgType::Int2 => 0,
        PgType::Int4 => 1,
        _ => 2,
    };
    if rank(one) >= rank(other) { one } else { other }
}

/// The type of a column that has values of both types: of UNION, CASE and the like.
pub fn common(one: PgType, other: PgType, what: &str) -> Result<PgType, SqlError> {
    if one == other {
        return Ok(one);
    }
    if family(one) != family(other) {
        let message = format!("{what} types {} and {} cannot be matched", type_name(one), type_name(other));
        return Err(SqlError::plain("42804", message));
    }
    Ok(match family(one) {
        Family::Number if one.is_integer() && other.is_integer() => wider(one, other),
        Family::Number if one.is_numeric() && other.is_integer() => one,
        Family::Number if other.is_numeric() && one.is_integer() => other,
        Family::Number => PgType::Double,
        Family::Text => PgType::Text,
        Family::Moment if one == PgType::Timestamptz || other == PgType::Timestamptz => PgType::Timestamptz,
        Family::Moment => PgType::Timestamp,
        Family::Json => PgType::Jsonb,
        _ => one,
    })
}

/// A literal of a regular expression as a pattern of LIKE; none if it has more than letters, `.`, `.*`, `^` and `$`.
pub fn like_of_pattern(pattern: &str) -> Option<String> {
    let (begin, rest) = match pattern.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => ("%", pattern),
    };
    let (end, rest) = match rest.strip_suffix('$') {
        Some(rest) => ("", rest),
        None => ("%", rest),
    };
    let rest = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest);
    let (mut like, mut chars) = (begin.to_owned(), rest.chars().peekable());
    while let Some(one) = chars.next() {
        match one {
            '.' if chars.peek() == Some(&'*') => {
                chars.next();
                like.push('%');
            }
            '.' => like.push('_'),
            '_' | '%' => like.extend(['\\', one]),
            one if one.is_alphanumeric() || " -/:,@".contains(one) => like.push(one),
            _ => return None,
        }
        // A sign of repetition stands behind what it repeats.
        if chars.peek().is_some_and(|next| "*+?{".contains(*next)) {
            return None;
        }
    }
    like.push_str(end);
    Some(like)
}

impl Expression {
    /// The same, which may be NULL for one more reason.
    pub fn nullable_if(self, is_nullable: bool) -> Self {
        Expression { is_nullable: self.is_nullable || is_nullable, ..self }
    }

    /// Whether its type is still to be said.
    pub fn is_open(&self) -> bool {
        !matches!(self.of, Of::Known(_))
    }
}
