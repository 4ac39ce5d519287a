//! What is known about a program: where its source is, which files make the unit, what its handlers are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::patch::Patch;

/// A program that can be hardened: its recipe, and the files beside it.
#[derive(Clone, Debug)]
pub struct App {
    /// Its name in commands.
    pub name: String,
    /// The parsed `recipe.toml`.
    pub recipe: Recipe,
    /// `NOTICE`: the licence of the lines that the patches contain. Empty where the program's own folder has none.
    pub notice: String,
    /// `patches/*.patch` in the order of their names.
    pub patches: Vec<Patch>,
    /// `wrap.h`: what calls of the program's own libraries become inside handlers.
    pub wrap: String,
    /// The folder that it was read from; `None` for one that comes with the command.
    pub folder: Option<PathBuf>,
}

/// `recipe.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of the program that is linked.
    pub program: String,
    /// One line on what it is.
    pub summary: String,
    /// Where its source is.
    pub source: SourceOrigin,
    /// Commands that run in the unpacked source before anything is compiled, such as `./configure`.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// What is compiled.
    pub unit: Unit,
    /// Libraries of the system that it is linked with.
    #[serde(default)]
    pub libraries: Vec<Library>,
    /// The handlers that the patches make, for `crosscheck harden list` and for readers.
    #[serde(default)]
    pub handlers: Vec<Handler>,
}

/// Where source comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum SourceOrigin {
    /// A Debian source package.
    Package {
        /// Its name.
        package: String,
        /// The upstream version that the patches are made for.
        version: String,
        /// File name of the original archive.
        archive: String,
        /// Its SHA-256 in hexadecimal.
        sha256: String,
    },
    /// A folder, relative to the recipe's.
    Folder {
        /// The folder.
        folder: PathBuf,
    },
}

/// The files that are compiled.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// Files that handlers reach: compiled together, as one.
    pub files: Vec<String>,
    /// Files with names that the unit cannot contain twice, or that must not be instrumented: compiled one by one.
    #[serde(default)]
    pub apart: Vec<String>,
    /// Names that a file of the unit has in common with another one, and what they become there.
    #[serde(default)]
    pub renames: BTreeMap<String, BTreeMap<String, String>>,
    /// Preprocessor definitions, `NAME` or `NAME=VALUE`.
    #[serde(default)]
    pub define: Vec<String>,
    /// Further options of the compiler.
    #[serde(default)]
    pub options: Vec<String>,
    /// Whether headers get `#pragma once`, because they have no guard of their own.
    #[serde(default)]
    pub once: bool,
}

/// A library of the system.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// Name behind `-l`.
    pub name: String,
    /// A header of it, by which it is looked for.
    pub header: String,
    /// The package to install where it lacks.
    pub package: String,
}

/// A handler.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handler {
    /// The function that begins it.
    pub function: String,
    /// What its message is.
    pub message: String,
}

struct BuiltIn {
    name: &'static str,
    recipe: &'static str,
    notice: &'static str,
    wrap: &'static str,
    patches: &'static [(&'static str, &'static str)],
}

macro_rules! built_in {
    ($name:literal: $($patch:literal),*) => {
        BuiltIn {
            name: $name,
            recipe: include_str!(concat!("../../apps/", $name, "/recipe.toml")),
            notice: include_str!(concat!("../../apps/", $name, "/NOTICE")),
            wrap: include_str!(concat!("../../apps/", $name, "/wrap.h")),
            patches: &[$(($patch, include_str!(concat!("../../apps/", $name, "/patches/", $patch)))),*],
        }
    };
}

/// The programs that come with the command.
const BUILT_IN: &[BuiltIn] = &[
    built_in!("dnscache": "1-handlers.patch"),
    built_in!("memcached": "1-handlers.patch", "2-state.patch"),
    built_in!("mosquitto": "1-handlers.patch"),
];

impl App {
    /// All programs that come with the command.
    pub fn built_in() -> Vec<App> {
        BUILT_IN.iter().map(App::of).collect()
    }

