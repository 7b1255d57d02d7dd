//! What a test binary printed: the counts of the harness, and the output of each test that failed.

/// The end of a run of Rust's own harness.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) filtered_out: usize,
}

/// The counts in the last line `test result: …`. None if the binary has no such harness or did not come to its end.
pub(crate) fn counts(output: &str) -> Option<Counts> {
    let line = output.lines().rev().find_map(|line| line.strip_prefix("test result: "))?;
    let count = |what: &str| {
        let before = line.get(..line.find(what)?)?.trim_end();
        before.rsplit(' ').next()?.parse().ok()
    };
    Some(Counts {
        passed: count("passed")?,
        failed: count("failed")?,
        filtered_out: count("filtered out").unwrap_or(0),
    })
}

/// Whether the harness began to run tests.
pub(crate) fn has_harness(output: &str) -> bool {
    output
        .lines()
        .any(|line| line.starts_with("running ") && line.ends_with([' ', 's', 't']) && line.contains(" test"))
}

/// A test that failed, and what it printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure<'a> {
    pub(crate) name: &'a str,
    pub(crate) output: &'a str,
}

/// The tests that failed.
pub(crate) fn failures(output: &str) -> Vec<Failure<'_>> {
    let sections = sections(output);
    let failed = output.lines().filter_map(|line| {
        line.strip_prefix("test ")?
            .strip_suffix(" ... FAILED")
            .map(|name| name.trim_end_matches(" - should panic"))
    });
    failed
        .map(|name| {
            let printed =
                sections.iter().find(|section| section.name == name).map_or("", |section| section.output);
            Failure { name, output: printed }
        })
        .collect()
}

fn sections(output: &str) -> Vec<Failure<'_>> {
    let heads: Vec<_> = output
        .match_indices("\n---- ")
        .filter_map(|(offset, mark)| {
            let line = output.get(offset + mark.len()..)?.lines().next()?;
            let name = line.strip_suffix(" stdout ----").or_else(|| line.strip_suffix(" stderr ----"))?;
            Some((offset, offset + mark.len() + line.len(), name))
        })
        .collect();
    let ends = heads.iter().skip(1).map(|(start, ..)| *start).chain([output.len()]);
    heads
        .iter()
        .zip(ends)
        .map(|((_, start, name), end)| {
            let text = output.get(*start..end).unwrap_or_default();
            Failure { name, output: text.split("\nfailures:\n").next().unwrap_or_default().trim() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 3 tests
test a::one ... ok
test b::two ... FAILED
test three - should panic ... FAILED

failures:

---- b::two stdout ----

thread panicked: X is not set

---- three stdout ----
note: test did not panic as expected

failures:
    b::two
    three

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s
";

    #[test]
    fn counts_and_failures_are_read_from_what_the_harness_prints() {
        assert_eq!(counts(OUTPUT), Some(Counts { passed: 1, failed: 2, filtered_out: 7 }));
        assert!(has_harness(OUTPUT) && has_harness("running 1 test\n") && !has_harness("running late"));
        let found = failures(OUTPUT);
        assert_eq!(
            found,
            [
                Failure { name: "b::two", output: "thread panicked: X is not set" },
                Failure { name: "three", output: "note: test did not panic as expected" },
            ]
        );
    }

    #[test]
    fn a_program_without_the_harness_has_no_counts() {
        assert_eq!(counts("2 checks passed\n"), None);
        assert!(failures("error: x\n").is_empty());
    }
}
