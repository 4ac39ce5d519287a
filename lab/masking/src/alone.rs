//! The database by itself: threads that increment rows, and a count of what is missing afterwards.

use std::thread;

use node::outcome::{CommandOutcome, CommandVerdict, say};

use crate::engine::{ROWS, Rows, TursoRows};

/// Options of `bug`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Rounds, each with a new database
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub rounds: u64,
    /// Threads, each with a connection
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub threads: u64,
    /// Increments of each thread
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub additions: u64,
    /// How many rows they share
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub rows: u32,
}

/// Runs the rounds.
///
/// # Errors
/// The database cannot be made.
pub fn run(args: &Args) -> CommandOutcome {
    let (mut hit, mut lost) = (0, 0);
    for round in 0..args.rounds {
        let rows = TursoRows::new()?;
        thread::scope(|scope| {
            for thread in 0..args.threads {
                let rows = &rows;
                scope.spawn(move || {
                    for addition in 0..args.additions {
                        rows.add(((addition * 7 + thread) % u64::from(args.rows)) as u32);
                    }
                });
            }
        });
        let all: u64 = (0..ROWS).filter_map(|row| rows.value(row)).sum();
        let missing = (args.threads * args.additions).saturating_sub(all);
        say(&format!(
            "round {round}: {missing} of {} increments are missing",
            args.threads * args.additions
        ))?;
        hit += u64::from(missing > 0);
        lost += missing;
    }
    let all = args.rounds * args.threads * args.additions;
    say(&format!("{hit} of {} rounds lost increments, {lost} of {all} in all", args.rounds))?;
    Ok(CommandVerdict::Holds)
}
