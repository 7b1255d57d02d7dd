//! Admission: rows that are not wanted are skipped, lie where they lay, and are found by anyone who goes back.

use std::time::Instant;

use postrider_core::{
    Event, GLOBAL_AGGREGATE, Timestamp,
    store::{ClaimedEvent, EventStatus, Position, RowSummary, Seq},
    tx::OnDuplicate,
};

use super::{
    Checked, Failure, StoreHarness,
    atomicity::LATE_MAX,
    gate::Gate,
    scene::{BACKOFF, PAST_BACKOFF, Scene, claimed_ids, dead, ids, keyed, retry, sorted, unkeyed},
};

const PLENTY: usize = 1 << 30;

/// Nothing of the key that is down.
fn is_up(row: &RowSummary<'_>) -> bool {
    row.key != Some("down")
}

fn nothing(_: &RowSummary<'_>) -> bool {
    false
}

fn seqs(events: &[ClaimedEvent]) -> Vec<Seq> {
    events.iter().map(|event| event.seq).collect()
}

/// So many events of the key that is down, delayed and due by now.
async fn due_waiting<H: StoreHarness, const N: usize>(
    scene: &mut Scene<H>,
) -> Result<Vec<ClaimedEvent>, Failure> {
    let mut delayed = Vec::new();
    for event in keyed::<N>("down")? {
        delayed.push(event.to_builder().deliver_after(BACKOFF).build()?);
    }
    scene.harness.write(&delayed).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    Ok(scene.owner.at_the_start().claim(&scene.store, 1000, PLENTY, &[]).await?.events)
}

/// So many events of the key that is down, parked and about to come back.
async fn returning<H: StoreHarness, const N: usize>(scene: &mut Scene<H>) -> Result<[Event; N], Failure> {
    scene.keyed::<1>("down").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, dead(true)).await?;
    let parked = scene.keyed("down").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.store.discard(&[super::scene::id_of(&head).clone()]).await?;
    Ok(parked)
}

/// What is not wanted is skipped: it does not come, stays as it is, and the next claim does not meet it.
pub async fn what_is_not_wanted_is_skipped_and_not_met_again<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let gate = Gate::new(is_up);
    scene.owner.admit(Some(gate.clone()));
    let refused: [_; 3] = scene.keyed("down").await?;
    let wanted: [_; 3] = scene.keyed("up").await?;
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&wanted));
    assert_eq!(gate.asked().len(), 6);
    for event in &refused {
        assert_eq!(scene.status(event).await?, EventStatus::New);
    }
    let claimed = scene.claim().await?;
    assert!(claimed.events.is_empty() && !claimed.more);
    assert!(gate.asked().is_empty() || !scene.keeps().places);
    Ok(())
}

/// A look from an earlier position finds what was skipped, in its order.
pub async fn a_look_from_an_earlier_position_finds_what_was_skipped<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<2>("before").await?;
    scene.claim_exactly::<2>().await?;
    let before = scene.owner.positions();
    scene.owner.admit(Some(Gate::new(is_up)));
    let refused: [_; 5] = scene.keyed("down").await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.owner.go_back(before);
    scene.owner.admit(None);
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&refused));
    Ok(())
}

/// Rows that are not wanted take nobody's place, and are not counted as more.
pub async fn what_is_not_wanted_takes_no_place_and_is_not_more<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.owner.admit(Some(Gate::new(is_up)));
    let mut wanted = Vec::new();
    for _ in 0..3 {
        scene.keyed::<10>("down").await?;
        wanted.extend(scene.keyed::<1>("up").await?);
    }
    scene.keyed::<10>("down").await?;
    let claimed = scene.claim_at_most(4).await?;
    assert_eq!(claimed_ids(&claimed.events), ids(&wanted));
    assert!(!claimed.more);
    Ok(())
}

