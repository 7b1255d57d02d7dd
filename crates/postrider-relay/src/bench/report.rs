//! What was measured, for people and for programs.

use serde_json::{Map, json};

use super::{figure::Figure, machine::Machine};
use crate::{
    Verdict,
    terminal::{self, Terminal},
};

/// Prints the figures, and says whether all limits are kept. What is not `judged` was measured too roughly for that.
pub(super) fn tell(terminal: Terminal, figures: &[Figure], judged: bool) -> Verdict {
    let machine = Machine::this();
    let mut table = terminal::table(["figure", "value", "limit", ""], &[1]);
    let mut object = Map::new();
    for figure in figures {
        let word = match figure.is_kept().filter(|_| judged) {
            Some(true) => "kept",
            Some(false) => "missed",
            None => "",
        };
        table.add_row([figure.name, &figure.shown().to_string(), &figure.limit().unwrap_or_default(), word]);
        object.insert(figure.name.to_owned(), json!(figure.shown()));
    }
    terminal.say(machine.line());
    terminal.say(table.trim_fmt());
    let Machine { cores, cpu, kernel } = machine;
    let of_machine = [("cores", json!(cores)), ("cpu", json!(cpu)), ("kernel", json!(kernel))];
    object.extend(of_machine.map(|(name, value)| (name.to_owned(), value)));

    let (verdict, sentence) = verdict(figures, judged);
    terminal.conclude(verdict, &sentence);
    terminal.answer(object);
    verdict
}

fn verdict(figures: &[Figure], judged: bool) -> (Verdict, String) {
    let missed = figures.iter().filter(|figure| figure.is_kept() == Some(false));
    let missed: Vec<&str> = missed.map(|figure| figure.name).collect();
    if !judged {
        (Verdict::Good, "Good: everything ran. At sizes like these the limits say nothing.".to_owned())
    } else if missed.is_empty() {
        (Verdict::Good, "Good: every figure keeps its limit.".to_owned())
    } else {
        (Verdict::Bad, format!("Bad: {} missed the limit.", missed.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Vec<Figure> {
        vec![
            Figure::new("for_information", 7.0),
            Figure::new("kept", 0.3).at_least(0.25),
            Figure::new("missed", 1.4).at_most(1.3),
        ]
    }

    #[test]
    fn one_figure_that_misses_its_limit_makes_the_verdict_bad() {
        let (verdict, sentence) = verdict(&figures(), true);
        assert_eq!((verdict, sentence.as_str()), (Verdict::Bad, "Bad: missed missed the limit."));
    }

    #[test]
    fn what_is_not_judged_is_good_whatever_was_measured() {
        assert_eq!(verdict(&figures(), false).0, Verdict::Good);
    }
}
