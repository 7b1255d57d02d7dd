//! A receiver that is down, or does not answer.

use postrider_core::Outcome;

use super::{
    Checked, Receiver, SinkHarness,
    scene::{SEND_MAX, Scene, send},
};

/// Of a receiver that is down a sink says `unavailable`, for every event; nothing is delivered, and nothing is lost.
pub async fn a_receiver_that_is_down_is_unavailable_and_nothing_is_delivered<H: SinkHarness>() -> Checked {
    if !H::FEATURES.down {
        return Ok(());
    }
    let mut scene = Scene::<H>::fresh().await?;
    let events = scene.batch_of(5)?;
    scene.receiver(Receiver::Down).await?;
    let outcomes = scene.send(&events).await?;
    let unavailable =
        |outcome: &Outcome| matches!(outcome, Outcome::Unavailable { error } if !error.is_empty());
    assert!(outcomes.iter().all(unavailable), "{outcomes:?}");
    scene.receiver(Receiver::Well).await?;
    assert!(scene.received().await?.is_empty(), "something arrived at a receiver that was down");
    scene.deliver(&events).await?;
    scene.arrived_once(&events).await
}

/// A receiver that was down for a while is found again by the same sink, and the order of a key is kept.
pub async fn a_receiver_that_comes_back_is_found_again<H: SinkHarness>() -> Checked {
    if !H::FEATURES.down {
        return Ok(());
    }
    let mut scene = Scene::<H>::fresh().await?;
    let events = scene.events_of(["a", "a", "a"])?;
    for (number, event) in events.iter().enumerate() {
        let event = std::slice::from_ref(event);
        scene.receiver(Receiver::Down).await?;
        let outcomes = scene.send(event).await?;
        assert!(matches!(outcomes.as_slice(), [Outcome::Unavailable { .. }]), "{number}: {outcomes:?}");
        scene.receiver(Receiver::Well).await?;
        scene.deliver(event).await?;
    }
    scene.arrived_in_order(&events).await
}

/// What a receiver did not answer is not said to be delivered, whether the sink gives up or is given up; and when the receiver
/// answers again, everything can be sent.
pub async fn what_was_not_answered_is_not_said_to_be_delivered<H: SinkHarness>() -> Checked {
    if !H::FEATURES.stall {
        return Ok(());
    }
    let mut scene = Scene::<H>::fresh().await?;
    let events = scene.batch_of(3)?;
    scene.receiver(Receiver::Stalls).await?;
    let given_up = async {
        tokio::select! {
            biased;
            outcomes = send(scene.sink.clone(), events.clone()) => Ok(Some(outcomes)),
            stalled = scene.harness.stalled() => stalled.map(|()| None),
        }
    };
    if let Some(outcomes) =
        tokio::time::timeout(SEND_MAX, given_up).await.map_err(|_| "the receiver does not stall")??
    {
        assert!(!outcomes.contains(&Outcome::Delivered), "{outcomes:?}");
    }
    scene.receiver(Receiver::Well).await?;
    scene.deliver(&events).await?;
    scene.arrived_in_order(&events).await
}
