//! `crosscheck-lab trial run recovery`: which kinds of groups are hit how often, their results on one page, and the
//! exit code.

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::plan::Plan;
use crate::recovery::outcome::{self, Recovered};
use crate::recovery::{CONFIGURATIONS, Configuration, PAIRS, QUICK_PAIRS, Wish};
use crate::run::Options;
use report::results::{Origin, write_with_page};
use serde_json::json;

use super::run::Args;
use node::outcome::{misuse, say};
use node::signals::Ending;

/// Its name among the plans.
pub use crate::recovery::NAME;
/// Its title.
pub const TITLE: &str = "Every kind of group is struck again as soon as it says that it tolerates it";

/// Name and title of each configuration.
pub fn configurations() -> impl Iterator<Item = (&'static str, &'static str)> {
    CONFIGURATIONS.iter().map(|one| (one.name, one.title))
}

/// The configurations with these names, or all without a name.
///
/// # Errors
/// An error of the operator, if one is not a name of a configuration.
pub fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Configuration>> {
    for name in only {
        if !configurations().any(|(known, _)| known == name) {
            let names: Vec<&str> = configurations().map(|(name, _)| name).collect();
            return Err(misuse(format!("there is no configuration {name}; there are {}", names.join(", "))));
        }
    }
    let is_meant = |one: &&Configuration| only.is_empty() || only.iter().any(|name| name == one.name);
    Ok(CONFIGURATIONS.iter().filter(is_meant).collect())
}

/// Runs the chosen configurations one after the other; writes the results into `out`. Returns whether everything held.
///
/// # Errors
/// A group does not start, or results cannot be written.
pub fn run(args: &Args, seed: u64, out: &Path, origin: &Origin, ending: &Ending) -> anyhow::Result<bool> {
    let wish = Wish {
        pairs: args.pairs.unwrap_or(if args.quick { QUICK_PAIRS } else { PAIRS }),
        quick: args.quick,
        blindly: args.blindly,
    };
    let options = Options {
        plan: Plan::bare("RDGX", 3),
        server: None,
        seed,
        out: out.to_owned(),
        loopback: args.loopback,
        origin: origin.clone(),
    };
    let mut all: Vec<Recovered> = Vec::new();
    let meant = chosen(&args.only)?;
    for configuration in &meant {
        if ending.flag().load(Ordering::Relaxed) {
            break;
        }
        say(&format!("{} ({}), {} pairs", configuration.name, configuration.title, wish.pairs))?;
        // If the pipe is closed, the run continues without output.
        let found =
            crate::recovery::run(configuration, &options, &wish, ending.flag(), &|line| drop(say(line)))?;
        say(found.summary().trim_end())?;
        all.push(found);
        let page = outcome::page(origin, seed, &all);
        write_with_page(out, origin, &json!({ "seed": seed }), &(), &all, &page)?;
    }
    say(&outcome::page(origin, seed, &all).plain())?;
    Ok(all.len() == meant.len() && all.iter().all(Recovered::holds))
}
