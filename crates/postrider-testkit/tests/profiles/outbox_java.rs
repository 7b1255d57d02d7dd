//! outbox-java's table, with and without its lock columns.

use postrider_sqlx::profile::Profile;
use postrider_testkit::conformance::Checked;

use super::server::{BOTH, Came, Database, Kind, deliver, hang};

pub(super) fn ddl(kind: Kind, locks: bool) -> String {
    let (json, small, time) = match kind {
        Kind::Postgres => ("JSONB", "SMALLINT", "TIMESTAMPTZ"),
        Kind::Mysql => ("JSON", "TINYINT", "DATETIME(6)"),
    };
    let locks = if locks { format!(", locked_by VARCHAR(128), locked_at {time}") } else { String::new() };
    format!(
        "CREATE TABLE outbox_event (
           event_id VARCHAR(36) PRIMARY KEY, event_type VARCHAR(128) NOT NULL, aggregate_type VARCHAR(64),
           aggregate_id VARCHAR(128), tenant_id VARCHAR(64), payload {json} NOT NULL, headers {json},
           status {small} NOT NULL, attempts INT NOT NULL DEFAULT 0, available_at {time} NOT NULL,
           created_at {time} NOT NULL, done_at {time}, last_error TEXT{locks});
         CREATE INDEX idx_status_available ON outbox_event(status, available_at, created_at);"
    )
}

pub(super) fn events() -> String {
    let mut sql = String::new();
    for n in 0..20 {
        let payload = if n == 1 { r#"{"poison": true}"# } else { r#"{"n": 1}"# };
        let at = format!("'2026-01-01 10:00:{n:02}'");
        sql += &format!(
            "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, status,
             attempts, available_at, created_at) VALUES ('e{:02}', 'UserCreated', 'User', '7', 't', '{payload}', \
             '{{\"h\": \"v\"}}', 0, 0, {at}, {at});",
            50 - n
        );
    }
    sql
}

fn in_order() -> Vec<String> {
    (0..20).filter(|n| *n != 1).map(|n| format!("e{:02}", 50 - n)).collect()
}

const COUNT: &str = "SELECT CONCAT(status, ' ', COUNT(*)) FROM outbox_event GROUP BY status ORDER BY status";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_end_done_or_dead_with_and_without_lock_columns() -> Checked {
    for (kind, locks) in BOTH.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let database = Database::new(kind, &ddl(kind, locks)).await?;
        database.run(&events()).await?;
        let came = Came::default();
        let profile = if locks { Profile::outbox_java() } else { Profile::outbox_java_unlocked() };
        let (store, outbox) = deliver(&database.url, profile, 3, &came).await?;
        database.until(COUNT, &["1 19", "3 1"]).await?;
        assert!(outbox.shutdown().await.released);
        assert_eq!(came.lock().unwrap().get("User:7"), Some(&in_order()), "{kind:?}");
        let dead =
            "SELECT CONCAT(event_id, ' ', attempts, ' ', last_error) FROM outbox_event WHERE status = 3";
        assert_eq!(database.lines(dead).await?, ["e49 2 cannot be delivered"], "{kind:?}");
        let odd = "SELECT event_id FROM outbox_event WHERE status = 1 AND (done_at IS NULL OR attempts <> 0)";
        assert_eq!(database.lines(odd).await?, Vec::<String>::new());
        if locks {
            let locked =
                "SELECT event_id FROM outbox_event WHERE locked_by IS NOT NULL OR locked_at IS NOT NULL";
            assert_eq!(database.lines(locked).await?, Vec::<String>::new());
        }
        assert_eq!(store.guarantees().contains("by the lease alone"), !locks, "{}", store.guarantees());
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_locked_by_an_instance_that_ended_is_delivered_by_the_next() -> Checked {
    for (kind, locks) in BOTH.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let database = Database::new(kind, &ddl(kind, locks)).await?;
        database.run(&events()).await?;
        let profile = || if locks { Profile::outbox_java() } else { Profile::outbox_java_unlocked() };
        let hung = hang(&database.url, profile()).await?;
        if locks {
            let locked = "SELECT CASE WHEN COUNT(*) > 0 THEN 'some' END FROM outbox_event WHERE locked_by LIKE 'postrider-%'";
            database.until(locked, &["some"]).await?;
        }
        drop(hung); // without a shutdown
        let came = Came::default();
        let (store, outbox) = deliver(&database.url, profile(), 3, &came).await?;
        database.until(COUNT, &["1 19", "3 1"]).await?;
        assert!(outbox.shutdown().await.released);
        assert_eq!(came.lock().unwrap().get("User:7"), Some(&in_order()), "{kind:?}");
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}
