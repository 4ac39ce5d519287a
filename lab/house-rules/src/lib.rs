//! The house rules as pure functions from text to breaches, so that each can be shown to fail on a bad sample.

pub mod cite;
pub mod manifest;
pub mod names;
pub mod sizes;
pub mod source;
pub mod symbols;
pub mod text;
pub mod types;
pub mod width;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One place where the house rules are not kept, with its remedy.
#[derive(Debug, PartialEq, Eq)]
pub struct Breach {
    /// File, relative to the workspace.
    pub file: String,
    /// Line, from 1; 0 when the whole file is meant.
    pub line: usize,
    /// The error.
    pub what: String,
    /// The remedy.
    pub remedy: &'static str,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n      remedy: {}", self.file, self.line, self.what, self.remedy)
    }
}

/// One text file of the workspace.
pub struct TextFile {
    /// Path relative to the workspace, with `/`.
    pub path: String,
    /// Content; files that are not UTF-8 are not read.
    pub text: String,
}

impl TextFile {
    /// Whether this is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether this is C: source, or a header.
    pub fn is_c(&self) -> bool {
        self.path.ends_with(".c") || self.path.ends_with(".h")
    }

    /// The folder of the crate whose code this file has, in what ships and in the tools; none for tests.
    pub fn package(&self) -> Option<&str> {
        let (package, _) = self.path.split_once("/src/")?;
        (!self.path.contains("tests")).then_some(package)
    }
}

/// The workspace's root directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("lab/house-rules is in the workspace")
        .to_path_buf()
}

/// Every file that is tracked, or would be if it were added now.
pub fn tracked() -> Vec<String> {
    let root = root();
    let mut paths = git_listing(&root).unwrap_or_else(|| walk(&root));
    paths.sort();
    paths.dedup();
    paths
}

/// Those of them that are text.
pub fn files() -> Vec<TextFile> {
    let root = root();
    tracked()
        .into_iter()
        .filter_map(|path| {
            let text = fs::read_to_string(root.join(&path)).ok()?;
            Some(TextFile { path, text })
        })
        .collect()
}

/// The listing of git, or nothing when this is an unpacked archive.
fn git_listing(root: &Path) -> Option<Vec<String>> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let names = String::from_utf8(listing.stdout).ok()?;
    let paths: Vec<String> = names.lines().map(str::to_owned).collect();
    (listing.status.success() && !paths.is_empty()).then_some(paths)
}

fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && name != ".git" && name != "raw" {
                    open.push(path);
                }
            } else if let Ok(relative) = path.strip_prefix(root) {
                found.push(relative.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found
}
