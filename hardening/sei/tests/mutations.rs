//! Each protection, removed: its scenario must end in another way. A test that cannot fail would show nothing.

use crate::support::{Outcome, Program};

/// Protection, program, scenario. The scenario's right outcome stands in the program's own test.
const REMOVED: [(&str, &str, &str); 29] = [
    ("AppendBeforeStore", "paper", "a_write_is_undone"),
    ("ReverseReset", "libsei", "overlapping_sizes"),
    ("LogComparison", "paper", "extra_write_in_e2"),
    ("OldValues", "paper", "a_wrong_snapshot_is_seen"),
    ("StateIsNew", "paper", "fig1_fault_in_e1"),
    ("StateIsNew", "paper", "last_mile_of_e2"),
    ("InputAtBegin", "rules", "corrupt_input_is_discarded"),
    ("InputInV", "rules", "input_changes_in_e2"),
    ("InputAfterReset", "rules", "rw_input"),
    ("OutputInV", "rules", "last_mile_output"),
    ("OutputSeed", "rules", "a_reply"),
    ("EmptyPop", "rules", "jump_out_of_e1"),
    ("StackFilterOfWrites", "libsei", "local_arrays"),
    ("ReplayAllocation", "rules", "replay_malloc"),
    ("ReplayWord", "threads", "replay_trylock"),
    ("ReplayValue", "rules", "replay_random"),
    ("ReplayValue", "rules", "replay_recv"),
    ("ReplayBytes", "rules", "replay_time"),
    ("DeferredFree", "rules", "use_after_undo"),
    ("DeferredSend", "rules", "nothing_leaves_before_v"),
    ("DeferredRelease", "threads", "unvalidated_state_is_not_read"),
    ("Barrier", "threads", "message_before_the_other_checked"),
    ("Retry", "threads", "opposite_orders_meet"),
    ("DeferredAdd", "threads", "counters_count_once"),
    ("CopyTranslation", "copies", "flip_at_rest"),
    ("CopyTranslation", "copies", "pointer_at_rest"),
    ("CopyTranslation", "copies", "text_at_rest"),
    ("CopyRefresh", "copies", "registered_late"),
    ("Rotation", "cores", "wrong_core"),
];

#[test]
fn without_its_protection_each_scenario_ends_in_another_way() {
    for (protection, name, scenario) in REMOVED {
        // At -O0 the program writes all that it says.
        let built =
            if name == "copies" { Program::build_dup(name, "-O0") } else { Program::build(name, "-O0") };
        let Some(program) = built else { return };
        let right = program.run(scenario);
        assert!(matches!(right, Outcome::Printed(_) | Outcome::Detected(..)), "{scenario}: {right:?}");
        let without = program.run_without(scenario, Some(protection));
        assert_ne!(without, right, "{scenario} does not see that {protection} is missing");
    }
}
