//! An event exists if and only if its business transaction committed.

use std::time::{Duration, Instant};

use postrider_core::{Error, store::EventStatus, tx::OnDuplicate};

use super::{
    Checked, StoreHarness,
    scene::{Scene, claimed_ids, ids, keyed, unkeyed},
};

/// How long a store may take to find what committed late, while nothing else is written.
pub(super) const LATE_MAX: Duration = Duration::from_secs(60);

/// Keys that together fall into every lane of an outbox, or nearly.
pub(super) const OTHERS: usize = 400;

/// Event and business row are seen together after the commit, and neither from outside before it. S3-1.1, S3-4.1a
pub async fn a_committed_event_and_its_business_row_are_seen_together<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    scene.harness.put(&mut tx, "order").await?;
    scene.harness.insert(&mut tx, std::slice::from_ref(&event), OnDuplicate::Fail).await?;
    assert!(!scene.harness.has("order").await?);
    assert_eq!(scene.status(&event).await?, EventStatus::Absent);
    assert!(scene.claim().await?.events.is_empty());
    scene.harness.commit(tx).await?;
    assert!(scene.harness.has("order").await?);
    assert_eq!(scene.status(&event).await?, EventStatus::New);
    assert_eq!(claimed_ids(&scene.claim().await?.events), [event.id().clone()]);
    Ok(())
}

/// A rolled-back transaction leaves neither event nor business row, and nothing of it is ever claimed. S3-1.1, S3-18
pub async fn nothing_of_a_rolled_back_transaction_is_left<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events: [_; 3] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    scene.harness.put(&mut tx, "order").await?;
    scene.harness.insert(&mut tx, &events, OnDuplicate::Fail).await?;
    scene.harness.rollback(tx).await?;
    assert!(!scene.harness.has("order").await?);
    for event in &events {
        assert_eq!(scene.status(event).await?, EventStatus::Absent);
    }
    assert!(scene.claim().await?.events.is_empty());
    Ok(())
}

/// Dropping a transaction rolls it back, and the same ids can be written again. S3-1.1
pub async fn a_dropped_transaction_is_rolled_back<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    scene.harness.put(&mut tx, "order").await?;
    scene.harness.insert(&mut tx, std::slice::from_ref(&event), OnDuplicate::Fail).await?;
    drop(tx);
    assert!(!scene.harness.has("order").await?);
    assert!(scene.claim().await?.events.is_empty());
    scene.write(&event).await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), [event.id().clone()]);
    Ok(())
}

/// What was written behind a savepoint that was rolled back is gone, and what came before and after it is there. S3-1.1
pub async fn what_a_savepoint_rolled_back_is_gone_and_the_rest_stays<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [before, undone, after] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    scene.harness.put(&mut tx, "before").await?;
    scene.harness.insert(&mut tx, std::slice::from_ref(&before), OnDuplicate::Fail).await?;
    scene.harness.savepoint(&mut tx).await?;
    scene.harness.put(&mut tx, "undone").await?;
    scene.harness.insert(&mut tx, std::slice::from_ref(&undone), OnDuplicate::Fail).await?;
    scene.harness.rollback_to_savepoint(&mut tx).await?;
    scene.harness.insert(&mut tx, std::slice::from_ref(&after), OnDuplicate::Fail).await?;
    scene.harness.commit(tx).await?;
    assert!(scene.harness.has("before").await? && !scene.harness.has("undone").await?);
    assert_eq!(scene.status(&undone).await?, EventStatus::Absent);
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[before, after]));
    Ok(())
}

/// A statement error that the program swallowed before its commit takes event and business row alike, or neither. S3-1.1
pub async fn a_swallowed_statement_error_takes_event_and_business_row_alike<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    scene.harness.put(&mut tx, "order").await?;
    scene.harness.insert(&mut tx, std::slice::from_ref(&event), OnDuplicate::Fail).await?;
    scene.harness.fail_statement(&mut tx).await?;
    // Whether the commit answers Ok says nothing: PostgreSQL does, and has rolled back.
    let _ = scene.harness.commit(tx).await;
    let business = scene.harness.has("order").await?;
    assert_eq!(scene.status(&event).await? == EventStatus::New, business);
    assert_eq!(scene.claim().await?.events.len(), usize::from(business));
    Ok(())
}

/// Five hundred events of one transaction are claimed in the order in which they were written. S3-8.1b
pub async fn a_batch_is_claimed_in_the_order_it_was_written<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events: [_; 500] = scene.keyed("k").await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&events));
    Ok(())
}

/// No events at all are no error, and change nothing.
pub async fn an_empty_batch_is_written_as_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.harness.write(&[]).await?;
    assert!(scene.claim().await?.events.is_empty());
    Ok(())
}

/// An id that is there already is an error of its own kind, and the transaction goes on. S3-6.1a, S3-9.3b
pub async fn a_duplicate_id_is_an_error_of_its_own_and_leaves_the_transaction_usable<H: StoreHarness>()
-> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first] = scene.keyed("k").await?;
    let [second] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    let refused = scene.harness.insert(&mut tx, std::slice::from_ref(&first), OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::DuplicateId { .. })), "{refused:?}");
    scene.harness.put(&mut tx, "order").await?;
    scene.harness.insert(&mut tx, std::slice::from_ref(&second), OnDuplicate::Fail).await?;
    scene.harness.commit(tx).await?;
    assert!(scene.harness.has("order").await?);
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[first, second]));
    Ok(())
}

/// A batch with one duplicate in it writes none of its events. S3-8.1b
pub async fn a_batch_with_a_duplicate_in_it_writes_none_of_its_events<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first] = scene.keyed("k").await?;
    let [second, third] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    let batch = [second.clone(), first.clone(), third.clone()];
    let refused = scene.harness.insert(&mut tx, &batch, OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::DuplicateId { .. })), "{refused:?}");
    scene.harness.commit(tx).await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[first]));
    Ok(())
}

