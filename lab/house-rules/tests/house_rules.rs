//! Keeps the house rules inside `cargo test`: a rule that only a document states is soon not kept.

use house_rules as house;
use house_rules::manifest::WorkspaceMember;
use house_rules::source::{Panics, Permit};
use house_rules::types::LargeType;
use house_rules::{Breach, TextFile, cite, manifest, names, sizes, source, symbols, text, types, width};
use std::fs;

/// Crates whose results reach state or replies: they read nothing but the ordered log.
#[rustfmt::skip] // one line for each rank
const DECIDING_CRATES: [&str; 10] = [
    "server/wire", "server/object",
    "server/tree", "server/schedule", "server/verify", "server/vote", "server/order",
    "server/execute", "server/memcached", "examples/bank",
];

/// The only files with `unsafe`, one per crate at most; `sei`, whose whole interface is C, has three.
const UNSAFE: [Permit; 9] = [
    Permit {
        file: "lab/bench/src/executor/shipper/sys.rs",
        word: "unsafe",
        reason: "no crate wraps the calls that find a process's written pages; only a benchmark makes them",
    },
    Permit {
        file: "server/object/src/crc.rs",
        word: "unsafe",
        reason: "instructions that not every processor has, behind a look whether this one has them; a sum of \
            50 bytes takes a fifth of the library's time",
    },
    Permit {
        file: "server/schedule/src/cell.rs",
        word: "unsafe",
        reason: "the turn, which no type of the standard library knows, is what makes access to a locked \
            value exclusive",
    },
    Permit {
        file: "hardening/sei/src/abi.rs",
        word: "unsafe",
        reason: "the compiler's interface is functions of C that get the program's addresses",
    },
    Permit {
        file: "hardening/sei/src/api.rs",
        word: "unsafe",
        reason: "sei.h is functions of C that get the program's addresses",
    },
    Permit {
        file: "hardening/sei/src/shims.rs",
        word: "unsafe",
        reason: "shim.h is functions of C that get the program's addresses",
    },
    Permit {
        file: "lab/tracer/src/sys.rs",
        word: "unsafe",
        reason: "a debugger's system calls have no safe face; the crate ships in no server",
    },
    Permit {
        file: "server/wire/src/sum.rs",
        word: "unsafe",
        reason: "an instruction that not every processor has, behind a look whether this one has it; a request \
            passes a dozen sums of a few dozen bytes",
    },
    Permit {
        file: "server/object-macros/src/impls.rs",
        word: "unsafe",
        reason: "the word stands in woven text only, where the author's own method is an unsafe one",
    },
];

/// Uses of clocks, chance and default maps in deciding crates that cannot reach state or replies.
const BOOKKEEPING: [Permit; 1] = [Permit {
    file: "server/memcached/src/sizes.rs",
    word: "RandomState",
    reason: "which keys share a slot must not be known outside; lengths decide when a request is let in, and no reply",
}];

/// Crates whose memory native faults hit: they find corruption as a value.
const REPLACED_CRATES: [&str; 4] = ["server/order", "server/crosscheck", "server/schedule", "server/vote"];

const fn panics(file: &'static str, count: usize, reason: &'static str) -> Panics {
    Panics { file, count, reason }
}

/// Where those crates may panic all the same.
const PANICS: [Panics; 19] = [
    panics("server/crosscheck/src/admin/line.rs", 1, "a command is a plain struct, which always has a text"),
    panics("server/crosscheck/src/limits.rs", 14, "relations between constants, checked by the compiler"),
    panics("server/crosscheck/src/replica/stepped.rs", 1, "a simulation that is set up wrongly"),
    panics("server/crosscheck/src/reply.rs", 1, "a relation between constants, checked by the compiler"),
    panics("server/order/src/batch.rs", 1, "tests and tools make batches by it; a replica uses `Batch::of`"),
    panics("server/order/src/frame.rs", 1, "tests and tools frame by it; a replica uses `encode_parts`"),
    panics("server/order/src/lib.rs", 7, "entrances for the fuzz targets"),
    panics("server/order/src/limits.rs", 7, "relations between constants, checked by the compiler"),
    panics("server/order/src/orderer.rs", 1, "the configuration at the start, which the operator chose"),
    panics("server/order/src/raft/mod.rs", 1, "the configuration at the start, which the operator chose"),
    panics("server/schedule/src/brand.rs", 1, "a service that gives its locks to two schedules"),
    panics(
        "server/schedule/src/cell.rs",
        5,
        "a handler that breaks the rules of locks; it is caught by its worker",
    ),
    panics(
        "server/schedule/src/cx.rs",
        3,
        "a handler that breaks the rules of locks; it is caught by its worker",
    ),
    panics(
        "server/schedule/src/dispatch.rs",
        3,
        "a reference has to be returned; the worker catches it and is replaced",
    ),
    panics("server/schedule/src/log.rs", 2, "the configuration at the start, which the operator chose"),
    panics(
        "server/schedule/src/current.rs",
        2,
        "a reference has to be returned; the worker catches it and is replaced",
    ),
    panics("server/schedule/src/turn.rs", 1, "a service whose locks are in another order than their numbers"),
    panics("server/vote/src/config.rs", 3, "the configuration at the start, which the operator chose"),
    panics("server/vote/src/limits.rs", 23, "relations between constants, checked by the compiler"),
];

