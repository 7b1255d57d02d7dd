//! What runs on timers of its own: recovery of abandoned claims, and the end of retention.

use std::time::Duration;

use postrider::{Delivery, OnDead, Outbox, Settings};
use postrider_sqlx::profile::{Field, Profile, ProfileStore};
use postrider_testkit::conformance::{Checked, Failure};

use super::{
    server::{BOTH, Database, Kind},
    spring_outbox,
};

fn ago(kind: Kind, seconds: u32) -> String {
    match kind {
        Kind::Postgres => format!("now() - interval '{seconds} seconds'"),
        Kind::Mysql => format!("UTC_TIMESTAMP() - INTERVAL {seconds} SECOND"),
    }
}

fn profile() -> Result<Profile, Failure> {
    let times = (Duration::from_secs(300), Duration::from_millis(50));
    Ok(Profile::spring_outbox().column(Field::Payload, "body")?.recover(times.0, times.1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_claims_are_taken_back_while_the_queue_is_full() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, &spring_outbox::ddl(kind)).await?;
        let outbox = Outbox::builder()
            .store(ProfileStore::connect(&database.url, profile()?).await?)
            .poll(Duration::from_millis(10), Duration::from_millis(20))
            .cold_queue(4)
            .claim_batch(4)
            .drain_timeout(Duration::ZERO)
            .on_dead(OnDead::Skip)
            .otherwise(|_: Delivery| std::future::pending::<()>())
            .start()
            .await?;
        let marked = "SELECT CONCAT(COUNT(*), '') FROM outbox_events WHERE status = 'IN_PROCESS'";
        database.until(marked, &["4"]).await?;
        // Somebody else has claimed it and is gone. There is no room for it, so no claim is made any more.
        let abandoned = "WHERE id = '00000000-0000-4000-8000-000000000011'";
        let at = ago(kind, 310);
        database
            .run(&format!("UPDATE outbox_events SET status = 'IN_PROCESS', updated_at = {at} {abandoned}"))
            .await?;
        database.until(&format!("SELECT status FROM outbox_events {abandoned}"), &["PENDING"]).await?;
        assert_eq!(database.lines(marked).await?, ["4"], "{kind:?}");
        outbox.shutdown().await;
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_retention_nothing_that_was_delivered_is_left() -> Checked {
    for kind in BOTH {
        let database = Database::new(kind, &spring_outbox::ddl(kind)).await?;
        // Delivered before, when delivered events were kept.
        let at = ago(kind, 60);
        let before = "WHERE id < '00000000-0000-4000-8000-000000000003'";
        database
            .run(&format!("UPDATE outbox_events SET status = 'PROCESSED', updated_at = {at} {before}"))
            .await?;
        let outbox = Outbox::builder()
            .settings(Settings { purge_every: Duration::from_millis(50), ..Settings::default() })
            .store(ProfileStore::connect(&database.url, profile()?).await?)
            .poll(Duration::from_millis(10), Duration::from_millis(20))
            .retention(Duration::ZERO)
            .on_dead(OnDead::Skip)
            .otherwise(async |_: Delivery| ())
            .start()
            .await?;
        database.until("SELECT CONCAT(COUNT(*), '') FROM outbox_events", &["0"]).await?;
        assert!(outbox.shutdown().await.released);
        database.drop().await?;
    }
    Ok(())
}
