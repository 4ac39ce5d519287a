//! A search for the causes of a service's nondeterminism: the same log is executed in several ways, whose results must
//! be equal.
//!
//! Replicas differ in all things that a service must not use: their clocks, the seeds of their hash maps, the addresses
//! of their memory, the threads that run their handlers, and their history. So the log is executed several times in
//! this process, each time with other values of these. All results that replicas compare must be equal.

mod play;
mod trace;

use std::fmt;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::Runs;
use crate::service::Service;
use play::Threads;

/// Requests of one batch.
const BATCH: usize = 16;
/// Ordered time from one batch to the next, in microseconds.
const STEP_US: u64 = 1_000_000;
/// Empty batches after the log, for requests that the log starts.
const REST: usize = 4;
/// Longer than the second in which the first execution began: a clock in whole seconds has advanced.
const PAUSE: Duration = Duration::from_millis(1_100);

/// One way to execute a log.
#[derive(Clone, Copy, Debug)]
struct Variant {
    /// Its name in messages.
    name: &'static str,
    workers: usize,
    runs: Runs,
    /// After each batch every object is replaced by its own packed bytes, as a repair does.
    repacks: bool,
    /// In the middle a new replica continues, as after a state transfer.
    restores: bool,
    /// It records the names of objects.
    names: bool,
}

const PLAIN: Variant = Variant {
    name: "one worker",
    workers: 1,
    runs: Runs::Once,
    repacks: false,
    restores: false,
    names: false,
};

/// Each is compared with [`PLAIN`].
const VARIANTS: [Variant; 5] = [
    Variant { name: "one worker, a second later", ..PLAIN },
    Variant { name: "three workers", workers: 3, ..PLAIN },
    Variant { name: "every handler run twice and undone once", runs: Runs::Twice, ..PLAIN },
    Variant { name: "every object packed and unpacked after each batch", repacks: true, ..PLAIN },
    Variant { name: "a state transfer in the middle", workers: 2, restores: true, ..PLAIN },
];

/// The first difference between two executions of one log: it would make replicas disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Index of the request in the log; of a request that the service started itself, of the one that led to it.
    pub request: usize,
    /// Whether the service started the request itself.
    pub is_started: bool,
    /// Its [`Service::kind`].
    pub kind: u16,
    /// How the execution differed from one with one worker.
    pub variant: &'static str,
    /// The result that differed.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { request, is_started, kind, variant, what } = self;
        let started = if *is_started { "a request started by " } else { "" };
        write!(f, "{started}request {request} (kind {kind}) is not deterministic: with {variant}, {what}")
    }
}

impl std::error::Error for Difference {}

/// Executes a log of encoded requests several times in this process, on a new service each time, and compares the
/// results that replicas would compare: replies, the checksums of touched objects, locks, and digests of the state.
///
/// Requests come in batches of 16, one second of ordered time after the other. One execution has three workers, one
/// runs every handler twice, one packs and unpacks all objects after each batch, and one has a state transfer in the
/// middle. Each has its own threads, addresses, hash seeds and wall-clock time. It takes a second and a little more.
/// A service with several behaviors acts as one after the other, so that objects of older versions are among them.
///
/// Dependence on values that are constant in one process is not found: the address of a static, the process id, files,
/// the environment.
///
/// # Errors
/// The first request that differs, and how.
/// # Panics
/// If bytes are no request of the service.
pub fn check_deterministic<S: Service>(
    make_service: impl Fn() -> S,
    requests: &[Vec<u8>],
) -> Result<(), Difference> {
    let requests: Vec<Bytes> = requests.iter().map(|request| Bytes::copy_from_slice(request)).collect();
    let mut threads = Threads::new(&requests);
    let plain = threads.play(&make_service, Variant { names: true, ..PLAIN });
    plain.first_corrupted()?;
    thread::sleep(PAUSE);
    VARIANTS
        .iter()
        .try_for_each(|variant| plain.compare(&threads.play(&make_service, *variant), variant.name))
}
