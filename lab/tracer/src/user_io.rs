//! The library that makes a target move its input and output with instructions of its own, into which faults can be
//! injected; SEI's experiments did so, and the share of undetected faults depends on it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// What moves a target's bytes between its buffers and its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetIo {
    /// The kernel, where no fault is injected.
    #[default]
    Kernel,
    /// Instructions of the process.
    User,
}

/// The library's source.
const SOURCE: &str = include_str!("../preload/user_io.c");
/// Compilers that are tried.
const COMPILERS: [&str; 2] = ["gcc-12", "gcc"];

/// The library's file: compiled at its first use, for targets on this machine.
///
/// # Errors
/// When it cannot be compiled.
pub fn library() -> anyhow::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("crosscheck-user-io-{:016x}", xxh3_64(SOURCE.as_bytes())));
    let library = folder.join("user_io.so");
    if library.is_file() {
        return Ok(library);
    }
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    // Several processes may do this at the same time: each compiles a file of its own and renames it.
    let own = tempfile::tempdir_in(&folder)?;
    let (source, made) = (own.path().join("user_io.c"), own.path().join("user_io.so"));
    fs::write(&source, SOURCE)?;
    for compiler in COMPILERS {
        let mut command = Command::new(compiler);
        command.args(["-O1", "-shared", "-fPIC", "-o"]).args([&made, &source]);
        match command.output() {
            Err(_) => {}
            Ok(output) if output.status.success() => {
                fs::rename(&made, &library)?;
                return Ok(library);
            }
            Ok(output) => bail!("{compiler} refuses user_io.c: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
    bail!("a target with `io = \"user\"` needs a C compiler: install gcc")
}

#[cfg(test)]
#[path = "../../../hardening/sei/tests/support/skipped.rs"]
mod skipped;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_and_sends_through_the_library() {
        let library = match library() {
            Ok(library) => library,
            Err(error) => {
                return super::skipped::skipped(&format!("{error:#}"));
            }
        };
        let symbols = fs::read(&library).expect("the library");
        let file = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(&symbols).expect("an ELF file");
        let (table, names) = file.dynamic_symbol_table().expect("a table").expect("symbols");
        let defines = |name: &str| {
            table.iter().any(|symbol| {
                !symbol.is_undefined() && names.get(symbol.st_name as usize).is_ok_and(|other| other == name)
            })
        };
        for name in ["read", "recv", "sendmsg"] {
            assert!(defines(name), "{name}");
        }
        // `cat` reads its input with read(2).
        let dir = tempfile::tempdir().expect("a folder");
        let text = "bytes ".repeat(30_000);
        fs::write(dir.path().join("text"), &text).expect("written");
        let output = Command::new("cat").arg(dir.path().join("text")).env("LD_PRELOAD", &library).output();
        assert_eq!(String::from_utf8(output.expect("cat").stdout).expect("text"), text);
    }
}
