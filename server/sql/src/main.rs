//! The program: the commands of every service, for SQL.

use std::process::ExitCode;
use std::sync::Arc;

use crosscheck::MakeProtocol;
use node::clap::{self, Parser, Subcommand};
use node::program::{program, text};
use node::{AFTER_HELP, AFTER_LONG_HELP, Application, LONG_ABOUT, NodeCommand, ReplicaParts, outcome};
use sql::copy_client::{self, ABOUT_DUMP, ABOUT_LOAD, DumpArgs, LoadArgs};
use sql::options::SqlOptions;
use sql::scram::Users;
use sql::{PgConnection, Sql};

struct SqlProgram;

impl Application for SqlProgram {
    const NAME: &'static str = "crosscheck-sql";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const ABOUT: &'static str =
        "Replicated SQL whose every page is checked before it is used; psql talks to it";
    const PORT: u16 = 5432;
    const OBJECTS: &'static str =
        "  row:TABLE:KEY   the page with that row, in the row: by its number, or by the text that is first in
                  its primary key or in the table's first index
  page:N          the page with that number in the file, from 1
  database        what holds for the whole file";
    const OBJECT: &'static str = "row:accounts:17";
    type Service = Sql;
    type Protocol = PgConnection;
    type Options = SqlOptions;

    fn build(options: &SqlOptions) -> Result<ReplicaParts<Self>, String> {
        let users = options.password_file.open()?.map(|passwords| Arc::new(Users::new(passwords)));
        let make_protocol: MakeProtocol<PgConnection> = Arc::new(move |accepted| {
            // Two connections with the same number would share a transaction.
            let connection = PgConnection::new(u64::from_le_bytes(drawn()));
            let connection = if accepted.offers_tls { connection.only_with_tls() } else { connection };
            match &users {
                Some(users) => connection.guarded_by(users.clone(), drawn()),
                None => connection,
            }
        });
        Ok((Sql::new(), make_protocol))
    }
}

/// Random bytes for a connection.
fn drawn<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // bookkeeping: it reaches the state as a part of ordered requests
    let drawn = getrandom::fill(&mut bytes);
    drawn.unwrap_or_else(|error| panic!("the system has no random numbers: {error}"));
    bytes
}

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(
    name = program().name,
    version = program().version,
    about = program().about,
    long_about = text(LONG_ABOUT),
    after_help = text(AFTER_HELP),
    after_long_help = text(AFTER_LONG_HELP),
    max_term_width = 110
)]
struct SqlCli {
    /// The command.
    #[command(subcommand)]
    command: SqlCommand,
}

/// Those of every program that runs a group, and of this one.
#[derive(Debug, Subcommand)]
enum SqlCommand {
    /// Commands that prepare a group, run it, and query it.
    #[command(flatten)]
    Node(Box<NodeCommand<SqlOptions>>),
    /// Write the whole database into a file, while the group serves
    #[command(long_about = ABOUT_DUMP)]
    Dump(DumpArgs),
    /// Load a file into an empty database
    #[command(long_about = ABOUT_LOAD)]
    Load(LoadArgs),
}

fn main() -> ExitCode {
    node::program::enter::<SqlProgram>();
    outcome::report(match SqlCli::parse().command {
        SqlCommand::Node(command) => node::run::<SqlProgram>(*command),
        SqlCommand::Dump(args) => copy_client::dump(&args),
        SqlCommand::Load(args) => copy_client::load(&args),
    })
}

#[cfg(test)]
mod tests {
    use node::clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_command_teaches() {
        SqlCli::command().debug_assert();
        for command in SqlCli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name} has no summary");
            let long = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(name == "modes" || long.contains("crosscheck"), "`{name} --help` has no example");
        }
    }
}
