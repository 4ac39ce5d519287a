//! Texts that make the compiler name all causes in one run.
//!
//! GCC infers which functions can be instrumented, and where that fails it names the outermost one only. So the body of
//! each function that handlers reach is put into a handler of its own, where the compiler looks at every statement.
//! What a function calls outside of the file is declared as unsafe behind everything else; else GCC would look at calls
//! in a later pass, which it does not begin once it has found an error.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::reach::{CallGraph, Ways};
use super::text::{self, BEGIN, Function, Text};

/// The name of the file of lines that stand behind the text: errors there are none of the program's.
pub const TAIL: &str = "crosscheck-declarations";

/// Functions that the compiler itself redirects in handlers.
const REDIRECTED: [&str; 6] = ["malloc", "calloc", "free", "memcpy", "memmove", "memset"];
/// Functions of the compiler that nothing can run twice, and that no file declares.
const BUILT_IN: [&str; 11] = [
    "__builtin_va_start",
    "__builtin_va_copy",
    "__builtin_va_end",
    "__builtin_alloca",
    "__builtin_alloca_with_align",
    "__builtin_alloca_with_align_and_max",
    "__builtin_setjmp",
    "__builtin_longjmp",
    "__atomic_test_and_set",
    "__atomic_clear",
    "__sync_synchronize",
];
/// Accesses of one size each: `__atomic_load_4`, `__sync_fetch_and_add_4`.
const ATOMIC: [&str; 16] = [
    "load",
    "store",
    "exchange",
    "compare_exchange",
    "fetch_add",
    "fetch_sub",
    "fetch_and",
    "fetch_or",
    "fetch_xor",
    "fetch_nand",
    "add_fetch",
    "sub_fetch",
    "and_fetch",
    "or_fetch",
    "xor_fetch",
    "nand_fetch",
];
const SYNC: [&str; 16] = [
    "fetch_and_add",
    "fetch_and_sub",
    "fetch_and_and",
    "fetch_and_or",
    "fetch_and_xor",
    "fetch_and_nand",
    "add_and_fetch",
    "sub_and_fetch",
    "and_and_fetch",
    "or_and_fetch",
    "xor_and_fetch",
    "nand_and_fetch",
    "bool_compare_and_swap",
    "val_compare_and_swap",
    "lock_test_and_set",
    "lock_release",
];
const SIZES: [usize; 5] = [1, 2, 4, 8, 16];

/// At these GCC stops with an error of its own where a handler has them, and not where a function has that it calls.
pub const UNREADABLE: [&str; 17] = [
    "__builtin_va_arg",
    "__builtin_add_overflow",
    "__builtin_sub_overflow",
    "__builtin_mul_overflow",
    "__builtin_sadd_overflow",
    "__builtin_saddl_overflow",
    "__builtin_saddll_overflow",
    "__builtin_uadd_overflow",
    "__builtin_uaddl_overflow",
    "__builtin_uaddll_overflow",
    "__builtin_ssub_overflow",
    "__builtin_ssubl_overflow",
    "__builtin_usub_overflow",
    "__builtin_usubl_overflow",
    "__builtin_smul_overflow",
    "__builtin_umul_overflow",
    "__builtin_umull_overflow",
];
/// What stands for them.
const STAND_IN: &str = "crosscheck_stands_in";

/// What a text is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Every cause is an error.
    Causes,
    /// It compiles in spite of causes, so that what handlers do can be read from the compiler's output.
    Output,
}

/// What the compiler cannot take.
#[derive(Debug, Default)]
pub struct Left {
    /// Functions that are left as they are.
    pub functions: BTreeSet<usize>,
    /// Lines of [`TAIL`] that are left out.
    pub lines: BTreeSet<usize>,
}

/// The text of a file for this purpose.
pub fn text(program: &CallGraph<'_>, file: usize, reached: &Ways, left: &Left, purpose: Purpose) -> String {
    let read = &program.files[file];
    let begin = if purpose == Purpose::Causes { BEGIN } else { "__transaction_relaxed" };
    let mut edits = Vec::new();
    let mut calls = BTreeSet::new();
    let locals = foreign_locals(program, file);
    for (number, function) in read.functions.iter().enumerate() {
        for handler in &function.handlers {
            edits.push((handler.start, handler.start + BEGIN.len(), begin.to_owned()));
        }
        if locals.contains(&function.name) {
            edits.push((function.begin, function.begin, "__attribute__((transaction_pure)) ".to_owned()));
        }
        let is_whole = reached.contains_key(&(file, number)) && !left.functions.contains(&number);
        if is_whole {
            edits.push((function.body.start, function.body.start, format!("{{ {begin} ")));
            edits.push((function.body.end, function.body.end, " }".to_owned()));
        }
        if is_whole || !function.handlers.is_empty() {
            stand_in(read, function, purpose, &mut edits);
        }
        let inside = function.calls.iter().filter(|call| is_whole || function.is_in_handler(call.at));
        calls.extend(inside.map(|call| call.name));
    }
    let mut marked = format!("int {STAND_IN}() __attribute__((transaction_pure));\n");
    apply(read.text, edits, &mut marked);
    if purpose == Purpose::Output {
        // What is safe cannot hold what is not.
        marked = marked.replace("transaction_safe", "transaction_callable");
    }
    declarations(program, file, &calls, left, purpose, &mut marked);
    marked
}

