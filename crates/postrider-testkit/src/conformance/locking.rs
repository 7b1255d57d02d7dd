//! Rows that somebody else has locked: nobody waits for them, and all else goes on.

use std::time::Duration;

use postrider_core::{
    Event,
    store::{Change, ClaimedEvent, EventStatus, Settled, Settlement},
};

use super::{
    Checked, Failure, StoreHarness,
    scene::{PAST_BACKOFF, RETENTION, Scene, claimed_ids, dead, retry, settlement, sorted},
};

/// Longer than any store waits for a lock before it goes around it, and shorter than it would wait for ever.
const SOON: Duration = Duration::from_secs(10);

async fn soon<T>(verb: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let waited = tokio::time::timeout(SOON, verb).await;
    waited.map_err(|_| "the store waits for somebody else's lock".into()).and_then(|done| done)
}

/// Settles these while the row of `event` is locked.
async fn settle_beside<H: StoreHarness>(
    scene: &mut Scene<H>,
    event: &Event,
    settlements: &[Settlement],
) -> Result<Option<Settled>, Failure> {
    if !scene.harness.lock_row(event).await? {
        return Ok(None);
    }
    let settled = soon(scene.owner.settle(&scene.store, settlements, RETENTION)).await;
    scene.harness.unlock_row().await?;
    Ok(Some(settled?))
}

/// A settle that meets a locked row writes the others and names that one, whatever is to become of it. It can be written once the lock is
/// gone.
pub async fn a_settle_goes_around_a_locked_row<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    for (round, change) in [Change::Done, retry(1), dead(false)].into_iter().enumerate() {
        let [before] = scene.keyed(&format!("before {round}")).await?;
        let [locked] = scene.keyed(&format!("locked {round}")).await?;
        let [behind] = scene.keyed(&format!("behind {round}")).await?;
        let claimed: [ClaimedEvent; 3] = scene.claim_exactly().await?;
        let of = |event: &Event| claimed.iter().find(|claimed| claimed.id() == event.id());
        let (Some(one), Some(two), Some(three)) = (of(&before), of(&locked), of(&behind)) else {
            return Err("three events were written".into());
        };
        let batch =
            [settlement(one, Change::Done), settlement(two, change.clone()), settlement(three, Change::Done)];
        let Some(settled) = settle_beside(&mut scene, &locked, &batch).await? else { return Ok(()) };
        assert_eq!(
            (settled.applied, settled.locked, settled.lost.len()),
            (2, vec![two.seq], 0),
            "{change:?}"
        );
        scene.assert_done(&before).await?;
        scene.assert_done(&behind).await?;
        assert!(scene.store.why(&format!("locked {round}")).await?.is_none());
        let settled = scene.settle(two, change).await?;
        assert_eq!((settled.applied, settled.locked.len()), (1, 0));
        assert_ne!(scene.status(&locked).await?, EventStatus::New);
    }
    Ok(())
}

/// A settle that meets a locked lane writes the outcomes of the others, names those of that one, and loses no lane. Renewals go around it too.
pub async fn a_settle_goes_around_a_locked_lane<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    for number in 0..40 {
        scene.keyed::<1>(&format!("key {number}")).await?;
    }
    let claimed: [ClaimedEvent; 40] = scene.claim_exactly().await?;
    let Some(locked) = claimed.iter().map(|event| event.lane).max() else { return Ok(()) };
    if !scene.harness.lock_lane(locked).await? {
        return Ok(());
    }
    let batch: Vec<Settlement> = claimed.iter().map(|event| settlement(event, Change::Done)).collect();
    let settled = soon(scene.owner.settle(&scene.store, &batch, RETENTION)).await;
    let renewed = soon(async { Ok(scene.store.renew(scene.owner.leases(), RETENTION).await?) }).await;
    scene.harness.unlock_row().await?;
    let (settled, renewed) = (settled?, renewed?);
    let of_lane: Vec<_> =
        claimed.iter().filter(|event| event.lane == locked).map(|event| event.seq).collect();
    assert_eq!((settled.lost.len(), &settled.locked), (0, &of_lane));
    assert_eq!(settled.applied, (claimed.len() - of_lane.len()) as u64);
    assert_eq!(renewed.locked, [locked]);
    assert_eq!(renewed.held.len() + 1, scene.owner.leases().len());
    let rest: Vec<Settlement> =
        batch.into_iter().filter(|settlement| of_lane.contains(&settlement.seq)).collect();
    let settled = soon(scene.owner.settle(&scene.store, &rest, RETENTION)).await?;
    assert_eq!((settled.applied, settled.locked.len()), (rest.len() as u64, 0));
    Ok(())
}

/// A head whose row is locked goes on holding its key.
pub async fn a_locked_head_is_not_freed<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [head] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, retry(1)).await?;
    let [follower] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [claimed] = scene.claim_exactly().await?;
    let done = [settlement(&claimed, Change::Done)];
    let Some(settled) = settle_beside(&mut scene, &head, &done).await? else { return Ok(()) };
    assert_eq!((settled.applied, settled.locked), (0, vec![claimed.seq]));
    assert!(scene.store.why("k").await?.is_some());
    assert_eq!(scene.settle(&claimed, Change::Done).await?.applied, 1);
    let [next] = scene.claim_exactly().await?;
    assert_eq!(next.id(), follower.id());
    Ok(())
}

/// A claim waits for nobody's lock: what is not locked comes at once, and all of it has come once the lock is gone.
pub async fn a_claim_does_not_wait_for_a_locked_row<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first] = scene.keyed("first").await?;
    let [locked] = scene.keyed("locked").await?;
    let [last] = scene.keyed("last").await?;
    if !scene.harness.lock_row(&locked).await? {
        return Ok(());
    }
    let mut events = Vec::new();
    for _ in 0..3 {
        events.extend(soon(async { Ok(scene.claim().await?.events) }).await?);
    }
    scene.harness.unlock_row().await?;
    let came = claimed_ids(&events);
    assert!(came.contains(first.id()) && came.contains(last.id()), "{came:?}");
    events.extend(scene.claim().await?.events);
    let all = [&first, &locked, &last].map(|event| event.id().clone());
    assert_eq!(sorted(claimed_ids(&events)), sorted(all.to_vec()));
    Ok(())
}
