//! Bytes and packets on the loopback device: the whole traffic of clients and replicas on one machine.

use serde::{Deserialize, Serialize};

/// Traffic of the loopback device. That of other programs counts too: measure when they are idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Including all headers.
    pub bytes: u64,
    /// As the device counts them: with segmentation offload, up to 64 KiB each.
    pub packets: u64,
}

impl Wire {
    /// The counters now; none where there is no such device.
    pub fn now() -> Option<Wire> {
        parse(&std::fs::read_to_string("/proc/net/dev").ok()?)
    }

    /// The traffic since `before`.
    pub fn since(self, before: Wire) -> Wire {
        Wire {
            bytes: self.bytes.saturating_sub(before.bytes),
            packets: self.packets.saturating_sub(before.packets),
        }
    }
}

fn parse(devices: &str) -> Option<Wire> {
    let counters = devices.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    let mut counters = counters.split_ascii_whitespace().map(str::parse);
    Some(Wire { bytes: counters.next()?.ok()?, packets: counters.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_line_is_found() {
        let text =
            "Inter-| Receive\n face |bytes packets\n  eth0: 9 9 0\n    lo: 4122 675 0 0 0 0 0 0 4122 675 0\n";
        assert_eq!(parse(text), Some(Wire { bytes: 4122, packets: 675 }));
        assert_eq!(parse("eth0: 1 1"), None);
    }
}
