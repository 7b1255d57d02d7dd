//! Large transactions that commit late: claims stay within their limits, and nothing waits for what is not wanted. Only for stores in
//! which a transaction can commit behind a place that claims have reached.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use postrider_core::{
    Event, EventId,
    store::{ClaimedEvent, Lane, RowSummary, Seq},
    tx::OnDuplicate,
};

use super::{
    Checked, Failure, Owner, StoreHarness,
    gate::Gate,
    scene::{Scene, claimed_ids, ids, sorted, unkeyed},
};

/// How many events one transaction writes that commits late.
const LATE: usize = 20_000;
/// How many more than any claim returns are written in the meantime.
const BETWEEN: usize = 4500;
/// How many events one insert writes.
const CHUNK: usize = 1000;
/// Limits of one claim.
const LIMIT: usize = 500;
const BYTES: usize = 512 * 1024;
/// How long a store may take to find what committed late.
const LATE_MAX: Duration = Duration::from_secs(60);

/// Whether claims of this store go on from a place that a transaction can commit behind.
fn can_pass_by<H: StoreHarness>(scene: &Scene<H>) -> bool {
    scene.store.features().late_commits && scene.keeps().places
}

/// Claims with the limits above.
async fn claim<H: StoreHarness>(scene: &mut Scene<H>) -> Result<Vec<ClaimedEvent>, Failure> {
    let claimed = scene.owner.claim(&scene.store, LIMIT, BYTES, &[]).await?;
    let bytes: usize =
        claimed.events.iter().flat_map(|event| event.event.as_ref().map(Event::weight_bytes)).sum();
    assert!(claimed.events.len() <= LIMIT, "{} events", claimed.events.len());
    assert!(bytes <= BYTES, "{bytes} bytes");
    assert!(claimed.again.len() <= LIMIT, "{} rows to be read once more", claimed.again.len());
    Ok(claimed.events)
}

/// Inserts events in a transaction that stays open.
async fn insert<H: StoreHarness>(scene: &Scene<H>, events: &[Event]) -> Result<H::Tx, Failure> {
    let mut tx = scene.harness.begin().await?;
    for events in events.chunks(CHUNK) {
        scene.harness.insert(&mut tx, events, OnDuplicate::Fail).await?;
    }
    Ok(tx)
}

/// Writes events, which claims read past whatever is still open, and delivers them.
async fn pass_by<H: StoreHarness>(scene: &mut Scene<H>) -> Checked {
    let events = unkeyed(BETWEEN)?;
    for events in events.chunks(CHUNK) {
        scene.harness.write(events).await?;
    }
    let (mut met, began) = (0, Instant::now());
    while met < events.len() && began.elapsed() < LATE_MAX {
        let claimed = claim(scene).await?;
        met += claimed.len();
        scene.done(&claimed).await?;
    }
    assert_eq!(met, events.len());
    Ok(())
}

/// Lanes that were taken over are read from the start, beside others that stand further on and in claims that do not return everything. Each key
/// comes in its order all the same. Section 4.1 of the design
pub async fn keys_of_lanes_that_were_taken_over_come_in_order<H: StoreHarness>() -> Checked {
    const KEYS: usize = 60;
    let mut scene = Scene::<H>::fresh().await?;
    if !can_pass_by(&scene) {
        return Ok(());
    }
    // It may commit behind all that claims have read.
    let open = insert(&scene, &unkeyed(1)?).await?;
    let round =
        |_| (0..KEYS).map(|key| Ok(Event::json_text("Tested", "{}").key(format!("key {key}")).build()?));
    let mut events = (0..13).flat_map(round).collect::<Result<Vec<_>, Failure>>()?;
    let later = events.split_off(10 * KEYS);
    scene.harness.write(&events).await?;
    let read = scene.claim().await?.events;
    assert_eq!(read.len(), events.len());
    let is_kept = |lane: Lane| lane.is_multiple_of(2);
    let kept: Vec<_> = read.iter().filter(|event| is_kept(event.lane)).cloned().collect();
    scene.done(&kept).await?;
    scene.harness.write(&later).await?;
    // The other lanes were lost and are taken anew.
    let positions = scene.owner.positions().into_iter().filter(|(lane, _)| is_kept(*lane)).collect();
    scene.owner = Owner::holding(scene.owner.leases().to_vec());
    scene.owner.go_back(positions);
    let mut last: BTreeMap<String, Seq> = BTreeMap::new();
    let (mut count, left) = (0, events.len() + later.len() - kept.len());
    for _ in 0..left {
        let claimed = scene.claim_at_most(400).await?.events;
        for event in &claimed {
            let key = event.event.as_ref().ok().and_then(|event| event.key()).unwrap_or_default().to_owned();
            let before = last.insert(key.clone(), event.seq);
            assert!(before.is_none_or(|before| before < event.seq), "{key}: {} after {before:?}", event.seq);
        }
        count += claimed.len();
        if count == left {
            break;
        }
    }
    assert_eq!(count, left);
    scene.harness.commit(open).await
}

