//! How far long work is: a line on stderr that is redrawn while it goes on, and nothing where stderr is no terminal.

use std::io::{self, Write};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The time that has passed is shown this often.
const TICK: Duration = Duration::from_secs(1);

/// The line; it is gone when this is dropped.
#[derive(Debug)]
pub struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// Of work in so many steps, where that is known.
    pub fn of(steps: Option<u64>) -> Self {
        Self::on(ProgressDrawTarget::stderr(), steps)
    }

    fn on(target: ProgressDrawTarget, steps: Option<u64>) -> Self {
        let template = match steps {
            Some(_) => "{elapsed:>4} {bar:20} {pos}/{len}, {eta} left  {wide_msg}",
            None => "{elapsed:>4} {spinner} {pos}  {wide_msg}",
        };
        let style = ProgressStyle::with_template(template).expect("the templates above are right");
        let bar = ProgressBar::with_draw_target(steps, target).with_style(style.progress_chars("=> "));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        ProgressLine(bar)
    }

    /// Shows what is being done, or what came out so far.
    pub fn doing(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Does what prints, while the line is out of the way.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        self.0.suspend(print)
    }

    /// Prints a line to stderr that stays, also where that is no terminal.
    pub fn tell(&self, line: &str) {
        // A user who closed stderr does not want the message.
        self.aside(|| drop(writeln!(io::stderr(), "{line}")));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A time to wait, coarsely.
pub fn roughly(time: Duration) -> String {
    format!("{:#}", HumanDuration(time))
}

#[cfg(test)]
mod tests {
    use indicatif::InMemoryTerm;

    use super::*;

    #[test]
    fn the_line_says_how_far_the_work_is_and_leaves_nothing() {
        let screen = InMemoryTerm::new(4, 60);
        let line = ProgressLine::on(ProgressDrawTarget::term_like(Box::new(screen.clone())), Some(4));
        line.doing("x".repeat(80));
        line.step();
        line.0.force_draw();
        let shown = screen.contents();
        assert!(shown.contains("1/4") && shown.contains("xxx") && shown.lines().count() == 1, "{shown}");
        line.aside(|| assert_eq!(screen.contents(), ""));
        drop(line);
        assert_eq!(screen.contents(), "");
    }

    #[test]
    fn nothing_is_drawn_where_there_is_no_terminal() {
        let line = ProgressLine::on(ProgressDrawTarget::hidden(), None);
        line.step();
        assert!(line.0.is_hidden());
    }

    #[test]
    fn waits_are_reported_coarsely() {
        let reported = [59, 60, 61, 5000, 10_000].map(|seconds| roughly(Duration::from_secs(seconds)));
        assert_eq!(reported, ["59s", "60s", "61s", "83m", "3h"]);
    }
}
