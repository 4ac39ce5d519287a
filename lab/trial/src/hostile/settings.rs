//! One replica is configured differently, as by a mistake: both ends must report it, no replica is blamed for it, and
//! no client of the others notices it.

use std::time::Duration;

use crosscheck::GroupKey;

use super::lab::{HostileRun, Lab, REPLICAS, Setup};
use super::ms;
use super::outcome::Case;
use super::watch::HostileWatch;
use cli::service::NodeConfig;

/// How long until both ends have reported the difference.
const NAMED: Duration = Duration::from_secs(2);
/// How long the group runs with it.
const LASTS: Duration = Duration::from_millis(500);
/// How long until the replica serves again with the right settings.
const BACK: Duration = Duration::from_secs(10);

/// One difference.
struct Difference {
    description: &'static str,
    /// The word that the report at each end must contain.
    word: &'static str,
    /// Whether the replica cannot even authenticate itself: the others count it as a stranger.
    is_stranger: bool,
    change: fn(&mut NodeConfig),
}

const DIFFERENCES: [Difference; 2] = [
    Difference {
        description: "mode RDG0, and RDGX at the others",
        word: "mode",
        is_stranger: false,
        change: |node| node.mode = "RDG0".parse().unwrap_or_default(),
    },
    Difference {
        description: "another group's key",
        word: "key",
        is_stranger: true,
        change: |node| {
            let Some(path) = &mut node.group_key_file else { return };
            path.set_file_name("other.key");
            // If the file cannot be written, the replica does not start, and the case fails.
            let _ = GroupKey::keep(path);
        },
    },
];

/// Runs the attack.
pub fn run(run: &HostileRun<'_>) -> anyhow::Result<()> {
    let lab = run.cluster(Setup::default())?;
    for (number, difference) in DIFFERENCES.iter().enumerate() {
        differ(run, &lab, difference, &format!("kept{number}"))?;
    }
    Ok(())
}

fn differ(run: &HostileRun<'_>, lab: &Lab<'_>, difference: &Difference, name: &str) -> anyhow::Result<()> {
    let mut case = Case::new(format!("replica 3 is started again with {}", difference.description));
    lab.down(&[3]);
    lab.forget();
    let mut right = None;
    lab.reconfigure(3, |node| {
        right = Some(node.clone());
        (difference.change)(node);
    })?;
    // Only the others' clients are checked: replica 3 serves no client.
    let watch = HostileWatch::start(lab)?;
    lab.up(&[3]);
    let mut named = [[false; 2]; 3];
    let before = REPLICAS.map(|number| lab.status(number).map_or(0, |status| status.refused.strangers));
    let took = lab.until(5 * NAMED, |lab| {
        REPLICAS.iter().zip(&mut named).for_each(|(number, named)| {
            let by_status = lab.status(*number).is_some_and(|status| {
                let is_counted =
                    difference.is_stranger && status.refused.strangers > before[usize::from(*number - 1)];
                is_counted || status.refused.replicas.iter().any(|why| why.contains(difference.word))
            });
            *named = [by_status, !lab.said(*number, difference.word).is_empty()];
        });
        named.iter().all(|named| *named == [true; 2])
    })?;
    lab.store(1, name, 300, 9_000)?;
    run.sleep(LASTS)?;
    let watched = watch.finish();
    check_named(&mut case, lab, took, &named);
    let records: usize = REPLICAS.iter().map(|number| lab.evidence(*number).len()).sum();
    case.check(records == 0, "no replica is blamed: no record of evidence", format!("{records} records"));
    watched.check_waits(&mut case, &[1, 2]);
    lab.check_alive(&mut case);
    lab.check_stored(&mut case, &[1, 2], name, 300, 9_000);
    lab.down(&[3]);
    lab.reconfigure(3, |node| *node = right.unwrap_or_else(|| node.clone()))?;
    lab.up(&[3]);
    let back = lab.until_served(&REPLICAS, BACK)?;
    let seen = back.map_or_else(|| lab.seen(), |after| format!("after {}", ms(after)));
    case.check(back.is_some(), "with the right settings it serves again", seen);
    lab.check_stored(&mut case, &[3], name, 300, 9_000);
    run.record_case(case);
    Ok(())
}

fn check_named(case: &mut Case, lab: &Lab<'_>, took: Option<Duration>, named: &[[bool; 2]; 3]) {
    let silent = |kind: usize| {
        let silent = REPLICAS.iter().zip(named).filter(|(_, named)| !named[kind]);
        silent.map(|(number, _)| format!("not at replica {number}")).collect::<Vec<_>>().join(", ")
    };
    let where_named = |kind: usize| match (took, silent(kind)) {
        (Some(took), _) => format!("at all 3 after {}", ms(took)),
        (None, silent) if silent.is_empty() => "at all 3".to_owned(),
        (None, silent) => silent,
    };
    let all = |kind: usize| named.iter().all(|named| named[kind]);
    case.check(all(0), "`status` names it at both ends", where_named(0));
    case.check(all(1), "stderr names it at both ends", where_named(1));
    let is_soon = took.is_some_and(|took| took <= NAMED);
    let seen = took.map_or_else(|| "never".to_owned(), |took| format!("after {}", ms(took)));
    case.check_time(is_soon, format!("they do so within {}", ms(NAMED)), seen);
    for number in [1, 3] {
        let refused = lab.status(number).map(|status| status.refused).unwrap_or_default();
        case.add_note(format!(
            "replica {number} says: {} strangers; {}",
            refused.strangers,
            refused.replicas.join("; ")
        ));
    }
}
