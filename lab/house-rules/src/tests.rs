//! Checks this workspace, and shows each rule failing on a bad sample and passing on the good one next to it.

use super::circles::{self, MAX_CIRCLE, circles_but};
use super::documents::{self, COLUMNS, FOREIGN, LARGEST_FILE};
use super::source::{self, FORBIDDEN, MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_MEMBERS, UNSAFE};
use super::{Breaches, Workspace, manifests};

type Rule = fn(&Workspace, &mut Breaches);

#[rustfmt::skip] // a line for each module
const RULES: [Rule; 13] = [
    manifests::members, manifests::dependencies, manifests::reasons,
    source::files, source::functions, source::unsafe_code, source::words, source::type_limits,
    documents::private_places, documents::citations, documents::names, documents::sizes,
    circles::circles,
];

#[test]
fn this_workspace_keeps_the_rules() {
    let tree = Workspace::read();
    let mut breaches = Vec::new();
    RULES.iter().for_each(|rule| rule(&tree, &mut breaches));
    breaches.iter().for_each(|(file, line, what)| println!("{file}:{line}: {what}"));
    assert!(breaches.is_empty(), "{} breaches of the house rules, listed above", breaches.len());
    assert!(tree.files.iter().filter(|file| file.is_c()).count() >= 15, "all files are read");
    let documents: Vec<_> = tree.files.iter().filter(|file| file.path.ends_with(".md")).collect();
    let is_named = |name: &&str| documents.iter().any(|file| file.text.contains(*name));
    assert!(FOREIGN.iter().all(is_named), "a name is listed as foreign, and no document has it");
    let mut crates = UNSAFE.map(|file| file.split("/src/").next()).to_vec();
    crates.dedup();
    assert_eq!(crates.len(), UNSAFE.len() - 2, "one file with unsafe for each crate, three for `sei`");
}

/// The rule finds breaches in these lines of these files, and no others.
fn expect_of(rule: Rule, files: &[(&str, &str)], lines: &[usize]) {
    let (mut tree, mut breaches) = (Workspace::default(), Vec::new());
    files.iter().for_each(|(path, text)| tree.add(path, text.as_bytes().to_vec()));
    rule(&tree, &mut breaches);
    let found: Vec<usize> = breaches.iter().map(|(_, line, _)| *line).collect();
    assert_eq!(found, lines, "{:?}: {breaches:?}", files.last());
}

fn expect(rule: Rule, path: &str, text: &str, lines: &[usize]) {
    expect_of(rule, &[(path, text)], lines);
}

#[test]
fn crates_and_dependencies() {
    let root = "members = [\n    \"server/low\", # rank 0  does the first thing\n    \
        \"server/high\", # rank 2  does the last thing\n    \"lab/sim\", # rank 1  tries the first thing\n]\n";
    let expect_in = |rule: Rule, path: &str, text: &str, lines: &[usize]| {
        let crates = ["lab/sim/Cargo.toml", "server/low/Cargo.toml", "server/high/Cargo.toml"];
        let manifests = crates.map(|path| (path, "[lints]\nworkspace = true\n"));
        let map = ("ARCHITECTURE.md", "# A\n## Crates\n`low`, `sim`, `high`\n");
        expect_of(rule, &[&[("Cargo.toml", root), (path, text), map], &manifests[..]].concat(), lines);
    };
    expect_in(manifests::members, "", "", &[]);
    expect_in(manifests::members, "ARCHITECTURE.md", "`high`\n## Crates\n`low`, `sim`\n## B\n`high`\n", &[3]);
    let bad = [("Cargo.toml", "members = [\n\"a\", # later\n]\n"), ("a/Cargo.toml", "")];
    expect_of(manifests::members, &bad, &[2, 0, 2]);
    for (name, table, text, lines) in [
        ("server/high", "dependencies", "low.workspace = true", &[][..]),
        ("server/low", "dev-dependencies", "high.workspace = true", &[2]),
        ("server/low", "dev-dependencies", "low = { path = \".\", features = [\"inject\"] }", &[]),
        ("server/low", "dependencies", "mio.workspace = true\nlibc = \"1\"", &[3]),
        ("server/high", "dependencies", "sim = { workspace = true, optional = true }", &[]),
        ("server/high", "dev-dependencies", "sim.workspace = true", &[]),
        ("server/high", "target.'cfg(unix)'.dependencies", "sim.workspace = true", &[2]),
        ("lab/sim", "dependencies", "low.workspace = true", &[]),
    ] {
        let (path, text) = (format!("{name}/Cargo.toml"), format!("[{table}]\n{text}\n"));
        expect_in(manifests::dependencies, &path, &text, lines);
    }
    let table = "[workspace.dependencies]\nlow = { path = \"a\" }\nmio = \"1\" # epoll behind a safe face\n\
        bytes = \"1\"\n# Epoll behind a safe face.\nmio = { version = \"1\", features = [\n    \"net\",\n] }\n\
        libc = \"1\"\n# A heading of several.\n\nlibc = \"1\"\n[profile.dev]\ndebug = false\n";
    expect(manifests::reasons, "Cargo.toml", table, &[4, 9, 12]);
}

