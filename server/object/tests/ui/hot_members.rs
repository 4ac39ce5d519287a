//! Hot members fit into one word of 64 bits, and have a checksum.

use object::critical;

#[critical]
pub struct Page {
    #[hot]
    views: u32,
    #[hot]
    edits: u32,
    #[hot]
    seen_s: u32,
    #[hot]
    #[uncritical]
    shown: u32,
}

fn main() {}
