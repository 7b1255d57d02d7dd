//! Claims: what is due, in order, within limits.

use postrider_core::{
    Event,
    store::{EventStatus, Lease, Token},
};

use super::{
    Checked, Failure, Owner, StoreHarness,
    scene::{BACKOFF, PAST_BACKOFF, Scene, claimed_ids, ids, retry, sorted, unkeyed},
};

const PLENTY: usize = 1 << 30;

fn sized(key: &str, bytes: usize) -> Result<Event, Failure> {
    Ok(Event::bytes("Sized", "application/octet-stream", vec![7; bytes]).key(key).build()?)
}

/// So many events that wait for the same time and are due now.
async fn due_waiting<H: StoreHarness>(scene: &mut Scene<H>, count: usize) -> Result<Vec<Event>, Failure> {
    let delayed: Result<Vec<Event>, Failure> =
        unkeyed(count)?.iter().map(|event| Ok(event.to_builder().deliver_after(BACKOFF).build()?)).collect();
    let delayed = delayed?;
    scene.harness.write(&delayed).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    Ok(delayed)
}

/// Events of many keys come in the order of their places within a lane, each once. S3-9.2e
pub async fn events_come_in_order_within_their_lane<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let mut written = Vec::new();
    for n in 0..100 {
        written.extend(scene.keyed::<2>(&format!("key {}", n % 30)).await?);
    }
    let claimed = scene.claim().await?;
    for lease in scene.owner.leases() {
        let seqs: Vec<_> =
            claimed.events.iter().filter(|event| event.lane == lease.lane).map(|event| event.seq).collect();
        assert!(seqs.is_sorted(), "lane {}: {seqs:?}", lease.lane);
    }
    assert_eq!(sorted(claimed_ids(&claimed.events)), ids(&written));
    Ok(())
}

/// All events of one key are in one lane.
pub async fn the_events_of_a_key_share_a_lane<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<20>("k").await?;
    let lanes: Vec<_> = scene.claim().await?.events.iter().map(|event| event.lane).collect();
    assert!(lanes.windows(2).all(|pair| pair.first() == pair.last()), "{lanes:?}");
    Ok(())
}

/// A claim goes on where the last one ended; one from the start returns everything again, for a claim marks nothing.
pub async fn a_claim_goes_on_where_the_last_one_ended_and_marks_nothing<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events: [_; 5] = scene.keyed("k").await?;
    assert_eq!(scene.claim().await?.events.len(), 5);
    let second = scene.claim().await?;
    assert!(second.events.is_empty() && !second.more);
    for event in &events {
        assert_eq!(scene.status(event).await?, EventStatus::New);
    }
    let again = scene.owner.at_the_start().claim(&scene.store, 100, PLENTY, &[]).await?;
    assert_eq!(claimed_ids(&again.events), ids(&events));
    Ok(())
}

/// No more events than the limit come, the rest is said to be there, and follows.
pub async fn a_claim_returns_no_more_than_its_limit_and_says_that_there_is_more<H: StoreHarness>() -> Checked
{
    let mut scene = Scene::<H>::fresh().await?;
    let events: [_; 7] = scene.keyed("k").await?;
    let mut got = Vec::new();
    for (wanted, more) in [(3, true), (3, true), (1, false)] {
        let claimed = scene.claim_at_most(3).await?;
        assert_eq!((claimed.events.len(), claimed.more), (wanted, more));
        got.extend(claimed_ids(&claimed.events));
    }
    assert_eq!(got, ids(&events));
    Ok(())
}

/// A limit holds over all lanes together, and no lane is skipped.
pub async fn a_limit_holds_over_all_lanes_together<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events = unkeyed(50)?;
    scene.harness.write(&events).await?;
    let mut got = Vec::new();
    for _ in 0..50 {
        let claimed = scene.claim_at_most(7).await?;
        assert!(claimed.events.len() <= 7);
        got.extend(claimed_ids(&claimed.events));
        if !claimed.more {
            break;
        }
    }
    assert_eq!(sorted(got), ids(&events));
    Ok(())
}

/// Bytes are limited, headers included; the order is kept, and nothing small overtakes what is large.
pub async fn a_claim_stops_at_its_bytes_without_letting_small_events_overtake<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().headers) {
        return Ok(());
    }
    let heavy = sized("k", 10)?.to_builder().header("h", "x".repeat(5990)).build()?;
    let events = [sized("k", 6000)?, sized("k", 3000)?, heavy, sized("k", 10)?];
    scene.harness.write(&events).await?;
    let first = scene.owner.claim(&scene.store, 100, 10_000, &[]).await?;
    assert_eq!((first.events.len(), first.more), (2, true));
    let second = scene.owner.claim(&scene.store, 100, 10_000, &[]).await?;
    assert_eq!((second.events.len(), second.more), (2, false));
    assert_eq!([claimed_ids(&first.events), claimed_ids(&second.events)].concat(), ids(&events));
    Ok(())
}

/// The first event comes whatever its size.
pub async fn the_first_event_comes_whatever_its_size<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events = [sized("k", 5000)?, sized("k", 5000)?];
    scene.harness.write(&events).await?;
    for wanted in &events {
        let claimed = scene.owner.claim(&scene.store, 100, 10, &[]).await?;
        assert_eq!(claimed_ids(&claimed.events), [wanted.id().clone()]);
    }
    Ok(())
}

