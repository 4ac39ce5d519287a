//! Splits the text of a query into statements and parses each, within bounds of depth.

use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};

use crate::error::SqlError;

/// Steps of the parser within one another, at most: a subquery is two of them.
const MAX_DEPTH: usize = 32;
/// Operators in a row, at most: each makes the tree deeper by one. SQLite's own limit is 1,000.
const MAX_CHAIN: usize = 800;

/// A statement of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedStatement {
    pub(super) tree: ReadStatement,
}

/// A statement as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReadStatement {
    /// By the parser.
    Parsed(Box<Statement>),
    /// `MOVE`, which is parsed as `FETCH`.
    Move(Box<Statement>),
    /// By its first words: nothing is done, which is no loss.
    Nothing(&'static str),
    /// `SET CONSTRAINTS .. DEFERRED`
    DeferConstraints,
}

/// Parses a query. Empty statements are left out.
///
/// # Errors
/// 42601 if it is no statement of PostgreSQL's, 54001 if it is nested too deeply.
pub fn statements(text: &str) -> Result<Vec<ParsedStatement>, SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| syntax(text, &error.message, Some(error.location)))?;
    let parts = tokens.split(|token| token.token == Token::SemiColon);
    let parts = parts.filter(|part| part.iter().any(|token| !is_blank(&token.token)));
    parts.map(|part| one(text, part)).collect()
}

/// `FREEZE on` says the same as `FREEZE`, which the parser knows.
fn without_on(tokens: &mut Vec<TokenWithSpan>) {
    let mut is_behind = false;
    tokens.retain(|token| {
        let word = word(token);
        let drops = is_behind && word.as_deref() == Some("on");
        is_behind = word.as_deref() == Some("freeze") || is_behind && is_blank(&token.token);
        !drops
    });
}

fn is_blank(token: &Token) -> bool {
    matches!(token, Token::Whitespace(_) | Token::EOF)
}

fn one(text: &str, tokens: &[TokenWithSpan]) -> Result<ParsedStatement, SqlError> {
    bounded(tokens)?;
    let mut tokens: Vec<TokenWithSpan> =
        tokens.iter().filter(|token| !is_comment(&token.token)).cloned().collect();
    let words: Vec<String> = tokens.iter().filter(|token| !is_blank(&token.token)).map_while(word).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_move = words.first() == Some(&"move");
    match words[..] {
        // Pages that are free are used again, and there are no statistics.
        ["vacuum", ..] => return Ok(ParsedStatement { tree: ReadStatement::Nothing("VACUUM") }),
        ["analyze" | "analyse", ..] => {
            return Ok(ParsedStatement { tree: ReadStatement::Nothing("ANALYZE") });
        }
        ["reindex", ..] => return Ok(ParsedStatement { tree: ReadStatement::Nothing("REINDEX") }),
        ["checkpoint"] => return Ok(ParsedStatement { tree: ReadStatement::Nothing("CHECKPOINT") }),
        // What is deferred is checked at the end of the transaction at the latest.
        ["set", "constraints", .., "immediate"] => {
            return Ok(ParsedStatement { tree: ReadStatement::Nothing("SET CONSTRAINTS") });
        }
        ["set", "constraints", .., "deferred"] => {
            return Ok(ParsedStatement { tree: ReadStatement::DeferConstraints });
        }
        ["begin" | "start" | "set", .., "deferrable"] => without_deferrable(&mut tokens),
        ["copy", ..] => without_on(&mut tokens),
        ["move", ..] => replace_first(&mut tokens, "FETCH"),
        ["abort", ..] => replace_first(&mut tokens, "ROLLBACK"),
        _ => {}
    }
    let parser = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(MAX_DEPTH);
    let mut parser = parser.with_tokens_with_locations(tokens);
    let tree = parser.parse_statement().map_err(|error| parse_error(text, error))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(near(text, &next.token.to_string(), Some(next.span.start)));
    }
    let tree = Box::new(tree);
    Ok(ParsedStatement {
        tree: if is_move { ReadStatement::Move(tree) } else { ReadStatement::Parsed(tree) },
    })
}

/// A word in lower case; marks between names are words too.
fn word(token: &TokenWithSpan) -> Option<String> {
    match &token.token {
        Token::Word(word) => Some(word.value.to_ascii_lowercase()),
        Token::Comma | Token::Period => Some(",".to_owned()),
        _ => None,
    }
}

