//! Our changes to a program: unified diffs with little context, applied exactly or not at all.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tool;

/// One file of `patches`.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Its file name.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl Patch {
    /// Applies it to the source in `folder`.
    ///
    /// # Errors
    /// If a hunk does not fit: with the hunk, and the source as it was.
    pub fn apply(&self, folder: &Path, scratch: &Path) -> Result<()> {
        let file = scratch.join(&self.name);
        fs::write(&file, &self.text).with_context(|| format!("cannot write {}", file.display()))?;
        let doing = format!("patch {} does not fit this source; nothing was built", self.name);
        for trial in [&["--dry-run"][..], &[]] {
            let mut command = tool::call("patch");
            // One line of context would let a hunk slip to another place: no fuzz.
            command.args([
                "-p1",
                "--batch",
                "--forward",
                "--fuzz=0",
                "--reject-file=-",
                "--no-backup-if-mismatch",
            ]);
            command.args(trial).arg("-i").arg(&file).current_dir(folder);
            tool::succeed(&mut command, "patch", &doing)?;
        }
        Ok(())
    }

    /// Lines that it adds or changes, and lines that it removes. Blank lines and comments count too.
    pub fn changed_lines(&self) -> (usize, usize) {
        let mut in_hunk = 0_usize;
        let (mut added, mut removed) = (0, 0);
        for line in self.text.lines() {
            if let Some(lines) = hunk_lines(line) {
                in_hunk = lines;
                continue;
            }
            if in_hunk == 0 {
                continue;
            }
            match line.as_bytes().first() {
                Some(b'+') => (added, in_hunk) = (added + 1, in_hunk - 1),
                Some(b'-') => (removed, in_hunk) = (removed + 1, in_hunk - 1),
                // A line of context is one of the old and one of the new file.
                Some(b' ') | None => in_hunk = in_hunk.saturating_sub(2),
                Some(_) => {}
            }
        }
        (added, removed)
    }
}

/// Old plus new lines of a hunk's header, `@@ -1,3 +1,4 @@`.
fn hunk_lines(line: &str) -> Option<usize> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let lines = |range: &str| match range.split_once(',') {
        Some((_, lines)) => lines.parse::<usize>().ok(),
        None => Some(1),
    };
    lines(old)?.checked_add(lines(new)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "--- a/x.c\n+++ b/x.c\n@@ -1,3 +1,4 @@ int\n one\n-two\n+--2\n+++2\n three\n";

    fn patch(text: &str) -> Patch {
        Patch { name: "1.patch".into(), text: text.into() }
    }

    #[test]
    fn lines_are_counted_in_hunks_alone() {
        assert_eq!(patch(PATCH).changed_lines(), (2, 1));
        assert_eq!(patch("+a\n-b\n").changed_lines(), (0, 0));
        assert_eq!(patch("@@ -1,99999999999999999999 +1 @@\n+a\n").changed_lines(), (0, 0));
        assert_eq!(patch("@@ -1 +1 @@\n-a\n+b\n+c\n").changed_lines(), (1, 1));
    }

    #[test]
    fn a_patch_fits_or_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let scratch = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.c");
        fs::write(&file, "one\ntwo\nthree\n").expect("written");
        patch(PATCH).apply(folder.path(), scratch.path()).expect("it fits");
        assert_eq!(fs::read_to_string(&file).expect("read"), "one\n--2\n++2\nthree\n");
        let other = "one\nzwei\nthree\n";
        fs::write(&file, other).expect("written");
        let error = patch(PATCH).apply(folder.path(), scratch.path()).expect_err("a hunk fails").to_string();
        assert!(error.contains("1.patch does not fit"), "{error}");
        assert_eq!(fs::read_to_string(&file).expect("read"), other, "nothing was changed");
    }
}
