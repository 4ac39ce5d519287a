//! House rules about manifests: crates have ranks, depend downwards only, and every dependency has its reason.

use super::Breach;
use std::collections::BTreeMap;

/// A crate of the workspace, as the root manifest's `members` list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceMember {
    /// Its folder, relative to the workspace.
    pub folder: String,
    /// Its rank, from the comment behind it.
    pub rank: u32,
}

impl WorkspaceMember {
    /// The path of its manifest.
    pub fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.folder)
    }

    /// Whether it is of the laboratory or of the hardening of C programs, which no server carries.
    fn is_outside(&self) -> bool {
        !self.folder.starts_with("server/")
    }
}

/// The crates of the workspace by the names of their folders, which are their own.
pub type Ranks = BTreeMap<String, WorkspaceMember>;

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
            let folder = line[1..].split('"').next().unwrap_or("").to_owned();
            let name = folder.rsplit('/').next().unwrap_or("").to_owned();
            let comment = line.split_once('#').map_or("", |(_, comment)| comment.trim());
            let mut words = comment.split_whitespace();
            let rank = (words.next() == Some("rank")).then(|| words.next()?.parse().ok()).flatten();
            match rank {
                Some(rank) if words.count() >= 3 => {
                    drop(ranks.insert(name, WorkspaceMember { folder, rank }))
                }
                _ => breaches.push(Breach {
                    file: "Cargo.toml".into(),
                    line: number + 1,
                    what: format!("crate {name} has no rank and sentence"),
                    remedy: "write `# rank N  one sentence` behind the member",
                }),
            }
        }
    }
    (ranks, breaches)
}

/// A crate depends only on crates of a lower rank; tests and build scripts are no exception.
pub fn depends_downwards(package: &str, manifest: &str, ranks: &Ranks) -> Vec<Breach> {
    let own = &ranks[package];
    dependencies(manifest)
        .into_iter()
        .filter(|(_, name)| name != package && ranks.get(name).is_some_and(|other| other.rank >= own.rank))
        .map(|(line, name)| Breach {
            file: own.manifest(),
            line,
            what: format!("{package} (rank {}) depends on {name} (rank {})", own.rank, ranks[&name].rank),
            remedy: "move the shared thing to a lower crate, or let the higher crate pass it in",
        })
        .collect()
}

/// What ships is in `server/`: those crates depend on nothing of the laboratory, and on the hardening of C programs
/// only behind a feature. Their tests may use it.
pub fn stays_behind_the_fence(package: &str, manifest: &str, ranks: &Ranks) -> Vec<Breach> {
    let own = &ranks[package];
    if own.is_outside() {
        return Vec::new();
    }
    let is_optional =
        |line: usize| manifest.lines().nth(line - 1).is_some_and(|text| text.contains("optional = true"));
    let tests = manifest.lines().position(|line| line.contains("dev-dependencies]")).unwrap_or(usize::MAX);
    dependencies(manifest)
        .into_iter()
        .filter(|(line, _)| *line < tests)
        .filter(|(line, name)| ranks.get(name).is_some_and(WorkspaceMember::is_outside) && !is_optional(*line))
        .map(|(line, name)| Breach {
            file: own.manifest(),
            line,
            what: format!("{name} ({}) is in every build of {package}", ranks[&name].folder),
            remedy: "move what both need to server/, or write `{ workspace = true, optional = true }`, and `dep:NAME` \
                behind the feature `inject`",
        })
        .collect()
}

/// Every crate takes versions and lints from the root manifest.
pub fn inherits(package: &str, path: &str, manifest: &str) -> Vec<Breach> {
    let mut found = Vec::new();
    if !manifest.contains("[lints]\nworkspace = true") {
        found.push(Breach {
            file: path.to_owned(),
            line: 0,
            what: "does not take the workspace's lints".into(),
            remedy: "add `[lints]` with `workspace = true`",
        });
    }
    for (line, name) in dependencies(manifest) {
        let text = manifest.lines().nth(line - 1).unwrap_or("");
        if name != package && !text.contains("workspace = true") {
            found.push(Breach {
                file: path.to_owned(),
                line,
                what: format!("{name} has its own version here"),
                remedy: "name version and reason once in the root manifest, and write `workspace = true` here",
            });
        }
    }
    found
}

/// Every dependency of the root manifest that is not a crate of ours has its reason: in a comment behind it, or right
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

/// (line, name) of every dependency in every dependency table of a crate's manifest.
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
