//! From a variant's identifier to a name, and what a name may be.

/// How `rename_all` writes the words of an identifier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Case {
    Snake,
    Kebab,
    ScreamingSnake,
    Camel,
    Dot,
}

impl Case {
    /// All cases as they are written in `rename_all`.
    const ALL: [(&'static str, Case); 5] = [
        ("snake_case", Case::Snake),
        ("kebab-case", Case::Kebab),
        ("SCREAMING_SNAKE_CASE", Case::ScreamingSnake),
        ("camelCase", Case::Camel),
        ("dot.case", Case::Dot),
    ];

    /// The case of this name, or a sentence that lists those that exist.
    pub(crate) fn parse(text: &str) -> Result<Case, String> {
        Case::ALL.iter().find(|(name, _)| *name == text).map(|(_, case)| *case).ok_or_else(|| {
            let known: Vec<_> = Case::ALL.iter().map(|(name, _)| format!("{name:?}")).collect();
            format!("unknown case {text:?} for `rename_all`; allowed are {}", known.join(", "))
        })
    }

    /// The identifier in this case: `OrderPlaced` becomes `order_placed`, `order.placed`, …
    pub(crate) fn apply(self, identifier: &str) -> String {
        let words = words(identifier);
        match self {
            Case::Snake => words.join("_"),
            Case::Kebab => words.join("-"),
            Case::ScreamingSnake => words.join("_").to_uppercase(),
            Case::Dot => words.join("."),
            Case::Camel => {
                words.iter().enumerate().map(|(i, w)| if i == 0 { w.clone() } else { capital(w) }).collect()
            }
        }
    }
}

/// The words of an identifier in lower case. A word begins at an underscore, at a capital after a small
/// letter or digit, and at the last capital of a run before a small letter: `HTTPRequest` is two words.
fn words(identifier: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut previous: Option<char> = None;
    let mut rest = identifier.chars().peekable();
    while let Some(letter) = rest.next() {
        let before_small = rest.peek().is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase() && previous.is_some_and(|p| !p.is_uppercase() || before_small);
        if (letter == '_' || begins) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter != '_' {
            word.extend(letter.to_lowercase());
        }
        previous = Some(letter);
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// What the core would refuse when an event is built (`postrider_core`'s `event::limits`), said earlier.
pub(crate) fn check(name: &str, chars_max: usize) -> Result<(), String> {
    let chars = name.chars().count();
    if name.trim().is_empty() {
        Err(format!("the name is blank; allowed are 1 to {chars_max} characters that are not all spaces"))
    } else if name.contains('\0') {
        Err(format!("the name {name:?} holds NUL; any other character is allowed"))
    } else if chars > chars_max {
        Err(format!("the name has {chars} characters; allowed are at most {chars_max}"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_writes_the_words_of_an_identifier_its_own_way() {
        let written: Vec<_> = Case::ALL.iter().map(|(_, case)| case.apply("OrderPlacedTwice")).collect();
        assert_eq!(
            written,
            [
                "order_placed_twice",
                "order-placed-twice",
                "ORDER_PLACED_TWICE",
                "orderPlacedTwice",
                "order.placed.twice"
            ]
        );
    }

    #[test]
    fn words_part_at_capitals_and_underscores_and_keep_acronyms_and_digits_together() {
        for (identifier, parted) in [
            ("Order", "order"),
            ("HTTPRequest", "http request"),
            ("RequestHTTP", "request http"),
            ("Order2Placed", "order2 placed"),
            ("V2", "v2"),
            ("ABTest", "ab test"),
            ("Order_Placed", "order placed"),
            ("ORDER_PLACED", "order placed"),
            ("_Order__Placed_", "order placed"),
            ("ÉtatChangé", "état changé"),
        ] {
            assert_eq!(words(identifier).join(" "), parted, "{identifier}");
        }
    }

    #[test]
    fn camel_case_begins_small_even_after_an_acronym() {
        assert_eq!(Case::Camel.apply("HTTPRequestSent"), "httpRequestSent");
    }

    #[test]
    fn an_unknown_case_is_answered_with_those_that_exist() {
        assert_eq!(Case::parse("dot.case"), Ok(Case::Dot));
        let refusal = Case::parse("Train-Case").unwrap_err();
        assert!(Case::ALL.iter().all(|(name, _)| refusal.contains(name)), "{refusal}");
    }

    #[test]
    fn a_name_is_counted_in_characters_and_may_be_as_long_as_the_limit() {
        assert!(check(&"é".repeat(64), 64).is_ok());
        assert!(check(&"é".repeat(65), 64).unwrap_err().contains("65 characters; allowed are at most 64"));
        assert!(check(" \t", 64).unwrap_err().contains("blank"));
        assert!(check("a\0b", 64).unwrap_err().contains("NUL"));
    }
}
