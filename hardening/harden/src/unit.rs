//! One C file that includes all files that handlers reach: GCC then makes instrumented copies of their functions by
//! itself, and no declaration needs an attribute.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::recipe::Unit;

/// Name of the file that is written into the source's folder.
pub const FILE: &str = "crosscheck_unit.c";

/// Writes the unit into the source's folder.
///
/// # Errors
/// If a file of it lacks, or a header cannot be changed.
pub fn write(unit: &Unit, folder: &Path) -> Result<()> {
    for file in unit.files.iter().chain(&unit.apart) {
        if !folder.join(file).is_file() {
            anyhow::bail!("the source has no file {file}, which the recipe names in `unit`");
        }
    }
    if unit.once {
        once(folder)?;
    }
    let file = folder.join(FILE);
    fs::write(&file, text(unit)).with_context(|| format!("cannot write {}", file.display()))
}

/// The unit's text.
fn text(unit: &Unit) -> String {
    let mut text =
        String::from("/* Written by `crosscheck harden`: all files that handlers reach, as one. */\n");
    for file in &unit.files {
        let renames = unit.renames.get(file);
        for (from, to) in renames.into_iter().flatten() {
            let _ = writeln!(text, "#define {from} {to}");
        }
        let _ = writeln!(text, "#include \"{file}\"");
        for from in renames.into_iter().flat_map(|renames| renames.keys()) {
            let _ = writeln!(text, "#undef {from}");
        }
    }
    text
}

/// Gives the headers of a folder `#pragma once`.
fn once(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "h") {
            // Old sources have comments that are not in UTF-8.
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let guarded = [b"#pragma once\n#line 1\n", bytes.as_slice()].concat();
            fs::write(&path, guarded).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn unit(files: &[&str]) -> Unit {
        Unit {
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            apart: Vec::new(),
            renames: BTreeMap::new(),
            define: Vec::new(),
            options: Vec::new(),
            once: true,
        }
    }

    #[test]
    fn a_name_is_another_one_in_its_file_only() {
        let mut unit = unit(&["a.c", "b.c"]);
        unit.renames.insert("a.c".into(), [("doit".to_owned(), "a_doit".to_owned())].into());
        let lines = "#define doit a_doit\n#include \"a.c\"\n#undef doit\n#include \"b.c\"\n";
        assert!(text(&unit).ends_with(lines), "{}", text(&unit));
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("a.c"), "").expect("written");
        fs::write(folder.path().join("a.h"), "int a;\n").expect("written");
        write(&unit(&["a.c"]), folder.path()).expect("all files are there");
        let header = fs::read_to_string(folder.path().join("a.h")).expect("read");
        assert!(header.starts_with("#pragma once"), "{header}");
        let error = write(&unit(&["a.c", "c.c"]), folder.path()).expect_err("c.c lacks").to_string();
        assert!(error.contains("c.c"), "{error}");
    }
}
