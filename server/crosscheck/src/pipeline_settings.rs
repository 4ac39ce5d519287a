//! The settings of a group that are the pipeline's own, and not its service's: in the state of the order, so that they
//! go where that goes. An ordered request sets them ([`crate::ordered::Control::Set`]).

use std::collections::BTreeMap;

use order::HostSetting;

use crate::group_settings::GroupSetting;
use crate::settings::{Reads, Settings};

/// The setting of the pipeline itself: how requests that only read are answered. It decides no reply,
/// so it is no state of the service, but of the order ([`order::State::settings`]).
pub(crate) mod reads {
    /// Its name, as in the configuration.
    pub(crate) const NAME: &str = "reads";
    /// Its number in the state of the order.
    pub(crate) const NUMBER: u8 = 1;
    /// The names of its values; the index is the number.
    pub(crate) const VALUES: [&str; 2] = ["batch", "local"];
}

/// How requests that only read are answered, by the order: in batches, before anything else is set.
pub(crate) fn ordered_reads(settings: &BTreeMap<u8, HostSetting>) -> Reads {
    match settings.get(&reads::NUMBER) {
        Some(HostSetting { value: 1, .. }) => Reads::Local,
        _ => Reads::Batch,
    }
}

/// The settings of the pipeline itself that this group has, with the values in the state of its order.
pub(crate) fn of_pipeline(mode: &Settings, order: &BTreeMap<u8, HostSetting>) -> Vec<GroupSetting> {
    let reads = || GroupSetting {
        name: reads::NAME.to_owned(),
        value: reads::VALUES[ordered_reads(order) as usize].to_owned(),
        set_at: order.get(&reads::NUMBER).map_or(0, |setting| setting.set_at),
    };
    mode.group_reads_locally().then(reads).into_iter().collect()
}

/// The values of these settings in the configuration.
pub(crate) fn pipeline_at_founding(settings: &Settings) -> Option<(String, String)> {
    let value = reads::VALUES[settings.reads as usize];
    settings.group_reads_locally().then(|| (reads::NAME.to_owned(), value.to_owned()))
}

/// The number and the value, if this is a setting of the pipeline itself.
///
/// # Errors
/// Why the group cannot have it, or not this value.
pub(crate) fn pipeline_change(
    settings: &Settings,
    name: &str,
    value: &str,
) -> Option<Result<(u8, u8), String>> {
    (name == reads::NAME).then(|| {
        let known = reads::VALUES.iter().position(|known| *known == value);
        match known {
            _ if !settings.mode.verified && !settings.mode.compares_reads() => Err(format!(
                "{name} is a setting of modes with X and G, or with V, and this group has mode {}: every request takes \
                    its place in the order",
                settings.mode
            )),
            _ if !settings.group_reads_locally() => Err(format!(
                "{name}: two replicas cannot read without a batch, because neither knows alone how far the group is"
            )),
            Some(known) => Ok((reads::NUMBER, known as u8)),
            None => Err(format!("{name}: `{value}` is none of {}", reads::VALUES.join(", "))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_take_a_batch_until_something_else_is_set_and_values_have_their_names() {
        let of = |value| BTreeMap::from([(reads::NUMBER, HostSetting { value, set_at: 7 })]);
        assert_eq!(ordered_reads(&BTreeMap::new()), Reads::Batch);
        assert_eq!([0, 1].map(|value| ordered_reads(&of(value))), [Reads::Batch, Reads::Local]);
        assert_eq!(
            [Reads::Batch, Reads::Local].map(|reads| reads::VALUES[reads as usize]),
            ["batch", "local"]
        );
    }
}
