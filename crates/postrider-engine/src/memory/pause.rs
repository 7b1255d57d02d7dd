//! What an operator has told to wait.

use postrider_core::{
    Timestamp,
    event::limits::clean_error,
    store::{PAUSES_MAX, Pause, Paused, Subject},
};

use super::tables::Tables;

/// Pauses a subject; none if there are too many pauses.
pub(super) fn pause(tables: &mut Tables, subject: &Subject, reason: &str, now: Timestamp) -> Option<Paused> {
    let new = !tables.pauses.contains_key(subject);
    if new && tables.pauses.len() >= PAUSES_MAX {
        return None;
    }
    let entry = tables.pauses.entry(subject.clone());
    let kept = entry.or_insert_with(|| (now, clean_error(reason)));
    Some(Paused { pause: of(subject, kept), new })
}

/// Takes a pause away.
pub(super) fn resume(tables: &mut Tables, subject: &Subject) -> Option<Pause> {
    tables.pauses.remove(subject).map(|kept| of(subject, &kept))
}

/// All that is paused.
pub(super) fn pauses(tables: &Tables) -> Vec<Pause> {
    let mut pauses: Vec<Pause> = tables.pauses.iter().map(|(subject, kept)| of(subject, kept)).collect();
    pauses.sort_by_key(|pause| pause.since);
    pauses
}

fn of(subject: &Subject, (since, reason): &(Timestamp, String)) -> Pause {
    Pause { subject: subject.clone(), since: *since, reason: reason.clone() }
}
