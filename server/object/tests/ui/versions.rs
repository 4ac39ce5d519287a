//! What is wrong in the history of a type is refused with the remedy.
use object::{Store, critical};

#[critical(version = 2)]
struct TooNew {
    id: u64,
    #[since(3)]
    weight: u32,
}

#[critical]
struct WithoutVersion {
    id: u64,
    #[since(2)]
    weight: u32,
}

#[critical(version = 2)]
struct Unchanged {
    id: u64,
}

#[critical(version = 3)]
struct ChangedBefore {
    id: u64,
    #[since(2)]
    weight: u32,
}

#[critical(version = 2)]
struct FirstOfAll {
    id: u64,
    #[since(1)]
    weight: u32,
    #[since(2)]
    length: u32,
}

#[critical(version = 3)]
struct NeverThere {
    #[since(3)]
    #[until(2)]
    id: u64,
}

#[critical(version = 2)]
struct NotTracked {
    #[uncritical]
    #[since(2)]
    shown: u64,
}

#[critical(version = 2)]
struct HotCame {
    #[hot]
    #[since(2)]
    seen: u32,
}

#[critical(version = 2)]
struct Misspelled {
    #[since(2, value = 7)]
    seen: u32,
}

#[critical(since = 1)]
struct NewAtFirst {
    id: u64,
}

#[critical]
struct Leaf {
    value: u64,
}

#[critical]
impl Leaf {
    fn new() -> Self {
        Self { value: 0 }
    }
}

#[critical(version = 2)]
struct Children {
    #[until(2)]
    leaves: Store<Leaf>,
    #[since(2, default = Leaf::new())]
    leaf: Leaf,
}

fn main() {}
