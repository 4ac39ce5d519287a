//! The settings of a group: values that its state has, and that an operator changes at one position of the order.
//!
//! A configuration file has a value of each, too. It counts when a group is founded, and never again: a replica that
//! joins a group, or that has its data, goes by the state. The request that changes a value is one of the service, so
//! what it leaves is in protected objects, and is compared, repaired, transferred and rolled back as all else.

use serde::{Deserialize, Serialize};

/// Longest name of a setting, in bytes.
pub const NAME_BYTES: usize = 64;
/// Longest value of a setting, in bytes.
pub const VALUE_BYTES: usize = 64;
/// What stands before the name of a setting in a hello, where it is compared before a group is founded only.
pub(crate) const AT_FOUNDING: &str = "founding ";

/// A setting, as the group has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSetting {
    /// Its name, as in the configuration.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The batch whose request has set it ([`schedule::Cx::entry_index`]); 0 for the value of the founding.
    pub set_at: u64,
}

/// What the handler of a service's settings request replies ([`crate::Service::settings_request`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingsReply {
    /// Why the value was not changed, and what to do; none if it was, or if only a list was asked for.
    pub refused: Option<String>,
    /// All settings, after the request.
    pub settings: Vec<GroupSetting>,
}

impl SettingsReply {
    /// Appends the bytes of the reply.
    pub fn write(&self, reply: &mut Vec<u8>) {
        // Writing to a vector cannot fail, and a plain struct always has a text.
        let _ = serde_json::to_writer(reply, self);
    }

    /// Reads what [`SettingsReply::write`] wrote; none from any other bytes.
    pub fn read(reply: &[u8]) -> Option<SettingsReply> {
        serde_json::from_slice(reply).ok()
    }
}

/// Where the group's values are others than those of a replica's file: a line for each.
pub(crate) fn differing(file: &[(String, String)], group: &[GroupSetting]) -> Vec<String> {
    let differs = |(name, value): &(String, String)| {
        let of_group = group.iter().find(|setting| setting.name == *name && setting.value != *value)?;
        let since = match of_group.set_at {
            0 => "since its founding".to_owned(),
            position => format!("set at position {position}"),
        };
        let there = &of_group.value;
        Some(format!(
            "{name} is {value} in this replica's configuration, and {there} in the group ({since}): the group's value \
                counts. `group set {name} {value}` changes that of the group"
        ))
    };
    file.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(value: &str, set_at: u64) -> GroupSetting {
        GroupSetting { name: "memory_limit_mb".into(), value: value.into(), set_at }
    }

    #[test]
    fn a_reply_is_read_as_written_and_nothing_else_is_one() {
        for refused in [None, Some("too small".to_owned())] {
            let (reply, mut bytes) =
                (SettingsReply { refused, settings: vec![setting("64", 7)] }, Vec::new());
            reply.write(&mut bytes);
            assert_eq!(SettingsReply::read(&bytes), Some(reply));
            assert!((0..bytes.len()).all(|end| SettingsReply::read(&bytes[..end]).is_none()));
        }
    }

    #[test]
    fn a_file_with_another_value_is_named_with_both() {
        let file = [("memory_limit_mb".to_owned(), "64".to_owned()), ("other".to_owned(), "1".to_owned())];
        assert!(differing(&file, &[setting("64", 7)]).is_empty());
        let lines = differing(&file, &[setting("128", 7)]);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("is 64 in") && lines[0].contains("128 in the group (set at position 7)"));
        assert!(differing(&file, &[setting("128", 0)])[0].contains("since its founding"));
    }
}
