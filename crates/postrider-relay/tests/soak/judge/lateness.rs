//! An event whose way is clear arrives within a minute.

use std::collections::HashMap;

use super::{Case, Promise, Verdict, numbered, seconds, spans::Spans};
use crate::{
    ledger::{NEVER, TxOutcome},
    time::{Micros, SECOND},
};

/// From the commit, or from the end of what stood in its way.
const PROMISED: Micros = 60 * SECOND;

pub(super) fn judge(case: &Case<'_>, verdict: &mut Verdict) {
    let spans = Spans::of(case.incidents, case.seats);
    let mut key_free_at: HashMap<u32, Micros> = HashMap::new();
    let committed = numbered(case.book).filter(|(_, event)| event.outcome == TxOutcome::Committed);
    for (number, event) in committed {
        let free_at = key_free_at.get(&event.key).copied().filter(|_| event.key != 0).unwrap_or(0);
        let released_at = event.released.map_or(0, |(_, at)| at);
        if let Some(first) = event.first {
            // One that was dead has its time from when it was redriven.
            let released_at = if released_at < first.at { released_at } else { 0 };
            let since = event.committed_at.max(free_at).max(released_at);
            let lag = first.at.saturating_sub(since);
            if spans.is_clear(number, event, (since.saturating_sub(PROMISED), first.at)) {
                verdict.clear_lags.push(lag);
            }
            if lag > PROMISED {
                let clear = spans.clear_from(number, event, since, PROMISED);
                if first.at <= clear.saturating_add(PROMISED) {
                    verdict.late_for_a_reason += 1;
                } else {
                    let what = format!(
                        "e{number} came at {}, and its way was clear from {} on (committed at {}, its key free at {}); {event:?}",
                        seconds(first.at),
                        seconds(clear),
                        seconds(event.committed_at),
                        seconds(free_at)
                    );
                    verdict.wrong(Promise::Late, what);
                }
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
    verdict.clear_lags.sort_unstable();
}
