//! Holes in the numbers: after an `ALTER TABLE … AUTO_INCREMENT`, a restored backup or one explicit number far away, what is new is delivered at
//! once, and what drew its number before the hole is still found.

use std::time::{Duration, Instant};

use postrider_core::{Event, EventId, store::Seq, tx::OnDuplicate};

use super::{
    Checked, Failure, StoreHarness,
    scene::{Scene, claimed_ids, ids, keyed},
};

/// How soon everything comes, however wide the hole is.
const SOON: Duration = Duration::from_secs(10);

/// Where the numbers go on.
const FAR: [Seq; 3] = [1_000_000_000, 1_000_000_000_000, 9_000_000_000_000_000_000];

/// Claims and settles until these have come, in this order.
async fn come<H: StoreHarness>(scene: &mut Scene<H>, events: &[Event]) -> Checked {
    let (mut came, began): (Vec<EventId>, _) = (Vec::new(), Instant::now());
    while came.len() < events.len() {
        let claimed = scene.claim().await?.events;
        came.extend(claimed_ids(&claimed));
        scene.done(&claimed).await?;
        if began.elapsed() > SOON {
            return Err(Failure::from(format!("{} of {} came in time", came.len(), events.len())));
        }
    }
    assert_eq!(came, ids(events));
    Ok(())
}

/// What is written beyond a hole comes at once, and so does what was written before it and commits later.
pub async fn a_hole_in_the_numbers_holds_nothing_up<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let first: [_; 2] = scene.keyed("k").await?;
    come(&mut scene, &first).await?;
    let late_commits = scene.store.features().late_commits;
    for far in FAR {
        let [late] = keyed("late")?;
        let mut open = None;
        if late_commits {
            let mut tx = scene.harness.begin().await?;
            scene.harness.insert(&mut tx, std::slice::from_ref(&late), OnDuplicate::Fail).await?;
            open = Some(tx);
        }
        if !scene.harness.number_from(far).await? {
            return Ok(());
        }
        for _ in 0..2 {
            let beyond: [_; 3] = scene.keyed("k").await?;
            come(&mut scene, &beyond).await?;
        }
        if let Some(tx) = open {
            scene.harness.commit(tx).await?;
            come(&mut scene, &[late]).await?;
        }
    }
    Ok(())
}
