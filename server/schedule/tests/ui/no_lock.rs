//! A member of a service that is no lock: state there would be neither repaired nor transferred.

use schedule::Locks;

#[derive(Locks)]
struct Service {
    counter: u64,
}

fn main() {}
