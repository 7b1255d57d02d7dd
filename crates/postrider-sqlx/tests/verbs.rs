//! The verbs, on their own. The conformance suite of the testkit tests what all stores have in common.

mod support;

use std::time::Duration;

use postrider_core::{
    Store, Timestamp,
    store::{Change, EventStatus, HoldReason, Position, Settled},
};
use support::{
    Folder, HOUR, Instance, dead, event, execute, ids, in_file, in_memory, number, retry, seqs, settlement,
    take, write,
};

const NO_TIME: Duration = Duration::ZERO;

#[tokio::test]
async fn a_claim_reads_forward_and_in_order() {
    let store = in_memory().await;
    write(&store, (0..5).map(|n| event(&n.to_string()))).await;
    let mut instance = Instance::new(&store).await;
    let first = instance.claim(3).await;
    assert_eq!((ids(&first), first.more), (vec!["0".into(), "1".into(), "2".into()], true));
    let second = instance.claim(3).await;
    assert_eq!((seqs(&second), second.more), (vec![4, 5], false));
    assert!(seqs(&instance.claim(3).await).is_empty());
    // Nothing was marked: from the bottom it is all there again, but for what is in flight.
    instance.from = Position::START;
    let mut plan = instance.plan(10);
    plan.in_flight = vec![2, 4];
    assert_eq!(seqs(&store.claim(&plan).await.unwrap()), [1, 3, 5]);
}

#[tokio::test]
async fn a_claim_ends_at_its_bytes_but_returns_one_event_of_any_size() {
    let store = in_memory().await;
    let payload = |bytes| postrider_core::Event::bytes("X", "a/b", vec![7; bytes]);
    write(&store, [payload(1000), payload(100), payload(100), payload(100)]).await;
    let mut instance = Instance::new(&store).await;
    for (bytes, expected, more) in [(800, vec![1], true), (800, vec![2, 3], true), (800, vec![4], false)] {
        let mut plan = instance.plan(10);
        plan.bytes = bytes;
        let claimed = store.claim(&plan).await.unwrap();
        instance.from = claimed.positions[0].1;
        assert_eq!((seqs(&claimed), claimed.more), (expected, more));
    }
}

#[tokio::test]
async fn a_held_key_waits_for_its_head_and_comes_back_in_order() {
    let store = in_memory().await;
    write(&store, ["a1", "a2", "a3"].map(|id| event(id).key("a"))).await;
    write(&store, [event("b1").key("b")]).await;
    let mut instance = Instance::new(&store).await;
    let head = instance.claim(1).await;
    let wait = settlement(&head.events[0], retry(NO_TIME, 1));
    assert_eq!(instance.settle(&[wait]).await.applied, 1);

    // The head comes again, marked as held; its followers are parked; the other key is not concerned.
    let claimed = instance.claim(10).await;
    assert_eq!(ids(&claimed), ["a1", "b1"]);
    assert_eq!(
        claimed.events.iter().map(|e| (e.held, e.attempts)).collect::<Vec<_>>(),
        [(true, 1), (false, 0)]
    );
    assert_eq!(store.status(&"a3".into()).await.unwrap(), EventStatus::Parked);
    let hold = store.why("a").await.unwrap().unwrap();
    assert_eq!((hold.seq, hold.reason, hold.parked, hold.lane), (1, HoldReason::Retry, 2, 0));

    // A late one is parked too, and all come back in order once the head is delivered.
    write(&store, [event("a4").key("a")]).await;
    assert_eq!(seqs(&instance.claim(10).await), [1]);
    assert_eq!(instance.settle(&[settlement(&claimed.events[0], Change::Done)]).await.applied, 1);
    assert_eq!(store.why("a").await.unwrap().unwrap().reason, HoldReason::Returning);
    write(&store, [event("a5").key("a")]).await;
    let back = instance.claim(10).await;
    assert_eq!(ids(&back), ["a2", "a3", "a4"]);
    assert!(back.events.iter().all(|event| event.held) && back.more);
    let done: Vec<_> = back.events.iter().map(|event| settlement(event, Change::Done)).collect();
    assert_eq!(instance.settle(&done).await.applied, 3);
    let back = instance.claim(10).await;
    assert_eq!(ids(&back), ["a5"]);
    instance.settle(&[settlement(&back.events[0], Change::Done)]).await;
    assert_eq!(store.why("a").await.unwrap(), None);
}

