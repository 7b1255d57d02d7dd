//! Events that wait for a time of their own.

use std::time::Duration;

use postrider_core::{Event, Timestamp, store::EventStatus};

use super::{
    Checked, Failure, StoreHarness,
    scene::{BACKOFF, PAST_BACKOFF, Scene, claimed_ids, id_of, ids, keyed, retry, unkeyed},
};

fn delayed(key: &str, after: Duration) -> Result<Event, Failure> {
    Ok(Event::json_text("Delayed", "{}").key(key).deliver_after(after).build()?)
}

/// An event with a delay is not returned before its time, and is after it. S3-9.2e
pub async fn a_delayed_event_comes_at_its_time_and_not_before<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays) {
        return Ok(());
    }
    let event = delayed("k", BACKOFF)?;
    scene.write(&event).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(BACKOFF / 2).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(BACKOFF / 2).await?;
    scene.pass(Duration::from_secs(1)).await?;
    let [claimed] = scene.claim_exactly().await?;
    assert_eq!((claimed.attempts, claimed.held), (0, false));
    assert_eq!(scene.done(&[claimed]).await?.applied, 1);
    Ok(())
}

/// An event with a point in time is due then; a point in the past is due at once.
pub async fn an_event_is_due_at_its_point_in_time<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays) {
        return Ok(());
    }
    let now = scene.claim().await?.now;
    let at = |time: Timestamp| Event::json_text("Timed", "{}").available_at(time).build();
    let (later, past) = (at(now.plus(BACKOFF))?, at(now.minus(BACKOFF))?);
    scene.harness.write(&[later.clone(), past.clone()]).await?;
    let claimed: [_; 1] = scene.claim_exactly().await?;
    assert_eq!(claimed_ids(&claimed), ids(&[past]));
    scene.done(&claimed).await?;
    scene.pass(PAST_BACKOFF).await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[later]));
    Ok(())
}

/// A claim that meets a delayed event has it wait, with no attempt counted and no hold on its key.
pub async fn a_delayed_event_that_was_met_waits_without_holding_its_key<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays) {
        return Ok(());
    }
    let event = delayed("k", BACKOFF)?;
    scene.write(&event).await?;
    let [after] = scene.keyed("k").await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[after]));
    let status = scene.status(&event).await?;
    assert!(matches!(status, EventStatus::Waiting { attempts: 0, error: None, .. }), "{status:?}");
    // Among those that wait, and not only because its time has not come.
    assert!(scene.store.stats().await?.waiting == 1 || !scene.keeps().places);
    assert_eq!(scene.store.why("k").await?, None);
    Ok(())
}

/// A claim says how long it is until the next waiting event is due, one that it met just now included.
pub async fn a_claim_says_when_the_next_event_is_due<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays && scene.keeps().places) {
        return Ok(());
    }
    scene.harness.write(&[delayed("a", BACKOFF * 2)?, delayed("b", BACKOFF)?]).await?;
    for _ in 0..2 {
        let next = scene.claim().await?.next_due;
        assert!(
            next.is_some_and(|next| next <= BACKOFF && next > BACKOFF - Duration::from_secs(60)),
            "{next:?}"
        );
    }
    scene.pass(PAST_BACKOFF).await?;
    let claimed = scene.claim().await?;
    assert_eq!(claimed.events.len(), 1);
    assert!(claimed.next_due.is_some_and(|next| next < BACKOFF), "{:?}", claimed.next_due);
    Ok(())
}

/// A delayed event of a held key is not parked before its time: it would come back before its time.
pub async fn a_delayed_event_behind_a_held_key_keeps_its_time<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays) {
        return Ok(());
    }
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let late = delayed("k", BACKOFF * 4)?;
    scene.write(&late).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [head] = scene.claim_exactly().await?;
    scene.done(&[head]).await?;
    assert!(scene.drain().await?.is_empty());
    scene.pass(BACKOFF * 4).await?;
    assert_eq!(scene.drain().await?, ids(&[late]));
    Ok(())
}

