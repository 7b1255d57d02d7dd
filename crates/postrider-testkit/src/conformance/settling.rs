//! Settles: what an outcome leaves behind, and that repeating it changes nothing.

use std::time::Duration;

use postrider_core::{
    event::limits::ERROR_CHARS_MAX,
    store::{Change, EventStatus, HoldReason, Settlement},
};

use super::{
    Checked, StoreHarness,
    scene::{BACKOFF, PAST_BACKOFF, RETENTION, Scene, dead, retry, settlement},
};

/// A delivered event is done, and is never claimed again. S3-9.2b
pub async fn a_delivered_event_is_done_and_never_comes_again<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let claimed: [_; 1] = scene.claim_exactly().await?;
    assert_eq!(scene.done(&claimed).await?.applied, 1);
    scene.assert_done(&event).await?;
    assert!(scene.owner.at_the_start().claim(&scene.store, 10, 1000, &[]).await?.events.is_empty());
    Ok(())
}

/// With a retention of zero nothing is left of a delivered event.
pub async fn nothing_is_left_of_a_delivered_event_without_retention<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().retention) {
        return Ok(());
    }
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    let settled =
        scene.owner.settle(&scene.store, &[settlement(&claimed, Change::Done)], Duration::ZERO).await?;
    assert_eq!(settled.applied, 1);
    assert_eq!(scene.status(&event).await?, EventStatus::Absent);
    assert_eq!(scene.store.stats().await?.done, 0);
    Ok(())
}

/// A failed event waits, with its attempts and its error. S3-9.2c
pub async fn a_failed_event_waits_with_its_attempts_and_its_error<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let claim = scene.claim().await?;
    let [claimed] = claim.events.as_slice() else { return Err("one event was written".into()) };
    assert_eq!(scene.settle(claimed, retry(4)).await?.applied, 1);
    let EventStatus::Waiting { attempts, available_at, error } = scene.status(&event).await? else {
        return Err("the event waits".into());
    };
    assert_eq!((attempts, error.as_deref()), (4, Some("attempt 4 failed").filter(|_| scene.keeps().errors)));
    let wait = available_at.since(claim.now);
    assert!(wait >= BACKOFF && wait < BACKOFF + Duration::from_secs(60), "{wait:?}");
    Ok(())
}

/// A wait without an error keeps the error that was there.
pub async fn a_wait_without_an_error_keeps_the_last_one<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().errors) {
        return Ok(());
    }
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, retry(1)).await?;
    scene.pass(PAST_BACKOFF).await?;
    let [claimed] = scene.claim_exactly().await?;
    let deferred = Change::Wait { after: BACKOFF, attempts: 1, error: None, reason: HoldReason::Deferred };
    assert_eq!(scene.settle(&claimed, deferred).await?.applied, 1);
    assert!(scene.claim().await?.events.is_empty());
    let status = scene.status(&event).await?;
    assert!(
        matches!(&status, EventStatus::Waiting { attempts: 1, error: Some(error), .. } if error == "attempt 1 failed"),
        "{status:?}"
    );
    Ok(())
}

/// A dead event keeps its attempts and its error, and does not come again. S3-9.2d
pub async fn a_dead_event_keeps_its_attempts_and_its_error<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    assert_eq!(scene.settle(&claimed, dead(false)).await?.applied, 1);
    let keeps = scene.keeps();
    let expected = EventStatus::Dead {
        attempts: if keeps.last_attempt { 3 } else { 2 },
        error: if keeps.dead_errors { "it is of no use" } else { "" }.to_owned(),
    };
    assert_eq!(scene.status(&event).await?, expected);
    assert!(scene.owner.at_the_start().claim(&scene.store, 10, 1000, &[]).await?.events.is_empty());
    Ok(())
}

/// Settling as done twice changes nothing the second time, `done_at` included. S3-9.2b
pub async fn settling_done_twice_changes_nothing_the_second_time<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let claimed: [_; 1] = scene.claim_exactly().await?;
    assert_eq!(scene.done(&claimed).await?.applied, 1);
    let before = scene.status(&event).await?;
    let settled = scene.done(&claimed).await?;
    assert!(settled.applied == 0 && settled.lost.is_empty());
    assert_eq!(scene.status(&event).await?, before);
    assert_eq!(scene.store.stats().await?.done, u64::from(scene.keeps().delivered));
    Ok(())
}

