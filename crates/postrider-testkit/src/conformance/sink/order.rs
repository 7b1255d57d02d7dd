//! The order of a key, and what a failure does to it.

use postrider_core::{BatchOrder, Event, Outcome};

use super::{
    Checked, Receiver, SinkHarness,
    scene::{Scene, count},
};

/// The events of a key arrive in their order, in one batch and over several.
pub async fn the_events_of_a_key_arrive_in_order<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let mut events = Vec::new();
    for _ in 0..5 {
        events.extend(scene.events_of(["a", "b", "a", "c"])?);
    }
    scene.deliver(&events).await?;
    scene.arrived_once(&events).await?;
    scene.arrived_in_order(&events).await
}

/// A prefix sink: once an event of a key was not delivered, no later event of that key in the batch was applied, and none is
/// said to be.
pub async fn after_a_failure_no_later_event_of_its_key_was_applied<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !H::FEATURES.refuse || scene.traits.order != BatchOrder::Prefix || scene.traits.batch_max < 2 {
        return Ok(());
    }
    let [a1, a2, b1, a3, b2] = scene.events_of(["a", "a", "b", "a", "b"])?;
    let (failed, behind) = (a2.clone(), a3.clone());
    let sent = if scene.traits.batch_max >= 5 { vec![a1, a2, b1, a3, b2] } else { vec![a2, a3] };
    scene.receiver(Receiver::Refuses(failed.clone())).await?;
    let outcomes = scene.send(&sent).await?;
    let received = scene.received().await?;
    for (event, outcome) in sent.iter().zip(&outcomes) {
        if [&failed, &behind].contains(&event) {
            assert_ne!(*outcome, Outcome::Delivered, "{outcomes:?}");
            assert_eq!(count(event, &received), 0, "applied behind a failure: {outcomes:?}");
        }
    }
    // What is sent again comes in order.
    scene.receiver(Receiver::Well).await?;
    scene.deliver(&undelivered(&sent, &outcomes)).await?;
    scene.arrived_in_order(&sent).await
}

/// An event that is refused is not delivered, and its receiver is not taken for one that is down.
pub async fn a_refused_event_has_failed_and_its_receiver_is_not_down<H: SinkHarness>() -> Checked {
    if !H::FEATURES.refuse {
        return Ok(());
    }
    let mut scene = Scene::<H>::fresh().await?;
    let events = scene.events(1)?;
    for event in &events {
        scene.receiver(Receiver::Refuses(event.clone())).await?;
    }
    let outcomes = scene.send(&events).await?;
    let failed = |outcome: &Outcome| !matches!(outcome, Outcome::Delivered | Outcome::Unavailable { .. });
    assert!(outcomes.iter().all(failed), "{outcomes:?}");
    assert!(scene.received().await?.is_empty());
    Ok(())
}

/// A refused event holds up no other key: the others are delivered, at the latest when they are sent without it.
pub async fn a_refused_event_does_not_hold_up_other_keys<H: SinkHarness>() -> Checked {
    if !H::FEATURES.refuse {
        return Ok(());
    }
    let mut scene = Scene::<H>::fresh().await?;
    let mut events = scene.events(6)?;
    let refused = events.get(1).cloned().ok_or("an event")?;
    scene.receiver(Receiver::Refuses(refused.clone())).await?;
    let outcomes = scene.send_all(&events).await?;
    let again: Vec<_> =
        undelivered(&events, &outcomes).into_iter().filter(|event| *event != refused).collect();
    scene.deliver(&again).await?;
    let received = scene.received().await?;
    assert_eq!(count(&refused, &received), 0);
    events.retain(|event| *event != refused);
    scene.arrived_in_order(&events).await
}

fn undelivered(events: &[Event], outcomes: &[Outcome]) -> Vec<Event> {
    let left = events.iter().zip(outcomes).filter(|(_, outcome)| **outcome != Outcome::Delivered);
    left.map(|(event, _)| event.clone()).collect()
}
