//! Where `crosscheck harden build` leaves programs: one answer for the builder and for the tools that run them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable that names the folder of hardened programs.
pub const FOLDER_VARIABLE: &str = "CROSSCHECK_HARDEN";

/// The folder of hardened programs: the one that [`FOLDER_VARIABLE`] names, or `harden` in Cargo's target folder. That
/// is the one of CARGO_TARGET_DIR, or `target` of the workspace around, or of the current folder.
pub fn folder() -> PathBuf {
    chosen(|name| std::env::var_os(name), workspace())
}

/// The file of a program that was built as this variant.
pub fn program(app: &str, variant: &str, file: &str) -> PathBuf {
    folder().join(app).join(variant).join(file)
}

/// The workspace with the source of the library `sei`: above the current folder.
pub fn workspace() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|folder| folder.join("hardening/sei/Cargo.toml").is_file()).map(Path::to_owned)
}

fn chosen(variable: impl Fn(&str) -> Option<OsString>, workspace: Option<PathBuf>) -> PathBuf {
    let named = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(FOLDER_VARIABLE).unwrap_or_else(|| {
        let target = named("CARGO_TARGET_DIR");
        target.unwrap_or_else(|| workspace.unwrap_or_default().join("target")).join("harden")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_variable_counts_more_than_cargos_and_that_more_than_the_workspace() {
        let around = || Some(PathBuf::from("w"));
        let with = |set: &[(&str, &str)]| {
            let set: Vec<(String, OsString)> =
                set.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect();
            move |name: &str| set.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        let both = [(FOLDER_VARIABLE, "own"), ("CARGO_TARGET_DIR", "cargo")];
        assert_eq!(chosen(with(&both), around()), Path::new("own"));
        assert_eq!(chosen(with(&both[1..]), around()), Path::new("cargo/harden"));
        assert_eq!(chosen(with(&[]), around()), Path::new("w/target/harden"));
        assert_eq!(chosen(with(&[]), None), Path::new("target/harden"));
        let empty = [(FOLDER_VARIABLE, ""), ("CARGO_TARGET_DIR", "")];
        assert_eq!(chosen(with(&empty), None), Path::new("target/harden"), "set to nothing is not set");
    }

    #[test]
    fn these_tests_run_in_the_workspace() {
        assert!(workspace().is_some_and(|folder| folder.join("lab/memcached-client/Cargo.toml").is_file()));
        assert!(program("memcached", "sei", "server").ends_with("memcached/sei/server"));
    }
}
