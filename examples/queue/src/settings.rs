//! What an operator sets for the group while it serves: `queue group set draining true`.

use crosscheck::object::Summed;
use crosscheck::{GroupSetting, SettingsReply};

const DRAINING: &str = "draining";
const REGION_MB: &str = "region_limit_mb";
/// Memory of the jobs of a region, unless an operator sets another limit, in MiB.
const DEFAULT_REGION_MB: u32 = 2_048;

/// A setting with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub enum Setting {
    /// Whether jobs are refused.
    Draining(bool),
    /// Memory that the jobs of one region may take, in MiB.
    RegionMb(u32),
}

/// The settings, as each region has them; each with the batch that has set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Summed)]
pub struct QueueSettings {
    draining: (bool, u64),
    region_mb: (u32, u64),
}

impl QueueSettings {
    /// Those of a new group.
    pub const fn new() -> Self {
        QueueSettings { draining: (false, 0), region_mb: (DEFAULT_REGION_MB, 0) }
    }

    /// Whether jobs are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.0
    }

    /// Memory that the jobs of one region may take.
    pub fn region_bytes(&self) -> u64 {
        u64::from(self.region_mb.0) << 20
    }

    /// Sets one, in this batch.
    pub fn set(&mut self, setting: Setting, batch: u64) {
        match setting {
            Setting::Draining(value) => self.draining = (value, batch),
            Setting::RegionMb(value) => self.region_mb = (value, batch),
        }
    }

    /// Appends the list of all to the reply to an operator.
    pub fn list(&self, reply: &mut Vec<u8>) {
        let setting =
            |name: &str, value: String, set_at| GroupSetting { name: name.to_owned(), value, set_at };
        let settings = vec![
            setting(DRAINING, self.draining.0.to_string(), self.draining.1),
            setting(REGION_MB, self.region_mb.0.to_string(), self.region_mb.1),
        ];
        SettingsReply { refused: None, settings }.write(reply);
    }
}

impl Setting {
    /// The setting of this name with this value.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(name: &str, value: &str) -> Result<Self, String> {
        match name {
            DRAINING => value
                .parse()
                .map(Setting::Draining)
                .map_err(|_| format!("{name}: `{value}` is neither `true` (no job can be put) nor `false`")),
            REGION_MB => value
                .parse()
                .map(Setting::RegionMb)
                .map_err(|_| format!("{name}: `{value}` is no number of MiB, up to {}", u32::MAX)),
            _ => {
                Err(format!("there is no setting `{name}` of a group: there are {DRAINING} and {REGION_MB}"))
            }
        }
    }
}
