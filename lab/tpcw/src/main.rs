//! TPC-W over PostgreSQL's protocol: Fig. 3 of the Eve paper (OSDI 2012), asked of `crosscheck-sql` and of PostgreSQL.
//!
//! A bookshop: eight tables of books, customers and orders, two of carts, and clients that browse and buy. The
//! requests are the twelve of the server that Eve's authors published, the mixes are the specification's (`mix` says
//! what is from where). Each answer is checked: all rows are a function of a seed (`population`), a client buys for
//! its own customers only, and in the end the whole database is compared with what was acknowledged (`audit`).
//!
//! ```text
//! crosscheck-sql up --port 15432
//! tpcw populate --address 127.0.0.1:15432
//! tpcw run --address 127.0.0.1:15432 127.0.0.1:15433 127.0.0.1:15434 --mix shopping --seconds 20
//! ```
//!
//! What differs from the specification: no web server and no time to think (a closed loop); amounts are whole cents; an
//! order of the population costs what its lines say; nobody registers, and no administrator changes a book.
//!
//! A workspace of its own: nothing else of the repository needs a client of PostgreSQL.
//!
//! ```console
//! $ cd lab/tpcw && cargo run --release -- run --help
//! ```

mod audit;
mod catalogue;
mod mix;
mod populate;
mod population;
mod process_time;
mod random;
mod requests;
mod run;
mod schema;
mod series;
mod servers;
mod shopper;
mod statements;

use std::process::ExitCode;

use clap::Parser;

/// Everything on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "tpcw",
    version,
    about = "TPC-W over PostgreSQL's protocol, with a check of every answer",
    long_about = "A bookshop's load (TPC-W) for servers that speak PostgreSQL's protocol: fill the tables, run \
clients, and check every answer.

  crosscheck-sql up --port 15432
  tpcw populate --address 127.0.0.1:15432
  tpcw run --address 127.0.0.1:15432 127.0.0.1:15433 127.0.0.1:15434 --mix shopping
  tpcw series --server crosscheck-sql --postgres DIR --commit COMMIT --out tpcw.md

A client sends one request at a time, without a pause. Transactions that fail with 40001 or because of a deadlock are
run again and counted. A wrong answer is listed with its evidence.",
    after_help = "Exit code: 0 when every answer was right, 1 when one was wrong or missing, 2 for a wrong command \
line.",
    max_term_width = 110
)]
struct TpcwCli {
    /// The command.
    #[command(subcommand)]
    command: TpcwCommand,
}

/// The commands.
#[derive(Debug, clap::Subcommand)]
enum TpcwCommand {
    /// Make the tables and fill them
    Populate(populate::Args),
    /// Run clients against servers whose tables are filled, and check every answer
    Run(run::Args),
    /// Measure several servers in turn, and make the tables of lab/bench/results/tpcw.md
    Series(series::Args),
}

fn main() -> ExitCode {
    let done = match TpcwCli::parse().command {
        TpcwCommand::Populate(args) => populate::run(&args),
        TpcwCommand::Run(args) => run::run(&args),
        TpcwCommand::Series(args) => series::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tpcw: {error:#}");
            ExitCode::FAILURE
        }
    }
}