#[test]
fn purposes_and_lengths() {
    for (path, text, lines) in [
        ("a.rs", "//! Says why it exists.\nfn a() {}\n", &[][..]),
        ("a.rs", "use std::fmt;\n", &[1]),
        ("a.rs", "//! Utilities.\n", &[1]),
        ("a.h", "/* Says why it exists\n * in two lines. */\n", &[]),
        ("a.h", "#pragma once\n/* Says why it exists. */\n", &[1]),
    ] {
        expect(source::files, path, text, lines);
        let text = text.to_owned() + &"\n".repeat(MAX_FILE_LINES - text.lines().count());
        expect(source::files, path, &text, lines);
        expect(source::files, path, &(text + "\n"), &[lines, &[0]].concat());
    }
    let of = |lines| format!("\nfn a(b: [u8; 3]) {{\n{}}}\n", "b('}', \"}\"); // }\n".repeat(lines));
    expect(source::functions, "a.rs", &of(MAX_FUNCTION_LINES - 2), &[]);
    expect(source::functions, "a.rs", &of(MAX_FUNCTION_LINES - 1), &[2]);
}

#[test]
fn words() {
    let code = "// unsafe in a comment\nlet a = \"unsafe\"; unsafe { b() }\n";
    expect(source::unsafe_code, "crate/src/a.rs", code, &[2]);
    expect(source::unsafe_code, "crate/src/a.rs", "#![forbid(unsafe_code)]\n", &[]);
    expect(source::unsafe_code, UNSAFE[0], code, &[]);
    expect(source::unsafe_code, UNSAFE[0], "// unsafe in a comment\n", &[0]);
    let words = FORBIDDEN.iter().flat_map(|one| one.words.iter().map(|word| (word, one.keyword)));
    for (word, keyword) in words {
        let call = format!("a {word}{}", if word.ends_with('(') { ")" } else { "" });
        for (text, lines) in [
            (format!("fn a() {{\n    {call};\n}}\nconst fn b() {{ {call} }}\n"), &[2, 4][..]),
            (format!("// {keyword}: nothing\nlet a = {call};\n"), &[2]),
            (format!("// {keyword}: a reason of\n// two lines\nlet a = {call};\n"), &[]),
            (format!("// {call}\nfn a() {{ b(\"{call}\") }}\n"), &[]),
            (format!("#[cfg(all(test, unix))]\nmod b {{ fn b() {{ {call} }} }}\nfn c() {{ {call} }}"), &[3]),
            (format!("const _: () = {call};\nfn a() {{ const {{ {call} }} }}\n"), &[]),
        ] {
            expect(source::words, "server/vote/src/a.rs", &text, lines);
            expect(source::words, "server/vote/src/tests/a.rs", &text, &[]);
            expect(source::words, "server/node/src/a.rs", &text, &[]);
        }
    }
    let others = "#[expect(dead_code)]
fn a() { debug_assert!(true); b.expect_none(); instantly(); operand::a() }";
    expect(source::words, "server/vote/src/a.rs", others, &[]);
}

