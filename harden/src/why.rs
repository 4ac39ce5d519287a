//! Follows a handler that GCC refuses to the call that is the cause.
//!
//! GCC infers which functions can be instrumented, and where that fails it names the outermost one only. Here that one
//! is declared `transaction_safe` in a copy of the preprocessed unit, so that the compiler has to look inside and names
//! the next one, until it names something that no declaration helps against.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use crate::compile::Variant;
use crate::inspect;
use crate::pipeline::{Bench, Places, errors};
use crate::recipe::App;

/// Functions that are declared at most, one after the other.
const STEPS: usize = 400;

/// What declares a function.
const MARK: &str = "__attribute__((transaction_safe)) ";

/// What was found.
#[derive(Debug)]
pub struct Why {
    /// Functions that were declared `transaction_safe`, in order: the way from the handler to the cause.
    pub steps: Vec<String>,
    /// The causes, each with its remedy; empty where nothing keeps the program from being hardened.
    pub causes: Vec<String>,
}

/// Finds out why a program cannot be hardened.
///
/// # Errors
/// If its source cannot be prepared, or does not compile for another reason.
pub fn why(app: &App, places: &Places) -> Result<Why> {
    let bench = Bench::open(app, places)?;
    let scratch = bench.scratch()?;
    let flags = bench.unit_flags(Variant::Sei);
    let (text_file, object) = (scratch.join("why.i"), scratch.join("why.o"));
    bench.compiler.preprocess(&flags, Path::new(crate::unit::FILE), &text_file, &bench.source)?;
    let mut text = String::from_utf8_lossy(&fs::read(&text_file)?).into_owned();
    // The text has the included headers already.
    let headers = flags.iter().position(|flag| flag == "-include").unwrap_or(flags.len());
    let flags: Vec<String> = flags[..headers].to_vec();
    let mut steps = Vec::new();
    while steps.len() < STEPS {
        fs::write(&text_file, &text)?;
        let printed = bench.compiler.compile(&flags, &text_file, &object, &bench.source)?;
        if printed.is_success {
            let obstacles = inspect::object(&fs::read(&object)?)?.obstacles;
            return Ok(Why {
                steps,
                causes: obstacles.iter().map(|obstacle| obstacle.explained()).collect(),
            });
        }
        let refusals: Vec<CompilerRefusal> = printed.err.lines().filter_map(CompilerRefusal::parse).collect();
        if refusals.is_empty() {
            bail!(
                "{} does not compile, for a reason that is not about handlers:\n{}",
                app.name,
                errors(&printed.err)
            );
        }
        let callees = refusals.iter().filter_map(|refusal| refusal.callee.as_deref());
        let next: Option<(String, String)> = callees
            .filter(|callee| !steps.iter().any(|step| step == callee))
            .find_map(|callee| Some((callee.to_owned(), marked(&text, callee)?)));
        let Some((callee, changed)) = next else {
            let mut causes: Vec<String> = refusals.iter().map(CompilerRefusal::explained).collect();
            causes.dedup();
            return Ok(Why { steps, causes });
        };
        steps.push(callee);
        text = changed;
    }
    bail!(
        "{STEPS} functions were followed, and the cause is further away: name the function that you suspect"
    )
}

/// One error of the compiler about a handler.
#[derive(Debug)]
struct CompilerRefusal {
    /// `file:line` of the code.
    place: String,
    /// The compiler's words.
    words: String,
    /// The function that is called, where it is a call by name.
    callee: Option<String>,
}

impl CompilerRefusal {
    fn parse(line: &str) -> Option<CompilerRefusal> {
        let (place, words) = line.split_once(" error: ")?;
        let is_about = ["transaction", "atomic"].iter().any(|word| words.contains(word));
        let place = place.trim_end_matches(':');
        let place = place.rsplit_once(':').map_or(place, |(file_and_line, _)| file_and_line);
        let callee = words.strip_prefix("unsafe function call '").and_then(|rest| rest.split('\'').next());
        is_about.then(|| CompilerRefusal {
            place: place.to_owned(),
            words: words.to_owned(),
            callee: callee.map(|name| name.split(['.', '(']).next().unwrap_or(name).to_owned()),
        })
    }

