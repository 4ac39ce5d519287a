//! Lets a simulation decide, instead of the operating system, which of several workers runs: one seed then decides
//! every interleaving, and the code that runs is the shipped one.

/// Called at every point where another worker might overtake this one.
pub trait YieldPoint: Send + Sync {
    /// Worker `worker` can run, or, if it `waits`, only after others have; returns when it may run.
    fn pause(&self, worker: usize, waits: bool);
}
