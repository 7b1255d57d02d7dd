//! What stands behind `quick`, `test` and `lint`.

use crate::suite::Selection;

/// The options of a command that runs steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The command: `quick`, `test` or `lint`.
    pub(crate) command: String,
    /// The one step that is to run.
    pub(crate) only: Option<String>,
    /// A line of JSON at the end.
    pub(crate) json: bool,
    /// The tests that are to run.
    pub(crate) selection: Selection,
}

impl Arguments {
    /// None if it is not understood.
    pub(crate) fn parse(command: &str, words: &[&str]) -> Option<Self> {
        let mut parsed = Self { command: command.to_owned(), ..Self::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().filter(|value| !value.starts_with('-')).map(|value| (*value).to_owned());
            match *word {
                "--json" => parsed.json = true,
                "--only" => parsed.only = Some(value()?),
                "-p" | "--package" => parsed.selection.packages.push(value()?),
                "--test" => parsed.selection.targets.push(value()?),
                option if option.starts_with('-') => return None,
                name => parsed.selection.names.push(name.to_owned()),
            }
        }
        let selects = !parsed.selection.is_all();
        let is_good = !selects || (command == "test" && parsed.only.is_none());
        is_good.then_some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_in_any_order() {
        let parsed = Arguments::parse("test", &["--json", "-p", "a", "name", "--test", "b"]).unwrap();
        assert!(parsed.json && parsed.only.is_none());
        assert_eq!(parsed.selection.packages, ["a"]);
        assert_eq!(parsed.selection.targets, ["b"]);
        assert_eq!(parsed.selection.names, ["name"]);
        assert_eq!(Arguments::parse("lint", &["--only", "words"]).unwrap().only.as_deref(), Some("words"));
    }

    #[test]
    fn only_test_selects_tests_and_a_step_selects_none() {
        assert_eq!(Arguments::parse("quick", &["-p", "a"]), None);
        assert_eq!(Arguments::parse("test", &["--only", "docs", "-p", "a"]), None);
        assert_eq!(Arguments::parse("test", &["--only"]), None);
        assert_eq!(Arguments::parse("test", &["--unknown"]), None);
    }
}
