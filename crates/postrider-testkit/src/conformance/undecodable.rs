//! Rows that are no events.

use postrider_core::store::EventStatus;

use super::{
    Checked, StoreHarness,
    scene::{Scene, dead, id_of, ids, unkeyed},
};

/// A row that is no event is returned as such, with a reason; its neighbours are delivered. S3-11.3b
pub async fn a_row_that_is_no_event_comes_as_such_and_its_neighbours_come_too<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let mut wanted = Vec::new();
    for n in 0..3 {
        // One after the other, so that ids rise too: some tables have nothing else to order by.
        if n == 1 {
            wanted.push(scene.harness.insert_undecodable().await?);
            continue;
        }
        let neighbour = unkeyed(1)?;
        scene.harness.write(&neighbour).await?;
        wanted.extend(ids(&neighbour));
    }
    let claimed: [_; 3] = scene.claim_exactly().await?;
    assert_eq!(claimed.iter().map(|event| id_of(event).clone()).collect::<Vec<_>>(), wanted);
    let reasons: Vec<_> = claimed.iter().filter_map(|event| event.event.as_ref().err()).collect();
    assert!(matches!(reasons.as_slice(), [broken] if !broken.reason.is_empty()), "{reasons:?}");
    assert!(reasons.iter().all(|broken| !broken.event_type.is_empty()), "its type can be read: {reasons:?}");
    Ok(())
}

/// A row that is no event can be made a dead letter like any other. S3-11.3b
pub async fn a_row_that_is_no_event_can_go_dead<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let id = scene.harness.insert_undecodable().await?;
    let [broken] = scene.claim_exactly().await?;
    assert_eq!(scene.settle(&broken, dead(true)).await?.applied, 1);
    assert!(matches!(scene.store.status(&id).await?, EventStatus::Dead { .. }));
    let letters = scene.store.dead(0, 10).await?;
    assert!(matches!(letters.as_slice(), [letter] if letter.id == id), "{letters:?}");
    assert!(scene.owner.at_the_start().claim(&scene.store, 10, 1000, &[]).await?.events.is_empty());
    Ok(())
}
