//! Errors that the schedule reports at compile time.

#[test]
fn locks_on_plain_values_and_foreign_requests_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