#[test]
fn types() {
    let (fields, methods) = MAX_MEMBERS;
    let of = |fields: usize| {
        let members = (0..fields).map(|one| format!("    #[a(b: c)]\n    m{one}: std::A<B, fn(C) -> D>,\n"));
        format!("pub struct Big<T: Copy> {{\n{}}}\n", members.collect::<String>())
    };
    let block = |head: &str, methods: usize| {
        let methods = "    pub fn m(&self, f: fn(A)) -> B { let c = |d: E| d; }\n".repeat(methods);
        format!("{head} {{\n    #[cfg(test)]\n    fn a<A, B>() {{}}\n{methods}}}\n")
    };
    let found = |big: String, methods: usize, lines: &[usize]| {
        let files = [
            ("a/src/big.rs", big + "#[cfg(test)]\nmod tests {\nimpl Big { fn a() {} }\n}\n"),
            ("a/src/big/more.rs", block("impl<T: Fn() -> A> Big<T>\nwhere\n    for<'a> A: B<'a>,\n", 25)),
            ("a/src/other.rs", block("impl<T: for<'a> B<'a>> crate::Big<T>", methods - 25)),
            ("a/src/traits.rs", block("impl<T> Other for Big<T>", 9)),
            ("a/tests/big.rs", block("impl Big", 9)),
            ("b/src/big.rs", "enum Big {\n    A { b: C },\n}\n".to_owned() + &block("impl Big", 40)),
        ];
        expect_of(source::type_limits, &files.each_ref().map(|(path, text)| (*path, text.as_str())), lines);
    };
    found(of(fields), methods, &[]);
    found(of(fields + 1), methods, &[1]);
    found(of(fields), methods + 1, &[1]);
    found("// large: a sample of them\n".to_owned() + &of(fields), methods + 1, &[]);
    found("// large: a sample of them\n".to_owned() + &of(fields), methods, &[2]);
    for (name, methods, lines) in [("Hooks", 15, &[][..]), ("Hooks", 16, &[1]), ("Other", methods + 1, &[1])]
    {
        let of_trait = block(&format!("pub(crate) trait {name}: Clone"), methods);
        expect_of(source::type_limits, &[("a/src/hooks.rs", &of_trait)], lines);
    }
    let of_two = "pub struct Slot {\n}\npub struct Config;\n";
    let of_tests = "// struct Slot\n#[cfg(test)]\nmod tests {\nstruct Slot;\n}\npub struct Config;\n";
    let mut files = vec![("a/src/a.rs", of_two), ("b/src/b.rs", of_two), ("c/tests/c.rs", of_two)];
    files.extend([("c/src/c.rs", of_tests), ("c/src/d.rs", "impl Iterator for A { type Slot = u8; }\n")]);
    expect_of(source::type_limits, &files, &[]);
    files.push(("c/src/e.rs", "\npub(crate) type Slot = u8;\n"));
    expect_of(source::type_limits, &files, &[1, 1, 2]);
}