/// Types that have more members or methods than others may.
const LARGE_TYPES: [LargeType; 8] = [
    LargeType {
        name: "crosscheck::Replica",
        fields: 16,
        methods: 47,
        reason: "the order thread, where the stages, which are types of their own, meet",
    },
    LargeType {
        name: "crosscheck::Status",
        fields: 30,
        methods: 0,
        reason: "the answer of `status`, whose members are its JSON",
    },
    LargeType {
        name: "order::Node",
        fields: 27,
        methods: 91,
        reason: "the rules of Raft all read and write the same numbers, which one seal covers",
    },
    LargeType {
        name: "sim::Run",
        fields: 32,
        methods: 117,
        reason: "a simulated world, in which every event may reach everything",
    },
    LargeType {
        name: "crosscheck::SpeculateStage",
        fields: 25,
        methods: 47,
        reason: "what a replica with V knows, which all parts of its stage ask for",
    },
    LargeType {
        name: "crosscheck::Speculator",
        fields: 10,
        methods: 46,
        reason: "the stage with what it acts on, where decisions of both machines are performed",
    },
    LargeType {
        name: "verify::Verifier",
        fields: 5,
        methods: 41,
        reason: "the only entrance to the verifier's rules, which its events call",
    },
    LargeType {
        name: "tracer::InjectionRecord",
        fields: 27,
        methods: 1,
        reason: "a line of a results file, whose members are its columns",
    },
];

/// Names of other people's code, of what is made by a run, and of examples, which documents use all the same.
const FOREIGN: [&str; 9] = [
    "SystemTime::now",
    "do_it",
    "healSessionInterval",
    "lab/bench/results/raw",
    "maxconns_fast",
    "query.c",
    "sess_number_of_replicas",
    "setSaslAuthData",
    "stat/2020Mar.md",
];

/// Hosts that tracked text may name: documentation and the lock file's own notation.
const HOSTS: [&str; 6] = [
    "www.apache.org",
    "github.com",
    "doc.rust-lang.org",
    "keepachangelog.com",
    "semver.org",
    "www.w3.org", // the name of SVG
];

#[test]
fn ranks() {
    let root = read("Cargo.toml");
    let (ranks, mut breaches) = manifest::ranks(&root);
    assert!(
        ranks.len() >= 9,
        "the root manifest lists {} crates; is its form still what this test reads?",
        ranks.len()
    );
    for (name, member) in &ranks {
        breaches.extend(manifest::depends_downwards(name, &read(&member.manifest()), &ranks));
    }
    report(breaches);
}

#[test]
fn what_ships_needs_no_laboratory() {
    let (ranks, _) = manifest::ranks(&read("Cargo.toml"));
    let behind = |(name, member): (&String, &WorkspaceMember)| {
        manifest::stays_behind_the_fence(name, &read(&member.manifest()), &ranks)
    };
    report(ranks.iter().flat_map(behind).collect());
}

#[test]
fn manifests() {
    let root = read("Cargo.toml");
    let (ranks, _) = manifest::ranks(&root);
    let mut breaches = manifest::reasons(&root, &ranks);
    for (name, member) in &ranks {
        breaches.extend(manifest::inherits(name, &member.manifest(), &read(&member.manifest())));
    }
    report(breaches);
}

