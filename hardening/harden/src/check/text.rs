//! What a C file defines, declares and calls, read from its text behind the preprocessor: the call graph of a program,
//! in which its handlers are followed, needs no compiler.
//!
//! C is not parsed here. Tokens are enough to find functions, calls by name and attributes. What a call by name cannot
//! show, the compiler says.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What begins a handler, once SEI_BEGIN is expanded.
pub const BEGIN: &str = "__transaction_atomic";

/// A file behind the preprocessor.
#[derive(Debug)]
pub struct Text<'a> {
    /// The text.
    pub text: &'a str,
    lines: CodeLines<'a>,
    /// Functions with a body.
    pub functions: Vec<Function<'a>>,
    /// Functions that are declared, with or without a body.
    pub declared: BTreeMap<&'a str, Attributes>,
    /// Functions that the compiler replaces by others in handlers.
    pub wrapped: BTreeSet<&'a str>,
}

/// What declarations of a function say about handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// SEI_LOCAL.
    pub is_local: bool,
    /// SEI_SAFE.
    pub is_safe: bool,
}

/// A function with a body.
#[derive(Debug)]
pub struct Function<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether other files cannot call it.
    pub is_static: bool,
    /// Where its definition begins.
    pub begin: usize,
    /// Where its name stands.
    pub at: usize,
    /// From its opening brace to behind the closing one.
    pub body: Range<usize>,
    /// Calls by name, in order.
    pub calls: Vec<CallSite<'a>>,
    /// Names of it that are not called, such as a function that is passed on.
    pub mentions: Vec<&'a str>,
    /// Handlers that begin here: where, from [`BEGIN`] to the closing brace.
    pub handlers: Vec<Range<usize>>,
}

/// A call by name.
#[derive(Clone, Copy, Debug)]
pub struct CallSite<'a> {
    /// What is called: a function, or a variable that points to one.
    pub name: &'a str,
    /// Where the name stands.
    pub at: usize,
}

impl<'a> Function<'a> {
    fn of(name: &'a str) -> Function<'a> {
        Function {
            name,
            is_static: false,
            begin: 0,
            at: 0,
            body: 0..0,
            calls: Vec::new(),
            mentions: Vec::new(),
            handlers: Vec::new(),
        }
    }

    /// Whether a place of its body lies in a handler.
    pub fn is_in_handler(&self, at: usize) -> bool {
        self.handlers.iter().any(|handler| handler.contains(&at))
    }
}

impl<'a> Text<'a> {
    /// Reads a text.
    pub fn read(text: &'a str) -> Text<'a> {
        let (all, lines) = CodeTokens::all(text);
        let mut read =
            Text { text, lines, functions: Vec::new(), declared: BTreeMap::new(), wrapped: BTreeSet::new() };
        let mut at = 0;
        while at < all.len() {
            at = read.declaration(&all, at);
        }
        read
    }

    /// File and line of a place.
    pub fn place(&self, at: usize) -> (&'a str, usize) {
        self.lines.place(self.text, at)
    }

    /// The function whose body has this line of this file.
    pub fn function_at(&self, file: &str, line: usize) -> Option<&Function<'a>> {
        let has_line = |function: &&Function<'a>| {
            let (first, last) = (self.place(function.at), self.place(function.body.end - 1));
            first.0 == file && last.0 == file && (first.1..=last.1).contains(&line)
        };
        self.functions.iter().find(has_line)
    }