#[test]
fn places_and_sizes() {
    expect(documents::private_places, "NOTE.md", concat!("\nsee /ro", "ot/x"), &[2]);
    expect(documents::private_places, "NOTE.md", concat!("see src/wo", "rk/x"), &[]);
    expect(documents::private_places, "NOTE.md", concat!("from https:", "//mirror.example.org/simple"), &[1]);
    expect(documents::private_places, "NOTE.md", "http://www.apache.org/a, http://localhost:3000", &[]);
    // A character counts once, however many bytes it has.
    let text = |columns: usize| format!("short\n{}\n", "ü".repeat(columns));
    for path in ["NOTE.md", "crate/src/a.c", "Cargo.toml", "lab/bench/definitions/README.md", ".ci/run"] {
        expect(documents::sizes, path, &text(COLUMNS), &[]);
        expect(documents::sizes, path, &text(COLUMNS + 1), &[2]);
    }
    for path in ["Cargo.lock", "lab/bench/results/a.json", "lab/bench/definitions/a.toml", "a.txt"] {
        expect(documents::sizes, path, &text(COLUMNS + 1), &[]);
    }
    let large = "a\n".repeat(LARGEST_FILE / 2);
    expect(documents::sizes, "a.txt", &large, &[]);
    expect(documents::sizes, "a.txt", &(large.clone() + "a"), &[0]);
    let results = ["a", "b", "c", "d"].map(|name| format!("lab/bench/results/{name}"));
    let files = results.each_ref().map(|path| (path.as_str(), large.as_str()));
    expect_of(documents::sizes, &files[..3], &[]);
    expect_of(documents::sizes, &files, &[0]);
}

#[test]
fn citations() {
    let document = |name: &str| format!("do{}/{name}.md", "cs");
    let (there, gone) = (document("there"), document("gone"));
    for (text, lines) in [
        (format!("See {there}, `../{there}`, section 1; ({there}, sections 1 and\n12).\n"), &[][..]),
        (format!("//! It is in {there},\n//! section 12. No https://github.com/a/{gone}.\n"), &[]),
        (format!("a{gone} and {there}x are no documents of ours\n"), &[]),
        (format!("It is\nin {gone}\n"), &[2]),
        (format!("crate/{there} is in another folder\n"), &[1]),
        (format!("{there}, section 2; {there}, section 121.\n"), &[1, 1]),
        (format!("/// ({there}, sections 1 and\n/// 13) ({there}, sections 1 to 3)\n"), &[1, 2]),
        (concat!("// what the Design\n// sec", "tion 3 says\n").to_owned(), &[1]),
        (concat!("// measured (rese", "arch/x.md 4.2)\n").to_owned(), &[1]),
    ] {
        let document = (there.as_str(), "# Title\n## 1. First\n## 12. Last\n");
        expect_of(documents::citations, &[document, ("a.c", &text)], lines);
    }
}

#[test]
fn names_in_documents() {
    let code = "//! Says why.\npub struct Gate {\n    pub open_us: u64,\n}\nenum Verdict { Wrong, Right(u8) }\n\
        impl Gate {\n    fn may_leave(&self) {}\n}\npub use other::is_open as gate_is_open;\n";
    let other = "use vote::A;\nfn elsewhere_only() {}\n";
    let expect = |text: &str, lines: &[usize]| {
        let manifest = ("server/vote/Cargo.toml", "");
        let files = [("server/vote/src/gate.rs", code), ("a/src/b.rs", other), manifest, ("NOTE.md", text)];
        expect_of(documents::names, &files, lines);
    };
    expect("`Gate::may_leave(&self)`, `gate::Gate`, `vote::gate_is_open`, `Gate::open_us`", &[]);
    expect("`Verdict::Right(1)`, `gate.rs`, `vote/src/gate.rs`, `server/vote`, `crate::gate`", &[]);
    expect("```\n`Gate::gone`\n```\nplain Gate::gone, `a gone_fn`, `Gone`, `gone`, `do_it`, `query.c`", &[]);
    expect("`Gate`\n`Gate::gone`\n`Gate::gone()`\n`Gone::may_leave`\n`Gate::elsewhere_only`", &[2, 3, 4, 5]);
    expect("`Gate`\n`Verdict::Wronged`\n`vote::elsewhere_only`\n`gone_fn`\n`GoneType`", &[2, 3, 4, 5]);
    expect("`Gate`\n`vote/gate.rs`\n`server/gone`\n`gone.rs`\n`do_its`", &[2, 3, 4, 5]);
}

