//! Error texts that a table cannot store as they are: in another script than its encoding has, and longer than its column.

use std::time::Duration;

use postrider::{Delivery, OnDead, Outbox, Outcome};
use postrider_sqlx::profile::{Profile, ProfileStore};
use postrider_testkit::conformance::Checked;

use super::{
    debezium,
    server::{BOTH, Database, Kind},
};

/// What a receiver may say: Cyrillic, Han, a letter of Latin-1 and a sign beyond the first plane.
const ERROR: &str = "отказано: 拒绝 déjà 🚫 and a text that is longer than twenty characters";

const FLOWCATALYST: &str = "CREATE TABLE outbox_events (id VARCHAR(13) PRIMARY KEY, type VARCHAR(20) NOT NULL, message_group VARCHAR(255), \
     payload TEXT NOT NULL, status VARCHAR(20) NOT NULL, retry_count INT NOT NULL DEFAULT 0, \
     created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, processed_at TIMESTAMP NULL, error_message ERROR_TYPE); \
     INSERT INTO outbox_events (id, type, payload, status) VALUES ('good', 'EVENT', '{}', 'PENDING'), \
     ('late', 'EVENT', '{\"late\":1}', 'PENDING'), ('poison', 'EVENT', '{\"poison\":1}', 'PENDING')";

/// Delivers: what is late fails once, and poison always.
async fn deliver(url: &str, profile: Profile) -> Result<Outbox, postrider_testkit::conformance::Failure> {
    let builder = Outbox::builder().store(ProfileStore::connect(url, profile).await?);
    Ok(builder
        .lease(Duration::from_secs(6))
        .poll(Duration::from_millis(10), Duration::from_millis(100))
        .retry_with(|_, _| Duration::from_millis(20))
        .max_attempts(2)
        .on_dead(OnDead::Skip)
        .otherwise(|delivery: Delivery| {
            let text = delivery.payload().as_text().unwrap_or_default();
            let fails = text.contains("poison") || text.contains("late") && delivery.attempt == 1;
            std::future::ready(if fails { Outcome::retry(ERROR) } else { Outcome::Delivered })
        })
        .start()
        .await?)
}

/// Databases and columns whose texts are narrower than an error may be.
fn narrow(kind: Kind) -> [(Option<&'static str>, &'static str); 3] {
    let latin1 = match kind {
        Kind::Postgres => "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0",
        Kind::Mysql => "CHARACTER SET latin1",
    };
    [(None, "VARCHAR(20)"), (Some(latin1), "TEXT"), (Some(latin1), "VARCHAR(20)")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_text_that_the_table_cannot_store_does_not_keep_an_outcome_from_it() -> Checked {
    for kind in BOTH {
        for (encoding, column) in narrow(kind) {
            let database = Database::with_encoding(kind, encoding).await?;
            database.run(&FLOWCATALYST.replace("ERROR_TYPE", column)).await?;
            let outbox = deliver(&database.url, Profile::flowcatalyst_events()).await?;
            let case = format!("{kind:?} {encoding:?} {column}");
            database
                .until(
                    "SELECT CONCAT(id, ' ', status) FROM outbox_events ORDER BY id",
                    &["good COMPLETED", "late COMPLETED", "poison FAILED"],
                )
                .await
                .map_err(|error| format!("{case}: {error}"))?;
            let told = database.lines("SELECT error_message FROM outbox_events WHERE id = 'poison'").await?;
            let told = told.join("");
            assert!(told.contains(": "), "{case}: {told}");
            assert!(
                encoding.is_some() || told == ERROR.chars().take(20).collect::<String>(),
                "{case}: {told}"
            );
            assert!(outbox.health().is_ready(), "{case}: {:?}", outbox.health());
            outbox.shutdown().await;
            database.drop().await?;
        }
    }
    Ok(())
}

/// A table without a status has its dead events in a table of ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_text_in_another_script_can_be_kept_beside_a_table_in_latin1() -> Checked {
    for kind in BOTH {
        let [_, (encoding, _), _] = narrow(kind);
        let database = Database::with_encoding(kind, encoding).await?;
        database.run(&debezium::ddl(kind)).await?;
        let poison = "UPDATE outboxevent SET payload = '{\"poison\":1}'";
        database.run(poison).await?;
        let outbox = deliver(&database.url, Profile::debezium()).await?;
        let left = "SELECT CASE WHEN COUNT(*) = (SELECT COUNT(*) FROM outboxevent) THEN 'all' ELSE 'some' END FROM postrider_profile_dead";
        database.until(left, &["all"]).await.map_err(|error| format!("{kind:?}: {error}"))?;
        outbox.shutdown().await;
        database.drop().await?;
    }
    Ok(())
}
