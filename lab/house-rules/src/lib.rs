//! The house rules as functions from a workspace's files to breaches, so that each is shown to fail on a bad sample.

pub mod circles;
mod code;
pub mod documents;
mod imports;
pub mod manifests;
pub mod source;
#[cfg(test)]
mod tests;

use code::SourceToken;
use std::{fs, path::Path, process::Command};

/// Places where a rule is not kept: file, line (0 when the whole file is meant), error and remedy.
pub type Breaches = Vec<(String, usize, String)>;

fn add(out: &mut Breaches, file: &TextFile, line: usize, what: impl Into<String>) {
    out.push((file.path.clone(), line, what.into()));
}

/// One text file.
pub struct TextFile {
    path: String,
    text: String,
    /// Its tokens, if it is Rust source.
    code: Vec<SourceToken>,
}

impl TextFile {
    fn new(path: &str, text: String) -> Self {
        let code = if path.ends_with(".rs") { code::tokens(path, &text) } else { Vec::new() };
        TextFile { path: path.to_owned(), text, code }
    }

    fn is_c(&self) -> bool {
        self.path.ends_with(".c") || self.path.ends_with(".h")
    }

    /// The folder of the crate whose code this file has, in what ships and in the tools; none for tests.
    fn package(&self) -> Option<&str> {
        let (package, _) = self.path.split_once("/src/").filter(|_| self.path.ends_with(".rs"))?;
        (!self.path.contains("tests")).then_some(package)
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// Whether the comment above the line, or above a block of assertions, has `// KEYWORD: reason of some words`.
    fn has_reason(&self, line: usize, keyword: &str) -> bool {
        let above: Vec<&str> = self.text.lines().take(line - 1).map(str::trim).collect();
        let is_above = |text: &&str| text.starts_with("//") || text.starts_with("assert");
        let mut comment = above.into_iter().rev().take_while(is_above);
        let keyword = format!("// {keyword}: ");
        comment.any(|text| text.strip_prefix(&keyword).is_some_and(|reason| reason.split(' ').count() >= 3))
    }
}

/// All files of a workspace.
#[derive(Default)]
pub struct Workspace {
    /// Those that are UTF-8.
    files: Vec<TextFile>,
    /// Path and length in bytes of each.
    sizes: Vec<(String, usize)>,
}

impl Workspace {
    /// Reads every file of this workspace that is tracked by git, or would be if it were added now.
    pub fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("it is in the workspace");
        let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
        let listing = Command::new("git").args(arguments).current_dir(root).output().expect("git can be run");
        assert!(listing.status.success(), "the rules are about what git tracks: {listing:?}");
        let mut workspace = Workspace::default();
        for path in String::from_utf8_lossy(&listing.stdout).lines() {
            // One that is deleted and not yet committed is passed over.
            let _ = fs::read(root.join(path)).map(|bytes| workspace.add(path, bytes));
        }
        workspace
    }

    fn add(&mut self, path: &str, bytes: Vec<u8>) {
        self.sizes.push((path.to_owned(), bytes.len()));
        self.files.extend(String::from_utf8(bytes).map(|text| TextFile::new(path, text)));
    }

    fn rust(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }
}
