//! `crosscheck harden`: builds other people's C programs with error isolation, and says what keeps one from it.

use std::path::PathBuf;

use ::harden::compile::Variant;
use ::harden::pipeline::{self, Places};
use ::harden::recipe::{App, SourceOrigin};
use ::harden::why;
use node::outcome::{CommandOutcome, CommandVerdict};

/// The beginning of `harden --help`.
pub const ABOUT: &str = "Builds a C program so that each of its handlers (the code for one request) runs twice: the \
    second run is compared with the first one, and a difference ends the process with status 86 before anything has \
    left it. The library is the crate `sei`, after Behrens et al., NSDI 2015. Source comes from the machine's package \
    sources, is checked by its SHA-256 and patched; this repository has the patches and recipes only. Needs Linux on \
    x86-64, GCC 12 and, for the first build of a program, a network.";

/// Options of `harden`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = "Examples:
  crosscheck harden list                              the programs that come with recipes
  crosscheck harden build memcached                   the variant sei, in target/harden/memcached/sei/memcached
  crosscheck harden build memcached --variant all     every variant, the baseline included
  crosscheck harden build ./my-program                a folder with a recipe.toml of your own
  crosscheck harden why ./my-program                  which call keeps a handler from being instrumented?

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
    /// Follow a handler that the compiler refuses to the call that is the cause
    #[command(
        after_long_help = "GCC names only the outermost function that it cannot instrument. This declares it \
        transaction_safe in a copy, compiles again, and goes on until the compiler names the cause.

Examples:
  crosscheck harden why memcached
  crosscheck harden why ./my-program

Exit code: 0 when nothing keeps the program from being hardened, 1 with the causes and their remedies."
    )]
    Why(Where),
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

/// A program, and where things are.
#[derive(Clone, Debug, clap::Args)]
pub struct Where {
    /// A program of `harden list`, or a folder with a recipe.toml
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
        HardenCommand::Why(place) => run_why(place),
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

fn run_why(place: &Where) -> CommandOutcome {
    let app = place.app()?;
    let found = why::why(&app, &place.places())?;
    if found.causes.is_empty() {
        println!("nothing keeps {} from being hardened", app.name);
        return Ok(CommandVerdict::Holds);
    }
    if !found.steps.is_empty() {
        println!("followed: {}", found.steps.join(", "));
    }
    for cause in &found.causes {
        println!("{cause}");
    }
    Ok(CommandVerdict::Fails)
}

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
