//! Builds the library and the C programs of `tests/c`, and runs their scenarios in processes of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use self::skipped::skipped;

pub mod skipped;

/// The flags of docs/sei.md, but for the optimisation level: one per line, in a file that the compiler reads.
const FLAGS: &str = concat!("@", env!("CARGO_MANIFEST_DIR"), "/include/sei/cflags");

/// A scenario that has not ended by then hangs. All end within a second or two.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same where a protection was removed, and the scenario may well hang.
const LITTLE_PATIENCE: Duration = Duration::from_secs(8);

/// How a scenario ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Status 0, with this output.
    Printed(String),
    /// Status 86: the output, and the reason in the line on standard error.
    Detected(String, String),
    /// Anything else.
    Died(String),
    /// It had to be killed.
    Hung,
}

/// Environment variable that names the compiler; otherwise GCC 12 is taken.
const CHOICE: &str = "CROSSCHECK_CC";

/// The compiler, or the reason why there is none.
pub fn compiler() -> Option<&'static str> {
    static COMPILER: OnceLock<Option<String>> = OnceLock::new();
    let found = COMPILER.get_or_init(|| {
        let is_known = |name: &String, versions: &[&str]| {
            let printed = Command::new(name).arg("-dumpversion").output().ok();
            let version = printed.map(|printed| String::from_utf8_lossy(&printed.stdout).into_owned());
            version.is_some_and(|version| versions.contains(&version.trim().split('.').next().unwrap_or("")))
        };
        if let Ok(chosen) = std::env::var(CHOICE) {
            assert!(is_known(&chosen, &["12", "13", "14"]), "{CHOICE}: {chosen} is no GCC 12, 13 or 14");
            return Some(chosen);
        }
        let names = ["gcc-12", "gcc"].map(str::to_owned);
        let found = names.into_iter().find(|name| is_known(name, &["12"]));
        if found.is_none() {
            skipped(
                "gcc 12 is not installed, which compiles C programs of these tests: apt-get install gcc-12",
            );
        }
        found
    });
    found.as_deref()
}

/// Options that only the chosen compiler has. From GCC 13 on, code that it takes for unreachable is a trap at -O0, and
/// it takes the second run of some handlers for that.
fn own_flags() -> &'static [&'static str] {
    if std::env::var_os(CHOICE).is_some() { &["-fno-unreachable-traps"] } else { &[] }
}

/// Valgrind with its options, or the reason why it is left out.
pub fn valgrind() -> Option<[&'static str; 4]> {
    let words = ["valgrind", "-q", "--undef-value-errors=no", "--error-exitcode=9"];
    if Command::new(words[0]).arg("--version").output().is_ok() {
        return Some(words);
    }
    skipped("valgrind is not installed, which looks for wrong accesses: apt-get install valgrind libc6-dbg");
    None
}

/// The static library with this crate's features, built by Cargo in a directory of its own. Without any it is the one
/// that ships; the others are built in less time.
fn library(features: &str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(path) = built.get(features) {
        return path.clone();
    }
    let name = if features.is_empty() { "shipped".to_owned() } else { features.replace(',', "-") };
    let directory = root().join("library").join(name);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["rustc", "--profile", "sei", "--locked", "--lib", "--crate-type", "staticlib"])
        .args(["--manifest-path", manifest, "--features", features, "--target-dir"])
        .arg(&directory)
        .env_remove("RUSTFLAGS");
    if !features.is_empty() {
        cargo.env("CARGO_PROFILE_SEI_LTO", "off");
    }
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = directory.join("sei/libcrosscheck_sei.a");
    assert!(path.exists(), "{} is not there", path.display());
    built.insert(features.to_owned(), path.clone());
    path
}

/// A C file of this crate.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).with_extension("c")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("sei")
}

/// The folder of programs: one for each compiler.
fn scratch() -> PathBuf {
    let chosen = std::env::var(CHOICE).unwrap_or_default();
    let folder = root().join(Path::new(&chosen).file_name().unwrap_or_default());
    std::fs::create_dir_all(&folder).expect("a folder of the build can be made");
    folder
}

/// Makes a program if this process has not made it: another test may be running it.
fn once(path: &Path, make: impl FnOnce()) {
    static MADE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut made = MADE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if made.insert(path.to_owned()) {
        make();
    }
}

