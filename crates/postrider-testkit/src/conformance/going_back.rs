//! A database that went back in time: who claims from it is told, once.

use std::time::{Duration, Instant};

use postrider_core::{Error, StoreErrorKind};

use super::{Checked, StoreHarness, scene::Scene};

/// Stores ask their databases only now and then.
const SOON: Duration = Duration::from_secs(10);

/// A claim says that the database went back in time, and the next one brings what has the numbers of lost events.
pub async fn a_claim_says_once_that_the_database_went_back_in_time<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<3>("lost").await?;
    assert_eq!(scene.claim().await?.events.len(), 3);
    if !scene.harness.go_back().await? {
        return Ok(());
    }
    let [new] = scene.keyed("new").await?;
    let began = Instant::now();
    let told = loop {
        match scene.claim().await {
            Ok(_) if began.elapsed() < SOON => {}
            Ok(_) => return Err("nobody noticed that the database went back in time".into()),
            Err(error) => break error,
        }
    };
    let kind = told.downcast_ref::<Error>().and_then(|error| match error {
        Error::Store(error) => Some(error.kind()),
        _ => None,
    });
    assert_eq!(kind, Some(StoreErrorKind::WentBack), "{told}");
    let claimed = scene.owner.at_the_start().claim(&scene.store, 10, 1000, &[]).await?;
    assert_eq!(claimed.events.first().map(|event| event.id()), Some(new.id()));
    Ok(())
}
