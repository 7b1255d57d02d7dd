//! What is this store's own; what every store must do is in the conformance suite of `postrider-testkit`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{
    CallerTx, Error, Event, EventId, OwnedTx, Store, TxSource,
    rng::Rng,
    store::{
        Admission, Change, Claim, HoldReason, LaneClaim, LeaseRequest, Position, RowSummary, Settlement,
    },
    tx::OnDuplicate,
};

use super::MemoryStore;

fn event(id: &str, key: &str) -> Event {
    Event::json_text("Tested", "{}").id(id).key(key).build().unwrap()
}

async fn claim_all(store: &MemoryStore) -> Vec<EventId> {
    let request = LeaseRequest {
        owner: "a".into(),
        ttl: Duration::from_secs(15),
        nonces: Rng::seeded(1),
        most: usize::MAX,
    };
    let leases = store.lease(&request).await.unwrap().leases();
    let lanes = leases.into_iter().map(|lease| LaneClaim::after(lease, Position::START)).collect();
    let claim = Claim::new(lanes, 1000);
    let events = store.claim(&claim).await.unwrap().events;
    events.iter().map(|claimed| claimed.event.as_ref().unwrap().id().clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_clock_stands_still_with_tokios_and_goes_with_it() {
    let store = MemoryStore::new(1);
    let before = store.now();
    assert_eq!(store.now(), before);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(store.now().since(before), Duration::from_secs(5));
    store.set_clock_offset(Duration::from_secs(60));
    assert_eq!(store.now().since(before), Duration::from_secs(65));
}

#[tokio::test]
async fn two_runs_with_the_same_calls_give_the_same_answers() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let store = MemoryStore::new(8);
        let mut tx = store.begin();
        for n in 0..200 {
            let event = event(&format!("id {n}"), &format!("key {}", n % 17));
            tx.insert(store.target(), &[event], OnDuplicate::Fail).await.unwrap();
        }
        tx.commit().await.unwrap();
        runs.push(claim_all(&store).await);
    }
    assert_eq!(runs[0].len(), 200);
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test]
async fn of_two_open_transactions_with_one_id_the_second_commit_fails_whole() {
    let store = MemoryStore::new(1);
    let (mut first, mut second) = (store.begin(), store.begin());
    first.insert(store.target(), &[event("x", "k")], OnDuplicate::Fail).await.unwrap();
    second.put("order", "placed");
    second.insert(store.target(), &[event("y", "k"), event("x", "k")], OnDuplicate::Fail).await.unwrap();
    first.commit().await.unwrap();
    assert!(matches!(second.commit().await, Err(Error::DuplicateId { .. })));
    assert_eq!(store.get("order"), None);
    assert_eq!(store.rows().len(), 1);
}

#[tokio::test]
async fn a_transaction_sees_its_own_business_data_and_reads_back_what_it_still_holds() {
    let store = MemoryStore::new(4);
    let mut tx = TxSource::begin(&store).await.unwrap();
    tx.put("order", "placed");
    tx.insert(store.target(), &[event("kept", "k")], OnDuplicate::Fail).await.unwrap();
    tx.conn().savepoint();
    tx.put("order", "shipped");
    CallerTx::insert(&mut tx, store.target(), &[event("undone", "k")], OnDuplicate::Fail).await.unwrap();
    assert_eq!(tx.get("order").as_deref(), Some("shipped"));
    tx.rollback_to_savepoint();
    assert_eq!(tx.get("order").as_deref(), Some("placed"));
    let placed = tx.read_back(store.target(), &["kept".into(), "undone".into()]).await.unwrap();
    assert_eq!(placed.len(), 1);
    assert_eq!(placed[0].id, "kept");
    OwnedTx::commit(tx).await.unwrap();
    assert_eq!(store.rows()[0].seq, placed[0].seq);
    assert_eq!(store.rows()[0].lane, placed[0].lane);
}

