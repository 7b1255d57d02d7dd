//! From the configuration of a source to its store.

use std::sync::Arc;

use postrider::{
    ConfigError, Error, Store,
    profile::{Field, NullKey, Profile, ProfileStore, Statuses, Value},
};

use crate::config::{self, Source};

/// A database that was found.
pub(crate) struct Found {
    pub(crate) store: Arc<dyn Store>,
    /// Product and version, or what somebody else's table is.
    pub(crate) what: String,
    /// Which promises hold on somebody else's table; on our own all do.
    pub(crate) promises: Option<String>,
}

/// Connects to the database of a source.
pub(crate) async fn find(source: &Source) -> Result<Found, Error> {
    let url = source.url.expose();
    if let Some(profile) = &source.profile {
        let store = ProfileStore::connect(url, profile_of(profile)?).await?;
        let promises = Some(store.guarantees());
        return Ok(Found { store: Arc::new(store), what: format!("{:?} table", profile.system), promises });
    }
    let found = postrider::connect(url).await?;
    Ok(Found { what: found.to_string(), store: found.store, promises: None })
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
    if let (Some(after), Some(every)) = (config.recovery.after, config.recovery.every) {
        profile = profile.recover(after.0, every.0);
    }
    Ok(profile)
}

fn statuses_of(config: &config::Statuses) -> Statuses {
    // A column of numbers has numbers in the file.
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