#[tokio::test]
async fn of_a_returning_key_sixteen_come_at_a_time() {
    let store = in_memory().await;
    write(&store, (0..40).map(|n| event(&n.to_string()).key("a"))).await;
    let mut instance = Instance::new(&store).await;
    let head = instance.claim(1).await;
    instance.settle(&[settlement(&head.events[0], retry(HOUR, 1))]).await;
    assert!(seqs(&instance.claim(100).await).is_empty());
    assert_eq!(store.stats().await.unwrap().parked, 39);
    execute(&store, "UPDATE postrider_event SET available_at = 0 WHERE seq = 1").await;
    let mut delivered = Vec::new();
    for _ in 0..5 {
        let claimed = instance.claim(100).await;
        delivered.extend(seqs(&claimed));
        let done: Vec<_> = claimed.events.iter().map(|event| settlement(event, Change::Done)).collect();
        instance.settle(&done).await;
    }
    assert_eq!(delivered, (1..=40).collect::<Vec<_>>());
    assert_eq!(store.why("a").await.unwrap(), None);
}

#[tokio::test]
async fn a_returning_event_that_fails_holds_its_key_anew() {
    let store = in_memory().await;
    write(&store, ["1", "2", "3"].map(|id| event(id).key("a"))).await;
    let mut instance = Instance::new(&store).await;
    let head = instance.claim(1).await;
    instance.settle(&[settlement(&head.events[0], retry(NO_TIME, 1))]).await;
    let head = instance.claim(10).await;
    instance.settle(&[settlement(&head.events[0], dead(false))]).await;
    let back = instance.claim(10).await;
    assert_eq!(seqs(&back), [2, 3]);
    instance.settle(&[settlement(&back.events[0], retry(HOUR, 1))]).await;
    let hold = store.why("a").await.unwrap().unwrap();
    assert_eq!((hold.seq, hold.reason, hold.parked), (2, HoldReason::Retry, 1));
    assert!(seqs(&instance.claim(10).await).is_empty());
    assert!(!store.dead(0, 10).await.unwrap()[0].blocks);
}

#[tokio::test]
async fn a_delayed_event_waits_for_its_time_and_does_not_hold_its_key() {
    let store = in_memory().await;
    write(&store, [event("later").key("a").deliver_after(HOUR), event("now").key("a")]).await;
    let mut instance = Instance::new(&store).await;
    let claimed = instance.claim(10).await;
    assert_eq!(ids(&claimed), ["now"]);
    let next_due = claimed.next_due.unwrap();
    assert!(next_due <= HOUR && next_due > HOUR - Duration::from_secs(60));
    let status = store.status(&"later".into()).await.unwrap();
    assert!(matches!(status, EventStatus::Waiting { attempts: 0, error: None, .. }), "{status:?}");
    assert!(instance.claim(10).await.next_due.is_some());
    execute(&store, "UPDATE postrider_event SET available_at = 0 WHERE event_id = 'later'").await;
    let claimed = instance.claim(10).await;
    assert_eq!((ids(&claimed), claimed.events[0].held), (vec!["later".into()], false));
    assert_eq!(claimed.next_due, None);
}

#[tokio::test]
async fn waiting_events_are_read_to_the_end_and_then_from_the_start() {
    let store = in_memory().await;
    write(&store, (0..5).map(|n| event(&n.to_string()))).await;
    execute(&store, "UPDATE postrider_event SET status = 2, available_at = 100 - seq").await;
    let mut instance = Instance::new(&store).await;
    // By time, not by number; within one claim by number.
    assert_eq!(seqs(&instance.claim(2).await), [4, 5]);
    assert_eq!((instance.from.due_at, instance.from.due_seq), (Timestamp::from_micros(96), 4));
    assert_eq!(seqs(&instance.claim(2).await), [2, 3]);
    assert_eq!(seqs(&instance.claim(2).await), [1]);
    assert_eq!((instance.from.due_at, instance.from.due_seq), (Position::START.due_at, 0));
    assert_eq!(seqs(&instance.claim(2).await), [4, 5]);
}

#[tokio::test]
async fn fresh_and_waiting_events_share_a_claim() {
    let store = in_memory().await;
    write(&store, (0..100).map(|n| event(&n.to_string()))).await;
    execute(&store, "UPDATE postrider_event SET status = 2 WHERE seq > 50").await;
    let mut instance = Instance::new(&store).await;
    let claimed = seqs(&instance.claim(20).await);
    assert_eq!(claimed.len(), 20);
    assert_eq!(claimed.iter().filter(|&&seq| seq > 50).count(), 10);
    assert_eq!(seqs(&instance.claim(100).await).len(), 80);
}

