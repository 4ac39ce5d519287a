//! How the files of a program with its own Makefile are compiled: from its `compile_commands.json`, or by running make
//! on a copy with a compiler that writes down its arguments instead of compiling.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::CheckedSource;
use crate::compile;
use crate::fetch::make;
use crate::tool;

/// The file of commands that CMake, meson and others write.
const COMMANDS: &str = "compile_commands.json";
/// Names by which Makefiles call a C compiler.
const NAMES: [&str; 9] =
    ["cc", "gcc", "gcc-12", "gcc-13", "gcc-14", "c89", "c99", "clang", "x86_64-linux-gnu-gcc"];
/// Files that a copy does not have, so that make compiles.
const MADE: [&str; 5] = ["o", "lo", "a", "la", "so"];
/// Files that a program has at most.
const FILES: usize = 4096;

/// The compiler that writes down. It makes empty files where the Makefile expects some, and asks the real one about
/// itself.
const RECORDER: &str = r#"#!/bin/sh
# Written by `crosscheck harden check`: writes down how files are compiled.
printf '%s\0' "$#" "$PWD" "$@" >>"$CROSSCHECK_COMMANDS"
output= previous= source=
for word in "$@"; do
    case $word in
        -E | -M | -MM | -v | -V | --version | -dump* | -print-*) exec "$CROSSCHECK_COMPILER" "$@" ;;
        *.c) source=$word ;;
    esac
    case $previous in -o) output=$word ;; esac
    case $word in -o?*) output=${word#-o} ;; esac
    previous=$word
done
case " $* " in
    *" -c "*) : "${output:=$(basename "${source%.c}").o}" ;;
esac
: >"${output:=a.out}"
chmod +x "$output"
"#;

/// One command of [`COMMANDS`].
#[derive(Deserialize)]
struct CompileEntry {
    directory: PathBuf,
    file: PathBuf,
    command: Option<String>,
    arguments: Option<Vec<String>>,
}

/// The C files of a program in a folder; `options` are further ones of make, `include` has the library's headers,
/// `scratch` is a folder for a copy.
///
/// # Errors
/// If the folder says nothing about how it is compiled, or make fails.
pub fn of_folder(
    folder: &Path,
    options: &[String],
    include: &Path,
    scratch: &Path,
) -> Result<Vec<CheckedSource>> {
    let folder = folder.canonicalize().with_context(|| format!("there is no folder {}", folder.display()))?;
    let copy = scratch.join("copy");
    let calls = match fs::read_to_string(folder.join(COMMANDS)) {
        Ok(text) => listed(&text)?,
        Err(_) => recorded(&folder, options, &copy, scratch)?,
    };
    let mut sources: Vec<CheckedSource> = Vec::new();
    for (directory, words) in calls {
        // In the operator's own folder, so that what lies beside it is found.
        let own = directory.strip_prefix(&copy).map_or(directory.clone(), |below| folder.join(below));
        for file in words.iter().filter(|word| word.ends_with(".c") && !word.starts_with('-')) {
            let is_known = |source: &CheckedSource| source.folder.join(&source.file) == own.join(file);
            let is_there = own.join(file).is_file() || directory.join(file).is_file();
            if is_there && !sources.iter().any(is_known) {
                let mut source = of_file(Path::new(file), &own, &folder, &words, include)?;
                source.copy = (own != directory).then(|| (directory.clone(), copy.clone()));
                sources.push(source);
            }
        }
    }
    if sources.is_empty() {
        bail!(
            "{} has no C file that make compiles: run its configure step, so that it has a Makefile, and make all \
             once; or write a {COMMANDS} (CMake: -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)",
            folder.display()
        );
    }
    if sources.len() > FILES {
        bail!("{} has more than {FILES} C files", folder.display());
    }
    Ok(sources)
}

/// One file that is compiled in a folder with these words of a command line.
///
/// # Errors
/// If a file of options cannot be read.
pub fn of_file(
    file: &Path,
    folder: &Path,
    root: &Path,
    words: &[String],
    include: &Path,
) -> Result<CheckedSource> {
    let mut flags: Vec<String> =
        compile::unit_options(compile::Variant::Sei).into_iter().map(str::to_owned).collect();
    flags.extend(kept(&expanded(words, folder)?));
    flags.extend(compile::headers().into_iter().map(str::to_owned));
    flags.extend(["-w".to_owned(), format!("-I{}", include.display())]);
    Ok(CheckedSource {
        file: file.to_owned(),
        folder: folder.to_owned(),
        root: root.to_owned(),
        copy: None,
        flags,
        is_apart: false,
    })
}

/// The words with those of `@file` in place of it.
fn expanded(words: &[String], folder: &Path) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for word in words {
        match word.strip_prefix('@') {
            Some(file) => {
                let file = folder.join(file);
                let text = fs::read_to_string(&file);
                let text = text.with_context(|| format!("cannot read the options in {}", file.display()))?;
                all.extend(text.split_whitespace().map(str::to_owned));
            }
            None => all.push(word.clone()),
        }
    }
    Ok(all)
}

/// The options that decide what a file means: no files, outputs, links or warnings.
fn kept(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-I" | "-D" | "-U" | "-include" | "-imacros" | "-isystem" | "-iquote" | "-idirafter" => {
                kept.push(word.clone());
                kept.extend(words.next().cloned());
            }
            "-o" | "-MF" | "-MT" | "-MQ" | "-x" | "-L" | "-l" => drop(words.next()),
            word if is_meant(word) => kept.push(word.to_owned()),
            _ => {}
        }
    }
    kept
}

