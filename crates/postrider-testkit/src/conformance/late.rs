//! Late commits: transactions that took their places in the order early and commit when claims have gone past them. Only for stores in which
//! that can happen. Section 6.3 of the design.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use postrider_core::{
    Event, EventId,
    store::{RowSummary, Seq},
    tx::OnDuplicate,
};

use super::{
    Checked, Failure, StoreHarness,
    atomicity::{LATE_MAX, OTHERS},
    gate::Gate,
    scene::{Scene, claimed_ids, ids, keyed, unkeyed},
};

/// More events than one claim of the suite reads, wherever they lie.
const MANY: usize = 5000;

/// Long enough for a store that moves its watermarks now and then.
const WATERMARKS_MOVE_IN: Duration = Duration::from_millis(1200);

/// Nothing without a key.
fn has_key(row: &RowSummary<'_>) -> bool {
    row.key.is_some()
}

/// Whether claims go on from a position that events can commit behind. Others read all that is pending, and what commits late comes late there.
fn scans_behind<H: StoreHarness>(scene: &Scene<H>) -> bool {
    scene.store.features().late_commits && scene.keeps().places
}

/// A fresh store where events without a key are not wanted; none where nothing commits late.
async fn scene_of_unwanted<H: StoreHarness>() -> Result<Option<(Scene<H>, std::sync::Arc<Gate>)>, Failure> {
    let mut scene = Scene::<H>::fresh().await?;
    if !scans_behind(&scene) {
        return Ok(None);
    }
    let gate = Gate::new(has_key);
    scene.owner.admit(Some(gate.clone()));
    Ok(Some((scene, gate)))
}

/// So many events of many keys, not written yet.
fn others(count: usize) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::with_capacity(count);
    for number in 0..count {
        events.extend(keyed::<1>(&format!("other {}", number % OTHERS))?);
    }
    Ok(events)
}

/// Writes so many events of others, and delivers them.
async fn deliver_others<H: StoreHarness>(scene: &mut Scene<H>, count: usize) -> Checked {
    for batch in others(count)?.chunks(1000) {
        scene.harness.write(batch).await?;
    }
    let delivered = scene.drain().await?.len();
    assert_eq!(delivered, count);
    Ok(())
}

/// Delivers until so many have come, or for so long that no more will.
async fn deliver<H: StoreHarness>(scene: &mut Scene<H>, count: usize) -> Result<Vec<EventId>, Failure> {
    let (mut delivered, began) = (Vec::new(), Instant::now());
    while delivered.len() < count && began.elapsed() < LATE_MAX {
        let events = scene.claim().await?.events;
        delivered.extend(claimed_ids(&events));
        scene.done(&events).await?;
    }
    Ok(delivered)
}

/// One event that commits late and is not wanted keeps nothing else back, however far the others have come.
pub async fn an_unwanted_event_that_commits_late_keeps_nothing_back<H: StoreHarness>() -> Checked {
    let Some((mut scene, _)) = scene_of_unwanted::<H>().await? else { return Ok(()) };
    let mut tx = scene.harness.begin().await?;
    scene.harness.insert(&mut tx, &unkeyed(1)?, OnDuplicate::Fail).await?;
    deliver_others(&mut scene, MANY).await?;
    scene.harness.commit(tx).await?;
    // In all lanes, that of the unwanted one included.
    for _ in 0..3 {
        deliver_others(&mut scene, OTHERS).await?;
    }
    Ok(())
}

