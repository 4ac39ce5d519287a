//! Reads the file of a backup from its first to its last byte.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::contents::{Backup, BackupError};
use super::file::{BackupPart, BackupReader};
use crate::state::PartsScan;

/// Reads a whole backup and checks every byte of it, and that what it holds is a state as far as that shows without
/// the service. No more than a piece is in memory.
///
/// # Errors
/// What is wrong with the file.
pub fn verify(path: &Path) -> Result<Backup, BackupError> {
    read::<BackupError>(path, &mut |_| Ok(()))
}

/// Reads a whole backup; each piece goes to `take` once it is known to be as written.
pub(super) fn read<E: From<BackupError>>(
    path: &Path,
    take: &mut dyn FnMut(Bytes) -> Result<(), E>,
) -> Result<Backup, E> {
    let from = std::fs::File::open(path).map_err(BackupError::io(path))?;
    read_from(io::BufReader::with_capacity(1 << 20, from), path, take)
}

pub(super) fn read_from<E: From<BackupError>>(
    from: impl io::Read,
    path: &Path,
    take: &mut dyn FnMut(Bytes) -> Result<(), E>,
) -> Result<Backup, E> {
    let mut reader = BackupReader::open(from).map_err(|fault| fault.of(path))?;
    let header = reader.header().clone();
    let mut scan = PartsScan::default();
    loop {
        match reader.next().map_err(|fault| fault.of(path))? {
            BackupPart::Piece(piece) => {
                scan.put(piece.clone()).map_err(|why| reader.corrupt(&why).of(path))?;
                take(piece)?;
            }
            BackupPart::End(end, digest) => {
                let head = scan.finish().map_err(|why| reader.corrupt(&why).of(path))?;
                let found = (head.index, head.batch, head.order.time_us);
                if found != (end.index, end.batch, end.time_us) {
                    let why = "its end names another position than its state";
                    return Err(reader.corrupt(why).of(path).into());
                }
                return Ok(Backup { header, end, digest });
            }
        }
    }
}
