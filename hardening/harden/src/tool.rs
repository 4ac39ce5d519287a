//! Programs of the system that the pipeline calls: one place starts them, and says what to install where one lacks.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Lines of a failed program's output that an error repeats.
const LINES: usize = 12;

/// What this machine lacks, and how to get it: no fault of the program or its recipe.
#[derive(Debug)]
pub struct Lack(pub String);

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Lack {}

/// Whether an error says that this machine lacks something: a compiler, a package, a network.
pub fn is_lack(error: &anyhow::Error) -> bool {
    error.is::<Lack>() || error.chain().any(|cause| cause.is::<Lack>())
}

/// A call of another program, with messages in English and without input.
pub fn call(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// What the program printed, on both streams.
#[derive(Debug)]
pub struct Printed {
    /// Whether its exit status was 0.
    pub is_success: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Runs a program to its end; `package` is what to install where it lacks.
pub fn run(command: &mut Command, package: &str) -> Result<Printed> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::Error::new(Lack(format!(
            "{name} is not installed; install it with: apt-get install {package}"
        ))),
        _ => anyhow::Error::new(error).context(format!("cannot start {name}")),
    })?;
    Ok(Printed {
        is_success: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a program that must succeed; `doing` says what fails otherwise.
pub fn succeed(command: &mut Command, package: &str, doing: &str) -> Result<Printed> {
    let printed = run(command, package).context(doing.to_owned())?;
    if !printed.is_success {
        let name = command.get_program().to_string_lossy().into_owned();
        bail!("{doing}: {name} failed:\n{}", tail(&printed));
    }
    Ok(printed)
}

/// The last lines of what a program printed: errors, or where it has none, the rest.
pub fn tail(printed: &Printed) -> String {
    let text = if printed.err.trim().is_empty() { &printed.out } else { &printed.err };
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_lacks_is_named_with_its_package() {
        let error = run(&mut call("no-such-program-here"), "the-package").expect_err("it does not exist");
        assert!(error.to_string().contains("apt-get install the-package"), "{error}");
    }

    #[test]
    fn a_failure_shows_what_the_program_said() {
        let mut command = call("sh");
        command.args(["-c", "echo first; echo second >&2; exit 3"]);
        let error = succeed(&mut command, "dash", "cannot try").expect_err("it fails");
        assert!(error.to_string().contains("cannot try") && error.to_string().contains("second"), "{error}");
    }
}
