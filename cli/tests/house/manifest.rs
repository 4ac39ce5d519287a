//! House rules about manifests: rooms have ranks, depend downwards only, and every dependency has its reason.

use super::Breach;
use std::collections::BTreeMap;

/// Rooms of the workspace with their ranks, read from the comments of the root manifest's `members`.
pub type Ranks = BTreeMap<String, u32>;

/// Reads `"name", # rank N  sentence` lines; a member without rank or sentence is a breach.
pub fn ranks(root_manifest: &str) -> (Ranks, Vec<Breach>) {
    let mut ranks = Ranks::new();
    let mut breaches = Vec::new();
    let mut inside = false;
    for (number, line) in root_manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("members") && line.ends_with('[') {
            inside = true;
        } else if inside && line.starts_with(']') {
            break;
        } else if inside && line.starts_with('"') {
            let name = line[1..].split('"').next().unwrap_or("").to_owned();
            let comment = line.split_once('#').map_or("", |(_, comment)| comment.trim());
            let mut words = comment.split_whitespace();
            let rank = (words.next() == Some("rank")).then(|| words.next()?.parse().ok()).flatten();
            match rank {
                Some(rank) if words.count() >= 3 => drop(ranks.insert(name, rank)),
                _ => breaches.push(Breach {
                    file: "Cargo.toml".into(),
                    line: number + 1,
                    what: format!("room {name} has no rank and sentence"),
                    remedy: "write `# rank N  one sentence` behind the member",
                }),
            }
        }
    }
    (ranks, breaches)
}

/// A room depends only on rooms of a lower rank; tests and build scripts are no exception.
pub fn depends_downwards(room: &str, manifest: &str, ranks: &Ranks) -> Vec<Breach> {
    let own = ranks[room];
    dependencies(manifest)
        .into_iter()
        .filter(|(_, name)| name != room && ranks.get(name).is_some_and(|&rank| rank >= own))
        .map(|(line, name)| Breach {
            file: format!("{room}/Cargo.toml"),
            line,
            what: format!("{room} (rank {own}) depends on {name} (rank {})", ranks[&name]),
            remedy: "move the shared thing to a lower room, or let the higher room pass it in",
        })
        .collect()
}

/// Rooms of rank `outside` test the server from outside: the command depends on them only where a feature asks for it.
pub fn is_optional(room: &str, manifest: &str, ranks: &Ranks, outside: u32) -> Vec<Breach> {
    let is_asked_for =
        |line: usize| manifest.lines().nth(line - 1).is_some_and(|text| text.contains("optional = true"));
    dependencies(manifest)
        .into_iter()
        .filter(|(line, name)| ranks.get(name) == Some(&outside) && !is_asked_for(*line))
        .map(|(line, name)| Breach {
            file: format!("{room}/Cargo.toml"),
            line,
            what: format!("{name} (rank {outside}) is in every build of {room}"),
            remedy: "write `{ workspace = true, optional = true }`, and `dep:NAME` behind the feature `inject`",
        })
        .collect()
}

/// Every room takes versions and lints from the root manifest.
pub fn inherits(room: &str, manifest: &str) -> Vec<Breach> {
    let mut found = Vec::new();
    if !manifest.contains("[lints]\nworkspace = true") {
        found.push(Breach {
            file: format!("{room}/Cargo.toml"),
            line: 0,
            what: "does not take the workspace's lints".into(),
            remedy: "add `[lints]` with `workspace = true`",
        });
    }
    for (line, name) in dependencies(manifest) {
        let text = manifest.lines().nth(line - 1).unwrap_or("");
        if name != room && !text.contains("workspace = true") {
            found.push(Breach {
                file: format!("{room}/Cargo.toml"),
                line,
                what: format!("{name} has its own version here"),
                remedy: "name version and reason once in the root manifest, and write `workspace = true` here",
            });
        }
    }
    found
}

/// Every dependency of the root manifest that is not a room says what it is good for: in a comment behind it, or right
/// above it.
pub fn reasons(root_manifest: &str, ranks: &Ranks) -> Vec<Breach> {
    let mut section = "";
    let mut line = "";
    let mut found = Vec::new();
    for (number, next) in root_manifest.lines().enumerate() {
        let above = std::mem::replace(&mut line, next.trim());
        if line.starts_with('[') {
            section = line;
        }
        let Some((name, rest)) = line.split_once('=') else { continue };
        if section != "[workspace.dependencies]" || line.starts_with('#') || ranks.contains_key(name.trim()) {
            continue;
        }
        let reason = rest.split_once(" # ").map(|(_, reason)| reason).or(above.strip_prefix("# "));
        if reason.is_none_or(|reason| reason.split_whitespace().count() < 2) {
            found.push(Breach {
                file: "Cargo.toml".into(),
                line: number + 1,
                what: format!("{} has no reason", name.trim()),
                remedy: "write `# what it is good for` behind or above it; if there is no good reason, do without it",
            });
        }
    }
    found
}

/// (line, name) of every dependency in every dependency table of a room's manifest.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut in_table = false;
    let mut found = Vec::new();
    for (number, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            in_table = line.trim_matches(['[', ']']).ends_with("dependencies");
        } else if in_table && !line.is_empty() && !line.starts_with('#') {
            let name: String =
                line.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).collect();
            found.push((number + 1, name));
        }
    }
    found
}
