//! How a command ends: one place turns results and errors into exit codes and one line on stderr.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::program;

/// The result of every command: whether the tested condition holds, or why that could not be determined.
pub type CommandOutcome = anyhow::Result<CommandVerdict>;

/// The answer of a command that completed its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandVerdict {
    /// Exit code 0.
    Holds,
    /// Exit code 1: the command completed, and the answer is no (digests differ, a replica is down, a promise was
    /// broken).
    Fails,
}

impl CommandVerdict {
    /// Holds exactly when `holds`.
    pub fn of(holds: bool) -> Self {
        if holds { CommandVerdict::Holds } else { CommandVerdict::Fails }
    }
}

/// The operator requested something impossible: exit code 2, as for a command line that does not parse.
#[derive(Debug)]
pub struct Misuse(pub String);

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// The machine has to be replaced before a replica runs on it again: exit code 3.
#[derive(Debug)]
pub struct BrokenMachine(pub String);

impl std::fmt::Display for BrokenMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BrokenMachine {}

/// The exit code of [`BrokenMachine`].
pub const BROKEN: u8 = 3;

/// An error that the operator has to correct.
pub fn misuse(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Misuse(text.into()))
}

/// Prints an error to stderr and picks the exit code.
pub fn report(outcome: CommandOutcome) -> ExitCode {
    match outcome {
        Ok(CommandVerdict::Holds) => ExitCode::SUCCESS,
        Ok(CommandVerdict::Fails) => ExitCode::from(1),
        // The reader of our output ended (`crosscheck evidence | head`): that is a normal end, not a failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{}: {}", program::name(), error_text(&error));
            ExitCode::from(code_of(&error))
        }
    }
}

/// An error and its causes in one line. Many errors name their cause themselves: no text is repeated.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn code_of(error: &anyhow::Error) -> u8 {
    if error.chain().any(|cause| cause.is::<BrokenMachine>()) {
        BROKEN
    } else if error.chain().any(|cause| cause.is::<Misuse>()) {
        2
    } else {
        1
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
}

/// Prints one line to stdout; unlike for `println!`, a closed pipe is an error and not a panic.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints one value as one line of JSON.
pub fn say_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(say(&serde_json::to_string(value)?)?)
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn misuse_keeps_its_code_under_context() {
        let error = Err::<(), _>(misuse("no such mode")).context("reading FILE").unwrap_err();
        assert_eq!(code_of(&error), 2);
        assert_eq!(code_of(&anyhow::anyhow!("unreachable")), 1);
        assert_eq!(code_of(&anyhow::Error::new(BrokenMachine("its hardware".to_owned()))), 3);
    }

    #[test]
    fn a_cause_is_reported_once() {
        let cause = || io::Error::from(io::ErrorKind::PermissionDenied);
        let state = crosscheck::snapshot::SnapshotError::Io { path: "data".into(), error: cause() };
        let ended = anyhow::Error::new(crosscheck::ServeError::from(state));
        let reported = "data: permission denied; let the user of this process own it, read it and write it";
        assert_eq!(error_text(&ended), reported);
        assert_eq!(error_text(&ended.context("starting")), format!("starting: {reported}"));
        assert_eq!(error_text(&anyhow::Error::new(cause()).context("writing")), "writing: permission denied");
    }

    #[test]
    fn a_closed_pipe_is_no_failure_but_other_errors_are() {
        let pipe = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&pipe));
        assert!(!is_broken_pipe(&anyhow::Error::new(io::Error::from(io::ErrorKind::ConnectionRefused))));
    }
}
