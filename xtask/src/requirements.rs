//! Every requirement that the library owns is named by a test that proves it.
//!
//! The ids are those of the check-list that the project was begun with: the number of the source document, then its
//! section. A test names the rows that it proves in a comment.

use crate::place::Place;
use crate::source::{rust_files, words};
use std::fs;

const ROWS: &[&str] = &[
    "S0-2.3", "S0-6.1", "S0-8.1", "S0-10.1", "S0-10.3", "S0-12.2", "S0-12.4", "S0-12.4b", "S0-15.1",
    "S0-15.1b", "S2-2", "S2-6", "S2-7", "S2-8", "S2-9", "S3-1.1", "S3-1.2", "S3-1.5", "S3-1.6", "S3-3.1",
    "S3-4.1a", "S3-4.1b", "S3-4.1c", "S3-4.1d", "S3-4.2", "S3-4.3", "S3-5.1", "S3-5.1b", "S3-5.2", "S3-6.1a",
    "S3-6.1b", "S3-6.1c", "S3-6.2a", "S3-6.2b", "S3-6.2c", "S3-6.3", "S3-6.4", "S3-6.5", "S3-7.1", "S3-8.1a",
    "S3-8.1b", "S3-9.1", "S3-9.2a", "S3-9.2b", "S3-9.2c", "S3-9.2d", "S3-9.2e", "S3-9.3a", "S3-9.3b",
    "S3-9.3c", "S3-10.1", "S3-10.2", "S3-10.3a", "S3-10.3b", "S3-10.3c", "S3-10.4", "S3-10.5a", "S3-10.5b",
    "S3-10.5c", "S3-10.6", "S3-10.7", "S3-10.8", "S3-10.9", "S3-11.1", "S3-11.2", "S3-11.3a", "S3-11.3b",
    "S3-12.2", "S3-12.3a", "S3-12.3b", "S3-12.4", "S3-13.1", "S3-13.2", "S3-13.3", "S3-14.2", "S3-14.3",
    "S3-14.4", "S3-14.5", "S3-16.1a", "S3-16.1b", "S3-16.1c", "S3-16.2", "S3-17", "S3-18",
];

/// Each row is named somewhere in the Rust files.
pub(crate) fn check(place: &Place) -> Result<String, String> {
    let mut text = String::new();
    // Not this file: its own list would prove every row.
    let files = rust_files(&place.root, &["crates", "examples", "xtask"]);
    for path in files.into_iter().filter(|path| !path.ends_with("xtask/src/requirements.rs")) {
        text.push_str(
            &fs::read_to_string(&path).map_err(|error| format!("Cannot read {}: {error}", path.display()))?,
        );
    }
    let missing: Vec<&str> = ROWS.iter().copied().filter(|row| !names(&text, row)).collect();
    if missing.is_empty() {
        return Ok(format!("{} rows", ROWS.len()));
    }
    Err(format!(
        "No test names {}.\nWrite the test, and name the row in a comment in it.",
        missing.join(", ")
    ))
}

/// Whether `text` has the id itself, and not only a longer one that begins with it.
fn names(text: &str, row: &str) -> bool {
    words(text, row).any(|offset| {
        let mut after = text.get(offset + row.len()..).unwrap_or_default().chars();
        match after.next() {
            Some('.') => !after.next().is_some_and(|letter| letter.is_ascii_digit()),
            Some(letter) => !letter.is_ascii_alphanumeric(),
            None => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_not_found_in_a_longer_one() {
        assert!(names("// S3-10.1, S3-1.2.", "S3-10.1") && names("// S3-1.2.", "S3-1.2"));
        assert!(!names("// S3-10.10 S3-10.1a S3-10.1.2", "S3-10.1"));
    }
}
