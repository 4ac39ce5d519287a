//! The compiler: which one, with which flags, and the variants of a program.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Result, bail};

use crate::inspect;
use crate::tool::{self, Lack, Printed};

/// What a program is built as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// The same unit and flags without protection: the baseline.
    Native,
    /// Each handler runs twice.
    Sei,
    /// The same without the barrier between threads, unless `SEI_BARRIER=1` is set.
    Seil,
    /// Each handler runs twice, on two copies of the state.
    Dup,
    /// `Native` that counts the processor's cycles in each part of its event loop.
    NativeCycles,
    /// `Sei` that counts them.
    SeiCycles,
}

impl Variant {
    /// All of them.
    pub const ALL: [Variant; 6] = [
        Variant::Native,
        Variant::Sei,
        Variant::Seil,
        Variant::Dup,
        Variant::NativeCycles,
        Variant::SeiCycles,
    ];

    /// Its name in commands and folders.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Native => "native",
            Variant::Sei => "sei",
            Variant::Seil => "seil",
            Variant::Dup => "dup",
            Variant::NativeCycles => "native-cycles",
            Variant::SeiCycles => "sei-cycles",
        }
    }

    /// What it is.
    pub fn summary(self) -> &'static str {
        match self {
            Variant::Native => "the same unit and flags without protection: the baseline of measurements",
            Variant::Sei => "each handler runs twice, and nothing leaves that differs",
            Variant::Seil => "sei without the barrier between threads (SEI_BARRIER=0 at the start)",
            Variant::Dup => "sei on two copies of the state, for memory without ECC",
            Variant::NativeCycles => "native that counts cycles in each part of its event loop",
            Variant::SeiCycles => "sei that counts them",
        }
    }

    /// Options of the compiler that only this variant has.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Variant::Native => &["-DSEI_NATIVE"],
            Variant::Sei | Variant::Seil => &["-fgnu-tm"],
            Variant::Dup => &["-fgnu-tm", "-DSEI_DUP"],
            Variant::NativeCycles => &["-DSEI_NATIVE", "-DSEI_STATS"],
            Variant::SeiCycles => &["-fgnu-tm", "-DSEI_STATS"],
        }
    }

    /// Whether its handlers are instrumented.
    pub fn is_hardened(self) -> bool {
        !matches!(self, Variant::Native | Variant::NativeCycles)
    }

    /// Whether a handler's read is a load and nothing else, since the state has one copy.
    pub fn has_plain_reads(self) -> bool {
        self.is_hardened() && self != Variant::Dup
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Variant::ALL.map(Variant::name).join(", ");
        let found = Variant::ALL.into_iter().find(|variant| variant.name() == text);
        found.ok_or_else(|| format!("there is no variant {text}; the variants are {names}"))
    }
}

/// From GCC 13 on, code that it takes for unreachable is a trap at -O0, and it takes the second run of some handlers
/// for that.
const NO_TRAPS: [&str; 1] = ["-fno-unreachable-traps"];
/// Environment variable that names the compiler.
pub const CHOICE: &str = "CROSSCHECK_CC";
/// The options with which docs/sei.md compiles handlers: one per line, and at the end headers to include.
pub const SHARED: &str = include_str!("../../sei/include/sei/cflags");
/// The option of [`SHARED`] that makes the compiler instrument handlers.
const INSTRUMENT: &str = "-fgnu-tm";
/// The option of [`SHARED`] behind which headers are named.
const INCLUDE: &str = "-include";
/// Options that only the pipeline's programs have.
const OWN: [&str; 3] = ["-O2", "-g", "-pthread"];
/// Options of a hardened unit that nothing may take away.
pub const DEBUG: [&str; 3] = ["-g", "-gno-split-dwarf", "-gz=none"];

/// Options of files that no handler reaches: those that all variants have.
pub fn plain_options() -> Vec<&'static str> {
    let shared = SHARED.split_whitespace().take_while(|&flag| flag != INCLUDE);
    OWN.into_iter().chain(shared.filter(|&flag| flag != INSTRUMENT)).collect()
}

/// Options of the unit in this variant, without its [`headers`].
pub fn unit_options(variant: Variant) -> Vec<&'static str> {
    [&plain_options(), variant.flags()].concat()
}

