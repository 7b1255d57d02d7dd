//! Why a subcommand could not run: what went wrong, the cause, what to do, and the exit status.

use std::{error::Error as StdError, fmt, process::ExitCode};

use postrider::{Error, SchemaError, sink::error_chain};
use serde_json::{Value, json};

use crate::config::Problems;

/// A subcommand that could not run, or not to its end.
#[derive(Debug)]
pub(crate) struct Failure {
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
    /// It ran, and there is no good verdict to give.
    pub(crate) fn bad(what: impl Into<String>) -> Self {
        Self { status: Status::Bad, what: what.into(), hint: None }
    }

    /// It was asked for something that cannot be.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { status: Status::Usage, what: what.into(), hint: None }
    }

    /// A configuration that cannot be used.
    pub(crate) fn configuration(problems: Problems) -> Self {
        Self::usage(problems.to_string())
    }

    /// Says of what it was.
    pub(crate) fn of(mut self, place: &str) -> Self {
        self.what = format!("{place}: {}", self.what);
        self
    }

    /// Something could not be reached or used.
    pub(crate) fn unreachable(what: impl fmt::Display, error: &(dyn StdError + 'static)) -> Self {
        Self { status: Status::Unreachable, what: format!("{what}: {}", error_chain(error)), hint: None }
    }

    /// It was reached, and cannot be used.
    pub(crate) fn unusable(what: impl Into<String>) -> Self {
        Self { status: Status::Unreachable, what: what.into(), hint: None }
    }

    /// With what to do about it, unless that is said already.
    pub(crate) fn hint_if_none(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// With what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What went wrong, for programs.
    pub(crate) fn told(&self) -> Value {
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
        let hint = missing.then(|| "make the tables with `postrider init`".to_owned());
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