/// Settling as waiting twice changes nothing the second time: the wait is not begun anew. S3-9.2c
pub async fn settling_a_wait_twice_changes_nothing_the_second_time<H: StoreHarness>() -> Checked {
    for reason in [HoldReason::Retry, HoldReason::Deferred] {
        let mut scene = Scene::<H>::fresh().await?;
        let [event] = scene.keyed("k").await?;
        let [claimed] = scene.claim_exactly().await?;
        let wait = Change::Wait { after: BACKOFF, attempts: 2, error: Some("no".to_owned()), reason };
        assert_eq!(scene.settle(&claimed, wait.clone()).await?.applied, 1);
        scene.pass(BACKOFF / 2).await?;
        let before = (scene.status(&event).await?, scene.store.why("k").await?);
        assert!(matches!(before.0, EventStatus::Waiting { attempts: 2, .. }), "{before:?}");
        let settled = scene.settle(&claimed, wait).await?;
        assert!(settled.applied == 0 && settled.lost.is_empty());
        assert_eq!((scene.status(&event).await?, scene.store.why("k").await?), before);
        let stats = scene.store.stats().await?;
        assert_eq!((stats.pending, stats.waiting, stats.held_keys), (1, 1, 1));
    }
    Ok(())
}

/// An event that was put off can be put off again once it was due, with the same attempts.
pub async fn an_event_can_be_put_off_again_and_again<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    for _ in 0..3 {
        let [claimed] = scene.claim_exactly().await?;
        let deferred =
            Change::Wait { after: BACKOFF, attempts: 0, error: None, reason: HoldReason::Deferred };
        assert_eq!(scene.settle(&claimed, deferred).await?.applied, 1);
        assert!(scene.claim().await?.events.is_empty());
        scene.pass(PAST_BACKOFF).await?;
    }
    Ok(())
}

/// An attempt that is counted beforehand leaves a waiting event where it waits, and the wait that follows with the same number is a new one.
pub async fn an_attempt_that_is_counted_beforehand_is_followed_by_a_wait<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    for attempts in 1..=3 {
        let [claimed] = scene.claim_exactly().await?;
        assert_eq!(scene.settle(&claimed, Change::Attempt { attempts }).await?.applied, 1, "{attempts}");
        assert_eq!(scene.settle(&claimed, retry(attempts)).await?.applied, 1, "{attempts}");
        let status = scene.status(&event).await?;
        assert!(matches!(status, EventStatus::Waiting { attempts: is, .. } if is == attempts), "{status:?}");
        assert!(scene.claim().await?.events.is_empty());
        scene.pass(PAST_BACKOFF).await?;
    }
    Ok(())
}

/// A server may carry out a count after its caller gave up, counted again and settled the outcome: it changes nothing then.
pub async fn an_attempt_that_is_counted_after_its_outcome_changes_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    for attempts in 1..=2 {
        let [claimed] = scene.claim_exactly().await?;
        scene.settle(&claimed, retry(attempts)).await?;
        let before = (scene.status(&event).await?, scene.store.why("k").await?);
        for late in 1..=attempts {
            assert_eq!(
                scene.settle(&claimed, Change::Attempt { attempts: late }).await?.applied,
                0,
                "{late}"
            );
        }
        assert_eq!((scene.status(&event).await?, scene.store.why("k").await?), before);
        scene.pass(PAST_BACKOFF).await?;
    }
    let [claimed] = scene.claim_exactly().await?;
    assert_eq!(claimed.attempts, 2);
    Ok(())
}

/// Settling as dead twice changes nothing the second time. S3-9.2d
pub async fn settling_dead_twice_changes_nothing_the_second_time<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, dead(true)).await?;
    let before = (scene.status(&event).await?, scene.store.why("k").await?);
    assert_eq!(scene.settle(&claimed, dead(true)).await?.applied, 0);
    assert_eq!((scene.status(&event).await?, scene.store.why("k").await?), before);
    Ok(())
}

/// A late wait or dead changes nothing of a delivered event, and holds no key. S3-9.2b, S3-9.2c, S3-9.2d
pub async fn a_delivered_event_is_never_changed_again<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.done(std::slice::from_ref(&claimed)).await?;
    let before = scene.status(&event).await?;
    for late in [retry(1), dead(true), dead(false)] {
        assert_eq!(scene.settle(&claimed, late).await?.applied, 0);
        assert_eq!(scene.status(&event).await?, before);
        assert_eq!(scene.store.why("k").await?, None);
    }
    assert!(scene.claim().await?.events.is_empty());
    Ok(())
}

