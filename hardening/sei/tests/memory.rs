//! Valgrind on hardened programs: no access outside of what is allocated, by the program or by the library.
//!
//! Values that were never written are left out: the log keeps the old content of a fresh block, and compares it.

use crate::support::{Outcome, Program, valgrind};

#[test]
fn no_scenario_touches_memory_that_is_not_there() {
    let Some(valgrind) = valgrind() else { return };
    for (name, scenarios) in [
        ("libsei", &["zeroed_calloc", "local_arrays", "text_functions", "long_format", "floating_point"][..]),
        (
            "rules",
            &["replay_calloc_and_realloc", "use_after_undo", "replay_recv", "deferred_calls_happen_once"],
        ),
        ("threads", &["opposite_orders_meet", "replay_trylock"]),
    ] {
        let Some(program) = Program::build(name, "-O2") else { return };
        for scenario in scenarios {
            let plain = program.run(scenario);
            assert!(matches!(plain, Outcome::Printed(_)), "{scenario}: {plain:?}");
            assert_eq!(program.run_under(&valgrind, scenario), plain, "{scenario}");
        }
    }
}