/// A waiting event that becomes due while its key is held by another is parked, and comes back with the rest.
pub async fn a_waiting_follower_that_becomes_due_is_parked<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays && scene.keeps().places) {
        return Ok(());
    }
    let late = delayed("k", BACKOFF)?;
    scene.write(&late).await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    scene.pass(BACKOFF / 2).await?;
    scene.pass(PAST_BACKOFF / 2).await?;
    // Both are due now; the head holds the key.
    let [head] = scene.claim_exactly().await?;
    assert_eq!((head.attempts, head.held), (1, true));
    assert_eq!(scene.status(&late).await?, EventStatus::Parked);
    scene.done(&[head]).await?;
    assert_eq!(scene.drain().await?, ids(&[late]));
    Ok(())
}

/// Waiting events come in the order of their times, whatever the order in which they were written.
pub async fn waiting_events_come_in_the_order_of_their_times<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays && scene.keeps().places) {
        return Ok(());
    }
    let [a, b, c] = [delayed("k", BACKOFF)?, delayed("k", BACKOFF / 3)?, delayed("k", BACKOFF / 2)?];
    scene.harness.write(&[a.clone(), b.clone(), c.clone()]).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let mut got = Vec::new();
    for _ in 0..3 {
        got.extend(claimed_ids(&scene.claim_at_most(1).await?.events));
    }
    assert_eq!(got, ids(&[b, c, a]));
    Ok(())
}

/// Claims go through the waiting events round by round: each comes once before the first comes again.
pub async fn claims_go_round_the_waiting_events<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays && scene.keeps().places) {
        return Ok(());
    }
    let events: [_; 10] = keyed("k")?;
    let events: Result<Vec<Event>, Failure> =
        events.iter().map(|event| Ok(event.to_builder().deliver_after(BACKOFF).build()?)).collect();
    let events = events?;
    scene.harness.write(&events).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let (mut got, mut mores) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let claimed = scene.claim_at_most(4).await?;
        got.extend(claimed_ids(&claimed.events));
        mores.push(claimed.more);
    }
    assert_eq!((got, mores), (ids(&events), vec![true, true, false]));
    // The end was reached, so the next round begins: nothing was settled, and nothing may be forgotten.
    let round = scene.claim_at_most(4).await?;
    assert_eq!(claimed_ids(&round.events), ids(&events).into_iter().take(4).collect::<Vec<_>>());
    Ok(())
}

/// An event without a key that failed waits for its time and holds nothing.
pub async fn a_failed_event_without_a_key_waits_alone<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events = unkeyed(2)?;
    scene.harness.write(&events).await?;
    let [first, second] = scene.claim_exactly().await?;
    scene.settle(&first, retry(1)).await?;
    scene.done(&[second]).await?;
    assert!(scene.claim().await?.events.is_empty());
    assert_eq!(scene.store.stats().await?.held_keys, 0);
    scene.pass(PAST_BACKOFF).await?;
    let [again] = scene.claim_exactly().await?;
    assert!(again.seq == first.seq || !scene.keeps().places);
    assert_eq!((id_of(&again), again.attempts, again.held), (id_of(&first), 1, false));
    Ok(())
}

/// A waiting event that is in memory is skipped like any other.
pub async fn a_waiting_event_in_flight_is_skipped<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays) {
        return Ok(());
    }
    scene.harness.write(&[delayed("a", BACKOFF)?, delayed("b", BACKOFF)?]).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [first, second] = scene.claim_exactly().await?;
    let claimed = scene.owner.at_the_start().claim(&scene.store, 1, 1000, &[first.seq]).await?;
    assert_eq!(claimed.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [second.seq]);
    Ok(())
}

/// A waiting event that is due and was given back comes once, not twice.
pub async fn a_due_event_that_was_given_back_comes_once<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays) {
        return Ok(());
    }
    scene.write(&delayed("k", BACKOFF)?).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [event] = scene.claim_exactly().await?;
    scene.owner.give_back(&[&event]);
    let [again] = scene.claim_exactly().await?;
    assert_eq!(again.seq, event.seq);
    Ok(())
}

/// A given-back event that waits for a later time is left to it.
pub async fn a_given_back_event_that_waits_is_left_waiting<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, retry(1)).await?;
    scene.owner.give_back(&[&claimed]);
    assert!(scene.claim().await?.events.is_empty());
    assert!(matches!(scene.status(&event).await?, EventStatus::Waiting { attempts: 1, .. }));
    Ok(())
}
