//! The systems that are known, each with its own DDL and rows, for tests that go over all of them.

use postrider_sqlx::profile::{Field, Profile};
use postrider_testkit::conformance::Failure;

use super::{
    debezium, flowcatalyst, outbox_java,
    server::{BOTH, Database, Kind},
    spring_outbox,
};

/// A known system.
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) table: &'static str,
    profile: fn() -> Profile,
    /// Its DDL, and at least a dozen rows written with its own SQL.
    sql: fn(Kind) -> String,
}

impl System {
    pub(super) async fn database(&self, kind: Kind) -> Result<Database, Failure> {
        Database::new(kind, &(self.sql)(kind)).await
    }

    pub(super) fn profile(&self) -> Result<Profile, Failure> {
        let profile = (self.profile)();
        Ok(if self.name == "spring-outbox" { profile.column(Field::Payload, "body")? } else { profile })
    }
}

pub(super) const SYSTEMS: [System; 5] = [
    System {
        name: "flowcatalyst",
        table: "outbox_events",
        profile: Profile::flowcatalyst_events,
        sql: |_| flowcatalyst::DDL.to_owned() + &flowcatalyst::items("outbox_events"),
    },
    System {
        name: "outbox-java",
        table: "outbox_event",
        profile: Profile::outbox_java,
        sql: |kind| outbox_java::ddl(kind, true) + &outbox_java::events(),
    },
    System {
        name: "outbox-java, no locks",
        table: "outbox_event",
        profile: Profile::outbox_java_unlocked,
        sql: |kind| outbox_java::ddl(kind, false) + &outbox_java::events(),
    },
    System {
        name: "spring-outbox",
        table: "outbox_events",
        profile: Profile::spring_outbox,
        sql: spring_outbox::ddl,
    },
    System { name: "debezium", table: "outboxevent", profile: Profile::debezium, sql: debezium::ddl },
];

/// Every system on both databases.
pub(super) fn everywhere() -> impl Iterator<Item = (&'static System, Kind)> {
    SYSTEMS.iter().flat_map(|system| BOTH.map(|kind| (system, kind)))
}
