//! What a build of the command carries. All else is in the program (`main.rs`).

/// Whether this build has the fault injector, and with it the commands that need it.
pub const HAS_INJECTOR: bool = cfg!(feature = "inject");

pub use crosscheck::WITH_INJECTOR;

// Cargo gives one `crosscheck` to all crates that it builds together. Beside `sim`, which needs the injector, this one
// would have it too, and its `serve` would corrupt itself on request.
const _: () = assert!(
    crosscheck::HAS_INJECTOR == HAS_INJECTOR,
    "this command would carry a fault injector that it was not asked to have: build it alone (`cargo build \
     --release`), or the workspace with `--features inject`"
);
