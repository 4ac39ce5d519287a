//! The number of a replica: an index in arrays and on the wire, which starts at 0, and a name for people, which starts
//! at 1. One type knows the difference, so that no message has to add one.

use std::fmt;

/// A replica of a group, by its index from 0. Its `Display` counts from 1, as configuration files and operators do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u8);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&(u16::from(self.0) + 1), f)
    }
}

#[cfg(test)]
mod tests {
    use super::ReplicaId;

    #[test]
    fn people_count_from_one() {
        assert_eq!(format!("replica {}", ReplicaId(0)), "replica 1");
        assert_eq!(format!("{:>4}", ReplicaId(255)), " 256", "no number is too large, and widths hold");
    }
}
