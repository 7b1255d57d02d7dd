//! The filter of events that several commands share: by type, by key, or both.

use clap::Args as ClapArgs;

/// Selects events by type, by key, or by both.
#[derive(ClapArgs, Clone, Default)]
pub(crate) struct FilterArgs {
    /// Select events of this type, such as OrderPlaced
    #[arg(long = "type", visible_alias = "event-type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Select events of this key, such as Order:42
    #[arg(long)]
    pub(crate) key: Option<String>,
}

impl FilterArgs {
    pub(crate) fn matches(&self, event_type: &str, key: Option<&str>) -> bool {
        self.event_type.as_ref().is_none_or(|wanted| wanted == event_type)
            && self.key.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == key)
    }
}
