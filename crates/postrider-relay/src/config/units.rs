//! Values with a unit: `15s`, `64MiB`, `100/s`. Only a size may be a bare number, which is in bytes.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) usize);

/// A number of events per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) events: u32,
    pub(crate) per: Duration,
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        humantime::parse_duration(text).map(Self).map_err(|error| {
            format!("{text:?} is not a duration ({error}): write a number and a unit, such as 500ms, 15s, 5m or 1h")
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

const UNITS: [(&str, usize); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a size: write a number of bytes, or a number and a unit, such as 512KiB or 64MiB"
            )
        };
        let (number, unit) = UNITS
            .iter()
            .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)))
            .unwrap_or((text, 1));
        let number: usize = number.trim().parse().map_err(|_| wrong())?;
        number.checked_mul(unit).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole =
            UNITS.iter().take(3).rev().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        match whole {
            Some((unit, bytes)) => write!(f, "{}{unit}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a rate: write a number of events and a time, such as 100/s, 5000/m or 10/500ms"
            )
        };
        let (events, per) = text.split_once('/').ok_or_else(wrong)?;
        let events: u32 = events.trim().parse().map_err(|_| wrong())?;
        let per = per.trim();
        // `/s` means `/1s`.
        let counted =
            if per.starts_with(|c: char| c.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
        let per = humantime::parse_duration(&counted).map_err(|_| wrong())?;
        if events == 0 || per.is_zero() {
            return Err(wrong());
        }
        Ok(Self { events, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.events, humantime::format_duration(self.per))
    }
}

/// Reads a value from text, or from a bare number where the type accepts one.
macro_rules! as_text {
    ($type:ty, $name:literal, $what:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $what })
            }
            fn inline_schema() -> bool {
                true
            }
        }
    };
}

as_text!(Span, "Time", "a number and a unit: `500ms`, `15s`, `5m`, `1h`");
as_text!(Size, "Size", "bytes, or a number and a unit: `512KiB`, `64MiB`");
as_text!(Rate, "Rate", "events and a time: `100/s`, `5000/m`");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_rates_are_read_with_their_units() {
        assert_eq!("15s".parse(), Ok(Span(Duration::from_secs(15))));
        assert_eq!("1h 30m".parse(), Ok(Span(Duration::from_secs(5400))));
        assert_eq!("64MiB".parse(), Ok(Size(64 << 20)));
        assert_eq!("64 MiB".parse(), Ok(Size(64 << 20)));
        assert_eq!("1000".parse(), Ok(Size(1000)));
        assert_eq!("100/s".parse(), Ok(Rate { events: 100, per: Duration::from_secs(1) }));
        assert_eq!("10/500ms".parse(), Ok(Rate { events: 10, per: Duration::from_millis(500) }));
    }

    #[test]
    fn what_is_printed_is_read_again() {
        for size in [0, 1, 1000, 1024, 65 << 20, 3 << 30] {
            assert_eq!(Size(size).to_string().parse(), Ok(Size(size)));
        }
        for millis in [1, 1500, 15_000, 90_000] {
            let span = Span(Duration::from_millis(millis));
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        let rate = Rate { events: 7, per: Duration::from_millis(1500) };
        assert_eq!(rate.to_string().parse(), Ok(rate));
    }

    #[test]
    fn what_has_no_unit_or_overflows_is_refused_with_examples() {
        for (error, example) in [
            ("15".parse::<Span>().unwrap_err(), "15s"),
            ("".parse::<Span>().unwrap_err(), "500ms"),
            ("99999999999999999999GiB".parse::<Size>().unwrap_err(), "64MiB"),
            ("-1MiB".parse::<Size>().unwrap_err(), "64MiB"),
            ("0/s".parse::<Rate>().unwrap_err(), "100/s"),
            ("100".parse::<Rate>().unwrap_err(), "100/s"),
            ("1/0s".parse::<Rate>().unwrap_err(), "100/s"),
        ] {
            assert!(error.contains(example), "{error}");
        }
    }
}
