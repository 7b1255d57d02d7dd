//! What is under way at the same time.

use std::collections::BTreeMap;

use super::written;
use crate::sim::history::{Call, Entry, Happening, Name};

/// At most one event of a key is under way in one engine at a time, from call to end; a batch is under way together. All sinks here
/// are independent, so no batch has two events of a key.
pub(super) fn one_at_a_time(entries: &[Entry], broken: &mut Vec<String>) {
    let written = written(entries);
    let mut under_way: BTreeMap<(&Name, &str), Call> = BTreeMap::new();
    for entry in entries {
        match &entry.what {
            Happening::Called { id, by, call, .. } => {
                let Some(key) = written.get(id).and_then(|written| written.key) else { continue };
                match under_way.insert((by, key), *call) {
                    None => {}
                    Some(other) if other == *call => {
                        broken.push(format!("one batch: {id} is in it with another of its key"));
                    }
                    Some(_) => broken
                        .push(format!("one at a time: {id} was sent while another of its key was under way")),
                }
            }
            Happening::Ended { call, .. } => under_way.retain(|_, other| other != call),
            _ => {}
        }
    }
}