/// An id is a duplicate within its own transaction and its own batch too. S3-6.1a
pub async fn an_id_is_a_duplicate_within_its_own_transaction_too<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first, second] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    scene.harness.insert(&mut tx, std::slice::from_ref(&first), OnDuplicate::Fail).await?;
    let again = scene.harness.insert(&mut tx, std::slice::from_ref(&first), OnDuplicate::Fail).await;
    assert!(matches!(again, Err(Error::DuplicateId { .. })), "{again:?}");
    let twice = scene.harness.insert(&mut tx, &[second.clone(), second], OnDuplicate::Fail).await;
    assert!(matches!(twice, Err(Error::DuplicateId { .. })), "{twice:?}");
    scene.harness.commit(tx).await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[first]));
    Ok(())
}

/// A write that keeps what is there says for each event whether it is new, and changes no event that was there.
pub async fn a_write_that_keeps_duplicates_says_which_events_are_new<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first] = scene.keyed("k").await?;
    let [second] = keyed("k")?;
    let other = first.to_builder().event_type("Other").build()?;
    let mut tx = scene.harness.begin().await?;
    let batch = [other, second.clone(), second.clone()];
    let new = scene.harness.insert(&mut tx, &batch, OnDuplicate::Keep).await?;
    assert_eq!(new, [false, true, false]);
    scene.harness.commit(tx).await?;
    let [kept, added] = scene.claim_exactly().await?;
    assert!(kept.event.is_ok_and(|event| event.id() == first.id() && event.event_type() == "Tested"));
    assert!(added.event.is_ok_and(|event| event.id() == second.id()));
    Ok(())
}

/// An event begins as new: no attempts, due at once, inserted now on the database's clock. S3-9.2a
pub async fn an_event_begins_as_new_with_no_attempts<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    assert_eq!(scene.status(&event).await?, EventStatus::New);
    let claimed = scene.claim().await?;
    let [only] = claimed.events.as_slice() else { return Err("one event was written".into()) };
    assert_eq!((only.attempts, only.held), (0, false));
    assert!(claimed.now.since(only.created_at).as_secs() < 60 && only.created_at <= claimed.now);
    Ok(())
}

/// A transaction that commits behind one with larger places in the order is met by a later claim. Only for stores where
/// that can happen. Section 6.3 of the design, late commits.
pub async fn a_transaction_that_commits_late_is_not_skipped<H: StoreHarness>() -> Checked {
    met_though_it_committed_late::<H>(false).await
}

/// The same for what a transaction wrote after a savepoint: to some databases that is a transaction of its own. Sections 4.1 and 6.3 of
/// the design
pub async fn what_commits_late_behind_a_savepoint_is_not_skipped<H: StoreHarness>() -> Checked {
    met_though_it_committed_late::<H>(true).await
}

async fn met_though_it_committed_late<H: StoreHarness>(behind_a_savepoint: bool) -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scene.store.features().late_commits {
        return Ok(());
    }
    let late = unkeyed(20)?;
    let early = unkeyed(20)?;
    let mut tx = scene.harness.begin().await?;
    if behind_a_savepoint {
        scene.harness.savepoint(&mut tx).await?;
    }
    scene.harness.insert(&mut tx, &late, OnDuplicate::Fail).await?;
    scene.harness.write(&early).await?;
    let first = scene.claim().await?;
    assert_eq!(first.events.len(), 20);
    scene.done(&first.events).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.harness.commit(tx).await?;
    // A store may look back at intervals only, while nothing comes that must be behind what it would find.
    let (mut met, began) = (Vec::new(), Instant::now());
    while met.len() < late.len() && began.elapsed() < LATE_MAX {
        met.extend(claimed_ids(&scene.claim().await?.events));
    }
    assert_eq!(super::scene::sorted(met), ids(&late));
    Ok(())
}

/// What committed late comes before an event of its key that was inserted after that, though claims have passed it by. Only for stores
/// where that can happen. Section 4.1 of the design
pub async fn what_committed_late_comes_before_what_was_inserted_after_it<H: StoreHarness>() -> Checked {
    in_order_though_it_committed_late::<H>(false).await
}

/// The same for what a transaction wrote after a savepoint. Section 4.1 of the design
pub async fn what_committed_late_behind_a_savepoint_comes_before_what_was_inserted_after_it<
    H: StoreHarness,
>() -> Checked {
    in_order_though_it_committed_late::<H>(true).await
}

async fn in_order_though_it_committed_late<H: StoreHarness>(behind_a_savepoint: bool) -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scene.store.features().late_commits {
        return Ok(());
    }
    for _ in 0..3 {
        let [late, later] = keyed("k")?;
        let mut tx = scene.harness.begin().await?;
        if behind_a_savepoint {
            scene.harness.savepoint(&mut tx).await?;
        }
        scene.harness.insert(&mut tx, std::slice::from_ref(&late), OnDuplicate::Fail).await?;
        // Enough keys that every lane is read past what is late, that of its own key included.
        let mut others = Vec::new();
        for number in 0..OTHERS {
            others.extend(keyed::<1>(&format!("other {number}"))?);
        }
        scene.harness.write(&others).await?;
        let mut left = others.len();
        while left > 0 {
            let met = scene.claim().await?.events;
            left = if met.is_empty() { 0 } else { left.saturating_sub(met.len()) };
            scene.done(&met).await?;
        }
        scene.harness.commit(tx).await?;
        scene.write(&later).await?;
        assert_eq!(scene.drain().await?, ids(&[late, later]));
    }
    Ok(())
}