/// Events that are in memory are not returned again, and do not count to the limit.
pub async fn what_is_in_flight_is_skipped_and_not_counted<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    let events: [_; 6] = scene.keyed("k").await?;
    let all = scene.owner.at_the_start().claim(&scene.store, 100, PLENTY, &[]).await?.events;
    let in_flight: Vec<_> = all.iter().map(|event| event.seq).take(4).collect();
    let claimed = scene.owner.at_the_start().claim(&scene.store, 2, PLENTY, &in_flight).await?;
    let last_two: Vec<_> = ids(&events).into_iter().skip(4).collect();
    assert_eq!(claimed_ids(&claimed.events), last_two);
    Ok(())
}

/// What was given back is returned by the next claim, in order, before what follows.
pub async fn what_was_given_back_is_returned_again<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [first, second] = scene.keyed("k").await?;
    let [a, b] = scene.claim_exactly().await?;
    let [third] = scene.keyed("k").await?;
    scene.owner.give_back(&[&b, &a]);
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&[first, second, third]));
    assert!(scene.claim().await?.events.is_empty());
    Ok(())
}

/// Given-back events that a limit leaves out are named by the claim, so that none is lost.
pub async fn given_back_events_beyond_the_limit_are_not_lost<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let events: [_; 5] = scene.keyed("k").await?;
    let claimed = scene.claim().await?.events;
    scene.owner.give_back(&claimed.iter().collect::<Vec<_>>());
    let mut got = Vec::new();
    for _ in 0..3 {
        got.extend(claimed_ids(&scene.claim_at_most(2).await?.events));
    }
    assert_eq!(got, ids(&events));
    Ok(())
}

/// Given-back events that are delivered by now, or never were, are ignored.
pub async fn given_back_events_that_are_gone_are_ignored<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<1>("k").await?;
    let [event] = scene.claim_exactly().await?;
    scene.done(std::slice::from_ref(&event)).await?;
    scene.owner.give_back(&[&event]);
    scene.owner.ask_for(event.lane, event.seq + 1000);
    let claimed = scene.claim().await?;
    assert!(claimed.events.is_empty() && claimed.again.is_empty() && claimed.lost.is_empty());
    Ok(())
}

/// A given-back event whose key is held by another is parked, not returned.
pub async fn a_given_back_follower_is_parked<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [_, follower] = scene.keyed("k").await?;
    let [a, b] = scene.claim_exactly().await?;
    scene.settle(&a, retry(1)).await?;
    scene.owner.give_back(&[&b]);
    assert!(scene.claim().await?.events.is_empty());
    scene.assert_parked(&follower).await?;
    Ok(())
}

/// Fresh and retried events share a claim by halves, however many there are of each. S4-7
pub async fn due_retries_and_fresh_events_do_not_starve_each_other<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays && scene.keeps().places) {
        return Ok(());
    }
    let waiting = due_waiting(&mut scene, 30).await?;
    let fresh = unkeyed(30)?;
    scene.harness.write(&fresh).await?;
    let got = claimed_ids(&scene.claim_at_most(10).await?.events);
    assert_eq!(got.iter().filter(|id| ids(&fresh).contains(id)).count(), 5);
    assert_eq!(got.iter().filter(|id| ids(&waiting).contains(id)).count(), 5);
    Ok(())
}

/// The half that fresh events leave goes to the waiting ones, and the reverse. S4-7
pub async fn an_unused_half_goes_to_the_others<H: StoreHarness>() -> Checked {
    for (waiting, fresh) in [(2, 30), (30, 2), (0, 30), (30, 0)] {
        let mut scene = Scene::<H>::fresh().await?;
        if !scene.keeps().delays {
            return Ok(());
        }
        if waiting > 0 {
            due_waiting(&mut scene, waiting).await?;
        }
        scene.harness.write(&unkeyed(fresh)?).await?;
        let claimed = scene.claim_at_most(10).await?;
        assert_eq!((claimed.events.len(), claimed.more), (10, true), "{waiting} waiting, {fresh} fresh");
    }
    Ok(())
}

/// A claim under a token that is not the lane's returns nothing of the lane and says that it is lost.
pub async fn a_claim_with_a_foreign_token_loses_the_lane<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    scene.keyed::<3>("k").await?;
    let forge = |lease: &Lease| {
        let token = Token { epoch: lease.token.epoch, nonce: lease.token.nonce ^ 1 };
        Lease { token, ..*lease }
    };
    let mut stranger = Owner::holding(scene.owner.leases().iter().map(forge).collect());
    let claimed = stranger.claim(&scene.store, 100, PLENTY, &[]).await?;
    assert!(claimed.events.is_empty());
    let lanes: Vec<_> = scene.owner.leases().iter().map(|lease| lease.lane).collect();
    assert_eq!(claimed.lost, lanes);
    Ok(())
}

/// An empty store answers with nothing due, nothing more and nothing to wait for.
pub async fn an_empty_store_has_nothing_due<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let claimed = scene.claim().await?;
    assert!(
        claimed.events.is_empty() && !claimed.more && claimed.next_due.is_none() && claimed.lost.is_empty()
    );
    assert_eq!(claimed.positions.len(), scene.owner.leases().len());
    Ok(())
}
