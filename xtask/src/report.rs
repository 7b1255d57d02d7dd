//! What took how long: the steps and the slowest test binaries, as tables for people and as JSON for machines.

use crate::suite::Record;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::Duration;

/// Rows of the table of slow test binaries.
const SLOWEST: usize = 10;

/// A step that ended, or that was not reached.
#[derive(Clone, Debug)]
pub(crate) struct StepReport {
    pub(crate) name: &'static str,
    pub(crate) result: &'static str,
    /// None if it was not run.
    pub(crate) time: Option<Duration>,
    pub(crate) note: String,
}

/// Collects what steps tell beside their note.
#[derive(Debug, Default)]
pub(crate) struct Report {
    binaries: RefCell<Vec<Record>>,
}

impl Report {
    pub(crate) fn records(&self, records: Vec<Record>) {
        self.binaries.borrow_mut().extend(records);
    }

    /// The tables at the end of a run.
    pub(crate) fn tables(&self, steps: &[StepReport]) -> String {
        let mut text = String::new();
        let rows = steps.iter().map(|step| {
            [
                step.name.to_owned(),
                step.result.to_owned(),
                step.time.map_or("-".to_owned(), seconds),
                step.note.clone(),
            ]
        });
        let total: Duration = steps.iter().filter_map(|step| step.time).sum();
        let total = ["total".to_owned(), String::new(), seconds(total), String::new()];
        text.push_str(&table(&rows.chain([total]).collect::<Vec<_>>()));

        let mut binaries = self.binaries.borrow().clone();
        binaries.retain(|record| record.passed + record.failed > 0);
        binaries.sort_by_key(|record| std::cmp::Reverse(record.time));
        if !binaries.is_empty() {
            text.push_str("\nSlowest test binaries:\n");
            let rows = binaries.iter().take(SLOWEST).map(|record| {
                [record.name(), format!("{} passed", record.passed), seconds(record.time), failed(record)]
            });
            text.push_str(&table(&rows.collect::<Vec<_>>()));
        }
        let left: Vec<_> = self.binaries.borrow().iter().filter(|record| record.left > 0).cloned().collect();
        if !left.is_empty() {
            text.push_str("\nLeft to `cargo xtask test`:\n");
            let rows = left
                .iter()
                .map(|record| [record.name(), String::new(), record.left.to_string(), reason(record)]);
            text.push_str(&table(&rows.collect::<Vec<_>>()));
        }
        text
    }

    /// One line.
    pub(crate) fn json(&self, steps: &[StepReport]) -> String {
        let mut text = format!("{{\"ok\":{},\"steps\":[", steps.iter().all(|step| step.result == PASSED));
        for (index, step) in steps.iter().enumerate() {
            let time = step.time.map_or("null".to_owned(), |time| format!("{:.3}", time.as_secs_f64()));
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(
                text,
                "{comma}{{\"step\":{},\"result\":{},\"seconds\":{time},\"note\":{}}}",
                string(step.name),
                string(step.result),
                string(&step.note)
            );
        }
        text.push_str("],\"binaries\":[");
        for (index, record) in self.binaries.borrow().iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let variables: Vec<String> = record.variables.iter().map(|variable| string(variable)).collect();
            let _ = write!(
                text,
                "{comma}{{\"package\":{},\"target\":{},\"seconds\":{:.3},\"passed\":{},\"failed\":{},\"left\":{},\
                 \"needs\":[{}],\"why_left\":{}}}",
                string(&record.package),
                string(&record.target),
                record.time.as_secs_f64(),
                record.passed,
                record.failed,
                record.left,
                variables.join(","),
                string(&record.why)
            );
        }
        text.push_str("]}");
        text
    }
}

pub(crate) const PASSED: &str = "passed";
pub(crate) const FAILED: &str = "FAILED";
pub(crate) const NOT_RUN: &str = "not run";