#[tokio::test]
async fn events_that_were_given_back_are_looked_at_once_more() {
    let store = in_memory().await;
    write(&store, (1..=4).map(|n| event(&n.to_string()).key(if n == 3 { "held" } else { "free" }))).await;
    write(&store, [event("5"), event("6").deliver_after(HOUR)]).await;
    execute(&store, "INSERT INTO postrider_hold VALUES (0, 'held', 99, NULL, 'dead')").await;
    let mut instance = Instance::new(&store).await;
    instance.from.seq = 6;
    let mut plan = instance.plan(2);
    plan.lanes[0].again = vec![1, 2, 3, 5, 6, 77];
    let claimed = store.claim(&plan).await.unwrap();
    assert_eq!((seqs(&claimed), claimed.more), (vec![1, 2], true));
    let left: Vec<_> = claimed.again.iter().map(|&(_, seq)| seq).collect();
    assert!(left.contains(&5), "{left:?}");
    plan.lanes[0].again = left;
    let claimed = store.claim(&plan).await.unwrap();
    assert_eq!((seqs(&claimed), claimed.again), (vec![5], vec![]));
    assert_eq!(store.status(&"3".into()).await.unwrap(), EventStatus::Parked);
    assert!(matches!(store.status(&"6".into()).await.unwrap(), EventStatus::Waiting { .. }));
}

#[tokio::test]
async fn only_the_token_passes_the_fence() {
    let store = in_memory().await;
    write(&store, [event("1").key("a"), event("2").key("a")]).await;
    let mut old = Instance::with_lease(&store, take(&store, NO_TIME).await.unwrap());
    let head = old.claim(1).await;
    // A lease that ran out and that nobody took is as good as ever.
    assert_eq!(old.settle(&[settlement(&head.events[0], retry(NO_TIME, 1))]).await.applied, 1);

    let new = Instance::new(&store).await;
    assert_eq!(new.lease.token.epoch, old.lease.token.epoch + 1);
    let done = [settlement(&head.events[0], Change::Done)];
    assert_eq!(old.settle(&done).await, Settled { lost: vec![0], ..Settled::default() });
    let claimed = store.claim(&old.plan(10)).await.unwrap();
    assert_eq!((claimed.events.len(), claimed.lost, claimed.positions.len()), (0, vec![0], 0));
    assert_eq!(store.stats().await.unwrap().parked, 0);
    assert!(store.renew(&[old.lease], HOUR).await.unwrap().held.is_empty());
    store.release(&[(old.lease, 0)]).await.unwrap();
    assert_eq!(store.renew(&[new.lease], HOUR).await.unwrap().held, [0]);
    // Nor does an outcome without any lease.
    assert_eq!(
        store.settle(&[], &done, HOUR).await.unwrap(),
        Settled { lost: vec![0], ..Settled::default() }
    );
    assert_eq!(new.settle(&done).await.applied, 1);
}

#[tokio::test]
async fn a_lane_is_taken_once_and_given_back_at_once() {
    let store = in_memory().await;
    let lease = take(&store, HOUR).await.unwrap();
    let request = postrider_core::store::LeaseRequest {
        owner: "test".to_owned(),
        ttl: HOUR,
        nonces: postrider_core::rng::Rng::seeded(7),
        most: usize::MAX,
    };
    let refused = store.lease(&request).await.unwrap();
    assert!(refused.leases().is_empty());
    let left = refused.next_expiry.unwrap();
    assert!(left <= HOUR && left > HOUR - Duration::from_secs(60));

    store.release(&[(lease, 0)]).await.unwrap();
    assert!(store.renew(&[lease], HOUR).await.unwrap().held.is_empty());
    assert_eq!(store.settle(&[lease], &[], HOUR).await.unwrap().lost, [0]);
    let taken = store.lease(&request).await.unwrap();
    assert_eq!(taken.leases()[0].token.nonce, request.nonces().next().unwrap());
    assert_eq!((taken.leases()[0].token.epoch, taken.next_expiry), (2, None));
}