/// Nobody is asked about what does not fit: the next claim asks, and returns it.
pub async fn what_does_not_fit_is_asked_about_by_the_next_claim<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let gate = Gate::new(is_up);
    scene.owner.admit(Some(gate.clone()));
    let events: [_; 5] = scene.keyed("up").await?;
    let first = scene.claim_at_most(3).await?;
    assert_eq!((first.events.len(), first.more), (3, true));
    assert_eq!(gate.asked_seqs(), seqs(&first.events));
    let second = scene.claim_at_most(3).await?;
    assert_eq!(gate.asked_seqs(), seqs(&second.events));
    assert_eq!([claimed_ids(&first.events), claimed_ids(&second.events)].concat(), ids(&events));
    Ok(())
}

/// Fresh rows beyond the end of a look are not looked at, and the position stays at that end.
pub async fn a_look_ends_where_it_is_told_to<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().places) {
        return Ok(());
    }
    let events: [_; 6] = scene.keyed("k").await?;
    let all = scene.owner.at_the_start().claim(&scene.store, 100, PLENTY, &[]).await?.events;
    let third = seqs(&all).get(2).copied().ok_or("six events came")?;
    scene.owner.look_up_to(third);
    let claimed = scene.claim().await?;
    assert_eq!(claimed_ids(&claimed.events), ids(events.get(..3).unwrap_or_default()));
    assert!(!claimed.more);
    assert!(claimed.positions.iter().all(|(_, position)| position.seq <= third), "{:?}", claimed.positions);
    let lane = all.first().map(|event| event.lane);
    let reached = claimed.positions.iter().find(|(number, _)| Some(*number) == lane);
    // Where transactions can commit late, the forward read is ahead of what is certain.
    assert_eq!(reached.map(|(_, position)| position.front().min(third)), Some(third));
    // An end that lies behind takes nothing back.
    scene.owner.look_up_to(1);
    let claimed = scene.claim().await?;
    assert!(claimed.events.is_empty() && !claimed.more);
    scene.owner.look_up_to(seqs(&all).last().copied().ok_or("six events came")?);
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(events.get(3..).unwrap_or_default()));
    Ok(())
}

/// What was given back is looked at wherever a look ends.
pub async fn what_was_given_back_is_looked_at_beyond_the_end_of_a_look<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<2>("k").await?;
    let [first, second] = scene.claim_exactly().await?;
    scene.owner.look_up_to(first.seq);
    scene.owner.give_back(&[&second]);
    assert_eq!(seqs(&scene.claim().await?.events), [second.seq]);
    Ok(())
}

/// Waiting rows that are not wanted are not met by the next claim, and are from an earlier cursor.
pub async fn waiting_rows_that_are_not_wanted_are_met_once<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays && scene.keeps().places) {
        return Ok(());
    }
    let waiting = due_waiting::<H, 5>(&mut scene).await?;
    let before = scene.owner.positions();
    let gate = Gate::new(nothing);
    scene.owner.admit(Some(gate.clone()));
    let claimed = scene.claim().await?;
    assert!(claimed.events.is_empty() && !claimed.more);
    let asked = gate.asked();
    assert_eq!(asked.len(), 5);
    for _ in 0..3 {
        let claimed = scene.claim().await?;
        assert!(claimed.events.is_empty() && !claimed.more);
    }
    assert!(gate.asked().is_empty());
    // The cursor of a row that was skipped is the time that it was asked about with.
    let mut earlier = before.clone();
    for (lane, position) in &mut earlier {
        if let Some(third) = asked.get(2).filter(|third| third.lane == *lane) {
            (position.due_at, position.due_seq) = (third.due_at.unwrap_or_default(), third.seq - 1);
        }
    }
    scene.owner.go_back(earlier);
    scene.owner.admit(Some(Gate::new(|_| true)));
    assert_eq!(
        seqs(&scene.claim().await?.events),
        asked.iter().skip(2).map(|row| row.seq).collect::<Vec<_>>()
    );
    scene.owner.go_back(before);
    assert_eq!(seqs(&scene.claim().await?.events), seqs(&waiting));
    Ok(())
}

