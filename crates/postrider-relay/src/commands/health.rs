//! Asks a sink for its health.

use std::{sync::Arc, time::Duration};

use postrider::{Health, Sink};

/// How long a source or a sink may take to answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The answer of a sink to its health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Well,
    /// The sink has no health check.
    CannotBeAsked,
    NotWell(String),
}

impl Answer {
    pub(super) async fn of(sink: &Arc<dyn Sink>) -> Self {
        match tokio::time::timeout(ANSWER_TIMEOUT, sink.health()).await {
            Ok(Health::Up) => Self::Well,
            Ok(Health::Unknown) => Self::CannotBeAsked,
            Ok(Health::Down { error }) => Self::NotWell(error),
            Err(_) => Self::NotWell(format!("no answer within {ANSWER_TIMEOUT:?}")),
        }
    }

    /// The answer in a few words.
    pub(super) fn describe(&self) -> &str {
        match self {
            Self::Well => "well",
            Self::CannotBeAsked => "has no health check",
            Self::NotWell(error) => error,
        }
    }

    /// Whether the sink is well; `None` if it has no health check.
    pub(super) fn is_well(&self) -> Option<bool> {
        match self {
            Self::Well => Some(true),
            Self::CannotBeAsked => None,
            Self::NotWell(_) => Some(false),
        }
    }
}
