//! An engine is ready only as long as its verbs succeed.

use std::collections::BTreeMap;

use crate::sim::{
    history::{Entry, Happening, Name},
    readiness,
    scenario::Scenario,
    store_trouble::Verbs,
};

/// A call that was under way when the database began to refuse.
const SLACK_US: u64 = 1_000_000;

/// Longest pause before a verb that was refused is tried again.
const RETRY_US: u64 = 3_000_000;

/// An engine whose renewals, claims or settles are refused for longer than a lease says that it is not ready, and says that it is soon after they
/// succeed again.
pub(super) fn told(entries: &[Entry], scenario: &Scenario, broken: &mut Vec<String>) {
    let Some(refusing) = scenario.refusing else { return };
    let us = |time: std::time::Duration| time.as_micros() as u64;
    let wait = us(scenario.lease) + us(readiness::EVERY) + SLACK_US;
    let (from, to) = (us(refusing.from), us(refusing.to));
    let mut engines: BTreeMap<&Name, Engine> = BTreeMap::new();
    let mut over = false;
    for entry in entries {
        // Nobody asks any more after a while.
        over |= entry.at > to + wait + RETRY_US;
        match &entry.what {
            Happening::Ready { by, ready } => {
                let engine = engines.entry(by).or_default();
                engine.check(by, entry.at, (from, to), wait, refusing.verbs, broken);
                (engine.ready, engine.changed_at) = (*ready, entry.at);
            }
            Happening::Leased { by, .. } => {
                engines.entry(by).or_default().leased.get_or_insert(entry.at);
            }
            Happening::Answered { by, outcome: "delivered", .. } if (from..to).contains(&entry.at) => {
                engines.entry(by).or_default().delivered.get_or_insert(entry.at);
            }
            _ => {}
        }
        if over {
            break;
        }
    }
    for (by, engine) in &engines {
        engine.check(by, to, (from, to), wait, refusing.verbs, broken);
        if over && !engine.ready {
            broken.push(format!("ready: {by} is not, although the database works again"));
        }
    }
}

/// What is known of one engine.
#[derive(Default)]
struct Engine {
    ready: bool,
    changed_at: u64,
    /// When it took its first lane.
    leased: Option<u64>,
    /// When it had something to settle first that it could not.
    delivered: Option<u64>,
}

impl Engine {
    /// Until now it has said what it said.
    fn check(
        &self,
        by: &Name,
        now: u64,
        (from, to): (u64, u64),
        wait: u64,
        verbs: Verbs,
        broken: &mut Vec<String>,
    ) {
        // Who has no lane, or nothing to settle, does not notice.
        let since = match verbs {
            Verbs::Renewals => Some(from),
            Verbs::Claims => self.leased.map(|at| at.max(from)),
            Verbs::Settles => self.delivered,
        };
        let Some(since) = since.filter(|_| self.ready && self.changed_at < to) else { return };
        if now.min(to) > since + wait {
            broken.push(format!("ready: {by} says so, {verbs:?} are refused since {} ms", since / 1000));
        }
    }
}
