//! A group that begins with a backup: each replica loads it before the group is founded.

use std::path::Path;

use order::{BeginningState, System};

use super::check::{read, verify};
use super::contents::{Backup, BackupError};
use crate::admin::BackupGroup;
use crate::outcome::ServeError;
use crate::peers::hello::SERVICE;
use crate::service::Service;
use crate::settings::{Durability, Settings};
use crate::snapshot::{Extent, SavedSize, Unfinished};
use crate::state::{LoadedState, LoadingState, SavedBase};
use crate::{message, peers, shapes};

/// The setting whose value must not differ: what is in a packed object depends on it.
const MODE: &str = "mode";
/// The settings that may differ, and of which nothing has to be said.
const FREE: [&str; 3] = ["durability", "build", shapes::REQUESTS];

/// The position of a loaded backup, if there is one, and what the founders of the group compare.
pub(crate) type LoadedBackup<S> = (Option<SavedBase<S>>, BeginningState);

/// Loads the backup that these settings name into a service that no other thread can reach; with logs on disk, it is
/// written there as the replica's last checkpoint, too. Nothing is loaded before all of the file was checked.
///
/// # Errors
/// When the file cannot be used, or the disk cannot be written.
pub(crate) fn load<S: Service>(service: &mut S, settings: &Settings) -> Result<LoadedBackup<S>, ServeError> {
    let Some(path) = &settings.restore else { return Ok((None, BeginningState::default())) };
    let backup = verify(path)?;
    let unfit = |why| BackupError::Unfit { path: path.to_owned(), why };
    let differing = compare(&backup.header.group, &peers::in_common(settings)).map_err(unfit)?;
    if !differing.is_empty() {
        let differing = differing.join("; ");
        message(format_args!(
            "the backup was taken with other settings, and those of here count: {differing}"
        ));
    }
    let mut kept = match &settings.durability {
        Durability::Disk(directory) => Some(Unfinished::begin(&System, directory, Extent::Whole)?),
        Durability::Memory => None,
    };
    let mut loading = LoadingState::new(service);
    let loaded = read::<ServeError>(path, &mut |piece| {
        kept.as_mut().map_or(Ok(()), |kept| kept.append(&System, &piece))?;
        Ok(loading.put(service, piece).map_err(unfit)?)
    })?;
    let LoadedState { base, proof } = loading.finish().map_err(unfit)?;
    if loaded != backup || proof.is_some() {
        return Err(unfit("it changed while it was read".to_owned()).into());
    }
    kept.map_or(Ok(()), |kept| kept.finish(&System))?;
    message(format_args!("{}", told(&backup, path)));
    let size = SavedSize { state: backup.end.bytes, ..SavedSize::default() };
    let (head, _) = &base;
    let begins_with = BeginningState {
        digest: digest_of(&backup),
        index: head.index,
        incarnation: head.order.last_incarnation(),
    };
    Ok((Some((base, size)), begins_with))
}

fn told(backup: &Backup, path: &Path) -> String {
    format!(
        "loaded the backup {} ({}): the state after entry {} of the log of group `{}`. The group begins with it once \
            all replicas have loaded the same backup; to join a group, this replica takes the state of that",
        path.display(),
        backup.name(),
        backup.end.index,
        backup.header.group.cluster
    )
}

/// What stands for the backup where the founders of a group compare what they begin with; 0 is an empty group.
fn digest_of(backup: &Backup) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = backup.digest;
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
}

/// The settings that differ and may.
///
/// # Errors
/// The one that must not, and the remedy.
fn compare(group: &BackupGroup, here: &[(String, String)]) -> Result<Vec<String>, String> {
    let mut differing = Vec::new();
    for (name, value) in here {
        let there = group.settings.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str());
        if there == Some(value) || FREE.contains(&name.as_str()) {
            continue;
        }
        if there.is_none() && shapes::version_of(name).is_some() {
            // The program reads the versions before this one too.
            continue;
        }
        let there = there.unwrap_or("not known");
        let differs = format!("{name} is {there} in the backup and {value} here");
        // The service's name, without its version.
        let is_other = |value: &str| value.split(' ').next() != there.split(' ').next();
        match name.as_str() {
            MODE => return Err(format!("{differs}; start the replicas in mode {there}")),
            SERVICE if is_other(value) => return Err(format!("{differs}; use the program of that service")),
            name if name.starts_with(shapes::CLASS)
                || name == shapes::FURTHER
                || shapes::version_of(name).is_some() =>
            {
                let release = &group.release;
                return Err(format!(
                    "{differs}, so the program cannot read its objects; use the one that the backup was taken with \
                        (release {release})"
                ));
            }
            _ => differing.push(differs),
        }
    }
    Ok(differing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn another_service_mode_or_class_is_refused_and_other_settings_are_told() {
        let usual = [
            ("mode", "RDGX"),
            ("durability", "disk"),
            ("service", "bank 0.1.0"),
            ("witness", "false"),
            ("class Item", "3 members (00)"),
            ("build", "1"),
        ];
        let group = BackupGroup {
            cluster: "one".into(),
            replicas: 3,
            release: "0.1.0".into(),
            settings: settings(&usual),
        };
        let with = |name: &str, value: &'static str| {
            let mut here = usual;
            here.iter_mut().filter(|(one, _)| *one == name).for_each(|(_, one)| *one = value);
            compare(&group, &settings(&here))
        };
        assert_eq!(with("mode", "RDGX"), Ok(vec![]));
        for (name, value) in [("durability", "memory"), ("build", "2")] {
            assert_eq!(with(name, value), Ok(vec![]));
        }
        let refused = |name: &str, value| with(name, value).unwrap_err();
        assert!(refused("mode", "R0GV").contains("start the replicas in mode RDGX"));
        assert!(refused("service", "shop 0.1.0").contains("use the program of that service"));
        assert!(refused("class Item", "4 members (00)").contains("release 0.1.0"));
        let versioned =
            |value: &str| compare(&group, &[("classes of version 2".to_owned(), value.to_owned())]);
        assert_eq!(versioned("(00) Item"), Ok(vec![]), "the backup is of a release before that version");
        let told = with("service", "bank 0.2.0").unwrap();
        assert_eq!(told, ["service is bank 0.1.0 in the backup and bank 0.2.0 here"]);
        let told = with("witness", "true").unwrap();
        assert_eq!(told, ["witness is false in the backup and true here"]);
    }
}
