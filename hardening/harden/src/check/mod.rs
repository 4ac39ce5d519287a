//! All causes at once why a program's handlers cannot be hardened, each with its place, its way from a handler, and its
//! remedy: one compilation of each file that handlers reach, and one more where it had errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

use self::marked::{Left, Purpose, TAIL, UNREADABLE};
use self::reach::{CallGraph, Id, Ways};
use self::remedy::Body;
use self::text::Text;
use crate::bits;
use crate::compile::{self, Compiler};
use crate::inspect::{self, Obstacle};
use crate::local;
use crate::pipeline::errors;

pub mod commands;
pub mod marked;
pub mod reach;
pub mod remedy;
pub mod targets;
pub mod text;

/// How often a file is compiled, each time without what the compiler could not take.
const TRIES: usize = 8;
/// Files that are compiled at a time, at most.
const WORKERS: usize = 4;

/// A file, and how it is compiled.
#[derive(Clone, Debug)]
pub struct CheckedSource {
    /// The file, relative to its folder.
    pub file: PathBuf,
    /// The folder in which the compiler is called.
    pub folder: PathBuf,
    /// The program's folder: names of files are told relative to it.
    pub root: PathBuf,
    /// The same two folders of a copy that make has run in, for files that the preprocessor refuses without what make
    /// generates.
    pub copy: Option<(PathBuf, PathBuf)>,
    /// Its options, those of the preprocessor included.
    pub flags: Vec<String>,
    /// Whether a recipe compiles it apart, without handlers.
    pub is_apart: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// What has to be done; empty where nothing keeps the program from being hardened.
    pub causes: Vec<Cause>,
    /// Code of handlers that threads run outside of them: right where they cannot run beside handlers. And files that
    /// were left out.
    pub notes: Vec<String>,
    /// Handlers.
    pub handlers: usize,
    /// Functions that handlers reach.
    pub reached: usize,
}

/// Something that keeps a program from being hardened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What it is.
    pub what: String,
    /// `file:line`, and what stands there.
    pub places: Vec<String>,
    /// The handler, and the calls from it to the first place.
    pub way: String,
    /// What to do.
    pub remedy: String,
}

/// Finds everything that keeps the files' handlers from being hardened; `scratch` is a folder for temporary files.
///
/// # Errors
/// If a file does not compile for another reason.
pub fn check(sources: &[CheckedSource], compiler: &Compiler, scratch: &Path) -> Result<CheckReport> {
    let read = in_parallel(sources.len(), |number| {
        let read = preprocessed(&sources[number], number, compiler, scratch);
        // Of many files one may need what is not installed, such as a tool beside the server.
        if sources.len() == 1 { read.map(Ok) } else { Ok(read.map_err(|error| (number, error))) }
    })?;
    let mut report = CheckReport::default();
    let mut known = Vec::new();
    for read in read {
        match read {
            Ok(read) => known.push(read),
            Err((number, error)) => report.notes.push(left_out(&sources[number], &error)),
        }
    }
    let (sources, texts): (Vec<CheckedSource>, Vec<String>) = known.into_iter().unzip();
    let sources = &sources;
    let program = CallGraph::of(texts.iter().map(|text| Text::read(text)).collect());
    let reached = program.reached();
    report.handlers = program.all().map(|(_, function)| function.handlers.len()).sum();
    report.reached = reached.len();
    if report.handlers == 0 {
        report.causes.push(Cause {
            what: "there is no handler".to_owned(),
            places: Vec::new(),
            way: String::new(),
            remedy: remedy::NO_HANDLER.to_owned(),
        });
        return Ok(report);
    }
    let check = CheckRun { sources, compiler, scratch, program: &program, reached: &reached };
    let concerned: Vec<usize> = (0..sources.len()).filter(|&file| check.is_concerned(file)).collect();
    let found = in_parallel(concerned.len(), |at| check.file(concerned[at]))?;
    let mut dumps = BTreeMap::new();
    let mut all: BTreeMap<(String, String), Cause> = BTreeMap::new();
    for (file, found) in concerned.into_iter().zip(found) {
        dumps.insert(file, found.optimised);
        for cause in found.causes {
            let known = all
                .entry((cause.what.clone(), cause.remedy.clone()))
                .or_insert(Cause { places: Vec::new(), ..cause.clone() });
            known.places.extend(cause.places);
        }
    }
    report.causes = all.into_values().collect();
    for cause in &mut report.causes {
        cause.places.dedup();
    }
    report.notes.extend(check.outside(&dumps));
    Ok(report)
}

