//! Functions that are declared SEI_LOCAL and write more than their own frame: the compiler does not look inside, so
//! both runs write, and nothing is undone or compared.
//!
//! What a function writes is read from the compiler's text of the optimised unit: an assignment to something that is
//! neither a value nor a local variable, or a call that fills memory or belongs to the same unit. A pointer is one to
//! the frame where it was computed from the address of a local variable.

use std::collections::{BTreeMap, BTreeSet};

use crate::inspect::Obstacle;

/// How GCC marks such a function.
const PURE: &str = "__attribute__((transaction_pure))";

/// Functions of the C library that write where their first argument points.
const FILLS: [&str; 15] = [
    "memcpy",
    "memmove",
    "memset",
    "mempcpy",
    "bzero",
    "strcpy",
    "stpcpy",
    "strncpy",
    "strcat",
    "strncat",
    "sprintf",
    "snprintf",
    "vsprintf",
    "vsnprintf",
    "memccpy",
];

/// Functions whose result is memory of the caller's own, or `errno`, which the library takes care of.
const OWN_RESULTS: [&str; 5] =
    ["malloc", "calloc", "__errno_location", "__builtin_alloca", "__builtin_alloca_with_align"];

/// How deep calls within the unit are followed.
const DEPTH: usize = 32;

/// The functions of the unit that are declared SEI_LOCAL and write what is not theirs; `dump` is what GCC's pass
/// `optimized` wrote.
pub fn writers(dump: &str) -> BTreeSet<Obstacle> {
    let functions: Vec<Function<'_>> = dump.split("\n;; Function ").map(Function::parse).collect();
    let mut by_name: BTreeMap<&str, Vec<&Function<'_>>> = BTreeMap::new();
    for function in &functions {
        by_name.entry(function.name).or_default().push(function);
    }
    let unit = Unit { by_name };
    let pure = functions.iter().filter(|function| function.is_pure);
    let found = pure.filter_map(|function| {
        let written = unit.written(function, &BTreeSet::new(), DEPTH)?;
        let plain = function.name.split('.').next().unwrap_or(function.name);
        Some(Obstacle { symbol: format!("SEI_LOCAL: it writes {written}"), function: plain.to_owned() })
    });
    found.collect()
}

struct Unit<'a> {
    by_name: BTreeMap<&'a str, Vec<&'a Function<'a>>>,
}

/// One function in the compiler's text.
struct Function<'a> {
    name: &'a str,
    is_pure: bool,
    parameters: Vec<&'a str>,
    locals: BTreeSet<&'a str>,
    /// What each value was computed from.
    values: BTreeMap<&'a str, &'a str>,
    statements: Vec<&'a str>,
}

impl<'a> Function<'a> {
    /// `text` begins behind `;; Function `.
    fn parse(text: &'a str) -> Self {
        let name = text.split([' ', '\n']).next().unwrap_or_default();
        let is_clone = text.split_once('(').is_some_and(|(_, symbol)| symbol.starts_with("_ZGTt"));
        let mut function = Function {
            name: if is_clone { "" } else { name },
            is_pure: false,
            parameters: Vec::new(),
            locals: BTreeSet::new(),
            values: BTreeMap::new(),
            statements: Vec::new(),
        };
        let mut lines = text.lines().skip(1);
        for line in lines.by_ref() {
            function.is_pure |= line == PURE;
            if line == "{" {
                break;
            }
            if let Some((_, list)) = line.split_once(" (") {
                let list = list.trim_end_matches(')').split(", ");
                function.parameters = list.map(last_word).collect();
            }
        }
        let mut is_head = true;
        for line in lines.map(str::trim) {
            is_head &= !line.starts_with('<');
            if is_head {
                let is_local = !line.starts_with("static ") && !line.starts_with("extern ");
                if is_local && let Some(declared) = line.strip_suffix(';') {
                    function.locals.insert(last_word(declared));
                }
            } else {
                function.add(line.strip_prefix("# ").unwrap_or(line));
            }
        }
        function
    }

    fn add(&mut self, statement: &'a str) {
        if statement.starts_with("DEBUG") || statement.starts_with("__asm__") || statement.starts_with("if (")
        {
            return;
        }
        if let Some((left, right)) = assignment(statement).filter(|(left, _)| is_value(left)) {
            self.values.insert(left, right);
        }
        self.statements.push(statement);
    }

