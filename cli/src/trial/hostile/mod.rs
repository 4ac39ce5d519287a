//! `crosscheck trial run hostile`: what one client, one clock, one stranger or one lost disk can do to a
//! running group, tried, with what was seen and what has to hold.
//!
//! Each attack is a file of its own and starts small clusters of `serve` processes of this very program on
//! loopback ([`lab`]). While it goes on, a client per replica that does nothing wrong is watched, and so is
//! the memory of all replicas ([`watch`]). What comes of it is a list of cases with checks ([`told`]): the
//! command holds when every check does.

mod clock;
mod descriptors;
mod effort;
mod files;
mod founding;
mod http;
mod lab;
mod long_replies;
mod memory;
mod settings;
mod strangers;
mod told;
mod watch;
mod wire;
mod wrong_replica;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use lab::Scene;
use node::outcome::{error_text, misuse, say};
use node::signals::Ending;
use told::{Attacked, Result};

/// Its name among the plans.
pub const NAME: &str = "hostile";
/// The same in a line.
pub const TITLE: &str = "Attacks of clients, clocks, strangers and lost data on small clusters of their own";

/// One attack.
#[derive(Debug)]
struct Attack {
    name: &'static str,
    title: &'static str,
    run: fn(&Scene<'_>) -> anyhow::Result<()>,
}

/// All of them, in the order in which they run: what takes long comes last.
const ATTACKS: [Attack; 10] = [
    Attack { name: "http", title: "a web page speaks HTTP to the clients' port", run: http::run },
    Attack { name: "settings", title: "one replica is configured differently", run: settings::run },
    Attack {
        name: "strangers",
        title: "strangers at the peers' port and at the admin endpoint",
        run: strangers::run,
    },
    Attack { name: "clock", title: "one replica's clock is wrong, or jumps", run: clock::run },
    Attack { name: "descriptors", title: "idle connections take all open files", run: descriptors::run },
    Attack {
        name: "founding",
        title: "more memories are lost than a group can do without",
        run: founding::run,
    },
    Attack {
        name: "wrong-replica",
        title: "a replica stays wrong, and all replicas differ about a value",
        run: wrong_replica::run,
    },
    Attack {
        name: "files",
        title: "logs are damaged, truncated, swapped, or put back from older copies",
        run: files::run,
    },
    Attack {
        name: "memory",
        title: "clients send halves, never read, or never stop sending",
        run: memory::run,
    },
    Attack { name: "long-replies", title: "7.5 kB of requests ask for 3.8 GB", run: long_replies::run },
];

/// Name and title of each attack.
pub fn attacks() -> impl Iterator<Item = (&'static str, &'static str)> {
    ATTACKS.iter().map(|attack| (attack.name, attack.title))
}

/// Those of these names, all of them without a name.
fn chosen(only: &[String]) -> anyhow::Result<Vec<&'static Attack>> {
    for name in only {
        if !ATTACKS.iter().any(|attack| attack.name == name) {
            let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
            return Err(misuse(format!("there is no attack {name}; there are {}", names.join(", "))));
        }
    }
    let is_meant = |attack: &&Attack| only.is_empty() || only.iter().any(|name| name == attack.name);
    Ok(ATTACKS.iter().filter(is_meant).collect())
}

/// Whether all of these are attacks.
///
/// # Errors
/// The operator's, when one is none.
pub fn check(only: &[String]) -> anyhow::Result<()> {
    chosen(only).map(drop)
}

/// Runs the attacks of these names, all of them without a name; writes what came of it into `out`. Tells
/// whether everything held.
///
/// # Errors
/// Results cannot be written. That a cluster does not come up is a finding.
pub fn run(only: &[String], out: &Path, context: Value, ending: &Ending) -> anyhow::Result<bool> {
    let attacks = chosen(only)?;
    std::fs::create_dir_all(out)?;
    node::descriptors::raise();
    let scene = Scene::new(ending, out)?;
    let mut result = Result::new(context);
    for attack in attacks {
        if ending.asked() {
            break;
        }
        // A closed pipe ends the lines, not the run.
        let _ = say(&format!("\n{}: {}", attack.name, attack.title));
        scene.enter(attack.name);
        let began = Instant::now();
        let outcome = (attack.run)(&scene);
        let mut cases = scene.leave();
        if let Err(why) = outcome {
            cases.push(told::broken(&error_text(&why)));
            let _ = cases.last().map(told::Case::say);
        }
        let seconds = began.elapsed();
        result.attacks.push(Attacked::new(attack.name, attack.title, seconds, cases));
    }
    result.ended_early = ending.asked();
    result.write(out)?;
    let _ = say(&format!("\n{}", result.summary().trim_end()));
    Ok(result.holds())
}

/// A time in words, as findings have it.
fn ms(time: Duration) -> String {
    format!("{} ms", node::view::grouped(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_are_chosen_by_name_and_a_wrong_name_is_told_with_the_right_ones() {
        assert_eq!(chosen(&[]).expect("all").len(), ATTACKS.len());
        let two = chosen(&["clock".into(), "http".into()]).expect("both are there");
        assert_eq!(two.iter().map(|attack| attack.name).collect::<Vec<_>>(), ["http", "clock"]);
        let told = chosen(&["clocks".into()]).unwrap_err().to_string();
        assert!(told.contains("no attack clocks") && told.contains("long-replies"), "{told}");
    }

    #[test]
    fn names_are_words_of_the_command_line_and_differ() {
        let mut names: Vec<&str> = attacks().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ATTACKS.len());
    }
}
