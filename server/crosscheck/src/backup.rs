//! Backups: the state of a group at one position of the order, in a file, and a group that begins with one.
//!
//! Whoever takes a backup is a receiver of the state ([`crate::transfer`]), as a replica is that joins, through admin
//! endpoints: it takes each piece from one replica, on the digest that f+1 of them have announced. There is no other
//! packer and no other format of the state; the file puts the pieces between checksums (`file.rs`). A group that begins
//! with a backup loads them as a replica does that joins (`load.rs`).

mod check;
pub(crate) mod contents;
mod file;
mod load;
mod take;
#[cfg(test)]
mod tests;

pub use check::verify;
pub use contents::{Backup, BackupEnd, BackupError, BackupHeader};
pub(crate) use load::load;
pub use take::{TakeProgress, Taking, take};
