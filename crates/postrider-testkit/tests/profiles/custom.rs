//! A table of nobody that is known here.

use postrider_core::Store;
use postrider_sqlx::profile::{Field, Profile, Statuses};
use postrider_testkit::conformance::Checked;

use super::server::{BOTH, Came, Database, Kind, deliver};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_described_by_hand_is_delivered_from() -> Checked {
    for kind in BOTH {
        let bytes = if kind == Kind::Postgres { "bytea" } else { "longblob" };
        let ddl = format!(
            "CREATE TABLE messages (number bigint PRIMARY KEY, body {bytes} NOT NULL, customer varchar(40), state varchar(9) NOT NULL);
             INSERT INTO messages VALUES (10, 'x', 'c', 'new'), (9, 'y', 'c', 'new'), (11, 'z', NULL, 'new')"
        );
        let database = Database::new(kind, &ddl).await?;
        let statuses = Statuses {
            fresh: "new".into(),
            retry: "new".into(),
            claimed: None,
            done: "sent".into(),
            dead: "broken".into(),
        };
        let profile = Profile::custom("messages", "number", "body")?
            .column(Field::Key, "customer")?
            .status("state", statuses)?
            .event_type("message");
        let came = Came::default();
        let (store, outbox) = deliver(&database.url, profile, 3, &came).await?;
        let states = "SELECT CONCAT(number, ' ', state) FROM messages ORDER BY number";
        database.until(states, &["9 sent", "10 sent", "11 sent"]).await?;
        assert_eq!(came.lock().unwrap().get("c"), Some(&vec!["9".to_owned(), "10".to_owned()]), "{kind:?}");
        assert!(outbox.shutdown().await.released);
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_is_named_like_one_of_ours_is_not_taken_for_it() -> Checked {
    for kind in BOTH {
        let ddl = r#"CREATE TABLE messages (event_id varchar(40) PRIMARY KEY, source varchar(40) NOT NULL, error varchar(400) NOT NULL);
             INSERT INTO messages VALUES ('1', 'a', '{"poison": true}'), ('2', 'b', '{}')"#;
        let database = Database::new(kind, ddl).await?;
        let profile = Profile::custom("messages", "event_id", "error")?
            .column(Field::Key, "source")?
            .event_type("message");
        let came = Came::default();
        let (store, outbox) = deliver(&database.url, profile, 1, &came).await?;
        let left = "SELECT event_id FROM messages ORDER BY event_id";
        database.until(left, &["1"]).await?;
        database.run("INSERT INTO messages VALUES ('3', 'c', '{}'), ('4', 'd', '{}')").await?;
        database.until(left, &["1"]).await?;
        let dead: Vec<_> = store.dead(0, 10).await?.into_iter().map(|letter| letter.id.to_string()).collect();
        assert_eq!(dead, ["1"], "{kind:?}");
        assert!(outbox.shutdown().await.released);
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}
