//! What a sink says of a batch: one outcome for each event, in order.

use std::time::Duration;

use postrider_core::Outcome;

use super::{
    Checked, Receiver, SinkHarness,
    scene::{SEND_MAX, Scene, send},
};

/// What a sink says of itself can be worked with, and does not change.
pub async fn a_sink_says_what_it_can_do_and_keeps_to_it<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    assert!(scene.traits.batch_max >= 1, "a batch of nothing");
    assert!(scene.traits.send_timeout.is_none_or(|limit| limit > Duration::ZERO), "no time to send");
    let events = scene.batch_of(2)?;
    scene.deliver(&events).await?;
    assert_eq!(scene.sink.traits(), scene.traits);
    Ok(())
}

/// An event alone arrives, once, and is said to be delivered.
pub async fn an_event_alone_arrives<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events = scene.events(1)?;
    scene.deliver(&events).await?;
    scene.arrived_once(&events).await
}

/// A batch as large as the sink takes arrives whole, each event once.
pub async fn a_batch_of_the_declared_size_arrives_whole<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events = scene.batch_of(usize::MAX)?;
    let outcomes = scene.send(&events).await?;
    assert_eq!(outcomes, vec![Outcome::Delivered; events.len()]);
    scene.arrived_once(&events).await
}

/// An empty batch has no outcomes, sends nothing, and does the sink no harm.
pub async fn an_empty_batch_is_harmless<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    assert!(scene.send(&[]).await?.is_empty());
    assert!(scene.received().await?.is_empty());
    let events = scene.events(1)?;
    scene.deliver(&events).await?;
    assert!(scene.send(&[]).await?.is_empty());
    scene.arrived_once(&events).await
}

/// Each outcome stands where its event stood: the one that was refused, whichever it is, is the one that was not delivered.
pub async fn outcomes_stand_in_the_order_of_the_batch<H: SinkHarness>() -> Checked {
    if !H::FEATURES.refuse {
        return Ok(());
    }
    for refused in [0, 2, 4] {
        let mut scene = Scene::<H>::fresh().await?;
        let events = scene.batch_of(5)?;
        let Some(event) = events.get(refused) else { continue };
        scene.receiver(Receiver::Refuses(event.clone())).await?;
        let outcomes = scene.send(&events).await?;
        assert_ne!(outcomes.get(refused), Some(&Outcome::Delivered), "of {refused}: {outcomes:?}");
        scene.received().await?;
    }
    Ok(())
}

/// Batches of different keys are sent at the same time, and all of them arrive.
pub async fn batches_that_are_sent_at_once_all_arrive<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let mut batches = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let count = 3.min(scene.traits.batch_max);
        let keys: Vec<_> = (0..count).map(|number| format!("{name} {number}")).collect();
        batches.push(keys.iter().map(|key| scene.event(key)).collect::<Result<Vec<_>, _>>()?);
    }
    let sending = batches.iter().map(|batch| tokio::spawn(send(scene.sink.clone(), batch.clone())));
    let sending: Vec<_> = sending.collect();
    for (batch, sending) in batches.iter().zip(sending) {
        let outcomes = tokio::time::timeout(SEND_MAX, sending).await.map_err(|_| "a send does not end")??;
        assert_eq!(outcomes, vec![Outcome::Delivered; batch.len()]);
        scene.note(batch, &outcomes);
    }
    scene.arrived_once(&batches.concat()).await
}
