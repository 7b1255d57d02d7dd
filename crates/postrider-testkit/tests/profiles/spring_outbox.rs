//! spring-outbox's table, with names of its own for two columns.

use postrider_sqlx::profile::{Field, Profile};
use postrider_testkit::conformance::Checked;

use super::server::{BOTH, Came, Database, Kind, deliver, hang};

pub(super) fn ddl(kind: Kind) -> String {
    let id = if kind == Kind::Postgres { "UUID" } else { "CHAR(36)" };
    let mut sql = format!(
        "CREATE TABLE outbox_events (id {id} PRIMARY KEY, event_type VARCHAR(100) NOT NULL, body TEXT NOT NULL,
           status VARCHAR(20) NOT NULL, retry_count INT NOT NULL DEFAULT 0, next_retry_at TIMESTAMP NULL,
           created_at TIMESTAMP NOT NULL, updated_at TIMESTAMP NULL);"
    );
    for n in 0..12 {
        let payload = if n == 1 { r#"{"poison": true}"# } else { "{}" };
        sql += &format!(
            "INSERT INTO outbox_events (id, event_type, body, status, created_at) VALUES \
             ('00000000-0000-4000-8000-0000000000{n:02}', 'order', '{payload}', 'PENDING', '2026-01-01 10:00:{n:02}');"
        );
    }
    sql
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_end_processed_or_failed_also_after_a_crash() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, &ddl(kind)).await?;
        let profile = || Profile::spring_outbox().column(Field::Payload, "body");
        let hung = hang(&database.url, profile()?).await?;
        let claimed =
            "SELECT CASE WHEN COUNT(*) > 0 THEN 'some' END FROM outbox_events WHERE status = 'IN_PROCESS'";
        database.until(claimed, &["some"]).await?;
        drop(hung); // without a shutdown
        let came = Came::default();
        let (store, outbox) = deliver(&database.url, profile()?, 4, &came).await?;
        let count = "SELECT CONCAT(status, ' ', COUNT(*), ' ', SUM(retry_count)) FROM outbox_events GROUP BY status ORDER BY status";
        let expected = ["FAILED 1 3", "PROCESSED 11 0"];
        let statuses =
            "SELECT CONCAT(status, ' ', COUNT(*)) FROM outbox_events GROUP BY status ORDER BY status";
        database.until(statuses, &["FAILED 1", "PROCESSED 11"]).await?;
        assert!(outbox.shutdown().await.released);
        let found = database.lines(count).await?;
        assert_eq!(found.first().map(String::as_str), expected.first().copied(), "{kind:?}: {found:?}");
        assert_eq!(came.lock().unwrap().values().map(Vec::len).sum::<usize>(), 11, "{kind:?}");
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}