    /// The program of this name, or the one whose recipe lies in this folder.
    ///
    /// # Errors
    /// If there is neither, or the recipe does not parse.
    pub fn find(name: &str) -> Result<App> {
        if let Some(found) = BUILT_IN.iter().find(|app| app.name == name) {
            return Ok(App::of(found));
        }
        let folder = Path::new(name);
        if folder.join("recipe.toml").is_file() {
            return App::read(folder);
        }
        let names: Vec<&str> = BUILT_IN.iter().map(|app| app.name).collect();
        bail!(
            "there is no program {name}: it is none of {}, and no folder with a recipe.toml; \
             `crosscheck harden list` has the programs, docs/sei.md the form of a recipe",
            names.join(", ")
        )
    }

    /// Reads a program's folder.
    ///
    /// # Errors
    /// If a file cannot be read or does not parse.
    pub fn read(folder: &Path) -> Result<App> {
        let text =
            |file: &Path| fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
        let optional = |file: &str| {
            let file = folder.join(file);
            if file.exists() { text(&file) } else { Ok(String::new()) }
        };
        let file = folder.join("recipe.toml");
        let recipe = Recipe::parse(&text(&file)?).with_context(|| file.display().to_string())?;
        let mut patches = Vec::new();
        if folder.join("patches").is_dir() {
            for entry in fs::read_dir(folder.join("patches"))? {
                let path = entry?.path();
                if path.extension().is_some_and(|end| end == "patch") {
                    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    patches.push(Patch { name, text: text(&path)? });
                }
            }
        }
        patches.sort_by(|a, b| a.name.cmp(&b.name));
        let name = folder.canonicalize()?.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(App {
            name,
            recipe,
            notice: optional("NOTICE")?,
            patches,
            wrap: optional("wrap.h")?,
            folder: Some(folder.to_owned()),
        })
    }

    fn of(from: &BuiltIn) -> App {
        let patch =
            |(name, text): &(&str, &str)| Patch { name: (*name).to_owned(), text: (*text).to_owned() };
        App {
            name: from.name.to_owned(),
            recipe: Recipe::parse(from.recipe).expect("a test parses the recipes that come with the command"),
            notice: from.notice.to_owned(),
            patches: from.patches.iter().map(patch).collect(),
            wrap: from.wrap.to_owned(),
            folder: None,
        }
    }

    /// What names it in commands: its name, or its folder.
    pub fn argument(&self) -> String {
        self.folder.as_ref().map_or_else(|| self.name.clone(), |folder| folder.display().to_string())
    }

    /// Lines that its patches add or change, and lines that they remove.
    pub fn changed_lines(&self) -> (usize, usize) {
        let each = self.patches.iter().map(Patch::changed_lines);
        each.fold((0, 0), |(added, removed), (more, less)| (added + more, removed + less))
    }
}

