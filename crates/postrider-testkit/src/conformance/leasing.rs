//! Lanes: who may deliver them, and for how long.

use std::{collections::BTreeSet, time::Duration};

use postrider_core::store::Lane;

use super::{
    Checked, Owner, StoreHarness,
    scene::{LEASE, Scene},
};

fn lanes_of(owner: &Owner) -> Vec<Lane> {
    owner.leases().iter().map(|lease| lease.lane).collect()
}

/// Every lane of a fresh store is free, and each is leased once.
pub async fn every_lane_of_a_fresh_store_is_leased_once<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    let lanes: BTreeSet<Lane> = lanes_of(&scene.owner).into_iter().collect();
    assert_eq!(lanes.len(), scene.store.features().lanes as usize);
    assert_eq!(lanes_of(&scene.owner).len(), lanes.len());
    Ok(())
}

/// A lane that is held is not taken, not even by an instance of the same name; and it is said when it could be.
pub async fn a_held_lane_is_not_taken_by_anybody<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    for name in ["other", "suite"] {
        let request = postrider_core::store::LeaseRequest {
            owner: name.to_owned(),
            ttl: LEASE,
            nonces: postrider_core::rng::Rng::seeded(1),
            most: usize::MAX,
        };
        let leased = scene.store.lease(&request).await?;
        assert!(leased.leases().is_empty(), "{name}");
        let next = leased.next_expiry;
        assert!(next.is_some_and(|next| next <= LEASE && next > LEASE - Duration::from_secs(60)), "{next:?}");
    }
    Ok(())
}

/// A lane whose lease ran out is taken with a higher epoch and another nonce, and the old owner cannot renew it.
pub async fn a_lease_that_ran_out_is_taken_with_a_new_token<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.pass(LEASE + Duration::from_secs(1)).await?;
    let successor = Owner::lease(&scene.store, "suite").await?;
    assert_eq!(lanes_of(&successor), lanes_of(&scene.owner));
    for (old, new) in scene.owner.leases().iter().zip(successor.leases()) {
        assert_eq!(new.token.epoch, old.token.epoch + 1);
        assert_ne!(new.token.nonce, old.token.nonce);
    }
    assert!(scene.store.renew(scene.owner.leases(), LEASE).await?.held.is_empty());
    assert_eq!(scene.store.renew(successor.leases(), LEASE).await?.held, lanes_of(&successor));
    Ok(())
}

/// A renewal holds a lane for its whole time from then on.
pub async fn a_renewal_holds_a_lane_from_then_on<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.pass(LEASE / 2).await?;
    assert_eq!(scene.store.renew(scene.owner.leases(), LEASE).await?.held, lanes_of(&scene.owner));
    scene.pass(LEASE * 3 / 4).await?;
    assert!(Owner::lease(&scene.store, "other").await?.leases().is_empty());
    scene.pass(LEASE / 2).await?;
    assert_eq!(lanes_of(&Owner::lease(&scene.store, "other").await?), lanes_of(&scene.owner));
    Ok(())
}

/// A lease that ran out and that nobody took can be renewed.
pub async fn an_expired_lease_that_nobody_took_can_be_renewed<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.pass(LEASE * 2).await?;
    assert_eq!(scene.store.renew(scene.owner.leases(), LEASE).await?.held, lanes_of(&scene.owner));
    assert!(Owner::lease(&scene.store, "other").await?.leases().is_empty());
    Ok(())
}

/// A lease that ends later than it can last was taken before the clock was set back: it is taken over one lease later.
pub async fn a_lease_that_ends_too_late_is_taken_one_lease_later<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.harness.set_back(LEASE * 24).await?;
    let request = postrider_core::store::LeaseRequest {
        owner: "other".to_owned(),
        ttl: LEASE,
        nonces: postrider_core::rng::Rng::seeded(1),
        most: usize::MAX,
    };
    let asked = scene.store.lease(&request).await?;
    assert!(asked.leases().is_empty(), "the owner may be there, and renew");
    assert!(asked.next_expiry.is_some_and(|next| next <= LEASE), "{:?}", asked.next_expiry);
    scene.pass(LEASE + Duration::from_secs(1)).await?;
    assert_eq!(lanes_of(&Owner::lease(&scene.store, "other").await?), lanes_of(&scene.owner));
    Ok(())
}

/// An owner that renews after the clock was set back keeps its lanes for one lease from then on.
pub async fn an_owner_that_renews_after_the_clock_was_set_back_keeps_its_lanes<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.harness.set_back(LEASE * 24).await?;
    assert!(Owner::lease(&scene.store, "other").await?.leases().is_empty());
    scene.pass(LEASE / 2).await?;
    assert_eq!(scene.store.renew(scene.owner.leases(), LEASE).await?.held, lanes_of(&scene.owner));
    scene.pass(LEASE * 3 / 4).await?;
    assert!(Owner::lease(&scene.store, "other").await?.leases().is_empty());
    scene.pass(LEASE / 2).await?;
    assert_eq!(lanes_of(&Owner::lease(&scene.store, "other").await?), lanes_of(&scene.owner));
    Ok(())
}

/// An instance that is gone counts for no longer than it said, also if the clock was set back: its share of the lanes would be nobody's.
pub async fn an_instance_that_is_gone_is_forgotten_though_the_clock_was_set_back<H: StoreHarness>() -> Checked
{
    let mut scene = Scene::<H>::fresh().await?;
    scene.store.join("gone", LEASE).await?;
    if scene.store.join("here", LEASE).await? == 1 {
        return Ok(()); // one instance delivers at a time, and nobody counts
    }
    scene.harness.set_back(LEASE * 24).await?;
    assert_eq!(scene.store.join("here", LEASE).await?, 2);
    scene.pass(LEASE + Duration::from_secs(1)).await?;
    assert_eq!(scene.store.join("here", LEASE).await?, 1);
    Ok(())
}

/// A released lane is free at once, is taken with a higher epoch, and cannot be renewed by who released it.
pub async fn a_released_lane_is_free_at_once<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    scene.store.release(&scene.owner.given_back()).await?;
    assert!(scene.store.renew(scene.owner.leases(), LEASE).await?.held.is_empty());
    let successor = Owner::lease(&scene.store, "successor").await?;
    assert_eq!(lanes_of(&successor), lanes_of(&scene.owner));
    for (old, new) in scene.owner.leases().iter().zip(successor.leases()) {
        assert!(new.token.epoch > old.token.epoch);
    }
    Ok(())
}

/// A release with an old token takes nothing from the present owner.
pub async fn a_release_with_an_old_token_does_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.pass(LEASE * 2).await?;
    let successor = Owner::lease(&scene.store, "successor").await?;
    scene.store.release(&scene.owner.given_back()).await?;
    assert_eq!(scene.store.renew(successor.leases(), LEASE).await?.held, lanes_of(&successor));
    assert!(Owner::lease(&scene.store, "third").await?.leases().is_empty());
    Ok(())
}

/// One lane of several can be released alone. Only for stores with several lanes.
pub async fn one_lane_of_several_is_released_alone<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    let [first, _, ..] = scene.owner.leases() else { return Ok(()) };
    scene.store.release(&[(*first, 0)]).await?;
    assert_eq!(lanes_of(&Owner::lease(&scene.store, "other").await?), [first.lane]);
    Ok(())
}
