//! COPY: rows as text or CSV, from the client into a table, or to it.

use sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, ObjectName, Statement,
};

use super::coerce::call;
use super::expression::Expression;
use super::names::{self, folded, quoted, quoted_list};
use super::query::Want;
use super::statement::one;
use super::translator::Translator;
use super::{Column, CopyFormat, StatementKind, Translated};
use crate::error::SqlError;
use crate::types::PgType;

fn unsupported(what: &str, hint: &str) -> SqlError {
    SqlError::unsupported(format!("{what} is not supported"), hint)
}

impl Translator<'_> {
    /// `COPY t FROM STDIN` and `COPY .. TO STDOUT`.
    pub fn copy(&mut self, statement: &Statement) -> Result<Vec<Translated>, SqlError> {
        let Statement::Copy { source, to, target, options, legacy_options, payload: _ } = statement else {
            return Err(unsupported("this COPY", "Use COPY t FROM STDIN."));
        };
        let format = format(options, legacy_options)?;
        match (source, to, target) {
            (CopySource::Table { table_name, columns }, false, CopyTarget::Stdin) => {
                self.copy_in(table_name, columns, format)
            }
            (CopySource::Table { table_name, columns }, true, CopyTarget::Stdout) => {
                let table = names::object(table_name)?;
                let columns = self.copied(&table, columns)?;
                let list = quoted_list(columns.iter().map(|column| &column.name));
                let described = columns.into_iter().map(|column| (column.name, column.of)).collect();
                let sql = format!("SELECT {list} FROM {}", quoted(&table));
                Ok(one(sql, Some(described), StatementKind::CopyOut(format)))
            }
            (CopySource::Query(query), true, CopyTarget::Stdout) => {
                let rows = self.query(query, &Want::default())?;
                let columns = rows.described();
                Ok(one(rows.sql, Some(columns), StatementKind::CopyOut(format)))
            }
            _ => Err(unsupported(
                "COPY with a file or program",
                "Use FROM STDIN and TO STDOUT; psql has \\copy.",
            )),
        }
    }

    fn copied(&self, table: &str, columns: &[Ident]) -> Result<Vec<Column>, SqlError> {
        let all = self.target(table)?;
        if columns.is_empty() {
            return Ok(all);
        }
        let find = |name: &Ident| {
            let name = folded(name);
            let column = all.iter().find(|column| column.name == name).cloned();
            let message = format!("column \"{name}\" of relation \"{table}\" does not exist");
            column.ok_or_else(|| SqlError::plain("42703", message))
        };
        columns.iter().map(find).collect()
    }

    /// Fields are text, which each column's function reads.
    fn copy_in(
        &mut self,
        name: &ObjectName,
        columns: &[Ident],
        format: CopyFormat,
    ) -> Result<Vec<Translated>, SqlError> {
        let table = names::object(name)?;
        let all = self.target(&table)?;
        let columns = self.copied(&table, columns)?;
        self.must_be_given(&table, &all, &columns)?;
        let mut values = Vec::with_capacity(columns.len());
        for (at, column) in columns.iter().enumerate() {
            self.parameter(&format!("${}", at + 1))?;
            self.set_parameter(at, PgType::Text);
            let field = format!("?{}", at + 1);
            let sql = if column.of == PgType::Text { field } else { call(column.of, &field) };
            let value = Expression::new(sql, column.of);
            values.push(self.never_null(value, column, &table).sql);
        }
        let list = quoted_list(columns.iter().map(|column| &column.name));
        let sql = format!("INSERT INTO {} ({list}) VALUES ({})", quoted(&table), values.join(", "));
        let described = columns.into_iter().map(|column| (column.name, column.of)).collect();
        Ok(one(sql, Some(described), StatementKind::CopyIn(format)))
    }
}

fn format(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<CopyFormat, SqlError> {
    let hint = "There are FORMAT, HEADER, DELIMITER, NULL, QUOTE and ESCAPE.";
    let is_csv = |name: &Ident| match folded(name).as_str() {
        "text" => Ok(false),
        "csv" => Ok(true),
        other => Err(unsupported(&format!("COPY format \"{other}\""), "Use text or csv.")),
    };
    let mut csv = legacy.iter().any(|option| matches!(option, CopyLegacyOption::Csv(_)));
    for option in options {
        if let CopyOption::Format(name) = option {
            csv = is_csv(name)?;
        }
    }
    let (delimiter, null) = if csv { (',', "") } else { ('\t', "\\N") };
    let null = null.to_owned();
    let mut read = CopyFormat { is_csv: csv, has_header: false, delimiter, null, quote: '"', escape: '"' };
    let mut escape = None;
    for option in options {
        match option {
            CopyOption::Format(_) | CopyOption::Freeze(_) => {}
            CopyOption::Header(has) => read.has_header = *has,
            CopyOption::Delimiter(by) => read.delimiter = *by,
            CopyOption::Null(text) => read.null.clone_from(text),
            CopyOption::Quote(by) => read.quote = *by,
            CopyOption::Escape(by) => escape = Some(*by),
            CopyOption::Encoding(name) if ["utf8", "utf-8"].contains(&name.to_lowercase().as_str()) => {}
            other => return Err(unsupported(&format!("{other} in COPY"), hint)),
        }
    }
    if ![read.delimiter, read.quote, escape.unwrap_or('"')].iter().all(char::is_ascii) {
        return Err(unsupported("a delimiter of COPY that is not ASCII", "Use a comma or a tab."));
    }
    for option in legacy {
        match option {
            CopyLegacyOption::Delimiter(by) => read.delimiter = *by,
            CopyLegacyOption::Null(text) => read.null.clone_from(text),
            CopyLegacyOption::Header => read.has_header = true,
            CopyLegacyOption::Csv(parts) => {
                for part in parts {
                    match part {
                        CopyLegacyCsvOption::Header => read.has_header = true,
                        CopyLegacyCsvOption::Quote(by) => read.quote = *by,
                        CopyLegacyCsvOption::Escape(by) => escape = Some(*by),
                        other => return Err(unsupported(&format!("{other} in COPY"), hint)),
                    }
                }
            }
            other => return Err(unsupported(&format!("{other} in COPY"), hint)),
        }
    }
    read.escape = escape.unwrap_or(read.quote);
    Ok(read)
}
