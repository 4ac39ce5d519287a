//! `crosscheck harden`: builds other people's C programs with error isolation, and says what keeps one from it.

use std::path::{Path, PathBuf};

use ::harden::check::{CheckReport, targets};
use ::harden::compile::Variant;
use ::harden::install;
use ::harden::library;
use ::harden::pipeline::{self, Places};
use ::harden::recipe::{App, SourceOrigin};
use node::outcome::{CommandOutcome, CommandVerdict};

/// The beginning of `harden --help`.
pub const ABOUT: &str = "Builds a C program so that each of its handlers (the code for one request) runs twice: the \
    second run is compared with the first one, and a difference ends the process with status 86 before anything has \
    left it. The library is the crate `sei`, after Behrens et al., NSDI 2015. Source comes from the machine's package \
    sources, is checked by its SHA-256 and patched; this repository has the patches and recipes only. Needs Linux on \
    x86-64, GCC 12, 13 or 14 and, for the first build of a program, a network.";

/// Options of `harden`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck harden list                              the programs that come with recipes
  crosscheck harden build memcached                   the variant sei, in target/harden/memcached/sei/memcached
  crosscheck harden build memcached --variant all     every variant, the baseline included
  crosscheck harden build ./my-program                a folder with a recipe.toml of your own
  crosscheck harden install --prefix ~/.local         the library, for programs with their own Makefile
  crosscheck harden check ./my-program                what keeps its handlers from being hardened, as a list

docs/sei.md says how to harden a program, and what the variants protect against.")]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: HardenCommand,
}

/// The commands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum HardenCommand {
    /// Fetch, patch, compile, inspect and link a program
    #[command(after_long_help = "Variants:
  native   the same unit and flags without protection: the baseline of measurements
  sei      each handler runs twice, and nothing leaves that differs
  seil     sei without the barrier between threads (SEI_BARRIER=0 at the start)
  dup      sei on two copies of the state, for memory without ECC
  native-cycles, sei-cycles
           the same with a count of cycles in each part of the event loop, in the reply to `stats`

Examples:
  crosscheck harden build memcached --variant native --variant sei
  crosscheck harden build memcached --archive memcached_1.6.18.orig.tar.xz     without a network

A second build of what has not changed keeps the program. Exit code: 0 when all variants were built.")]
    Build(Build),
    /// List everything that keeps a program's handlers from being hardened, with what to do about it
    #[command(
        alias = "why",
        after_long_help = "Each entry of the list says what is called or done, where, from which handler it is \
        reached, and what to do. Named are: functions of libraries, calls through plain pointers, volatile variables, \
        inline assembly, atomic accesses, arrays of variable size, functions with `...`, bit-fields, and SEI_LOCAL \
        functions that write more than their own locals. `note` names code of handlers that threads and signal \
        handlers run outside of one: it is right only where they cannot run beside handlers.

What can be checked:
  a program of `harden list`, or a folder with a recipe.toml
  a folder with a Makefile: make runs on a copy, with a compiler that writes down its arguments instead of compiling;
           what make generates should be there already, so run configure, and make once; further arguments of make
           stand behind --
  a folder with a compile_commands.json, as CMake and meson write it
  one C file; options of the compiler stand behind --

The headers of the library, the options of docs/sei.md and sei/wrap.h come with the command: the program's Makefile
need not have them yet.

Examples:
  crosscheck harden check .
  crosscheck harden check memcached
  crosscheck harden check ./broker -- -C src WITH_TLS=no
  crosscheck harden check server.c -- -Iinclude -DPORT=7

Exit code: 0 when nothing keeps the program from being hardened, 1 with a list."
    )]
    Check(HardenCheck),
    /// Install the library for programs with their own Makefile: archive, headers, pkg-config
    #[command(after_long_help = "A program is then built with

  cc -O2 server.c $(pkg-config --cflags --libs crosscheck-sei) -o server

with PKG_CONFIG_PATH=PREFIX/lib/pkgconfig, unless pkg-config looks there by itself. `crosscheck-sei-dup` is the module
of the variant dup. The options end GCC's habit of linking its own library for transactions; what handlers cannot call
fails to link or to compile, and `crosscheck harden check` says why. It also finds bit-fields, which GCC instruments
wrongly without a word.

The library is built from the workspace around this command; elsewhere --library names its archive, of one variant.

Examples:
  crosscheck harden install --prefix /usr/local
  crosscheck harden install --prefix ~/.local --variant sei --variant dup")]
    Install(HardenInstall),
    /// List the programs that come with recipes, their handlers, and how many lines the patches change
    List,
}

/// Options of `build`.
#[derive(Clone, Debug, clap::Args)]
pub struct Build {
    #[command(flatten)]
    place: Where,
    /// A variant to build, or `all`; may be repeated
    #[arg(long = "variant", default_value = "sei")]
    variants: Vec<String>,
}

/// Options of `install`.
#[derive(Clone, Debug, clap::Args)]
pub struct HardenInstall {
    /// Folder below which `lib` and `include` are, such as /usr/local
    #[arg(long)]
    prefix: PathBuf,
    /// `sei` or `dup`; may be repeated
    #[arg(long = "variant", default_value = "sei")]
    variants: Vec<Variant>,
    /// The library; otherwise CROSSCHECK_SEI, or built from the workspace around, or libcrosscheck_sei.a beside this
    /// command
    #[arg(long)]
    library: Option<PathBuf>,
}