#[tokio::test]
async fn repeating_a_settle_changes_nothing() {
    let store = in_memory().await;
    write(&store, (1..=6).map(|n| event(&n.to_string()).key(format!("k{n}")))).await;
    let mut instance = Instance::new(&store).await;
    let claimed = instance.claim(10).await;
    let deferred = Change::Wait { after: HOUR, attempts: 0, error: None, reason: HoldReason::Deferred };
    let changes = [Change::Done, retry(HOUR, 1), retry(HOUR / 2, 2), deferred, dead(true), dead(false)];
    let settlements: Vec<_> =
        claimed.events.iter().zip(changes).map(|(event, change)| settlement(event, change)).collect();
    assert_eq!(instance.settle(&settlements).await.applied, 6);
    let state = async || {
        let rows = "SELECT group_concat(seq || ' ' || status || ' ' || available_at || ' ' || attempts, ',')
                    FROM postrider_event";
        let holds = "SELECT group_concat(effective_key || seq || ifnull(until, '') || reason, ',') FROM postrider_hold";
        let read = async |sql: &'static str| {
            sqlx::query_scalar::<_, String>(sql).fetch_one(store.pool()).await.unwrap()
        };
        (read(rows).await, read(holds).await, store.stats().await.unwrap().done)
    };
    let before = state().await;
    assert_eq!(instance.settle(&settlements).await, Settled::default());
    assert_eq!(state().await, before);
    assert_eq!(store.stats().await.unwrap().held_keys, 4);
    // A dead one is not delivered, and its key not freed, by a late outcome.
    let late =
        postrider_core::store::Settlement { held: true, ..settlement(&claimed.events[4], Change::Done) };
    assert_eq!(instance.settle(&[late]).await.applied, 0);
    assert_eq!(store.why("k5").await.unwrap().unwrap().reason, HoldReason::Dead);
}

#[tokio::test]
async fn what_was_put_off_can_be_put_off_again_once_it_was_due() {
    let store = in_memory().await;
    write(&store, [event("1").key("a")]).await;
    let mut instance = Instance::new(&store).await;
    let deferred = |after| Change::Wait { after, attempts: 0, error: None, reason: HoldReason::Deferred };
    for after in [NO_TIME, NO_TIME, HOUR] {
        let claimed = instance.claim(1).await;
        assert_eq!(instance.settle(&[settlement(&claimed.events[0], deferred(after))]).await.applied, 1);
    }
    assert!(seqs(&instance.claim(1).await).is_empty());
}

#[tokio::test]
async fn an_error_text_is_cleaned_and_kept_until_there_is_another() {
    // S3-9.3c
    let store = in_memory().await;
    write(&store, [event("1")]).await;
    let mut instance = Instance::new(&store).await;
    let wait = |attempts, error: Option<String>| Change::Wait {
        after: NO_TIME,
        attempts,
        error,
        reason: HoldReason::Retry,
    };
    let first = instance.claim(1).await;
    instance.settle(&[settlement(&first.events[0], wait(1, Some("é\0\"'".repeat(5000))))]).await;
    instance.settle(&[settlement(&first.events[0], wait(2, None))]).await;
    let EventStatus::Waiting { attempts: 2, error: Some(error), .. } =
        store.status(&"1".into()).await.unwrap()
    else {
        panic!("it waits");
    };
    assert_eq!(error, "é\"'".repeat(5000).chars().take(4000).collect::<String>());
}

#[tokio::test]
async fn delivered_events_are_kept_for_their_retention_or_not_at_all() {
    let store = in_memory().await;
    write(&store, (1..=4).map(|n| event(&n.to_string()).header("a", "b"))).await;
    let mut instance = Instance::new(&store).await;
    let claimed = instance.claim(10).await;
    let done: Vec<_> = claimed.events.iter().map(|event| settlement(event, Change::Done)).collect();
    let (gone, kept) = done.split_at(1);
    store.settle(&[instance.lease], gone, NO_TIME).await.unwrap();
    store.settle(&[instance.lease], kept, HOUR).await.unwrap();
    assert_eq!(store.status(&"1".into()).await.unwrap(), EventStatus::Absent);
    assert!(matches!(store.status(&"2".into()).await.unwrap(), EventStatus::Done { .. }));
    let same = "SELECT count(*) FROM postrider_done WHERE headers = '{\"a\":\"b\"}' AND payload = '{}'
                AND event_type = 'Tested' AND created_at > 0 AND done_at >= created_at";
    assert_eq!(number(&store, same).await, 3);
    assert_eq!(store.stats().await.unwrap().done, 3);

    assert_eq!(store.purge(HOUR, 10).await.unwrap(), 0);
    assert_eq!(store.purge(NO_TIME, 2).await.unwrap(), 2);
    assert_eq!(store.purge(NO_TIME, 2).await.unwrap(), 1);
}

