//! What an experiment leaves out of the vote of a whole process, to measure the errors that a later comparison would
//! have let through.

use std::sync::atomic::{AtomicBool, Ordering};

static REPLIES_ARE_FREE: AtomicBool = AtomicBool::new(false);

/// From now on a reply of a replica that starts in this process leaves at once, and is compared afterwards.
pub fn without_reply_gate() {
    REPLIES_ARE_FREE.store(true, Ordering::Relaxed);
}

/// The voter's configuration.
pub(crate) fn on_voter(config: vote::Config) -> vote::Config {
    let reply_gate = !REPLIES_ARE_FREE.load(Ordering::Relaxed);
    config.with_protections(vote::Protections { reply_gate, ..vote::Protections::ALL })
}
