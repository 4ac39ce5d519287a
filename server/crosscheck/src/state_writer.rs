//! Writes a state to the disk while it is made or received: a thread of its own takes the pieces as they come, so that
//! neither the order thread nor the memory has to hold them until the disk has them.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::hooks::{self, Hooks};
use crate::snapshot::{Extent, SnapshotError, Unfinished};

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

/// The thread that has begun to write last: the next one begins when it has ended.
#[derive(Debug, Default)]
pub(crate) struct Writes(Mutex<Option<JoinHandle<()>>>);

/// The thread that writes one state.
pub(crate) struct StateWriter {
    orders: Sender<Order>,
    unwritten: Arc<AtomicU64>,
}

impl StateWriter {
    /// Begins to write into `directory`, when those of `writes` have ended; `done` gets the result.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn begin(
        writes: &Writes,
        directory: &Path,
        extent: Extent,
        done: impl FnOnce(WriteEnd) + Send + 'static,
    ) -> io::Result<Self> {
        let mut last = writes.0.lock();
        let before = last.take();
        let (orders, ordered) = channel();
        let unwritten = Arc::<AtomicU64>::default();
        let (directory, written) = (directory.to_owned(), unwritten.clone());
        let write = move || {
            // Its panic would be its own.
            before.into_iter().for_each(|before| drop(before.join()));
            done(write_all((&directory, extent), &ordered, &written).unwrap_or_else(WriteEnd::Failed));
        };
        *last = Some(thread::Builder::new().name("snapshot".into()).spawn(write)?);
        drop(last);
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
    (directory, extent): (&Path, Extent),
    ordered: &Receiver<Order>,
    unwritten: &AtomicU64,
) -> Result<WriteEnd, SnapshotError> {
    let disk = order::System;
    let mut unfinished = Unfinished::begin(&disk, directory, extent)?;
    loop {
        match ordered.recv() {
            Ok(Order::Put(piece)) => {
                unfinished.append(&disk, &piece)?;
                unwritten.fetch_sub(piece.len() as u64, Ordering::Relaxed);
            }
            Ok(Order::End(index)) => {
                if let Some(slow) = <hooks::Active as Hooks>::slow_disk(directory) {
                    thread::sleep(slow.sync_pause);
                }
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
        begin_after(&Writes::default(), directory, Extent::Whole)
    }

    fn begin_after(
        writes: &Writes,
        directory: &Path,
        extent: Extent,
    ) -> (Box<StateWriter>, Receiver<WriteEnd>) {
        let (sender, ended) = channel();
        let done = move |end| sender.send(end).unwrap();
        (Box::new(StateWriter::begin(writes, directory, extent, done).unwrap()), ended)
    }

    /// The bytes of each file on disk.
    fn read(directory: &Path) -> Vec<Vec<u8>> {
        let saved = snapshot::read(&order::System, directory).unwrap().unwrap_or_default();
        saved.files.iter().map(|pieces| pieces.concat()).collect()
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
        let state = read(directory.path()).remove(0);
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
        assert_eq!(read(directory.path()), [b"first"]);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// All have the same file in turn.
    #[test]
    fn a_write_begins_when_the_one_before_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let writes = Writes::default();
        let begin = |extent| begin_after(&writes, directory.path(), extent);
        let (mut first, ended) = begin(Extent::Whole);
        let (mut given_up, _given_up_ended) = begin(Extent::Changes);
        let (mut last, last_ended) = begin(Extent::Changes);
        last.put(Bytes::from_static(b"last"));
        last.end(3);
        given_up.put(Bytes::from_static(b"given up"));
        drop(given_up);
        first.put(Bytes::from_static(b"first"));
        first.end(1);
        assert!(matches!(ended.recv().unwrap(), WriteEnd::Kept(1)));
        assert!(matches!(last_ended.recv().unwrap(), WriteEnd::Kept(3)));
        assert_eq!(read(directory.path()), [&b"first"[..], b"last"]);
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
