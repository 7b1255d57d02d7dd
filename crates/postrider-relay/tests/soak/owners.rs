//! Who held which lane when: an event waits for the lease of an owner that is gone, and that is nobody's fault but the fault's.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use crate::{
    Failure,
    incidents::{Incident, Scope},
    ledger::RelayId,
    stage::Stage,
    time::{Micros, SECOND, pass},
};

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// So long after an owner is hurt somebody else has its lanes, at the latest: a lease, and what it takes to notice.
const TAKEN_OVER_WITHIN: Micros = 20 * SECOND;

const OWNERS: &str = "SELECT lane::int4, owner FROM postrider_lane ORDER BY lane";

/// A lane has another owner from then on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) at: Micros,
    pub(crate) lane: u8,
    pub(crate) owner: Option<RelayId>,
}

/// All changes of a run, in order.
#[derive(Debug, Default)]
pub(crate) struct Owners(Mutex<Vec<Change>>);

impl Owners {
    fn note(&self, change: Change) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }

    pub(crate) fn all(&self) -> Vec<Change> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Looks until it is told to stop.
pub(crate) async fn watch(stage: Arc<Stage>, stop: CancellationToken) {
    let mut known = BTreeMap::new();
    while !stop.is_cancelled() {
        if let Err(error) = look(&stage, &mut known).await {
            let shared = &stage.shared;
            shared.history.note(shared.clock.now(), format_args!("owners: {error}"));
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = pass(LOOK_EVERY) => {}
        }
    }
}

async fn look(stage: &Stage, known: &mut BTreeMap<u8, Option<String>>) -> Result<(), Failure> {
    let shared = &stage.shared;
    let rows: Vec<(i32, Option<String>)> = sqlx::query_as(OWNERS).fetch_all(&stage.database.pool).await?;
    let (at, roster) = (shared.clock.now(), shared.roster.all());
    for (lane, owner) in rows {
        let lane = u8::try_from(lane)?;
        if known.get(&lane) == Some(&owner) {
            continue;
        }
        let number = roster.iter().position(|entry| Some(&entry.name) == owner.as_ref());
        shared.owners.note(Change { at, lane, owner: number.map(RelayId::try_from).transpose()? });
        known.insert(lane, owner);
    }
    Ok(())
}

/// When lanes had an owner that could not deliver: from when it was hurt until it was well, or another one took over.
pub(crate) fn orphaned(incidents: &[Incident], changes: &[Change]) -> Vec<Incident> {
    let mut lanes: BTreeMap<u8, Vec<Change>> = BTreeMap::new();
    changes.iter().for_each(|change| lanes.entry(change.lane).or_default().push(*change));
    let mut orphaned = Vec::new();
    for incident in incidents {
        let hurt: Vec<RelayId> = incident.scopes.iter().filter_map(relay).collect();
        if hurt.is_empty() {
            continue;
        }
        for (lane, changes) in &lanes {
            let next = changes.partition_point(|change| change.at <= incident.from);
            let owner = next.checked_sub(1).and_then(|last| changes.get(last)?.owner);
            if !owner.is_some_and(|owner| hurt.contains(&owner)) {
                continue;
            }
            let latest = incident.to.max(incident.from.saturating_add(TAKEN_OVER_WITHIN));
            // A lane that was given up has no owner until somebody takes it.
            let mut later = changes.iter().skip(next).filter(|change| change.owner.is_some());
            let taken_over = later.next().map(|change| change.at).filter(|at| *at <= latest);
            orphaned.push(Incident {
                what: "the owner of the lane was gone",
                scopes: vec![Scope::Lane(*lane)],
                from: incident.from,
                to: taken_over.unwrap_or(incident.to),
            });
        }
    }
    orphaned
}

fn relay(scope: &Scope) -> Option<RelayId> {
    match scope {
        Scope::Relay { relay, .. } => Some(*relay),
        _ => None,
    }
}
