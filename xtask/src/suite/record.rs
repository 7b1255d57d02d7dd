//! What became of one test binary, as a line of a file.

use std::collections::BTreeSet;
use std::time::Duration;

/// A test binary that was run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) package: String,
    /// The test target; of unit tests the name of the library or program.
    pub(crate) target: String,
    pub(crate) time: Duration,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    /// How many tests were left out.
    pub(crate) left: usize,
    /// The names of those that were left out because they need a server, if the binary tells names.
    pub(crate) needing: Vec<String>,
    /// The variables of the servers that they need.
    pub(crate) variables: BTreeSet<String>,
    /// Why others were left out.
    pub(crate) why: String,
}

impl Record {
    /// `package target`, as people know it.
    pub(crate) fn name(&self) -> String {
        let of_library = self.target == self.package.replace('-', "_");
        format!("{} {}", self.package, if of_library { "(unit tests)" } else { &self.target })
    }

    /// The tests that needed a server were run again: another record counts them.
    pub(crate) fn settle_needing(&mut self) {
        self.left = self.left.saturating_sub(self.needing.len());
        self.needing.clear();
    }

    pub(crate) fn line(&self) -> String {
        let variables: Vec<&str> = self.variables.iter().map(String::as_str).collect();
        [
            self.package.clone(),
            self.target.clone(),
            self.time.as_millis().to_string(),
            self.passed.to_string(),
            self.failed.to_string(),
            self.left.to_string(),
            self.needing.join(" "),
            variables.join(" "),
            self.why.clone(),
        ]
        .join("\t")
            + "\n"
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        Some(Self {
            package: next()?.to_owned(),
            target: next()?.to_owned(),
            time: Duration::from_millis(next()?.parse().ok()?),
            passed: next()?.parse().ok()?,
            failed: next()?.parse().ok()?,
            left: next()?.parse().ok()?,
            needing: words(next()?),
            variables: words(next()?).into_iter().collect(),
            why: next()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_file() {
        let record = Record {
            package: "postrider-sqlx".to_owned(),
            target: "postrider_sqlx".to_owned(),
            time: Duration::from_millis(1234),
            passed: 5,
            failed: 1,
            left: 2,
            needing: vec!["a::b".to_owned(), "c".to_owned()],
            variables: BTreeSet::from(["POSTRIDER_TEST_MYSQL_URL".to_owned()]),
            why: "compiles programs".to_owned(),
        };
        assert_eq!(Record::parse(record.line().trim_end_matches('\n')), Some(record.clone()));
        assert_eq!(record.name(), "postrider-sqlx (unit tests)");
        let empty = Record::default();
        assert_eq!(Record::parse(empty.line().trim_end_matches('\n')), Some(empty));
        assert_eq!(Record::parse("a\tb"), None);
    }
}
