//! A send that is not answered in time: the sink ends it before the engine does, and says what it knows.

use std::time::Duration;

use postrider_core::{Event, Outcome};

use super::{
    Checked, Failure, Receiver, SinkHarness,
    scene::{Scene, send},
};

/// A send that nobody answers ends before its time-out; its events were sent without an answer or not at all, and can be sent again.
pub async fn a_send_without_an_answer_ends_before_its_time_out<H: SinkHarness>() -> Checked {
    if !H::FEATURES.stall {
        return Ok(());
    }
    let Some(mut scene) = hasty::<H>().await? else { return Ok(()) };
    let before = scene.events(1)?;
    scene.deliver(&before).await?;
    let events = scene.batch_of(3)?;
    scene.receiver(Receiver::Stalls).await?;
    let outcomes = send_in_time(&mut scene, &events).await?;
    assert!(outcomes.iter().all(is_open), "{outcomes:?}");
    scene.receiver(Receiver::Well).await?;
    scene.deliver(&events).await?;
    scene.arrived_in_order(&[before, events].concat()).await
}

/// A send of which one event is not answered ends before its time-out, and the others are said to be delivered.
pub async fn a_send_that_is_answered_in_part_says_what_was_delivered<H: SinkHarness>() -> Checked {
    if !H::FEATURES.ignore {
        return Ok(());
    }
    let Some(mut scene) = hasty::<H>().await? else { return Ok(()) };
    let events = scene.batch_of(3)?;
    let ignored = events.get(events.len() / 2).cloned().ok_or("an event")?;
    scene.receiver(Receiver::Ignores(ignored.clone())).await?;
    let outcomes = send_in_time(&mut scene, &events).await?;
    for (event, outcome) in events.iter().zip(&outcomes) {
        let right = if *event == ignored { is_open(outcome) } else { *outcome == Outcome::Delivered };
        assert!(right, "{outcomes:?}");
    }
    scene.receiver(Receiver::Well).await?;
    scene.deliver(&[ignored]).await?;
    scene.received().await.map(drop)
}

async fn hasty<H: SinkHarness>() -> Result<Option<Scene<H>>, Failure> {
    let mut scene = Scene::<H>::fresh().await?;
    let Some(sink) = scene.harness.hasty() else { return Ok(None) };
    (scene.traits, scene.sink) = (sink.traits(), sink);
    Ok(Some(scene))
}

async fn send_in_time<H: SinkHarness>(
    scene: &mut Scene<H>,
    events: &[Event],
) -> Result<Vec<Outcome>, Failure> {
    let limit = scene.traits.send_timeout.ok_or("a hasty sink has a time-out")?;
    let sending = send(scene.sink.clone(), events.to_vec());
    let outcomes =
        tokio::time::timeout(limit, sending).await.map_err(|_| "the sink does not end the send")?;
    scene.note(events, &outcomes);
    Ok(outcomes)
}

/// What is said of an event that was not answered, or not sent because of the end.
fn is_open(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Unknown { .. } | Outcome::BatchFailed { .. } => true,
        Outcome::Deferred { after } => *after == Duration::ZERO,
        _ => false,
    }
}
