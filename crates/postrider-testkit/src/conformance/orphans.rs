//! Orphaned keys: somebody deletes the event that a key waits for from the table, and the key goes on without it.

use postrider_core::store::{Change, HeldKey};

use super::{
    Checked, Failure, StoreHarness,
    scene::{Scene, dead, ids, keyed, retry},
};

/// Searches through all keys that wait, so many at a time, and gives the names of those that were freed.
async fn free<H: StoreHarness>(scene: &Scene<H>, limit: usize) -> Result<Vec<String>, Failure> {
    let (mut freed, mut after): (Vec<String>, Option<HeldKey>) = (Vec::new(), None);
    loop {
        let found = scene.store.free_orphans(after.as_ref(), limit).await?;
        assert!(found.freed.len() <= limit, "{} keys were freed by a search of {limit}", found.freed.len());
        freed.extend(found.freed.into_iter().map(|held| held.key));
        let Some(next) = found.next else { return Ok(freed) };
        assert!(after.is_none_or(|after| after < next), "a search that stands still");
        after = Some(next);
    }
}

/// A fresh store, if rows of its table can be deleted behind its back.
async fn fresh<H: StoreHarness>() -> Result<Option<Scene<H>>, Failure> {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("deleted").await?;
    let deleted = scene.harness.delete_row(&event).await?;
    assert!(!deleted || scene.claim().await?.events.is_empty());
    Ok(deleted.then_some(scene))
}

async fn goes_on<H: StoreHarness>(change: Change) -> Checked {
    let Some(mut scene) = fresh::<H>().await? else { return Ok(()) };
    let [head] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, change).await?;
    let followers: [_; 3] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.harness.delete_row(&head).await?;
    let new: [_; 2] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty(), "the key waits until it is searched for");
    assert_eq!(free(&scene, 100).await?, ["k"]);
    assert_eq!(scene.drain().await?, ids(&[followers.as_slice(), &new].concat()));
    assert_eq!(scene.store.why("k").await?, None);
    assert_eq!(scene.store.stats().await?.pending, 0);
    assert!(free(&scene, 100).await?.is_empty());
    Ok(())
}

/// The followers of a dead event that was deleted come in order, and so does what is new.
pub async fn a_key_whose_dead_head_was_deleted_goes_on_in_order<H: StoreHarness>() -> Checked {
    goes_on::<H>(dead(true)).await
}

/// The same for a head that was to be tried again.
pub async fn a_key_whose_waiting_head_was_deleted_goes_on_in_order<H: StoreHarness>() -> Checked {
    goes_on::<H>(retry(1)).await
}

/// With nothing parked behind it, the key is free for what comes next.
pub async fn a_key_whose_lone_head_was_deleted_is_free<H: StoreHarness>() -> Checked {
    let Some(mut scene) = fresh::<H>().await? else { return Ok(()) };
    let [head] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, dead(true)).await?;
    scene.harness.delete_row(&head).await?;
    assert_eq!(free(&scene, 100).await?, ["k"]);
    let [next] = scene.keyed("k").await?;
    assert_eq!(scene.drain().await?, ids(&[next]));
    assert_eq!(scene.store.why("k").await?, None);
    Ok(())
}

/// A key whose head is in the table waits on, whatever else of it was deleted.
pub async fn a_key_whose_head_is_there_is_not_freed<H: StoreHarness>() -> Checked {
    let Some(mut scene) = fresh::<H>().await? else { return Ok(()) };
    for key in ["dead", "waiting", "renewed"] {
        scene.keyed::<1>(key).await?;
    }
    let claimed: [_; 3] = scene.claim_exactly().await?;
    let changes = [dead(true), retry(1), retry(1)];
    for (event, change) in claimed.iter().zip(changes) {
        scene.settle(event, change).await?;
    }
    let [deleted] = scene.keyed("dead").await?;
    let [becomes_head] = keyed("renewed")?;
    scene.write(&becomes_head).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.harness.delete_row(&deleted).await?;
    assert!(free(&scene, 100).await?.is_empty());
    // Another event has become the head since the first one failed.
    scene.pass(super::scene::PAST_BACKOFF).await?;
    let due: [_; 2] = scene.claim_exactly().await?;
    let [waiting, first] = &due;
    scene.settle(waiting, retry(2)).await?;
    scene.done(std::slice::from_ref(first)).await?;
    let [follower] = scene.claim_exactly().await?;
    scene.settle(&follower, dead(true)).await?;
    assert!(free(&scene, 100).await?.is_empty());
    assert_eq!(scene.store.stats().await?.held_keys, 3);
    Ok(())
}

/// Of many keys those are found whose heads are gone, a bounded number at a time.
pub async fn orphaned_keys_are_found_among_others_page_by_page<H: StoreHarness>() -> Checked {
    let Some(mut scene) = fresh::<H>().await? else { return Ok(()) };
    let mut heads = Vec::new();
    for n in 10..40 {
        heads.extend(keyed::<1>(&format!("key {n}"))?);
    }
    scene.harness.write(&heads).await?;
    for head in scene.claim().await?.events {
        scene.settle(&head, dead(true)).await?;
    }
    let mut deleted = Vec::new();
    for head in heads.iter().step_by(2) {
        scene.harness.delete_row(head).await?;
        deleted.extend(head.ordering_key().map(str::to_owned));
    }
    let mut freed = free(&scene, 7).await?;
    freed.sort();
    assert_eq!(freed, deleted);
    Ok(())
}