/// Options of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct HardenCheck {
    #[command(flatten)]
    place: Where,
    /// Options of the compiler for one C file, arguments of make for a folder, behind `--`
    #[arg(last = true)]
    options: Vec<String>,
}

/// A program, and where things are.
#[derive(Clone, Debug, clap::Args)]
pub struct Where {
    /// A program of `harden list`, or a folder with a recipe.toml; for `check` also a folder with a Makefile, or a C
    /// file
    app: String,
    /// The program's original archive, where it cannot be downloaded
    #[arg(long)]
    archive: Option<PathBuf>,
    /// The library; otherwise CROSSCHECK_SEI, or built from the workspace around, or libcrosscheck_sei.a beside this
    /// command
    #[arg(long)]
    library: Option<PathBuf>,
    /// Folder for archives, sources and programs [default: CROSSCHECK_HARDEN, or $CARGO_TARGET_DIR/harden, or
    /// target/harden, where `inject` and `bench` look for programs]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Where {
    fn places(&self) -> Places {
        Places {
            out: self.out.clone().unwrap_or_else(Places::default_out),
            archive: self.archive.clone(),
            library: self.library.clone(),
        }
    }

    fn app(&self) -> anyhow::Result<App> {
        App::find(&self.app).map_err(|error| node::outcome::misuse(format!("{error:#}")))
    }
}

/// Runs the command.
pub fn run(args: &Args) -> CommandOutcome {
    match &args.command {
        HardenCommand::Build(build) => run_build(build),
        HardenCommand::Check(check) => run_check(check),
        HardenCommand::Install(install) => run_install(install),
        HardenCommand::List => Ok(list()),
    }
}

fn run_build(build: &Build) -> CommandOutcome {
    let mut variants = Vec::new();
    for text in &build.variants {
        match text.as_str() {
            "all" => variants.extend(Variant::ALL),
            text => variants.push(text.parse::<Variant>().map_err(node::outcome::misuse)?),
        }
    }
    let app = build.place.app()?;
    for variant in variants {
        let built = pipeline::build(&app, variant, &build.place.places())?;
        let kept = if built.is_kept { ", as it was" } else { "" };
        let clones = if variant.is_hardened() {
            format!("{} functions instrumented", built.clones)
        } else {
            "not instrumented".to_owned()
        };
        println!("{} ({variant}: {clones}{kept})", built.program.display());
    }
    Ok(CommandVerdict::Holds)
}

fn run_check(check: &HardenCheck) -> CommandOutcome {
    let path = Path::new(&check.place.app);
    let is_own = path.is_file() || (path.is_dir() && !path.join("recipe.toml").is_file());
    let (report, name) = if is_own {
        (targets::path(path, &check.options)?, check.place.app.clone())
    } else {
        if !check.options.is_empty() {
            let words = "a recipe has its options in `unit.options`: none stand behind --";
            return Err(node::outcome::misuse(words));
        }
        let app = check.place.app()?;
        (targets::app(&app, &check.place.places())?, app.name)
    };
    print!("{}", reported(&report, &name));
    Ok(if report.causes.is_empty() { CommandVerdict::Holds } else { CommandVerdict::Fails })
}

fn run_install(options: &HardenInstall) -> CommandOutcome {
    let mut modules = PathBuf::new();
    for &variant in &options.variants {
        install::variant_has_library(variant).map_err(|error| node::outcome::misuse(error.to_string()))?;
        let archive = library::find(options.library.as_deref(), variant, &Places::default_out())?;
        let installed = install::install(&options.prefix, variant, &archive)?;
        for file in &installed.files {
            println!("{}", file.display());
        }
        modules = installed.modules;
    }
    println!("pkg-config finds it with PKG_CONFIG_PATH={}", modules.display());
    Ok(CommandVerdict::Holds)
}

/// The list as text.
fn reported(report: &CheckReport, name: &str) -> String {
    let mut text = String::new();
    let size = format!("handlers: {}, functions that they reach: {}", report.handlers, report.reached);
    match report.causes.len() {
        0 => text.push_str(&format!("nothing keeps {name} from being hardened ({size})\n")),
        number => text.push_str(&format!("to do before {name} can be hardened: {number} ({size})\n")),
    }
    for (number, cause) in report.causes.iter().enumerate() {
        text.push_str(&format!("\n{}. {}\n", number + 1, cause.what));
        for place in cause.places.iter().take(PLACES) {
            text.push_str(&format!("     {place}\n"));
        }
        if cause.places.len() > PLACES {
            text.push_str(&format!("     and {} more places\n", cause.places.len() - PLACES));
        }
        if !cause.way.is_empty() {
            text.push_str(&format!("   from  {}\n", cause.way));
        }
        text.push_str(&format!("   do    {}\n", cause.remedy));
    }
    for note in &report.notes {
        text.push_str(&format!("\nnote: {note}\n"));
    }
    text
}

/// Places of one cause that are printed.
const PLACES: usize = 5;

fn list() -> CommandVerdict {
    for app in App::built_in() {
        let (added, removed) = app.changed_lines();
        println!("{}: {}", app.name, app.recipe.summary);
        if let SourceOrigin::Package { package, version, .. } = &app.recipe.source {
            println!("  source     package {package}, version {version}");
        }
        println!("  patches    {added} lines added or changed, {removed} removed");
        for handler in &app.recipe.handlers {
            println!("  handler    {} ({})", handler.function, handler.message);
        }
    }
    println!("variants");
    for variant in Variant::ALL {
        println!("  {:<13} {}", variant.name(), variant.summary());
    }
    CommandVerdict::Holds
}
