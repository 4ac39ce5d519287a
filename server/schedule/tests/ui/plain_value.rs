//! A lock guards a critical type; another type is an error where the lock is made.
use schedule::{DetMutex, DetRwLock};

fn main() {
    let _ = DetMutex::new(0, vec![1u64]);
    let _ = DetRwLock::new(1, 5u64);
}
