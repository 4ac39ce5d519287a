//! There is no way in that skips the check, and every error message names the remedy.

#[test]
fn ways_around_the_check_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
