//! Where text goes. A reader that went away is nobody's error, so nothing here fails.

use std::{
    fmt::Display,
    io::{IsTerminal, Write, stderr, stdout},
};

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use serde_json::{Map, Value};

use crate::Verdict;

/// Two streams: people read stdout, unless `--json` gives that to a program; then they read stderr.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    json: bool,
}

impl Terminal {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// A line or more for people.
    pub(crate) fn say(self, text: impl Display) {
        let _ = if self.json { writeln!(stderr(), "{text}") } else { writeln!(stdout(), "{text}") };
    }

    /// The one line for programs, if one is wanted.
    pub(crate) fn answer(self, object: Map<String, Value>) {
        if self.json {
            let _ = writeln!(stdout(), "{}", Value::Object(object));
            let _ = stdout().flush();
        }
    }

    /// Whether somebody watches, so that lines can be drawn again.
    pub(crate) fn is_live(self) -> bool {
        !self.json && stdout().is_terminal()
    }

    /// The sentence of a verdict in its colour, where colours are wanted.
    pub(crate) fn paint(self, verdict: Verdict, sentence: &str) -> String {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let tty = if self.json { stderr().is_terminal() } else { stdout().is_terminal() };
        let colour = match verdict {
            Verdict::Good => 32,
            Verdict::Bad => 31,
        };
        if wanted && tty { format!("\x1b[1;{colour}m{sentence}\x1b[0m") } else { sentence.to_owned() }
    }
}

/// An empty table with a header; the columns in `numbers` are numbers.
pub(crate) fn table<const N: usize>(header: [&str; N], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')))
        .set_header(header);
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// An error, to stderr.
pub(crate) fn complain(error: &impl Display) {
    let _ = writeln!(stderr(), "error: {error}");
}