/// Tens of thousands of events that commit late come claim by claim, none with more than its limit or its bytes, in the order of their
/// keys, and before what was inserted after the commit. Bounded, section 3 of the design
pub async fn a_large_transaction_that_commits_late_comes_within_the_limits_of_each_claim<H: StoreHarness>()
-> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !can_pass_by(&scene) {
        return Ok(());
    }
    let body = format!("\"{}\"", "x".repeat(1000));
    let keyed = |n: usize| -> Result<Event, Failure> {
        Ok(Event::json_text("Tested", body.clone()).key(format!("key {}", n % 50)).build()?)
    };
    let events = (0..LATE + 50).map(keyed).collect::<Result<Vec<_>, _>>()?;
    let (late, later) = events.split_at(LATE);
    let tx = insert(&scene, late).await?;
    pass_by(&mut scene).await?;
    scene.harness.commit(tx).await?;
    scene.harness.write(later).await?;
    let (mut came, mut count, began) = (BTreeMap::<String, Vec<EventId>>::new(), 0, Instant::now());
    while count < events.len() && began.elapsed() < LATE_MAX {
        let claimed = claim(&mut scene).await?;
        count += claimed.len();
        for event in claimed.iter().flat_map(|event| &event.event) {
            came.entry(event.key().unwrap_or_default().to_owned()).or_default().push(event.id().clone());
        }
        scene.done(&claimed).await?;
    }
    assert_eq!(count, events.len());
    for (key, came) in came {
        let of_key = events.iter().filter(|event| event.key() == Some(&key));
        assert!(came.iter().eq(of_key.map(Event::id)), "{key} came in another order");
    }
    Ok(())
}

/// What commits late and is not wanted, because its receiver is down or paused, is met once and keeps nothing back. Section 6.3 of the
/// design
pub async fn what_commits_late_and_is_not_wanted_is_met_once_and_keeps_nothing_back<H: StoreHarness>()
-> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !can_pass_by(&scene) {
        return Ok(());
    }
    let gate = Gate::new(|row: &RowSummary<'_>| row.event_type != "Paused");
    scene.owner.admit(Some(gate.clone()));
    let paused = |_| -> Result<Event, Failure> { Ok(Event::json_text("Paused", "{}").build()?) };
    let paused = (0..BETWEEN).map(paused).collect::<Result<Vec<_>, _>>()?;
    let tx = insert(&scene, &paused).await?;
    pass_by(&mut scene).await?;
    scene.harness.commit(tx).await?;
    gate.asked();
    let wanted = unkeyed(CHUNK)?;
    scene.harness.write(&wanted).await?;
    let (mut came, mut asked, began) = (Vec::new(), 0, Instant::now());
    while (came.len() < wanted.len() || asked < paused.len()) && began.elapsed() < LATE_MAX {
        let claimed = claim(&mut scene).await?;
        came.extend(claimed_ids(&claimed));
        scene.done(&claimed).await?;
        asked += gate.asked().iter().filter(|asked| asked.event_type == "Paused").count();
    }
    assert_eq!(sorted(came), ids(&wanted));
    assert_eq!(asked, paused.len(), "each is asked about once");
    // And never again.
    for events in unkeyed(4)?.chunks(1) {
        scene.harness.write(events).await?;
        let claimed = scene.claim().await?.events;
        assert_eq!(claimed_ids(&claimed), ids(events));
        scene.done(&claimed).await?;
        assert!(gate.asked().iter().all(|asked| asked.event_type != "Paused"));
    }
    Ok(())
}
