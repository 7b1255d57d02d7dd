//! Lists and counts, for people who look. All of it is read: nobody keeps a million events in memory to look at them.

use std::collections::BTreeMap;

use postrider_core::{
    Event, Timestamp,
    store::{EventStatus, ListCursor, ListFrom, ListScope, ListedEvent, Listing, TypeCount, Undecodable},
};

use super::{
    operate::status_of,
    row::{Status, aggregate_type_of, id_of, key_of, type_of},
    tables::Tables,
};

pub(super) fn list(tables: &Tables, listing: &Listing, now: Timestamp) -> Vec<ListedEvent> {
    let fits = |event: &ListedEvent| {
        listing.event_type.as_ref().is_none_or(|wanted| *wanted == event.event_type)
            && listing.key.as_ref().is_none_or(|wanted| Some(wanted) == event.key.as_ref())
            && listing.id.as_ref().is_none_or(|wanted| *wanted == event.id)
            && match &listing.from {
                ListFrom::Newest => true,
                ListFrom::Before(mark) => event.cursor < *mark,
                ListFrom::After(mark) => event.cursor > *mark,
            }
    };
    let mut found: Vec<ListedEvent> = match listing.scope {
        ListScope::Delivered => {
            let kept = tables.done.iter().map(|((done_at, seq), kept)| {
                let cursor = ListCursor { at: *done_at, seq: *seq, id: String::new() };
                let status = EventStatus::Done { done_at: *done_at };
                listed(
                    cursor,
                    &kept.content,
                    status,
                    kept.attempts,
                    (kept.created_at, None),
                    listing.payloads,
                )
            });
            kept.filter(fits).collect()
        }
        scope => {
            let rows =
                tables.rows.iter().filter(|(_, row)| scope != ListScope::Dead || row.status == Status::Dead);
            let rows = rows.map(|(seq, row)| {
                let cursor = ListCursor { seq, ..ListCursor::default() };
                let status = status_of(row, now);
                let died_at = (row.status == Status::Dead).then_some(row.available_at);
                let times = (row.created_at, died_at);
                listed(cursor, &row.content, status, row.attempts, times, listing.payloads)
            });
            rows.filter(fits).collect()
        }
    };
    found.sort_by(|a, b| a.cursor.cmp(&b.cursor));
    match listing.from {
        ListFrom::After(_) => found.truncate(listing.limit),
        _ => drop(found.drain(..found.len().saturating_sub(listing.limit))),
    }
    found
}

fn listed(
    cursor: ListCursor,
    content: &Result<Event, Box<Undecodable>>,
    status: EventStatus,
    attempts: u32,
    (created_at, died_at): (Timestamp, Option<Timestamp>),
    payloads: bool,
) -> ListedEvent {
    ListedEvent {
        cursor,
        id: id_of(content).clone(),
        event_type: type_of(content).to_owned(),
        aggregate_type: aggregate_type_of(content).to_owned(),
        key: key_of(content).map(|key| key.to_string()),
        status,
        attempts,
        created_at,
        died_at,
        payload: content.as_ref().ok().filter(|_| payloads).map(|event| event.payload().clone()),
    }
}

pub(super) fn count_by_type(tables: &Tables, types: usize) -> Vec<TypeCount> {
    let mut counts = BTreeMap::<&str, TypeCount>::new();
    for (_, row) in tables.rows.iter() {
        let event_type = row.event_type();
        let count = counts.entry(event_type).or_insert_with(|| TypeCount {
            event_type: event_type.to_owned(),
            pending: 0,
            dead: 0,
        });
        match row.status {
            Status::Dead => count.dead += 1,
            _ => count.pending += 1,
        }
    }
    let mut counts: Vec<TypeCount> = counts.into_values().collect();
    // A stable sort: those with the same count stay in the order of their names.
    counts.sort_by_key(|count| std::cmp::Reverse(count.pending + count.dead));
    counts.truncate(types);
    counts
}