    /// What stands in a line of a file, without blanks around it.
    pub fn line(&self, file: &str, line: usize) -> Option<&'a str> {
        let at = self.lines.offset(self.text, file, line)?;
        let rest = &self.text[at..];
        Some(rest.lines().next().unwrap_or(rest).trim())
    }

    /// What is known of a function by its declarations.
    pub fn attributes(&self, name: &str) -> Attributes {
        self.declared.get(name).copied().unwrap_or_default()
    }

    /// Reads one declaration at the outermost level; returns where the next one begins.
    fn declaration(&mut self, tokens: &[CodeToken<'a>], begin: usize) -> usize {
        let mut head = Head::default();
        let mut at = begin;
        while let Some(&(offset, token)) = tokens.get(at) {
            match token {
                "{" => {
                    let end = closing(tokens, at);
                    if let Some(name) = head.defines() {
                        let body = offset..tokens.get(end).map_or(self.text.len(), |(offset, _)| offset + 1);
                        self.declare(&head);
                        let begin = tokens[begin].0;
                        let places = Function {
                            begin,
                            at: name.1,
                            is_static: head.is_static,
                            body,
                            ..Function::of(name.0)
                        };
                        self.define(&tokens[at..end.min(tokens.len())], places);
                        return end + 1;
                    }
                    at = end;
                }
                ";" if !head.is_old_style => {
                    self.declare(&head);
                    return at + 1;
                }
                "(" => at = head.parentheses(tokens, at),
                "[" => at = closing(tokens, at),
                "=" => head.has_value = true,
                "," => head.has_value = false,
                "typedef" => head.is_typedef = true,
                // The body of an inline function is none for other files.
                "static" | "inline" | "__inline" | "__inline__" => head.is_static = true,
                _ => {}
            }
            at += 1;
        }
        at
    }

    fn declare(&mut self, head: &Head<'a>) {
        self.wrapped.extend(head.wraps);
        if head.is_typedef {
            return;
        }
        for (name, _) in &head.names {
            let known = self.declared.entry(name).or_default();
            known.is_local |= head.attributes.is_local;
            known.is_safe |= head.attributes.is_safe;
        }
    }

    /// Adds a function with what its body calls.
    fn define(&mut self, tokens: &[CodeToken<'a>], mut function: Function<'a>) {
        for (at, &(offset, token)) in tokens.iter().enumerate() {
            let behind = |n: usize| tokens.get(at + n).map_or("", |(_, token)| *token);
            let before = |n: usize| at.checked_sub(n).map_or("", |at| tokens[at].1);
            if token == BEGIN {
                let end = tokens[at..].iter().position(|(_, token)| *token == "{").map(|brace| at + brace);
                let end = end.map(|brace| closing(tokens, brace)).and_then(|end| tokens.get(end));
                function.handlers.push(offset..end.map_or(function.body.end, |(offset, _)| offset + 1));
            }
            let is_member = before(1) == "." || (before(1) == ">" && before(2) == "-");
            if !is_name(token) || is_member {
                continue;
            }
            if behind(1) == "(" {
                function.calls.push(CallSite { name: token, at: offset });
            } else {
                function.mentions.push(token);
            }
        }
        self.functions.push(function);
    }
}

/// What was read of a declaration so far.
#[derive(Default)]
struct Head<'a> {
    is_typedef: bool,
    is_static: bool,
    /// Behind `=`, up to the next comma.
    has_value: bool,
    /// Parameters are declared behind the parentheses, before the body.
    is_old_style: bool,
    names: Vec<(&'a str, usize)>,
    attributes: Attributes,
    wraps: Option<&'a str>,
}

impl<'a> Head<'a> {
    /// Reads from an opening parenthesis to its closing one, whose index it returns.
    fn parentheses(&mut self, tokens: &[CodeToken<'a>], open: usize) -> usize {
        let end = closing(tokens, open);
        let inner = &tokens[open + 1..end.min(tokens.len()).max(open + 1)];
        let Some(&(offset, before)) = open.checked_sub(1).and_then(|at| tokens.get(at)) else { return end };
        if before == "__attribute__" || before == "__attribute" {
            self.attribute(inner);
        } else if before == ")" && inner.len() < 2 {
            // `(tolower)(int)` was a name; its parameters follow.
        } else if let [(at, name)] = inner
            && is_name(name)
            && tokens.get(end + 1).is_some_and(|(_, token)| *token == "(")
        {
            self.names.push((name, *at));
            return closing(tokens, end + 1);
        } else if is_name(before) && !self.has_value && !NO_NAMES.contains(&before) && !is_pointer(inner) {
            self.names.push((before, offset));
            let behind = tokens.get(end + 1).map_or("", |(_, token)| *token);
            self.is_old_style = is_name(behind) && !NO_NAMES.contains(&behind) && behind != "asm";
        }
        end
    }

    fn attribute(&mut self, inner: &[CodeToken<'a>]) {
        for (at, (_, token)) in inner.iter().enumerate() {
            match token.trim_matches('_') {
                "transaction_pure" => self.attributes.is_local = true,
                "transaction_safe" | "transaction_callable" => self.attributes.is_safe = true,
                "transaction_wrap" => self.wraps = inner.get(at + 2).map(|(_, name)| *name),
                _ => {}
            }
        }
    }

    /// The function whose body a brace would open here.
    fn defines(&self) -> Option<(&'a str, usize)> {
        self.names.first().copied().filter(|_| !self.has_value && !self.is_typedef)
    }
}

/// Words in front of a parenthesis at the outermost level that name no function.
const NO_NAMES: [&str; 12] = [
    "__asm__",
    "__asm",
    "__attribute__",
    "__attribute",
    "__typeof__",
    "__typeof",
    "typeof",
    "_Alignas",
    "_Static_assert",
    "__extension__",
    "sizeof",
    "_Atomic",
];

fn is_pointer(inner: &[CodeToken<'_>]) -> bool {
    inner.first().is_some_and(|(_, token)| *token == "*")
}

/// Whether a token is an identifier, or a word of the language.
pub fn is_name(token: &str) -> bool {
    token.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
}

/// The index of the token that closes the bracket at `open`; the number of tokens where none does.
pub fn closing(tokens: &[CodeToken<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, (_, token)) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    tokens.len()
}

/// Which line of which file a place comes from: the preprocessor's lines about files.
#[derive(Debug, Default)]
struct CodeLines<'a> {
    /// Where the next line begins, and which one it is.
    marks: Vec<(usize, &'a str, usize)>,
}

impl<'a> CodeLines<'a> {
    /// Reads `# 12 "file.c" 2`, behind which `next` is.
    fn mark(&mut self, line: &'a str, next: usize) {
        let Some((number, rest)) = line.trim_start_matches(['#', ' ']).split_once(' ') else { return };
        let file = rest.split('"').nth(1);
        if let (Ok(number), Some(file)) = (number.parse(), file) {
            self.marks.push((next, file, number));
        }
    }

    fn place(&self, text: &str, at: usize) -> (&'a str, usize) {
        let behind = self.marks.partition_point(|(begin, ..)| *begin <= at);
        match behind.checked_sub(1).map(|mark| self.marks[mark]) {
            Some((begin, file, line)) => (file, line + text[begin..at].matches('\n').count()),
            None => ("", 1 + text[..at].matches('\n').count()),
        }
    }

    fn offset(&self, text: &str, file: &str, line: usize) -> Option<usize> {
        let ends = self.marks.iter().skip(1).map(|(begin, ..)| *begin).chain([text.len()]);
        self.marks.iter().zip(ends).find_map(|((begin, of, first), end)| {
            let skipped = line.checked_sub(*first).filter(|_| *of == file)?;
            let starts = text[*begin..end].match_indices('\n').map(|(at, _)| begin + at + 1);
            [*begin].into_iter().chain(starts).nth(skipped).filter(|at| *at < end)
        })
    }
}

/// All tokens of a text.
pub fn tokens(text: &str) -> Vec<CodeToken<'_>> {
    CodeTokens::all(text).0
}

/// A token, and where it begins.
pub type CodeToken<'a> = (usize, &'a str);

/// Names, numbers and single characters of C, without strings, character constants and the preprocessor's lines.
struct CodeTokens<'a> {
    text: &'a str,
    at: usize,
    lines: CodeLines<'a>,
}

impl<'a> CodeTokens<'a> {
    fn all(text: &'a str) -> (Vec<CodeToken<'a>>, CodeLines<'a>) {
        let mut tokens = CodeTokens { text, at: 0, lines: CodeLines::default() };
        let mut all = Vec::new();
        while let Some(token) = tokens.next() {
            all.push(token);
        }
        (all, tokens.lines)
    }

    fn next(&mut self) -> Option<CodeToken<'a>> {
        let bytes = self.text.as_bytes();
        loop {
            let begin = self.at;
            match *bytes.get(begin)? {
                b'#' if begin == 0 || bytes[begin - 1] == b'\n' => {
                    let length = self.text[begin..].find('\n').unwrap_or(self.text.len() - begin);
                    self.at += length;
                    self.lines.mark(&self.text[begin..begin + length], begin + length + 1);
                }
                quote @ (b'"' | b'\'') => {
                    self.at += 1;
                    while bytes.get(self.at).is_some_and(|&byte| byte != quote) {
                        self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
                    }
                    self.at += 1;
                }
                byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
                    let is_inside = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
                    self.at += bytes[begin..].iter().take_while(is_inside).count();
                    return Some((begin, &self.text[begin..self.at]));
                }
                byte if byte.is_ascii_punctuation() => {
                    self.at += 1;
                    return Some((begin, &self.text[begin..self.at]));
                }
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_their_calls_are_found() {
        let text = "# 1 \"a.c\"\nint mid(int);\nstruct s { int (*mid)(int); } x = { f(1) };\n\
                    typedef int fn(int);\nextern int (tolower)(int), other(char *);\n\
                    int old(a, b) int a; char *b; { return mid(a); }\n\
                    static struct s *\n# 9 \"a.c\"\nof(int (*by)(int))\n{ char *s = \"no(\"; x.mid(1); s->mid(2);\n\
                    if (a > mid(3)) take(old); return 0; }\n";
        let read = Text::read(text);
        let names: Vec<&str> = read.functions.iter().map(|function| function.name).collect();
        assert_eq!(names, ["old", "of"]);
        let declared: Vec<&str> = read.declared.keys().copied().collect();
        assert_eq!(declared, ["mid", "of", "old", "other", "tolower"]);
        let of = &read.functions[1];
        assert!(of.is_static && !read.functions[0].is_static);
        let calls: Vec<&str> = of.calls.iter().map(|call| call.name).collect();
        assert_eq!(calls, ["if", "mid", "take"]);
        assert!(of.mentions.contains(&"old"));
        assert_eq!(read.place(of.at), ("a.c", 9));
        assert_eq!(read.line("a.c", 11), Some("if (a > mid(3)) take(old); return 0; }"));
        assert_eq!(read.function_at("a.c", 10).map(|function| function.name), Some("of"));
        assert_eq!(read.function_at("a.c", 12).map(|function| function.name), None);
    }

    #[test]
    fn attributes_are_those_of_the_function() {
        let text = "int a(int) __attribute__((transaction_pure));\n__attribute__((transaction_safe)) int b(void);\n\
                    void c(int (*f)(int) __attribute__((transaction_pure)));\n\
                    char *sei_call_x(char *) __attribute__((transaction_pure, transaction_wrap(x)));\n";
        let read = Text::read(text);
        assert_eq!(read.attributes("a"), Attributes { is_local: true, is_safe: false });
        assert_eq!(read.attributes("b"), Attributes { is_local: false, is_safe: true });
        assert_eq!(read.attributes("c"), Attributes::default());
        assert_eq!(read.wrapped, BTreeSet::from(["x"]));
    }

    #[test]
    fn handlers_are_regions_of_a_function() {
        let text =
            "int f(void) { before(); { __transaction_atomic { if (sei_enter()) { in(); } } } after(); }";
        let read = Text::read(text);
        let function = &read.functions[0];
        let inside: Vec<&str> = function
            .calls
            .iter()
            .filter(|call| function.is_in_handler(call.at))
            .map(|call| call.name)
            .collect();
        assert_eq!(inside, ["if", "sei_enter", "in"]);
    }

    #[test]
    fn text_that_ends_early_is_read_to_its_end() {
        for text in [
            "int f(void) { g(",
            "int f(",
            "__attribute__((",
            "\"open",
            "# 1 \"",
            "int f(void) { __transaction_atomic",
        ] {
            Text::read(text);
        }
    }
}
