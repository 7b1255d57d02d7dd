//! Finds the outbox that a command works on: a source of the configuration, or a database by its URL.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use clap::Args as ClapArgs;
use postrider::Store;

use crate::{
    config::{self, Config},
    failure::Failure,
    relay,
};

/// The outbox: a source of a configuration, or a URL.
#[derive(ClapArgs, Clone)]
pub(crate) struct Target {
    /// The configuration file
    #[arg(
        short,
        long,
        global = true,
        default_value = "postrider.yaml",
        value_name = "FILE",
        conflicts_with = "url"
    )]
    config: PathBuf,
    /// The name of the source, needed if the configuration has several
    #[arg(short, long, global = true, value_name = "NAME", conflicts_with = "url")]
    source: Option<String>,
    /// The URL of the database, without a configuration. Prefer the variable: other users can read the arguments of a process
    #[arg(long, global = true, env = "POSTRIDER_URL", hide_env_values = true, value_name = "URL")]
    url: Option<String>,
    /// The prefix of the table names at --url, if it is not postrider_
    // Without the conflict, --config would satisfy clap in place of the missing --url, and the prefix would be ignored.
    #[arg(long, global = true, value_name = "PREFIX", requires = "url", conflicts_with_all = ["config", "source"])]
    prefix: Option<String>,
}

/// An outbox that was connected to.
pub(crate) struct Outbox {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    /// Product and version of the database.
    pub(crate) what: String,
    /// The sinks that its routes go to; empty without a configuration.
    pub(crate) sinks: BTreeSet<String>,
    /// Its source in the configuration, if there is a configuration.
    pub(crate) configured: Option<Configured>,
}

/// A source with its configuration.
pub(crate) struct Configured {
    pub(crate) config: Arc<Config>,
    pub(crate) source: config::Source,
}

impl Target {
    /// The only outbox that the arguments select; an error if they select several.
    pub(crate) async fn one(&self) -> Result<Outbox, Failure> {
        let mut all = self.sources()?;
        match (all.pop(), all.is_empty()) {
            (Some(only), true) => only.connect().await,
            (None, _) => Err(Failure::usage("the configuration enables no source")),
            (Some(last), false) => {
                let names: Vec<_> = all.iter().chain([&last]).map(|source| source.name.as_str()).collect();
                Err(Failure::usage(format!("the configuration has several sources: {}", names.join(", ")))
                    .hint("choose one with --source"))
            }
        }
    }

    /// The sources that the arguments select, without connecting to them.
    pub(crate) fn sources(&self) -> Result<Vec<Named>, Failure> {
        if let Some(url) = &self.url {
            let text = serde_json::json!({ "url": url, "routes": [], "prefix": self.prefix });
            let source = serde_json::from_value(text)
                .map_err(|error| Failure::unreachable("the URL is invalid", &error))?;
            return Ok(vec![Named { name: "outbox".to_owned(), source, config: None }]);
        }
        let config = config::load(&self.config).map_err(|problems| {
            Failure::configuration(problems).hint_if_none("or give the database with --url or POSTRIDER_URL")
        })?;
        self.of(config)
    }

    fn of(&self, config: Config) -> Result<Vec<Named>, Failure> {
        let config = Arc::new(config);
        let known: Vec<_> = config.sources.keys().cloned().collect();
        let wanted = |name: &String| self.source.as_ref().is_none_or(|wanted| wanted == name);
        let named: Vec<_> = config
            .sources
            .iter()
            .filter(|(name, source)| wanted(name) && (source.enabled || self.source.is_some()))
            .map(|(name, source)| Named {
                name: name.clone(),
                source: source.clone(),
                config: Some(config.clone()),
            })
            .collect();
        match &self.source {
            Some(wanted) if named.is_empty() => {
                Err(Failure::usage(format!("the configuration has no source {wanted:?}"))
                    .hint(format!("its sources are: {}", known.join(", "))))
            }
            _ => Ok(named),
        }
    }
}

/// A source and its name.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) source: config::Source,
    config: Option<Arc<Config>>,
}

impl Named {
    /// Connects to its database.
    pub(crate) async fn connect(self) -> Result<Outbox, Failure> {
        let found = relay::find(&self.source)
            .await
            .map_err(|error| Failure::from(error).of(&format!("the source `{}`", self.name)))?;
        let sinks = self.source.routes.iter().map(|route| route.sink.value.clone()).collect();
        let source = self.source;
        let configured = self.config.map(|config| Configured { config, source });
        Ok(Outbox { name: self.name, store: found.store, what: found.what, sinks, configured })
    }
}