/// The options that include what calls become inside handlers.
pub fn headers() -> Vec<&'static str> {
    SHARED.split_whitespace().skip_while(|&flag| flag != INCLUDE).collect()
}

/// A handler of ten lines, by which a compiler is tried.
const PROBE: &str = "int word; long pair[2]; double real;
static int add(int by) { word += by; return word; }
int main(int count, char **words)
{
    (void)words;
    __transaction_atomic {
        pair[0] = add(count);
        real = 1.5;
    }
    return (int)pair[0];
}
";

/// What the compiler must call for [`PROBE`].
const BEGIN_AND_END: [&str; 2] = ["_ITM_beginTransaction", "_ITM_commitTransaction"];

/// Kind and type of a load or store of the interface that the library has: `RaW` and `U4` of `_ITM_RaWU4`.
pub(crate) fn access(symbol: &str) -> Option<(&'static str, &'static str)> {
    let kinds = ["RaR", "RaW", "RfW", "R", "WaR", "WaW", "W", "L"];
    let types = ["U1", "U2", "U4", "U8", "F", "D", "E", "M64", "M128", "M256", "B"];
    let access = symbol.strip_prefix("_ITM_")?;
    kinds.into_iter().find_map(|kind| {
        let of = access.strip_prefix(kind)?;
        types.into_iter().find(|name| *name == of).map(|of| (kind, of))
    })
}

/// Whether this is a load or store of the interface that the library has: `_ITM_RaWU4`, `_ITM_WD`.
fn is_access(symbol: &str) -> bool {
    access(symbol).is_some()
}

/// A C compiler that makes the calls that the library knows.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: String,
    /// Its first line of `--version`.
    pub version: String,
    /// Options that only some versions have.
    own: &'static [&'static str],
}

impl Compiler {
    /// Tries the one that [`CHOICE`] names, or GCC 12, 13 and 14, then `gcc`; `scratch` is a folder for the trial.
    ///
    /// # Errors
    /// If there is none, or none makes the calls that the library knows.
    pub fn find(scratch: &Path) -> Result<Compiler> {
        let chosen = std::env::var(CHOICE).ok();
        let names = ["gcc-12", "gcc-13", "gcc-14", "gcc"];
        let names = chosen.as_deref().map_or(names.to_vec(), |chosen| vec![chosen]);
        let mut refusals = Vec::new();
        for program in names {
            match Compiler::tried(program, scratch) {
                Ok(compiler) => return Ok(compiler),
                Err(error) => refusals.push(error.to_string()),
            }
        }
        let refusals = refusals.join("; ");
        let text = "no compiler that can instrument handlers; what works is GCC 12, 13 and 14 (apt-get install gcc-12)";
        Err(Lack(format!("{text}: {refusals}")).into())
    }

    fn tried(program: &str, scratch: &Path) -> Result<Compiler> {
        let printed =
            tool::succeed(tool::call(program).arg("--version"), "gcc-12", "cannot ask for its version")
                .map_err(|error| anyhow::anyhow!("{program}: {}", error.root_cause()))?;
        let version = printed.out.lines().next().unwrap_or_default().to_owned();
        let mut compiler = Compiler { program: program.to_owned(), version, own: &NO_TRAPS };
        let source = scratch.join("probe.c");
        let object = scratch.join("probe.o");
        std::fs::write(&source, PROBE)?;
        let flags: Vec<String> = unit_options(Variant::Sei).into_iter().map(str::to_owned).collect();
        let mut printed = compiler.compile(&flags, &source, &object, scratch)?;
        if !printed.is_success {
            compiler.own = &[];
            printed = compiler.compile(&flags, &source, &object, scratch)?;
        }
        if !printed.is_success {
            bail!("{program} ({}) refuses a handler: {}", compiler.version, tool::tail(&printed));
        }
        let inspection = inspect::object(&std::fs::read(&object)?)?;
        let calls: Vec<&str> = inspection
            .undefined
            .iter()
            .map(String::as_str)
            .filter(|name| name.starts_with("_ITM_"))
            .collect();
        let is_known = |name: &str| {
            is_access(name) || BEGIN_AND_END.contains(&name) || name.contains("registerTMCloneTable")
        };
        if let Some(name) = calls.iter().find(|name| !is_known(name)) {
            bail!("{program} ({}) calls {name} for a plain handler, which GCC 12 does not", compiler.version);
        }
        let is_there = |name: &&str| calls.contains(name);
        if !BEGIN_AND_END.iter().all(is_there) || !calls.iter().any(|name| is_access(name)) {
            bail!(
                "{program} ({}) does not call the library in a handler, which GCC 12 does",
                compiler.version
            );
        }
        Ok(compiler)
    }