#[test]
fn circles_of_imports() {
    let expect = |large: &[(&str, usize)], files: &[(&str, &str)], expected: &[&str]| {
        let (mut tree, mut breaches) = (Workspace::default(), Vec::new());
        files.iter().for_each(|(path, text)| tree.add(path, text.as_bytes().to_vec()));
        circles_but(large, &tree, &mut breaches);
        let found: Vec<&str> = breaches.iter().map(|(_, _, what)| what.as_str()).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(found, expected)| found.contains(expected)), "{found:?}");
    };
    let last = MAX_CIRCLE;
    // Files a0 to a6, each of which imports the next one, and the last one something.
    let ring = |lasts: &str| {
        let mut files: Vec<(String, String)> = (0..last)
            .map(|at| {
                (format!("server/x/src/a{at}.rs"), format!("use crate::a{}::T;\npub struct T;\n", at + 1))
            })
            .collect();
        files.push((format!("server/x/src/a{last}.rs"), format!("{lasts}\npub struct T;\n")));
        let mods: String = (0..=last).map(|at| format!("mod a{at};\npub use a{at}::T as T{at};\n")).collect();
        files.push(("server/x/src/lib.rs".to_owned(), mods + "mod b;\npub use b::Face;\npub use a0::fun;\n"));
        files.push((
            "server/x/src/b/mod.rs".to_owned(),
            "mod c;\npub use c::Face;\npub use super::a0::T;\n".to_owned(),
        ));
        files.push((
            "server/x/src/b/c.rs".to_owned(),
            "pub struct Face;\nuse super::super::a0::Own;\n".to_owned(),
        ));
        files
    };
    let expect_ring = |large: &[(&str, usize)], lasts: &str, expected: &[&str]| {
        let files = ring(lasts);
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        expect(large, &files, expected);
    };
    let circle = "circle of 7 files";
    for lasts in [
        "use crate::a0::T as Other;",
        "use super::a0::{T as A};",
        "fn a() -> crate::a0::T { b() }",
        "use crate::T0;",
        "pub use crate::a0::T as Other;\nfn a(_: Other) {}",
        "use crate::{a1::{self}, a0};\nfn a(_: a0::T) {}",
        "use super::*;\nfn a(_: T0) {}",
        "mod inner { use super::super::a0; impl a0::T {} }",
        "use crate::b::T as U;",
        "use crate::fun;",
        "fn a() { use crate::a0::T; }",
    ] {
        expect_ring(&[], lasts, &[circle]);
        expect_ring(&[("server/x", 7)], lasts, &[]);
        expect_ring(&[("server/x", 6)], lasts, &[circle]);
        expect_ring(&[("server/x", 8)], lasts, &["write 7"]);
        expect_ring(&[("server/x", 7), ("server/x", 9)], lasts, &["write 7", "take the line out"]);
        expect_ring(&[("server/x", 7), ("server/y", 9)], lasts, &["server/y"]);
    }
    for lasts in [
        "",
        "#[cfg(test)]\nmod tests { use crate::a0::T; }",
        "pub use crate::a0::T as Other;",
        "use a0::T as Other;",
        "mod a0;",
        "use other::a0::T as U;",
        "// crate::a0::T\nuse crate::a1::T as U;",
        "use crate::a1::T0;",
        "use super::*;\nfn a(_: T1) {}",
    ] {
        expect_ring(&[], lasts, &[]);
        expect_ring(&[("server/x", 7)], lasts, &["take the line out"]);
    }
    // Through the face of a module below; the message says what holds a file in.
    expect_ring(&[], "use crate::b::Face;", &["circle of 8 files"]);
    expect_ring(&[], "use crate::T0;", &["a6.rs: a6.rs:1 imports crate::T0 of a0.rs (1 such)"]);
}
