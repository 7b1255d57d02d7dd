//! Lists of events and counts of them.

use std::time::Duration;

use postrider_core::{
    Event, EventId,
    store::{EventStatus, ListFrom, ListScope, ListedEvent, Listing, Oldest, TypeCount},
};

use super::{
    Checked, Failure, StoreHarness,
    scene::{BACKOFF, PAST_BACKOFF, Scene, dead, ids, retry, unkeyed},
};

fn listed_ids(page: &[ListedEvent]) -> Vec<EventId> {
    page.iter().map(|event| event.id.clone()).collect()
}

async fn list<H: StoreHarness>(scene: &Scene<H>, listing: Listing) -> Result<Vec<ListedEvent>, Failure> {
    Ok(scene.store.list(&listing).await?)
}

/// A list goes from the newest backwards and from a place forwards, page by page, and shows each event once.
pub async fn events_are_listed_in_pages_both_ways<H: StoreHarness>() -> Checked {
    let scene = Scene::<H>::fresh().await?;
    let events = unkeyed(7)?;
    for event in &events {
        scene.write(event).await?;
    }
    let written = ids(&events);
    let newest = Listing::newest(ListScope::Undelivered, 3);
    let (mut from, mut found) = (ListFrom::Newest, Vec::new());
    for expected in [3, 3, 1, 0] {
        let page = list(&scene, Listing { from: from.clone(), ..newest.clone() }).await?;
        assert_eq!(page.len(), expected);
        if let Some(first) = page.first() {
            from = ListFrom::Before(first.cursor.clone());
        }
        found.splice(0..0, page);
    }
    assert_eq!(listed_ids(&found), written);

    let mark = found.first().map(|first| first.cursor.clone()).unwrap_or_default();
    let mut after = ListFrom::After(mark);
    let mut forwards = Vec::new();
    for expected in [3, 3, 0] {
        let page = list(&scene, Listing { from: after.clone(), ..newest.clone() }).await?;
        assert_eq!(page.len(), expected);
        if let Some(last) = page.last() {
            after = ListFrom::After(last.cursor.clone());
        }
        forwards.extend(page);
    }
    assert_eq!(Some(&*listed_ids(&forwards)), written.get(1..));
    Ok(())
}

/// Each scope has its events, with the state that `status` tells, and filters leave out the others.
pub async fn a_list_tells_shelves_keys_and_types_apart<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let mut events: Vec<Event> = Vec::new();
    for key in ["done", "dead", "held"] {
        events.extend(scene.keyed::<1>(key).await?);
    }
    let claimed: [_; 3] = scene.claim_exactly().await?;
    let [a, b, c] = &claimed;
    scene.done(std::slice::from_ref(a)).await?;
    scene.settle(b, dead(false)).await?;
    scene.settle(c, retry(1)).await?;
    events.extend(scene.keyed::<1>("new").await?);
    let keeps = scene.keeps();

    let page = list(&scene, Listing::newest(ListScope::Undelivered, 10)).await?;
    assert_eq!(listed_ids(&page), ids(events.get(1..).unwrap_or_default()));
    for (event, key) in page.iter().zip(["dead", "held", "new"]) {
        assert_eq!(event.status, scene.store.status(&event.id).await?);
        assert_eq!((event.event_type.as_str(), event.key.as_deref()), ("Tested", Some(key)));
        assert_eq!(event.payload, None);
        assert!(event.created_at > postrider_core::Timestamp::EPOCH || !keeps.written_at);
        let tried = matches!(key, "held") && keeps.attempts;
        assert!(event.attempts == u32::from(tried) || matches!(event.status, EventStatus::Dead { .. }));
    }
    let of = |scope| Listing::newest(scope, 10);
    let only = |n: usize| ids(events.get(n..=n).unwrap_or_default());
    let dead = list(&scene, of(ListScope::Dead)).await?;
    assert_eq!(listed_ids(&dead), only(1));
    assert!(dead.iter().all(|event| matches!(event.status, EventStatus::Dead { .. })));
    let times = |event: &ListedEvent| (event.created_at, event.died_at);
    let letters = scene.store.dead(0, 10).await?;
    assert_eq!(
        dead.iter().map(times).collect::<Vec<_>>(),
        letters.iter().map(|letter| (letter.created_at, letter.died_at)).collect::<Vec<_>>()
    );
    assert!(page.iter().skip(1).all(|event| event.died_at.is_none()), "{page:?}");
    let done = list(&scene, of(ListScope::Delivered)).await?;
    assert_eq!(listed_ids(&done), if keeps.delivered { only(0) } else { Vec::new() });
    assert!(done.iter().all(|event| matches!(event.status, EventStatus::Done { .. })));
    assert!(
        done.iter()
            .all(|event| (event.event_type.as_str(), event.key.as_deref()) == ("Tested", Some("done")))
    );

    let keyed = |scope, key: &str| Listing { key: Some(key.to_owned()), ..of(scope) };
    let typed = |scope, name: &str| Listing { event_type: Some(name.to_owned()), ..of(scope) };
    assert_eq!(listed_ids(&list(&scene, keyed(ListScope::Undelivered, "held")).await?), only(2));
    assert!(list(&scene, keyed(ListScope::Dead, "held")).await?.is_empty());
    assert_eq!(list(&scene, keyed(ListScope::Delivered, "done")).await?.len(), usize::from(keeps.delivered));
    assert_eq!(list(&scene, typed(ListScope::Undelivered, "Tested")).await?.len(), 3);
    assert!(list(&scene, typed(ListScope::Undelivered, "Other")).await?.is_empty());

    for (n, scope) in [
        (0, ListScope::Delivered),
        (1, ListScope::Dead),
        (1, ListScope::Undelivered),
        (3, ListScope::Undelivered),
    ] {
        let Some(event) = events.get(n).filter(|_| n > 0 || keeps.delivered) else { continue };
        let found = list(&scene, Listing { id: Some(event.id().clone()), ..of(scope) }).await?;
        assert_eq!(listed_ids(&found), only(n), "{scope:?}");
        assert!(found.iter().all(|found| found.aggregate_type == event.aggregate_type()), "{found:?}");
    }
    let shown = Listing { payloads: true, ..keyed(ListScope::Undelivered, "held") };
    let shown = list(&scene, shown).await?;
    let payload = shown.first().and_then(|event| event.payload.as_ref());
    let sent = c.event.as_ref().ok().map(|event| event.payload());
    assert_eq!(payload.map(|payload| payload.as_bytes()), sent.map(|payload| payload.as_bytes()));
    Ok(())
}

