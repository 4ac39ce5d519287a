//! A lock guards a critical type, and says so where it is made.
use schedule::{DetMutex, DetRwLock};

fn main() {
    let _ = DetMutex::new(0, vec![1u64]);
    let _ = DetRwLock::new(1, 5u64);
}
