//! What must not compile, and what the compiler then says. After a change: `TRYBUILD=overwrite`.

#[test]
fn a_mistake_is_shown_where_it_was_made() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
