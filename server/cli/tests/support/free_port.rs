//! A port for a server that a test starts beside ours.

use std::sync::{Mutex, PoisonError};

use node::cluster::ports;

/// A port on loopback that was free a moment ago, and another one each time.
pub fn free_port() -> u16 {
    static TAKEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let port = ports::pick(1, &taken).expect("a free port")[0];
    taken.push(port);
    port
}