/// Waiting rows that become due after others were skipped are met.
pub async fn waiting_rows_that_become_due_later_are_met<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays) {
        return Ok(());
    }
    due_waiting::<H, 3>(&mut scene).await?;
    scene.owner.admit(Some(Gate::new(is_up)));
    assert!(scene.claim().await?.events.is_empty());
    scene.keyed::<1>("up").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, retry(1)).await?;
    assert!(scene.claim().await?.events.is_empty());
    scene.pass(PAST_BACKOFF).await?;
    let [again] = scene.claim_exactly().await?;
    assert_eq!((again.seq, again.attempts, again.held), (claimed.seq, 1, true));
    Ok(())
}

/// A row that comes back and is not wanted lies among the others again, is not lost, and comes in order to anyone who goes back.
pub async fn a_returning_row_that_is_not_wanted_is_unparked<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let before = scene.owner.positions();
    let parked: [_; 5] = returning(&mut scene).await?;
    let gate = Gate::new(is_up);
    scene.owner.admit(Some(gate.clone()));
    let claimed = scene.claim().await?;
    assert!(claimed.events.is_empty() && !claimed.more);
    let asked = gate.asked();
    assert_eq!(asked.len(), 5);
    assert!(asked.is_sorted_by_key(|row| row.seq) && asked.iter().all(|row| row.due_at.is_none()));
    for event in &parked {
        assert_eq!(scene.status(event).await?, EventStatus::New);
    }
    assert!(scene.claim().await?.events.is_empty());
    assert!(gate.asked().is_empty());
    assert_eq!(scene.store.why("down").await?, None);
    let stats = scene.store.stats().await?;
    assert_eq!((stats.pending, stats.parked, stats.held_keys), (5, 0, 0));

    scene.owner.admit(None);
    scene.owner.go_back(before);
    assert_eq!(scene.drain().await?, ids(&parked));
    Ok(())
}

/// More rows that come back than one claim lets are all unparked, by as many claims as it takes.
pub async fn all_returning_rows_that_are_not_wanted_are_unparked<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let before = scene.owner.positions();
    let parked: [_; 40] = returning(&mut scene).await?;
    scene.owner.admit(Some(Gate::new(is_up)));
    let mut claims = 0;
    while scene.claim_at_most(5).await?.more {
        claims += 1;
        assert!(claims < 50, "a claim says more for ever");
    }
    scene.claim().await?;
    assert_eq!((scene.store.stats().await?.parked, scene.store.why("down").await?), (0, None));
    scene.owner.admit(None);
    scene.owner.go_back(before);
    assert_eq!(scene.drain().await?, ids(&parked));
    Ok(())
}

/// What was unparked because it was not wanted comes to anyone who goes back and reads up to a place, though more is parked behind it: else
/// what one claim unparks the other would park, for ever. What has something parked before it does not come.
pub async fn what_was_unparked_comes_to_a_walk_though_more_is_parked_behind_it<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let parked: [_; 40] = returning(&mut scene).await?;
    let gate = Gate::new(is_up);
    scene.owner.admit(Some(gate.clone()));
    assert!(scene.claim().await?.events.is_empty());
    let (unparked, own) = (gate.asked_seqs(), scene.owner.positions());
    assert!(!unparked.is_empty() && unparked.len() < parked.len());

    let [newest] = scene.keyed("down").await?;
    scene.owner.admit(Some(Gate::new(|_| true)));
    scene.owner.go_back(Default::default());
    scene.owner.look_up_to(1 << 62);
    let walked = scene.claim().await?.events;
    assert_eq!(seqs(&walked), unparked);
    assert!(walked.iter().all(|event| event.held));
    scene.done(&walked).await?;

    scene.owner.admit(None);
    scene.owner.go_back(own);
    scene.owner.look_up_to(Seq::MAX);
    let mut left = ids(&parked).split_off(unparked.len());
    left.extend(ids(&[newest]));
    assert_eq!(scene.drain().await?, left);
    Ok(())
}

