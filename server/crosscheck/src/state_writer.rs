//! Writes a state to the disk while it is made or received: a thread of its own takes the pieces as they come, so that
//! neither the order thread nor the memory has to hold them until the disk has them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::Bytes;

use crate::hooks::{self, Hooks};
use crate::snapshot::{SnapshotError, Unfinished};

/// Takes the pieces of a state, in order. Dropped before [`StateSink::end`], it gives the state up.
pub trait StateSink: Send {
    /// The next piece.
    fn put(&mut self, piece: Bytes);

    /// No piece follows: this is the state after entry `index` of the log.
    fn end(self: Box<Self>, index: u64);

    /// Bytes that were taken and are not written yet.
    fn unwritten(&self) -> u64;
}

/// How the write of a state ended.
#[derive(Debug)]
pub enum WriteEnd {
    /// The state after this entry of the log is durable, and a restart begins with it.
    Kept(u64),
    /// Its sink was dropped.
    GivenUp,
    /// The disk refused. The state before is still there.
    Failed(SnapshotError),
}

enum Order {
    Put(Bytes),
    End(u64),
}

/// The thread that writes one state.
pub(crate) struct StateWriter {
    orders: Sender<Order>,
    unwritten: Arc<AtomicU64>,
}

impl StateWriter {
    /// Begins to write into `directory`; `done` gets the result.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn begin(directory: &Path, done: impl FnOnce(WriteEnd) + Send + 'static) -> io::Result<Self> {
        let (orders, ordered) = channel();
        let unwritten = Arc::<AtomicU64>::default();
        let (directory, written) = (directory.to_owned(), unwritten.clone());
        let write = move || done(write_all(&directory, &ordered, &written).unwrap_or_else(WriteEnd::Failed));
        thread::Builder::new().name("snapshot".into()).spawn(write)?;
        Ok(StateWriter { orders, unwritten })
    }
}

impl StateSink for StateWriter {
    fn put(&mut self, piece: Bytes) {
        self.unwritten.fetch_add(piece.len() as u64, Ordering::Relaxed);
        // After an error the thread has ended, and `done` has got it.
        let _ = self.orders.send(Order::Put(piece));
    }

    fn end(self: Box<Self>, index: u64) {
        let _ = self.orders.send(Order::End(index));
    }

    fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }
}

fn write_all(
    directory: &Path,
    ordered: &Receiver<Order>,
    unwritten: &AtomicU64,
) -> Result<WriteEnd, SnapshotError> {
    let disk = order::System;
    let mut unfinished = Unfinished::begin(&disk, directory)?;
    loop {
        match ordered.recv() {
            Ok(Order::Put(piece)) => {
                unfinished.append(&disk, &piece)?;
                unwritten.fetch_sub(piece.len() as u64, Ordering::Relaxed);
            }
            Ok(Order::End(index)) => {
                thread::sleep(<hooks::Active as Hooks>::sync_pause(directory));
                unfinished.finish(&disk)?;
                return Ok(WriteEnd::Kept(index));
            }
            Err(_) => {
                unfinished.give_up(&disk);
                return Ok(WriteEnd::GivenUp);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot;

    /// A writer that has begun, and how it ends.
    fn begin(directory: &Path) -> (Box<StateWriter>, Receiver<WriteEnd>) {
        let (sender, ended) = channel();
        let done = move |end| sender.send(end).unwrap();
        (Box::new(StateWriter::begin(directory, done).unwrap()), ended)
    }

    #[test]
    fn the_pieces_are_on_disk_in_their_order_and_none_is_left_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, ended) = begin(directory.path());
        let unwritten = writer.unwritten.clone();
        for number in 0..100u8 {
            writer.put(vec![number; 100_000].into());
        }
        writer.end(7);
        assert!(matches!(ended.recv().unwrap(), WriteEnd::Kept(7)));
        assert_eq!(unwritten.load(Ordering::Relaxed), 0);
        let state = snapshot::read(&order::System, directory.path()).unwrap().unwrap();
        assert!(
            state.chunks(100_000).enumerate().all(|(number, piece)| piece == vec![number as u8; 100_000])
        );
        assert_eq!(state.len(), 10_000_000);
    }

    #[test]
    fn a_state_that_is_given_up_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, ended) = begin(directory.path());
        writer.put(Bytes::from_static(b"first"));
        writer.end(1);
        assert!(matches!(ended.recv().unwrap(), WriteEnd::Kept(1)));
        let (mut writer, ended) = begin(directory.path());
        writer.put(Bytes::from_static(b"second"));
        drop(writer);
        assert!(matches!(ended.recv().unwrap(), WriteEnd::GivenUp));
        let state = snapshot::read(&order::System, directory.path()).unwrap().unwrap();
        assert_eq!(state, &b"first"[..]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_disk_that_refuses_is_reported_before_the_state_ends() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, ended) = begin(&directory.path().join("absent"));
        writer.put(Bytes::from_static(b"state"));
        assert!(matches!(ended.recv().unwrap(), WriteEnd::Failed(_)));
        writer.put(Bytes::from_static(b"state"));
        writer.end(1);
    }
}