#[tokio::test]
async fn a_dead_head_blocks_until_an_operator_decides() {
    let store = in_memory().await;
    write(&store, ["1", "2"].map(|id| event(id).aggregate("Order", 1))).await;
    write(&store, [event("3")]).await;
    let mut instance = Instance::new(&store).await;
    let claimed = instance.claim(1).await;
    instance.settle(&[settlement(&claimed.events[0], dead(true))]).await;
    assert_eq!(ids(&instance.claim(10).await), ["3"]);
    let letters = store.dead(0, 10).await.unwrap();
    let letter = &letters[0];
    assert_eq!((letters.len(), letter.seq, letter.attempts, letter.blocks), (1, 1, 3, true));
    assert_eq!((letter.id.as_str(), letter.error.as_str()), ("1", "hopeless"));
    assert_eq!((letter.event_type.as_str(), letter.key.as_deref()), ("Tested", Some("Order:1")));
    assert!(store.dead(1, 10).await.unwrap().is_empty());

    // Redriven it is the head again; those that are not dead are not touched.
    assert_eq!(store.redrive(&["1".into(), "2".into(), "x".into()]).await.unwrap(), 1);
    assert_eq!(store.redrive(&["1".into()]).await.unwrap(), 0);
    assert_eq!(store.why("Order:1").await.unwrap().unwrap().reason, HoldReason::Retry);
    let again = instance.claim(10).await;
    assert_eq!((ids(&again), again.events[0].attempts), (vec!["1".into()], 0));
    let status = store.status(&"1".into()).await.unwrap();
    assert!(matches!(&status, EventStatus::Waiting { error: Some(e), .. } if e == "hopeless"), "{status:?}");

    // Discarded it sets its followers free, and a claim cleans up behind them.
    instance.settle(&[settlement(&again.events[0], dead(true))]).await;
    assert_eq!(store.discard(&["1".into(), "2".into()]).await.unwrap(), 1);
    let back = instance.claim(10).await;
    assert_eq!(ids(&back), ["2"]);
    execute(&store, "DELETE FROM postrider_event WHERE seq = 2").await;
    instance.claim(10).await;
    assert_eq!(store.why("Order:1").await.unwrap(), None);
}

#[tokio::test]
async fn stats_count_everything_once() {
    let store = in_memory().await;
    assert_eq!(store.stats().await.unwrap(), postrider_core::store::Stats::default());
    write(&store, (1..=6).map(|n| event(&n.to_string()).key("a"))).await;
    write(&store, [event("7")]).await;
    execute(
        &store,
        "UPDATE postrider_event SET status = 3 WHERE seq = 1;
         UPDATE postrider_event SET parked = 1 WHERE seq IN (3, 4);
         UPDATE postrider_event SET status = 2 WHERE seq = 2;
         UPDATE postrider_event SET created_at = created_at - 3600000000 WHERE seq < 3;
         INSERT INTO postrider_hold VALUES (0, 'a', 2, NULL, 'retry');",
    )
    .await;
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.pending, stats.waiting, stats.parked, stats.dead), (6, 1, 2, 1));
    assert_eq!((stats.held_keys, stats.done), (1, 0));
    assert!(stats.oldest.unwrap() >= HOUR && stats.oldest.unwrap() < 2 * HOUR);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_and_an_instance_share_a_file_without_losing_anything() {
    let folder = Folder::new();
    let store = in_file(&folder.file("outbox.db")).await;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..50 {
                    use postrider_core::{OwnedTx, TxSource, tx::OnDuplicate};
                    let events = [event(&format!("{writer}-{n}")).key(format!("{writer}")).build().unwrap()];
                    let mut tx = TxSource::begin(store.pool()).await.unwrap();
                    tx.insert(store.target(), &events, OnDuplicate::Fail).await.unwrap();
                    tx.commit().await.unwrap();
                }
            })
        })
        .collect();
    let mut instance = Instance::new(&store).await;
    let mut delivered = Vec::new();
    while delivered.len() < 200 {
        let claimed = instance.claim(32).await;
        delivered.extend(ids(&claimed));
        let done: Vec<_> = claimed.events.iter().map(|event| settlement(event, Change::Done)).collect();
        assert_eq!(instance.settle(&done).await.applied, done.len() as u64);
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for writer in 0..4 {
        let own: Vec<_> =
            delivered.iter().filter(|id| id.starts_with(&format!("{writer}-"))).cloned().collect();
        assert_eq!(own, (0..50).map(|n| format!("{writer}-{n}")).collect::<Vec<_>>());
    }
}
