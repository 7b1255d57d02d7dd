//! FlowCatalyst's tables.

use postrider_core::Store;
use postrider_sqlx::profile::{NullKey, Profile, ProfileStore};
use postrider_testkit::conformance::Checked;

use super::server::{BOTH, Came, Database, deliver, hang};

pub(super) const DDL: &str = "
CREATE TABLE outbox_events (
    id VARCHAR(13) PRIMARY KEY,
    type VARCHAR(20) NOT NULL,
    message_group VARCHAR(255),
    payload TEXT NOT NULL,
    status VARCHAR(20) NOT NULL,
    retry_count INT NOT NULL DEFAULT 0,
    created_at TIMESTAMP NOT NULL,
    processed_at TIMESTAMP,
    error_message TEXT
);
CREATE INDEX idx_outbox_events_status ON outbox_events(status, message_group, created_at);
CREATE TABLE outbox_dispatch_jobs (
    id VARCHAR(13) PRIMARY KEY,
    type VARCHAR(20) NOT NULL,
    message_group VARCHAR(255),
    payload TEXT NOT NULL,
    status VARCHAR(20) NOT NULL,
    retry_count INT NOT NULL DEFAULT 0,
    created_at TIMESTAMP NOT NULL,
    processed_at TIMESTAMP,
    error_message TEXT
);
CREATE INDEX idx_outbox_dispatch_jobs_status ON outbox_dispatch_jobs(status, message_group, created_at);";

