//! What CI decides on, in order. A step says what it found in a few words, or why it failed.

use crate::place::Place;
use crate::{api, core_tree, demo, requirements, rules, suite, tools, words};

/// One thing that can pass or fail, and that can be run alone: `cargo xtask test --only <name>`.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) check: fn(&Place) -> Result<String, String>,
}

const FORMAT: Step = Step { name: "format", what: "cargo fmt", check: format };
const CLIPPY: Step = Step { name: "clippy", what: "cargo clippy, warnings denied", check: clippy };
const DENY: Step = Step { name: "deny", what: "cargo deny: bans, licences, sources", check: deny };
const CORE_DEPENDENCIES: Step =
    Step { name: "core-dependencies", what: "the core depends on next to nothing", check: core_tree::check };
const BOUNDED_CHANNELS: Step = Step {
    name: "bounded-channels",
    what: "no unbounded channel in the engine",
    check: rules::bounded_channels,
};
const HONEST_TESTS: Step =
    Step { name: "honest-tests", what: "no test is ignored, no test sleeps", check: rules::honest_tests };
const WORDS: Step = Step { name: "words", what: "no retired word", check: words::check };
const REQUIREMENTS: Step =
    Step { name: "requirements", what: "every requirement is proved or open", check: requirements::check };
const BUILD: Step = Step { name: "build", what: "all test binaries", check: suite::build };

/// All steps; the first [`LINT_STEPS`] of them run no tests.
pub(crate) const TEST: &[Step] = &[
    FORMAT,
    CLIPPY,
    DENY,
    CORE_DEPENDENCIES,
    BOUNDED_CHANNELS,
    HONEST_TESTS,
    WORDS,
    REQUIREMENTS,
    Step { name: "api", what: "the public API is as docs/api has it", check: api::check },
    BUILD,
    Step { name: "services", what: "real servers for the tests", check: services },
    Step { name: "tests", what: "unit tests and integration tests", check: tests },
    Step { name: "doc-tests", what: "the examples in the documentation", check: suite::documentation },
    Step { name: "docs", what: "cargo doc, warnings denied", check: docs },
    Step { name: "release-build", what: "the postrider command, optimised", check: demo::build },
    Step { name: "demo", what: "postrider demo loses, reorders and invents nothing", check: demo::check },
];

const LINT_STEPS: usize = 9;

/// What a contributor runs before each commit. It starts no server.
pub(crate) const QUICK: &[Step] = &[
    FORMAT,
    BOUNDED_CHANNELS,
    HONEST_TESTS,
    WORDS,
    REQUIREMENTS,
    CLIPPY,
    CORE_DEPENDENCIES,
    BUILD,
    Step {
        name: "tests",
        what: "the tests that need no server, with 200 seeds of the simulator",
        check: suite::quick,
    },
];

/// What a selection of tests runs.
pub(crate) const SELECTED: &[Step] =
    &[BUILD, Step { name: "tests", what: "the tests that were selected", check: suite::selected }];

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
    suite::all(place)
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
    fn lint_ends_where_the_tests_are_built() {
        assert_eq!(TEST[LINT_STEPS].name, BUILD.name);
        assert_eq!(lint().len(), LINT_STEPS);
    }

    #[test]
    fn a_step_can_be_named_without_doubt() {
        for steps in [TEST, QUICK, SELECTED] {
            let names: std::collections::BTreeSet<_> = steps.iter().map(|step| step.name).collect();
            assert_eq!(names.len(), steps.len());
        }
    }
}
