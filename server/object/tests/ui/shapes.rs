//! Shapes that cannot be protected are refused with a reason.
use object::{Store, critical};

#[critical]
struct Generic<T> {
    value: T,
}

#[critical]
struct Positional(u64);

#[critical]
enum Choice {
    One,
}

#[critical(encrypted)]
struct Wrong {
    value: u64,
}

#[critical]
struct Leaf {
    value: u64,
}

#[critical]
impl Leaf {
    async fn later(&self) {}
    fn boxed(self: Box<Self>) {}
}

#[critical(copy)]
struct CopiedWhole {
    leaves: Store<Leaf>,
}

fn main() {}
