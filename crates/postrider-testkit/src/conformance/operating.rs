//! What operators see and do.

use std::time::Duration;

use postrider_core::{
    EventId,
    store::{EventStatus, HoldReason},
};

use super::{
    Checked, Failure, Owner, StoreHarness,
    scene::{BACKOFF, LEASE, PAST_BACKOFF, Scene, claimed_ids, dead, id_of, ids, retry, unkeyed},
};

/// Migrating a store that is in use changes nothing.
pub async fn migrating_again_changes_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    scene.store.migrate().await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[event]));
    Ok(())
}

/// Dead letters are listed in order, after a given one, at most so many, with all that an operator asks for.
pub async fn dead_letters_are_listed_in_order_and_in_pages<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let mut written = Vec::new();
    for n in 0..5 {
        written.extend(scene.keyed::<1>(&format!("key {n}")).await?);
    }
    scene.pass(BACKOFF).await?;
    let claimed: [_; 5] = scene.claim_exactly().await?;
    for (n, event) in claimed.iter().enumerate() {
        scene.settle(event, dead(n % 2 == 0)).await?;
    }
    let keeps = scene.keeps();
    let first = scene.store.dead(0, 3).await?;
    let second = scene.store.dead(first.last().map_or(0, |letter| letter.seq), 3).await?;
    let letters = [first, second].concat();
    assert_eq!(letters.iter().map(|letter| letter.id.clone()).collect::<Vec<_>>(), ids(&written));
    for (n, (letter, event)) in letters.iter().zip(&claimed).enumerate() {
        assert!(letter.seq == event.seq || !keeps.places);
        assert!(letter.created_at == event.created_at || !keeps.written_at);
        let died = letter.died_at.map(|died_at| died_at.since(event.created_at) >= BACKOFF);
        assert!(died == Some(true) || (!keeps.places && (died.is_none() || !keeps.written_at)), "{letter:?}");
        assert_eq!(
            (letter.event_type.as_str(), letter.key.as_deref()),
            ("Tested", Some(&*format!("key {n}")))
        );
        assert_eq!(letter.attempts, if keeps.last_attempt { 3 } else { 2 });
        assert_eq!(letter.error, if keeps.dead_errors { "it is of no use" } else { "" });
        assert_eq!(letter.blocks, keeps.on_dead && n % 2 == 0);
    }
    Ok(())
}

/// A redriven event is due at once with its attempts counted from zero, and still goes before its followers.
pub async fn a_redriven_event_is_due_again_before_its_followers<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let [first, second] = scene.keyed("k").await?;
    let [head, follower] = scene.claim_exactly().await?;
    scene.settle(&head, dead(true)).await?;
    scene.owner.give_back(&[&follower]);
    assert!(scene.claim().await?.events.is_empty());
    assert_eq!(scene.store.redrive(&ids(std::slice::from_ref(&first))).await?, 1);
    let hold = scene.store.why("k").await?;
    assert!(hold.is_some_and(|hold| hold.seq == head.seq && hold.reason == HoldReason::Retry));
    let [again] = scene.claim_exactly().await?;
    assert_eq!((id_of(&again), again.attempts, again.held), (first.id(), 0, true));
    scene.done(&[again]).await?;
    assert_eq!(scene.drain().await?, ids(&[second]));
    assert!(scene.store.dead(0, 10).await?.is_empty());
    Ok(())
}

/// A redriven event that was skipped comes again, and its last error can still be read.
pub async fn a_redriven_event_that_was_skipped_comes_again<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, dead(false)).await?;
    assert_eq!(scene.store.redrive(&ids(std::slice::from_ref(&event))).await?, 1);
    let status = scene.status(&event).await?;
    assert!(
        !scene.keeps().places && status == EventStatus::New
            || matches!(&status, EventStatus::Waiting { attempts: 0, error: Some(error), .. } if error == "it is of no use"),
        "{status:?}"
    );
    assert_eq!(scene.drain().await?, ids(&[event]));
    Ok(())
}

