//! Statements on the session: transactions, parameters, cursors, COPY; and what has no effect here.

use sqlparser::ast::{
    CloseCursor, CommentObject, ContextModifier, Declare, DiscardObject, Expr, FetchDirection, ObjectName,
    Reset, Set, Statement, TransactionAccessMode, TransactionMode, Value,
};

use super::names::{self, folded};
use super::query::Want;
use super::statement::{nothing, one};
use super::translator::{Translator, no_table};
use super::{StatementKind, Translated};
use crate::error::SqlError;
use crate::types::PgType;

fn unsupported(what: &str, hint: &str) -> SqlError {
    SqlError::unsupported(format!("{what} is not supported"), hint)
}

impl Translator<'_> {
    /// A statement that is neither a query nor about the schema.
    pub fn session(&mut self, statement: &Statement, is_move: bool) -> Result<Vec<Translated>, SqlError> {
        match statement {
            Statement::StartTransaction { modes, modifier: None, statements, exception: None, .. }
                if statements.is_empty() =>
            {
                Ok(nothing(StatementKind::Begin { is_read_only: is_read_only(modes) == Some(true) }))
            }
            Statement::Commit { chain, modifier: None, .. } => {
                Ok(nothing(StatementKind::Commit { is_chained: *chain }))
            }
            Statement::Rollback { savepoint: Some(name), .. } => {
                Ok(nothing(StatementKind::RollbackTo(folded(name))))
            }
            Statement::Rollback { chain, savepoint: None } => {
                Ok(nothing(StatementKind::Rollback { is_chained: *chain }))
            }
            // Nothing can be listened to.
            Statement::UNLISTEN { .. } => Ok(nothing(StatementKind::Nothing("UNLISTEN"))),
            Statement::Savepoint { name } => Ok(nothing(StatementKind::Savepoint(folded(name)))),
            Statement::ReleaseSavepoint { name } => Ok(nothing(StatementKind::Release(folded(name)))),
            Statement::Set(set) => self.set(set),
            Statement::ShowVariable { variable } => {
                Ok(show(&variable.iter().map(folded).collect::<Vec<_>>()))
            }
            Statement::Reset(reset) => Ok(nothing(match &reset.reset {
                Reset::ALL => StatementKind::Reset(None),
                Reset::SessionAuthorization => StatementKind::Reset(Some("session_authorization".to_owned())),
                Reset::ConfigurationParameter(name) => StatementKind::Reset(Some(parameter_name(name)?)),
            })),
            Statement::Discard { object_type: DiscardObject::ALL } => Ok(nothing(StatementKind::DiscardAll)),
            Statement::Discard { object_type } => Ok(nothing(StatementKind::Nothing(match object_type {
                DiscardObject::PLANS => "DISCARD PLANS",
                DiscardObject::SEQUENCES => "DISCARD SEQUENCES",
                _ => "DISCARD TEMP",
            }))),
            Statement::Deallocate { name, .. } => {
                let is_all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
                Ok(nothing(StatementKind::Deallocate((!is_all).then(|| folded(name)))))
            }
            Statement::Declare { .. } | Statement::Fetch { .. } | Statement::Close { .. } => {
                self.cursor(statement, is_move)
            }
            Statement::Copy { .. } => self.copy(statement),
            other => self.without_effect(other),
        }
    }

    fn set(&mut self, set: &Set) -> Result<Vec<Translated>, SqlError> {
        let kind = match set {
            Set::SingleAssignment { scope, hivevar: false, variable, values } => StatementKind::Set {
                name: parameter_name(variable)?,
                value: setting(values)?,
                is_local: *scope == Some(ContextModifier::Local),
            },
            Set::SetTimeZone { local, value } => StatementKind::Set {
                name: "timezone".to_owned(),
                value: setting(std::slice::from_ref(value))?,
                is_local: *local,
            },
            Set::SetNames { charset_name, collation_name: None } => StatementKind::Set {
                name: "client_encoding".to_owned(),
                value: Some(charset_name.value.clone()),
                is_local: false,
            },
            Set::SetTransaction { modes, snapshot: None, session } => {
                StatementKind::SetTransaction { is_read_only: is_read_only(modes), is_for_session: *session }
            }
            Set::SetRole { .. } | Set::SetSessionAuthorization(_) => {
                return Err(unsupported("SET ROLE", "Connect as the user that you want to be."));
            }
            other => return Err(unsupported(&format!("{other}"), "Set one parameter: SET name = value.")),
        };
        Ok(nothing(kind))
    }

    fn cursor(&mut self, statement: &Statement, is_move: bool) -> Result<Vec<Translated>, SqlError> {
        match statement {
            Statement::Declare { stmts, .. } => {
                let [Declare { names, binary, scroll, hold, for_query: Some(query), .. }] = &stmts[..] else {
                    return Err(unsupported("this DECLARE", "Use DECLARE name CURSOR FOR SELECT ..."));
                };
                if *binary == Some(true) {
                    return Err(unsupported("BINARY in DECLARE", "Ask for binary results in the protocol."));
                }
                if *scroll == Some(true) {
                    return Err(unsupported("a cursor that reads backwards", "Leave SCROLL out."));
                }
                let name = names.first().map_or_else(String::new, folded);
                let rows = self.query(query, &Want::default())?;
                let columns = rows.described();
                Ok(one(
                    rows.sql,
                    Some(columns),
                    StatementKind::Declare { name, is_held: *hold == Some(true) },
                ))
            }
            Statement::Fetch { name, direction, into: None, .. } => {
                Ok(nothing(StatementKind::Fetch { name: folded(name), count: fetched(direction)?, is_move }))
            }
            Statement::Close { cursor: CloseCursor::All } => Ok(nothing(StatementKind::CloseCursor(None))),
            Statement::Close { cursor: CloseCursor::Specific { name } } => {
                Ok(nothing(StatementKind::CloseCursor(Some(folded(name)))))
            }
            other => Err(unsupported(&other.to_string(), "Use FETCH count FROM name.")),
        }
    }

    /// What is accepted though it does nothing, where that is no lie; anything else is refused.
    fn without_effect(&mut self, statement: &Statement) -> Result<Vec<Translated>, SqlError> {
        let tag = match statement {
            // Comments are for readers of the catalogue: they are not kept.
            Statement::Comment { object_type, object_name, .. } => {
                if *object_type == CommentObject::Table {
                    let name = names::object(object_name)?;
                    self.tables.columns(&name).ok_or_else(|| no_table(&name))?;
                }
                "COMMENT"
            }
            // Writers run one at a time.
            Statement::Lock(_) => "LOCK TABLE",
            Statement::CreateExtension(extension) => {
                let name = folded(&extension.name);
                let has =
                    ["plpgsql", "pgcrypto", "uuid-ossp"].contains(&name.as_str()) && extension.if_not_exists;
                if !has {
                    let message = format!("extension \"{name}\" is not available");
                    return Err(SqlError::plain("0A000", message));
                }
                "CREATE EXTENSION"
            }
            Statement::CreateSchema { schema_name, if_not_exists: true, .. }
                if schema_name.to_string().eq_ignore_ascii_case("public") =>
            {
                "CREATE SCHEMA"
            }
            other => return Err(refused(other)),
        };
        Ok(nothing(StatementKind::Nothing(tag)))
    }
}

