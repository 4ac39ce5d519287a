//! An expression that is written for SQLite, with what is known of its value.

use crate::types::PgType;

/// What is known of the type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// This one.
    Known(PgType),
    /// Of a string or NULL without a type: what it is compared with or assigned to says.
    Literal(Option<String>),
    /// Of the parameter with this index: nothing has said it yet.
    Parameter(usize),
}

/// An expression for SQLite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// What SQLite computes.
    pub sql: String,
    /// Its type.
    pub of: Of,
    /// Whether it can stand beside an operator without brackets.
    pub is_atom: bool,
    /// Whether it may be NULL.
    pub is_nullable: bool,
    /// Whether it is kept as its type is: arithmetic may leave the range, and length of its type.
    pub is_exact: bool,
}

impl Expression {
    /// What SQLite keeps as this type says: a column, a parameter, a call.
    pub fn new(sql: String, of: PgType) -> Self {
        Expression { sql, of: Of::Known(of), is_atom: true, is_nullable: true, is_exact: true }
    }

    /// An operator and what it is between.
    pub fn operation(sql: String, of: PgType) -> Self {
        Expression { is_atom: false, ..Expression::new(sql, of) }
    }

    /// A number or the like.
    pub fn constant(sql: String, of: PgType) -> Self {
        Expression { is_nullable: false, ..Expression::new(sql, of) }
    }

    /// The result of arithmetic, which may leave the range of its type.
    pub fn inexact(self) -> Self {
        Expression { is_exact: false, ..self }
    }

    /// The same, which may be NULL only if one of these may.
    pub fn nullable_as(self, parts: &[&Expression]) -> Self {
        Expression { is_nullable: parts.iter().any(|part| part.is_nullable), ..self }
    }

    /// Its type, if something has said it.
    pub fn known(&self) -> Option<PgType> {
        match self.of {
            Of::Known(of) => Some(of),
            _ => None,
        }
    }

    /// Its type, or that of a string that nothing says more about.
    pub fn known_or_text(&self) -> PgType {
        self.known().unwrap_or(PgType::Text)
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        self.of == Of::Literal(None)
    }

    /// The text to stand beside an operator.
    pub fn atom(&self) -> String {
        if self.is_atom { self.sql.clone() } else { format!("({})", self.sql) }
    }
}
