//! Finding what nobody told of.

use std::time::Duration;

use postrider_core::store::{PeekWait, Seq};

use super::{
    Checked, Failure, StoreHarness,
    scene::{RETENTION, Scene},
};

/// What a peek says; none if the store cannot.
async fn peek<H: StoreHarness>(scene: &Scene<H>) -> Result<Option<Seq>, Failure> {
    let last = scene.store.peek().await?.map(|peek| peek.last);
    assert_eq!(last.is_some(), H::PEEKS, "whether it can peek");
    Ok(last)
}

/// A peek moves with a plain `INSERT`, the first one included, and tells of no less than what a claim then brings.
pub async fn a_peek_moves_with_a_plain_insert<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let Some(mut before) = peek(&scene).await? else { return Ok(()) };
    for _ in 0..3 {
        scene.harness.insert_undecodable().await?;
        let last = peek(&scene).await?.ok_or("it can no longer peek")?;
        assert!(last > before, "{last} after {before}, with an event committed between them");
        before = last;
        let claimed = scene.claim().await?.events;
        let largest = claimed.iter().map(|event| event.seq).max().ok_or("the event did not come")?;
        assert!(largest <= last, "a claim brought {largest}, and the peek before it knew of {last}");
    }
    Ok(())
}

/// A peek stands still while nothing is written, whatever else is done.
pub async fn a_peek_stands_still_while_nothing_is_written<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if peek(&scene).await?.is_none() {
        return Ok(());
    }
    scene.keyed::<3>("k").await?;
    let last = peek(&scene).await?;
    assert_eq!(peek(&scene).await?, last);
    let claimed = scene.claim().await?.events;
    assert_eq!(claimed.len(), 3);
    assert_eq!(peek(&scene).await?, last, "after a claim");
    scene.done(&claimed).await?;
    assert_eq!(peek(&scene).await?, last, "after all were settled");
    scene.store.purge(RETENTION, 100).await?;
    assert_eq!(peek(&scene).await?, last, "after a purge");
    Ok(())
}

/// What was written and delivered between two peeks moves the second one or not; what is written then moves it.
pub async fn a_peek_moves_with_what_is_written_after_everything_was_delivered<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if peek(&scene).await?.is_none() {
        return Ok(());
    }
    for _ in 0..3 {
        scene.keyed::<2>("k").await?;
        let claimed = scene.claim().await?.events;
        scene.done(&claimed).await?;
        let delivered = peek(&scene).await?;
        scene.keyed::<1>("k").await?;
        assert!(peek(&scene).await? > delivered);
        let claimed = scene.claim().await?.events;
        scene.done(&claimed).await?;
    }
    Ok(())
}

/// A peek that may wait inside the database tells of what was written, and ends when nothing is. A number that went back is told of at once, too.
pub async fn a_peek_that_waits_ends_with_the_next_number_or_with_its_time<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    if peek(&scene).await?.is_none() {
        return Ok(());
    }
    scene.keyed::<1>("k").await?;
    let known = peek(&scene).await?.ok_or("it can no longer peek")?;
    let (every, longest) = (Duration::from_millis(2), Duration::from_millis(20));
    let wait = PeekWait { known, every, longest };
    let still = scene.store.peek_from(wait).await?.ok_or("it cannot wait")?;
    assert_eq!(still.last, known, "nothing was written");

    let long = PeekWait { longest: Duration::from_secs(1), ..wait };
    let waiting = scene.store.clone();
    let waiting = tokio::spawn(async move {
        // A store that cannot wait answers at once: it is asked again.
        loop {
            match waiting.peek_from(long).await?.map(|peek| peek.last) {
                Some(last) if last == known => tokio::task::yield_now().await,
                moved => return Ok::<_, postrider_core::Error>(moved),
            }
        }
    });
    scene.harness.insert_undecodable().await?;
    let moved = tokio::time::timeout(Duration::from_secs(30), waiting).await???;
    assert!(moved.is_some_and(|last| last > known), "it did not tell of what was written: {moved:?}");

    let now = peek(&scene).await?;
    let ahead = PeekWait { known: known + 1_000_000, ..long };
    let back = scene.store.peek_from(ahead).await?.map(|peek| peek.last);
    assert_eq!(back, now, "the number that was known is not that of this database");
    Ok(())
}
