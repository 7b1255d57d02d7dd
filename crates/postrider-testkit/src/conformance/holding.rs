//! Held keys: a key waits behind its head, and nothing else does.

use postrider_core::store::{Change, EventStatus, HoldReason, Seq};

use super::{
    Checked, StoreHarness,
    scene::{BACKOFF, PAST_BACKOFF, Scene, claimed_ids, dead, id_of, ids, keyed, retry},
};

/// Followers of a failed head are parked when a claim meets them; other keys go on. Section 6.4 of the design
pub async fn followers_of_a_failed_head_are_parked_and_other_keys_go_on<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let followers: [_; 3] = scene.keyed("k").await?;
    let others: [_; 2] = scene.keyed("other").await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&others));
    for follower in &followers {
        scene.assert_parked(follower).await?;
    }
    // Parked is parked: not even a look from the bottom returns them.
    let look = scene.owner.at_the_start().claim(&scene.store, 100, 1000, &[]).await?;
    assert_eq!(claimed_ids(&look.events), ids(&others));
    Ok(())
}

/// The head comes back at its time, and says that its key is held because of it. S3-9.2c
pub async fn the_head_comes_back_at_its_time_and_is_held<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first, _] = scene.keyed("k").await?;
    let [head, follower] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    scene.owner.give_back(&[&follower]);
    let claimed = scene.claim().await?;
    assert!(claimed.events.is_empty());
    assert!(claimed.next_due.is_some_and(|next| next <= BACKOFF), "{:?}", claimed.next_due);
    scene.pass(PAST_BACKOFF).await?;
    let [again] = scene.claim_exactly().await?;
    assert_eq!((id_of(&again), again.attempts, again.held), (first.id(), 1, true));
    Ok(())
}

/// When the head is delivered its followers come back in order, and the hold is gone after them.
pub async fn followers_come_back_in_order_when_the_head_is_delivered<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let followers: [_; 5] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [head] = scene.claim_exactly().await?;
    scene.done(&[head]).await?;
    let returned = scene.claim().await?.events;
    let parked = scene.keeps().parked;
    assert!(returned.iter().all(|event| event.held == parked && event.attempts == 0));
    assert_eq!(claimed_ids(&returned), ids(&followers));
    scene.done(&returned).await?;
    scene.claim().await?;
    assert_eq!(scene.store.why("k").await?, None);
    assert_eq!(scene.store.stats().await?.pending, 0);
    Ok(())
}

/// A hundred followers come back in batches, in order, each once, and none is lost.
pub async fn a_hundred_followers_come_back_in_batches_and_none_is_lost<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let followers: [_; 100] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [head] = scene.claim_exactly().await?;
    scene.done(&[head]).await?;
    let first = scene.claim().await?;
    assert!(
        first.events.len() <= 16 || !scene.keeps().parked,
        "{} events of one key at once",
        first.events.len()
    );
    let mut got = claimed_ids(&first.events);
    scene.done(&first.events).await?;
    got.extend(scene.drain().await?);
    assert_eq!(got, ids(&followers));
    assert_eq!(scene.store.why("k").await?, None);
    Ok(())
}

/// More keys than one claim lets come back all come back.
pub async fn three_hundred_freed_keys_all_come_back<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let mut heads = Vec::new();
    for n in 0..300 {
        heads.extend(keyed::<1>(&format!("key {n}"))?);
    }
    scene.harness.write(&heads).await?;
    let claimed = scene.claim().await?.events;
    for head in &claimed {
        scene.settle(head, retry(1)).await?;
    }
    let mut followers = Vec::new();
    for n in 0..300 {
        followers.extend(keyed::<1>(&format!("key {n}"))?);
    }
    scene.harness.write(&followers).await?;
    assert!(scene.claim().await?.events.is_empty());
    assert_eq!(scene.store.stats().await?.parked, if scene.keeps().parked { 300 } else { 0 });
    scene.pass(PAST_BACKOFF).await?;
    let got = scene.drain().await?;
    assert_eq!(super::scene::sorted(got), ids(&[heads, followers].concat()));
    assert_eq!(scene.store.stats().await?.held_keys, 0);
    Ok(())
}

/// What the engine has in memory of many freed keys keeps those behind them from nothing, however few events a claim asks for.
pub async fn freed_keys_come_back_behind_many_that_are_in_memory<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().parked) {
        return Ok(());
    }
    let (mut heads, mut followers) = (Vec::new(), Vec::new());
    for n in 0..40 {
        heads.extend(keyed::<1>(&format!("key {n}"))?);
        followers.extend(keyed::<2>(&format!("key {n}"))?);
    }
    scene.harness.write(&heads).await?;
    for head in &scene.claim().await?.events {
        scene.settle(head, retry(1)).await?;
    }
    scene.harness.write(&followers).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let heads = scene.claim().await?.events;
    scene.done(&heads).await?;
    let back = scene.claim().await?.events;
    assert_eq!(back.len(), followers.len());
    let mut in_memory: Vec<Seq> = back.iter().map(|event| event.seq).collect();
    in_memory.sort_unstable();
    let rest = in_memory.split_off(64);
    let claimed = scene.owner.claim(&scene.store, 10, 1 << 20, &in_memory).await?;
    let mut got: Vec<Seq> = claimed.events.iter().map(|event| event.seq).collect();
    got.sort_unstable();
    assert_eq!(Some(got.as_slice()), rest.get(..10));
    Ok(())
}

