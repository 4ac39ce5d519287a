//! `crosscheck-lab trial run hostile`: failures that one client, one clock, one stranger or one lost disk could cause
//! in a running group: each is tried, with the observations and the required properties.
//!
//! Each attack is a file of its own and starts small clusters of `serve` processes of this program on loopback
//! ([`lab`]). During it, the waits of one well-behaved client per replica are recorded, and so is the memory of all
//! replicas ([`watch`]). The result is a list of cases with checks ([`outcome`]): the command succeeds if every check
//! holds.

mod clock;
mod descriptors;
mod effort;
mod files;
mod founding;
mod http;
mod lab;
mod long_replies;
mod memory;
mod outcome;
mod settings;
mod strangers;
mod tls;
mod watch;
mod wire;
mod wrong_replica;

use std::path::Path;
use std::time::{Duration, Instant};

use report::results::Origin;

use lab::HostileRun;
use node::outcome::{error_text, misuse, say};
use node::signals::Ending;
use outcome::{Attacked, Result};

/// Its name among the plans.
pub const NAME: &str = "hostile";
/// Its title.
pub const TITLE: &str = "Attacks of clients, clocks, strangers and lost data on small clusters of their own";

/// One attack.
#[derive(Debug)]
struct Attack {
    name: &'static str,
    title: &'static str,
    run: fn(&HostileRun<'_>) -> anyhow::Result<()>,
}

/// All of them, in the order in which they run: the longest come last.
const ATTACKS: [Attack; 11] = [
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
    Attack {
        name: "tls",
        title: "handshakes without an end, and clients with TLS that never read",
        run: tls::run,
    },
    Attack { name: "long-replies", title: "7.5 kB of requests ask for 3.8 GB", run: long_replies::run },
];

/// Name and title of each attack.
pub fn attacks() -> impl Iterator<Item = (&'static str, &'static str)> {
    ATTACKS.iter().map(|attack| (attack.name, attack.title))
}

/// The attacks with these names, or all without a name.
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

/// Checks that all of these are names of attacks.
///
/// # Errors
/// An error of the operator, if one is not.
pub fn check(only: &[String]) -> anyhow::Result<()> {
    chosen(only).map(drop)
}

/// Runs the attacks with these names, or all without a name; writes the results into `out`. Returns whether everything
/// held.
///
/// # Errors
/// Results cannot be written. A cluster that does not start is a finding.
pub fn run(only: &[String], out: &Path, origin: Origin, ending: &Ending) -> anyhow::Result<bool> {
    let attacks = chosen(only)?;
    std::fs::create_dir_all(out)?;
    node::descriptors::raise();
    let run = HostileRun::new(ending, out)?;
    let mut result = Result::new(origin);
    for attack in attacks {
        if ending.asked() {
            break;
        }
        // If the pipe is closed, the run continues without output.
        let _ = say(&format!("\n{}: {}", attack.name, attack.title));
        run.enter(attack.name);
        let began = Instant::now();
        let outcome = (attack.run)(&run);
        let mut cases = run.leave();
        if let Err(why) = outcome {
            cases.push(outcome::broken(&error_text(&why)));
            let _ = cases.last().map(outcome::Case::print);
        }
        let seconds = began.elapsed();
        result.attacks.push(Attacked::new(attack.name, attack.title, seconds, cases));
    }
    result.ended_early = ending.asked();
    result.write(out)?;
    let _ = say(&format!("\n{}", result.summary().trim_end()));
    Ok(result.holds())
}

/// A time as text.
fn ms(time: Duration) -> String {
    format!("{} ms", node::view::grouped(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_are_chosen_by_name_and_a_wrong_name_is_reported_with_the_right_ones() {
        assert_eq!(chosen(&[]).expect("all").len(), ATTACKS.len());
        let two = chosen(&["clock".into(), "http".into()]).expect("both are there");
        assert_eq!(two.iter().map(|attack| attack.name).collect::<Vec<_>>(), ["http", "clock"]);
        let error = chosen(&["clocks".into()]).unwrap_err().to_string();
        assert!(error.contains("no attack clocks") && error.contains("long-replies"), "{error}");
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
