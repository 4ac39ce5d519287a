//! The program: the commands of every service, for SQL.

use std::process::ExitCode;
use std::sync::Arc;

use crosscheck::MakeProtocol;
use node::{Application, ReplicaParts};
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
    type Options = ();

    fn build(_options: &()) -> Result<ReplicaParts<Self>, String> {
        let make_protocol: MakeProtocol<PgConnection> = Arc::new(|_counters| PgConnection::new(number()));
        Ok((Sql::new(), make_protocol))
    }
}

/// A number for a connection: two equal ones would share a transaction.
fn number() -> u64 {
    let mut bytes = [0; 8];
    // bookkeeping: it reaches the state as a part of ordered requests
    let drawn = getrandom::fill(&mut bytes);
    drawn.unwrap_or_else(|error| panic!("the system has no random numbers: {error}"));
    u64::from_le_bytes(bytes)
}

fn main() -> ExitCode {
    node::main::<SqlProgram>()
}