/// That a file is taken for one of a library.
fn left_out(source: &CheckedSource, error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let why = text.lines().find(|line| line.contains("error:")).or(text.lines().next()).unwrap_or_default();
    let path = source.folder.join(&source.file);
    let path = path.strip_prefix(&source.root).unwrap_or(&path);
    format!("{} cannot be read, and counts as part of a library: {why}", path.display())
}

/// The text of a file, and how it is compiled from then on.
fn preprocessed(
    source: &CheckedSource,
    number: usize,
    compiler: &Compiler,
    scratch: &Path,
) -> Result<(CheckedSource, String)> {
    let text = scratch.join(format!("{number}.plain.i"));
    let mut source = source.clone();
    let mut result = compiler.preprocess(&source.flags, &source.file, &text, &source.folder);
    if result.is_err()
        && let Some((folder, root)) = source.copy.take()
    {
        (source.folder, source.root) = (folder, root);
        result = compiler.preprocess(&source.flags, &source.file, &text, &source.folder);
    }
    result?;
    Ok((source, String::from_utf8_lossy(&fs::read(&text)?).into_owned()))
}

struct CheckRun<'c> {
    sources: &'c [CheckedSource],
    compiler: &'c Compiler,
    scratch: &'c Path,
    program: &'c CallGraph<'c>,
    reached: &'c Ways,
}

/// What one file's compilation showed.
struct FoundCauses {
    causes: Vec<Cause>,
    /// What GCC's pass `optimized` wrote; `None` where the file does not compile before its causes are mended.
    optimised: Option<String>,
}

/// What a compilation without errors wrote.
struct Output {
    obstacles: BTreeSet<Obstacle>,
    optimised: String,
}

