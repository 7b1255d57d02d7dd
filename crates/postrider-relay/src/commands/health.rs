//! How a sink is, as it says itself.

use std::{sync::Arc, time::Duration};

use postrider::{Health, Sink};

/// How long a source or a sink may take to answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// What a sink answered to its health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Well,
    /// It has no way to be asked.
    CannotBeAsked,
    NotWell(String),
}

impl Answer {
    pub(super) async fn of(sink: &Arc<dyn Sink>) -> Self {
        match tokio::time::timeout(ANSWER_TIMEOUT, sink.health()).await {
            Ok(Health::Up) => Self::Well,
            Ok(Health::Unknown) => Self::CannotBeAsked,
            Ok(Health::Down { error }) => Self::NotWell(error),
            Err(_) => Self::NotWell(format!("no answer in {ANSWER_TIMEOUT:?}")),
        }
    }

    /// In a word or more.
    pub(super) fn told(&self) -> &str {
        match self {
            Self::Well => "well",
            Self::CannotBeAsked => "cannot be asked without sending",
            Self::NotWell(error) => error,
        }
    }

    /// Whether it is well, where that can be known.
    pub(super) fn is_well(&self) -> Option<bool> {
        match self {
            Self::Well => Some(true),
            Self::CannotBeAsked => None,
            Self::NotWell(_) => Some(false),
        }
    }
}
