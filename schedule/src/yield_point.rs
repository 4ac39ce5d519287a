//! Who of several workers goes on, where a simulation says so instead of the operating system: one seed then
//! decides every interleaving, and the code that runs is the shipped one.

/// Told at every point where another worker might overtake this one.
pub trait YieldPoint: Send + Sync {
    /// Worker `worker` could go on, or, if it `waits`, cannot before others have; returns when it is its move.
    fn pause(&self, worker: usize, waits: bool);
}