/// Items of two groups and of none; the second of each fails for ever. Ids fall while times rise.
pub(super) fn items(table: &str) -> String {
    let mut sql = String::new();
    for (group, name) in [("'a'", 'A'), ("'b'", 'B'), ("NULL", 'N')] {
        for n in 0..20 {
            let payload = if n == 1 { r#"{"poison": true}"# } else { "{}" };
            sql += &format!(
                "INSERT INTO {table} (id, type, message_group, payload, status, created_at) VALUES \
                 ('{name}{:012}', 'EVENT', {group}, '{payload}', 'PENDING', '2026-01-01 10:00:{n:02}');",
                50 - n
            );
        }
    }
    sql
}

fn in_order(name: char) -> Vec<String> {
    (0..20).filter(|n| *n != 1).map(|n| format!("{name}{:012}", 50 - n)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_end_as_its_own_program_would_leave_them_and_groups_keep_their_order() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, DDL).await?;
        let tables = [
            (Profile::flowcatalyst_events(), "outbox_events"),
            (Profile::flowcatalyst_dispatch_jobs(), "outbox_dispatch_jobs"),
        ];
        for (profile, table) in tables {
            database.run(&items(table)).await?;
            let came = Came::default();
            let attempts = profile.defaults().max_attempts;
            let (store, outbox) = deliver(&database.url, profile, attempts, &came).await?;
            let count =
                format!("SELECT CONCAT(status, ' ', COUNT(*)) FROM {table} GROUP BY status ORDER BY status");
            database.until(&count, &["COMPLETED 57", "FAILED 3"]).await?;
            assert_eq!(store.stats().await?.dead, 3);
            assert!(outbox.shutdown().await.released);
            let failed = format!(
                "SELECT CONCAT(id, ' ', retry_count, ' ', error_message) FROM {table} WHERE status = 'FAILED' ORDER BY id"
            );
            let told = database.lines(&failed).await?;
            let expected = ['A', 'B', 'N'].map(|name| format!("{name}000000000049 3 cannot be delivered"));
            assert_eq!(told, expected, "{kind:?}: four sends, the last of them not counted");
            let odd = format!(
                "SELECT id FROM {table} WHERE status = 'COMPLETED' AND (processed_at IS NULL OR retry_count <> 0
                 OR error_message IS NOT NULL OR created_at > '2026-01-01 10:01:00')"
            );
            assert_eq!(database.lines(&odd).await?, Vec::<String>::new());
            let came = came.lock().unwrap().clone();
            assert_eq!(came.get("a"), Some(&in_order('A')), "{kind:?}");
            assert_eq!(came.get("b"), Some(&in_order('B')), "{kind:?}");
            assert_eq!(came.get("default"), Some(&in_order('N')), "{kind:?}: no group is a group");
            store.close().await;
        }
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_instance_that_ended_had_claimed_is_delivered_by_the_next_in_order() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, DDL).await?;
        database.run(&items("outbox_events")).await?;
        let hung = hang(&database.url, Profile::flowcatalyst_events()).await?;
        let processing =
            "SELECT CASE WHEN COUNT(*) > 0 THEN 'some' END FROM outbox_events WHERE status = 'PROCESSING'";
        database.until(processing, &["some"]).await?;
        drop(hung); // without a shutdown
        let came = Came::default();
        let (store, outbox) = deliver(&database.url, Profile::flowcatalyst_events(), 4, &came).await?;
        let count = "SELECT CONCAT(status, ' ', COUNT(*)) FROM outbox_events GROUP BY status ORDER BY status";
        database.until(count, &["COMPLETED 57", "FAILED 3"]).await?;
        assert!(outbox.shutdown().await.released);
        assert_eq!(came.lock().unwrap().get("a"), Some(&in_order('A')), "{kind:?}");
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_another_program_is_left_alone_until_it_is_old() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, DDL).await?;
        let row = |id: &str, status: &str, at: &str| {
            format!(
                "INSERT INTO outbox_events (id, type, message_group, payload, status, created_at, processed_at) VALUES \
                 ('{id}', 'EVENT', '{}', '{{}}', '{status}', '2026-01-01 10:00:0{}', {at});",
                &id[..3],
                &id[3..]
            )
        };
        let now = "CURRENT_TIMESTAMP";
        let sql = row("OLD1", "PROCESSING", "'2026-01-01 10:00:00'")
            + &row("OLD2", "PENDING", "NULL")
            + &row("NEW1", "PROCESSING", now)
            + &row("NEW2", "PENDING", "NULL");
        database.run(&sql).await?;
        let came = Came::default();
        let (store, outbox) = deliver(&database.url, Profile::flowcatalyst_events(), 4, &came).await?;
        let statuses = "SELECT CONCAT(id, ' ', status, ' ', retry_count) FROM outbox_events ORDER BY id";
        let expected = ["NEW1 PROCESSING 0", "NEW2 PENDING 0", "OLD1 COMPLETED 0", "OLD2 COMPLETED 0"];
        database.until(statuses, &expected).await?;
        let old = vec!["OLD1".to_owned(), "OLD2".to_owned()];
        assert_eq!(came.lock().unwrap().get("OLD"), Some(&old), "{kind:?}: its follower has waited");
        assert!(outbox.shutdown().await.released);
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_table_or_column_that_is_missing_is_named_at_the_start() -> Checked {
    for kind in BOTH {
        let database =
            Database::new(kind, "CREATE TABLE outbox_events (id VARCHAR(13) PRIMARY KEY, type VARCHAR(20))")
                .await?;
        let error = |told: postrider_core::Error| told.to_string();
        let told = ProfileStore::connect(&database.url, Profile::flowcatalyst_events())
            .await
            .map_err(error)
            .unwrap_err();
        assert!(told.contains("the table outbox_events has no column"), "{told}");
        let told = ProfileStore::connect(&database.url, Profile::flowcatalyst_dispatch_jobs()).await;
        let told = told.map_err(error).unwrap_err();
        assert!(told.contains("outbox_dispatch_jobs") && told.contains("does not exist"), "{told}");
        let told = Profile::flowcatalyst_events().null_key(NullKey::Unordered).table("events; DROP TABLE x");
        assert!(told.unwrap_err().to_string().contains("is not a name for a table or column"));
        database.drop().await?;
    }
    Ok(())
}
