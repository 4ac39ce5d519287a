//! The loop of a worker: it runs row after row, in the order that the schedule assigns to it.

use std::ops::ControlFlow;

use schedule::{Step, Turn, Worker};

/// Why a worker runs no further row for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// No row may run: the log has no further entry, or another worker is too far behind.
    Idle,
    /// Its caller stopped it.
    Stopped,
    /// The schedule is closed and all rows have run, or it was aborted.
    Closed,
}

/// Runs every row, and waits for the next ones, until the schedule is closed or aborted. Calls `pause` whenever it has
/// no row for now: before it waits, and at the end.
pub fn run_all<R>(worker: &mut Worker<R>, mut run: impl FnMut(Turn<'_, R>), pause: impl Fn()) {
    let mut run = |turn: Turn<'_, R>| {
        run(turn);
        ControlFlow::Continue(())
    };
    while run_rows(worker, &mut run) == Pause::Idle {
        pause();
        worker.wait();
    }
    pause();
}

/// Runs the rows that may run now, until `run` stops it after one of them. Waits for none.
pub fn run_rows<R>(worker: &mut Worker<R>, mut run: impl FnMut(Turn<'_, R>) -> ControlFlow<()>) -> Pause {
    loop {
        match worker.next() {
            Step::Run(turn) => {
                if run(turn).is_break() {
                    return Pause::Stopped;
                }
            }
            Step::Idle => return Pause::Idle,
            Step::Closed => return Pause::Closed,
        }
    }
}