/// `DEFERRABLE` asks to wait until a transaction that reads cannot fail: none does here.
fn without_deferrable(tokens: &mut Vec<TokenWithSpan>) {
    let is_of_it = |token: &TokenWithSpan| {
        is_blank(&token.token) || word(token).is_some_and(|word| ["deferrable", "not", ","].contains(&&*word))
    };
    while tokens.last().is_some_and(is_of_it) {
        tokens.pop();
    }
}

/// Writes what the parser does not know in a word that it knows.
fn replace_first(tokens: &mut [TokenWithSpan], keyword: &str) {
    if let Some(first) = tokens.iter_mut().find(|token| !is_blank(&token.token)) {
        first.token = Token::make_keyword(keyword);
    }
}

fn is_comment(token: &Token) -> bool {
    matches!(token, Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)))
}

/// A tree that is too deep would overflow the stack of whoever drops it. The parser bounds brackets and queries; rows
/// of operators are bounded here, before there is a tree.
fn bounded(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let (mut open, mut here, mut around) = (Vec::new(), 0_usize, 0_usize);
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => {
                open.push(here);
                around += here;
                here = 0;
            }
            Token::RParen | Token::RBracket => {
                here = open.pop().unwrap_or(0);
                around -= here;
                // What stands in brackets behind something may make the tree deeper, too.
                here += 1;
            }
            Token::Comma => here = 0,
            Token::Word(word) if word.keyword != Keyword::NoKeyword => here += 1,
            token if is_operator(token) => here += 1,
            _ => {}
        }
        if around + here > MAX_CHAIN {
            let hint = "Use IN (..) or = ANY (..) in place of many conditions.";
            return Err(SqlError::new("54001", "an expression has too many operators in a row", hint));
        }
    }
    Ok(())
}

fn is_operator(token: &Token) -> bool {
    use Keyword::{
        AND, BETWEEN, CASE, COLLATE, EXCEPT, ILIKE, IN, INTERSECT, IS, JOIN, LIKE, NOT, OR, UNION,
    };
    match token {
        Token::Word(word) => {
            [AND, BETWEEN, CASE, COLLATE, EXCEPT, ILIKE, IN, INTERSECT, IS, JOIN, LIKE, NOT, OR, UNION]
                .contains(&word.keyword)
        }
        Token::Whitespace(_) | Token::EOF | Token::Number(..) | Token::Placeholder(_) | Token::Period => {
            false
        }
        Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) | Token::EscapedStringLiteral(_) => false,
        _ => true,
    }
}

fn parse_error(text: &str, error: ParserError) -> SqlError {
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            let hint = "Use fewer brackets and subqueries within one another.";
            return SqlError::new("54001", "the statement is nested too deeply", hint);
        }
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let (what, place) = match message.rsplit_once(" at Line: ") {
        Some((what, place)) => (what, location(place)),
        None => (message.as_str(), None),
    };
    match what.rsplit_once(", found: ") {
        Some((_, "EOF")) => SqlError::plain("42601", "syntax error at end of input").at(end(text)),
        Some((_, found)) => near(text, found, place),
        None => syntax(text, what, place),
    }
}

/// From `3, Column: 7`.
fn location(place: &str) -> Option<Location> {
    let (line, column) = place.split_once(", Column: ")?;
    Some(Location { line: line.trim().parse().ok()?, column: column.trim().parse().ok()? })
}

fn near(text: &str, found: &str, place: Option<Location>) -> SqlError {
    syntax(text, &format!("syntax error at or near \"{found}\""), place)
}

fn syntax(text: &str, message: &str, place: Option<Location>) -> SqlError {
    SqlError::plain("42601", message).at(place.and_then(|place| position(text, place)))
}

fn end(text: &str) -> Option<u32> {
    u32::try_from(text.chars().count() + 1).ok()
}

/// In characters from the beginning of the text, from 1.
fn position(text: &str, place: Location) -> Option<u32> {
    let before = usize::try_from(place.line).ok()?.checked_sub(1)?;
    let lines: usize = text.split_inclusive('\n').take(before).map(|line| line.chars().count()).sum();
    u32::try_from(lines).ok()?.checked_add(u32::try_from(place.column).ok()?)
}
