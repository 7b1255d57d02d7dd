//! Rust files, and their text without comments and literals, so that a rule sees only code.

use std::fs;
use std::path::{Path, PathBuf};

/// All `.rs` files below these folders of `root`, in order.
pub(crate) fn rust_files(root: &Path, folders: &[&str]) -> Vec<PathBuf> {
    files(root, folders, &["rs"])
}

/// All files with one of these extensions below these folders of `root`, in order. Skips hidden folders and build output.
pub(crate) fn files(root: &Path, folders: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !name.as_encoded_bytes().starts_with(b".") && !BUILT.iter().any(|built| name == *built) {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| extensions.iter().any(|one| extension == *one))
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Folders that tools fill.
const BUILT: [&str; 2] = ["target", "node_modules"];

/// The path of a file from the root of the checkout, with `/`.
pub(crate) fn name_of(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The text with comments, strings and character literals blanked. Every byte keeps its offset and every line its number.
pub(crate) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_word = code.chars().next_back().is_some_and(is_word);
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest).filter(|_| !in_word) {
            length
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' && is_character(rest) {
            quoted(rest, '\'')
        } else {
            code.push(first);
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        };
        let (gone, left) = rest.split_at_checked(skipped).unwrap_or((rest, ""));
        code.extend(gone.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        rest = left;
    }
    code
}

/// The number of the line that a byte offset is in.
pub(crate) fn line_number(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}

/// The offsets of `word` in `code` where it is a whole identifier.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(offset, _)| offset).filter(move |&offset| {
        let (before, after) = around(code, offset, word);
        !before.chars().next_back().is_some_and(is_word) && !after.chars().next().is_some_and(is_word)
    })
}

/// What stands before and after `word`, which is at `offset`.
pub(crate) fn around<'a>(code: &'a str, offset: usize, word: &str) -> (&'a str, &'a str) {
    let before = code.get(..offset).unwrap_or_default();
    (before, code.get(offset + word.len()..).unwrap_or_default())
}

pub(crate) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Bytes up to the end of a block comment; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0usize;
    let mut offset = 0;
    while let Some(rest) = text.get(offset..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            (depth, offset) = (depth + 1, offset + 2);
        } else if rest.starts_with("*/") {
            (depth, offset) = (depth - 1, offset + 2);
            if depth == 0 {
                break;
            }
        } else {
            offset += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    offset
}

/// Bytes of the raw string that begins here, if one does: `r"…"`, `br#"…"#`, `cr##"…"##`.
fn raw_string(text: &str) -> Option<usize> {
    let body = ["r", "br", "cr"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix).filter(|rest| rest.starts_with(['#', '"'])))?;
    let inside = body.trim_start_matches('#');
    let hashes = body.len() - inside.len();
    let inside = inside.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let before = text.len() - inside.len();
    Some(inside.find(&end).map_or(text.len(), |length| before + length + end.len()))
}

/// Bytes up to the closing quote, which a backslash can hide.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (offset, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if letter == quote => return offset + 1,
            _ => {}
        }
    }
    text.len()
}

/// Whether this is `'a'` or `'\n'` and not the lifetime `'a`.
fn is_character(text: &str) -> bool {
    let mut letters = text.chars().skip(1);
    match letters.next() {
        Some('\\') => true,
        Some(_) => letters.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn squeezed(text: &str) -> String {
        code_only(text).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        for (text, code) in [
            ("a // b\nc", "a c"),
            ("a /* b /* c */ d */ e", "a e"),
            (r#"f("a \" b", x)"#, "f( , x)"),
            (r##"f(r#"a " b"#, x)"##, "f( , x)"),
            (r#"f(br"\", x)"#, "f( , x)"),
            ("f('\"', 'b', '\\'', x)", "f( , , , x)"),
            ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
            ("bar(r#type)", "bar(r#type)"),
            ("\"never closed", ""),
            ("'", "'"),
        ] {
            assert_eq!(squeezed(text), code, "{text}");
        }
    }

    #[test]
    fn offsets_stay_what_they_were() {
        let text = "a \"é\" /* ö\n */ 'ü' b";
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.find('b'), text.find('b'));
    }

    #[test]
    fn lines_keep_their_numbers() {
        let code = code_only("/* 1\n2 */\n\"3\n4\"\nhere // é\n");
        let offset = words(&code, "here").next().unwrap();
        assert_eq!(line_number(&code, offset), 5);
    }

    #[test]
    fn a_word_is_a_whole_identifier() {
        assert_eq!(words("sleep resleep sleep_until x.sleep()", "sleep").collect::<Vec<_>>(), [0, 28]);
    }
}
