//! Replies that handlers send to slow readers: nobody waits, and the program is told what the kernel would say.

use crate::support::{Program, assert_prints};

/// The event loop had waited five seconds for one client that reads nothing, for each reply to it, and then the next
/// write ended the process by SIGPIPE.
#[test]
fn a_reader_that_reads_nothing_holds_nobody_up() {
    for level in ["-O0", "-O2"] {
        let Some(program) = Program::build("streams", level) else { return };
        for scenario in ["tcp_full", "unix_full", "pipe_full"] {
            assert_prints(&program, scenario, "full 1, all arrives 1, others read on 1");
        }
        assert_prints(&program, "many_in_one_handler", "refused 1, all arrives 1");
        assert_prints(&program, "a_hundred_read_nothing", "chats 300, refused 1, all arrives to 100");
    }
}

#[test]
fn a_reader_that_reads_nothing_holds_nobody_up_with_two_copies_of_the_state() {
    let Some(program) = Program::build_dup("streams", "-O2") else { return };
    assert_prints(&program, "tcp_full", "full 1, all arrives 1, others read on 1");
    assert_prints(&program, "tcp_edge", "equal 1");
}

#[test]
fn a_reader_that_is_gone_ends_nothing() {
    let Some(program) = Program::build("streams", "-O2") else { return };
    assert_prints(&program, "reader_is_gone", "told 1");
}

/// After a short write the kernel says once when there is room again: also where it had more room than the program was
/// told of.
#[test]
fn who_waits_for_room_is_notified() {
    let Some(program) = Program::build("streams", "-O2") else { return };
    for scenario in ["tcp_edge", "unix_edge", "pipe_edge"] {
        assert_prints(&program, scenario, "equal 1");
    }
}
