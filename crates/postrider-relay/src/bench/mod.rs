//! `postrider bench`: what Postrider promises in numbers, measured here and now.

mod backlog;
mod memory;

use clap::ValueEnum;
use serde_json::{Map, json};

use crate::{
    Verdict,
    failure::Failure,
    signal::Ending,
    terminal::{self, Terminal},
};

/// Measure what is promised in numbers, on this machine.
///
/// Each benchmark works on a temporary SQLite file. A figure beyond its limit makes the exit status 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this benchmark [default: all of them]
    #[arg(long, value_name = "NAME")]
    only: Option<Bench>,

    /// Keys, with one event each, of the backlog
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,

    /// Print the figures as one JSON object, the last and only line on stdout
    #[arg(long)]
    json: bool,
}

/// Every benchmark there is.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Bench {
    /// Memory when each of many keys waits for its retry
    Backlog,
}

/// One number, and the limit that it must stay below.
struct Figure {
    name: &'static str,
    value: f64,
    below: Option<f64>,
}

impl Figure {
    fn new(name: &'static str, value: f64) -> Self {
        Self { name, value: (value * 10.0).round() / 10.0, below: None }
    }

    fn below(self, limit: f64) -> Self {
        Self { below: Some(limit), ..self }
    }

    fn is_well(&self) -> bool {
        self.below.is_none_or(|limit| self.value < limit)
    }
}

pub(crate) async fn run(args: Args) -> Result<Verdict, Failure> {
    let mut ending = Ending::listen()?;
    tokio::select! {
        biased;
        () = ending.asked() => Err(Failure::bad("interrupted before all was measured")),
        figures = measure(&args) => Ok(tell(Terminal::new(args.json), &figures?)),
    }
}

async fn measure(args: &Args) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    let benches = args.only.as_ref().map_or(Bench::value_variants(), std::slice::from_ref);
    for bench in benches {
        figures.extend(match bench {
            Bench::Backlog => backlog::measure(args.keys).await?,
        });
    }
    Ok(figures)
}

fn tell(terminal: Terminal, figures: &[Figure]) -> Verdict {
    let mut table = terminal::table(["figure", "value", "must be below"], &[1, 2]);
    let mut object = Map::new();
    for figure in figures {
        let limit = figure.below.map(|limit| limit.to_string()).unwrap_or_default();
        table.add_row([figure.name, &figure.value.to_string(), &limit]);
        object.insert(figure.name.to_owned(), json!(figure.value));
    }
    let beyond: Vec<&str> =
        figures.iter().filter(|figure| !figure.is_well()).map(|figure| figure.name).collect();
    let (verdict, sentence) = if beyond.is_empty() {
        (Verdict::Good, "Good: every figure is within its limit.".to_owned())
    } else {
        (Verdict::Bad, format!("Bad: {} beyond the limit.", beyond.join(", ")))
    };
    terminal.say(table.trim_fmt());
    terminal.say(terminal.paint(verdict, &sentence));
    terminal.answer(object);
    verdict
}