    /// Whether an operand is the address of something in the frame, or was computed from one. `known` has what was
    /// found for values so far; one that is being looked at decides nothing, as in a loop.
    fn is_own(&self, operand: &str, own: &BTreeSet<usize>, known: &mut BTreeMap<String, bool>) -> bool {
        if let Some(arguments) = operand.strip_prefix("PHI <") {
            return arguments.trim_end_matches('>').split(", ").all(|argument| {
                let value = argument.rsplit_once('(').map_or(argument, |(value, _)| value);
                self.is_own(value, own, known)
            });
        }
        if OWN_RESULTS.iter().any(|name| operand.starts_with(&format!("{name} ("))) {
            return true;
        }
        words(operand).any(|word| {
            let is_address = operand.contains(&format!("&{word}")) && self.is_local(word);
            is_address || self.is_own_value(word, own, known)
        })
    }

    fn is_own_value(&self, word: &str, own: &BTreeSet<usize>, known: &mut BTreeMap<String, bool>) -> bool {
        if let Some(place) = self.parameter(word) {
            return own.contains(&place);
        }
        let Some(right) = self.values.get(word).filter(|right| !is_load(right)) else { return false };
        if let Some(&is_own) = known.get(word) {
            return is_own;
        }
        known.insert(word.to_owned(), true);
        let is_own = self.is_own(right, own, known);
        known.insert(word.to_owned(), is_own);
        is_own
    }

    /// The parameter whose value on entry this is: `p_4(D)`.
    fn parameter(&self, word: &str) -> Option<usize> {
        let name = word.strip_suffix("(D)")?.rsplit_once('_')?.0;
        self.parameters.iter().position(|parameter| *parameter == name)
    }

    fn is_local(&self, word: &str) -> bool {
        let base = variable(word);
        self.locals.contains(base) || self.parameters.contains(&base) || base == "<retval>"
    }
}

impl Unit<'_> {
    /// What the function writes outside of its frame; `own` are the parameters that point into that of its caller.
    fn written(&self, function: &Function<'_>, own: &BTreeSet<usize>, depth: usize) -> Option<String> {
        function.statements.iter().find_map(|statement| {
            let (left, right) = assignment(statement).unwrap_or(("", *statement));
            if right.starts_with("{CLOBBER") {
                return None;
            }
            if !left.is_empty() && !is_value(left) && !self.is_own_place(function, left, own) {
                return Some(format!("`{left}`"));
            }
            self.written_by_call(function, right, own, depth)
        })
    }

    fn is_own_place(&self, function: &Function<'_>, left: &str, own: &BTreeSet<usize>) -> bool {
        let is_through_pointer = left.starts_with('*') || left.contains("->") || left.contains("MEM");
        if !is_through_pointer {
            let base = words(left).next().unwrap_or_default();
            return function.is_local(base) || left.starts_with("<retval>");
        }
        // The pointer is what stands in front of `->` or in the brackets; an index beside it is no address.
        let pointer = left.split("->").next().unwrap_or(left);
        pointer.contains("<retval>") || function.is_own(pointer, own, &mut BTreeMap::new())
    }

    fn written_by_call(
        &self,
        function: &Function<'_>,
        call: &str,
        own: &BTreeSet<usize>,
        depth: usize,
    ) -> Option<String> {
        let (name, rest) = call.split_once(" (")?;
        if name.contains(' ') || name.is_empty() {
            return None;
        }
        let arguments: Vec<&str> = rest.rsplit_once(')').map_or(rest, |(list, _)| list).split(", ").collect();
        let is_own = |argument: &str| function.is_own(argument, own, &mut BTreeMap::new());
        let plain = name.strip_prefix("__builtin_").unwrap_or(name);
        let is_atomic = (name.starts_with("__atomic_") && !name.starts_with("__atomic_load"))
            || name.starts_with("__sync_");
        if (FILLS.contains(&plain) || is_atomic) && !is_own(arguments[0]) && !name.ends_with("fence") {
            return Some(format!("`{}`, by {plain}", arguments[0]));
        }
        let passed: BTreeSet<usize> = (0..arguments.len()).filter(|&at| is_own(arguments[at])).collect();
        let called = self.by_name.get(name)?.iter().filter(|called| !called.is_pure && depth > 0);
        let mut written = called.filter_map(|called| self.written(called, &passed, depth - 1));
        written.next().map(|written| format!("{written}, in {}", name.split('.').next().unwrap_or(name)))
    }
}