#[tokio::test]
async fn raw_rows_show_what_a_table_would() {
    let store = MemoryStore::new(1);
    let broken = store.insert_undecodable("Broken", "no headers");
    let mut tx = store.begin();
    let whole = event("x", "k");
    tx.insert(store.target(), std::slice::from_ref(&whole), OnDuplicate::Fail).await.unwrap();
    tx.commit().await.unwrap();
    let request = LeaseRequest {
        owner: "a".into(),
        ttl: Duration::from_secs(15),
        nonces: Rng::seeded(1),
        most: usize::MAX,
    };
    let leases = store.lease(&request).await.unwrap().leases();
    let wait = Change::Wait {
        after: Duration::from_secs(1),
        attempts: 1,
        error: Some("no".into()),
        reason: HoldReason::Retry,
    };
    let settlement = Settlement {
        lane: 0,
        seq: 2,
        event_id: whole.id().clone(),
        key: Some("k".into()),
        held: false,
        change: wait,
    };
    store.settle(&leases, &[settlement], Duration::ZERO).await.unwrap();
    let rows = store.rows();
    assert_eq!((&rows[0].id, rows[0].status, rows[0].attempts, rows[0].parked), (&broken, 0, 0, false));
    assert_eq!((rows[1].status, rows[1].attempts, rows[1].last_error.as_deref()), (2, 1, Some("no")));
}

/// Wants nothing, and counts how often it says so.
#[derive(Debug, Default)]
struct Closed(AtomicUsize);

impl Admission for Closed {
    fn admits(&self, _: &RowSummary<'_>) -> bool {
        self.0.fetch_add(1, Relaxed);
        false
    }
}

/// How many rows of an outbox with so many events each claim skips, until one says that there is no more.
async fn skipped(store: &MemoryStore, count: usize, delay: Duration) -> Vec<usize> {
    let request = LeaseRequest {
        owner: "a".into(),
        ttl: Duration::from_secs(15),
        nonces: Rng::seeded(1),
        most: usize::MAX,
    };
    let leases = store.lease(&request).await.unwrap().leases();
    let event = || Event::json_text("Tested", "{}").deliver_after(delay).build().unwrap();
    let events: Vec<Event> = (0..count).map(|_| event()).collect();
    let mut tx = store.begin();
    tx.insert(store.target(), &events, OnDuplicate::Fail).await.unwrap();
    tx.commit().await.unwrap();

    let lanes = leases.into_iter().map(|lease| LaneClaim::after(lease, Position::START)).collect();
    let mut claim = Claim::new(lanes, 10);
    let (mut counts, mut more) = (Vec::new(), true);
    while more {
        let closed = Arc::new(Closed::default());
        claim.admission = Some(closed.clone());
        let claimed = store.claim(&claim).await.unwrap();
        assert!(claimed.events.is_empty());
        if !delay.is_zero() && claimed.next_due.is_some() {
            store.set_clock_offset(delay);
        }
        for (lane, (_, position)) in claim.lanes.iter_mut().zip(claimed.positions) {
            lane.from = position;
        }
        more = claimed.more || claimed.next_due.is_some();
        counts.push(closed.0.load(Relaxed));
    }
    counts
}

#[tokio::test]
async fn a_claim_walks_over_no_more_than_it_may_and_the_next_one_goes_on() {
    for lanes in [1, 8] {
        let fresh = skipped(&MemoryStore::new(lanes), 25_000, Duration::ZERO).await;
        assert_eq!(fresh, [10_000, 10_000, 5000]);
        // Three claims to find that they wait.
        let waiting = skipped(&MemoryStore::new(lanes), 25_000, Duration::from_secs(60)).await;
        assert_eq!(waiting.iter().sum::<usize>(), 25_000);
        assert!(waiting.iter().all(|count| *count <= 10_000), "{waiting:?}");
    }
}

#[tokio::test]
async fn a_claim_that_may_read_one_row_reads_a_waiting_one() {
    let store = MemoryStore::new(1);
    store.scan_at_most(1);
    let counts = skipped(&store, 3, Duration::from_secs(60)).await;
    assert_eq!(counts.iter().sum::<usize>(), 3, "{counts:?}");
}