#[test]
fn purpose_lines() {
    report(rust().iter().chain(&c()).flat_map(source::purpose).collect());
}

#[test]
fn lengths_of_c_files() {
    let files = c();
    assert!(files.len() >= 15, "the library's headers, shims and examples, and their tests");
    report(files.iter().flat_map(source::file_length).collect());
}

#[test]
fn lengths() {
    let files = rust();
    let longest_file = files.iter().max_by_key(|file| file.text.lines().count()).expect("there are files");
    println!("longest file: {} ({} lines)", longest_file.path, longest_file.text.lines().count());
    let mut functions: Vec<_> = files
        .iter()
        .flat_map(|file| {
            text::functions(&text::mask(&file.text)).into_iter().map(move |function| (file, function))
        })
        .collect();
    functions.sort_by_key(|(_, function)| std::cmp::Reverse(function.length));
    for (file, function) in functions.iter().take(5) {
        println!(
            "long function: {}:{} {} ({} lines)",
            file.path, function.line, function.name, function.length
        );
    }
    report(
        files
            .iter()
            .flat_map(source::file_length)
            .chain(files.iter().flat_map(source::function_length))
            .collect(),
    );
}

#[test]
fn unsafe_only_where_permitted() {
    let files = rust();
    let mut breaches: Vec<Breach> =
        files.iter().flat_map(|file| source::unsafe_code(file, &UNSAFE)).collect();
    breaches.extend(stale(&files, &UNSAFE));
    report(breaches);
    let mut crates: Vec<_> = UNSAFE.iter().filter_map(|permit| permit.file.split("/src/").next()).collect();
    crates.sort_unstable();
    let shared = crates.windows(2).find(|pair| pair[0] == pair[1] && pair[0] != "hardening/sei");
    assert_eq!(shared, None, "a crate has one file with unsafe at most: merge them");
}

#[test]
fn deciding_crates_are_deterministic() {
    let files = rust();
    let deciding = files
        .iter()
        .filter(|file| DECIDING_CRATES.iter().any(|name| file.path.starts_with(&format!("{name}/src/"))));
    let mut breaches: Vec<Breach> =
        deciding.flat_map(|file| source::nondeterminism(file, &BOOKKEEPING)).collect();
    breaches.extend(stale(&files, &BOOKKEEPING));
    report(breaches);
}

#[test]
fn corruption_is_a_value() {
    let files = rust();
    let is_test = |path: &str| {
        // `sync.rs` and `model.rs` are what loom runs, `testing` is what tests of services run.
        let names = ["tests", "testing/", "fuzzing.rs", "model.rs", "server/schedule/src/sync.rs"];
        names.iter().any(|name| path.contains(name))
    };
    let in_crates = |file: &&TextFile| {
        let is_in = |name: &&str| file.path.starts_with(&format!("{name}/src/"));
        REPLACED_CRATES.iter().any(is_in) && !is_test(&file.path)
    };
    report(files.iter().filter(in_crates).flat_map(|file| source::panics(file, &PANICS)).collect());
    for Panics { file, reason, .. } in PANICS {
        assert!(files.iter().any(|found| found.path == file), "{file} is listed and not there");
        assert!(reason.split_whitespace().count() >= 4, "{file}: a permit needs a reason");
    }
}

#[test]
fn nothing_unfinished() {
    report(rust().iter().flat_map(source::unfinished).collect());
}

#[test]
fn no_private_places() {
    report(house::files().iter().flat_map(|file| source::private_places(file, &HOSTS)).collect());
}

#[test]
fn citations_can_be_followed() {
    let files = house::files();
    report(files.iter().flat_map(|file| cite::citations(file, &files)).collect());
}

#[test]
fn documents_name_what_is_there() {
    let files = house::files();
    let symbols = symbols::Symbols::of(&files, house::tracked());
    let documents = files.iter().filter(|file| file.path.ends_with(".md") && file.path != "CHANGELOG.md");
    let mut breaches: Vec<Breach> = Vec::new();
    for document in documents {
        breaches.extend(symbols::stale(document, &symbols, &FOREIGN));
    }
    report(breaches);
    for name in FOREIGN {
        let is_named = |file: &TextFile| file.path.ends_with(".md") && file.text.contains(name);
        assert!(files.iter().any(is_named), "{name} is listed as foreign, and no document names it");
    }
}

