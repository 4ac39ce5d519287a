//! The whole way from a recipe to a program: fetch, patch, prepare, compile, inspect, link.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::bits;
use crate::compile::{self, Compiler, Variant};
use crate::fetch::{self, make};
use crate::inline;
use crate::inspect::{self, Inspection};
use crate::library;
use crate::local;
use crate::recipe::{App, Library, Recipe};
use crate::tool::{self, Lack};
use crate::unit;

/// Where things are.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folder of archives, sources and programs.
    pub out: PathBuf,
    /// The program's archive, where the operator has it.
    pub archive: Option<PathBuf>,
    /// The library's archive, where the operator has it.
    pub library: Option<PathBuf>,
}

impl Places {
    /// Where the tracer and the benchmarks look for programs.
    pub fn default_out() -> PathBuf {
        memcached_client::hardened::folder()
    }
}

/// A program that was built.
#[derive(Debug)]
pub struct Built {
    /// Its file.
    pub program: PathBuf,
    /// Functions with an instrumented copy; 0 for the variant `native`.
    pub clones: usize,
    /// Whether nothing had changed since it was built before.
    pub is_kept: bool,
}

/// Builds one variant of a program.
///
/// # Errors
/// If a step fails: each error says what to do.
pub fn build(app: &App, variant: Variant, places: &Places) -> Result<Built> {
    let bench = Bench::open(app, places)?;
    bench.build(variant)
}

/// A program's prepared source, and what is needed to compile it. No two processes have the same one.
pub(crate) struct Bench<'a> {
    pub(crate) app: &'a App,
    pub(crate) compiler: Compiler,
    /// The unpacked, patched and prepared source.
    pub(crate) source: PathBuf,
    out: PathBuf,
    folder: PathBuf,
    include: PathBuf,
    library: Option<PathBuf>,
    _lock: File,
}

