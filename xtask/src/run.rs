//! One step after the other, with headlines, times and a summary.

use crate::place::Place;
use crate::steps::Step;
use std::time::{Duration, Instant};

/// Runs the steps until one fails; the error is for people: what failed, and how to run just that.
pub(crate) fn all(place: &Place, steps: &[&Step]) -> Result<(), String> {
    let mut rows = Vec::new();
    let mut failure = None;
    for (number, step) in (1..).zip(steps) {
        println!("\n=== {number}/{} {}: {}", steps.len(), step.name, step.what);
        let start = Instant::now();
        let result = (step.check)(place);
        let time = seconds(start.elapsed());
        match result {
            Ok(note) => {
                println!("--- {} passed in {time}{}", step.name, after_colon(&note));
                rows.push([step.name.to_owned(), "passed".to_owned(), time, note]);
            }
            Err(why) => {
                println!("--- {} failed in {time}", step.name);
                rows.push([step.name.to_owned(), "FAILED".to_owned(), time, String::new()]);
                failure = Some((step, why));
                break;
            }
        }
    }
    for step in steps.iter().skip(rows.len()) {
        rows.push([step.name.to_owned(), "not run".to_owned(), "-".to_owned(), String::new()]);
    }
    println!("\n{}", table(&rows));

    match failure {
        None => {
            println!("{} passed, 0 failed", steps.len());
            Ok(())
        }
        Some((step, why)) => Err(format!(
            "The step `{name}` failed ({what}).\n{why}\nTo run just that: cargo xtask test --only {name}",
            name = step.name,
            what = step.what
        )),
    }
}

fn after_colon(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(": {note}") }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn table(rows: &[[String; 4]]) -> String {
    let width = |of: fn(&[String; 4]) -> &String| rows.iter().map(|row| of(row).len()).max().unwrap_or(0);
    let (names, results, times) = (width(|row| &row[0]), width(|row| &row[1]), width(|row| &row[2]));
    rows.iter()
        .map(|[name, result, time, note]| {
            let row = format!("{name:<names$}  {result:<results$}  {time:>times$}  {note}");
            format!("{}\n", row.trim_end())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let (root, cache, target) = ("root".into(), "cache".into(), "target".into());
        Place { root, cache, target, alone: false, services: Default::default() }
    }

    const GOOD: Step = Step { name: "good", what: "passes", check: |_| Ok("all well".to_owned()) };
    const BAD: Step = Step { name: "bad", what: "fails", check: |_| Err("It broke.".to_owned()) };
    const NEVER: Step = Step { name: "never", what: "is not reached", check: |_| panic!("reached") };

    #[test]
    fn a_failing_step_stops_the_run_and_says_how_to_run_just_that() {
        let why = all(&place(), &[&GOOD, &BAD, &NEVER]).unwrap_err();
        assert!(why.contains("`bad`") && why.contains("It broke."), "{why}");
        assert!(why.ends_with("cargo xtask test --only bad"), "{why}");
        assert_eq!(all(&place(), &[&GOOD]), Ok(()));
    }

    #[test]
    fn the_columns_of_the_summary_are_as_wide_as_what_is_in_them() {
        let row = |texts: [&str; 4]| texts.map(str::to_owned);
        let rows = [row(["a", "passed", "10.0 s", "9 crates"]), row(["longer", "FAILED", "1.0 s", ""])];
        assert_eq!(table(&rows), "a       passed  10.0 s  9 crates\nlonger  FAILED   1.0 s\n");
    }
}
