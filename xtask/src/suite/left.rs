//! What `cargo xtask quick` leaves out: `xtask/quick.txt`.

use super::record::Record;
use std::collections::BTreeSet;

pub(crate) const LIST: &str = "xtask/quick.txt";

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left<'a> {
    package: &'a str,
    target: &'a str,
    /// What the names of the tests begin with; none means the whole binary.
    pub(crate) tests: Option<&'a str>,
    pub(crate) why: &'a str,
}

pub(crate) fn parse(list: &str) -> Result<Vec<Left<'_>>, String> {
    let lines = list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut rest = line;
            let mut word = || {
                let (word, after) = rest.split_once(char::is_whitespace)?;
                rest = after.trim_start();
                Some(word)
            };
            match (word(), word(), word()) {
                (Some(package), Some(target), Some(tests)) if !rest.is_empty() => {
                    Ok(Left { package, target, tests: Some(tests).filter(|tests| *tests != "*"), why: rest })
                }
                _ => Err(format!("{LIST}: a line needs a package, a target, tests and a reason: {line}")),
            }
        })
        .collect()
}

pub(crate) fn find<'a, 'b>(list: &'b [Left<'a>], package: &str, target: &str) -> Option<&'b Left<'a>> {
    list.iter().find(|left| left.package == package && left.target == target)
}

/// An entry that no binary answers to has to go.
pub(crate) fn check(list: &[Left<'_>], records: &[Record]) -> Result<(), String> {
    let known: BTreeSet<_> =
        records.iter().map(|record| (record.package.as_str(), record.target.as_str())).collect();
    match list.iter().find(|left| !known.contains(&(left.package, left.target))) {
        Some(left) => Err(format!("{LIST} names {} {}, which is not there.", left.package, left.target)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_target_its_tests_and_a_reason() {
        let list = parse("# x\na  b  *  compiles programs\nc d e:: slow\n").unwrap();
        assert_eq!(
            find(&list, "a", "b").map(|left| (left.tests, left.why)),
            Some((None, "compiles programs"))
        );
        assert_eq!(find(&list, "c", "d").and_then(|left| left.tests), Some("e::"));
        assert_eq!(find(&list, "a", "d"), None);
        assert!(parse("a b *").is_err(), "the reason is missing");
    }

    #[test]
    fn an_entry_without_a_binary_is_an_error() {
        let list = parse("a b * why\n").unwrap();
        let record = Record { package: "a".to_owned(), target: "b".to_owned(), ..Record::default() };
        assert_eq!(check(&list, &[record]), Ok(()));
        assert!(check(&list, &[]).is_err());
    }
}
