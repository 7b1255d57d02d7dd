//! One number, and what was promised of it.

use std::fmt;

/// What a figure must be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Limit {
    fn is_kept(self, value: f64) -> bool {
        match self {
            Self::AtLeast(limit) => value >= limit,
            Self::AtMost(limit) => value <= limit,
            Self::Below(limit) => value < limit,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AtLeast(limit) => write!(f, "at least {}", rounded(limit)),
            Self::AtMost(limit) => write!(f, "at most {}", rounded(limit)),
            Self::Below(limit) => write!(f, "below {}", rounded(limit)),
        }
    }
}

/// One number, under the name that it has in the JSON object. Without a limit it is for information.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) name: &'static str,
    value: f64,
    limit: Option<Limit>,
}

impl Figure {
    pub(super) fn new(name: &'static str, value: f64) -> Self {
        Self { name, value, limit: None }
    }

    pub(super) fn at_least(self, limit: f64) -> Self {
        Self { limit: Some(Limit::AtLeast(limit)), ..self }
    }

    pub(super) fn at_most(self, limit: f64) -> Self {
        Self { limit: Some(Limit::AtMost(limit)), ..self }
    }

    pub(super) fn below(self, limit: f64) -> Self {
        Self { limit: Some(Limit::Below(limit)), ..self }
    }

    /// The number as it is shown. The limit is held against the whole of it.
    pub(super) fn shown(&self) -> f64 {
        rounded(self.value)
    }

    /// What was promised, in words.
    pub(super) fn limit(&self) -> Option<String> {
        self.limit.map(|limit| limit.to_string())
    }

    /// Whether the limit is kept; none if there is none.
    pub(super) fn is_kept(&self) -> Option<bool> {
        self.limit.map(|limit| limit.is_kept(self.value))
    }
}

/// Three digits that mean something, and every digit before the point.
pub(super) fn rounded(value: f64) -> f64 {
    let scale = match value.abs() {
        0.0 | 100.0.. => 1.0,
        10.0.. => 10.0,
        1.0.. => 100.0,
        0.1.. => 1000.0,
        _ => 10_000.0,
    };
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_held_against_what_was_measured_and_not_against_what_is_shown() {
        let figure = Figure::new("ratio", 0.249_96).at_least(0.25);
        assert_eq!((figure.shown(), figure.is_kept()), (0.25, Some(false)));
        assert_eq!(figure.limit().as_deref(), Some("at least 0.25"));
    }

    #[test]
    fn limits_are_kept_up_to_themselves_but_for_below() {
        let of = |value| Figure::new("x", value);
        assert_eq!(of(1.3).at_most(1.3).is_kept(), Some(true));
        assert_eq!(of(1.3).at_least(1.3).is_kept(), Some(true));
        assert_eq!(of(1.3).below(1.3).is_kept(), Some(false));
        assert_eq!(of(1.3).is_kept(), None);
    }

    #[test]
    fn what_is_not_a_number_keeps_no_limit() {
        let nothing = || Figure::new("x", f64::NAN);
        assert_eq!(nothing().at_least(0.0).is_kept(), Some(false));
        assert_eq!(nothing().at_most(1.0).is_kept(), Some(false));
        assert_eq!(nothing().below(1.0).is_kept(), Some(false));
    }

    #[test]
    fn three_digits_are_shown() {
        let shown = [1234.56, 123.456, 12.3456, 1.23456, 0.123456, 0.0123456, 0.0].map(rounded);
        assert_eq!(shown, [1235.0, 123.0, 12.3, 1.23, 0.123, 0.0123, 0.0]);
    }
}
