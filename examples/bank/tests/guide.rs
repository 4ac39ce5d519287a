//! docs/first-service.md quotes this crate, and `clippy.toml` is the list that is shipped: both must stay so.

#![allow(clippy::disallowed_methods, reason = "a test reads files, a handler does not")]

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn code_in_the_guide_stands_in_the_source() {
    let files = [
        "src/account.rs",
        "src/office.rs",
        "src/state.rs",
        "src/request.rs",
        "src/service.rs",
        "src/resp.rs",
        "src/program.rs",
        "src/main.rs",
        "tests/deterministic.rs",
        "../locks/src/main.rs",
        "tests/simulated.rs",
    ];
    let source: String = files.iter().map(|file| without_spaces(&read(file))).collect();
    let guide = read("../../docs/first-service.md");
    let blocks: Vec<&str> =
        guide.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 10, "{} blocks", blocks.len());
    for block in blocks {
        assert!(
            source.contains(&without_spaces(block)),
            "the guide quotes what the source does not say:\n{block}"
        );
    }
}

#[test]
fn the_clippy_list_is_the_one_that_is_shipped() {
    assert_eq!(read("clippy.toml"), read("../../server/crosscheck/author-clippy.toml"));
}