impl CheckRun<'_> {
    fn is_concerned(&self, file: usize) -> bool {
        let text = &self.program.files[file];
        self.is_instrumented(file)
            || text.functions.iter().any(|function| text.attributes(function.name).is_local)
            || !marked::foreign_locals(self.program, file).is_empty()
    }

    /// Whether handlers begin in the file, or reach it.
    fn is_instrumented(&self, file: usize) -> bool {
        let mut functions = self.program.files[file].functions.iter();
        self.reached.keys().any(|id| id.0 == file) || functions.any(|function| !function.handlers.is_empty())
    }

    fn file(&self, file: usize) -> Result<FoundCauses> {
        let mut causes = self.unreadable(file);
        let mut left = Left::default();
        let mut output = None;
        for _ in 0..TRIES {
            let printed = match self.compile(file, &left, Purpose::Causes)? {
                Ok(compiled) => {
                    output = Some(compiled);
                    break;
                }
                Err(printed) => printed,
            };
            if let Some(cause) = self.stopped(file, &printed, &mut left) {
                causes.push(cause);
                continue;
            }
            let refusals: Vec<CompilerRefusal<'_>> =
                printed.lines().filter_map(CompilerRefusal::parse).collect();
            let (tail, refusals): (Vec<_>, Vec<_>) =
                refusals.into_iter().partition(|one| one.place.0 == TAIL);
            left.lines.extend(tail.iter().map(|refusal| refusal.place.1));
            if refusals.is_empty() && !tail.is_empty() {
                continue;
            }
            if refusals.is_empty() || !refusals.iter().all(CompilerRefusal::is_about_handlers) {
                return self.other_error(file, &printed);
            }
            causes.extend(refusals.iter().map(|refusal| self.refused(file, refusal)));
            break;
        }
        let output = match output {
            Some(output) => Some(output),
            None => self.compile(file, &left, Purpose::Output)?.ok(),
        };
        let optimised = output.map(|output| {
            causes.extend(output.obstacles.iter().map(|obstacle| self.obstacle(file, obstacle)));
            output.optimised
        });
        Ok(FoundCauses { causes, optimised })
    }

    /// A file that does not compile as it is: of many files the others can be checked all the same.
    fn other_error(&self, file: usize, printed: &str) -> Result<FoundCauses> {
        let source = &self.sources[file];
        let name = source.file.display();
        if self.sources.len() == 1 {
            bail!("{name} does not compile, for a reason that is not about handlers:\n{}", errors(printed));
        }
        let first = printed.lines().find_map(CompilerRefusal::parse);
        let place = first.as_ref().map_or(("", 0), |refusal| refusal.place);
        let words = first.as_ref().map_or("GCC gives no error", |refusal| refusal.words);
        let what = format!("{name} does not compile, for a reason that is not about handlers: {words}");
        let causes = vec![self.cause(file, place, what, remedy::COMPILE_FIRST.to_owned())];
        Ok(FoundCauses { causes, optimised: None })
    }

    /// Compiles a file's text for this purpose; the inner error is what the compiler printed.
    fn compile(
        &self,
        file: usize,
        left: &Left,
        purpose: Purpose,
    ) -> Result<std::result::Result<Output, String>> {
        let source = &self.sources[file];
        let at = |end: &str| self.scratch.join(format!("{file}.{end}"));
        let (text, object, dump, optimised) = (at("i"), at("o"), at("tmmark"), at("optimized"));
        fs::write(&text, marked::text(self.program, file, self.reached, left, purpose))?;
        let mut flags = without_headers(&source.flags);
        flags.extend(["-w"].into_iter().chain(compile::DEBUG).map(str::to_owned));
        if self.is_instrumented(file) {
            // The pass for repeated accesses does not survive handlers in handlers.
            flags.extend(["-fgnu-tm", "-fdisable-tree-tmmemopt"].map(str::to_owned));
        }
        flags.push(format!("-fdump-tree-tmmark={}", dump.display()));
        flags.push(format!("-fdump-tree-optimized={}", optimised.display()));
        // Those of an earlier compilation are not of this one.
        for old in [&dump, &optimised] {
            let _ = fs::remove_file(old);
        }
        let printed = self.compiler.compile(&flags, &text, &object, &source.folder)?;
        if !printed.is_success {
            return Ok(Err(printed.err));
        }
        let bytes = fs::read(&object)?;
        let mut obstacles = BTreeSet::new();
        if purpose == Purpose::Causes {
            obstacles = inspect::object(&bytes)?.obstacles;
        }
        // A file may have SEI_LOCAL functions and nothing that handlers reach.
        if let Ok(dump) = fs::read(&dump) {
            let dump = String::from_utf8_lossy(&dump);
            obstacles.extend(bits::accesses(&bytes, &dump)?);
            if purpose == Purpose::Output {
                let reached = self.reached.keys().filter(|id| id.0 == file);
                let names = reached.map(|&id| self.program.function(id).name).collect();
                obstacles.extend(bits::mentions(&bytes, &dump, &names)?);
            }
        }
        // A file may have no function at all in this configuration.
        let optimised = fs::read(&optimised).unwrap_or_default();
        let optimised = String::from_utf8_lossy(&optimised).into_owned();
        obstacles.extend(local::writers(&optimised));
        Ok(Ok(Output { obstacles, optimised }))
    }

    /// The function in which the compiler stopped with an error of its own: it is left as it is from then on.
    fn stopped(&self, file: usize, printed: &str, left: &mut Left) -> Option<Cause> {
        let words = ["internal compiler error", "confused by earlier errors"];
        let line = printed.lines().find(|line| words.iter().any(|words| line.contains(words)))?;
        let mut parts = line.split(':');
        let (of, number) = (parts.next()?, parts.next()?.parse().ok()?);
        let text = &self.program.files[file];
        let function = text.function_at(of, number)?;
        let number = text.functions.iter().position(|other| other.at == function.at)?;
        let what = format!("GCC stops with an error of its own in `{}`", function.name);
        let cause = self.cause(file, text.place(function.at), what, remedy::INTERNAL.to_owned());
        left.functions.insert(number).then_some(cause)
    }

    /// What handlers have themselves that the compiler cannot even refuse.
    fn unreadable(&self, file: usize) -> Vec<Cause> {
        let text = &self.program.files[file];
        let calls = text
            .functions
            .iter()
            .flat_map(|function| function.calls.iter().filter(|call| function.is_in_handler(call.at)));
        let calls = calls.filter(|call| UNREADABLE.contains(&call.name));
        calls
            .map(|call| {
                let what = format!("`{}` stands in a handler", call.name);
                self.cause(file, text.place(call.at), what, remedy::INTERNAL.to_owned())
            })
            .collect()
    }

    fn refused(&self, file: usize, refusal: &CompilerRefusal<'_>) -> Cause {
        let (what, remedy) = match refusal.callee() {
            Some(name) if self.is_function(file, name) => {
                let body = match self.program.resolve(file, name) {
                    Some(id) if id.0 == file => None,
                    Some(id) if self.sources[id.0].is_apart => {
                        Some(Body::Apart(self.sources[id.0].file.display().to_string()))
                    }
                    // Many at once, with one thing to do.
                    Some(id) => {
                        let of = self.shown(id.0, self.program.place(id));
                        let of = of.rsplit_once(':').map_or(of.as_str(), |(file, _)| file);
                        let what = format!("functions of {of} are called");
                        return self.cause(file, refusal.place, what, remedy::call(name, &Body::File));
                    }
                    None => Some(Body::Library),
                };
                let remedy = body.map_or(remedy::OTHER.to_owned(), |body| remedy::call(name, &body));
                (format!("`{name}` is called"), remedy)
            }
            Some(name) => {
                let name = name.split('.').next().unwrap_or(name);
                let is_reported = !name.is_empty() && name != "D" && !name.starts_with('_');
                let pointer = if is_reported { format!(" `{name}`") } else { String::new() };
                (format!("a call goes through the pointer{pointer}"), remedy::POINTER.to_owned())
            }
            None if refusal.words.contains("indirect") => {
                ("a call goes through a pointer".to_owned(), remedy::POINTER.to_owned())
            }
            None if refusal.words.contains("volatile") => {
                ("a volatile variable is used".to_owned(), remedy::VOLATILE.to_owned())
            }
            None if refusal.words.contains("always_inline") => {
                ("an always_inline function is called".to_owned(), remedy::ALWAYS_INLINE.to_owned())
            }
            None if refusal.words.contains("asm") => {
                ("there is inline assembly".to_owned(), remedy::ASSEMBLY.to_owned())
            }
            None => (refusal.words.to_owned(), remedy::OTHER.to_owned()),
        };
        self.cause(file, refusal.place, what, remedy)
    }

    /// Whether the compiler's name of what is called is that of a function, and no value's.
    fn is_function(&self, file: usize, name: &str) -> bool {
        let text = &self.program.files[file];
        text.declared.contains_key(name) || name.starts_with("__")
    }

    fn obstacle(&self, file: usize, obstacle: &Obstacle) -> Cause {
        let text = &self.program.files[file];
        let function = text.functions.iter().find(|function| function.name == obstacle.function);
        let field = obstacle.symbol.strip_prefix("bit-field ");
        let place = function.map(|function| {
            let body = text::tokens(&text.text[function.body.clone()]);
            let used = body.iter().find(|(_, token)| Some(*token) == field);
            text.place(used.map_or(function.at, |(at, _)| function.body.start + at))
        });
        let (what, remedy) = obstacle.reported();
        let what = match field {
            Some(_) => format!("{}: a handler {what}", obstacle.symbol),
            None if obstacle.function.is_empty() => format!("a handler {what}"),
            None => format!("`{}` {what} ({})", obstacle.function, obstacle.symbol),
        };
        self.cause(file, place.unwrap_or(("", 0)), what, remedy.to_owned())
    }

    fn cause(&self, file: usize, place: (&str, usize), what: String, remedy: String) -> Cause {
        let text = &self.program.files[file];
        let function = text.function_at(place.0, place.1);
        let number = function.and_then(|at| text.functions.iter().position(|other| other.at == at.at));
        let way = number.map_or(String::new(), |number| self.way((file, number)));
        Cause { what, places: vec![self.shown_with_line(file, place)], way, remedy }
    }

    /// The handler that reaches a function, and the calls in between.
    fn way(&self, to: Id) -> String {
        let is_begin = !self.program.function(to).handlers.is_empty();
        if !self.reached.contains_key(&to) {
            let place = self.shown(to.0, self.program.place(to));
            let name = self.program.function(to).name;
            return if is_begin {
                format!("the handler in {name} ({place})")
            } else {
                format!("{name} ({place})")
            };
        }
        let path = self.program.path(self.reached, to);
        let place = self.shown(path[0].0, self.program.place(path[0]));
        let names: Vec<&str> = path.iter().map(|&id| self.program.function(id).name).collect();
        let has_handler = !self.program.function(path[0]).handlers.is_empty();
        let begin = if has_handler { "the handler in" } else { "the SEI_SAFE function" };
        format!("{begin} {} ({place})", names.join(" > "))
    }

    /// Code of handlers that threads and signal handlers run outside of them.
    fn outside(&self, dumps: &BTreeMap<usize, Option<String>>) -> Vec<String> {
        let mut of: BTreeMap<Id, Vec<String>> = BTreeMap::new();
        for (begin, ways) in self.program.outside() {
            for &id in ways.keys().filter(|id| self.reached.contains_key(id)) {
                let function = self.program.function(id);
                let dump = dumps.get(&id.0).and_then(Option::as_deref);
                if dump.is_none_or(|dump| writes(dump, function.name)) {
                    let place = self.shown(id.0, self.program.place(id));
                    of.entry(begin).or_default().push(format!("{} ({place})", function.name));
                }
            }
        }
        let reported = of.into_iter().map(|(begin, functions)| {
            let more = functions.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "{} ({}) runs as a thread or for a signal, and calls code of handlers outside of a handler, which \
                 writes: {}{more}",
                self.program.function(begin).name,
                self.shown(begin.0, self.program.place(begin)),
                functions[..functions.len().min(NAMED)].join(", "),
            )
        });
        reported.collect()
    }

    /// `file:line`, relative to the folder of the program where it is below.
    fn shown(&self, file: usize, (name, line): (&str, usize)) -> String {
        let path = self.sources[file].folder.join(name);
        let root = &self.sources[file].root;
        format!("{}:{line}", path.strip_prefix(root).unwrap_or(&path).display())
    }

    fn shown_with_line(&self, file: usize, (name, line): (&str, usize)) -> String {
        let bytes = fs::read(self.sources[file].folder.join(name)).unwrap_or_default();
        let source = String::from_utf8_lossy(&bytes);
        let stands =
            line.checked_sub(1).and_then(|before| source.lines().nth(before)).unwrap_or_default().trim();
        let cut: String = stands.chars().take(SHOWN).collect();
        let more = if cut.len() < stands.len() { "..." } else { "" };
        format!("{}: {cut}{more}", self.shown(file, (name, line)))
    }
}

