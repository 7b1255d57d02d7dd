//! Names with `*` in them, for routes that stand for several types.

use std::fmt;

/// A name in which `*` stands for any text, also for none.
///
/// ```
/// use postrider_core::Pattern;
///
/// let orders = Pattern::new("Order*");
/// assert!(orders.matches("OrderPlaced") && orders.matches("Order"));
/// assert!(!orders.matches("PreOrder"));
/// assert!(Pattern::new("*.v*.placed").matches("order.v2.placed"));
/// assert_eq!(Pattern::new("OrderPlaced").exact(), Some("OrderPlaced"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern(String);

impl Pattern {
    /// What everything matches.
    pub const ANY: &str = "*";

    /// A pattern as it is written.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self(pattern.into())
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The only name that it matches, if there is only one.
    pub fn exact(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(&self.0)
    }

    /// Whether every name matches.
    pub fn is_any(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte == b'*')
    }

    /// Whether this name matches.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        // The first part stands at the start and the last one at the end; each of the others is found as early as can be.
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            let Some((_, after)) = rest.split_once(part) else { return false };
            rest = after;
        }
        rest.ends_with(last)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl From<&str> for Pattern {
    fn from(pattern: &str) -> Self {
        Self::new(pattern)
    }
}

impl From<String> for Pattern {
    fn from(pattern: String) -> Self {
        Self::new(pattern)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a pattern means, said slowly.
    fn slow(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => {
                (0..=name.len()).any(|skip| slow(rest, name.get(skip..).unwrap_or_default()))
            }
            Some((first, rest)) => name.split_first().is_some_and(|(c, name)| c == first && slow(rest, name)),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_its_meaning_says(pattern in "[ab*]{0,6}", name in "[ab]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(Pattern::new(&*pattern).matches(&name), slow(&chars(&pattern), &chars(&name)));
        }
    }

    #[test]
    fn stars_alone_are_any_and_names_are_exact() {
        assert!(Pattern::new("*").is_any() && Pattern::new("**").is_any());
        assert!(!Pattern::new("").is_any() && !Pattern::new("a*").is_any());
        assert_eq!((Pattern::new("a").exact(), Pattern::new("a*").exact()), (Some("a"), None));
    }
}