/// Thousands that commit late and are not wanted keep nothing back, and claims ask about each of them a few times at most: once for each
/// scan that could not know that another had met it.
pub async fn thousands_of_unwanted_events_that_commit_late_keep_nothing_back<H: StoreHarness>() -> Checked {
    let Some((mut scene, gate)) = scene_of_unwanted::<H>().await? else { return Ok(()) };
    let mut tx = scene.harness.begin().await?;
    for batch in unkeyed(MANY)?.chunks(1000) {
        scene.harness.insert(&mut tx, batch, OnDuplicate::Fail).await?;
    }
    deliver_others(&mut scene, MANY).await?;
    scene.harness.commit(tx).await?;
    gate.asked();
    let mut asked = BTreeMap::<Seq, usize>::new();
    for _ in 0..10 {
        let wanted: [_; 3] = scene.keyed("up").await?;
        assert_eq!(deliver(&mut scene, 3).await?, ids(&wanted));
        let refused = gate.asked().into_iter().filter(|row| row.key.is_none());
        refused.for_each(|row| *asked.entry(row.seq).or_default() += 1);
    }
    let most = asked.values().max().copied().unwrap_or_default();
    assert!(most <= 3, "claims asked {most} times about one event");
    Ok(())
}

/// What commits late comes before what was inserted after that in its key, however much that is not wanted lies before it.
pub async fn what_committed_late_comes_first_behind_thousands_that_are_not_wanted<H: StoreHarness>() -> Checked
{
    let Some((mut scene, _)) = scene_of_unwanted::<H>().await? else { return Ok(()) };
    let [late, later] = keyed("k")?;
    let mut tx = scene.harness.begin().await?;
    for batch in unkeyed(MANY)?.chunks(1000) {
        scene.harness.insert(&mut tx, batch, OnDuplicate::Fail).await?;
    }
    scene.harness.insert(&mut tx, std::slice::from_ref(&late), OnDuplicate::Fail).await?;
    deliver_others(&mut scene, MANY).await?;
    scene.harness.commit(tx).await?;
    scene.write(&later).await?;
    assert_eq!(deliver(&mut scene, 2).await?, ids(&[late, later]));
    Ok(())
}

/// While thousands that committed late are delivered, what is new comes too.
pub async fn thousands_that_commit_late_all_come_and_so_does_what_is_new<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scans_behind(&scene) {
        return Ok(());
    }
    let late = unkeyed(MANY)?;
    let mut tx = scene.harness.begin().await?;
    for batch in late.chunks(1000) {
        scene.harness.insert(&mut tx, batch, OnDuplicate::Fail).await?;
    }
    deliver_others(&mut scene, MANY).await?;
    scene.harness.commit(tx).await?;
    let new: [_; 3] = scene.keyed("new").await?;
    let mut delivered = deliver(&mut scene, MANY + 3).await?;
    delivered.sort_unstable();
    let mut expected = ids(&late);
    expected.extend(ids(&new));
    expected.sort_unstable();
    assert_eq!(delivered, expected);
    Ok(())
}

/// A transaction that began last may commit last: what it wrote comes before what was inserted after its commit, though a transaction
/// that began before it and wrote after it was delivered meanwhile. Section 4.1 of the design
pub async fn what_committed_late_comes_first_though_its_transaction_began_last<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scans_behind(&scene) {
        return Ok(());
    }
    for round in 0..3 {
        let [late, later] = keyed("k")?;
        let (mut early, mut last) = (scene.harness.begin().await?, scene.harness.begin().await?);
        // Databases number a transaction when it first writes.
        scene.harness.put(&mut early, &format!("order {round}")).await?;
        scene.harness.insert(&mut last, std::slice::from_ref(&late), OnDuplicate::Fail).await?;
        scene.harness.insert(&mut early, &others(OTHERS)?, OnDuplicate::Fail).await?;
        scene.harness.commit(early).await?;
        // Nothing is settled meanwhile: that would be a transaction too, and a later one.
        let events = scene.claim().await?.events;
        assert_eq!(events.len(), OTHERS);
        let in_flight: Vec<Seq> = events.iter().map(|event| event.seq).collect();
        let began = Instant::now();
        while began.elapsed() < WATERMARKS_MOVE_IN {
            assert!(scene.owner.claim(&scene.store, 1000, 1 << 30, &in_flight).await?.events.is_empty());
        }
        scene.done(&events).await?;
        scene.harness.commit(last).await?;
        scene.write(&later).await?;
        assert_eq!(deliver(&mut scene, 2).await?, ids(&[late, later]));
    }
    Ok(())
}

