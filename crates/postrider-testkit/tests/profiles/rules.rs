//! What a profile leaves alone, recovers, and refuses.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    Store,
    store::{Change, Claimed},
};
use postrider_sqlx::profile::{NullKey, Profile, ProfileStore};
use postrider_testkit::conformance::{
    Checked, Owner,
    scene::{RETENTION, claimed_ids, retry, settlement},
};

use super::{
    flowcatalyst, outbox_java,
    server::{BOTH, Database, Kind},
    systems::{SYSTEMS, everywhere},
};

const BYTES: usize = 1 << 20;

#[tokio::test]
async fn rows_that_a_java_program_may_still_have_in_memory_are_left_alone_for_a_second() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, &outbox_java::ddl(kind, true)).await?;
        let (now, old) = match kind {
            Kind::Postgres => ("now() + interval '60 seconds'", "now() - interval '2 seconds'"),
            Kind::Mysql => ("UTC_TIMESTAMP(6) + INTERVAL 60 SECOND", "UTC_TIMESTAMP(6) - INTERVAL 2 SECOND"),
        };
        for (id, created_at) in [("young", now), ("old", old)] {
            let insert = format!(
                "INSERT INTO outbox_event (event_id, event_type, payload, status, available_at, created_at)
                 VALUES ('{id}', 'T', '{{}}', 0, {old}, {created_at})"
            );
            database.run(&insert).await?;
        }
        let store = ProfileStore::connect(&database.url, Profile::outbox_java()).await?;
        store.migrate().await?;
        let store: Arc<dyn Store> = Arc::new(store);
        let mut owner = Owner::lease(&store, "owner").await?;
        let ids = claimed_ids(&owner.claim(&store, 10, BYTES, &[]).await?.events);
        assert_eq!(ids, ["old"], "{kind:?}");
        database.run(&format!("UPDATE outbox_event SET created_at = {old} WHERE event_id = 'young'")).await?;
        let ids = claimed_ids(&owner.claim(&store, 10, BYTES, &[]).await?.events);
        assert_eq!(ids, ["young"], "{kind:?}");
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn items_without_a_group_are_one_group_unless_they_are_said_to_have_no_order() -> Checked {
    for (kind, unordered) in BOTH.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let sql = flowcatalyst::DDL.to_owned() + &flowcatalyst::items("outbox_events");
        let database = Database::new(kind, &sql).await?;
        database.run("DELETE FROM outbox_events WHERE message_group IS NOT NULL").await?;
        let profile = Profile::flowcatalyst_events();
        let profile = if unordered { profile.null_key(NullKey::Unordered) } else { profile };
        let store = ProfileStore::connect(&database.url, profile).await?;
        store.migrate().await?;
        let store: Arc<dyn Store> = Arc::new(store);
        let mut owner = Owner::lease(&store, "owner").await?;
        let events = owner.claim(&store, 1, BYTES, &[]).await?.events;
        let [head] = events.as_slice() else { return Err("one event was asked for".into()) };
        let key = head.event.as_ref().ok().and_then(|event| event.key());
        assert_eq!(key, Some("default").filter(|_| !unordered), "{kind:?}");
        owner.settle(&store, &[settlement(head, retry(1))], Duration::ZERO).await?;
        let rest = owner.claim(&store, 100, BYTES, &[]).await?.events;
        assert_eq!(rest.len(), if unordered { 19 } else { 0 }, "{kind:?}: one that waits holds up its group");
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_claim_that_nobody_settled_is_taken_back_after_its_time_without_an_attempt() -> Checked {
    let claims = [
        (
            "flowcatalyst",
            "status = 'PROCESSING', processed_at",
            "COALESCE(message_group, '') = 'a'",
            "retry_count",
        ),
        ("outbox-java", "locked_by = 'java', locked_at", "1 = 1", "attempts"),
        ("spring-outbox", "status = 'IN_PROCESS', updated_at", "1 = 1", "retry_count"),
    ];
    for (system, kind) in everywhere() {
        let Some((_, mark, of, attempts)) = claims.iter().find(|(name, ..)| *name == system.name) else {
            continue;
        };
        for (age, recovered) in [(290, false), (310, true)] {
            let database = system.database(kind).await?;
            let at = match kind {
                Kind::Postgres => format!("now() - interval '{age} seconds'"),
                Kind::Mysql => format!("UTC_TIMESTAMP() - INTERVAL {age} SECOND"),
            };
            database.run(&format!("DELETE FROM {} WHERE NOT ({of})", system.table)).await?;
            let claim =
                format!("UPDATE {} SET {mark} = {at}, created_at = created_at WHERE {of}", system.table);
            database.run(&claim).await?;
            let store = ProfileStore::connect(&database.url, system.profile()?).await?;
            store.migrate().await?;
            let store: Arc<dyn Store> = Arc::new(store);
            let mut owner = Owner::lease(&store, "owner").await?;
            let after = store.recovery().ok_or("its claims mark rows")?.after;
            let counted = store.recover(after).await?;
            let Claimed { events, .. } = owner.claim(&store, 100, BYTES, &[]).await?;
            assert_eq!(!events.is_empty(), recovered, "{} on {kind:?}, {age} s", system.name);
            // S4-28: as many as were marked, and told once.
            let marked = format!("SELECT CONCAT(COUNT(*), '') FROM {}", system.table);
            let all: u64 = database.lines(&marked).await?.join("").parse()?;
            assert_eq!(counted, if recovered { all } else { 0 }, "{} on {kind:?}, {age} s", system.name);
            assert_eq!(store.recover(after).await?, 0);
            assert!(events.iter().all(|event| event.attempts == 0));
            let counted = format!("SELECT CONCAT(SUM({attempts}), '') FROM {}", system.table);
            assert_eq!(database.lines(&counted).await?, ["0"], "{} on {kind:?}", system.name);
            database.drop().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn rows_that_do_not_fit_into_memory_are_never_marked() -> Checked {
    let marks = [
        ("flowcatalyst", "status = 'PROCESSING'"),
        ("outbox-java", "locked_by IS NOT NULL"),
        ("spring-outbox", "status = 'IN_PROCESS'"),
    ];
    for (system, kind) in everywhere() {
        let Some((_, mark)) = marks.iter().find(|(name, _)| *name == system.name) else { continue };
        let database = system.database(kind).await?;
        let store = ProfileStore::connect(&database.url, system.profile()?).await?;
        store.migrate().await?;
        let store: Arc<dyn Store> = Arc::new(store);
        let mut owner = Owner::lease(&store, "owner").await?;
        let marked = format!("SELECT CONCAT(COUNT(*), '') FROM {} WHERE {mark}", system.table);
        let by_count = owner.claim(&store, 3, BYTES, &[]).await?;
        assert!(by_count.events.len() == 3 && by_count.more, "{} on {kind:?}", system.name);
        assert_eq!(database.lines(&marked).await?, ["3"], "{} on {kind:?}", system.name);
        // The first comes whatever its size.
        let by_bytes = owner.claim(&store, 100, 1, &[]).await?;
        assert!(by_bytes.events.len() == 1 && by_bytes.more, "{} on {kind:?}", system.name);
        assert_eq!(database.lines(&marked).await?, ["4"], "{} on {kind:?}", system.name);
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_with_its_table() -> Checked {
    for kind in BOTH {
        let database = SYSTEMS
            .iter()
            .find(|system| system.name == "debezium")
            .ok_or("it is known")?
            .database(kind)
            .await?;
        let user =
            format!("profile_{}_{}", std::process::id(), if kind == Kind::Postgres { "p" } else { "m" });
        let (scheme, rest) = database.url.split_once("://").ok_or("a URL has a scheme")?;
        let (_, place) = rest.split_once('@').ok_or("a URL names a host")?;
        let url = format!("{scheme}://{user}:open-sesame@{place}");
        let schema = database
            .lines(if kind == Kind::Postgres { "SELECT current_schema()" } else { "SELECT DATABASE()" })
            .await?;
        let schema = schema.first().ok_or("there is a schema")?;
        let (create, to) = match kind {
            Kind::Postgres => (
                format!(
                    "CREATE ROLE {user} LOGIN PASSWORD 'open-sesame'; GRANT USAGE ON SCHEMA {schema} TO {user}"
                ),
                user.clone(),
            ),
            Kind::Mysql => {
                (format!("CREATE USER {user}@'%' IDENTIFIED BY 'open-sesame'"), format!("{user}@'%'"))
            }
        };
        database.run(&create).await?;
        for (grant, missing) in [("SELECT", "UPDATE"), ("UPDATE", "DELETE")] {
            database.run(&format!("GRANT {grant} ON {schema}.outboxevent TO {to}")).await?;
            let told = ProfileStore::connect(&url, Profile::debezium())
                .await
                .map_err(|error| error.to_string())
                .unwrap_err();
            let expected = format!("the right to {missing} was not granted for the table outboxevent");
            assert!(told.contains(&expected) && !told.contains("open-sesame"), "{kind:?}: {told}");
        }
        database.run(&format!("GRANT DELETE ON {schema}.outboxevent TO {to}")).await?;
        let store = ProfileStore::connect(&url, Profile::debezium()).await?;
        let told = store.migrate().await.map_err(|error| error.to_string()).unwrap_err();
        assert!(told.contains("cannot create our tables") && told.contains("schema_sql"), "{kind:?}: {told}");
        // Anyone who may applies them; then a user who may not create tables can use them.
        database.run(&store.schema_sql()).await?;
        for ours in ["lane", "dead", "pause"] {
            let rights = "SELECT, INSERT, UPDATE, DELETE";
            database.run(&format!("GRANT {rights} ON {schema}.postrider_profile_{ours} TO {to}")).await?;
        }
        store.migrate().await?;
        store.close().await;
        let drop = match kind {
            Kind::Postgres => format!("DROP OWNED BY {user}; DROP ROLE {user}"),
            Kind::Mysql => format!("DROP USER {to}"),
        };
        database.run(&drop).await?;
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_counted_attempt_leaves_a_claim_ours_where_every_change_sets_its_time() -> Checked {
    let system = SYSTEMS.iter().find(|system| system.name == "spring-outbox").ok_or("no such system")?;
    let database = system.database(Kind::Mysql).await?;
    let changing = "ALTER TABLE outbox_events MODIFY updated_at TIMESTAMP(6) NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP(6)";
    database.run(changing).await?;
    let store = ProfileStore::connect(&database.url, system.profile()?).await?;
    store.migrate().await?;
    let store: Arc<dyn Store> = Arc::new(store);
    let mut owner = Owner::lease(&store, "owner").await?;
    let events = owner.claim(&store, 1, BYTES, &[]).await?.events;
    let [event] = events.as_slice() else { return Err("one event was asked for".into()) };
    for change in [Change::Attempt { attempts: 1 }, Change::Done] {
        let settled = owner.settle(&store, &[settlement(event, change.clone())], RETENTION).await?;
        assert_eq!(settled.applied, 1, "{change:?}");
    }
    database.drop().await
}
