//! An event may come again only if something explains it.

use super::{Case, Conclusion, Promise, seconds};
use crate::{
    incidents::{Incident, Scope},
    ledger::{Again, Event},
    logs::Trouble,
    time::{Micros, SECOND},
    world::{ANSWER, BATCH, FEED},
};

/// What a process has under way when a fault ends may still arrive so much later.
const AFTERWARDS: Micros = 3 * SECOND;

pub(super) fn judge(case: &Case<'_>, conclusion: &mut Conclusion) {
    for again in &case.book.again {
        let Some(event) = case.book.event(again.number) else { continue };
        conclusion.duplicates += 1;
        if is_explained(case.incidents, event, again) {
            continue;
        }
        if is_of_slowness(case.troubles, again) {
            conclusion.of_slowness += 1;
            continue;
        }
        let what = format!(
            "e{} at {}: by {} at {}, and by {} at {}; {event:?}",
            again.number,
            event.destination.name(),
            again.before.by,
            seconds(again.before.at),
            again.now.by,
            seconds(again.now.at)
        );
        conclusion.wrong(Promise::Unexplained, what);
    }
}

/// A receiver did not acknowledge it, its relay was hurt, or the answer was lost on the way.
fn is_explained(incidents: &[Incident], event: &Event, again: &Again) -> bool {
    if !again.before.acknowledged || event.is_redriven() {
        return true;
    }
    let answer = u64::try_from(ANSWER.as_micros()).unwrap_or(Micros::MAX);
    incidents.iter().any(|incident| {
        let overlaps = |before: Micros| {
            incident.from <= again.now.at
                && incident.to.saturating_add(AFTERWARDS) >= again.before.at.saturating_sub(before)
        };
        incident.scopes.iter().any(|scope| match scope {
            Scope::All => overlaps(0),
            Scope::Relay { relay, .. } => [again.before.by, again.now.by].contains(relay) && overlaps(0),
            Scope::Lane(lane) => *lane == event.lane && overlaps(0),
            // Those two have a proxy before them, which loses answers.
            Scope::Destination(destination) => {
                *destination == event.destination && [BATCH, FEED].contains(destination) && overlaps(answer)
            }
            Scope::Kind(_) | Scope::Key(_) | Scope::Event(_) => false,
        })
    })
}

/// A relay that took part said in between that it lost lanes, or could not reach the database.
fn is_of_slowness(troubles: &[Trouble], again: &Again) -> bool {
    troubles.iter().any(|trouble| {
        [again.before.by, again.now.by].contains(&trouble.relay)
            && trouble.at + AFTERWARDS >= again.before.at
            && trouble.at <= again.now.at + AFTERWARDS
    })
}
