//! The systems that are known here.

use std::time::Duration;

use postrider_core::{Backoff, store::Defaults};

use super::{Field, Name, NullKey, Profile, Statuses, TableName};

fn columns(mut profile: Profile, columns: &[(Field, &'static str)]) -> Profile {
    profile.columns.extend(columns.iter().map(|(field, name)| (*field, Name::known(name))));
    profile
}

impl Profile {
    /// FlowCatalyst's table of events, `outbox_events`.
    pub fn flowcatalyst_events() -> Self {
        Self::flowcatalyst("outbox_events")
    }

    /// FlowCatalyst's table of dispatch jobs, `outbox_dispatch_jobs`. Its groups are other keys than those of the events.
    pub fn flowcatalyst_dispatch_jobs() -> Self {
        Self::flowcatalyst("outbox_dispatch_jobs")
    }

    fn flowcatalyst(table: &'static str) -> Self {
        let profile = columns(
            Self::bare("flowcatalyst", TableName::known(table)),
            &[
                (Field::Id, "id"),
                (Field::EventType, "type"),
                (Field::Key, "message_group"),
                (Field::Payload, "payload"),
                (Field::Status, "status"),
                (Field::Attempts, "retry_count"),
                (Field::CreatedAt, "created_at"),
                (Field::ClaimedAt, "processed_at"),
                (Field::DoneAt, "processed_at"),
                (Field::Error, "error_message"),
            ],
        );
        Self {
            statuses: Some(Statuses {
                fresh: "PENDING".into(),
                retry: "PENDING".into(),
                claimed: Some("PROCESSING".into()),
                done: "COMPLETED".into(),
                dead: "FAILED".into(),
            }),
            null_key: NullKey::Ordered("default".to_owned()),
            // There, only an item that failed for good has a message.
            tells_retry: false,
            // Three retries, at once.
            defaults: Defaults { max_attempts: 4, retry: Backoff::fixed(Duration::ZERO), ..profile.defaults },
            ..profile
        }
    }

    /// outbox-java's table, `outbox_event`, with `locked_by` and `locked_at`.
    pub fn outbox_java() -> Self {
        let profile = columns(
            Self::bare("outbox-java", TableName::known("outbox_event")),
            &[
                (Field::Id, "event_id"),
                (Field::EventType, "event_type"),
                (Field::AggregateType, "aggregate_type"),
                (Field::AggregateId, "aggregate_id"),
                (Field::TenantId, "tenant_id"),
                (Field::Payload, "payload"),
                (Field::Headers, "headers"),
                (Field::Status, "status"),
                (Field::Attempts, "attempts"),
                (Field::AvailableAt, "available_at"),
                (Field::CreatedAt, "created_at"),
                (Field::DoneAt, "done_at"),
                (Field::Error, "last_error"),
                (Field::ClaimedBy, "locked_by"),
                (Field::ClaimedAt, "locked_at"),
            ],
        );
        Self {
            statuses: Some(Statuses {
                fresh: 0.into(),
                retry: 2.into(),
                claimed: None,
                done: 1.into(),
                dead: 3.into(),
            }),
            // A Java program may be delivering them from its hot queue.
            skip_recent: Duration::from_secs(1),
            defaults: Defaults { poll_max: Duration::from_secs(5), claim_batch: 200, ..profile.defaults },
            ..profile
        }
    }

    /// outbox-java's table as its first version has it, without `locked_by` and `locked_at`.
    pub fn outbox_java_unlocked() -> Self {
        Self::outbox_java().without(Field::ClaimedBy).without(Field::ClaimedAt)
    }

    /// spring-outbox's table, `outbox_events`. Its columns are not documented: these are likely names, to be changed with
    /// [`column`](Profile::column) and [`without`](Profile::without).
    pub fn spring_outbox() -> Self {
        let profile = columns(
            Self::bare("spring-outbox", TableName::known("outbox_events")),
            &[
                (Field::Id, "id"),
                (Field::EventType, "event_type"),
                (Field::Payload, "payload"),
                (Field::Status, "status"),
                (Field::Attempts, "retry_count"),
                (Field::AvailableAt, "next_retry_at"),
                (Field::CreatedAt, "created_at"),
                (Field::ClaimedAt, "updated_at"),
                (Field::DoneAt, "updated_at"),
            ],
        );
        Self {
            statuses: Some(Statuses {
                fresh: "PENDING".into(),
                retry: "PENDING".into(),
                claimed: Some("IN_PROCESS".into()),
                done: "PROCESSED".into(),
                dead: "FAILED".into(),
            }),
            purges: true,
            defaults: Defaults {
                poll_max: Duration::from_secs(2),
                claim_batch: 50,
                max_attempts: 4,
                retry: Backoff::new(Duration::from_secs(10)).multiplier(3.0).without_cap().without_jitter(),
            },
            ..profile
        }
    }

    /// The table of Debezium's outbox router, `outboxevent`. It has no status: delivered rows are deleted, and what is dead is
    /// written down in a table of ours. It has no time either; name a column with [`Field::CreatedAt`] if yours has one.
    pub fn debezium() -> Self {
        columns(
            Self::bare("debezium", TableName::known("outboxevent")),
            &[
                (Field::Id, "id"),
                (Field::AggregateType, "aggregatetype"),
                (Field::AggregateId, "aggregateid"),
                (Field::EventType, "type"),
                (Field::Payload, "payload"),
            ],
        )
    }
}
