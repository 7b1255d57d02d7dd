//! When something stood in the way of an event, found without looking at every incident for every event.

use std::collections::HashMap;

use crate::{
    incidents::{Incident, Scope},
    ledger::{Event, NEVER, Number},
    time::Micros,
    world::{Destination, Kind},
};

/// From when to when something was wrong.
pub(super) type Span = (Micros, Micros);

/// Spans by what they concern; each list is in order, and nothing in it overlaps.
#[derive(Debug, Default)]
pub(super) struct Spans {
    all: Vec<Span>,
    destinations: HashMap<Destination, Vec<Span>>,
    kinds: HashMap<Kind, Vec<Span>>,
    lanes: HashMap<u8, Vec<Span>>,
    keys: HashMap<u32, Vec<Span>>,
    events: HashMap<Number, Vec<Span>>,
}

impl Spans {
    /// With `seats` relays: when all of them are hurt, that concerns everybody.
    pub(super) fn of(incidents: &[Incident], orphaned: &[Incident], seats: usize) -> Self {
        let mut spans = Self { all: nobody_delivers(incidents, seats), ..Self::default() };
        for incident in incidents.iter().chain(orphaned) {
            let span = (incident.from, incident.to);
            for scope in &incident.scopes {
                match *scope {
                    Scope::All => spans.all.push(span),
                    Scope::Destination(place) => spans.destinations.entry(place).or_default().push(span),
                    Scope::Kind(kind) => spans.kinds.entry(kind).or_default().push(span),
                    Scope::Lane(lane) => spans.lanes.entry(lane).or_default().push(span),
                    Scope::Key(key) => spans.keys.entry(key).or_default().push(span),
                    Scope::Event(number) => spans.events.entry(number).or_default().push(span),
                    Scope::Relay { .. } => {}
                }
            }
        }
        merge(&mut spans.all);
        spans.destinations.values_mut().for_each(merge);
        spans.kinds.values_mut().for_each(merge);
        spans.lanes.values_mut().for_each(merge);
        spans.keys.values_mut().for_each(merge);
        spans.events.values_mut().for_each(merge);
        spans
    }

    fn lists(&self, number: Number, event: &Event) -> [&[Span]; 6] {
        fn list<K: Eq + std::hash::Hash>(lists: &HashMap<K, Vec<Span>>, key: K) -> &[Span] {
            lists.get(&key).map_or(&[], Vec::as_slice)
        }
        [
            &self.all,
            list(&self.destinations, event.destination),
            list(&self.kinds, event.kind),
            list(&self.lanes, event.lane),
            list(&self.keys, event.key),
            list(&self.events, number),
        ]
    }

    /// Whether nothing stood in the way of an event in this time.
    pub(super) fn is_clear(&self, number: Number, event: &Event, (from, to): Span) -> bool {
        self.lists(number, event).into_iter().all(|list| {
            let first = list.partition_point(|span| span.1 < from);
            list.get(first).is_none_or(|span| span.0 > to)
        })
    }

    /// The first moment from `since` on after which nothing stands in the way for so long; at the latest when the event arrived.
    pub(super) fn clear_from(
        &self,
        number: Number,
        event: &Event,
        (since, arrived): Span,
        lasting: Micros,
    ) -> Micros {
        let lists = self.lists(number, event);
        let mut clear = since;
        while clear < arrived {
            let next = lists.iter().filter_map(|list| {
                let first = list.partition_point(|span| span.1 <= clear);
                list.get(first).filter(|span| span.0 <= clear.saturating_add(lasting))
            });
            match next.map(|span| span.1).min() {
                Some(end) => clear = end,
                None => return clear,
            }
        }
        clear.min(arrived.max(since))
    }
}

fn merge(spans: &mut Vec<Span>) {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans.drain(..) {
        match merged.last_mut() {
            Some(last) if span.0 <= last.1 => last.1 = last.1.max(span.1),
            _ => merged.push(span),
        }
    }
    *spans = merged;
}

/// When all relays were hurt at once.
fn nobody_delivers(incidents: &[Incident], seats: usize) -> Vec<Span> {
    let mut edges: Vec<(Micros, bool, u8)> = Vec::new();
    for incident in incidents {
        for scope in &incident.scopes {
            if let Scope::Relay { seat, .. } = scope {
                edges.push((incident.from, true, *seat));
                edges.push((incident.to, false, *seat));
            }
        }
    }
    edges.sort_unstable_by_key(|(at, begins, _)| (*at, !*begins));
    let (mut hurt, mut spans, mut since) = (HashMap::<u8, usize>::new(), Vec::new(), None);
    for (at, begins, seat) in edges {
        let count = hurt.entry(seat).or_default();
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        let all = hurt.values().filter(|count| **count > 0).count() >= seats;
        match (all, since) {
            (true, None) => since = Some(at),
            (false, Some(from)) => {
                spans.push((from, at));
                since = None;
            }
            _ => {}
        }
    }
    spans.extend(since.map(|from| (from, NEVER)));
    spans
}
