//! Which events a command is about.

use clap::Args as ClapArgs;

/// Only events of a type, of a key, or both.
#[derive(ClapArgs, Clone, Default)]
pub(crate) struct Which {
    /// Only those of this type
    #[arg(long = "type", visible_alias = "event-type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,
    /// Only those of this key
    #[arg(long)]
    pub(crate) key: Option<String>,
}

impl Which {
    pub(crate) fn fits(&self, event_type: &str, key: Option<&str>) -> bool {
        self.event_type.as_ref().is_none_or(|wanted| wanted == event_type)
            && self.key.as_ref().is_none_or(|wanted| Some(wanted.as_str()) == key)
    }
}