fn failed(record: &Record) -> String {
    if record.failed == 0 { String::new() } else { format!("{} FAILED", record.failed) }
}

/// Why tests were left out: servers by their short names, and what the list says.
fn reason(record: &Record) -> String {
    let short = |variable: &String| {
        let name = variable.strip_prefix("POSTRIDER_TEST_").unwrap_or(variable);
        name.strip_suffix("_URL").unwrap_or(name).to_lowercase()
    };
    let mut parts: Vec<String> = Vec::new();
    if !record.variables.is_empty() {
        parts.push(format!("need {}", record.variables.iter().map(short).collect::<Vec<_>>().join(", ")));
    } else if !record.needing.is_empty() {
        parts.push("need servers of their own".to_owned());
    }
    if !record.why.is_empty() {
        parts.push(record.why.clone());
    }
    parts.join("; ")
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Columns that are as wide as what is in them; the third is flush right. An empty second column takes no room.
fn table(rows: &[[String; 4]]) -> String {
    let width = |of: fn(&[String; 4]) -> &String| rows.iter().map(|row| of(row).len()).max().unwrap_or(0);
    let (names, results, times) = (width(|row| &row[0]), width(|row| &row[1]), width(|row| &row[2]));
    rows.iter()
        .map(|[name, result, time, note]| {
            let result = if results == 0 { String::new() } else { format!("{result:<results$}  ") };
            let row = format!("{name:<names$}  {result}{time:>times$}  {note}");
            format!("{}\n", row.trim_end())
        })
        .collect()
}

/// A string of JSON.
fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if (letter as u32) < 0x20 => _ = write!(quoted, "\\u{:04x}", letter as u32),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn report() -> (Report, Vec<StepReport>) {
        let record = |target: &str, millis, passed, left| Record {
            package: "postrider-a".to_owned(),
            target: target.to_owned(),
            time: Duration::from_millis(millis),
            passed,
            left,
            ..Record::default()
        };
        let needing = Record {
            needing: vec!["x".to_owned()],
            variables: BTreeSet::from(["POSTRIDER_TEST_MYSQL_URL".to_owned()]),
            ..record("fast", 10, 2, 1)
        };
        let report = Report::default();
        report.records(vec![needing, record("slow", 2000, 5, 0), record("none", 9000, 0, 0)]);
        let steps = vec![
            StepReport {
                name: "format",
                result: PASSED,
                time: Some(Duration::from_millis(1500)),
                note: "a \"b\"".to_owned(),
            },
            StepReport { name: "tests", result: NOT_RUN, time: None, note: String::new() },
        ];
        (report, steps)
    }

    #[test]
    fn the_tables_have_the_steps_the_slowest_binaries_and_what_was_left() {
        let (report, steps) = report();
        let expected = "\
format  passed   1.5 s  a \"b\"
tests   not run      -
total            1.5 s

Slowest test binaries:
postrider-a slow  5 passed  2.0 s
postrider-a fast  2 passed  0.0 s

Left to `cargo xtask test`:
postrider-a fast  1  need mysql
";
        assert_eq!(report.tables(&steps), expected);
    }

    #[test]
    fn the_json_is_one_line_with_steps_and_binaries() {
        let (report, steps) = report();
        let json = report.json(&steps);
        assert!(
            json.starts_with(
                "{\"ok\":false,\"steps\":[{\"step\":\"format\",\"result\":\"passed\",\"seconds\":1.500,"
            ),
            "{json}"
        );
        assert!(json.contains(
            "\"note\":\"a \\\"b\\\"\"},{\"step\":\"tests\",\"result\":\"not run\",\"seconds\":null"
        ));
        assert!(json.contains("\"left\":1,\"needs\":[\"POSTRIDER_TEST_MYSQL_URL\"],\"why_left\":\"\"}"));
        assert!(json.ends_with("]}") && !json.contains('\n'));
        assert_eq!(string("a\n\u{1}"), "\"a\\u000a\\u0001\"");
    }
}