/// New events of a key that is coming back stay behind what was parked before them.
pub async fn new_events_of_a_returning_key_stay_behind<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let parked: [_; 20] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [head] = scene.claim_exactly().await?;
    scene.done(&[head]).await?;
    let new: [_; 5] = scene.keyed("k").await?;
    assert_eq!(scene.drain().await?, ids(&[parked.as_slice(), &new].concat()));
    Ok(())
}

/// An event that arrives when the last parked one has just been settled is not stranded behind a hold of nothing.
pub async fn an_event_that_arrives_as_its_key_becomes_free_is_not_stranded<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, dead(true)).await?;
    // A discard leaves a hold that returns, with nothing behind it: the next claim has to clear it away.
    assert_eq!(scene.store.discard(&[id_of(&head).clone()]).await?, 1);
    let [event] = scene.keyed("k").await?;
    assert_eq!(scene.drain().await?, ids(&[event]));
    assert_eq!(scene.store.why("k").await?, None);
    Ok(())
}

/// A hold that returns and has nothing behind it is taken away by a claim.
pub async fn a_hold_of_nothing_is_taken_away_by_a_claim<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, dead(true)).await?;
    assert_eq!(scene.store.discard(&[id_of(&head).clone()]).await?, 1);
    let hold = scene.store.why("k").await?;
    assert!(hold.is_some_and(|hold| hold.reason == HoldReason::Returning && hold.parked == 0));
    assert!(scene.claim().await?.events.is_empty());
    assert_eq!(scene.store.why("k").await?, None);
    Ok(())
}

/// A follower that fails on its way back becomes the head, and the rest stays behind it.
pub async fn a_follower_that_fails_on_its_way_back_becomes_the_head<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let [second, third, fourth] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [head] = scene.claim_exactly().await?;
    scene.done(&[head]).await?;
    let [failing, next, last] = scene.claim_exactly().await?;
    assert_eq!(id_of(&failing), second.id());
    scene.settle(&failing, retry(1)).await?;
    scene.owner.give_back(&[&next, &last]);
    let hold = scene.store.why("k").await?;
    assert!(hold.is_some_and(|hold| hold.seq == failing.seq
        && hold.reason == HoldReason::Retry
        && hold.parked == if scene.keeps().parked { 2 } else { 0 }));
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [failing] = scene.claim_exactly().await?;
    assert_eq!((id_of(&failing), failing.held, failing.attempts), (second.id(), true, 1));
    scene.done(&[failing]).await?;
    assert_eq!(scene.drain().await?, ids(&[third, fourth]));
    Ok(())
}

/// A returning event that is in memory is skipped, and the hold stays until it is settled.
pub async fn a_returning_event_in_flight_is_skipped_and_its_hold_stays<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().parked) {
        return Ok(());
    }
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    scene.keyed::<2>("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [head] = scene.claim_exactly().await?;
    scene.done(&[head]).await?;
    let [second, third] = scene.claim_exactly().await?;
    let claimed = scene.owner.claim(&scene.store, 100, 1000, &[second.seq, third.seq]).await?;
    assert!(claimed.events.is_empty());
    let hold = scene.store.why("k").await?;
    assert!(hold.is_some_and(|hold| hold.reason == HoldReason::Returning
        && hold.until.is_none()
        && hold.parked == 2));
    scene.done(&[second, third]).await?;
    scene.claim().await?;
    assert_eq!(scene.store.why("k").await?, None);
    Ok(())
}

/// A deferred head holds its key like a failed one, and its attempts are what the settle says.
pub async fn a_deferred_head_holds_its_key_without_an_attempt<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first, second] = scene.keyed("k").await?;
    let [head, follower] = scene.claim_exactly().await?;
    let change = Change::Wait { after: BACKOFF, attempts: 0, error: None, reason: HoldReason::Deferred };
    scene.settle(&head, change).await?;
    scene.owner.give_back(&[&follower]);
    assert!(scene.claim().await?.events.is_empty());
    let hold = scene.store.why("k").await?.ok_or("the key is held")?;
    assert_eq!(
        (hold.seq, hold.reason, hold.parked, hold.key.as_str()),
        (head.seq, HoldReason::Deferred, u64::from(scene.keeps().parked), "k")
    );
    assert!(hold.until.is_some());
    let status = scene.status(&first).await?;
    assert!(matches!(status, EventStatus::Waiting { attempts: 0, error: None, .. }), "{status:?}");
    scene.pass(PAST_BACKOFF).await?;
    assert_eq!(scene.drain().await?, ids(&[first, second]));
    Ok(())
}

