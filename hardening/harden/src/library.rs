//! Where the library `sei` is: its headers come with the command, its archive is built or found.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::compile::Variant;
use crate::fetch::make;
use crate::tool;

/// Environment variable that names the archive of the library.
pub const VARIABLE: &str = "CROSSCHECK_SEI";
/// File name of the archive.
pub const ARCHIVE: &str = "libcrosscheck_sei.a";

/// What builds the archive in a workspace.
const COMMAND: &str = "cargo rustc --profile sei -p sei --crate-type staticlib";

/// The headers, by their path below a folder of headers.
pub const HEADERS: [(&str, &str); 4] = [
    ("sei.h", include_str!("../../sei/include/sei.h")),
    ("sei/wrap.h", include_str!("../../sei/include/sei/wrap.h")),
    ("sei/compat.h", include_str!("../../sei/include/sei/compat.h")),
    ("sei/shim.h", include_str!("../../sei/include/sei/shim.h")),
];

/// Writes the headers below a folder.
///
/// # Errors
/// If a file cannot be written.
pub fn write_headers(folder: &Path) -> Result<()> {
    make(&folder.join("sei"))?;
    for (name, text) in HEADERS {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write the header {name}"))?;
    }
    Ok(())
}

/// The archive of the library: the one of the operator, or of [`VARIABLE`], or built from the workspace that this
/// command runs in, or the one beside the command.
///
/// # Errors
/// If there is none.
pub fn find(offered: Option<&Path>, variant: Variant, out: &Path) -> Result<PathBuf> {
    let named = offered.map(Path::to_owned).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    if let Some(file) = named {
        if !file.is_file() {
            bail!(
                "there is no library {}; build one with `cargo rustc --profile sei -p sei --crate-type staticlib`",
                file.display()
            );
        }
        return Ok(file);
    }
    if let Some(workspace) = memcached_client::hardened::workspace() {
        return build(&workspace, variant, out);
    }
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(ARCHIVE));
    match beside {
        Some(file) if file.is_file() => Ok(file),
        _ => bail!(
            "the library {ARCHIVE} is not beside this command, and no CrossCheck workspace is around; build it there \
             with `{COMMAND}`, and name it with --library FILE or {VARIABLE}"
        ),
    }
}

/// Cargo says where it put the archive. The profile is the library's own: fast, since it is on the path of every access
/// to memory, and small.
fn build(workspace: &Path, variant: Variant, out: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = tool::call(cargo);
    // As a static library alone: beside another kind Cargo leaves its parts apart.
    command.args(["rustc", "--profile", "sei", "-p", "sei", "--lib", "--crate-type", "staticlib"]);
    command.arg("--message-format=json-render-diagnostics");
    command.current_dir(workspace);
    if variant == Variant::Dup {
        // An archive of its own: one with other features has the same name.
        command.args(["--features", "dup", "--target-dir"]).arg(out.join("library-dup"));
    }
    let printed = tool::succeed(&mut command, "cargo", "cannot build the library sei")?;
    let archive = printed.out.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let files = message.get("filenames")?.as_array()?;
        files.iter().filter_map(|file| file.as_str()).find(|file| file.ends_with(".a")).map(PathBuf::from)
    });
    archive.context("cargo built the library sei, but no static archive of it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_lacks_is_reported_with_the_remedy() {
        let error = find(Some(Path::new("/nowhere/lib.a")), Variant::Sei, Path::new("."))
            .expect_err("it does not exist")
            .to_string();
        assert!(
            error.contains("/nowhere/lib.a")
                && error.contains("cargo rustc --profile sei -p sei --crate-type staticlib"),
            "{error}"
        );
    }
}