fn refused(statement: &Statement) -> SqlError {
    match statement {
        Statement::Prepare { .. } => {
            unsupported("PREPARE", "Prepare statements in the protocol, as drivers do.")
        }
        Statement::Execute { .. } => {
            unsupported("EXECUTE", "Prepare statements in the protocol, as drivers do.")
        }
        Statement::LISTEN { .. } | Statement::NOTIFY { .. } => {
            unsupported("LISTEN and NOTIFY", "Ask for what is new: SELECT .. WHERE id > the last one.")
        }
        Statement::Grant(_) | Statement::Revoke(_) | Statement::GrantRole(_) | Statement::RevokeRole(_) => {
            unsupported("GRANT and REVOKE", "Every user of the database may do everything.")
        }
        Statement::CreateRole(_) | Statement::CreateUser(_) | Statement::AlterRole { .. } => {
            unsupported("a change of users", "Users are those of the server's configuration.")
        }
        Statement::CreateSchema { .. } => {
            unsupported("CREATE SCHEMA", "All tables are in the schema public.")
        }
        Statement::CreateDatabase { .. } => {
            unsupported("CREATE DATABASE", "A group of replicas has one database.")
        }
        Statement::CreateType { .. } | Statement::CreateDomain(_) => {
            unsupported("a type of one's own", "Use text with a CHECK.")
        }
        Statement::CreateFunction(_) | Statement::CreateProcedure { .. } | Statement::Call(_) => {
            unsupported("a function of one's own", "Compute in the client.")
        }
        Statement::CreateTrigger(_) | Statement::CreateRule(_) => {
            unsupported("a trigger or rule", "Send what it would do in the same transaction.")
        }
        Statement::Merge(_) => unsupported("MERGE", "Use INSERT .. ON CONFLICT DO UPDATE."),
        Statement::RefreshMaterializedView(_) => {
            unsupported("a materialized view", "Use a view, or fill a table.")
        }
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            unsupported(&words.join(" "), "The documentation lists the statements there are.")
        }
    }
}

