//! Writes to stdout and stderr. A reader that went away is not an error, so nothing here fails.

use std::{
    fmt::Display,
    io::{IsTerminal, Write, stdout},
};

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};

use crate::{Conclusion, operations::log};

/// Prints for people, or with `--json` for programs. For programs, stdout carries JSON only and stderr errors only.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    json: bool,
}

impl Terminal {
    /// `json`: stdout carries one JSON object instead of text for people.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints lines for people. Line breaks are kept; other control characters, which may come from outside, are escaped.
    pub fn print(self, text: impl Display) {
        if !self.json {
            let _ = writeln!(stdout(), "{}", plain_lines(&text.to_string()));
        }
    }

    /// Prints the sentence of a conclusion, in colour on a terminal.
    pub fn print_conclusion(self, conclusion: Conclusion, sentence: &str) {
        if !self.json {
            let _ = writeln!(stdout(), "{}", self.paint(conclusion, &plain_lines(sentence)));
        }
    }

    /// Prints the JSON object for programs.
    pub fn print_json(self, object: Map<String, Value>) {
        if self.json {
            let _ = writeln!(stdout(), "{}", Value::Object(object));
            let _ = stdout().flush();
        }
    }

    /// Whether the output is for programs.
    pub(crate) fn is_for_programs(self) -> bool {
        self.json
    }

    /// A progress bar that disappears when the work is done.
    pub(crate) fn progress(self, length: u64) -> ProgressBar {
        if self.json {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(length);
        match ProgressStyle::with_template("{bar:40} {pos}/{len} {eta}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }

    /// Lines that are redrawn in place, if stdout is a terminal.
    pub(crate) fn canvas(self) -> Option<Canvas> {
        (!self.json && stdout().is_terminal()).then_some(Canvas { drawn: 0 })
    }

    fn paint(self, conclusion: Conclusion, sentence: &str) -> String {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let colour = match conclusion {
            Conclusion::Good => 32,
            Conclusion::Bad | Conclusion::Unreachable => 31,
        };
        if wanted && stdout().is_terminal() {
            format!("\x1b[1;{colour}m{sentence}\x1b[0m")
        } else {
            sentence.to_owned()
        }
    }
}

/// Lines on stdout that are redrawn in place.
///
/// The cursor rests below them at the left, so that a `^C` that the terminal prints is overwritten and shifts nothing.
pub(crate) struct Canvas {
    /// Number of lines on the screen.
    drawn: usize,
}

impl Canvas {
    pub(crate) fn draw(&mut self, lines: &[String]) {
        // Without wrapping, the terminal cuts a line that is too long.
        let mut frame = String::from("\x1b[?7l\r");
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}A", self.drawn));
        }
        for line in lines {
            frame.push_str(line);
            frame.push_str("\x1b[K\n");
        }
        frame.push_str("\x1b[J\x1b[?7h");
        let _ = stdout().write_all(frame.as_bytes());
        let _ = stdout().flush();
        self.drawn = lines.len();
    }
}

/// An empty table with a header; the columns in `numbers` are aligned to the right.
pub fn table<const N: usize>(header: [&str; N], numbers: &[usize]) -> Table {
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

/// Escapes control characters of a text from outside, so that it cannot move the cursor or change colours.
pub(crate) fn plain(text: &str) -> String {
    spelled_out(text, |_| false)
}

/// Escapes control characters of a text from outside, but keeps line breaks and tabs.
pub(crate) fn plain_lines(text: &str) -> String {
    spelled_out(text, |c| matches!(c, '\n' | '\t'))
}

fn spelled_out(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() || is_invisible(c)) && !is_kept(c) {
            plain.extend(c.escape_default());
        } else {
            plain.push(c);
        }
    }
    plain
}

/// Whether a character changes the direction of text or breaks a line.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A number with its noun: `1 event`, `2 events`.
pub(crate) fn count(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// Prints an error to stderr.
pub(crate) fn print_error(error: &impl Display) {
    log::write(&format!("error: {}", plain_lines(&error.to_string())));
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|n| super::count(n, "event")), ["0 events", "1 event", "2 events"]);
    }

    #[test]
    fn text_of_others_moves_no_cursor() {
        assert_eq!(super::plain("a\u{1b}[31m\nü"), "a\\u{1b}[31m\\nü");
        assert_eq!(super::plain_lines("a\u{1b}[31m\nü\r"), "a\\u{1b}[31m\nü\\r");
        assert_eq!(super::plain("pay\u{202e}gnp"), "pay\\u{202e}gnp");
    }
}
