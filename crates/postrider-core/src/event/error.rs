//! What can be wrong with an event before it is written.

use std::{error, fmt};

/// Why an event could not be built. Nothing was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventError {
    /// A field is larger than its limit.
    TooLong {
        /// The field.
        field: &'static str,
        /// Its size.
        size: usize,
        /// The largest size it may have.
        limit: usize,
        /// What both are counted in.
        unit: &'static str,
    },
    /// A field that must say something is empty or only white space.
    Blank {
        /// The field.
        field: &'static str,
    },
    /// A text holds a NUL character, which not every database can store.
    Nul {
        /// The field.
        field: &'static str,
    },
    /// Both `available_at` and `deliver_after` were given.
    BothTimes,
    /// A trace context that is not in the W3C form.
    TraceContext {
        /// What was given.
        value: String,
    },
    /// The payload could not be serialised.
    Serialise {
        /// The type of the event.
        event_type: String,
        /// Why not.
        source: serde_json::Error,
    },
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { field, size, limit, unit } => {
                write!(f, "{field} is {size} {unit} long; at most {limit} {unit} fit")?;
                match *field {
                    "payload" => f.write_str(": store the content elsewhere and send a reference to it"),
                    _ => Ok(()),
                }
            }
            Self::Blank { field } => write!(f, "{field} is blank: give it a name"),
            Self::Nul { field } => {
                write!(f, "{field} contains a NUL character, which databases refuse in text: remove it")
            }
            Self::BothTimes => {
                f.write_str("both available_at and deliver_after are set: choose a point in time or a delay")
            }
            Self::TraceContext { value } => write!(
                f,
                "traceparent {value:?} is not a W3C trace context: expected 00-<32 hex digits>-<16 hex digits>-<2 hex digits>"
            ),
            Self::Serialise { event_type, .. } => {
                write!(f, "the payload of the event {event_type:?} cannot be serialised to JSON")
            }
        }
    }
}

impl error::Error for EventError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Serialise { source, .. } => Some(source),
            _ => None,
        }
    }
}
