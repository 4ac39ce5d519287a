//! What can be checked: a program with a recipe, a folder with a Makefile, one C file.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;

use super::{CheckReport, CheckedSource, check, commands};
use crate::compile::{Compiler, Variant};
use crate::fetch::make;
use crate::library;
use crate::pipeline::{Bench, Places};
use crate::recipe::App;
use crate::unit;

/// Checks a program with a recipe.
///
/// # Errors
/// If its source cannot be prepared, or does not compile for a reason that is not about handlers.
pub fn app(app: &App, places: &Places) -> Result<CheckReport> {
    let bench = Bench::open(app, places)?;
    let scratch = bench.scratch()?;
    let source = |file: &str, flags: Vec<String>, is_apart: bool| CheckedSource {
        file: PathBuf::from(file),
        folder: bench.source.clone(),
        root: bench.source.clone(),
        copy: None,
        flags,
        is_apart,
    };
    let mut sources = vec![source(unit::FILE, bench.unit_flags(Variant::Sei), false)];
    sources.extend(app.recipe.unit.apart.iter().map(|file| source(file, bench.plain_flags(), true)));
    check(&sources, &bench.compiler, &scratch)
}

/// Checks a C file, or the folder of a program with a Makefile or `compile_commands.json`; `options` are the compiler's
/// for a single file, and make's for a folder.
///
/// # Errors
/// If there is neither, nothing says how it is compiled, or it does not compile for a reason that is not about
/// handlers.
pub fn path(path: &Path, options: &[String]) -> Result<CheckReport> {
    let scratch = Scratch::new()?;
    let include = scratch.0.join("include");
    library::write_headers(&include)?;
    let compiler = Compiler::find(&scratch.0)?;
    let sources = if path.is_dir() {
        commands::of_folder(path, options, &include, &scratch.0)?
    } else {
        let here = std::env::current_dir()?;
        vec![commands::of_file(path, &here, &here, options, &include)?]
    };
    check(&sources, &compiler, &scratch.0)
}

/// A folder for temporary files that goes when the check ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("crosscheck-check-{}-{number}", std::process::id()));
        // One that a process with this number has left behind.
        let _ = std::fs::remove_dir_all(&folder);
        make(&folder)?;
        Ok(Scratch(folder.canonicalize()?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