/// Replaces what no text of this purpose can have.
fn stand_in(
    read: &Text<'_>,
    function: &Function<'_>,
    purpose: Purpose,
    edits: &mut Vec<(usize, usize, String)>,
) {
    let start = function.body.start;
    let tokens = text::tokens(&read.text[function.body.clone()]);
    for (at, &(offset, token)) in tokens.iter().enumerate() {
        let opens = |at: usize| tokens.get(at).is_some_and(|(_, token)| *token == "(");
        let end_of =
            |open: usize| tokens.get(text::closing(&tokens, open)).map(|(offset, _)| start + offset + 1);
        if token == "__builtin_va_arg" && opens(at + 1) {
            let close = text::closing(&tokens, at + 1);
            let comma = (at + 1..close).rev().find(|&at| tokens[at].1 == ",");
            if let (Some(comma), Some(end)) = (comma, end_of(at + 1)) {
                let of = &read.text[start + tokens[comma].0 + 1..end - 1];
                edits.push((start + offset, end, format!("(*({of} *)0)")));
            }
        } else if UNREADABLE.contains(&token) {
            edits.push((start + offset, start + offset + token.len(), STAND_IN.to_owned()));
        } else if purpose == Purpose::Output && token.trim_matches('_') == "volatile" {
            edits.push((start + offset, start + offset + token.len(), String::new()));
        } else if purpose == Purpose::Output && token.trim_matches('_') == "asm" {
            let open = (at + 1..tokens.len()).take(4).find(|&at| opens(at));
            if let Some(end) = open.and_then(end_of) {
                edits.retain(|(begin, ..)| !(start + offset..end).contains(begin));
                edits.push((start + offset, end, String::new()));
            }
        }
    }
}

/// Does the edits: begin and end of what is replaced, and by what.
fn apply(text: &str, mut edits: Vec<(usize, usize, String)>, to: &mut String) {
    edits.sort();
    let mut done = 0;
    for (begin, end, by) in edits {
        // One in the middle of what another one took away has no place.
        if begin >= done {
            to.push_str(&text[done..begin]);
            to.push_str(&by);
            done = end;
        }
    }
    to.push_str(&text[done..]);
}

/// Declares again what is called and has no body in this file, and what the compiler has of its own.
fn declarations(
    program: &CallGraph<'_>,
    file: usize,
    calls: &BTreeSet<&str>,
    left: &Left,
    purpose: Purpose,
    to: &mut String,
) {
    let read = &program.files[file];
    let has_body = |name: &str| read.functions.iter().any(|function| function.name == name);
    let attribute = if purpose == Purpose::Causes { "transaction_callable" } else { "transaction_pure" };
    let _ = write!(to, "\n# 1 \"{TAIL}\"\n");
    let mut line = 0;
    let mut declare = |name: &str| {
        line += 1;
        if left.lines.contains(&line) {
            to.push('\n');
        } else {
            let _ = writeln!(to, "extern __typeof__({name}) {name} __attribute__(({attribute}));");
        }
    };
    for name in calls {
        let is_plain = read.declared.get(name).is_some_and(|known| !known.is_local && !known.is_safe);
        let is_known = REDIRECTED.contains(name) || read.wrapped.contains(name) || has_body(name);
        if is_plain && !is_known {
            declare(name);
        }
    }
    let sized = |prefix: &'static str, names: [&'static str; 16]| {
        names.into_iter().flat_map(move |name| SIZES.map(|size| format!("{prefix}{name}_{size}")))
    };
    for name in sized("__atomic_", ATOMIC).chain(sized("__sync_", SYNC)) {
        declare(&name);
    }
    for name in BUILT_IN {
        declare(name);
    }
}

/// Functions of this file that only others declare SEI_LOCAL.
pub fn foreign_locals<'p>(program: &'p CallGraph<'_>, file: usize) -> Vec<&'p str> {
    let read = &program.files[file];
    let others =
        || program.files.iter().enumerate().filter(|(other, _)| *other != file).map(|(_, other)| other);
    let functions = read.functions.iter().filter(|function| !function.is_static);
    let names = functions.map(|function| function.name).filter(|name| !read.attributes(name).is_local);
    names.filter(|name| others().any(|other| other.attributes(name).is_local)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, purpose: Purpose) -> String {
        let program = CallGraph::of(vec![Text::read(text)]);
        let reached = program.reached();
        super::text(&program, 0, &reached, &Left::default(), purpose)
    }

    const SOURCE: &str = "int puts(const char *); long strtol(void); int ok(int) __attribute__((transaction_pure));\n\
        static int mid(int a, __builtin_va_list l) { volatile int x = __builtin_va_arg(l, struct s *)->a;\n\
        __asm__ volatile (\"nop\"); puts(\"\"); return ok(a); }\n\
        static void unused(void) { strtol(); }\n\
        int main(void) { __transaction_atomic { mid(1); } }";

    #[test]
    fn reached_functions_become_handlers() {
        let marked = of(SOURCE, Purpose::Causes);
        assert!(
            marked.contains("l) { __transaction_atomic { volatile int x = (*( struct s * *)0)->a;"),
            "{marked}"
        );
        assert!(marked.contains("return ok(a); } }"), "{marked}");
        assert!(marked.contains("unused(void) { strtol"), "{marked}");
        assert!(
            marked.contains("extern __typeof__(puts) puts __attribute__((transaction_callable));"),
            "{marked}"
        );
        for name in ["ok", "strtol", "mid"] {
            assert!(!marked.contains(&format!("__typeof__({name})")), "{name}: {marked}");
        }
    }

    #[test]
    fn the_text_for_output_has_no_cause_left() {
        let marked = of(SOURCE, Purpose::Output);
        for word in ["volatile", "asm", BEGIN, "transaction_callable"] {
            assert!(!marked.contains(word), "{word}: {marked}");
        }
        assert!(marked.contains("puts __attribute__((transaction_pure));"), "{marked}");
    }
}
