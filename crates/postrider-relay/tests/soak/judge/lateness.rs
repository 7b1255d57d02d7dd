//! An event whose way is clear arrives within a minute.

use std::collections::HashMap;

use super::{Case, Promise, Verdict, numbered, seconds};
use crate::{
    incidents::Scope,
    ledger::{Event, NEVER, Number, TxOutcome},
    time::{Micros, SECOND},
};

/// From the commit, or from the end of what stood in its way.
const PROMISED: Micros = 60 * SECOND;

/// From when to when something was wrong.
type Span = (Micros, Micros);

pub(super) fn judge(case: &Case<'_>, verdict: &mut Verdict) {
    let nobody = nobody_delivers(case);
    let mut key_free_at: HashMap<u32, Micros> = HashMap::new();
    let committed = numbered(case.book).filter(|(_, event)| event.outcome == TxOutcome::Committed);
    for (number, event) in committed {
        let free_at = key_free_at.get(&event.key).copied().filter(|_| event.key != 0).unwrap_or(0);
        let released_at = event.released.map_or(0, |(_, at)| at);
        let mut since = event.committed_at.max(free_at);
        if let Some(first) = event.first {
            // One that was dead has its time from when it was redriven.
            since = if released_at < first.at { since.max(released_at) } else { since };
            if first.at > since.saturating_add(PROMISED) {
                judge_one(case, &nobody, (number, event), (since, first.at), verdict);
            }
        }
        let over = match (event.last, event.dead_at) {
            (Some(last), _) => last.at,
            (None, NEVER) => continue,
            (None, dead_at) if event.kind.skips_dead() => dead_at,
            (None, _) => released_at,
        };
        let free_at = key_free_at.entry(event.key).or_default();
        *free_at = over.max(*free_at);
    }
}

/// Waits for a minute in which nothing concerns the event.
fn judge_one(
    case: &Case<'_>,
    nobody: &[Span],
    (number, event): (Number, &Event),
    (since, arrived): Span,
    verdict: &mut Verdict,
) {
    let concerns = |scope: &Scope| match scope {
        Scope::All => true,
        Scope::Destination(destination) => *destination == event.destination,
        Scope::Kind(kind) => *kind == event.kind,
        Scope::Lane(lane) => *lane == event.lane,
        Scope::Key(key) => *key == event.key,
        Scope::Event(concerned) => *concerned == number,
        Scope::Relay { .. } => false,
    };
    let concerning = case.incidents.iter().filter(|incident| incident.scopes.iter().any(concerns));
    let mut spans: Vec<Span> = concerning.map(|incident| (incident.from, incident.to)).collect();
    spans.extend(nobody);
    spans.sort_unstable();
    let mut clear = since;
    for (from, to) in spans {
        if from <= clear.saturating_add(PROMISED) && to > clear {
            clear = to;
        }
    }
    if arrived <= clear.saturating_add(PROMISED) {
        verdict.late_for_a_reason += 1;
        return;
    }
    let what = format!(
        "e{number} came at {}, and its way was clear from {} on (committed at {}, key free at {}); {event:?}",
        seconds(arrived),
        seconds(clear),
        seconds(event.committed_at),
        seconds(since)
    );
    verdict.wrong(Promise::Late, what);
}

/// When all relays were hurt at once.
fn nobody_delivers(case: &Case<'_>) -> Vec<Span> {
    let mut edges: Vec<(Micros, bool, u8)> = Vec::new();
    for incident in case.incidents {
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
        let all = hurt.values().filter(|count| **count > 0).count() >= case.seats;
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