/// A discarded event is gone, and its followers come.
pub async fn a_discarded_event_is_gone_and_its_followers_come<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let [first, second, third] = scene.keyed("k").await?;
    let [head, b, c] = scene.claim_exactly().await?;
    scene.settle(&head, dead(true)).await?;
    scene.owner.give_back(&[&b, &c]);
    assert!(scene.claim().await?.events.is_empty());
    assert_eq!(scene.store.discard(&ids(std::slice::from_ref(&first))).await?, 1);
    assert_eq!(scene.status(&first).await?, EventStatus::Absent);
    assert_eq!(scene.drain().await?, ids(&[second, third]));
    assert_eq!(scene.store.why("k").await?, None);
    Ok(())
}

/// Redrive and discard touch dead events only, count them, and can be repeated.
pub async fn redrive_and_discard_touch_dead_events_only<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [new] = scene.keyed("new").await?;
    let [waiting] = scene.keyed("waiting").await?;
    let [done] = scene.keyed("done").await?;
    let [_, b, c] = scene.claim_exactly().await?;
    scene.settle(&b, retry(1)).await?;
    scene.done(&[c]).await?;
    let all = [ids(&[new.clone(), waiting.clone(), done.clone()]), vec![EventId::from("nobody")]].concat();
    let before = (scene.status(&new).await?, scene.status(&waiting).await?, scene.status(&done).await?);
    assert_eq!(scene.store.redrive(&all).await?, 0);
    assert_eq!(scene.store.discard(&all).await?, 0);
    assert_eq!(scene.store.redrive(&[]).await? + scene.store.discard(&[]).await?, 0);
    assert_eq!(
        (scene.status(&new).await?, scene.status(&waiting).await?, scene.status(&done).await?),
        before
    );
    let [dead_one] = scene.keyed("dead").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, dead(true)).await?;
    let dead_id = ids(std::slice::from_ref(&dead_one));
    assert_eq!(scene.store.redrive(&dead_id).await?, 1);
    assert_eq!(scene.store.redrive(&dead_id).await? + scene.store.discard(&dead_id).await?, 0);
    Ok(())
}

/// An id that was never written is absent, and a key that is not held waits for nothing.
pub async fn what_was_never_written_is_absent<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    assert_eq!(scene.store.status(&EventId::from("nobody's \"id\" \\ 🦀")).await?, EventStatus::Absent);
    assert_eq!(scene.store.why("nobody's \"key\" \\ 🦀").await?, None);
    Ok(())
}

/// The counts of a store with one event of each kind are those of that store.
pub async fn stats_count_one_event_of_each_kind<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    assert_eq!(scene.store.stats().await?, postrider_core::store::Stats::default());
    scene.keyed::<1>("done").await?;
    scene.keyed::<1>("dead").await?;
    scene.keyed::<1>("held").await?;
    let [a, b, c] = scene.claim_exactly().await?;
    scene.done(&[a]).await?;
    scene.settle(&b, dead(true)).await?;
    scene.settle(&c, retry(1)).await?;
    scene.keyed::<2>("held").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(BACKOFF / 2).await?;
    scene.harness.write(&unkeyed(1)?).await?;
    let stats = scene.store.stats().await?;
    assert_eq!((stats.pending, stats.waiting, stats.parked), (4, 1, 2));
    assert_eq!((stats.dead, stats.held_keys, stats.done), (1, 2, 1));
    let oldest = stats.oldest.unwrap_or_default();
    assert!(oldest >= BACKOFF / 2 && oldest < PAST_BACKOFF, "{oldest:?}");
    Ok(())
}

/// What waits for a time is counted as due once that has come, and a key as returning while what was parked behind it comes back.
pub async fn stats_tell_what_is_due_from_what_waits<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    scene.keyed::<2>("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    let counts = async |scene: &Scene<H>| {
        let stats = scene.store.stats().await?;
        Ok::<_, Failure>((stats.pending, stats.waiting, stats.due, stats.returning))
    };
    assert_eq!(counts(&scene).await?, (3, 1, 0, 0));
    scene.pass(PAST_BACKOFF).await?;
    assert_eq!(counts(&scene).await?, (3, 1, 1, 0));
    let [head] = scene.claim_exactly().await?;
    scene.done(&[head]).await?;
    assert_eq!(counts(&scene).await?, (2, 0, 0, u64::from(scene.keeps().parked)));
    scene.drain().await?;
    assert_eq!(counts(&scene).await?, (0, 0, 0, 0));
    Ok(())
}

