//! Problems of a configuration: where, what, and what to do.

use std::{fmt, path::Path};

use serde_json::{Value, json};

use super::{Located, SecretUrl};

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Line and column, if known.
    pub(crate) at: Option<(u64, u64)>,
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { at: None, what: what.into(), hint: None }
    }

    pub(crate) fn at(mut self, text: &Located) -> Self {
        self.at = text.at;
        self
    }

    pub(crate) fn within(mut self, url: &SecretUrl) -> Self {
        self.at = url.at();
        self
    }

    /// The problem as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let (line, column) = self.at.unzip();
        json!({ "line": line, "column": column, "what": self.what, "hint": self.hint })
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// All problems of a file.
#[derive(Debug)]
pub(crate) struct Problems {
    pub(crate) file: String,
    pub(crate) list: Vec<Problem>,
}

impl Problems {
    pub(crate) fn new(file: &Path, list: Vec<Problem>) -> Self {
        Self { file: file.display().to_string(), list }
    }
}

impl fmt::Display for Problems {
    /// `file:line:column: what`, then the hint. The line itself is not shown, since it may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.list.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            match problem.at {
                Some((line, column)) => write!(f, "{}:{line}:{column}: {}", self.file, problem.what)?,
                None => write!(f, "{}: {}", self.file, problem.what)?,
            }
            if let Some(hint) = &problem.hint {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}

/// The name that is most similar to the given one, if any is similar.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(given, name), name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 > 0.75).then_some(best.1)
}

/// Names as a list for messages.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}
