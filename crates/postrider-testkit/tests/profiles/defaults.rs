//! An outbox on a table of a known system is set as that system's own program, unless somebody says otherwise.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use postrider::{Delivery, OnDead, Outbox, Outcome, Route, RouteSettings, Routes, handler};
use postrider_core::{RetryPolicy, Store, rng::Rng};
use postrider_sqlx::profile::{Profile, ProfileStore};
use postrider_testkit::conformance::Checked;

use super::{
    flowcatalyst,
    server::{Database, Kind},
};

#[test]
fn each_system_has_its_own_numbers() {
    let flowcatalyst = Profile::flowcatalyst_events().defaults();
    assert_eq!(
        (flowcatalyst.poll_max.as_secs(), flowcatalyst.claim_batch, flowcatalyst.max_attempts),
        (1, 500, 4)
    );
    assert_eq!(flowcatalyst.retry.delay(3, "", &mut Rng::seeded(1)), Duration::ZERO);
    let spring = Profile::spring_outbox().defaults();
    assert_eq!((spring.poll_max.as_secs(), spring.claim_batch, spring.max_attempts), (2, 50, 4));
    let delays: Vec<u64> =
        (1..=9).map(|n| spring.retry.delay(n, "", &mut Rng::seeded(n.into())).as_secs()).collect();
    assert_eq!(delays, (0..9).map(|n| 10 * 3u64.pow(n)).collect::<Vec<_>>(), "no jitter and no end");
    let java = Profile::outbox_java().defaults();
    assert_eq!((java.poll_max.as_secs(), java.claim_batch, java.max_attempts), (5, 200, 10));
}

/// How often each event was sent.
async fn sends(
    database: &Database,
    set: impl FnOnce(postrider::OutboxBuilder) -> postrider::OutboxBuilder,
) -> Result<Vec<usize>, Box<dyn std::error::Error + Send + Sync>> {
    let sends: Arc<Mutex<std::collections::BTreeMap<String, usize>>> = Arc::default();
    let store = ProfileStore::connect(&database.url, Profile::flowcatalyst_events()).await?;
    let seen = Arc::clone(&sends);
    let outbox = set(Outbox::builder().store(store.clone()).otherwise(move |delivery: Delivery| {
        *seen.lock().unwrap_or_else(PoisonError::into_inner).entry(delivery.id().to_string()).or_default() +=
            1;
        async { Outcome::retry("never") }
    }))
    .start()
    .await?;
    let started = Instant::now();
    while store.stats().await?.pending > 0 {
        assert!(started.elapsed() < super::server::TIMEOUT, "not all are dead");
    }
    outbox.shutdown().await;
    store.close().await;
    let sends = sends.lock().unwrap_or_else(PoisonError::into_inner).values().copied().collect();
    Ok(sends)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_builder_takes_what_the_system_has_unless_it_is_told_something_else() -> Checked {
    let database = Database::new(Kind::Postgres, flowcatalyst::DDL).await?;
    let again = "DELETE FROM outbox_events;".to_owned()
        + &flowcatalyst::items("outbox_events")
        + "DELETE FROM outbox_events WHERE message_group IS NULL OR message_group = 'b'";
    database.run(&again).await?;
    // Three retries at once, and a dead event holds up nobody: all twenty of the group are dead within the timeout of this test.
    assert_eq!(sends(&database, |builder| builder).await?, vec![4; 20]);
    database.run(&again).await?;
    assert_eq!(sends(&database, |builder| builder.max_attempts(2)).await?, vec![2; 20]);

    let store = ProfileStore::connect(&database.url, Profile::flowcatalyst_events()).await?;
    let block = RouteSettings { on_dead: Some(OnDead::Block), ..RouteSettings::default() };
    let route = Route::new("*", handler(async |_: Delivery| ())).settings(block);
    for builder in [
        Outbox::builder().otherwise(async |_| ()).on_dead(OnDead::Block),
        Outbox::builder().routes(Routes::new().route(route)),
    ] {
        let told = builder.store(store.clone()).start().await.map(|_| ()).unwrap_err().to_string();
        assert!(told.contains("on_dead is block; it must be skip"), "{told}");
    }
    database.drop().await
}
