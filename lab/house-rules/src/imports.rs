//! Which files of a crate import which: paths are followed through modules and re-exports to the file with the item.

use super::TextFile;
use super::code::{SourceToken, word};
use std::collections::{BTreeMap, BTreeSet};

/// Words and marks behind which a module defines a name.
const ITEMS: [&str; 9] = ["struct", "enum", "trait", "type", "union", "fn", "const", "static", "!"];
/// Steps of a chain of re-exports at most.
const MAX_STEPS: usize = 20;

/// The first place where a file imports from another: its line, and the path that it writes.
pub type Import = (usize, String);

/// A path of a `use`.
struct UsedPath<'a> {
    path: Vec<&'a str>,
    /// What it is called in its module: `*` for all names below it.
    name: &'a str,
    line: usize,
    is_public: bool,
}

/// A module outside of tests.
struct Module<'a> {
    file: usize,
    items: BTreeSet<&'a str>,
    uses: Vec<UsedPath<'a>>,
    /// Its other tokens, without those of modules in it.
    own: Vec<usize>,
}

/// Where a path leads.
enum PathEnd {
    Module(String),
    /// Something in the file of this index.
    Item(usize),
}

/// Modules of a crate by their paths, such as `a::b`; the root's is empty.
pub struct Modules<'a> {
    files: &'a [&'a TextFile],
    modules: BTreeMap<String, Module<'a>>,
}

impl<'a> Modules<'a> {
    /// Reads the modules of the crate in this folder.
    pub fn read(folder: &str, files: &'a [&'a TextFile]) -> Self {
        let paths = files.iter().map(|file| module_of(folder, &file.path)).zip(0..).collect();
        let mut tree = Modules { files, modules: BTreeMap::new() };
        tree.enter(String::new(), None, &paths);
        tree
    }

    /// Reads a module, which is the file of its path or, as tokens between braces, a part of another file.
    fn enter(&mut self, path: String, part: Option<(usize, usize, usize)>, paths: &BTreeMap<String, usize>) {
        let Some(file) = part.map(|(file, ..)| file).or(paths.get(&path).copied()) else { return };
        let code: &'a [SourceToken] = &self.files[file].code;
        let (mut at, end) = part.map_or((0, code.len()), |(_, open, close)| (open + 1, close));
        let depth = part.map_or(0, |(_, open, _)| code[open].depth + 1);
        let mut module = Module { file, items: BTreeSet::new(), uses: Vec::new(), own: Vec::new() };
        while at < end {
            let next = word(code, at + 1);
            match (code[at].text.as_str(), next) {
                _ if code[at].is_exempt => {}
                ("mod", Some(name)) => {
                    let part = (code[at + 2].text == "{").then(|| (file, at + 2, code[at + 2].partner));
                    at = part.map_or(at + 2, |(.., close)| close);
                    self.enter(below(&path, name), part, paths);
                }
                ("use", _) if code[at + 1].text != "<" => {
                    let is_public = at > 0 && ["pub", ")"].contains(&code[at - 1].text.as_str());
                    at = used(code, at + 1, &[], &mut |path, name, line| {
                        module.uses.push(UsedPath { path, name, line, is_public });
                    });
                }
                (keyword, name) => {
                    module.own.push(at);
                    module.items.extend(name.filter(|_| code[at].depth == depth && ITEMS.contains(&keyword)));
                }
            }
            at += 1;
        }
        self.modules.insert(path, module);
    }

    /// What each file imports from which other one, by the indices of both.
    pub fn imports(&self) -> BTreeMap<(usize, usize), Import> {
        let mut imports = BTreeMap::new();
        for (path, module) in &self.modules {
            let code: &[SourceToken] = &self.files[module.file].code;
            let mut add = |line: usize, written: &[&str]| match self.follow(path, written, 0) {
                Some(PathEnd::Item(file)) if file != module.file => {
                    imports.entry((module.file, file)).or_insert_with(|| (line, written.join("::")));
                }
                _ => {}
            };
            let words: BTreeSet<&str> = module.own.iter().filter_map(|at| word(code, *at)).collect();
            for UsedPath { path, name, line, is_public } in &module.uses {
                if *name == "*" {
                    add(*line, path);
                    words.iter().for_each(|word| add(*line, &[&path[..], &[*word]].concat()));
                } else if !is_public || words.contains(name) {
                    add(*line, path);
                }
            }
            for at in module.own.iter().filter(|at| begins_path(code, **at)) {
                add(code[*at].line, &segments(code, *at));
            }
        }
        imports
    }

    /// Where a path leads that a module writes; none if to another crate.
    fn follow(&self, module: &str, path: &[&str], steps: usize) -> Option<PathEnd> {
        let mut here = PathEnd::Module(module.to_owned());
        for (at, segment) in path.iter().enumerate() {
            let PathEnd::Module(module) = &here else { break };
            here = match *segment {
                "crate" => PathEnd::Module(String::new()),
                "self" => continue,
                "super" => {
                    PathEnd::Module(module.rsplit_once("::").map_or("", |(parent, _)| parent).to_owned())
                }
                name => match self.name(module, name, at + 1 == path.len(), steps) {
                    Some(target) => target,
                    // It is of another crate if the path begins with it, or that module has it from there.
                    None if at == 0 => return None,
                    None => PathEnd::Item(self.modules.get(module)?.file),
                },
            };
        }
        Some(here)
    }

    /// What a name is in a module: an item rather than a module if it is the last of its path.
    fn name(&self, path: &str, name: &str, is_last: bool, steps: usize) -> Option<PathEnd> {
        let module = self.modules.get(path).filter(|_| steps < MAX_STEPS)?;
        let (inner, is_item) = (below(path, name), module.items.contains(name));
        if self.modules.contains_key(&inner) && !(is_last && is_item) {
            return Some(PathEnd::Module(inner));
        }
        if is_item {
            return Some(PathEnd::Item(module.file));
        }
        let of_name = |used: &&UsedPath<'_>| used.name == name && used.path != [name];
        if let Some(used) = module.uses.iter().find(of_name) {
            return self.follow(path, &used.path, steps + 1);
        }
        module.uses.iter().filter(|used| used.name == "*").find_map(|used| {
            match self.follow(path, &used.path, steps + 1)? {
                PathEnd::Module(other) => self.name(&other, name, is_last, steps + 1),
                PathEnd::Item(_) => None,
            }
        })
    }
}