fn is_meant(word: &str) -> bool {
    let begins = |starts: &[&str]| starts.iter().any(|start| word.starts_with(start));
    begins(&["-I", "-D", "-U", "-O", "-f", "-m", "-std=", "-isystem", "-pthread", "-ansi"])
        && !begins(&["-flto", "-fdump", "-fuse-ld", "-fdiagnostics", "-fsanitize", "-fprofile"])
}

/// The commands of a `compile_commands.json`: folder and words of each.
fn listed(text: &str) -> Result<Vec<(PathBuf, Vec<String>)>> {
    let entries: Vec<CompileEntry> =
        serde_json::from_str(text).with_context(|| format!("{COMMANDS} cannot be read"))?;
    let calls = entries.into_iter().map(|entry| {
        let words = entry.arguments.unwrap_or_else(|| split(&entry.command.unwrap_or_default()));
        let file = entry.file.display().to_string();
        let mut words: Vec<String> = words.into_iter().skip(1).filter(|word| !word.ends_with(".c")).collect();
        words.push(file);
        (entry.directory, words)
    });
    Ok(calls.collect())
}

/// The words of a command line as a shell splits them, without anything that it would expand.
fn split(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(letters.next()),
            (blank, None) if blank.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Runs make on a copy of the folder, with the compiler that writes down; the commands of the copy.
fn recorded(
    folder: &Path,
    options: &[String],
    copy: &Path,
    scratch: &Path,
) -> Result<Vec<(PathBuf, Vec<String>)>> {
    let is_makefile = |name: &str| folder.join(name).is_file();
    if !["GNUmakefile", "makefile", "Makefile"].into_iter().any(is_makefile) {
        bail!(
            "{} has no Makefile, no {COMMANDS} and no recipe.toml: run its configure step first, or name one C file",
            folder.display()
        );
    }
    make(copy)?;
    let mut call = tool::call("cp");
    // With their times, so that make takes what was generated for up to date.
    call.arg("-a").arg(folder.join(".")).arg(copy);
    tool::succeed(&mut call, "coreutils", "cannot copy the program's folder")?;
    remove_made(copy)?;
    let (bin, log) = (scratch.join("bin"), scratch.join("commands"));
    make(&bin)?;
    for name in NAMES {
        let file = bin.join(name);
        fs::write(&file, RECORDER)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(&log, "")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let run = |own: &[String]| {
        let mut call = tool::call("make");
        call.args(["-j1", "-k"]).args(options).args(own).current_dir(copy);
        call.env("PATH", format!("{}:{path}", bin.display())).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        call.env("CROSSCHECK_COMMANDS", &log).env("CROSSCHECK_COMPILER", real_compiler());
        tool::run(&mut call, "make")
    };
    let mut printed = run(&[])?;
    if read_log(&log)?.is_empty() {
        // One that names its compiler by a whole path.
        printed = run(&[format!("CC={}", bin.join("cc").display()), "-B".to_owned()])?;
    }
    let calls = read_log(&log)?;
    if calls.is_empty() {
        bail!("make compiles nothing in {}; it said:\n{}", folder.display(), tool::tail(&printed));
    }
    Ok(calls)
}

/// The compiler that answers questions about itself.
fn real_compiler() -> &'static str {
    let is_there = |name: &&&str| Path::new("/usr/bin").join(name).exists();
    ["/usr/bin/gcc-12", "/usr/bin/gcc"].iter().find(is_there).copied().unwrap_or("/usr/bin/cc")
}

fn remove_made(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_made(&path)?;
        } else if path.extension().is_some_and(|end| MADE.iter().any(|made| end == *made)) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The commands in a log of [`RECORDER`].
fn read_log(log: &Path) -> Result<Vec<(PathBuf, Vec<String>)>> {
    let bytes = fs::read(log)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut words = text.split('\0');
    let mut calls = Vec::new();
    while let (Some(number), Some(folder)) = (words.next().and_then(|word| word.parse().ok()), words.next()) {
        let call: Vec<String> = words.by_ref().take(number).map(str::to_owned).collect();
        calls.push((PathBuf::from(folder), call));
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn options_that_say_what_a_file_means_are_kept() {
        let words = [
            "-c", "-O2", "-Wall", "-I", "inc", "-DA=1", "-o", "x.o", "-MMD", "-flto", "-std=c99", "-lm",
            "x.c",
        ];
        assert_eq!(kept(&owned(&words)), owned(&["-O2", "-I", "inc", "-DA=1", "-std=c99"]));
    }

    #[test]
    fn commands_are_split_as_by_a_shell() {
        let words = split(r#"gcc  -DNAME=\"a\ b\" '-DX="y"' "-I in c" -c ''"#);
        assert_eq!(words, owned(&["gcc", r#"-DNAME="a b""#, r#"-DX="y""#, "-I in c", "-c", ""]));
    }

    #[test]
    fn lists_of_commands_are_read() {
        let text = r#"[{"directory": "/d", "file": "a.c", "command": "cc -DA -c /d/a.c"},
                       {"directory": "/d", "file": "b.c", "arguments": ["cc", "-DB", "b.c"]}]"#;
        let calls = listed(text).expect("a list");
        let words: Vec<&[String]> = calls.iter().map(|(_, words)| words.as_slice()).collect();
        assert_eq!(words, [owned(&["-DA", "-c", "a.c"]), owned(&["-DB", "b.c"])]);
        assert!(listed("{}").is_err());
    }
}