/// A C program of `tests/c`, compiled once per level and library.
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// Compiles `tests/c/NAME.c` at this level, such as `-O2`, and links it with the library.
    pub fn build(name: &str, level: &str) -> Option<Self> {
        Self::build_source(&format!("tests/c/{name}"), level, "mutate", &[])
    }

    /// The same with the state duplicated.
    pub fn build_dup(name: &str, level: &str) -> Option<Self> {
        Self::build_source(&format!("tests/c/{name}"), level, "dup,mutate", &["-DSEI_DUP"])
    }

    fn build_source(name: &str, level: &str, features: &str, defines: &[&str]) -> Option<Self> {
        let gcc = compiler()?;
        let path = scratch().join(format!("{}{level}{}", name.replace('/', "-"), defines.concat()));
        let library = library(features);
        once(&path, || {
            let object = path.with_extension("o");
            let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
            check(
                Command::new(gcc)
                    .args([level, include])
                    .arg(FLAGS)
                    .args(own_flags())
                    .args(defines)
                    .arg("-c")
                    .arg(source(name))
                    .arg("-o")
                    .arg(&object),
            );
            // Without -fgnu-tm, with which the compiler's driver would add libitm.
            check(
                Command::new(gcc)
                    .arg(&object)
                    .arg(library)
                    .args(["-lpthread", "-ldl", "-lm", "-o"])
                    .arg(&path),
            );
        });
        Some(Self { path })
    }

    /// Compiles `tests/c/NAME.c`, and a shim of its own as a file of a program is compiled that handlers do not reach.
    pub fn build_with_shim(name: &str, shim: &str) -> Option<Self> {
        let gcc = compiler()?;
        let Self { path: folder } = Self::build_native("rules", "-O2")?;
        let at = |file: &str| folder.with_file_name(file).with_extension("o");
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
        let compile = |file: &str, flags: &[&str]| {
            let mut command = Command::new(gcc);
            command.args(["-O2", "-Wall", "-Werror", include]).args(flags).arg("-c");
            check(command.arg(source(&format!("tests/c/{file}"))).arg("-o").arg(at(file)));
        };
        compile(name, &[FLAGS, "-Wno-unused-function", "-Wno-unused-result"]);
        compile(shim, &["-D_GNU_SOURCE"]);
        let path = folder.with_file_name(name);
        let mut link = Command::new(gcc);
        link.args([at(name), at(shim), library("mutate")]).args(["-lpthread", "-ldl", "-lm", "-o"]);
        check(link.arg(&path));
        Some(Self { path })
    }

    /// Compiles it without protection.
    pub fn build_native(name: &str, level: &str) -> Option<Self> {
        let gcc = compiler()?;
        let path = scratch().join(format!("{name}{level}-native"));
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
        once(&path, || {
            check(
                Command::new(gcc)
                    .args([level, include, "-DSEI_NATIVE"])
                    .args(["-D_GNU_SOURCE", "-include", "sei/wrap.h"])
                    .arg(source(&format!("tests/c/{name}")))
                    .args(["-lpthread", "-o"])
                    .arg(&path),
            );
        });
        Some(Self { path })
    }

    /// An example, hardened.
    pub fn build_example(name: &str) -> Option<Self> {
        Self::build_source(&format!("examples/{name}"), "-O2", "mutate", &[])
    }

    /// An example, hardened with the library that ships and without symbols.
    pub fn build_shipped_example(name: &str) -> Option<Self> {
        let gcc = compiler()?;
        let Self { path: built } = Self::build_example(name)?;
        let (path, library) = (scratch().join(format!("{name}-shipped")), library(""));
        once(&path, || {
            let mut link = Command::new(gcc);
            link.args(["-s"]).arg(built.with_extension("o")).arg(library);
            check(link.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&path));
        });
        Some(Self { path })
    }

    /// An example that knows nothing of the library, without protection.
    pub fn build_plain_example(name: &str) -> Option<Self> {
        let gcc = compiler()?;
        let path = scratch().join(format!("{name}-plain"));
        let source = source(&format!("examples/{name}"));
        once(&path, || check(Command::new(gcc).args(["-O2", "-s", "-o"]).arg(&path).arg(source)));
        Some(Self { path })
    }

    /// The program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs one scenario.
    pub fn run(&self, scenario: &str) -> Outcome {
        self.run_without(scenario, None)
    }

    /// Runs one scenario with a variable of the environment.
    pub fn run_with(&self, scenario: &str, name: &str, value: &str) -> Outcome {
        let mut command = Command::new(&self.path);
        command.env(name, value);
        self.run_as(command, scenario, None)
    }

    /// Runs one scenario with a protection removed.
    pub fn run_without(&self, scenario: &str, protection: Option<&str>) -> Outcome {
        self.run_as(Command::new(&self.path), scenario, protection)
    }

    /// Runs one scenario under another program, which has these words.
    pub fn run_under(&self, words: &[&str], scenario: &str) -> Outcome {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(&self.path);
        self.run_as(command, scenario, None)
    }

    fn run_as(&self, mut command: Command, scenario: &str, protection: Option<&str>) -> Outcome {
        command.arg(scenario).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("SEI_MUTATE");
        let patience = if protection.is_some() { LITTLE_PATIENCE } else { PATIENCE };
        if let Some(protection) = protection {
            command.env("SEI_MUTATE", protection);
        }
        let mut child = command.spawn().expect("the program runs");
        let (sender, receiver) = std::sync::mpsc::channel();
        let pid = child.id();
        let reader = std::thread::spawn(move || {
            use std::io::Read as _;
            let (mut out, mut err) = (String::new(), String::new());
            // What a scenario prints fits into a pipe.
            child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut out));
            child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut err));
            let _ = sender.send((child.wait(), out, err));
        });
        let Ok((status, out, err)) = receiver.recv_timeout(patience) else {
            check(Command::new("kill").args(["-9", &pid.to_string()]));
            let _ = reader.join();
            return Outcome::Hung;
        };
        match status.expect("it can be waited for").code() {
            Some(0) => Outcome::Printed(out),
            Some(86) => Outcome::Detected(out, reason_in(&err)),
            _ => Outcome::Died(err),
        }
    }
}