/// `a::b` for `FOLDER/src/a/b.rs` and `FOLDER/src/a/b/mod.rs`.
fn module_of(folder: &str, path: &str) -> String {
    let path = path.strip_prefix(folder).and_then(|path| path.strip_prefix("/src/")).unwrap_or(path);
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { String::new() } else { path.replace('/', "::") }
}

fn below(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// Hands over each path of the tree of a `use` that begins at index `at`, with its name and line; the index of its end.
fn used<'a>(
    code: &'a [SourceToken],
    mut at: usize,
    before: &[&'a str],
    found: &mut dyn FnMut(Vec<&'a str>, &'a str, usize),
) -> usize {
    let mut path = before.to_vec();
    let mut name = None;
    loop {
        let Some(token) = code.get(at) else { return at };
        match token.text.as_str() {
            ":" => {}
            "{" => {
                let mut inner = at + 1;
                while inner < token.partner {
                    inner = used(code, inner, &path, found) + 1;
                }
                // What was in the braces is handed over.
                path.clear();
                at = token.partner;
            }
            "*" => name = Some("*"),
            "as" => {
                name = word(code, at + 1);
                at += 1;
            }
            "," | ";" | "}" => {
                if path.len() > 1 && path.last() == Some(&"self") {
                    path.pop();
                }
                if let Some(name) = name.or(path.last().copied()) {
                    found(path, name, code[at - 1].line);
                }
                return at;
            }
            text => path.push(text),
        }
        at += 1;
    }
}

fn is_mark(code: &[SourceToken], at: usize, text: &str) -> bool {
    code.get(at).is_some_and(|token| token.text == text)
}

fn is_colons(code: &[SourceToken], at: usize) -> bool {
    is_mark(code, at, ":") && is_mark(code, at + 1, ":")
}

/// Whether a path of several segments begins at index `at`.
fn begins_path(code: &[SourceToken], at: usize) -> bool {
    let is_inside = at > 0 && is_mark(code, at - 1, ".") || at > 1 && is_colons(code, at - 2);
    word(code, at).is_some() && is_colons(code, at + 1) && !is_inside
}

fn segments(code: &[SourceToken], mut at: usize) -> Vec<&str> {
    let mut path: Vec<&str> = word(code, at).into_iter().collect();
    while let Some(next) = word(code, at + 3).filter(|_| is_colons(code, at + 1)) {
        path.push(next);
        at += 3;
    }
    path
}
