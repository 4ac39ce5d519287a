//! `key new`: the secret that the replicas of one group share.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::anyhow;
use crosscheck::{GroupKey, private};

use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say};
use crate::program::text;

/// The beginning of `key --help`.
pub const ABOUT: &str = "Makes the key of a group: the secret by which its replicas authenticate each other. Every \
    replica of a replicated mode names the file in its configuration (group_key). `{program} up` makes one \
    by itself.";

/// Options of `key`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Example:
  {program} key new --out /etc/{program}/group.key     on one machine; then copy the file to the others, mode 0600"))]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub action: Action,
}

/// The commands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Write a new random key into a new file of mode 0600
    New(New),
}

/// Options of `key new`.
#[derive(Clone, Debug, clap::Args)]
pub struct New {
    /// The file; an existing one is never overwritten
    #[arg(long, short, value_name = "FILE")]
    pub out: PathBuf,
    /// The group's name: letters, digits, `-`, `_` and `.` [default: 8 random hexadecimal digits]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Makes a key.
pub fn run(args: &Args) -> CommandOutcome {
    let Action::New(New { out, name }) = &args.action;
    let file = out.display();
    let key = GroupKey::random(name.as_deref()).map_err(misuse)?;
    private::create(out, &key.to_text()).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            misuse(format!("{file} is there, and no key is overwritten; move it away or give another --out"))
        }
        _ => anyhow!("cannot write {file}: {error}"),
    })?;
    say(&format!(
        "{file}: a new key for cluster {}. Copy it to every replica's machine with mode 0600, and name it there: \
         group_key = \"FILE\"",
        key.cluster
    ))?;
    Ok(CommandVerdict::Holds)
}
