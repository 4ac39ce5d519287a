//! There is no way in that skips the check, and every refusal says what to do instead.

#[test]
fn ways_around_the_check_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