/// Nothing comes back from parking to a claim that begins where nothing was met on the way: it is not asked about, and stays parked.
pub async fn nothing_comes_back_from_parking_to_a_walk<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let parked: [_; 5] = returning(&mut scene).await?;
    let (own, gate) = (scene.owner.positions(), Gate::new(nothing));
    let beyond = Position::at(1 << 40, Timestamp::EPOCH, 0, &Position::START);
    scene.owner.admit(Some(gate.clone()));
    scene.owner.go_back(own.keys().map(|lane| (*lane, beyond)).collect());
    scene.owner.look_up_to(1 << 41);
    assert!(scene.claim().await?.events.is_empty());
    assert!(gate.asked().is_empty());
    for event in &parked {
        scene.assert_parked(event).await?;
    }
    scene.owner.admit(None);
    scene.owner.go_back(own);
    scene.owner.look_up_to(Seq::MAX);
    assert_eq!(scene.drain().await?, ids(&parked));
    Ok(())
}

/// A walk that meets what committed late and does not want it leaves it to the next claim of the lanes' own positions.
pub async fn what_committed_late_is_found_though_a_walk_met_it<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scene.store.features().late_commits {
        return Ok(());
    }
    let (late, early) = (unkeyed(5)?, unkeyed(5)?);
    let mut tx = scene.harness.begin().await?;
    scene.harness.insert(&mut tx, &late, OnDuplicate::Fail).await?;
    scene.harness.write(&early).await?;
    let first = scene.claim().await?;
    assert_eq!(claimed_ids(&first.events).len(), early.len());
    scene.done(&first.events).await?;
    scene.harness.commit(tx).await?;

    let (own, gate) = (scene.owner.positions(), Gate::new(nothing));
    scene.owner.admit(Some(gate.clone()));
    scene.owner.go_back(Default::default());
    scene.owner.look_up_to(1 << 41);
    assert!(scene.claim().await?.events.is_empty());
    // A store that knows what the lanes' own claims have met leaves it out.
    let asked = gate.asked().len();
    assert!(asked == 0 || asked == late.len(), "{asked}");
    scene.owner.admit(None);
    scene.owner.go_back(own);
    scene.owner.look_up_to(Seq::MAX);
    let (mut met, began) = (Vec::new(), Instant::now());
    while met.len() < late.len() && began.elapsed() < LATE_MAX {
        met.extend(claimed_ids(&scene.claim().await?.events));
    }
    assert_eq!(sorted(met), ids(&late));
    Ok(())
}

/// What was given back and lies where a walk goes by is asked about once.
pub async fn a_given_back_row_is_asked_about_once_by_a_walk<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<3>("k").await?;
    let claimed: [_; 3] = scene.claim_exactly().await?;
    let gate = Gate::new(|_| true);
    scene.owner.admit(Some(gate.clone()));
    scene.owner.give_back(&claimed.each_ref());
    scene.owner.go_back(Default::default());
    scene.owner.look_up_to(1 << 41);
    assert_eq!(seqs(&scene.claim().await?.events), seqs(&claimed));
    assert_eq!(gate.asked_seqs(), seqs(&claimed));
    Ok(())
}