/// Two events of a key that one transaction wrote come in their order, wherever a scan for late commits stands when that transaction commits: it
/// may have gone past the first of them and not past the second.
pub async fn two_events_of_a_transaction_that_commits_amid_a_scan_come_in_order<H: StoreHarness>() -> Checked
{
    let mut scene = Scene::<H>::fresh().await?;
    if !scans_behind(&scene) {
        return Ok(());
    }
    for round in 0..12 {
        let [first, second] = keyed("k")?;
        let mut filler = scene.harness.begin().await?;
        let mut both = scene.harness.begin().await?;
        scene.harness.insert(&mut filler, &others(OTHERS / 4)?, OnDuplicate::Fail).await?;
        scene.harness.insert(&mut both, std::slice::from_ref(&first), OnDuplicate::Fail).await?;
        scene.harness.insert(&mut filler, &others(OTHERS / 4)?, OnDuplicate::Fail).await?;
        scene.harness.insert(&mut both, std::slice::from_ref(&second), OnDuplicate::Fail).await?;
        scene.harness.insert(&mut filler, &others(OTHERS / 4)?, OnDuplicate::Fail).await?;
        deliver_others(&mut scene, OTHERS).await?;
        scene.harness.commit(filler).await?;
        let mut delivered = Vec::new();
        for _ in 0..round * 3 {
            delivered.extend(deliver_few(&mut scene).await?);
        }
        scene.harness.commit(both).await?;
        let began = Instant::now();
        while delivered.len() < OTHERS / 4 * 3 + 2 && began.elapsed() < LATE_MAX {
            delivered.extend(deliver_few(&mut scene).await?);
        }
        let ours = [first.id(), second.id()];
        delivered.retain(|id| ours.contains(&id));
        assert_eq!(delivered, ids(&[first, second]), "in round {round}");
    }
    Ok(())
}

/// Two events of a key that one transaction wrote come in their order, also if that transaction commits while a backlog is drained, between what claims have
/// read of it and what they have not.
pub async fn two_events_of_a_transaction_that_commits_amid_a_backlog_come_in_order<H: StoreHarness>()
-> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scans_behind(&scene) {
        return Ok(());
    }
    for round in 1..4 {
        let [first, second] = keyed("k")?;
        let mut both = scene.harness.begin().await?;
        scene.harness.insert(&mut both, std::slice::from_ref(&first), OnDuplicate::Fail).await?;
        scene.harness.write(&others(OTHERS)?).await?;
        scene.harness.insert(&mut both, std::slice::from_ref(&second), OnDuplicate::Fail).await?;
        scene.harness.write(&others(OTHERS)?).await?;
        let mut delivered = Vec::new();
        for _ in 0..round {
            let events = scene.claim_at_most(OTHERS / 4).await?.events;
            scene.done(&events).await?;
            delivered.extend(claimed_ids(&events));
        }
        scene.harness.commit(both).await?;
        delivered.extend(deliver(&mut scene, OTHERS * 2 + 2 - delivered.len()).await?);
        assert_eq!(delivered.len(), OTHERS * 2 + 2, "in round {round}");
        let ours = [first.id(), second.id()];
        delivered.retain(|id| ours.contains(&id));
        assert_eq!(delivered, ids(&[first, second]), "in round {round}");
    }
    Ok(())
}

/// So few that a scan takes many claims.
async fn deliver_few<H: StoreHarness>(scene: &mut Scene<H>) -> Result<Vec<EventId>, Failure> {
    let events = scene.claim_at_most(8).await?.events;
    scene.done(&events).await?;
    Ok(claimed_ids(&events))
}
