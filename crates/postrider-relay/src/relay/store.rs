//! Opens the store of a source.

use std::sync::Arc;

use postrider::{
    ConfigError, ConnectOptions, Error, Prefix, Store,
    profile::{Field, NullKey, Profile, ProfileStore, Statuses, Times, Value},
};

use crate::config::{self, BuiltIn, Order, Source};

/// An open store and what is known of its database.
pub(crate) struct Found {
    pub(crate) store: Arc<dyn Store>,
    /// Product and version, or the system that owns an external table.
    pub(crate) what: String,
    /// The promises that hold, if not all of them do; docs/guarantees.md lists them.
    pub(crate) promises: Option<String>,
}

/// Connects to the database of a source.
pub(crate) async fn find(source: &Source) -> Result<Found, Error> {
    let url = source.url.expose();
    if let Some(profile) = &source.profile {
        let store = ProfileStore::connect(url, profile_of(profile)?).await?;
        let promises = Some(store.guarantees());
        return Ok(Found {
            store: Arc::new(store),
            what: format!("{} table", profile.system.name()),
            promises,
        });
    }
    let found = options(source)?.connect(url).await?;
    Ok(Found { what: found.to_string(), promises: promises(found.product, source), store: found.store })
}

/// The promise that our own tables weaken, because of the product or of a setting.
fn promises(product: &str, source: &Source) -> Option<String> {
    let weaker = match (source.order, product) {
        (Some(Order::Ignored), _) => "the order of a key, which is not kept (`order: ignored`)",
        (_, "MySQL" | "MariaDB") => {
            "the order of events that commit more than a minute after they were written"
        }
        _ => return None,
    };
    Some(format!("all, but for {weaker}"))
}

/// The SQL of the tables that are created for a source: our own, or the small ones beside an external one.
pub(crate) fn schema_sql(source: &Source) -> Result<String, Error> {
    match &source.profile {
        Some(profile) => Ok(profile_of(profile)?.schema_sql(source.url.expose())?),
        None => options(source)?.schema_sql(source.url.expose()),
    }
}

/// The grants of a writer, a relay and an operator; `None` where the database has no users.
pub(crate) fn grants_sql(
    source: &Source,
    writer: &str,
    relay: &str,
    operator: &str,
) -> Result<Option<String>, Error> {
    let url = source.url.expose();
    match &source.profile {
        Some(profile) => Ok(Some(profile_of(profile)?.grants_sql(url, relay, operator)?)),
        None => options(source)?.grants_sql(url, writer, relay, operator),
    }
}

/// How to open Postrider's own tables of a source.
fn options(source: &Source) -> Result<ConnectOptions, ConfigError> {
    let mut options = ConnectOptions::default();
    if let Some(prefix) = &source.prefix {
        options = options.prefix(Prefix::new(&prefix.value)?);
    }
    if let Some(lanes) = source.lanes {
        options = options.lanes(lanes);
    }
    if let Some(pooled) = source.pooled {
        options = options.pooled(pooled);
    }
    Ok(options)
}

/// Checks a source without connecting.
pub(super) fn check(source: &Source) -> Result<(), Error> {
    // A name that cannot be used fails here too.
    schema_sql(source).map(|_| ())
}

/// When rows of an external table are left alone and when they are given back; `None` for our own tables.
pub(crate) fn times(source: &Source) -> Result<Option<Times>, ConfigError> {
    source.profile.as_ref().map(|profile| Ok(profile_of(profile)?.times())).transpose()
}

/// The built-in settings of a source.
pub(crate) fn built_in(source: &Source) -> Result<BuiltIn, ConfigError> {
    match &source.profile {
        Some(profile) => Ok(BuiltIn::of_system(profile_of(profile)?.defaults())),
        None => Ok(BuiltIn::own()),
    }
}