/// Both sides of `left = right;`, or of `left ={v} right;`.
fn assignment(statement: &str) -> Option<(&str, &str)> {
    let (left, right) = statement.split_once(" = ").or_else(|| statement.split_once(" ={v} "))?;
    let is_place = !left.contains(" (") || left.contains("MEM") || left.starts_with("*");
    is_place.then_some((left, right.trim_end_matches(';')))
}

/// Whether this is a name of a value, `_4` or `n.2_1`, and no memory.
fn is_value(left: &str) -> bool {
    let version = left.rsplit_once('_').map(|(_, version)| version);
    version.is_some_and(|version| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()))
        && left.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$#".contains(&byte))
}

/// Whether a value comes out of memory: it is an address from elsewhere.
fn is_load(right: &str) -> bool {
    let is_place = right.starts_with("MEM") || right.starts_with('*');
    is_place || ((right.contains("->") || right.contains('[')) && !right.contains('&'))
}

/// Names in an operand; `p_1(D)` is one.
fn words(operand: &str) -> impl Iterator<Item = &str> {
    let is_inside = |byte: char| byte.is_ascii_alphanumeric() || "_.$#".contains(byte);
    operand.split(move |byte| !is_inside(byte)).filter(|word| !word.is_empty()).map(move |word| {
        let end = word.as_ptr() as usize - operand.as_ptr() as usize + word.len();
        if operand[end..].starts_with("(D)") { &operand[end - word.len()..end + 3] } else { word }
    })
}

/// The variable of a path: `made` of `made.a`, and `D.6282` of `D.6282.a`.
fn variable(path: &str) -> &str {
    let begin = if path.starts_with("D.") { 2 } else { 0 };
    path[begin..].find('.').map_or(path, |at| &path[..begin + at])
}

/// The declared name at the end of a declaration, without its dimensions.
fn last_word(declaration: &str) -> &str {
    let name = declaration.rsplit([' ', '*']).next().unwrap_or(declaration);
    name.split('[').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function as the compiler writes it.
    fn dump(parameters: &str, locals: &str, statements: &str) -> String {
        format!(
            "\n;; Function f.isra (f.isra.0, funcdef_no=1)\n\n__attribute__((noinline))\n{PURE}\n\
             int f.isra ({parameters})\n\
             {{\n{locals}\n  <bb 2> [local count: 1]:\n{statements}\n  return 0;\n\n}}\n"
        )
    }

    #[test]
    fn writes_to_the_frame_are_none() {
        for (locals, statements) in [
            ("  int own[4];\n  int _1;", "  own[_1] = 3;"),
            ("  struct s D.12;", "  D.12.b = 3;\n  D.12 ={v} {CLOBBER(eol)};"),
            ("  char own[40];", "  _1 = &own + 4;\n  *_1 = 3;"),
            ("  char own[40];", "  MEM[(char *)&own + 4B] = 3;"),
            ("  char own[40];", "  _1 = &own;\n  # _2 = PHI <_1(2), _3(3)>\n  *_2 = 3;\n  _3 = _2 + 1;"),
            ("  char own[40];", "  snprintf (&own, 40, \"%d\", n_1(D));"),
            ("  int * _1;", "  _1 = __errno_location ();\n  *_1 = 0;"),
            ("  int _1;", "  _1 = puts (\"to a stream: what others see is the program's own word\");"),
        ] {
            assert_eq!(writers(&dump("int n", locals, statements)), BTreeSet::new(), "{statements}");
        }
    }

    #[test]
    fn other_writes_are_named() {
        for (statements, written) in [
            ("  served = 3;", "`served`"),
            ("  table[own_1].a ={v} 3;", "`table[own_1].a`"),
            ("  *n_1(D) = 3;", "`*n_1(D)`"),
            ("  _2 = MEM[(int * *)&own];\n  *_2 = 3;", "`*_2`"),
            ("  _1 = &own;\n  # _2 = PHI <_1(2), n_1(D)(3)>\n  *_2 = 3;", "`*_2`"),
            ("  memcpy (n_1(D), &own, 4);", "`n_1(D)`, by memcpy"),
            ("  __atomic_fetch_add_8 (&served, 1, 0);", "`&served`, by __atomic_fetch_add_8"),
        ] {
            let found = writers(&dump("int * n", "  int own[4];", statements));
            let texts: Vec<String> = found.iter().map(Obstacle::explained).collect();
            assert!(texts.len() == 1 && texts[0].contains(written) && texts[0].contains("`f`"), "{texts:?}");
        }
    }
}
