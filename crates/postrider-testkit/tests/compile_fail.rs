//! What must not compile, and what the compiler then says. After a change: `TRYBUILD=overwrite`.

#[test]
fn writing_without_a_transaction_and_changing_an_event_do_not_compile() {
    // S3-4.1d, S3-6.2c
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
