//! Rust source as a list of tokens with their lines, so that no rule takes a comment or a string for code.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A word, a bracket or a mark; literals are empty.
pub struct SourceToken {
    pub text: String,
    /// From 1.
    pub line: usize,
    /// Brackets around it.
    pub depth: usize,
    /// Of a bracket, the index of the other one.
    pub partner: usize,
    /// Whether it never runs in what ships: it is below `#[cfg(test)]`, or the compiler computes it.
    pub is_exempt: bool,
}

/// Reads the text of a Rust file.
pub fn tokens(path: &str, text: &str) -> Vec<SourceToken> {
    let stream = text.parse().unwrap_or_else(|error| panic!("{path}: no Rust source: {error}"));
    let mut code = Vec::new();
    flatten(stream, 0, &mut code);
    let exempt = ["# [ cfg ( test )", "# [ cfg ( all ( test ,", "const _", "const {"];
    for at in exempt.map(|pattern| find(&code, pattern)).concat() {
        let end = item_end(&code, at + 1);
        code[at..=end].iter_mut().for_each(|token| token.is_exempt = true);
    }
    code
}

fn flatten(stream: TokenStream, depth: usize, code: &mut Vec<SourceToken>) {
    for tree in stream {
        let (at, line) = (code.len(), tree.span().start().line);
        let token = |text, line, partner| SourceToken { text, line, depth, partner, is_exempt: false };
        match tree {
            TokenTree::Ident(word) => code.push(token(word.to_string(), line, at)),
            TokenTree::Punct(mark) => code.push(token(mark.to_string(), line, at)),
            TokenTree::Literal(_) => code.push(token(String::new(), line, at)),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace | Delimiter::None => ("{", "}"),
                };
                code.push(token(open.to_owned(), line, at));
                flatten(group.stream(), depth + 1, code);
                code[at].partner = code.len();
                code.push(token(close.to_owned(), group.span_close().start().line, at));
            }
        }
    }
}

/// Where a pattern, whose tokens are separated by blanks, begins.
pub fn find(code: &[SourceToken], pattern: &str) -> Vec<usize> {
    let pattern: Vec<&str> = pattern.split(' ').collect();
    let is_here = |at: &usize| code[*at..].iter().zip(&pattern).all(|(token, text)| token.text == *text);
    (0..(code.len() + 1).saturating_sub(pattern.len())).filter(is_here).collect()
}

/// The word at index `at`; none if a mark is there.
pub fn word(code: &[SourceToken], at: usize) -> Option<&str> {
    let text = code.get(at)?.text.as_str();
    text.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some(text)
}

/// The last token of the item, statement or field in which `at` is, outside of brackets.
fn item_end(code: &[SourceToken], mut at: usize) -> usize {
    let mut is_item = false;
    while let Some(token) = code.get(at) {
        is_item |= ["fn", "mod", "impl", "struct", "enum", "trait"].contains(&token.text.as_str());
        at = match token.text.as_str() {
            "{" => return token.partner,
            "(" | "[" => token.partner + 1,
            "," if is_item => at + 1,
            ";" | "," => return at,
            ")" | "]" | "}" => return at - 1,
            _ => at + 1,
        }
    }
    code.len() - 1
}

/// The braces of the body of the item whose keyword is at index `at`, if it has one.
pub fn body(code: &[SourceToken], at: usize) -> Option<(usize, usize)> {
    let end = item_end(code, at);
    (code[end].text == "}").then(|| (code[end].partner, end))
}
