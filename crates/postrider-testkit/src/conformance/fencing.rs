//! The fence: who lost a lane settles nothing of it.

use postrider_core::store::{Change, ClaimedEvent, EventStatus, Lease, Token};

use super::{
    Checked, Failure, Owner, StoreHarness,
    scene::{LEASE, RETENTION, Scene, claimed_ids, dead, ids, retry, settlement},
};

fn changes() -> [Change; 4] {
    [Change::Done, retry(1), dead(true), dead(false)]
}

/// Every kind of settle by `owner` is refused, and leaves the event and its key as they were.
async fn assert_fenced<H: StoreHarness>(scene: &Scene<H>, owner: &Owner, event: &ClaimedEvent) -> Checked {
    let id = super::scene::id_of(event);
    let before = scene.store.status(id).await?;
    for change in changes() {
        let settled = owner.settle(&scene.store, &[settlement(event, change)], RETENTION).await?;
        assert_eq!((settled.applied, settled.lost), (0, vec![event.lane]));
        assert_eq!(scene.store.status(id).await?, before);
        assert_eq!(scene.store.why("k").await?, None);
    }
    Ok(())
}

/// One event of the key `k`, claimed by the scene's owner.
async fn claimed<H: StoreHarness>(scene: &mut Scene<H>) -> Result<ClaimedEvent, Failure> {
    scene.keyed::<1>("k").await?;
    let [event] = scene.claim_exactly().await?;
    Ok(event)
}

/// After its lease ran out and another took the lane, an owner can settle nothing: not done, not wait, not dead. The
/// other can.
pub async fn an_owner_that_was_replaced_settles_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let event = claimed(&mut scene).await?;
    scene.pass(LEASE * 2).await?;
    let mut successor = Owner::lease(&scene.store, "successor").await?;
    assert_eq!(successor.leases().len(), scene.owner.leases().len());
    assert_fenced(&scene, &scene.owner, &event).await?;
    let event = match scene.keeps().places {
        true => event,
        // Who keeps no places has to meet it first.
        false => {
            let met = successor.claim(&scene.store, 10, 1000, &[]).await?.events;
            met.into_iter().next().ok_or("the event is still there")?
        }
    };
    let settled = successor.settle(&scene.store, &[settlement(&event, Change::Done)], RETENTION).await?;
    assert_eq!(settled.applied, 1);
    Ok(())
}

/// A lease that ran out and that nobody took can still settle: the token is the fence, not the time.
pub async fn an_expired_lease_that_nobody_took_can_still_settle<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let event = claimed(&mut scene).await?;
    scene.pass(LEASE * 2).await?;
    assert_eq!(scene.done(&[event]).await?.applied, 1);
    Ok(())
}

/// After a release the old token passes no more, though nobody took the lane.
pub async fn a_released_lane_lets_no_token_pass<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let event = claimed(&mut scene).await?;
    scene.store.release(&scene.owner.given_back()).await?;
    assert_fenced(&scene, &scene.owner, &event).await?;
    let late = scene.owner.at_the_start().claim(&scene.store, 10, 1000, &[]).await?;
    assert!(late.events.is_empty() && late.lost.len() == scene.owner.leases().len());
    Ok(())
}

/// The epoch alone is no token, nor is the nonce.
pub async fn half_a_token_does_not_pass<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let event = claimed(&mut scene).await?;
    let forged = |epoch: u64, nonce: u64| {
        let forge = |lease: &Lease| {
            let token = Token { epoch: lease.token.epoch + epoch, nonce: lease.token.nonce ^ nonce };
            Lease { token, ..*lease }
        };
        Owner::holding(scene.owner.leases().iter().map(forge).collect())
    };
    assert_fenced(&scene, &forged(1, 0), &event).await?;
    assert_fenced(&scene, &forged(0, 1), &event).await?;
    assert_eq!(scene.done(&[event]).await?.applied, 1);
    Ok(())
}

/// A settle over two lanes of which one is lost writes nothing of the other either. Only for stores with several lanes.
pub async fn a_settle_over_two_lanes_is_all_or_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if scene.store.features().lanes < 2 {
        return Ok(());
    }
    scene.harness.write(&super::scene::unkeyed(100)?).await?;
    let events = scene.claim().await?.events;
    let kept = events.first().ok_or("a hundred events were written")?;
    let lost =
        events.iter().find(|event| event.lane != kept.lane).ok_or("a hundred ids fell into one lane")?;
    let lease = scene.owner.lease_of(lost.lane).ok_or("every lane is leased")?;
    scene.store.release(&[(lease, 0)]).await?;
    let batch = [settlement(kept, Change::Done), settlement(lost, Change::Done)];
    let settled = scene.owner.settle(&scene.store, &batch, RETENTION).await?;
    assert_eq!((settled.applied, settled.lost), (0, vec![lost.lane]));
    for event in [kept, lost] {
        assert_eq!(scene.store.status(super::scene::id_of(event)).await?, EventStatus::New);
    }
    assert_eq!(scene.done(std::slice::from_ref(kept)).await?.applied, 1);
    Ok(())
}

/// A claim by an owner that was replaced returns nothing, parks nothing and has nothing wait.
pub async fn a_claim_by_an_owner_that_was_replaced_writes_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let head = claimed(&mut scene).await?;
    scene.settle(&head, dead(true)).await?;
    let [follower] = scene.keyed("k").await?;
    let [other] = scene.keyed("other").await?;
    scene.pass(LEASE * 2).await?;
    let mut successor = Owner::lease(&scene.store, "successor").await?;
    let late = scene.claim().await?;
    assert!(late.events.is_empty());
    assert_eq!(late.lost.len(), scene.owner.leases().len());
    assert_eq!(scene.status(&follower).await?, EventStatus::New);
    let due = successor.claim(&scene.store, 10, 1000, &[]).await?;
    assert_eq!(claimed_ids(&due.events), ids(&[other]));
    assert_eq!(scene.status(&follower).await?, EventStatus::Parked);
    Ok(())
}