#[test]
fn crates_are_on_the_map() {
    let (ranks, _) = manifest::ranks(&read("Cargo.toml"));
    report(symbols::unmapped(&read("ARCHITECTURE.md"), ranks.keys()));
}

#[test]
fn type_names_tell_what_they_mean() {
    report(names::shared_too_widely(&rust()));
}

#[test]
fn types_have_few_members() {
    let permits = &LARGE_TYPES;
    for LargeType { name, reason, .. } in permits {
        assert!(reason.split_whitespace().count() >= 4, "{name}: a permit needs a reason");
    }
    report(types::too_large(&rust(), permits));
}

#[test]
fn lines_are_short() {
    report(house::files().iter().flat_map(width::too_wide).collect());
}

#[test]
fn tracked_files_are_small() {
    report(sizes::too_large(&sizes::sizes()));
}

/// An unused permit would let the next use pass undetected.
fn stale(files: &[TextFile], permits: &[Permit]) -> Vec<Breach> {
    permits
        .iter()
        .filter(|permit| {
            assert!(
                permit.reason.split_whitespace().count() >= 4,
                "{}: a permit needs a reason",
                permit.file
            );
            !files.iter().any(|f| {
                f.path == permit.file && !text::find_words(&text::mask(&f.text), permit.word).is_empty()
            })
        })
        .map(|permit| Breach {
            file: permit.file.into(),
            line: 0,
            what: format!("may use `{}` and does not", permit.word),
            remedy: "strike the permit from lab/house-rules/tests/house_rules.rs",
        })
        .collect()
}

fn rust() -> Vec<TextFile> {
    house::files().into_iter().filter(TextFile::is_rust).collect()
}

