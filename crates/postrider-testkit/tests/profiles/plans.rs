//! What a claim costs: with a system's own indexes, beside a long history, and with a long backlog.

use std::sync::Arc;

use postrider_core::{Store, store::Change};
use postrider_sqlx::profile::{Profile, ProfileStore};
use postrider_testkit::conformance::{
    Checked, Owner,
    scene::{RETENTION, settlement},
};

use super::{
    flowcatalyst, outbox_java,
    server::{BOTH, Database, Kind},
};

const ROWS: usize = 200_000;

/// So many numbers from one, as a table `n` with a column `i`.
fn numbers(kind: Kind) -> String {
    match kind {
        Kind::Postgres => format!("generate_series(1, {ROWS}) AS n(i)"),
        Kind::Mysql => format!("(SELECT seq AS i FROM seq_1_to_{ROWS}) AS n"),
    }
}

/// Items of a thousand groups, of which every `pending`th is pending.
fn items(kind: Kind, pending: usize) -> String {
    let at = match kind {
        Kind::Postgres => "timestamp '2026-01-01' + i * interval '1 second'",
        Kind::Mysql => "TIMESTAMP('2026-01-01') + INTERVAL i SECOND",
    };
    format!(
        "INSERT INTO outbox_events (id, type, message_group, payload, status, created_at)
         SELECT CONCAT('I', i), 'EVENT', CONCAT('g', i % 1000), '{{}}', CASE WHEN i % {pending} = 0 THEN 'PENDING' ELSE 'COMPLETED' END, {at}
         FROM {}; ANALYZE {} outbox_events;",
        numbers(kind),
        if kind == Kind::Mysql { "TABLE" } else { "" }
    )
}

fn events(kind: Kind) -> String {
    let at = match kind {
        Kind::Postgres => "timestamptz '2026-01-01' + i * interval '1 second'",
        Kind::Mysql => "TIMESTAMP('2026-01-01') + INTERVAL i SECOND",
    };
    format!(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, available_at, created_at)
         SELECT CONCAT('E', i), 'T', 'A', CONCAT('', i % 1000), '{{}}', CASE WHEN i % 200 = 0 THEN 0 ELSE 1 END, {at}, {at}
         FROM {}; ANALYZE {} outbox_event;",
        numbers(kind),
        if kind == Kind::Mysql { "TABLE" } else { "" }
    )
}

#[tokio::test]
async fn a_claim_beside_200000_delivered_rows_uses_the_index_of_the_system_itself() -> Checked {
    for kind in BOTH {
        let cases = [
            (
                flowcatalyst::DDL.to_owned() + &items(kind, 200),
                Profile::flowcatalyst_events(),
                "idx_outbox_events_status",
            ),
            (outbox_java::ddl(kind, true) + &events(kind), Profile::outbox_java(), "idx_status_available"),
            (
                outbox_java::ddl(kind, false) + &events(kind),
                Profile::outbox_java_unlocked(),
                "idx_status_available",
            ),
        ];
        for (sql, profile, index) in cases {
            let database = Database::new(kind, &sql).await?;
            let store = ProfileStore::connect(&database.url, profile).await?;
            store.migrate().await?;
            let plan = store.explain().await?;
            assert!(plan.contains(index) && !plan.contains("Seq Scan"), "{kind:?}: {plan}");
            let store: Arc<dyn Store> = Arc::new(store);
            let mut owner = Owner::lease(&store, "owner").await?;
            assert_eq!(owner.claim(&store, 2000, usize::MAX, &[]).await?.events.len(), 1000, "{kind:?}");
            database.drop().await?;
        }
    }
    Ok(())
}

/// Most claims are served from what was read ahead; a claim that sorted the backlog each time would make a drain quadratic.
#[tokio::test]
async fn most_claims_of_a_long_backlog_do_not_look_at_the_backlog() -> Checked {
    const CLAIMS: u64 = 40;
    for kind in BOTH {
        let database = Database::new(kind, &(flowcatalyst::DDL.to_owned() + &items(kind, 1))).await?;
        let profile = ProfileStore::connect(&database.url, Profile::flowcatalyst_events()).await?;
        profile.migrate().await?;
        let store: Arc<dyn Store> = Arc::new(profile.clone());
        let mut owner = Owner::lease(&store, "owner").await?;
        for _ in 0..CLAIMS {
            let events = owner.claim(&store, 100, usize::MAX, &[]).await?.events;
            assert_eq!(events.len(), 100, "{kind:?}");
            let done: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
            owner.settle(&store, &done, RETENTION).await?;
        }
        let windows = profile.windows_read().await;
        assert!(
            windows * 4 <= CLAIMS,
            "{kind:?}: the backlog was sorted {windows} times for {CLAIMS} claims"
        );
        database.drop().await?;
    }
    Ok(())
}
