//! Reads Rust text just well enough to tell code from comments and strings, and to find where a function ends.

/// `source` with every comment, string and character literal blanked out: same length, same lines.
pub fn mask(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' | b'b' | b'c' if starts_word(bytes, at) => match raw_string_end(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            b'\'' => match char_end(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1; // a lifetime
                    continue;
                }
            },
            _ => {
                at += 1;
                continue;
            }
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).expect("whole literals are blanked, so no character is cut")
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Whether no identifier runs into position `at`.
fn starts_word(bytes: &[u8], at: usize) -> bool {
    at == 0 || !is_word(bytes[at - 1])
}

/// End of a raw string `r"…"`, `br#"…"#`, `cr"…"` that starts at `at`, if one does.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut open = at;
    if matches!(bytes[open], b'b' | b'c') {
        open += 1;
    }
    if bytes.get(open) != Some(&b'r') {
        return None; // b"…" and b'…' are found at their quote
    }
    open += 1;
    let hashes = bytes[open..].iter().take_while(|&&b| b == b'#').count();
    if bytes.get(open + hashes) != Some(&b'"') {
        return None;
    }
    let mut end = open + hashes + 1;
    while end < bytes.len() {
        if bytes[end] == b'"'
            && bytes[end + 1..].iter().take(hashes).filter(|&&b| b == b'#').count() == hashes
        {
            return Some(end + 1 + hashes);
        }
        end += 1;
    }
    Some(bytes.len())
}

/// End of a character literal that starts at `at`; `None` for a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes[at + 3..].iter().position(|&b| b == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let width = std::str::from_utf8(&bytes[at + 1..]).ok()?.chars().next()?.len_utf8();
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + width + 2)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Line, from 1, of byte `at`.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&b| b == b'\n').count() + 1
}

/// Byte positions at which `needle` stands in masked text, not as part of a longer word.
pub fn find_words(masked: &str, needle: &str) -> Vec<usize> {
    let bytes = masked.as_bytes();
    masked
        .match_indices(needle)
        .filter(|&(at, _)| {
            let end = at + needle.len();
            let open = !needle.starts_with(|c: char| c.is_alphanumeric()) || starts_word(bytes, at);
            let close = !needle.ends_with(|c: char| c.is_alphanumeric())
                || bytes.get(end).is_none_or(|&b| !is_word(b));
            open && close
        })
        .map(|(at, _)| at)
        .collect()
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionText {
    /// Its name.
    pub name: String,
    /// Line of the word `fn`, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace, both counted.
    pub length: usize,
}

/// The identifier that follows byte `at`, which is the end of a keyword; empty if none does.
pub fn name_after(masked: &str, at: usize) -> String {
    masked[at..].trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The text before byte `at` in its line.
pub fn before_in_line(masked: &str, at: usize) -> &str {
    &masked[masked[..at].rfind('\n').map_or(0, |newline| newline + 1)..at]
}

/// All functions with a body in masked text.
pub fn functions(masked: &str) -> Vec<FunctionText> {
    find_words(masked, "fn")
        .into_iter()
        .filter_map(|at| {
            let name = name_after(masked, at + 2);
            let (_, close) = body(masked, at)?;
            let (line, last) = (line_of(masked, at), line_of(masked, close));
            (!name.is_empty()).then_some(FunctionText { name, line, length: last - line + 1 })
        })
        .collect()
}

/// The braces of the first body that opens after `at`, unless a `;` outside of brackets comes first.
pub fn body(masked: &str, at: usize) -> Option<(usize, usize)> {
    let bytes = masked.as_bytes();
    let mut nested = 0i32;
    let open = (at..bytes.len()).find_map(|here| {
        match bytes[here] {
            b'(' | b'[' => nested += 1,
            b')' | b']' => nested -= 1,
            b'{' if nested == 0 => return Some(Some(here)),
            b';' if nested == 0 => return Some(None),
            _ => {}
        }
        (nested < 0).then_some(None) // a function type inside of brackets
    })??;
    let mut depth = 0i32;
    let close = (open..bytes.len()).find(|&here| {
        depth += i32::from(bytes[here] == b'{') - i32::from(bytes[here] == b'}');
        depth == 0
    })?;
    Some((open, close))
}

/// Masked text with the bodies of test modules (`#[cfg(test)] mod …`, also `all(test, …)`) blanked out.
pub fn without_tests(masked: &str) -> String {
    let mut out = masked.as_bytes().to_vec();
    for (at, _) in masked.match_indices("#[cfg(") {
        let Some(length) = masked[at..].find(")]") else { continue };
        let condition = &masked[at + 6..at + length];
        let after = masked[at + length + 2..].trim_start();
        if find_words(condition, "test").is_empty()
            || !(after.starts_with("mod ") || after.starts_with("pub mod "))
        {
            continue;
        }
        if let Some((open, close)) = body(masked, at + length + 2) {
            for byte in &mut out[open..=close] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
    }
    String::from_utf8(out).expect("blanking keeps text valid: whole module bodies are replaced")
}
