//! `group get` and `group set`: the settings that a group has, and their change at one position of the order.

use std::time::Duration;

use crosscheck::GroupSetting;
use crosscheck::admin::client::NoAnswer;
use crosscheck::admin::{AdminCommand, GroupSettings, ReplicaPhase, SettingChange};

use super::here;
use crate::cluster::{ClusterTarget, ReplicaHandle};
use crate::config::more_than_there_is;
use crate::outcome::{CommandOutcome, CommandVerdict, misuse, say, say_json};
use crate::program::{self, text};
use crate::view::grouped;

/// Timeout of a command; the replica gives up earlier, and says so.
const PATIENCE: Duration = Duration::from_secs(40);

/// Options of `group get`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Examples:
  {program} group get                    all settings of the group, and since when
  {program} group get --json

The values are those at the position of this command; replicas agree on them. A configuration file has other
ones perhaps: they counted when the group was founded."))]
pub struct GetArgs {
    /// One setting [default: all]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
}

/// Options of `group set`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = text("Example:
  {program} group set NAME VALUE         `{program} group get` lists the names

The change is ordered like a request of a client, takes effect at one position at all replicas, and stays: no
replica restarts, and those that start later, whatever their files say, have it too. The command ends once
it has taken effect at the replica that was asked.

Exit code: 0 when the setting has the value from that position on, 1 when it was refused, or that is not known."))]
pub struct SetArgs {
    /// The setting
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Its new value
    #[arg(value_name = "VALUE")]
    pub value: String,
    /// The cluster.
    #[command(flatten)]
    pub target: ClusterTarget,
}

/// Lists settings.
pub fn get(args: &GetArgs) -> CommandOutcome {
    let settings = match ask(&args.target.replicas()?, None)? {
        Ok(GroupSettings { refused: None, settings, .. }) => settings,
        Ok(GroupSettings { refused: Some(why), .. }) | Err(why) => return refused(&why),
    };
    let names: Vec<&str> = settings.iter().map(|setting| setting.name.as_str()).collect();
    let shown: Vec<&GroupSetting> =
        settings.iter().filter(|one| args.name.as_ref().is_none_or(|name| *name == one.name)).collect();
    if let (Some(name), true) = (&args.name, shown.is_empty()) {
        return Err(misuse(format!(
            "there is no setting `{name}` of a group: there are {}",
            names.join(", ")
        )));
    }
    for setting in shown {
        if args.json {
            say_json(setting)?;
        } else {
            say(&format!("{:<18} {:<10} {}", setting.name, setting.value, origin(setting)))?;
        }
    }
    Ok(CommandVerdict::Holds)
}

/// Where a value comes from.
fn origin(setting: &GroupSetting) -> String {
    match setting.set_at {
        0 => "since the founding".to_owned(),
        position => format!("set at position {}", grouped(position)),
    }
}

/// Changes a setting.
pub fn set(args: &SetArgs) -> CommandOutcome {
    let SetArgs { name, value, target } = args;
    let replicas = target.replicas()?;
    let memory_mb =
        (program::program().memory_field == Some(name.as_str())).then(|| value.parse().ok()).flatten();
    if let Some(warning) = memory_mb.and_then(more_than_there_is) {
        eprintln!("{}: warning: {name}: {warning}", program::name());
    }
    let change = SettingChange { name: name.clone(), value: value.clone() };
    let GroupSettings { replica, refused: why, settings } = match ask(&replicas, Some(change))? {
        Ok(answer) => answer,
        Err(why) => return refused(&why),
    };
    if let Some(why) = why {
        return refused(&format!("{why}. Nothing was changed"));
    }
    let Some(now) = settings.iter().find(|setting| setting.name == *name) else {
        return refused(&format!("replica {replica} lists no setting {name} afterwards"));
    };
    say(&format!(
        "{name} is {} from position {} on, at all replicas; replica {replica} has executed it",
        now.value,
        grouped(now.set_at)
    ))?;
    Ok(CommandVerdict::Holds)
}

fn refused(why: &str) -> CommandOutcome {
    say(why)?;
    Ok(CommandVerdict::Fails)
}

/// The answer of a replica that serves, or else of one that answers at all; or why there is none.
///
/// # Errors
/// When no replica answers.
fn ask(
    replicas: &[ReplicaHandle],
    change: Option<SettingChange>,
) -> anyhow::Result<Result<GroupSettings, String>> {
    let answering = here(replicas);
    let serving =
        answering.iter().find(|(_, status)| status.phase == ReplicaPhase::Serving && !is_witness(status));
    let Some((replica, _)) = serving.or(answering.first()) else {
        anyhow::bail!("no replica answers; `{} status` says more", program::name());
    };
    let is_change = change.is_some();
    match replica.ask(&AdminCommand::Settings { change }, PATIENCE) {
        Ok(answer) => Ok(Ok(answer)),
        Err(NoAnswer::Refused(why)) => Ok(Err(format!("replica {}: {why}", replica.number))),
        Err(why) if is_change => Ok(Err(format!(
            "replica {}: {why}. The change may still take effect: `{} group get` shows it then",
            replica.number,
            program::name()
        ))),
        Err(why) => Ok(Err(format!("replica {}: {why}", replica.number))),
    }
}

fn is_witness(status: &crosscheck::admin::Status) -> bool {
    status.verification.as_ref().is_some_and(|verification| verification.witness)
}