/// A delayed event waits for its time, in a list and by itself, also while nobody claims; when that has come it is a new one.
pub async fn a_delayed_event_is_listed_with_its_time_before_a_claim_has_met_it<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    if !scene.keeps().delays {
        return Ok(());
    }
    let event = Event::json_text("Delayed", "{}").key("k").deliver_after(BACKOFF).build()?;
    scene.write(&event).await?;
    let listed = async |scene: &Scene<H>| {
        let page = list(scene, Listing::newest(ListScope::Undelivered, 10)).await?;
        assert_eq!(listed_ids(&page), ids(std::slice::from_ref(&event)));
        for listed in &page {
            assert_eq!(listed.status, scene.store.status(&listed.id).await?);
        }
        Ok::<_, Failure>(page.into_iter().next())
    };
    let Some(ListedEvent { status, created_at, .. }) = listed(&scene).await? else { return Ok(()) };
    let EventStatus::Waiting { attempts: 0, available_at, error: None } = status else {
        return Err(format!("it does not wait: {status:?}").into());
    };
    let delay = available_at.since(created_at);
    let near = BACKOFF - Duration::from_secs(5)..BACKOFF + Duration::from_secs(5);
    assert!(near.contains(&delay) || !scene.keeps().written_at, "{delay:?}");
    scene.pass(PAST_BACKOFF).await?;
    assert_eq!(listed(&scene).await?.map(|listed| listed.status), Some(EventStatus::New));
    Ok(())
}

/// Events that are not delivered are counted by type, the dead apart, the most frequent type first and no more types than asked for.
/// S4-24
pub async fn events_are_counted_by_type<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    assert_eq!(scene.store.count_by_type(10).await?, []);
    scene.keyed::<1>("done").await?;
    scene.keyed::<1>("dead").await?;
    scene.keyed::<1>("held").await?;
    let [a, b, c] = scene.claim_exactly().await?;
    scene.done(&[a]).await?;
    scene.settle(&b, dead(false)).await?;
    scene.settle(&c, retry(1)).await?;
    for _ in 0..3 {
        scene.write(&Event::json_text("Other", "1").build()?).await?;
    }
    let tested = TypeCount { event_type: "Tested".to_owned(), pending: 1, dead: 1 };
    let other = TypeCount { event_type: "Other".to_owned(), pending: 3, dead: 0 };
    assert_eq!(scene.store.count_by_type(10).await?, [other.clone(), tested]);
    assert_eq!(scene.store.count_by_type(1).await?, [other]);
    Ok(())
}

/// The oldest events are those that are neither delivered nor dead, in their order, and each is as old as it is.
pub async fn the_oldest_pending_events_are_told_with_their_types_and_ages<H: StoreHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let Some(nothing) = scene.store.oldest(0, 10).await? else { return Ok(()) };
    assert!(nothing.events.is_empty() && !nothing.more);
    scene.keyed::<1>("done").await?;
    scene.keyed::<1>("dead").await?;
    scene.keyed::<1>("held").await?;
    let [a, b, c] = scene.claim_exactly().await?;
    scene.done(&[a]).await?;
    scene.settle(&b, dead(false)).await?;
    scene.settle(&c, retry(1)).await?;
    scene.pass(BACKOFF / 2).await?;
    for _ in 0..2 {
        scene.write(&Event::json_text("Other", "1").aggregate("Order", 1).build()?).await?;
    }
    let told = async |limit| {
        let Oldest { events, more, .. } = scene.store.oldest(0, limit).await?.unwrap_or_default();
        Ok::<_, Failure>((events, more))
    };
    let (events, more) = told(10).await?;
    let types: Vec<_> = events.iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!((types, more), (vec!["Tested", "Other", "Other"], false));
    for event in &events {
        assert_eq!(event.age >= BACKOFF / 2, event.event_type == "Tested", "{events:?}");
        let is_known = event.event_type == "Other" && scene.keeps().aggregates;
        assert!(event.aggregate_type == "Order" || !is_known, "{events:?}");
    }
    let (events, more) = told(2).await?;
    assert_eq!((events.len(), more), (2, true));
    // Page by page the same ones are met, each once.
    let (mut types, mut after) = (Vec::new(), 0);
    loop {
        let page = scene.store.oldest(after, 1).await?.unwrap_or_default();
        types.extend(page.events.iter().map(|event| event.event_type.clone()));
        match page.read_to.filter(|_| page.more) {
            Some(read_to) => after = read_to,
            None => break,
        }
    }
    let read_on = nothing.read_to.is_some();
    assert_eq!(types, if read_on { vec!["Tested", "Other", "Other"] } else { vec!["Tested"] });
    Ok(())
}
