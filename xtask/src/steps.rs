//! What CI decides on, in order. A step says what it found in a few words, or why it failed.

use crate::place::Place;
use crate::{core_tree, demo, requirements, rules, tools, words};

/// One thing that can pass or fail, and that can be run alone: `cargo xtask test --only <name>`.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) check: fn(&Place) -> Result<String, String>,
}

/// All steps; the first [`LINT_STEPS`] of them run no tests.
pub(crate) const TEST: &[Step] = &[
    Step { name: "format", what: "cargo fmt", check: format },
    Step { name: "clippy", what: "cargo clippy, warnings denied", check: clippy },
    Step { name: "deny", what: "cargo deny: bans, licences, sources", check: deny },
    Step { name: "core-dependencies", what: "the core depends on next to nothing", check: core_tree::check },
    Step {
        name: "bounded-channels",
        what: "no unbounded channel in the engine",
        check: rules::bounded_channels,
    },
    Step { name: "honest-tests", what: "no test is ignored, no test sleeps", check: rules::honest_tests },
    Step { name: "words", what: "no retired word", check: words::check },
    Step { name: "requirements", what: "every requirement is proved or open", check: requirements::check },
    Step { name: "services", what: "real servers for the tests", check: services },
    Step { name: "tests", what: "cargo test, doc tests included", check: tests },
    Step { name: "docs", what: "cargo doc, warnings denied", check: docs },
    Step { name: "release-build", what: "the postrider command, optimised", check: demo::build },
    Step { name: "demo", what: "postrider demo loses, reorders and invents nothing", check: demo::check },
];

const LINT_STEPS: usize = 8;

/// The steps that run no tests.
pub(crate) fn lint() -> &'static [Step] {
    TEST.get(..LINT_STEPS).unwrap_or(TEST)
}

fn format(place: &Place) -> Result<String, String> {
    place.cargo(&["fmt", "--all", "--check"])
}

fn clippy(place: &Place) -> Result<String, String> {
    place.cargo(&["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])?;
    // No other command builds it but `cargo xtask soak`.
    let soak =
        ["clippy", "-p", "postrider-relay", "--test", "soak", "--all-features", "--", "-D", "warnings"];
    place.cargo(&soak)
}

fn deny(place: &Place) -> Result<String, String> {
    let cargo_deny = tools::cargo_deny(place)?;
    place.run(place.command(cargo_deny).args([
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))
}

fn services(place: &Place) -> Result<String, String> {
    let variables = place.services.start(place)?;
    Ok(format!("{} variables name them", variables.len()))
}

fn tests(place: &Place) -> Result<String, String> {
    tools::sqlite3()?;
    tools::languages()?;
    let variables = place.services.start(place)?;
    let mut cargo = place.command(place.cargo_program());
    cargo.args(["test", "--workspace", "--all-features"]).envs(variables);
    if std::env::var_os(TEST_THREADS).is_none() {
        cargo.env(TEST_THREADS, test_threads().to_string());
    }
    place.run(&mut cargo)
}

const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Most tests wait for a server or for time to pass, so four run at once for each core.
fn test_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) * 4
}

fn docs(place: &Place) -> Result<String, String> {
    place.run(
        place
            .command(place.cargo_program())
            .args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lint_ends_where_the_servers_for_tests_are_started() {
        assert_eq!(TEST[LINT_STEPS].name, "services");
        assert_eq!(lint().len(), LINT_STEPS);
    }

    #[test]
    fn a_step_can_be_named_without_doubt() {
        let names: std::collections::BTreeSet<_> = TEST.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), TEST.len());
    }
}
