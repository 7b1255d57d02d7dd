//! Knows which settings the user of a builder set, so that a store's defaults fill in only the others.

use postrider_core::store::{Defaults, Features};

use crate::{OnDead, Settings};

/// Which of the settings that a store may have defaults for were set.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExplicitSettings {
    pub(crate) claim_batch: bool,
    pub(crate) poll: bool,
    pub(crate) max_attempts: bool,
    pub(crate) on_dead: bool,
}

impl ExplicitSettings {
    pub(crate) const ALL: Self = Self { claim_batch: true, poll: true, max_attempts: true, on_dead: true };

    /// Sets the others.
    pub(crate) fn fill(self, settings: &mut Settings, features: &Features, defaults: Option<&Defaults>) {
        if !self.on_dead && !features.keeps.on_dead {
            settings.on_dead = OnDead::Skip;
        }
        let Some(defaults) = defaults else { return };
        if !self.claim_batch {
            settings.claim_batch = defaults.claim_batch;
        }
        if !self.poll {
            settings.poll_max = defaults.poll_max;
            settings.poll_min = settings.poll_min.min(defaults.poll_max);
        }
        if !self.max_attempts {
            settings.max_attempts = defaults.max_attempts;
        }
    }
}