/// Each state that an event goes through is what `status` says. S3-5.2.
pub async fn status_names_each_state_on_the_way<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let [head, follower] = scene.keyed("k").await?;
    assert_eq!(scene.status(&head).await?, EventStatus::New);
    let [a, b] = scene.claim_exactly().await?;
    scene.settle(&a, retry(1)).await?;
    assert!(matches!(scene.status(&head).await?, EventStatus::Waiting { attempts: 1, .. }));
    scene.owner.give_back(&[&b]);
    scene.claim().await?;
    assert_eq!(scene.status(&follower).await?, EventStatus::Parked);
    scene.pass(PAST_BACKOFF).await?;
    let [a] = scene.claim_exactly().await?;
    scene.settle(&a, dead(true)).await?;
    assert!(matches!(scene.status(&head).await?, EventStatus::Dead { attempts: 3, .. }));
    assert_eq!(scene.status(&follower).await?, EventStatus::Parked);
    scene.store.redrive(&[head.id().clone()]).await?;
    assert_eq!(scene.drain().await?, ids(&[head.clone(), follower.clone()]));
    assert!(matches!(scene.status(&head).await?, EventStatus::Done { .. }));
    scene.pass(Duration::from_secs(10)).await?;
    assert_eq!(scene.store.purge(Duration::from_secs(5), 10).await?, 2);
    assert_eq!(scene.status(&head).await?, EventStatus::Absent);
    Ok(())
}

/// A purge takes delivered events that are older than the retention, in batches, and nothing else. S4-48
pub async fn a_purge_takes_old_delivered_events_in_batches<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().retention) {
        return Ok(());
    }
    scene.harness.write(&unkeyed(5)?).await?;
    scene.drain().await?;
    scene.pass(BACKOFF).await?;
    let young = unkeyed(1)?;
    scene.harness.write(&young).await?;
    scene.drain().await?;
    scene.keyed::<1>("dead").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, dead(true)).await?;
    scene.keyed::<1>("new").await?;
    assert_eq!(scene.store.purge(BACKOFF * 2, 100).await?, 0);
    for wanted in [2, 2, 1, 0] {
        assert_eq!(scene.store.purge(BACKOFF / 2, 2).await?, wanted);
    }
    let stats = scene.store.stats().await?;
    assert_eq!((stats.done, stats.dead, stats.pending), (1, 1, 1));
    for event in &young {
        assert!(matches!(scene.status(event).await?, EventStatus::Done { .. }));
    }
    Ok(())
}

/// Anyone who holds lanes is alive, with them, until it gives them back or its lease runs out.
pub async fn instances_that_are_alive_are_told_with_their_lanes<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let Some(found) = scene.store.instances().await? else { return Ok(()) };
    let lanes = scene.store.features().lanes;
    let held: Vec<_> = found.alive.iter().map(|found| (found.name.as_str(), found.lanes.len())).collect();
    assert_eq!((held, found.lanes), (vec![("suite", lanes as usize)], lanes));
    scene.store.release(&scene.owner.given_back()).await?;
    let found = scene.store.instances().await?.unwrap_or_default();
    assert!(found.alive.is_empty() && found.lanes == lanes, "{found:?}");

    Owner::lease(&scene.store, "next").await?;
    scene.store.join("another", LEASE * 3).await?;
    let names = async |scene: &Scene<H>| {
        let alive = scene.store.instances().await?.unwrap_or_default().alive;
        Ok::<_, Failure>(alive.into_iter().map(|found| (found.name, found.lanes.len())).collect::<Vec<_>>())
    };
    let another = |found: &[(String, usize)]| found.iter().find(|(name, _)| name == "another").cloned();
    let found = names(&scene).await?;
    assert!(found.contains(&("next".to_owned(), lanes as usize)), "{found:?}");
    // Where there is one lane for all, those that stand by are not noted.
    let stands_by = another(&found);
    assert!(stands_by.is_none() || stands_by == Some(("another".to_owned(), 0)), "{found:?}");
    scene.pass(LEASE + Duration::from_secs(1)).await?;
    assert_eq!(names(&scene).await?, stands_by.into_iter().collect::<Vec<_>>());
    Ok(())
}