/// A delayed row that was parked and comes back unwanted waits again, and is due.
pub async fn a_returning_row_that_waited_waits_again<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().on_dead) {
        return Ok(());
    }
    let [late] = keyed("down")?;
    let late = late.to_builder().deliver_after(BACKOFF).build()?;
    scene.write(&late).await?;
    scene.keyed::<1>("down").await?;
    let [head] = scene.claim_exactly().await?;
    scene.settle(&head, dead(true)).await?;
    scene.pass(PAST_BACKOFF).await?;
    assert!(scene.claim().await?.events.is_empty());
    assert_eq!(scene.status(&late).await?, EventStatus::Parked);
    scene.store.discard(&[super::scene::id_of(&head).clone()]).await?;

    let gate = Gate::new(is_up);
    scene.owner.admit(Some(gate.clone()));
    assert!(scene.claim().await?.events.is_empty());
    assert_eq!(gate.asked().len(), 1);
    assert!(matches!(scene.status(&late).await?, EventStatus::Waiting { attempts: 0, .. }));
    scene.owner = scene.owner.at_the_start();
    assert_eq!(scene.drain().await?, ids(&[late]));
    Ok(())
}

/// A row that was given back and is not wanted is not given back once more.
pub async fn a_given_back_row_that_is_not_wanted_is_not_kept<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let before = scene.owner.positions();
    let events: [_; 3] = scene.keyed("down").await?;
    let claimed: [_; 3] = scene.claim_exactly().await?;
    let gate = Gate::new(is_up);
    scene.owner.admit(Some(gate.clone()));
    scene.owner.give_back(&claimed.each_ref());
    let looked = scene.claim().await?;
    assert!(looked.events.is_empty() && looked.again.is_empty() && !looked.more);
    assert_eq!(gate.asked_seqs(), seqs(&claimed));
    assert!(scene.claim().await?.events.is_empty());
    assert!(gate.asked().is_empty() || !scene.keeps().places);
    scene.owner.admit(None);
    scene.owner.go_back(before);
    assert_eq!(claimed_ids(&scene.claim().await?.events), ids(&events));
    Ok(())
}

/// A due row that waits and was given back is asked about once, though a claim can meet it twice.
pub async fn a_given_back_row_that_waits_is_asked_about_once<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays) {
        return Ok(());
    }
    let waiting = due_waiting::<H, 2>(&mut scene).await?;
    let gate = Gate::new(is_up);
    scene.owner.admit(Some(gate.clone()));
    scene.owner.give_back(&waiting.iter().collect::<Vec<_>>());
    let claimed = scene.claim().await?;
    assert!(claimed.events.is_empty() && claimed.again.is_empty());
    let mut asked = gate.asked_seqs();
    asked.sort_unstable();
    assert_eq!(asked, seqs(&waiting));
    Ok(())
}

/// Nobody is asked about what would not come anyway: in memory, early, parked, dead.
pub async fn only_what_would_come_is_asked_about<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().delays && scene.keeps().places) {
        return Ok(());
    }
    scene.keyed::<2>("held").await?;
    scene.keyed::<1>("dead").await?;
    let [head, _, doomed] = scene.claim_exactly().await?;
    scene.settle(&head, retry(1)).await?;
    scene.settle(&doomed, dead(false)).await?;
    let [early] = keyed("early")?;
    scene.write(&early.to_builder().deliver_after(BACKOFF).build()?).await?;
    scene.keyed::<2>("due").await?;
    let gate = Gate::new(|_| true);
    scene.owner = scene.owner.at_the_start();
    scene.owner.admit(Some(gate.clone()));
    let claimed = scene.claim().await?.events;
    let [in_memory, due] = seqs(&claimed).try_into().map_err(|seqs| format!("not two events: {seqs:?}"))?;
    assert_eq!(gate.asked_seqs(), [in_memory, due]);
    scene.owner.go_back(Default::default());
    scene.owner.claim(&scene.store, 100, PLENTY, &[in_memory]).await?;
    assert_eq!(gate.asked_seqs(), [due]);
    Ok(())
}