/// A dead event that blocks its key keeps its followers until an operator acts; other keys go on.
pub async fn a_dead_head_that_blocks_keeps_its_followers<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let [first, second] = scene.keyed("k").await?;
    let [head, follower] = scene.claim_exactly().await?;
    scene.settle(&head, dead(true)).await?;
    scene.owner.give_back(&[&follower]);
    let [other] = scene.keyed("other").await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[other]));
    scene.pass(BACKOFF * 100).await?;
    assert!(
        scene
            .claim()
            .await?
            .events
            .iter()
            .all(|event| id_of(event) != first.id() && id_of(event) != second.id())
    );
    let hold = scene.store.why("k").await?.ok_or("the key is held")?;
    assert_eq!((hold.seq, hold.reason, hold.until, hold.parked), (head.seq, HoldReason::Dead, None, 1));
    assert!(matches!(scene.store.dead(0, 10).await?.as_slice(), [letter] if letter.blocks));
    Ok(())
}

/// A dead event that does not block its key frees it: its followers come.
pub async fn a_dead_head_that_is_skipped_frees_its_key<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let [second, third] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, dead(false)).await?;
    assert!(matches!(scene.store.dead(0, 10).await?.as_slice(), [letter] if !letter.blocks));
    assert_eq!(scene.drain().await?, ids(&[second, third]));
    assert_eq!(scene.store.why("k").await?, None);
    Ok(())
}

/// A dead event that was never held and is skipped holds nothing.
pub async fn a_first_failure_that_is_skipped_holds_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [_, second] = scene.keyed("k").await?;
    let [head, follower] = scene.claim_exactly().await?;
    scene.settle(&head, dead(false)).await?;
    assert_eq!(scene.store.why("k").await?, None);
    scene.owner.give_back(&[&follower]);
    assert_eq!(scene.drain().await?, ids(&[second]));
    Ok(())
}

/// A failed event that is settled without its key, because its outbox keeps no order, holds nothing.
pub async fn a_failed_event_of_an_outbox_without_order_holds_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first, second] = scene.keyed("k").await?;
    let [a, b] = scene.claim_exactly().await?;
    let unordered = postrider_core::store::Settlement { key: None, ..super::scene::settlement(&a, retry(1)) };
    scene.owner.settle(&scene.store, &[unordered], super::scene::RETENTION).await?;
    assert_eq!(scene.store.why("k").await?, None);
    scene.owner.give_back(&[&b]);
    assert_eq!(scene.drain().await?, ids(&[second]));
    scene.pass(PAST_BACKOFF).await?;
    assert_eq!(scene.drain().await?, ids(&[first]));
    Ok(())
}

/// The delivery of an event that is not the head does not free the key.
pub async fn the_delivery_of_another_event_does_not_free_the_key<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<2>("k").await?;
    let [head, other] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    let lie =
        postrider_core::store::Settlement { held: true, ..super::scene::settlement(&other, Change::Done) };
    scene.owner.settle(&scene.store, &[lie], super::scene::RETENTION).await?;
    let hold = scene.store.why("k").await?;
    assert!(hold.is_some_and(|hold| hold.seq == head.seq && hold.reason == HoldReason::Retry));
    Ok(())
}

/// Followers that no claim has met yet come back before later ones that were parked already: an owner may end between the
/// hold of a key and the claim that parks what it had in memory.
pub async fn followers_that_were_never_met_come_back_before_later_ones_that_were<H: StoreHarness>() -> Checked
{
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let [head, met_late] = scene.keyed("k").await?;
    let [head_claimed, _] = scene.claim_exactly().await?;
    scene.settle(&head_claimed, dead(true)).await?;
    let [parked] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.store.discard(&[head.id().clone()]).await?;

    let mut next = scene.owner.at_the_start();
    let mut got = Vec::new();
    for _ in 0..5 {
        got.extend(claimed_ids(&next.claim(&scene.store, 100, 1_000_000, &[]).await?.events));
        got.dedup();
    }
    let first_of = |id: &postrider_core::EventId| got.iter().position(|got| got == id);
    assert!(first_of(met_late.id()).is_some() && first_of(met_late.id()) < first_of(parked.id()), "{got:?}");
    Ok(())
}

/// The same where the owner lives on and has the claim look at them once more.
pub async fn followers_that_were_given_back_come_back_before_later_ones<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let [head, given_back] = scene.keyed("k").await?;
    let [head_claimed, follower] = scene.claim_exactly().await?;
    scene.settle(&head_claimed, dead(true)).await?;
    let [parked] = scene.keyed("k").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.store.discard(&[head.id().clone()]).await?;
    scene.owner.give_back(&[&follower]);

    let mut got = Vec::new();
    for _ in 0..5 {
        got.extend(claimed_ids(&scene.claim().await?.events));
        got.dedup();
    }
    let first_of = |id: &postrider_core::EventId| got.iter().position(|got| got == id);
    assert!(
        first_of(given_back.id()).is_some() && first_of(given_back.id()) < first_of(parked.id()),
        "{got:?}"
    );
    Ok(())
}
