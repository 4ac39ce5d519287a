//! The settings that a group has and an operator changes while it serves: the memory limit and the longest item. Every
//! shard has them, so that a request finds them behind the lock that it holds anyway.

use crosscheck::object::{RegionId, genesis};
use crosscheck::schedule::{DetMutex, Retry};
use crosscheck::{Cx, GroupSetting, SettingsReply};

use crate::command::{Command, SettingChange};
use crate::config::{Config, ConfigError};
use crate::limits::{ITEM_BYTES_MAX, ITEM_BYTES_MIN, MEMORY_MB_MAX, SHARDS_MAX};
use crate::service::Memcached;
use crate::store::{Limits, Shard};

/// The memory limit, in MiB.
pub const MEMORY: &str = "memory_limit_mb";
/// The longest item, in bytes.
pub const ITEM: &str = "item_size_max";

/// The shards of an empty cache.
pub(crate) fn shards_of(config: Config, regions: std::ops::Range<RegionId>) -> Vec<DetMutex<Shard>> {
    let limits = Limits::of_founding(config.shard_memory(), config.item_bytes as u64);
    regions.map(|region_id| DetMutex::new(region_id, genesis(region_id, || Shard::new(limits)))).collect()
}

/// The request that lists the settings, or changes one first.
///
/// # Errors
/// Why there is no such request.
pub(crate) fn request(change: Option<(&str, &str)>) -> Result<Command, String> {
    let Some((name, value)) = change else { return Ok(Command::Settings { change: None }) };
    let number = |least: usize, most: usize, unit: &str| -> Result<u32, String> {
        let refused = || format!("{name}: `{value}` is no whole number from {least} to {most} {unit}");
        let number = value.parse::<u32>().map_err(|_| refused())?;
        let is_within = (least as u64..=most as u64).contains(&u64::from(number));
        if is_within { Ok(number) } else { Err(refused()) }
    };
    let change = match name {
        MEMORY => SettingChange::Memory { megabytes: number(1, MEMORY_MB_MAX as usize, "MiB")? },
        ITEM => SettingChange::Item { bytes: number(ITEM_BYTES_MIN, ITEM_BYTES_MAX, "bytes")? },
        _ => return Err(format!("there is no setting `{name}` of a group: there are {MEMORY} and {ITEM}")),
    };
    Ok(Command::Settings { change: Some(change) })
}

/// The configuration of a group that was founded with these settings.
///
/// # Errors
/// Why there can be no such group.
pub(crate) fn founding(settings: &[(String, String)], default: Config) -> Result<Config, String> {
    let number = |name: &str, default: u64| match settings.iter().find(|(one, _)| one == name) {
        Some((_, value)) => value.parse::<u64>().map_err(|_| format!("{name} `{value}` is no number")),
        None => Ok(default),
    };
    let memory = number(MEMORY, default.memory >> 20)?.saturating_mul(1 << 20);
    let item = number(ITEM, default.item_bytes as u64)?;
    let config = Config::new(memory, usize::try_from(item).unwrap_or(usize::MAX));
    config.check().map_err(|error: ConfigError| error.to_string())?;
    Ok(config)
}

/// Whether a service can have so many shards.
pub(crate) fn is_number_of_shards(count: u32) -> bool {
    (1..=SHARDS_MAX).contains(&count)
}

impl Memcached {
    /// Changes a setting, if there is one to change, and lists all.
    pub(crate) fn settings(
        &self,
        cx: &Cx<'_, Self>,
        change: Option<SettingChange>,
        reply: &mut Vec<u8>,
    ) -> Result<(), Retry> {
        let refused = match change {
            Some(SettingChange::Memory { megabytes }) => {
                self.limit_memory(cx, megabytes)?.err().map(|least| {
                    format!(
                        "{MEMORY} {megabytes} is too small for this group: each of its {} shards needs room for the \
                            longest items. Use at least {least} MiB, or set a smaller {ITEM} first",
                        self.config().shards
                    )
                })
            }
            Some(SettingChange::Item { bytes }) => self.limit_items(cx, bytes)?,
            None => None,
        };
        let limits = cx.lock(&self.shards()[0])?.limits();
        let of = |name: &str, value: u64, set_at| GroupSetting {
            name: name.into(),
            value: value.to_string(),
            set_at,
        };
        let memory = limits.memory.saturating_mul(self.shards().len() as u64) >> 20;
        let settings =
            vec![of(MEMORY, memory, limits.memory_set_at), of(ITEM, limits.item_bytes, limits.item_set_at)];
        SettingsReply { refused, settings }.write(reply);
        Ok(())
    }

    /// Another memory limit, in MiB. The inner error is the least one that is possible.
    pub(crate) fn limit_memory(&self, cx: &Cx<'_, Self>, megabytes: u32) -> Result<Result<(), u64>, Retry> {
        let item_bytes = cx.lock(&self.shards()[0])?.limits().item_bytes;
        let least = self.config().least_memory(item_bytes).div_ceil(1 << 20);
        if u64::from(megabytes) < least {
            return Ok(Err(least));
        }
        let memory = (u64::from(megabytes) << 20) / self.shards().len() as u64;
        self.set_limits(cx, |limits| (limits.memory, limits.memory_set_at) = (memory, cx.entry_index()))?;
        Ok(Ok(()))
    }

    /// Another longest item. Returns why it cannot have that.
    fn limit_items(&self, cx: &Cx<'_, Self>, bytes: u32) -> Result<Option<String>, Retry> {
        let memory = cx.lock(&self.shards()[0])?.limits().memory.saturating_mul(self.shards().len() as u64);
        let least = self.config().least_memory(u64::from(bytes));
        if memory < least {
            let (least, memory) = (least.div_ceil(1 << 20), memory >> 20);
            return Ok(Some(format!(
                "{ITEM} {bytes} is too large for this group: its {} shards need at least {least} MiB for such items, \
                    and {MEMORY} is {memory}. Set that first, or use a smaller {ITEM}",
                self.shards().len()
            )));
        }
        let bytes = u64::from(bytes);
        self.set_limits(cx, |limits| (limits.item_bytes, limits.item_set_at) = (bytes, cx.entry_index()))?;
        Ok(None)
    }

    fn set_limits(&self, cx: &Cx<'_, Self>, change: impl Fn(&mut Limits)) -> Result<(), Retry> {
        for (region_id, shard) in (0..).zip(self.shards()) {
            let mut shard = cx.lock(shard)?;
            let mut limits = shard.limits();
            change(&mut limits);
            shard.set_limits(limits);
            self.stats().note_shard(region_id, shard.count(), shard.bytes(), limits);
        }
        Ok(())
    }
}