fn c() -> Vec<TextFile> {
    house::files().into_iter().filter(TextFile::is_c).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(house::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn report(breaches: Vec<Breach>) {
    let lines: Vec<String> = breaches.iter().map(Breach::to_string).collect();
    assert!(breaches.is_empty(), "{} breaches of the house rules:\n  {}", breaches.len(), lines.join("\n  "));
}

/// Each rule is shown to fail on a bad sample and to pass on the good one next to it.
mod rules_can_fail {
    use super::*;

    fn rs(text: &str) -> TextFile {
        TextFile { path: "crate/src/a.rs".into(), text: text.into() }
    }

    fn member(folder: &str, rank: u32) -> WorkspaceMember {
        WorkspaceMember { folder: folder.to_owned(), rank }
    }

    #[test]
    fn rank_of_a_member_is_missing() {
        let (ranks, breaches) = manifest::ranks(
            "members = [\n \"server/a\", # rank 0  does the first thing\n \"b\", # later\n]\n",
        );
        assert_eq!(ranks.get("a"), Some(&member("server/a", 0)));
        assert_eq!(breaches.len(), 1);
        assert_eq!(breaches[0].line, 3);
    }

    #[test]
    fn dependency_points_upwards() {
        let ranks = [("low".to_owned(), member("low", 1)), ("high".to_owned(), member("high", 2))].into();
        let bad = "[dev-dependencies]\nhigh.workspace = true\n";
        assert_eq!(manifest::depends_downwards("low", bad, &ranks).len(), 1);
        let good = "[dependencies]\nlow.workspace = true\n";
        assert!(manifest::depends_downwards("high", good, &ranks).is_empty());
        let itself = "[dev-dependencies]\nhigh = { path = \".\", features = [\"inject\"] }\n";
        assert!(
            manifest::depends_downwards("high", itself, &ranks).is_empty(),
            "its tests may ask for a feature"
        );
        assert!(
            manifest::inherits("high", "high/Cargo.toml", &format!("[lints]\nworkspace = true\n{itself}"))
                .is_empty()
        );
    }

    #[test]
    fn test_crate_is_in_every_build() {
        let ranks = [
            ("sim", member("lab/sim", 7)),
            ("object", member("server/object", 1)),
            ("cli", member("server/cli", 8)),
        ];
        let ranks = ranks.map(|(name, member)| (name.to_owned(), member)).into();
        let breaches = |manifest: &str| manifest::stays_behind_the_fence("cli", manifest, &ranks);
        let good = "[dependencies]\nobject.workspace = true\nsim = { workspace = true, optional = true }\n";
        assert!(breaches(good).is_empty());
        assert!(breaches("[dependencies]\n[dev-dependencies]\nsim.workspace = true\n").is_empty());
        let bad = "[target.'cfg(unix)'.dependencies]\nsim.workspace = true\n";
        assert_eq!(breaches(bad)[0].line, 2);
        assert!(
            manifest::stays_behind_the_fence("sim", "[dependencies]\nsim.workspace = true\n", &ranks)
                .is_empty()
        );
    }

    #[test]
    fn manifest_goes_its_own_way() {
        let good = "[lints]\nworkspace = true\n[dependencies]\nmio.workspace = true\n";
        assert!(manifest::inherits("crate", "crate/Cargo.toml", good).is_empty());
        assert_eq!(manifest::inherits("crate", "crate/Cargo.toml", "[dependencies]\nmio = \"1\"\n").len(), 2);
    }

    #[test]
    fn dependency_has_no_reason() {
        let ranks = [("object".to_owned(), member("server/object", 1))].into();
        let sample = "[workspace.dependencies]\nobject = { path = \"object\" }\nmio = \"1\" # epoll behind \
            a safe face\nbytes = \"1\"\n";
        let breaches = manifest::reasons(sample, &ranks);
        assert_eq!(breaches.len(), 1);
        assert_eq!(breaches[0].line, 4);
        let above = "[workspace.dependencies]\n# Epoll behind a safe face.\nmio = { version = \"1\", features = [\n \
            \"net\",\n] }\nbytes = \"1\"\n# A heading of several.\n\nlibc = \"1\"\n";
        let lines: Vec<usize> = manifest::reasons(above, &ranks).iter().map(|breach| breach.line).collect();
        assert_eq!(lines, [6, 9], "a reason stands right above its dependency");
    }

    #[test]
    fn purpose_is_missing() {
        assert!(source::purpose(&rs("//! Says why it exists.\nfn a() {}\n")).is_empty());
        assert_eq!(source::purpose(&rs("use std::fmt;\n")).len(), 1);
        assert_eq!(source::purpose(&rs("//! Utilities.\n")).len(), 1);
        let c = |text: &str| TextFile { path: "crate/shims/a.h".into(), text: text.into() };
        assert!(source::purpose(&c("/* Says why it exists. */\n#pragma once\n")).is_empty());
        assert!(source::purpose(&c("/* Says why it exists\n * in two lines. */\n")).is_empty());
        for bad in [
            "",
            "#pragma once\n/* Says why it exists. */\n",
            "/* Utilities. */\n",
            "//! Says why it exists.\n",
        ] {
            assert_eq!(source::purpose(&c(bad)).len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn corruption_panics() {
        let file = |text: &str| rs(&format!("//! Says why it exists.\n{text}"));
        let code = "fn a() { debug_assert!(true); b.expect_none(); }\n#[expect(dead_code)]\nfn c() {}\n";
        assert!(source::panics(&file(code), &[]).is_empty());
        for panic in ["assert!(true)", "panic!()", "b.unwrap()", "b\n.expect(\"c\")", "unreachable!()"] {
            let text = format!("fn a() {{ {panic}; }}\n");
            assert_eq!(source::panics(&file(&text), &[]).len(), 1, "{panic}");
            let test = format!("#[cfg(test)]\nmod tests {{ {text} }}\n");
            assert!(source::panics(&file(&test), &[]).is_empty(), "{panic} in a test");
        }
        let permit = |count| [panics("sample.rs", count, "for a test")];
        let named = |text: &str| TextFile { path: "sample.rs".to_owned(), text: text.to_owned() };
        let two = named("fn a() { assert!(b); panic!() }\n");
        assert!(source::panics(&two, &permit(2)).is_empty());
        assert_eq!([1, 3].map(|count| source::panics(&two, &permit(count)).len()), [1, 1]);
    }

    #[test]
    fn file_and_function_are_too_long() {
        let body =
            |lines: usize| rs(&format!("fn a() {{\n{}}}\n", "    b('}', \"}\"); // }\n".repeat(lines)));
        assert!(source::function_length(&body(source::MAX_FUNCTION_LINES - 2)).is_empty());
        let breaches = source::function_length(&body(source::MAX_FUNCTION_LINES - 1));
        assert_eq!(breaches.len(), 1);
        assert!(breaches[0].what.contains("fn a has 81 lines"), "{}", breaches[0].what);
        assert!(source::file_length(&rs(&"\n".repeat(source::MAX_FILE_LINES))).is_empty());
        assert_eq!(source::file_length(&rs(&"\n".repeat(source::MAX_FILE_LINES + 1))).len(), 1);
        let c = TextFile { path: "a.c".into(), text: "\n".repeat(source::MAX_FILE_LINES + 1) };
        assert_eq!(source::file_length(&c).len(), 1);
    }

    #[test]
    fn unsafe_stands_elsewhere() {
        let permit = [Permit { file: "crate/src/a.rs", word: "unsafe", reason: "a sample for this test" }];
        let sample = rs("// unsafe in a comment\nlet a = \"unsafe\"; unsafe { b() }\n");
        assert_eq!(source::unsafe_code(&sample, &[]).len(), 1);
        assert_eq!(source::unsafe_code(&sample, &[])[0].line, 2);
        assert!(source::unsafe_code(&sample, &permit).is_empty());
        assert!(source::unsafe_code(&rs("#![forbid(unsafe_code)]\n"), &[]).is_empty());
        assert_eq!(stale(&[rs("fn a() {}\n")], &permit).len(), 1);
        assert!(stale(&[sample], &permit).is_empty());
    }

    #[test]
    fn every_source_of_nondeterminism_is_seen() {
        for word in source::NONDETERMINISM {
            let sample = rs(&format!("fn a() {{ let b = {word}(); }}\n"));
            assert_eq!(source::nondeterminism(&sample, &[]).len(), 1, "{word}");
            let in_test = rs(&format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{ fn b() {{ {word}(); }} }}\n"));
            assert!(source::nondeterminism(&in_test, &[]).is_empty(), "{word} in a test");
        }
        let permit = [Permit { file: "crate/src/a.rs", word: "Instant", reason: "a sample for this test" }];
        assert!(source::nondeterminism(&rs("use std::time::Instant;\n"), &permit).is_empty());
        assert!(source::nondeterminism(&rs("fn instantly() { operand::a(); }\n"), &[]).is_empty());
    }

    #[test]
    fn something_is_unfinished() {
        assert_eq!(source::unfinished(&rs(concat!("fn a() { to", "do!() }\n"))).len(), 1);
        assert!(source::unfinished(&rs("/* todo! */ fn a() { r#\"todo!\"# }\n")).is_empty());
    }

    #[test]
    fn text_names_a_private_place() {
        let note = |text: &str| TextFile { path: "NOTE.md".into(), text: text.into() };
        assert_eq!(source::private_places(&note(concat!("see /ro", "ot/x")), &HOSTS).len(), 1);
        assert!(source::private_places(&note(concat!("see src/wo", "rk/x")), &HOSTS).is_empty());
        assert_eq!(
            source::private_places(&note(concat!("from https:", "//mirror.example.org/simple")), &HOSTS)
                .len(),
            1
        );
        assert!(source::private_places(&note("http://www.apache.org/licenses/"), &HOSTS).is_empty());
    }
    #[test]
    fn citation_leads_nowhere() {
        let path = |name: &str| format!("do{}/{name}.md", "cs");
        let tracked = [TextFile { path: path("there"), text: "# Title\n## 1. First\n## 12. Last\n".into() }];
        let breaches = |text: &str| cite::citations(&rs(text), &tracked);
        let there = path("there");
        for good in [
            format!("//! See {there}.\n// `../{there}`, section 1; ({there}, sections 1 and 12).\n"),
            format!(
                "//! It is in {there},\n//! section 12. The https://github.com/a/b/{} is not ours.\n",
                path("gone")
            ),
            format!("a{} and {there}x are no documents of ours\n", path("gone")),
        ] {
            assert_eq!(breaches(&good), [], "{good}");
        }
        let gone = breaches(&format!("fn a() {{}}\n// see {}\n", path("gone")));
        assert_eq!((gone.len(), gone[0].line), (1, 2));
        assert_eq!(breaches(&format!("crate/{there}\n")).len(), 1, "it is in another folder");
        for bad in ["section 2", "section 121", "sections 1 and\n/// 13", "sections 1 to 3"] {
            assert_eq!(breaches(&format!("/// ({there}, {bad})\n")).len(), 1, "{bad}");
        }
        assert_eq!(breaches(concat!("// what the Design\n// sec", "tion 3 says\n")).len(), 1);
        assert_eq!(breaches(concat!("// measured (rese", "arch/x.md 4.2)\n")).len(), 1);
    }

    #[test]
    fn a_crate_is_not_on_the_map() {
        let map = "`order`\n\n## Crates\n\n| `server` | `vote` | it votes |\n\n## Invariants\n";
        assert_eq!(symbols::unmapped(map, [&"vote".to_owned()].into_iter()), []);
        let names = ["vote", "order"].map(str::to_owned);
        let breaches = symbols::unmapped(map, names.iter());
        assert_eq!((breaches.len(), breaches[0].what.contains("order")), (1, true));
    }

    #[test]
    fn a_document_names_what_is_gone() {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        let code = "//! Says why.\npub struct Gate {\n    pub open_us: u64,\n}\nenum Verdict { Wrong, Right(u8) }\n\
            impl Gate {\n    fn may_leave(&self) {}\n}\npub use other::is_open as gate_is_open;\n";
        let files = [
            file("server/vote/src/gate.rs", code),
            file("a/src/b.rs", "use vote::A;\nfn elsewhere_only() {}\n"),
        ];
        let manifest = ["server/vote/Cargo.toml".to_owned()];
        let paths = files.iter().map(|file| file.path.clone()).chain(manifest).collect();
        let symbols = symbols::Symbols::of(&files, paths);
        let breaches =
            |text: &str| symbols::stale(&file("NOTE.md", text), &symbols, &["their_fn", "made/by/a/run"]);
        for good in [
            "`Gate::may_leave(&self)`, `gate::Gate`, `vote::gate_is_open`, `Gate::open_us` and `Verdict::Right(1)`",
            "`gate.rs`, `vote/src/gate.rs`, `server/vote`, `their_fn`, `made/by/a/run/today`, `crate::gate`",
            "```\n`Gate::gone`\n```\nplain Gate::gone, `a span of words with gone_fn`, `Gone`, `gone`",
        ] {
            assert_eq!(breaches(good), [], "{good}");
        }
        for bad in [
            "`Gate::gone`",
            "`Gate::gone()`",
            "`Gone::may_leave`",
            "`Gate::elsewhere_only`",
            "`Verdict::Wronged`",
            "`vote::elsewhere_only`",
            "`gone_fn`",
            "`GoneType`",
            "`vote/gate.rs`",
            "`server/gone`",
            "`gone.rs`",
            "`their_fns`",
        ] {
            let found = breaches(&format!("first `Gate`\nthen {bad}\n"));
            assert_eq!((found.len(), found.first().map(|breach| breach.line)), (1, Some(2)), "{bad}");
        }
    }

    #[test]
    fn a_line_is_too_wide() {
        // A character counts once, however many bytes it has.
        let text = |columns: usize| format!("short\n{}\n", "ü".repeat(columns));
        let breaches =
            |path: &str, columns| width::too_wide(&TextFile { path: path.into(), text: text(columns) });
        for path in ["NOTE.md", "crate/src/a.rs", "Cargo.toml", "lab/bench/definitions/README.md", ".ci/run"]
        {
            assert_eq!(breaches(path, width::COLUMNS), [], "{path}");
            let found = breaches(path, width::COLUMNS + 1);
            assert_eq!(found.len(), 1, "{path}");
            assert_eq!((found[0].line, found[0].what.contains("121 columns")), (2, true), "{path}");
        }
        for data in [
            "Cargo.lock",
            "lab/bench/results/inject/a.json",
            "lab/bench/definitions/a.toml",
            "lab/clients/exchanges.txt",
        ] {
            assert_eq!(breaches(data, width::COLUMNS + 1), [], "{data}");
        }
    }

    #[test]
    fn a_file_or_all_results_are_too_large() {
        let file = |path: &str, size: u64| (path.to_owned(), size);
        let largest = file("lab/bench/results/a.json", sizes::LARGEST_FILE);
        let all =
            [largest.clone(), largest.clone(), largest.clone(), file("memcached/a.md", sizes::LARGEST_FILE)];
        assert!(sizes::too_large(&all).is_empty());
        let breaches = sizes::too_large(&[file("docs/a.png", sizes::LARGEST_FILE + 1)]);
        assert_eq!(breaches.len(), 1);
        assert!(breaches[0].what.contains("262145 bytes"), "{}", breaches[0].what);
        let breaches =
            sizes::too_large(&[vec![largest; 3], vec![file("lab/bench/results/b.json", 213_569)]].concat());
        assert_eq!(breaches.len(), 1);
        assert!(
            breaches[0].file == sizes::RESULTS && breaches[0].what.contains("1000001"),
            "{}",
            breaches[0].what
        );
    }

    #[test]
    fn a_type_has_too_many_members_or_methods() {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        let members = |count: usize| -> String {
            let member = |number| format!("    #[a(b: c)]\n    pub m{number}: std::map<A, fn(B) -> C>,\n");
            format!("pub struct Big<T: Copy> {{\n{}}}\n", (0..count).map(member).collect::<String>())
        };
        let methods =
            |count: usize| "    pub fn m(&self, f: fn(A)) -> B { let c = |d: E| d; }\n".repeat(count);
        let block = |head: &str, count| format!("{head} {{\n{}}}\n", methods(count));
        let of_tests = "impl Big {\n    #[cfg(test)]\n    fn a() {}\n}\n\
            #[cfg(test)]\nmod tests {\nimpl Big { fn a() {} }\n}\n";
        let mut files = vec![
            file("a/src/big.rs", &(members(types::MAX_FIELDS) + of_tests)),
            file(
                "a/src/big/more.rs",
                &block("impl<T: Fn() -> A> Big<T>\nwhere\n    for<'a> A: B<'a>,\n", 25),
            ),
            file("a/src/other.rs", &block("impl<T> crate::Big<T>", types::MAX_METHODS - 25)),
            file("a/src/traits.rs", &block("impl<T> Other for Big<T>", 9)),
            file("a/tests/big.rs", &block("impl Big", 9)),
            file(
                "a/src/far/big.rs",
                &("struct Big(u8);\n".to_owned() + &block("impl Big", types::MAX_METHODS)),
            ),
            file("b/src/big.rs", &("enum Big {\n    A { b: C },\n}\n".to_owned() + &block("impl Big", 9))),
        ];
        assert_eq!(types::too_large(&files, &[]), []);
        let large = |fields, methods| [LargeType { name: "a::Big", fields, methods, reason: "a sample" }];
        assert_eq!(types::too_large(&files, &large(25, 40)).len(), 1, "a permit that nothing needs");
        files.push(file("a/src/big/last.rs", &block("impl<T> Big<T>", 1)));
        let breaches = types::too_large(&files, &[]);
        assert_eq!(breaches.len(), 1);
        assert_eq!((breaches[0].file.as_str(), breaches[0].line), ("a/src/big.rs", 1));
        assert!(breaches[0].what.contains("25 members and 41 methods"), "{}", breaches[0].what);
        assert_eq!(types::too_large(&files, &large(25, 41)), []);
        assert_eq!(types::too_large(&files, &large(25, 42)).len(), 1, "it has fewer than its permit says");
        let wide = [file("a/src/big.rs", &members(types::MAX_FIELDS + 1))];
        assert!(types::too_large(&wide, &[])[0].what.contains("26 members"));
    }

    #[test]
    fn three_crates_use_a_name_for_a_type() {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        let mut files = vec![
            file("a/src/a.rs", "pub struct Slot {\n}\npub struct Config;\n"),
            file("b/src/b.rs", "enum Slot { A }\npub struct Config;\n"),
            file("c/tests/c.rs", "struct Slot;\n"),
            file(
                "c/src/c.rs",
                "// struct Slot\n#[cfg(test)]\nmod tests {\nstruct Slot;\n}\npub struct Config;\n",
            ),
            file("c/src/d.rs", "impl Iterator for A {\n    type Slot = u8;\n}\n"),
        ];
        assert!(names::shared_too_widely(&files).is_empty(), "two crates have it, and tests do not count");
        files.push(file("c/src/e.rs", "\npub(crate) type Slot = u8;\n"));
        let breaches = names::shared_too_widely(&files);
        assert_eq!(breaches.len(), 1);
        assert_eq!((breaches[0].file.as_str(), breaches[0].line), ("c/src/e.rs", 2));
    }
}