/// A row is shown as it stands in the table.
pub async fn a_row_is_shown_as_it_was_stored<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !(scene.keeps().aggregates) {
        return Ok(());
    }
    let events = [
        Event::json_text("OrderPlaced", "{}").aggregate("Order", 42).build()?,
        Event::json_text("OrderShipped", "{}").aggregate("Order", 42).key("a key of its own").build()?,
        Event::json_text("Bare", "{}").build()?,
    ];
    scene.harness.write(&events).await?;
    let gate = Gate::new(|_| true);
    scene.owner.admit(Some(gate.clone()));
    let claimed = scene.claim().await?.events;
    let mut asked = gate.asked();
    asked.sort_by_key(|row| row.seq);
    let expected = [
        ("OrderPlaced", "Order", Some("Order:42")),
        ("OrderShipped", "Order", Some("a key of its own")),
        ("Bare", GLOBAL_AGGREGATE, None),
    ];
    assert_eq!(asked.len(), 3);
    for ((row, event), (event_type, aggregate_type, key)) in asked.iter().zip(&claimed).zip(expected) {
        assert_eq!((row.lane, row.seq, row.due_at), (event.lane, event.seq, None));
        assert_eq!((row.event_type.as_str(), row.aggregate_type.as_str()), (event_type, aggregate_type));
        assert_eq!(row.key.as_deref(), key);
    }
    Ok(())
}

/// A waiting row is shown with the time that it waited for, wherever it was met: that is where it will be found again.
pub async fn a_waiting_row_is_shown_with_its_time<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let [event] = scene.keyed("k").await?;
    let [claimed] = scene.claim_exactly().await?;
    scene.settle(&claimed, retry(1)).await?;
    scene.pass(PAST_BACKOFF).await?;
    let EventStatus::Waiting { available_at, .. } = scene.status(&event).await? else {
        return Err("the event does not wait".into());
    };
    let gate = Gate::new(|_| true);
    scene.owner.admit(Some(gate.clone()));
    let [waited] = scene.claim_exactly().await?;
    let times = || -> Vec<_> { gate.asked().iter().map(|row| (row.seq, row.due_at)).collect() };
    assert_eq!(times(), [(claimed.seq, Some(available_at))]);
    scene.owner.give_back(&[&waited]);
    scene.claim_exactly::<1>().await?;
    assert_eq!(times(), [(claimed.seq, Some(available_at))]);
    Ok(())
}

/// The rows of one key are asked about in their order, each once in a claim, those that were given back first.
pub async fn the_rows_of_a_key_are_asked_about_in_order<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    scene.keyed::<3>("k").await?;
    let claimed: [_; 3] = scene.claim_exactly().await?;
    scene.owner.give_back(&claimed.each_ref());
    scene.keyed::<3>("k").await?;
    let gate = Gate::new(|row| row.seq % 2 == 0);
    scene.owner.admit(Some(gate.clone()));
    let events = scene.claim().await?.events;
    let asked = gate.asked_seqs();
    assert_eq!(asked.len(), 6);
    assert!(asked.is_sorted(), "{asked:?}");
    assert_eq!(seqs(&events), asked.into_iter().filter(|seq| seq % 2 == 0).collect::<Vec<_>>());
    Ok(())
}

/// However many rows are skipped, those behind them come, and each is asked about once.
pub async fn thousands_that_are_not_wanted_do_not_keep_back_the_rest<H: StoreHarness>() -> Checked {
    const REFUSED: usize = 3000;
    let mut scene = Scene::<H>::fresh().await?;
    scene.harness.write(&unkeyed(REFUSED)?).await?;
    let wanted: [_; 3] = scene.keyed("up").await?;
    let gate = Gate::new(|row| row.key.is_some());
    scene.owner.admit(Some(gate.clone()));
    let mut got = Vec::new();
    for _ in 0..100 {
        let claimed = scene.claim_at_most(10).await?;
        got.extend(claimed_ids(&claimed.events));
        if !claimed.more {
            break;
        }
    }
    assert_eq!(got, ids(&wanted));
    let mut asked = gate.asked_seqs();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), REFUSED + 3);
    Ok(())
}
