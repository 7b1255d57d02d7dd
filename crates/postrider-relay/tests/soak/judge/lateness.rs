//! An event whose way is clear arrives within a minute.
//!
//! What stood in the way of an earlier event of its key stood in its way too. That an earlier event was late for no reason does not.

use std::collections::HashMap;

use super::{Case, Conclusion, Promise, numbered, seconds, spans::Spans};
use crate::{
    ledger::{NEVER, TxOutcome},
    time::{Micros, SECOND},
};

/// From the commit, or from the end of what stood in its way.
const PROMISED: Micros = 60 * SECOND;

/// What the events of a key so far mean for the next one.
#[derive(Debug, Clone, Copy, Default)]
struct Key {
    /// Something stood in the way of one of them until then.
    clear_at: Micros,
    /// The last of them was over then.
    over_at: Micros,
}

pub(super) fn judge(case: &Case<'_>, conclusion: &mut Conclusion) {
    let spans = Spans::of(case.incidents, case.orphaned, case.seats);
    let mut keys: HashMap<u32, Key> = HashMap::new();
    let committed = numbered(case.book).filter(|(_, event)| event.outcome == TxOutcome::Committed);
    for (number, event) in committed {
        let key = keys.get(&event.key).copied().filter(|_| event.key != 0).unwrap_or_default();
        let waits_behind = key.over_at > event.committed_at;
        let behind = if waits_behind { key.clear_at } else { 0 };
        let released_at = event.released.map_or(0, |(_, at)| at);
        let Some(first) = event.first else {
            let over_at = if event.kind.skips_dead() { event.dead_at } else { released_at };
            if event.key != 0 && event.dead_at != NEVER {
                let clear_at = key.clear_at.max(over_at);
                keys.insert(event.key, Key { clear_at, over_at: key.over_at.max(over_at) });
            }
            continue;
        };
        // One that was dead has its time from when it was redriven.
        let released_at = if released_at < first.at { released_at } else { 0 };
        let since = event.committed_at.max(behind).max(released_at);
        if spans.is_clear(number, event, (since.saturating_sub(PROMISED), first.at)) {
            conclusion.clear_lags.push(first.at.saturating_sub(since));
        }
        let clear_at = spans.clear_from(number, event, (since, first.at), PROMISED);
        if first.at > clear_at.saturating_add(PROMISED) {
            let what = format!(
                "e{number} came at {}, and its way was clear from {} on (committed at {}, others of its key until {}); {event:?}",
                seconds(first.at),
                seconds(clear_at),
                seconds(event.committed_at),
                seconds(key.over_at)
            );
            conclusion.wrong(Promise::Late, what);
        } else if first.at > event.committed_at.saturating_add(PROMISED) {
            conclusion.late_for_a_reason += 1;
        }
        if event.key != 0 {
            let over_at = event.last.map_or(first.at, |last| last.at).max(key.over_at);
            keys.insert(event.key, Key { clear_at: key.clear_at.max(clear_at), over_at });
        }
    }
    conclusion.clear_lags.sort_unstable();
}