impl Program {
    /// A program with the whole library in it.
    pub fn build_whole_library() -> Option<Self> {
        let gcc = compiler()?;
        let path = scratch().join("whole");
        let source = scratch().join("whole.c");
        let library = library("mutate");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let whole = ["-Wl,--whole-archive".as_ref(), library.as_os_str(), "-Wl,--no-whole-archive".as_ref()];
        check(Command::new(gcc).arg(source).args(whole).args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&path));
        Some(Self { path })
    }

    /// The names that it defines.
    pub fn symbols(&self) -> std::collections::BTreeSet<String> {
        let output = Command::new("nm").arg("--defined-only").arg(&self.path).output().expect("nm runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter_map(|line| line.split_whitespace().nth(2).map(str::to_owned)).collect()
    }

    /// What the linker says about a program that it must refuse.
    pub fn fails_to_link(name: &str) -> Option<String> {
        let gcc = compiler()?;
        let (object, library) = (scratch().join(name).with_extension("o"), library("mutate"));
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
        check(
            Command::new(gcc)
                .args(["-O2", include])
                .arg(FLAGS)
                .arg("-c")
                .arg(source(&format!("tests/c/{name}")))
                .arg("-o")
                .arg(&object),
        );
        let mut link = Command::new(gcc);
        link.arg(&object)
            .arg(library)
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(object.with_extension(""));
        let output = link.output().expect("the compiler runs");
        assert!(!output.status.success(), "it must not link");
        Some(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn reason_in(line: &str) -> String {
    let reason = line.split("fault detected: ").nth(1).unwrap_or(line);
    reason.split(". Thread").next().unwrap_or(reason).to_owned()
}

#[track_caller]
fn check(command: &mut Command) {
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Asserts that a scenario prints this.
#[track_caller]
pub fn assert_prints(program: &Program, scenario: &str, wanted: &str) {
    assert_eq!(program.run(scenario), Outcome::Printed(format!("{wanted}\n")), "{scenario}");
}

/// Asserts that a scenario is detected, for a reason with these words, and what it had printed by then.
#[track_caller]
pub fn assert_detects(program: &Program, scenario: &str, words: &str, printed: &str) {
    match program.run(scenario) {
        Outcome::Detected(out, reason) => {
            assert!(reason.contains(words), "{scenario}: {reason}");
            assert_eq!(out, printed, "{scenario}");
        }
        other => panic!("{scenario}: {other:?}"),
    }
}