/// A late done or wait changes nothing of a dead event: only an operator does.
pub async fn a_dead_event_is_changed_by_no_settle<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, dead(true)).await?;
    let before = (scene.status(&event).await?, scene.store.why("k").await?);
    for late in [Change::Done, retry(1)] {
        assert_eq!(scene.settle(&claimed, late).await?.applied, 0);
        assert_eq!((scene.status(&event).await?, scene.store.why("k").await?), before);
    }
    Ok(())
}

/// One settle writes outcomes of all kinds, and counts those that it changed. S3-9.1
pub async fn one_settle_writes_outcomes_of_all_kinds<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [a] = scene.keyed("a").await?;
    let [b] = scene.keyed("b").await?;
    let [c] = scene.keyed("c").await?;
    let [first, second, third] = scene.claim_exactly().await?;
    let batch =
        [settlement(&first, Change::Done), settlement(&second, retry(1)), settlement(&third, dead(true))];
    let settled = scene.owner.settle(&scene.store, &batch, RETENTION).await?;
    assert_eq!((settled.applied, settled.lost.len()), (3, 0));
    scene.assert_done(&a).await?;
    assert!(matches!(scene.status(&b).await?, EventStatus::Waiting { .. }));
    assert!(matches!(scene.status(&c).await?, EventStatus::Dead { .. }));
    Ok(())
}

/// Five hundred outcomes go through in one settle.
pub async fn five_hundred_outcomes_go_through_in_one_settle<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.harness.write(&super::scene::unkeyed(500)?).await?;
    let claimed = scene.claim().await?.events;
    assert_eq!(scene.done(&claimed).await?.applied, 500);
    let stats = scene.store.stats().await?;
    assert_eq!((stats.pending, stats.done), (0, if scene.keeps().delivered { 500 } else { 0 }));
    Ok(())
}

/// An error text of ten thousand characters of several bytes, with NUL in it, is cut and cleaned. S3-9.3c
pub async fn an_endless_error_text_is_cut_and_cleaned<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().errors) {
        return Ok(());
    }
    let [event] = scene.keyed("k").await?;
    let text = "🦀\0'é\\".repeat(2000);
    let expected: String = text.chars().filter(|c| *c != '\0').take(ERROR_CHARS_MAX).collect();
    let [claimed] = scene.claim_exactly().await?;
    let wait =
        Change::Wait { after: BACKOFF, attempts: 1, error: Some(text.clone()), reason: HoldReason::Retry };
    scene.settle(&claimed, wait).await?;
    let status = scene.status(&event).await?;
    assert!(matches!(&status, EventStatus::Waiting { error: Some(error), .. } if *error == expected));
    scene.pass(PAST_BACKOFF).await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, Change::Dead { attempts: 2, error: text, block: false }).await?;
    assert_eq!(
        scene.status(&event).await?,
        EventStatus::Dead { attempts: if scene.keeps().last_attempt { 2 } else { 1 }, error: expected }
    );
    Ok(())
}

/// A wait longer than any calendar is stored, and the event stays pending.
pub async fn the_longest_wait_is_stored<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    let wait = Change::Wait { after: Duration::MAX, attempts: 1, error: None, reason: HoldReason::Retry };
    assert_eq!(scene.settle(&claimed, wait).await?.applied, 1);
    assert!(matches!(scene.status(&event).await?, EventStatus::Waiting { .. }));
    assert!(scene.claim().await?.events.is_empty());
    Ok(())
}

/// A database that lost its last transactions gives their numbers to other events: a settle of the lost ones changes nothing of those, and
/// is no error.
pub async fn a_row_of_that_number_with_another_id_is_left_alone<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    let before = scene.status(&event).await?;
    let deferred = Change::Wait { after: BACKOFF, attempts: 0, error: None, reason: HoldReason::Deferred };
    for change in [Change::Done, retry(1), deferred, Change::Attempt { attempts: 1 }, dead(true), dead(false)]
    {
        for (retention, held) in [(RETENTION, false), (Duration::ZERO, true)] {
            let event_id = "another".into();
            let of_another = Settlement { event_id, held, ..settlement(&claimed, change.clone()) };
            let settled = scene.owner.settle(&scene.store, &[of_another], retention).await?;
            assert_eq!((settled.applied, settled.lost.len(), settled.locked.len()), (0, 0, 0), "{change:?}");
            assert_eq!((scene.status(&event).await?, scene.store.why("k").await?), (before.clone(), None));
        }
    }
    assert_eq!(scene.done(&[claimed]).await?.applied, 1);
    scene.assert_done(&event).await
}
