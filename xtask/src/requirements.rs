//! Every requirement is proved by a test that names it, or is listed as open with what is missing.
//!
//! `xtask/requirements.txt` lists all of them: the number of the source document, then its section. A test proves a row when its own
//! text names the id: its attributes, doc comment, name or body. The head of a file and comments between tests prove nothing.

use crate::functions::{self, Function, functions};
use crate::place::Place;
use crate::source::{code_only, rust_files, words};
use std::collections::BTreeSet;
use std::fs;

const LIST: &str = "xtask/requirements.txt";
/// The checks in this folder become tests by macros of the testkit.
const CONFORMANCE: &str = "crates/postrider-testkit/src/conformance/";

/// A line of the list.
struct Row<'a> {
    id: &'a str,
    /// What is missing, if no test proves it.
    open: Option<&'a str>,
}

pub(crate) fn check(place: &Place) -> Result<String, String> {
    let path = place.root.join(LIST);
    let list = fs::read_to_string(&path).map_err(|error| format!("Cannot read {LIST}: {error}"))?;
    let mut files = Vec::new();
    for path in rust_files(&place.root, &["crates", "examples", "xtask"]) {
        let text =
            fs::read_to_string(&path).map_err(|error| format!("Cannot read {}: {error}", path.display()))?;
        let name = crate::source::name_of(&place.root, &path);
        files.push((name, text));
    }
    let texts = test_texts(&files);
    compare(&parse(&list)?, |id| texts.iter().any(|text| names(text, id)))
}

fn parse(list: &str) -> Result<Vec<Row<'_>>, String> {
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for line in list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (id, open) = match line.split_once(char::is_whitespace) {
            Some((id, open)) => (id, Some(open.trim())),
            None => (line, None),
        };
        if !seen.insert(id) {
            return Err(format!("{LIST} lists {id} twice."));
        }
        rows.push(Row { id, open });
    }
    Ok(rows)
}

fn compare(rows: &[Row<'_>], is_proved: impl Fn(&str) -> bool) -> Result<String, String> {
    let mut wrong = Vec::new();
    let mut open = 0;
    for row in rows {
        match (is_proved(row.id), row.open) {
            (true, None) => {}
            (false, Some(_)) => open += 1,
            (false, None) => wrong.push(format!("{}: no test names it", row.id)),
            (true, Some(_)) => wrong.push(format!("{}: a test names it, and it is listed as open", row.id)),
        }
    }
    if wrong.is_empty() {
        return Ok(format!("{} rows: {} proved, {open} open", rows.len(), rows.len() - open));
    }
    Err(format!(
        "{}\nName a row in the test that proves it (its name, doc comment or body), or write behind its id in {LIST} what is \
         missing.",
        wrong.join("\n")
    ))
}

/// The texts of all tests in these files (name, text).
fn test_texts(files: &[(String, String)]) -> Vec<String> {
    let files: Vec<_> = files.iter().map(|(name, text)| (name, text, code_only(text))).collect();
    let makers: BTreeSet<String> =
        files.iter().flat_map(|(_, _, code)| functions::makers(code)).map(str::to_owned).collect();
    let mut texts = Vec::new();
    for (name, text, code) in &files {
        let named = functions::named_to_macros(code, &makers);
        let is_test = |function: &Function<'_>| {
            function.has_test_attribute()
                || named.contains(function.name)
                || (name.starts_with(CONFORMANCE) && function.is_conformance_check())
        };
        texts.extend(
            functions(text, code)
                .iter()
                .filter(|function| is_test(function))
                .map(|test| test.text.to_owned()),
        );
    }
    texts
}

/// Whether `text` has the id itself, and not only a longer one that begins with it.
fn names(text: &str, id: &str) -> bool {
    words(text, id).any(|offset| {
        let mut after = text.get(offset + id.len()..).unwrap_or_default().chars();
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
        assert!(names("// X3-10.1, X3-1.2.", "X3-10.1") && names("// X3-1.2.", "X3-1.2"));
        assert!(!names("// X3-10.10 X3-10.1a X3-10.1.2", "X3-10.1"));
    }

    #[test]
    fn only_a_tests_own_text_proves_a_row() {
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let files = [
            file(
                "crates/a/tests/b.rs",
                "//! X1-1\n\n// X1-2\n\n/// X1-3\n#[test]\nfn c() {\n    // X1-4\n}\n// X1-5\nfn d() {}",
            ),
            file(
                "crates/postrider-testkit/src/conformance/e.rs",
                "/// X1-6\npub async fn f<H>() -> Checked { }",
            ),
        ];
        let texts = test_texts(&files);
        let proved = |id: &str| texts.iter().any(|text| names(text, id));
        let found: Vec<_> = (1..=6).map(|row| format!("X1-{row}")).filter(|id| proved(id)).collect();
        assert_eq!(found, ["X1-3", "X1-4", "X1-6"]);
    }

    #[test]
    fn a_row_is_either_proved_or_open() {
        let rows = parse("# rows\nX1-1\nX1-2  the test is missing\n").unwrap();
        assert_eq!(compare(&rows, |id| id == "X1-1"), Ok("2 rows: 1 proved, 1 open".to_owned()));
        let why = compare(&rows, |id| id == "X1-2").unwrap_err();
        assert!(
            why.contains("X1-1: no test names it") && why.contains("X1-2: a test names it, and"),
            "{why}"
        );
        assert!(parse("X1-1\nX1-1  why\n").is_err());
    }
}