/// Functions of one thread that are named.
const NAMED: usize = 6;
/// Characters of a line that are shown.
const SHOWN: usize = 80;

/// Whether the instrumented text of a function writes to memory that is not its own. One that has no text of its own is
/// part of its callers, and may.
fn writes(dump: &str, function: &str) -> bool {
    let begin = format!("\n;; Function {function} (");
    let mut of = dump.match_indices(&begin).peekable();
    of.peek().is_none()
        || of.any(|(at, _)| {
            let body = &dump[at + 1..];
            let body = &body[..body.find("\n;; Function ").unwrap_or(body.len())];
            ["_ITM_W", "_ITM_mem", "sei_call_"].iter().any(|write| body.contains(write))
        })
}

/// One error of the compiler.
#[derive(Debug, PartialEq, Eq)]
struct CompilerRefusal<'e> {
    place: (&'e str, usize),
    words: &'e str,
}

impl<'e> CompilerRefusal<'e> {
    /// Reads `file:line:column: error: words`.
    fn parse(line: &'e str) -> Option<CompilerRefusal<'e>> {
        let (place, words) = line.split_once(": error: ")?;
        let mut parts = place.rsplitn(3, ':');
        let (_, number, file) = (parts.next()?, parts.next()?, parts.next()?);
        Some(CompilerRefusal { place: (file, number.parse().ok()?), words })
    }

    fn is_about_handlers(&self) -> bool {
        ["transaction", "atomic", "always_inline"].iter().any(|word| self.words.contains(word))
    }

    fn callee(&self) -> Option<&'e str> {
        self.words.strip_prefix("unsafe function call '")?.split('\'').next()
    }
}

/// Options of a text that has its headers already.
fn without_headers(flags: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        if flag == "-include" || flag == "-imacros" {
            flags.next();
        } else {
            kept.push(flag.clone());
        }
    }
    kept
}

/// The results of numbered jobs, in order; the first error where one failed.
fn in_parallel<T: Send>(jobs: usize, job: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<T>>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS).min(jobs);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(result) = results.get(at) else { break };
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(job(at));
                }
            });
        }
    });
    let results =
        results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner));
    results.map(|result| result.expect("each number was taken by one worker")).collect()
}
