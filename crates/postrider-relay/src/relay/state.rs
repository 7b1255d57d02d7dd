//! The state of each source, as the readiness check reports it.

use std::{
    collections::BTreeMap,
    mem::discriminant,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;

/// The state of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub(crate) enum SourceState {
    /// Not connected yet.
    Starting,
    /// Leases are renewed, claims succeed and outcomes are settled.
    Delivering {
        /// Product and version.
        database: String,
    },
    /// The connection fails, with the reason.
    Unreachable { reason: String },
    /// Connected, but renewals, claims or settles have failed for longer than a lease.
    Hindered { reason: String },
    /// Disabled by the configuration.
    Disabled,
    /// Shut down.
    Stopped,
}

impl SourceState {
    /// Why this source makes the relay unready, if it does.
    fn reason(&self) -> Option<String> {
        match self {
            Self::Delivering { .. } | Self::Disabled => None,
            Self::Starting => Some("not connected yet".to_owned()),
            Self::Unreachable { reason } | Self::Hindered { reason } => Some(reason.clone()),
            Self::Stopped => Some("shutting down".to_owned()),
        }
    }
}

/// The states of all sources. Cloning copies a pointer.
#[derive(Debug, Clone, Default)]
pub(crate) struct States(Arc<Mutex<BTreeMap<String, SourceState>>>);

impl States {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SourceState>> {
        // Every write is a single operation, so a poisoned lock holds valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a state and returns whether it is new. Another reason for the same state is not new, because reasons contain durations.
    pub(crate) fn set(&self, source: &str, state: SourceState) -> bool {
        let before = self.lock().insert(source.to_owned(), state.clone());
        before.is_none_or(|before| discriminant(&before) != discriminant(&state))
    }

    /// Removes a source that is no longer configured.
    pub(crate) fn forget(&self, source: &str) {
        self.lock().remove(source);
    }

    pub(crate) fn all(&self) -> BTreeMap<String, SourceState> {
        self.lock().clone()
    }

    /// Why the relay is not ready: the reason of each source that is not; empty if the relay is ready.
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
