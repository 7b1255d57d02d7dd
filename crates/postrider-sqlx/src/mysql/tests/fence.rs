use std::time::Duration;

use postrider_core::{
    Store,
    store::{Change, Claim, LaneClaim, Lease, Position, Settlement},
};
use sqlx::Connection;

use super::{super::lease::fence, Database, event, execute, lease, write};
use crate::MysqlStore;

pub(super) fn dead() -> Change {
    Change::Dead { attempts: 1, error: "hopeless".to_owned(), block: true }
}

/// Claims one event and settles it.
pub(super) async fn settle_one(store: &MysqlStore, leases: &[Lease], change: Change) {
    let lanes = leases.iter().map(|lease| LaneClaim::after(*lease, Position::START)).collect();
    let claimed = store.claim(&Claim::new(lanes, 1)).await.unwrap();
    let event = &claimed.events[0];
    let key = event.event.as_ref().unwrap().shared_key().cloned();
    let settlement = Settlement {
        lane: event.lane,
        seq: event.seq,
        event_id: event.id().clone(),
        key,
        held: event.held,
        change,
    };
    let leases: Vec<Lease> = leases.iter().filter(|lease| lease.lane == event.lane).copied().collect();
    let settled = store.settle(&leases, &[settlement], Duration::ZERO).await.unwrap();
    assert_eq!((settled.applied, settled.lost.len()), (1, 0));
}

/// A settle that passed the fence and was stopped keeps everybody from taking its lanes until it ends; nobody waits for it.
#[tokio::test]
async fn a_lane_is_not_taken_from_under_a_settle() {
    let database = Database::new().await;
    let store = database.migrated().await;
    write(&store, &[event("a")]).await;
    let leases = lease(&store, Duration::from_secs(30)).await;
    execute(&store, "UPDATE postrider_lane SET leased_until = '2000-01-01'").await;

    let mut conn = store.0.verbs.pool().acquire().await.unwrap();
    let mut settle = conn.begin().await.unwrap();
    assert!(fence(&store.0.lease, &mut settle, &leases).await.unwrap().lost.is_empty());
    assert!(lease(&store, Duration::from_secs(30)).await.is_empty());
    let renewed = store.renew(&leases, Duration::from_secs(3)).await.unwrap();
    assert_eq!((renewed.held.len(), renewed.locked.len()), (0, leases.len()), "locked, and not lost");
    sqlx::query("DELETE FROM postrider_event").execute(&mut *settle).await.unwrap();
    settle.commit().await.unwrap();
    assert_eq!(lease(&store, Duration::from_secs(30)).await.len(), leases.len());

    let mut conn = store.0.verbs.pool().acquire().await.unwrap();
    let mut late = conn.begin().await.unwrap();
    let lost = fence(&store.0.lease, &mut late, &leases).await.unwrap().lost;
    assert_eq!(lost.len(), leases.len());
}

/// Its process may be stopped, or its network gone, for as long as it likes: the server ends its transaction.
#[tokio::test]
async fn a_settle_that_stops_in_the_middle_does_not_keep_its_lanes() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let short = Duration::from_secs(6);
    let leases = lease(&store, short).await;
    execute(&store, "UPDATE postrider_lane SET leased_until = '2000-01-01'").await;

    let mut conn = store.0.verbs.pool().acquire().await.unwrap();
    let mut settle = conn.begin().await.unwrap();
    assert!(fence(&store.0.lease, &mut settle, &leases).await.unwrap().lost.is_empty());
    let began = std::time::Instant::now();
    let mut taken = Vec::new();
    while taken.is_empty() {
        assert!(began.elapsed() < 2 * short, "the server did not end it");
        taken = lease(&store, short).await;
    }
    assert_eq!(taken.len(), leases.len());
    assert!(sqlx::query("DELETE FROM postrider_event").execute(&mut *settle).await.is_err());
}

#[tokio::test]
async fn two_that_take_lanes_at_once_share_none() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let (mut first, second) =
        tokio::join!(lease(&store, Duration::from_secs(60)), lease(&store, Duration::from_secs(60)));
    first.extend(second);
    first.sort_by_key(|lease| lease.lane);
    let lanes: Vec<u32> = first.iter().map(|lease| lease.lane).collect();
    assert_eq!(lanes, (0..64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_verb_goes_on_after_its_connections_were_killed() {
    let database = Database::new().await;
    let store = database.migrated().await;
    store.stats().await.unwrap();
    let sessions: Vec<i64> = sqlx::query_scalar(
        "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
    )
    .fetch_all(store.pool())
    .await
    .unwrap();
    assert!(!sessions.is_empty());
    for session in sessions {
        super::on_server(format!("KILL {session}")).await;
    }
    assert_eq!(store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn a_key_of_hard_characters_is_held_and_freed() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let key = "it's \"quoted\" \\ \u{1}; DROP TABLE x; -- % _ 🦀 é \t ";
    write(&store, &[event("a").to_builder().key(key).build().unwrap()]).await;
    let leases = lease(&store, Duration::from_secs(60)).await;
    let wait = Change::Wait {
        after: Duration::ZERO,
        attempts: 1,
        error: Some("it's \"hard\" \\ 🦀".to_owned()),
        reason: postrider_core::store::HoldReason::Retry,
    };
    settle_one(&store, &leases, wait).await;
    assert!(store.why(key).await.unwrap().is_some());
    let status = store.status(&"a".into()).await.unwrap();
    assert!(format!("{status:?}").contains(r#"it's \"hard\" \\ 🦀"#), "{status:?}");
    settle_one(&store, &leases, Change::Done).await;
    assert_eq!(store.why(key).await.unwrap(), None);
}

#[tokio::test]
async fn lanes_and_members_that_another_session_has_locked_are_left_out() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let ttl = Duration::from_secs(3);
    store.join("test", ttl).await.unwrap();
    let mut psql = store.pool().acquire().await.unwrap();
    let mut tx = psql.begin().await.unwrap();
    sqlx::query("SELECT * FROM postrider_lane WHERE lane IN (3, 5) FOR UPDATE")
        .fetch_all(&mut *tx)
        .await
        .unwrap();
    sqlx::query("SELECT * FROM postrider_member FOR UPDATE").fetch_all(&mut *tx).await.unwrap();
    assert_eq!(store.join("test", ttl).await.unwrap(), 1);
    let mut leases = lease(&store, ttl).await;
    assert_eq!(leases.len(), 62);
    tx.rollback().await.unwrap();
    leases.extend(lease(&store, ttl).await);
    assert_eq!(leases.len(), 64);
}
