//! Rows that somebody else has locked: nobody waits for them, and all else goes on.

use std::time::Duration;

use postrider_core::{
    Event, EventId,
    store::{Change, ClaimedEvent, EventStatus, Lease, Seq, Settled, Settlement},
};

use super::{
    Checked, Failure, StoreHarness,
    gate::Gate,
    scene::{
        BACKOFF, LEASE, Owner, PAST_BACKOFF, RETENTION, Scene, claimed_ids, dead, ids, keyed, retry,
        settlement, sorted,
    },
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

/// What a few claims bring that must not wait for a lock; none of it is settled.
async fn claims_soon<H: StoreHarness>(scene: &mut Scene<H>) -> Result<Vec<ClaimedEvent>, Failure> {
    let mut events: Vec<ClaimedEvent> = Vec::new();
    for _ in 0..3 {
        let in_flight: Vec<Seq> = events.iter().map(|event| event.seq).collect();
        let claim = scene.owner.claim(&scene.store, 1000, usize::MAX, &in_flight);
        events.extend(soon(claim).await?.events);
    }
    Ok(events)
}

/// The order in which the events of interest came.
fn order_of(came: &[EventId], events: &[Event]) -> Vec<EventId> {
    came.iter().filter(|id| events.iter().any(|event| event.id() == *id)).cloned().collect()
}

/// A claim that meets a locked event whose time has not come brings everything else, and the event comes at its time.
pub async fn a_claim_goes_around_a_locked_row_that_is_delayed<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scene.keeps().delays {
        return Ok(());
    }
    let delayed = Event::json_text("Delayed", "{}").key("later").deliver_after(BACKOFF).build()?;
    scene.write(&delayed).await?;
    for number in 0..100 {
        scene.keyed::<1>(&format!("key {number}")).await?;
    }
    if !scene.harness.lock_row(&delayed).await? {
        return Ok(());
    }
    let claimed = claims_soon(&mut scene).await;
    scene.harness.unlock_row().await?;
    let claimed = claimed?;
    assert_eq!(claimed.len(), 100);
    scene.done(&claimed).await?;
    let claimed = scene.claim().await?;
    assert!(claimed.events.is_empty(), "{claimed:?}");
    // Where claims keep no places, a delayed event stays as it was written until its time has come.
    if scene.keeps().places {
        assert!(claimed.next_due.is_some_and(|due| due <= BACKOFF), "{claimed:?}");
        assert!(matches!(scene.status(&delayed).await?, EventStatus::Waiting { .. }));
    }
    scene.pass(PAST_BACKOFF).await?;
    assert_eq!(scene.drain().await?, ids(&[delayed]));
    Ok(())
}

/// A locked follower is not returned while its key waits, no later event of its key overtakes it, and other keys go on: those that are due, and
/// those that come back.
pub async fn a_claim_goes_around_a_locked_follower<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let (key, other) = ("k", "other");
    for key in [key, other] {
        scene.keyed::<1>(key).await?;
    }
    for head in scene.claim_exactly::<2>().await? {
        scene.settle(&head, retry(1)).await?;
    }
    let followers: [Event; 2] = scene.keyed(key).await?;
    let [back] = scene.keyed(other).await?;
    scene.pass(PAST_BACKOFF).await?;
    let [first, _] = &followers;
    if !scene.harness.lock_row(first).await? {
        return Ok(());
    }
    let heads = claims_soon(&mut scene).await;
    let came = async {
        let heads = heads?;
        assert_eq!(heads.len(), 2, "the heads are due and nobody else is");
        let done: Vec<Settlement> = heads.iter().map(|head| settlement(head, Change::Done)).collect();
        soon(scene.owner.settle(&scene.store, &done, RETENTION)).await?;
        let [new] = scene.keyed("new").await?;
        let claimed = claims_soon(&mut scene).await?;
        let came = claimed_ids(&claimed);
        assert!(came.contains(back.id()), "a key that comes back waits for another key's locked row");
        assert!(came.contains(new.id()));
        assert!(
            followers.iter().map(Event::id).zip(order_of(&came, &followers)).all(|(id, came)| *id == came)
        );
        Ok::<_, Failure>(claimed)
    };
    let came = came.await;
    scene.harness.unlock_row().await?;
    let came = came?;
    scene.done(&came).await?;
    let mut all = claimed_ids(&came);
    all.extend(scene.drain().await?);
    assert_eq!(order_of(&all, &followers), ids(&followers));
    Ok(())
}

