//! Pauses: what an operator has told to wait.

use std::fmt;

use crate::{BoxFuture, ConfigError, Error, Pattern, Result, StoreError, StoreErrorKind, Timestamp};

/// Most pauses of an outbox at a time. Every instance knows them all, and asks about each for every event.
pub const PAUSES_MAX: usize = 256;

/// Most characters of a [`Subject`]'s name, which are as many as a key has.
pub const SUBJECT_CHARS_MAX: usize = 255;

/// What waits during a pause.
///
/// ```
/// use postrider_core::store::Subject;
///
/// let orders = Subject::event_type("Order*");
/// assert_eq!((orders.kind(), orders.name()), ("type", "Order*"));
/// assert_eq!(orders.to_string(), "the type Order*");
/// assert!(Subject::key("").check().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// Everything in this outbox.
    Source,
    /// Events whose type fits.
    Type(Pattern),
    /// Events of one key.
    Key(String),
    /// Events that go to a sink of this name.
    Sink(String),
    /// What a sink of this name rejects. An instance that sees a sink reject everything says so by such a pause: nothing more dies of it until it
    /// takes something, or until somebody says that it may.
    Rejected(String),
    /// The brake of a sink of this name: for an hour what it rejects dies, however much that is.
    Brake(String),
}

impl Subject {
    /// Events whose type fits the pattern, in which `*` stands for any text.
    pub fn event_type(pattern: impl Into<Pattern>) -> Self {
        Self::Type(pattern.into())
    }

    /// Events of one key.
    pub fn key(key: impl Into<String>) -> Self {
        Self::Key(key.into())
    }

    /// Events that go to a sink of this [name](crate::Sink::name).
    pub fn sink(name: impl Into<String>) -> Self {
        Self::Sink(name.into())
    }

    /// The word that is stored for what kind of subject it is.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Type(_) => "type",
            Self::Key(_) => "key",
            Self::Sink(_) => "sink",
            Self::Rejected(_) => "rejected",
            Self::Brake(_) => "brake",
        }
    }

    /// Which one of its kind; empty for the source, of which there is one.
    pub fn name(&self) -> &str {
        match self {
            Self::Source => "",
            Self::Type(pattern) => pattern.as_str(),
            Self::Key(name) | Self::Sink(name) | Self::Rejected(name) | Self::Brake(name) => name,
        }
    }

    /// The subject that is stored as these two.
    ///
    /// # Errors
    ///
    /// If there is no such kind: anyone who stored it knows more than this one does, and to read over it would be to send what is to wait.
    pub fn from_stored(kind: &str, name: String) -> Result<Self, StoreError> {
        match kind {
            "source" => Ok(Self::Source),
            "type" => Ok(Self::Type(Pattern::new(name))),
            "key" => Ok(Self::Key(name)),
            "sink" => Ok(Self::Sink(name)),
            "rejected" => Ok(Self::Rejected(name)),
            "brake" => Ok(Self::Brake(name)),
            other => {
                let why = format!("a pause of the kind {other:?}, which this version does not know");
                Err(StoreError::new(StoreErrorKind::Other, "cannot read the pauses", why))
            }
        }
    }

    /// An error if nothing can have this name.
    pub fn check(&self) -> Result<(), ConfigError> {
        let name = self.name();
        if *self == Self::Source || (!name.is_empty() && !name.contains('\0') && fits(name)) {
            return Ok(());
        }
        Err(ConfigError::OutOfRange {
            setting: "the name of what is to be paused",
            value: format!("{:?}", name.chars().take(SUBJECT_CHARS_MAX).collect::<String>()),
            allowed: format!("1 to {SUBJECT_CHARS_MAX} characters, none of them NUL"),
        })
    }
}

fn fits(name: &str) -> bool {
    name.chars().nth(SUBJECT_CHARS_MAX).is_none()
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source => f.write_str("the whole source"),
            Self::Rejected(name) => write!(f, "the death of what the sink {name} rejects"),
            Self::Brake(name) => write!(f, "the brake of the sink {name}, so that what it rejects dies,"),
            other => write!(f, "the {} {}", other.kind(), other.name()),
        }
    }
}

/// A pause: nothing of its subject is sent, by any instance, until it is resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// What waits.
    pub subject: Subject,
    /// Since when, on the database's clock.
    pub since: Timestamp,
    /// Why, in the words of the operator who paused it; empty if nothing was.
    pub reason: String,
}

/// What became of the wish to pause something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    /// The pause that holds. One that held already keeps its time and its reason.
    pub pause: Pause,
    /// Whether it began now.
    pub new: bool,
}

/// What a store answers that has no room for pauses.
pub(super) fn cannot<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T>> {
    let error = StoreError::new(
        StoreErrorKind::Other,
        "this store cannot be paused",
        "it has no table for pauses; stop the instances instead",
    );
    Box::pin(std::future::ready(Err(error.into())))
}

/// What a store answers that has [`PAUSES_MAX`] already.
pub fn too_many_pauses() -> Error {
    ConfigError::OutOfRange {
        setting: "pauses",
        value: format!("one more than {PAUSES_MAX}"),
        allowed: format!("{PAUSES_MAX} at a time: resume some, or pause types by a pattern"),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_comes_back_from_what_is_stored_of_it() {
        for subject in
            [Subject::Source, Subject::event_type("Order*"), Subject::key("Order:1"), Subject::sink("audit")]
        {
            let stored = Subject::from_stored(subject.kind(), subject.name().to_owned());
            assert_eq!(stored.ok(), Some(subject));
        }
        assert!(Subject::from_stored("tenant", "x".to_owned()).is_err());
    }

    #[test]
    fn a_name_that_nothing_can_have_is_refused() {
        let long = "é".repeat(SUBJECT_CHARS_MAX);
        assert!(Subject::key(&*long).check().is_ok() && Subject::Source.check().is_ok());
        for name in ["", "a\0b", &format!("{long}x")] {
            let error = Subject::sink(name).check().unwrap_err().to_string();
            assert!(error.contains("1 to 255 characters"), "{error}");
        }
    }
}
