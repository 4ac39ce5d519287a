//! `durability = "memory"`: the log exists as long as the process, so a restarted replica joins under a new id.

use crate::log::{LogError, LogStore, Record};

/// Keeps nothing beyond what the engine itself holds in memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryLog;

impl LogStore for MemoryLog {
    fn append(&mut self, _record: &Record) -> Result<(), LogError> {
        Ok(())
    }

    fn needs_sync(&self) -> bool {
        false
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn sync(&mut self) -> Result<(), LogError> {
        Ok(())
    }

    fn release(&mut self, _index: u64) -> Result<(), LogError> {
        Ok(())
    }

    fn wipe(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}
