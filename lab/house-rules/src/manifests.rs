//! Rules on manifests: crates have ranks, depend downwards only, and every dependency has its reason.

use super::{Breaches, TextFile, Workspace, add};

/// A crate of the workspace, as the root manifest's `members` list it.
struct Listed<'a> {
    name: &'a str,
    folder: &'a str,
    line: usize,
    /// From `# rank N  sentence` behind it.
    rank: Option<u32>,
    manifest: &'a TextFile,
}

fn root(tree: &Workspace) -> &TextFile {
    tree.file("Cargo.toml").expect("a workspace has a manifest")
}

fn crates(tree: &Workspace) -> Vec<Listed<'_>> {
    let lines = root(tree).lines().skip_while(|(_, text)| !text.starts_with("members"));
    let mut crates = Vec::new();
    for (line, text) in lines.take_while(|(_, text)| *text != "]") {
        let Some((folder, rest)) = text.trim().trim_start_matches('"').split_once('"') else { continue };
        let mut words = rest.split_once("# rank ").map_or("", |(_, rank)| rank).split_whitespace();
        let rank = words.next().and_then(|rank| rank.parse().ok()).filter(|_| words.count() >= 3);
        let name = &folder[folder.rfind('/').map_or(0, |slash| slash + 1)..];
        let manifest = tree.file(&format!("{folder}/Cargo.toml")).expect("cargo read it");
        crates.push(Listed { name, folder, line, rank, manifest });
    }
    crates
}

/// Every crate has its rank, takes the workspace's lints, and is in ARCHITECTURE.md's table of crates.
pub fn members(tree: &Workspace, out: &mut Breaches) {
    let map = tree.file("ARCHITECTURE.md").map_or("", |file| &file.text);
    let table = map.split("## ").find(|section| section.starts_with("Crates\n")).unwrap_or("");
    for Listed { name, line, rank, manifest, .. } in crates(tree) {
        if rank.is_none() {
            add(out, root(tree), line, format!("write `# rank N  one sentence` behind {name}"));
        }
        if !manifest.text.contains("[lints]\nworkspace = true") {
            add(out, manifest, 0, "add `[lints]` with `workspace = true`");
        }
        if !table.contains(&format!("`{name}`")) {
            add(out, root(tree), line, format!("add a line on {name} to the table in ARCHITECTURE.md"));
        }
    }
}

/// A crate depends only on crates of a lower rank, and names no version. What ships is in `server/`: it depends on
/// nothing of the laboratory, and on the hardening of C programs only behind a feature; its tests may.
pub fn dependencies(tree: &Workspace, out: &mut Breaches) {
    let crates = crates(tree);
    for own in &crates {
        let mut table = "";
        for (line, text) in own.manifest.lines() {
            table = text.strip_prefix('[').map_or(table, |head| head.trim_end_matches(']'));
            let name = text.split(|c: char| !(c.is_alphanumeric() || "_-".contains(c))).next().unwrap_or("");
            // A crate may depend on itself: its tests ask for a feature.
            if !table.ends_with("dependencies") || name.is_empty() || name == own.name {
                continue;
            }
            let mut breach = |what: &str| add(out, own.manifest, line, format!("{name}: {what}"));
            if !text.contains("workspace = true") {
                breach("name version and reason in the root manifest, and write `workspace = true` here");
            }
            let Some(other) = crates.iter().find(|other| other.name == name) else { continue };
            if other.rank >= own.rank {
                breach("its rank is not lower: move what both need to a lower crate, or pass it in");
            }
            let ships = |one: &Listed<'_>| one.folder.starts_with("server/");
            let is_in_build = !table.ends_with("dev-dependencies") && !text.contains("optional = true");
            if ships(own) && !ships(other) && is_in_build {
                breach("move what both need to server/, or make it optional, as `dep:NAME` of `inject`");
            }
        }
    }
}

/// Every dependency of the root manifest that is not a crate of ours has its reason: behind it, or right above it.
pub fn reasons(tree: &Workspace, out: &mut Breaches) {
    let (mut table, mut above) = ("", "");
    for (line, text) in root(tree).lines() {
        table = text.strip_prefix('[').unwrap_or(table);
        let reason = text.split_once(" # ").map(|(_, reason)| reason).or(above.strip_prefix("# "));
        let has_reason = reason.is_some_and(|reason| reason.split_whitespace().count() >= 2);
        let is_one = table == "workspace.dependencies]" && text.contains(" = ") && !text.starts_with('#');
        if is_one && !has_reason && !text.contains("{ path = ") {
            add(out, root(tree), line, "write `# what it is good for` behind or above it");
        }
        above = text;
    }
}