    /// Compiles one file to an object; the caller reads what the compiler says.
    ///
    /// # Errors
    /// If the compiler cannot be started.
    pub fn compile(&self, flags: &[String], source: &Path, object: &Path, folder: &Path) -> Result<Printed> {
        let mut command = tool::call(&self.program);
        command.args(self.own).args(flags).arg("-c").arg(source).arg("-o").arg(object).current_dir(folder);
        tool::run(&mut command, "gcc-12")
    }

    /// Writes the preprocessed text of a file.
    ///
    /// # Errors
    /// If it cannot be preprocessed.
    pub fn preprocess(&self, flags: &[String], source: &Path, text: &Path, folder: &Path) -> Result<()> {
        let mut command = tool::call(&self.program);
        command.args(flags).arg("-E").arg(source).arg("-o").arg(text).current_dir(folder);
        tool::succeed(&mut command, "gcc-12", "cannot preprocess the unit").map(drop)
    }

    /// Links a program. There is no `-fgnu-tm` here: GCC would add its own library without a word.
    ///
    /// # Errors
    /// If a symbol lacks.
    pub fn link(&self, objects: &[PathBuf], libraries: &[String], program: &Path) -> Result<()> {
        let mut command = tool::call(&self.program);
        command.args(objects).args(libraries).args(["-pthread", "-ldl", "-lm", "-o"]).arg(program);
        tool::succeed(&mut command, "gcc-12", "cannot link the program").map(drop)
    }

    /// Whether a header can be included.
    pub fn has_header(&self, header: &str, scratch: &Path) -> bool {
        let source = scratch.join("header.c");
        let object = scratch.join("header.o");
        let text = format!("#include <{header}>\n");
        std::fs::write(&source, text).is_ok()
            && self.compile(&[], &source, &object, scratch).is_ok_and(|printed| printed.is_success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_have_names() {
        for variant in Variant::ALL {
            assert_eq!(variant.name().parse(), Ok(variant));
        }
        let error = "light".parse::<Variant>().expect_err("no such variant");
        assert!(error.contains("native, sei, seil, dup"), "{error}");
    }

    #[test]
    fn accesses_are_distinguished_from_other_calls() {
        for name in ["_ITM_RU8", "_ITM_RfWU4", "_ITM_WaWM128", "_ITM_LB", "_ITM_WE"] {
            assert!(is_access(name), "{name}");
        }
        for name in ["_ITM_changeTransactionMode", "_ITM_abortTransaction", "_ITM_RU3", "RU8"] {
            assert!(!is_access(name), "{name}");
        }
    }

    #[test]
    fn only_protected_variants_are_instrumented() {
        for variant in Variant::ALL {
            assert_eq!(variant.flags().contains(&"-fgnu-tm"), variant.is_hardened(), "{variant}");
        }
    }

    #[test]
    fn units_have_every_option_of_the_guide() {
        let guide: Vec<&str> = SHARED.lines().collect();
        assert!(guide.contains(&"-fno-optimize-sibling-calls") && guide.contains(&"-fno-builtin-sprintf"));
        assert_eq!(headers(), ["-include", "sei/wrap.h"]);
        let lacks = |variant: Variant| -> Vec<&str> {
            let has = [unit_options(variant), headers()].concat();
            guide.iter().filter(|flag| !has.contains(flag)).copied().collect()
        };
        for variant in Variant::ALL {
            // A baseline is the same code without the instrumentation.
            let wanted: &[&str] = if variant.flags().contains(&INSTRUMENT) { &[] } else { &[INSTRUMENT] };
            assert_eq!(lacks(variant), wanted, "{variant}");
        }
    }
}