impl Recipe {
    /// Parses a `recipe.toml`.
    ///
    /// # Errors
    /// If it is no TOML, has unknown or missing fields, or a path that leaves the source.
    pub fn parse(text: &str) -> Result<Recipe> {
        let recipe: Recipe = toml::from_str(text)?;
        if recipe.unit.files.is_empty() {
            bail!("`unit.files` is empty: name the files that the handlers are in");
        }
        let is_plain = |path: &str| {
            // The unit's file has them between quotes.
            !path.is_empty()
                && !path.contains(|letter: char| letter.is_control() || ['"', '\\'].contains(&letter))
                && Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        let paths = recipe.unit.files.iter().chain(&recipe.unit.apart).chain(recipe.unit.renames.keys());
        if let Some(path) = paths.chain([&recipe.program]).find(|path| !is_plain(path)) {
            bail!(
                "`{path}` is no path below the source: write it without `..`, a leading `/`, `\"` and `\\`"
            );
        }
        if let Some(file) = recipe.unit.renames.keys().find(|file| !recipe.unit.files.contains(file)) {
            bail!("`unit.renames` names {file}, which is not one of `unit.files`");
        }
        if recipe.prepare.iter().any(Vec::is_empty) {
            bail!("`prepare` has an empty command");
        }
        if let SourceOrigin::Package { archive, sha256, .. } = &recipe.source {
            if !is_plain(archive) || archive.contains('/') {
                bail!("`source.archive` is `{archive}`: write the archive's file name alone");
            }
            if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                bail!("`source.sha256` is not the 64 hexadecimal digits of a SHA-256");
            }
        }
        Ok(recipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str =
        "program = \"p\"\nsummary = \"s\"\n[source]\nfolder = \".\"\n[unit]\nfiles = [\"a.c\"]\n";

    #[test]
    fn the_programs_that_come_with_the_command_parse() {
        for app in App::built_in() {
            assert!(app.notice.lines().count() > 3, "{}: the licence of the patched lines", app.name);
            assert!(!app.patches.is_empty() && !app.recipe.handlers.is_empty(), "{}", app.name);
            assert!(matches!(app.recipe.source, SourceOrigin::Package { .. }), "{}", app.name);
        }
    }

    #[test]
    fn mistakes_in_a_recipe_are_named() {
        Recipe::parse(SMALL).expect("the smallest recipe");
        let wrong = [
            (SMALL.replace("a.c", "../a.c"), "below the source"),
            (SMALL.replace("a.c", "a\\nb.c"), "below the source"),
            (SMALL.replace("[\"a.c\"]", "[]"), "unit.files"),
            (SMALL.replace("summary", "sumary"), "sumary"),
            (format!("{SMALL}renames = {{ \"b.c\" = {{ x = \"y\" }} }}\n"), "b.c"),
            (SMALL.replace("[source]", "prepare = [[]]\n[source]"), "prepare"),
            (
                SMALL.replace(
                    "folder = \".\"",
                    "package = \"p\"\nversion = \"1\"\narchive = \"p.tar\"\nsha256 = \"12\"",
                ),
                "SHA-256",
            ),
        ];
        for (text, named) in wrong {
            let error = format!("{:#}", Recipe::parse(&text).expect_err(named));
            assert!(error.contains(named), "{error}");
        }
    }

    /// Whatever a recipe or a patch says, it is used or refused; what is used stays below its source folder.
    #[test]
    fn damaged_recipes_and_patches_are_used_or_refused() {
        let mut random = wire::SplitMix64::new(7);
        let mut refused = 0;
        for app in App::built_in() {
            let patch = app.patches[0].text.as_bytes();
            for _ in 0..2_000 {
                let mut text = include_str!("../../apps/memcached/recipe.toml").as_bytes().to_vec();
                let mut hunks = patch[..patch.len().min(600)].to_vec();
                for bytes in [&mut text, &mut hunks] {
                    for _ in 0..=random.below(3) {
                        let at = random.below(bytes.len() as u64 - 1) as usize;
                        match random.below(4) {
                            0 => bytes[at] = random.next_u64() as u8,
                            1 => drop(bytes.drain(at..=at)),
                            2 => bytes.insert(at, *random.pick(b"\0\n\"[]{}=/.-+@,9")),
                            _ => bytes.extend_from_within(at..),
                        }
                    }
                }
                match Recipe::parse(&String::from_utf8_lossy(&text)) {
                    Ok(recipe) => {
                        let is_below = |file: &String| {
                            !file.starts_with('/') && file.split('/').all(|part| part != "..")
                        };
                        let is_named = |file: &String| !file.contains(['"', '\\', '\n', '\0']);
                        let files = &recipe.unit.files;
                        assert!(files.iter().all(|file| is_below(file) && is_named(file)), "{files:?}");
                    }
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        refused += 1;
                    }
                }
                let text = String::from_utf8_lossy(&hunks).into_owned();
                let lines = text.lines().count();
                let (added, removed) = Patch { name: "damaged".into(), text }.changed_lines();
                assert!(added + removed <= lines);
            }
        }
        assert!(refused > 500, "{refused} were refused");
    }

    #[test]
    fn an_unknown_program_is_reported_with_the_known_ones() {
        let error = App::find("apache").expect_err("no recipe").to_string();
        assert!(error.contains("memcached") && error.contains("recipe.toml"), "{error}");
    }
}