pub(super) fn profile_of(config: &config::Profile) -> Result<Profile, ConfigError> {
    use config::System;
    let column = |column| config.columns.get(&column).map(|name| name.value.as_str()).unwrap_or_default();
    let mut profile = match config.system {
        System::Flowcatalyst => Profile::flowcatalyst_events(),
        System::FlowcatalystDispatchJobs => Profile::flowcatalyst_dispatch_jobs(),
        System::OutboxJava => Profile::outbox_java(),
        System::OutboxJavaUnlocked => Profile::outbox_java_unlocked(),
        System::SpringOutbox => Profile::spring_outbox(),
        System::Debezium => Profile::debezium(),
        System::Custom => Profile::custom(
            config.table.as_ref().map(|table| table.value.as_str()).unwrap_or_default(),
            column(config::Column::Id),
            column(config::Column::Payload),
        )?,
    };
    if let Some(table) = &config.table {
        profile = profile.table(&table.value)?;
    }
    for column in &config.without {
        profile = profile.without(field(*column));
    }
    for (column, name) in &config.columns {
        profile = profile.column(field(*column), &name.value)?;
    }
    if let Some(statuses) = &config.statuses {
        profile = profile.status(column(config::Column::Status), statuses_of(statuses))?;
    }
    if let Some(event_type) = &config.event_type {
        profile = profile.event_type(event_type);
    }
    match &config.null_key {
        Some(config::NullKey::Unordered) => profile = profile.null_key(NullKey::Unordered),
        Some(config::NullKey::Ordered(name)) => profile = profile.null_key(NullKey::Ordered(name.clone())),
        None => {}
    }
    if let Some(age) = config.skip_recent {
        profile = profile.skip_recent(age.0);
    }
    if let Some(beside) = &config.beside {
        profile = profile.beside(&beside.value)?;
    }
    let times = profile.times();
    let or = |setting: Option<config::Span>, usual| setting.map_or(usual, |span| span.0);
    profile = profile.recover(
        or(config.recovery.after, times.recover_after),
        or(config.recovery.every, times.recover_every),
    );
    Ok(profile)
}

fn statuses_of(config: &config::Statuses) -> Statuses {
    // A numeric column has numbers in the configuration.
    let value = |text: &String| text.parse().map_or_else(|_| Value::Text(text.clone()), Value::Number);
    Statuses {
        fresh: value(&config.fresh),
        retry: value(config.retry.as_ref().unwrap_or(&config.fresh)),
        claimed: config.claimed.as_ref().map(value),
        done: value(&config.done),
        dead: value(&config.dead),
    }
}

fn field(column: config::Column) -> Field {
    use config::Column;
    match column {
        Column::Id => Field::Id,
        Column::EventType => Field::EventType,
        Column::AggregateType => Field::AggregateType,
        Column::AggregateId => Field::AggregateId,
        Column::Key => Field::Key,
        Column::TenantId => Field::TenantId,
        Column::Headers => Field::Headers,
        Column::Payload => Field::Payload,
        Column::Status => Field::Status,
        Column::Attempts => Field::Attempts,
        Column::AvailableAt => Field::AvailableAt,
        Column::CreatedAt => Field::CreatedAt,
        Column::DoneAt => Field::DoneAt,
        Column::Error => Field::Error,
        Column::ClaimedBy => Field::ClaimedBy,
        Column::ClaimedAt => Field::ClaimedAt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_weaker_on_our_own_tables_is_said() {
        let source = |more: &str| {
            let text = format!("{{ \"url\": \"shop.db\", \"routes\": []{more} }}");
            serde_json::from_str::<Source>(&text).unwrap()
        };
        let (kept, ignored) = (source(""), source(", \"order\": \"ignored\""));
        assert_eq!(promises("SQLite", &kept), None);
        assert_eq!(promises("PostgreSQL", &kept), None);
        assert!(promises("MariaDB", &kept).unwrap().contains("more than a minute"));
        assert!(promises("MySQL", &kept).unwrap().contains("more than a minute"));
        assert!(promises("PostgreSQL", &ignored).unwrap().contains("not kept"));
    }
}
