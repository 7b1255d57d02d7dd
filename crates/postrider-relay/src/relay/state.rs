//! What the parts of a relay are doing, for those who ask.

use std::{
    collections::BTreeMap,
    mem::discriminant,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

/// What one source is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub(crate) enum SourceState {
    /// It has not been reached yet.
    Starting,
    /// Its leases are renewed, its claims succeed and its outcomes are settled.
    Delivering {
        /// What answers: product and version.
        database: String,
    },
    /// It cannot be reached, and why.
    Unreachable { reason: String },
    /// It was reached, and one of these has not succeeded for longer than a lease.
    Hindered { reason: String },
    /// It is switched off.
    Disabled,
    /// It has been shut down.
    Stopped,
}

impl SourceState {
    /// Why a relay with this source is not ready, if it is not.
    fn reason(&self) -> Option<String> {
        match self {
            Self::Delivering { .. } | Self::Disabled => None,
            Self::Starting => Some("not reached yet".to_owned()),
            Self::Unreachable { reason } | Self::Hindered { reason } => Some(reason.clone()),
            Self::Stopped => Some("shutting down".to_owned()),
        }
    }
}

/// What all sources are doing. Cloning it copies a pointer.
#[derive(Debug, Clone, Default)]
pub(crate) struct States(Arc<Mutex<BTreeMap<String, SourceState>>>);

impl States {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SourceState>> {
        // Nothing here can be left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a source is doing, and says whether that is news: another reason for the same is none, since it says how long that lasts.
    pub(crate) fn set(&self, source: &str, state: SourceState) -> bool {
        let before = self.lock().insert(source.to_owned(), state.clone());
        before.is_none_or(|before| discriminant(&before) != discriminant(&state))
    }

    /// A source that is no longer configured.
    pub(crate) fn forget(&self, source: &str) {
        self.lock().remove(source);
    }

    pub(crate) fn all(&self) -> BTreeMap<String, SourceState> {
        self.lock().clone()
    }

    /// Why the relay is not ready: a reason for each source that is not; none if it is.
    pub(crate) fn reasons(&self) -> BTreeMap<String, String> {
        self.lock().iter().filter_map(|(name, state)| Some((name.clone(), state.reason()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_ready_when_every_source_that_is_on_delivers() {
        let states = States::default();
        assert!(states.reasons().is_empty());
        states.set("off", SourceState::Disabled);
        assert!(states.set("shop", SourceState::Starting));
        assert_eq!(states.reasons().into_keys().collect::<Vec<_>>(), ["shop"]);
        let delivering = SourceState::Delivering { database: "SQLite 3".to_owned() };
        assert!(states.set("shop", delivering.clone()));
        assert!(!states.set("shop", delivering));
        assert!(states.reasons().is_empty());
        states.set("shop", SourceState::Unreachable { reason: "refused".to_owned() });
        assert_eq!(states.reasons()["shop"], "refused");
        assert!(
            states.set("shop", SourceState::Hindered { reason: "no lease was renewed for 16s".to_owned() })
        );
        assert!(
            !states.set("shop", SourceState::Hindered { reason: "no lease was renewed for 17s".to_owned() })
        );
        assert!(states.reasons()["shop"].contains("17s"));
        states.forget("shop");
        assert!(states.reasons().is_empty());
    }
}
