//! One step after the other, with headlines, times and the tables at the end.

use crate::place::Place;
use crate::report::{FAILED, NOT_RUN, PASSED, StepReport, seconds};
use crate::steps::Step;
use std::time::Instant;

/// Runs the steps until one fails. The error is for people: what failed, and how to run just that.
pub(crate) fn all(place: &Place, steps: &[&Step]) -> Result<(), String> {
    let mut reports = Vec::new();
    let mut failure = None;
    for (number, step) in (1..).zip(steps) {
        println!("\n=== {number}/{} {}: {}", steps.len(), step.name, step.what);
        let start = Instant::now();
        let result = (step.check)(place);
        let time = start.elapsed();
        let report = |result, note| StepReport { name: step.name, result, time: Some(time), note };
        match result {
            Ok(note) => {
                println!("--- {} passed in {}{}", step.name, seconds(time), after_colon(&note));
                reports.push(report(PASSED, note));
            }
            Err(why) => {
                println!("--- {} failed in {}", step.name, seconds(time));
                reports.push(report(FAILED, String::new()));
                failure = Some((step, why));
                break;
            }
        }
    }
    for step in steps.iter().skip(reports.len()) {
        reports.push(StepReport { name: step.name, result: NOT_RUN, time: None, note: String::new() });
    }
    println!("\n{}", place.report.tables(&reports));
    if failure.is_none() {
        println!("{} steps passed, 0 failed", steps.len());
    }
    if place.arguments.json {
        println!("{}", place.report.json(&reports));
    }
    match failure {
        None => Ok(()),
        Some((step, why)) => Err(format!(
            "The step `{name}` failed ({what}).\n{why}\nTo run just that: {again}",
            name = step.name,
            what = step.what,
            again = again(place, step)
        )),
    }
}

/// The command that runs a step alone.
fn again(place: &Place, step: &Step) -> String {
    let arguments = &place.arguments;
    match arguments.command.as_str() {
        "test" if !arguments.selection.is_all() => "the same command again".to_owned(),
        "" => format!("cargo xtask test --only {}", step.name),
        command => format!("cargo xtask {command} --only {}", step.name),
    }
}

fn after_colon(note: &str) -> String {
    if note.is_empty() { String::new() } else { format!(": {note}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use crate::report::Report;

    fn place() -> Place {
        let (root, cache, target) = ("root".into(), "cache".into(), "target".into());
        let (arguments, report) = (Arguments::default(), Report::default());
        Place { root, cache, target, arguments, report, services: Default::default() }
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
}
