//! The functions of a Rust file, each with its attributes and comments, and which of them are tests.

use crate::source::{around, is_word, words};
use std::collections::BTreeSet;

/// One function, from its first attribute or comment to its closing brace.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    /// All of it, comments included.
    pub(crate) text: &'a str,
    /// Attributes and signature without comments and literals.
    head: &'a str,
}

impl Function<'_> {
    /// It has `#[test]`, `#[tokio::test]` or the like.
    pub(crate) fn has_test_attribute(&self) -> bool {
        makes_tests(self.head)
    }

    /// It returns what every check of the conformance suites returns.
    pub(crate) fn is_conformance_check(&self) -> bool {
        self.head.split_once("->").is_some_and(|(_, result)| words(result, "Checked").next().is_some())
    }
}

/// The functions of a file, those inside other functions included. `code` is [`code_only`](crate::source::code_only) of `text`.
pub(crate) fn functions<'a>(text: &'a str, code: &'a str) -> Vec<Function<'a>> {
    words(code, "fn").filter_map(|keyword| function(text, code, keyword)).collect()
}

fn function<'a>(text: &'a str, code: &'a str, keyword: usize) -> Option<Function<'a>> {
    let after = code.get(keyword + 2..)?;
    let name = after.trim_start();
    let name = name.get(..name.find(|letter| !is_word(letter))?).filter(|name| !name.is_empty())?;
    let body = keyword + body_start(code.get(keyword..)?)?;
    let end = body + block_length(code.get(body..)?)?;
    let start = with_lines_above(text, code, keyword);
    Some(Function { name, text: text.get(start..end)?, head: code.get(start..body)? })
}

/// The offset of the brace that opens the body. A function without one has none.
fn body_start(code: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, letter) in code.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            '{' if depth == 0 => return Some(offset),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The bytes up to the brace that closes the first one.
fn block_length(code: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, letter) in code.char_indices() {
        match letter {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Where the comments and attributes right above the line of `offset` begin.
fn with_lines_above(text: &str, code: &str, offset: usize) -> usize {
    let line_start = |offset: usize| around(text, offset, "").0.rfind('\n').map_or(0, |end| end + 1);
    let mut start = line_start(offset);
    let mut top = start;
    while top > 0 {
        let above = line_start(top - 1);
        let line = text.get(above..top).unwrap_or_default().trim();
        let of_code = code.get(above..top).unwrap_or_default().trim();
        if line.starts_with("//") || line.starts_with("#[") {
            (start, top) = (above, above);
        } else if !of_code.is_empty() && !of_code.contains([';', '{', '}']) {
            // Perhaps the rest of an attribute of several lines: kept if its beginning comes.
            top = above;
        } else {
            break;
        }
    }
    start
}

/// The names that a file gives to macros which make tests of functions. `makers` are the names of such macros.
pub(crate) fn named_to_macros<'a>(code: &'a str, makers: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for maker in makers {
        for offset in words(code, maker) {
            let after = around(code, offset, maker).1;
            let defined = around(code, offset, maker).0.trim_end().ends_with("macro_rules!");
            let Some(block) = after.strip_prefix('!').or(defined.then_some(after)) else { continue };
            let Some(block) = block.get(..block_length(block).unwrap_or(0)) else { continue };
            names.extend(block.split(|letter| !is_word(letter)));
        }
    }
    names
}

/// The names of the macros in this file that make tests.
pub(crate) fn makers(code: &str) -> Vec<&str> {
    words(code, "macro_rules")
        .filter_map(|offset| {
            let after = around(code, offset, "macro_rules").1.strip_prefix('!')?.trim_start();
            let block = after.get(..block_length(after)?)?;
            let name = after.get(..after.find(|letter| !is_word(letter))?)?;
            makes_tests(block).then_some(name)
        })
        .collect()
}

/// `#[test…` or `#[…::test…`.
fn makes_tests(code: &str) -> bool {
    words(code, "test").any(|offset| {
        let before = around(code, offset, "").0.trim_end();
        before.ends_with("#[")
            || before.strip_suffix("::").is_some_and(|path| {
                path.trim_end_matches(|letter| is_word(letter) || letter == ':').ends_with("#[")
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::code_only;

    fn tests(text: &str) -> Vec<&str> {
        let code = code_only(text);
        let tests = functions(text, &code).into_iter().filter(Function::has_test_attribute);
        tests
            .map(|test| text.get(text.find(test.text).unwrap()..).unwrap().get(..test.text.len()).unwrap())
            .collect()
    }

    #[test]
    fn a_test_is_its_comments_attributes_name_and_body_and_nothing_else() {
        let test = "/// Why.\n#[tokio::test(\n    start_paused = true\n)]\n// Then.\nasync fn a() -> [u8; 2] {\n    \"}\"; { b }\n}";
        let text =
            format!("// Of the file.\n\nfn helper() {{}}\n{test}\n// After.\n#[cfg(test)]\nfn c() {{}}\n");
        assert_eq!(tests(&text), [test]);
    }

    #[test]
    fn only_a_test_attribute_makes_a_test() {
        assert_eq!(tests("#[test] fn a() {}").len(), 1);
        assert_eq!(tests("#[cfg(test)] fn a() {}\nfn test() {}\n#[test_case]\nfn b() {}").len(), 0);
        assert_eq!(tests("trait A { #[test] fn a(); }").len(), 0);
    }

    #[test]
    fn functions_that_a_macro_makes_tests_of_are_named_in_it() {
        let text = "macro_rules! each { ($($name:ident)*) => { $(#[test] fn $name() { super::$name() })* } }\n\
                    macro_rules! other { () => {} }\neach![one two];\nother![three];";
        let code = code_only(text);
        assert_eq!(makers(&code), ["each"]);
        let named = named_to_macros(&code, &BTreeSet::from(["each".to_owned()]));
        assert!(named.contains("one") && named.contains("two") && !named.contains("three"));
    }

    #[test]
    fn a_conformance_check_is_known_by_what_it_returns() {
        let text = "pub async fn a<H: B>() -> Checked { }\nfn c(checked: Checked) -> u8 { 1 }";
        let code = code_only(text);
        let checks: Vec<_> = functions(text, &code).iter().map(Function::is_conformance_check).collect();
        assert_eq!(checks, [true, false]);
    }
}