fn is_read_only(modes: &[TransactionMode]) -> Option<bool> {
    modes.iter().rev().find_map(|mode| match mode {
        TransactionMode::AccessMode(access) => Some(*access == TransactionAccessMode::ReadOnly),
        // Every transaction is serializable, which is more than any level asks for.
        TransactionMode::IsolationLevel(_) => None,
    })
}

fn parameter_name(name: &ObjectName) -> Result<String, SqlError> {
    let (prefix, name) = names::parts(name)?;
    let own = prefix.map_or(name.clone(), |prefix| format!("{prefix}.{name}"));
    Ok(own.to_lowercase())
}

/// The value of a parameter; none is the default.
fn setting(values: &[Expr]) -> Result<Option<String>, SqlError> {
    let mut parts = Vec::with_capacity(values.len());
    for value in values {
        parts.push(match value {
            Expr::Identifier(word)
                if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("default") =>
            {
                return Ok(None);
            }
            Expr::Identifier(word) => word.value.clone(),
            Expr::Value(value) => match &value.value {
                Value::Placeholder(_) => {
                    return Err(SqlError::plain("42601", "syntax error at or near \"$\""));
                }
                Value::Number(digits, _) => digits.clone(),
                Value::Boolean(value) => if *value { "on" } else { "off" }.to_owned(),
                other => other.clone().into_string().unwrap_or_else(|| other.to_string()),
            },
            other => other.to_string(),
        });
    }
    Ok(Some(parts.join(", ")))
}

fn show(words: &[String]) -> Vec<Translated> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let name = match words[..] {
        ["all"] => None,
        ["transaction", "isolation", "level"] => Some("transaction_isolation".to_owned()),
        ["time", "zone"] => Some("timezone".to_owned()),
        ["session", "authorization"] => Some("session_authorization".to_owned()),
        _ => Some(words.join(".")),
    };
    let column = |name: &str| (name.to_owned(), PgType::Text);
    let columns = match &name {
        Some(name) => vec![column(if name == "timezone" { "TimeZone" } else { name })],
        None => ["name", "setting", "description"].map(column).to_vec(),
    };
    one(String::new(), Some(columns), StatementKind::Show(name))
}

fn fetched(direction: &FetchDirection) -> Result<Option<u64>, SqlError> {
    let backwards = || unsupported("FETCH backwards", "Fetch forwards: FETCH count FROM name.");
    let number = |limit: &sqlparser::ast::ValueWithSpan| match &limit.value {
        Value::Number(digits, _) => digits.parse().map_err(|_| backwards()),
        _ => Err(backwards()),
    };
    Ok(match direction {
        FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => {
            Some(number(limit)?)
        }
        FetchDirection::Next | FetchDirection::Forward { limit: None } => Some(1),
        FetchDirection::All | FetchDirection::ForwardAll => None,
        _ => return Err(backwards()),
    })
}
