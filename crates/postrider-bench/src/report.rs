//! Prints the figures, as a table for people or as JSON, and compares them with their limits.

use postrider_relay::{
    Conclusion,
    terminal::{self, Terminal},
};
use serde_json::{Map, json};

use super::{figure::Figure, machine::Machine};

/// Prints the figures and returns whether all limits are met. Limits are `enforced` only at full size: a quick run is too rough.
pub(super) fn print(terminal: Terminal, figures: &[Figure], enforced: bool) -> Conclusion {
    let machine = Machine::this();
    let mut table = terminal::table(["figure", "value", "limit", ""], &[1]);
    let mut object = Map::new();
    for figure in figures {
        let word = match figure.is_kept().filter(|_| enforced) {
            Some(true) => "kept",
            Some(false) => "missed",
            None => "",
        };
        table.add_row([figure.name, &figure.shown().to_string(), &figure.limit().unwrap_or_default(), word]);
        object.insert(figure.name.to_owned(), json!(figure.shown()));
    }
    terminal.print(machine.line());
    terminal.print(table.trim_fmt());
    let Machine { cores, cpu, kernel } = machine;
    let of_machine = [("cores", json!(cores)), ("cpu", json!(cpu)), ("kernel", json!(kernel))];
    object.extend(of_machine.map(|(name, value)| (name.to_owned(), value)));

    let (conclusion, sentence) = conclusion(figures, enforced);
    terminal.print_conclusion(conclusion, &sentence);
    terminal.print_json(object);
    conclusion
}

fn conclusion(figures: &[Figure], enforced: bool) -> (Conclusion, String) {
    let missed = figures.iter().filter(|figure| figure.is_kept() == Some(false));
    let missed: Vec<&str> = missed.map(|figure| figure.name).collect();
    if !enforced {
        (Conclusion::Good, "Good: everything ran. At sizes like these the limits say nothing.".to_owned())
    } else if missed.is_empty() {
        (Conclusion::Good, "Good: every figure keeps its limit.".to_owned())
    } else {
        (Conclusion::Bad, format!("Bad: {} missed the limit.", missed.join(", ")))
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
    fn one_figure_that_misses_its_limit_makes_the_conclusion_bad() {
        let (conclusion, sentence) = conclusion(&figures(), true);
        assert_eq!((conclusion, sentence.as_str()), (Conclusion::Bad, "Bad: missed missed the limit."));
    }

    #[test]
    fn without_limits_every_conclusion_is_good() {
        assert_eq!(conclusion(&figures(), false).0, Conclusion::Good);
    }
}
