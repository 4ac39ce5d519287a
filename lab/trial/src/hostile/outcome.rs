//! What an attack came to: what was done, what was seen, what has to hold; printed as it comes, and kept as
//! JSON and Markdown.

use std::path::Path;
use std::time::Duration;

use report::Page;
use report::results::{Origin, write_with_page};
use serde::Serialize;

use node::outcome::say;

/// Width of what has to hold, before what was seen.
const WIDTH: usize = 62;

/// Something that has to hold, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What has to hold.
    pub what: String,
    /// What was seen, with units.
    pub seen: String,
    /// Whether that is so.
    pub holds: bool,
    /// Whether it measures a duration, which other work on the machine affects.
    pub timed: bool,
}

/// One thing that was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Case {
    /// What.
    pub done: String,
    /// Why it could not be tried here; none: it was.
    pub skipped: Option<String>,
    /// What has to hold.
    pub checks: Vec<Check>,
    /// What else was seen.
    pub notes: Vec<String>,
}

impl Case {
    /// Something is done now.
    pub fn new(done: impl Into<String>) -> Self {
        Case { done: done.into(), ..Case::default() }
    }

    /// What has to hold, and what was seen.
    pub fn check(&mut self, holds: bool, what: impl Into<String>, seen: impl Into<String>) {
        self.checks.push(Check { what: what.into(), seen: seen.into(), holds, timed: false });
    }

    /// The same of how long something took.
    pub fn check_time(&mut self, holds: bool, what: impl Into<String>, seen: impl Into<String>) {
        self.checks.push(Check { what: what.into(), seen: seen.into(), holds, timed: true });
    }

    /// What was seen, and may be as it likes.
    pub fn add_note(&mut self, seen: impl Into<String>) {
        self.notes.push(seen.into());
    }

    /// Whether everything holds that has to.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }

    /// Prints it. A closed pipe ends the lines, not the run.
    pub fn print(&self) {
        self.lines().iter().for_each(|line| drop(say(line)));
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("  {}", self.done)];
        lines.extend(self.skipped.iter().map(|why| format!("    skip  {why}")));
        lines.extend(self.notes.iter().map(|note| format!("          {note}")));
        lines.extend(self.checks.iter().map(|check| {
            let word = if check.holds { "ok" } else { "FAIL" };
            format!("    {word:<4}  {:<WIDTH$} {}", check.what, check.seen)
        }));
        lines
    }
}

/// An attack that could not be carried out: that is no proof of anything.
pub fn broken(why: &str) -> Case {
    let mut case = Case::new("the attack could not be carried out");
    case.check(false, "it can be", why);
    case
}

/// One attack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attacked {
    name: &'static str,
    title: &'static str,
    seconds: f64,
    holds: bool,
    cases: Vec<Case>,
}

impl Attacked {
    /// Of its cases.
    pub fn new(name: &'static str, title: &'static str, took: Duration, cases: Vec<Case>) -> Self {
        let holds = cases.iter().all(Case::holds);
        Attacked { name, title, seconds: took.as_secs_f64(), holds, cases }
    }

    fn line(&self) -> String {
        let checks: usize = self.cases.iter().map(|case| case.checks.len()).sum();
        let failed: usize =
            self.cases.iter().flat_map(|case| &case.checks).filter(|check| !check.holds).count();
        let skipped = self.cases.iter().filter(|case| case.skipped.is_some()).count();
        let verdict = match (failed, checks) {
            (0, 0) => "not tried".to_owned(),
            (0, _) => format!("held, {checks} checks"),
            _ => format!("FAILED {failed} of {checks} checks"),
        };
        let skipped = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
        format!("{:<14} {verdict}{skipped} ({:.0} s)", self.name, self.seconds)
    }
}

/// All attacks of a run; of a file, the totals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Result {
    #[serde(skip)]
    origin: Origin,
    holds: bool,
    /// The operator ended it before all was tried.
    pub ended_early: bool,
    /// What was tried.
    #[serde(skip)]
    pub attacks: Vec<Attacked>,
}

impl Result {
    /// Of nothing yet.
    pub fn new(origin: Origin) -> Self {
        Result { origin, holds: false, ended_early: false, attacks: Vec::new() }
    }

    /// Whether everything was tried and holds.
    pub fn holds(&self) -> bool {
        !self.ended_early && !self.attacks.is_empty() && self.attacks.iter().all(|attack| attack.holds)
    }

    /// A line per attack.
    pub fn summary(&self) -> String {
        let mut lines: Vec<String> = self.attacks.iter().map(Attacked::line).collect();
        lines.push(match (self.holds(), self.ended_early) {
            (true, _) => "everything held".to_owned(),
            (false, true) => "ended before everything was tried".to_owned(),
            (false, false) => "NOT EVERYTHING HELD".to_owned(),
        });
        lines.join("\n") + "\n"
    }

    /// Writes `result.json` and `result.md` into `folder`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&mut self, folder: &Path) -> anyhow::Result<()> {
        self.holds = self.holds();
        write_with_page(folder, &self.origin, &(), self, &self.attacks, &self.page())
    }

    fn page(&self) -> Page {
        let mut page = Page::new("Trial `hostile`");
        page.text(self.origin.made_by()).lines(self.summary());
        for attack in &self.attacks {
            let lines: Vec<String> = attack.cases.iter().flat_map(Case::lines).collect();
            page.heading(2, format!("{}: {}", attack.name, attack.title)).lines(lines.join("\n"));
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attacked(cases: Vec<Case>) -> Attacked {
        Attacked::new("clock", "one clock", Duration::from_secs(3), cases)
    }

    #[test]
    fn a_run_holds_when_every_check_of_it_does_and_it_came_to_its_end() {
        let mut case = Case::new("something");
        case.check(true, "it holds", "1 ms");
        let mut result = Result::new(Origin::default());
        assert!(!result.holds(), "nothing was tried");
        result.attacks.push(attacked(vec![case.clone()]));
        assert!(result.holds());
        result.ended_early = true;
        assert!(!result.holds());
        result.ended_early = false;
        case.check(false, "it holds", "900 ms");
        result.attacks.push(attacked(vec![case]));
        assert!(!result.holds() && result.summary().contains("FAILED 1 of 2 checks"), "{}", result.summary());
        assert!(result.page().markdown().contains("FAIL  it holds"), "{:?}", result.page());
    }

    #[test]
    fn what_could_not_be_carried_out_does_not_hold_and_what_was_skipped_is_said() {
        assert!(!broken("no cluster").holds());
        let skipped = Case { skipped: Some("no libfaketime".into()), ..Case::new("a clock is wrong") };
        let line = attacked(vec![skipped]).line();
        assert!(line.contains("not tried, 1 skipped"), "{line}");
    }
}