    fn explained(&self) -> String {
        let remedy = match &self.callee {
            Some(callee) => format!(
                "`{callee}` is not in the unit and not in sei/wrap.h: add its file to `unit.files`; or declare it \
                 SEI_LOCAL where it writes nothing but its own locals; or take the call out of the handler"
            ),
            None if self.words.contains("indirect") => {
                "declare the type of the pointer SEI_SAFE where all functions behind it are in the unit, or SEI_LOCAL \
                 where they write nothing but their own locals"
                    .to_owned()
            }
            None if self.words.contains("volatile") => "read the word with sei_read_u32".to_owned(),
            None => "take it out of the handler, or declare the function SEI_LOCAL where it writes nothing but its own \
                     locals"
                .to_owned(),
        };
        format!("{}: {}; {remedy}", self.place, self.words)
    }
}

/// The text with each declaration of this function marked; `None` where it has no body in the text.
fn marked(text: &str, function: &str) -> Option<String> {
    let mut places = Vec::new();
    let mut has_body = false;
    // Begin of the declaration that is being read, at the outermost level.
    let mut begin = 0;
    let (mut braces, mut round) = (0_i32, 0_i32);
    let mut is_ours = false;
    let mut words = Tokens { text, at: 0 };
    let mut last = "";
    while let Some((at, token)) = words.next() {
        match token {
            "(" => {
                is_ours |= braces == 0 && round == 0 && last == function;
                round += 1;
            }
            ")" => round -= 1,
            "{" => {
                if braces == 0 && round == 0 && is_ours {
                    has_body = true;
                    places.push(begin);
                }
                braces += 1;
            }
            "}" => {
                braces -= 1;
                // The end of a function's body; that of a struct's is followed by a name or a semicolon.
                if braces == 0 && last_is_body(text, begin, at) {
                    (begin, is_ours) = (at + 1, false);
                }
            }
            ";" if braces == 0 && round == 0 => {
                if is_ours {
                    places.push(begin);
                }
                (begin, is_ours) = (at + 1, false);
            }
            _ => {}
        }
        last = token;
    }
    if !has_body {
        return None;
    }
    places.dedup();
    let mut marked = text.to_owned();
    for begin in places.into_iter().rev() {
        marked.insert_str(begin + skip_blank(&text[begin..]), MARK);
    }
    Some(marked)
}

/// Whether the brace that closes at `at` is that of a function: its declaration has a parameter list before a brace.
fn last_is_body(text: &str, begin: usize, at: usize) -> bool {
    let head = text[begin..at].split('{').next().unwrap_or("");
    head.contains('(') && !head.contains('=')
}

/// Blanks, and the preprocessor's lines about files.
fn skip_blank(text: &str) -> usize {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start().len();
        at += blank;
        if !text[at..].starts_with('#') {
            return at;
        }
        at += text[at..].find('\n').unwrap_or(text.len() - at);
    }
}

/// Names and single characters of C, without strings, character constants and the preprocessor's lines.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn next(&mut self) -> Option<(usize, &'a str)> {
        let bytes = self.text.as_bytes();
        loop {
            let begin = self.at;
            match *bytes.get(begin)? {
                b'#' if begin == 0 || bytes[begin - 1] == b'\n' => {
                    self.at += self.text[begin..].find('\n').unwrap_or(self.text.len() - begin);
                }
                quote @ (b'"' | b'\'') => {
                    self.at += 1;
                    while bytes.get(self.at).is_some_and(|&byte| byte != quote) {
                        self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
                    }
                    self.at += 1;
                }
                byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
                    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                    self.at += bytes[begin..].iter().take_while(|byte| is_name(byte)).count();
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
    fn every_declaration_is_marked() {
        let text = "# 1 \"a.c\"\nint mid(int);\nstruct s { int mid; } x;\nint other(void) { return mid(1); }\n\
                    static int\n# 9 \"a.c\"\nmid(int a) { char *s = \"mid(\"; return a; }\n";
        let found = marked(text, "mid").expect("it has a body");
        assert_eq!(found.matches(MARK).count(), 2, "{found}");
        assert!(found.contains(&format!("{MARK}int mid(int);")), "{found}");
        assert!(found.contains(&format!("{MARK}static int\n# 9")), "{found}");
        assert_eq!(marked(text, "printf"), None);
        assert_eq!(marked("int mid(int);", "mid"), None, "a declaration alone is no body");
    }

    #[test]
    fn refusals_are_read() {
        let line = "a.c:5:9: error: unsafe function call 'mid' within atomic transaction";
        let refusal = CompilerRefusal::parse(line).expect("a refusal");
        assert_eq!((refusal.place.as_str(), refusal.callee.as_deref()), ("a.c:5", Some("mid")));
        assert!(CompilerRefusal::parse("a.c:5:9: error: expected ';' before '}'").is_none());
    }
}
