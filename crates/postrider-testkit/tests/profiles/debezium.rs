//! The table of Debezium's outbox router.

use postrider_core::Store;
use postrider_sqlx::profile::Profile;
use postrider_testkit::conformance::Checked;

use super::server::{BOTH, Came, Database, Kind, deliver, hang};

pub(super) fn ddl(kind: Kind) -> String {
    let (id, json) = if kind == Kind::Postgres { ("uuid", "jsonb") } else { ("char(36)", "json") };
    let mut sql = format!(
        "CREATE TABLE outboxevent (id {id} NOT NULL PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
           aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload {json});"
    );
    for n in 0..12 {
        let payload = if n == 1 { r#"{"poison": true}"# } else { "{}" };
        sql += &format!(
            "INSERT INTO outboxevent VALUES ('00000000-0000-4000-8000-0000000000{n:02}', 'Order', '1', 'Placed', '{payload}');"
        );
    }
    sql
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivered_rows_are_deleted_and_a_dead_one_stays_until_it_is_redriven_or_discarded() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, &ddl(kind)).await?;
        drop(hang(&database.url, Profile::debezium()).await?); // without a shutdown
        let came = Came::default();
        let (store, outbox) = deliver(&database.url, Profile::debezium(), 3, &came).await?;
        let dead = "00000000-0000-4000-8000-000000000001";
        let left = "SELECT CONCAT(event_id, ' ', attempts, ' ', error) FROM postrider_profile_dead";
        database.until(left, &[&format!("{dead} 3 cannot be delivered")]).await?;
        let count = "SELECT CONCAT(COUNT(*), '') FROM outboxevent";
        database.until(count, &["1"]).await?;
        let expected: Vec<String> = (0..12)
            .filter(|n| *n != 1)
            .map(|n| format!("00000000-0000-4000-8000-0000000000{n:02}"))
            .collect();
        assert_eq!(came.lock().unwrap().get("Order:1"), Some(&expected), "{kind:?}: ids that rise");
        let letters = store.dead(0, 10).await?;
        assert_eq!(letters.iter().map(|letter| letter.id.to_string()).collect::<Vec<_>>(), [dead]);
        assert_eq!(store.redrive(&[dead.into()]).await?, 1);
        database.until(left, &[&format!("{dead} 3 cannot be delivered")]).await?;
        assert_eq!(store.discard(&[dead.into()]).await?, 1);
        database.until(count, &["0"]).await?;
        assert!(outbox.shutdown().await.released);
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}
