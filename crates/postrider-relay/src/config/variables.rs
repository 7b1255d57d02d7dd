//! Checks the variables in a configuration's text before YAML fills them in, because YAML would read an unset one as nothing.

use std::collections::HashMap;

use super::Problem;

/// Reports variables that are not set and have no default, and dollar signs that begin no variable.
pub(super) fn check(text: &str, variables: &HashMap<String, String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let mut rest = without_comment(content);
        let mut column = 1;
        while let Some((before, after)) = rest.split_once('$') {
            column += before.chars().count() as u64;
            let (length, what) = dollar(after, variables);
            problems.extend(what.map(|problem| Problem { at: Some((line, column)), ..problem }));
            column += 1 + length as u64;
            rest = after.get(length..).unwrap_or_default();
        }
    }
    problems
}

/// How many characters after a dollar sign belong to it, and what is wrong with them.
fn dollar(after: &str, variables: &HashMap<String, String>) -> (usize, Option<Problem>) {
    if after.starts_with('$') {
        return (1, None);
    }
    let Some(inner) = after.strip_prefix('{') else {
        let problem = Problem::new("a dollar sign begins no variable")
            .hint("write ${NAME} for a variable, $$ for a dollar sign");
        return (0, Some(problem));
    };
    let name_end = inner.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(inner.len());
    let (name, tail) = inner.split_at(name_end);
    let length = 1 + name_end;
    let unset = tail.starts_with('}') && !variables.contains_key(name);
    let problem = unset.then(|| {
        Problem::new(format!("the variable {name} is not set"))
            .hint(format!("set it, or give a default: ${{{name}:-default}}"))
    });
    (length, problem)
}

/// A line up to its comment, which begins with a `#` at the start or after a space, outside of quotes.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (place, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') if before.is_whitespace() => return line.get(..place).unwrap_or(line),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        before = c;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<(Option<(u64, u64)>, String)> {
        let variables = [("SET".to_owned(), "x".to_owned())].into();
        check(text, &variables).into_iter().map(|problem| (problem.at, problem.what)).collect()
    }

    #[test]
    fn a_variable_that_is_not_set_is_told_with_its_place() {
        assert_eq!(
            problems("a: 1\nb: \"é${SET}${UNSET}\""),
            [(Some((2, 12)), "the variable UNSET is not set".to_owned())]
        );
        assert_eq!(problems("a: ${UNSET:-x} ${UNSET-x} ${UNSET:?why} ${SET}"), []);
    }

    #[test]
    fn a_dollar_that_begins_no_variable_is_told() {
        assert_eq!(problems("a: pa$word"), [(Some((1, 6)), "a dollar sign begins no variable".to_owned())]);
        assert_eq!(
            problems("a: pa$$word\nb: $"),
            [(Some((2, 4)), "a dollar sign begins no variable".to_owned())]
        );
    }

    #[test]
    fn comments_are_left_alone() {
        assert_eq!(problems("# ${UNSET}\na: b # ${UNSET} $x\n"), []);
        assert_eq!(
            problems("a: 'b # ${UNSET}'"),
            [(Some((1, 9)), "the variable UNSET is not set".to_owned())]
        );
    }
}
