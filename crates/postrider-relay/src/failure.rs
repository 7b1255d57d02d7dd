//! The error of a subcommand that could not run: what went wrong, the cause, a hint, and the exit status.

use std::{error::Error as StdError, fmt, process::ExitCode};

use postrider::{Error, SchemaError, sink::error_chain};
use serde_json::{Value, json};

use crate::config::Problems;

/// The error of a subcommand that could not run, or not to its end.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    what: String,
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Bad = 1,
    Usage = 2,
    Unreachable = 3,
}

impl Failure {
    /// The command ran and failed. Exit status 1.
    pub fn bad(what: impl Into<String>) -> Self {
        Self { status: Status::Bad, what: what.into(), hint: None }
    }

    /// Wrong usage or configuration. Exit status 2.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { status: Status::Usage, what: what.into(), hint: None }
    }

    /// An invalid configuration. Exit status 2.
    pub(crate) fn configuration(problems: Problems) -> Self {
        Self::usage(problems.to_string())
    }

    /// Puts the place where it happened in front of the message.
    pub(crate) fn of(mut self, place: &str) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// Something could not be reached or used. The message ends with all causes of `error`. Exit status 3.
    pub fn unreachable(what: impl fmt::Display, error: &(dyn StdError + 'static)) -> Self {
        Self { status: Status::Unreachable, what: format!("{what}: {}", error_chain(error)), hint: None }
    }

    /// Something was reached and cannot be used. Exit status 3.
    pub fn unusable(what: impl Into<String>) -> Self {
        Self { status: Status::Unreachable, what: what.into(), hint: None }
    }

    /// Adds a hint unless there is one.
    pub(crate) fn hint_if_none(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Adds a hint: what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The failure as JSON.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "what": self.what, "hint": self.hint })
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status as u8)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Store(_) | Error::Schema(_) => Status::Unreachable,
            _ => Status::Usage,
        };
        let missing = matches!(error, Error::Schema(SchemaError::Missing { .. }));
        let hint = missing.then(|| "create the tables with `postrider init`".to_owned());
        Self { status, what: error_chain(&error), hint }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::unreachable("the database failed", &error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  hint: {hint}"))
    }
}