impl<'a> Bench<'a> {
    /// Prepares the source, unless it is there already.
    pub(crate) fn open(app: &'a App, places: &Places) -> Result<Bench<'a>> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            bail!("programs are hardened on Linux on x86-64 only");
        }
        make(&places.out)?;
        let out = places.out.canonicalize()?;
        let folder = out.join(&app.name);
        let include = folder.join("include");
        make(&include)?;
        let lock = File::create(folder.join("lock")).context("cannot make the lock of the folder")?;
        lock.lock().context("cannot lock the folder")?;
        library::write_headers(&include)?;
        fs::write(include.join("app_wrap.h"), format!("#pragma once\n{}", app.wrap))?;
        let compiler = Compiler::find(&folder)?;
        find_libraries(&app.recipe, &compiler, &folder)?;
        let source = folder.join("source");
        let library = places.library.clone();
        let bench = Bench { app, compiler, source, out, folder, include, library, _lock: lock };
        bench.prepare(&bench.out, places.archive.as_deref())?;
        Ok(bench)
    }

    fn prepare(&self, store: &Path, archive: Option<&Path>) -> Result<()> {
        let app = self.app;
        let mut inputs = format!("{:?}", app.recipe);
        for patch in &app.patches {
            let _ = write!(inputs, "{}\n{}", patch.name, patch.text);
        }
        let stamp = self.folder.join("source.stamp");
        // A folder of the operator's own may have changed in any way.
        if app.folder.is_none() && is_stamped(&stamp, &inputs) {
            return Ok(());
        }
        let _ = fs::remove_file(&stamp);
        fetch::unpack(app, store, archive, &self.source)?;
        for patch in &app.patches {
            patch.apply(&self.source, &self.folder)?;
        }
        for words in &app.recipe.prepare {
            let mut command = tool::call(&words[0]);
            command.args(&words[1..]).current_dir(&self.source);
            let doing = format!("cannot prepare the source of {} with `{}`", app.name, words.join(" "));
            tool::succeed(&mut command, "build-essential", &doing)?;
        }
        unit::write(&app.recipe.unit, &self.source)?;
        fs::write(stamp, fetch::hex(inputs.as_bytes())).context("cannot write the stamp of the source")
    }

    fn build(&self, variant: Variant) -> Result<Built> {
        let folder = self.folder.join(variant.name());
        make(&folder)?;
        let find = || library::find(self.library.as_deref(), variant, &self.out);
        let library = variant.is_hardened().then(find).transpose()?;
        let program = folder.join(&self.app.recipe.program);
        let stamp = folder.join("stamp");
        let inputs = self.inputs(variant, library.as_deref())?;
        let clones = folder.join("clones");
        if self.app.folder.is_none() && program.is_file() && is_stamped(&stamp, &inputs) {
            let clones = fs::read_to_string(clones).unwrap_or_default().lines().count();
            return Ok(Built { program, clones, is_kept: true });
        }
        let _ = fs::remove_file(&stamp);
        let object = folder.join("unit.o");
        let inspection = self.compile_unit(variant, &object)?;
        let mut objects = vec![object];
        objects.extend(self.compile_apart(variant, &folder)?);
        objects.extend(library);
        let libraries: Vec<String> =
            self.app.recipe.libraries.iter().map(|library| format!("-l{}", library.name)).collect();
        self.compiler.link(&objects, &libraries, &program)?;
        if inspect::needs_libitm(&fs::read(&program)?)? {
            bail!(
                "{} needs libitm, GCC's own library for transactions, which would replace ours; remove -litm and \
                 -fgnu-tm from the link",
                program.display()
            );
        }
        fs::write(clones, inspection.clones.iter().fold(String::new(), |all, name| all + name + "\n"))?;
        fs::write(stamp, fetch::hex(inputs.as_bytes())).context("cannot write the stamp of the program")?;
        Ok(Built { program, clones: inspection.clones.len(), is_kept: false })
    }

    fn compile_unit(&self, variant: Variant, object: &Path) -> Result<Inspection> {
        let name = &self.app.name;
        let assembly = object.with_extension("s");
        let mut flags = self.unit_flags(variant);
        flags.push("-S".to_owned());
        // What GCC made of handlers.
        let [dump, optimised] =
            ["tmmark", "optimized"].map(|pass| self.folder.join("scratch").join(format!("unit.{pass}")));
        if variant.is_hardened() {
            self.scratch()?;
            // That of an earlier build is not of this one.
            let _ = fs::remove_file(&dump);
            flags.push(format!("-fdump-tree-tmmark={}", dump.display()));
            flags.push(format!("-fdump-tree-optimized={}", optimised.display()));
        }
        let printed = self.compiler.compile(&flags, Path::new(unit::FILE), &assembly, &self.source)?;
        if !printed.is_success {
            let why = if printed.err.contains("transaction") {
                format!(
                    "\n`crosscheck harden check {}` lists all causes with their remedies",
                    self.app.argument()
                )
            } else {
                String::new()
            };
            bail!("{name} does not compile as {variant}:\n{}{why}", errors(&printed.err));
        }
        if variant.has_plain_reads() {
            fs::write(&assembly, inline::reads(&fs::read_to_string(&assembly)?))
                .context("cannot write the unit's assembly")?;
        }
        let printed = self.compiler.compile(&[], &assembly, object, &self.source)?;
        if !printed.is_success {
            bail!("{name}, as {variant}, is not assembled:\n{}", errors(&printed.err));
        }
        let bytes = fs::read(object)?;
        let mut inspection = inspect::object(&bytes)?;
        if variant.is_hardened() {
            let dump = fs::read(&dump).with_context(|| {
                format!(
                    "{name} has no handler: GCC wrote nothing about one. Begin one with SEI_BEGIN and SEI_END"
                )
            })?;
            inspection.obstacles.extend(bits::accesses(&bytes, &String::from_utf8_lossy(&dump))?);
            let optimised = fs::read(&optimised).context("GCC wrote nothing about its pass optimized")?;
            inspection.obstacles.extend(local::writers(&String::from_utf8_lossy(&optimised)));
        }
        if !inspection.obstacles.is_empty() {
            let all: Vec<String> = inspection.obstacles.iter().map(|obstacle| obstacle.explained()).collect();
            bail!("{name} cannot be hardened as it is: {}", all.join("\n"));
        }
        Ok(inspection)
    }

    /// Files apart, and the file that says how the variant differs at run time.
    fn compile_apart(&self, variant: Variant, folder: &Path) -> Result<Vec<PathBuf>> {
        let own = folder.join("variant.c");
        let text = if variant == Variant::Seil { "const int sei_barrier_default = 0;\n" } else { "" };
        fs::write(&own, text).context("cannot write the variant's file")?;
        let apart = self.app.recipe.unit.apart.iter().map(|file| self.source.join(file));
        let mut objects = Vec::new();
        for (number, file) in apart.chain([own]).enumerate() {
            let object = folder.join(format!("apart{number}.o"));
            let printed = self.compiler.compile(&self.plain_flags(), &file, &object, &self.source)?;
            if !printed.is_success {
                bail!("{} does not compile:\n{}", file.display(), errors(&printed.err));
            }
            objects.push(object);
        }
        Ok(objects)
    }

    /// Options for the unit.
    pub(crate) fn unit_flags(&self, variant: Variant) -> Vec<String> {
        let headers = compile::headers().into_iter().chain(["-include", "app_wrap.h"]);
        let mut flags = self.with_own(compile::unit_options(variant));
        flags.extend(headers.map(str::to_owned));
        if variant.is_hardened() {
            // Behind the recipe's own: bit-fields are looked for in the debug information.
            flags.extend(compile::DEBUG.map(str::to_owned));
        }
        flags
    }

    /// Options for files apart.
    pub(crate) fn plain_flags(&self) -> Vec<String> {
        self.with_own(compile::plain_options())
    }

    /// These options, and behind them the recipe's own, which therefore count more.
    fn with_own(&self, options: Vec<&str>) -> Vec<String> {
        let unit = &self.app.recipe.unit;
        let mut flags: Vec<String> = options.into_iter().map(str::to_owned).collect();
        flags.extend(["-w".to_owned(), "-I.".to_owned(), format!("-I{}", self.include.display())]);
        flags.extend(unit.define.iter().map(|define| format!("-D{define}")));
        flags.extend(unit.options.iter().cloned());
        flags
    }

    /// Everything that a variant is made of, beside the prepared source.
    fn inputs(&self, variant: Variant, library: Option<&Path>) -> Result<String> {
        let reads = if variant.has_plain_reads() { "reads in line" } else { "" };
        let flags = self.unit_flags(variant);
        let mut inputs = format!("{variant} {} {flags:?} {reads}", self.compiler.version);
        for text in library::HEADERS.iter().map(|(_, text)| *text).chain([self.app.wrap.as_str()]) {
            inputs.push_str(text);
        }
        inputs.push_str(&fs::read_to_string(self.folder.join("source.stamp")).unwrap_or_default());
        if let Some(file) = library {
            inputs.push_str(&fetch::sha256(file)?);
        }
        Ok(inputs)
    }

    /// The folder for temporary files.
    pub(crate) fn scratch(&self) -> Result<PathBuf> {
        let folder = self.folder.join("scratch");
        make(&folder)?;
        Ok(folder)
    }
}

fn is_stamped(stamp: &Path, inputs: &str) -> bool {
    fs::read_to_string(stamp).is_ok_and(|kept| kept == fetch::hex(inputs.as_bytes()))
}

fn find_libraries(recipe: &Recipe, compiler: &Compiler, scratch: &Path) -> Result<()> {
    let lacks = |library: &&Library| !compiler.has_header(&library.header, scratch);
    let missing: Vec<&Library> = recipe.libraries.iter().filter(lacks).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let headers: Vec<&str> = missing.iter().map(|library| library.header.as_str()).collect();
    let packages: Vec<&str> = missing.iter().map(|library| library.package.as_str()).collect();
    let (headers, packages) = (headers.join(", "), packages.join(" "));
    Err(Lack(format!("{headers} is not installed; install it with: apt-get install {packages}")).into())
}

/// The compiler's errors without its notes and its drawings of the source.
pub(crate) fn errors(text: &str) -> String {
    let found: Vec<&str> = text.lines().filter(|line| line.contains("error:")).take(12).collect();
    if found.is_empty() { text.lines().take(12).collect::<Vec<_>>().join("\n") } else { found.join("\n") }
}
