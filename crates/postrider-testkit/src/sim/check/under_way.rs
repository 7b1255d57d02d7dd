//! What is under way at the same time.

use std::collections::BTreeMap;

use super::written;
use crate::sim::{
    history::{Call, Entry, Happening, Name},
    receiver::To,
    scenario::Scenario,
};

/// At most one event of a key is under way in one engine at a time, from call to end; a batch is under way together. A batch has two
/// events of a key only for a receiver that keeps their order, and then in order. Of what was under way when the database went back in time
/// nothing is known to those who take their lanes anew.
pub(super) fn one_at_a_time(
    entries: &[Entry],
    scenario: &Scenario,
    keeps_order: impl Fn(To) -> bool,
    broken: &mut Vec<String>,
) {
    let written = written(entries, scenario);
    let mut under_way: BTreeMap<(&Name, &str), Call> = BTreeMap::new();
    let mut went_back = false;
    for entry in entries {
        match &entry.what {
            Happening::Called { id, by, to, call, .. } => {
                let Some(key) = written.get(id).and_then(|written| written.key) else { continue };
                match under_way.insert((by, key), *call) {
                    None => {}
                    Some(other) if other == *call && keeps_order(*to) => {}
                    Some(other) if other == *call => {
                        broken.push(format!("one batch: {id} is in it with another of its key"));
                    }
                    Some(_) => broken
                        .push(format!("one at a time: {id} was sent while another of its key was under way")),
                }
            }
            Happening::Ended { call, .. } => under_way.retain(|_, other| other != call),
            Happening::WentBack => went_back = true,
            Happening::Leased { by, .. } if went_back => under_way.retain(|(name, _), _| *name != by),
            _ => {}
        }
    }
}