/// A locked event that comes back and is not wanted stays where it is, and so do those behind it: none is lost, and they come in order.
pub async fn a_claim_goes_around_a_locked_row_that_comes_back_unwanted<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scene.keeps().on_dead {
        return Ok(());
    }
    let before = scene.owner.positions();
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let parked: [Event; 4] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, Change::Done).await?;
    let [_, second, ..] = &parked;
    if !scene.harness.lock_row(second).await? {
        return Ok(());
    }
    scene.owner.admit(Some(Gate::new(|row| row.key != Some("k"))));
    let [other] = scene.keyed("other").await?;
    let came = claims_soon(&mut scene).await;
    scene.harness.unlock_row().await?;
    assert_eq!(claimed_ids(&came?), [other.id().clone()]);
    scene.owner.admit(None);
    scene.owner.go_back(before);
    let came = scene.drain().await?;
    assert_eq!(order_of(&came, &parked), ids(&parked));
    Ok(())
}

/// While a lane is locked, claims go on and the other lanes are marked. What a claim would write in the locked lane is written later, and nothing
/// overtakes.
pub async fn a_claim_goes_around_a_locked_lane<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let keys: Vec<String> = (0..40).map(|number| format!("key {number}")).collect();
    for key in &keys {
        scene.keyed::<1>(key).await?;
    }
    let heads: [ClaimedEvent; 40] = scene.claim_exactly().await?;
    let waits: Vec<Settlement> = heads.iter().map(|head| settlement(head, retry(1))).collect();
    scene.owner.settle(&scene.store, &waits, RETENTION).await?;
    let Some(locked) = heads.iter().map(|event| event.lane).max() else { return Ok(()) };
    let mut followers: Vec<[Event; 2]> = Vec::new();
    for key in &keys {
        followers.push(keyed(key)?);
    }
    let written: Vec<Event> = followers.iter().flatten().cloned().collect();
    scene.harness.write(&written).await?;
    if !scene.harness.lock_lane(locked).await? {
        return Ok(());
    }
    let [new] = scene.keyed("new").await?;
    let came = claims_soon(&mut scene).await;
    let marks: Vec<(Lease, Seq)> = scene.owner.leases().iter().map(|lease| (*lease, 1)).collect();
    let marked = soon(async { Ok(scene.store.mark_sent(&marks).await?) }).await;
    scene.harness.unlock_row().await?;
    assert_eq!(claimed_ids(&came?), [new.id().clone()]);
    let marked = marked?;
    assert_eq!((marked.lost.len(), marked.locked), (0, vec![locked]));
    scene.pass(PAST_BACKOFF).await?;
    let came = scene.drain().await?;
    for followers in &followers {
        assert_eq!(order_of(&came, followers), ids(followers));
    }
    Ok(())
}

/// A lane that is locked keeps no other from being given back. It stays held, and can be given back once the lock is gone.
pub async fn a_release_goes_around_a_locked_lane<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    let Some(locked) = scene.owner.leases().last().map(|lease| lease.lane) else { return Ok(()) };
    if !scene.harness.lock_lane(locked).await? {
        return Ok(());
    }
    let release = || soon(async { Ok(scene.store.release(&scene.owner.given_back()).await?) });
    let released = release().await;
    scene.harness.unlock_row().await?;
    assert_eq!(released?, [locked]);
    assert_eq!(scene.store.renew(scene.owner.leases(), LEASE).await?.held, [locked]);
    let others = Owner::lease(&scene.store, "successor").await?;
    assert_eq!(others.leases().len() + 1, scene.owner.leases().len());
    assert!(others.lease_of(locked).is_none());
    assert!(release().await?.is_empty());
    let rest = Owner::lease(&scene.store, "successor").await?;
    assert_eq!(rest.leases().iter().map(|lease| lease.lane).collect::<Vec<_>>(), [locked]);
    Ok(())
}
