//! The careful way through one lane: by turns from each kind of rows, asking whether they are wanted.

use std::collections::{BTreeMap, HashMap, VecDeque};

use postrider_core::store::{Claim, Claimed, LaneClaim, Position, Seq};
use sqlx::SqliteConnection;

use super::{
    glance,
    state::State,
    walk::{self, Due, Returning, Road, Walk},
    write::Findings,
};
use crate::choose::{Budget, Kind, Turns};

/// Walks over one lane and chooses; notes in `claimed` where the next claim begins. Says which events were chosen, and whether their
/// keys are held.
pub(super) async fn look(
    sql: &glance::Statements,
    conn: &mut SqliteConnection,
    claim: &Claim,
    lane: &LaneClaim,
    state: State,
    budget: &mut Budget,
    claimed: &mut Claimed,
) -> sqlx::Result<(BTreeMap<Seq, bool>, Findings)> {
    let now = claimed.now;
    let mut findings = Findings::new(lane.lease);
    let returned = match state.returning {
        true => sql.returning(conn, lane.lease.lane).await?,
        false => Vec::new(),
    };
    let walks = lane.to < Seq::MAX;
    let road = Road {
        sql,
        lane: lane.lease.lane,
        now,
        in_flight: &claim.in_flight,
        again: lane.again.iter().copied().collect(),
        limit: budget.events(),
        fronts: if walks { walk::fronts(&returned, &claim.in_flight) } else { HashMap::new() },
    };

    let again = walk::again(&road, conn, &lane.again, &mut findings).await?;
    let Returning { due: mut returning, mut more } =
        walk::returning(&road, returned, lane.from.met, &mut findings);
    // What is about to be parked behind a key that comes back may be the first of what does: the next claim sees it.
    if findings.follows_returning {
        more |= !returning.is_empty();
        returning.clear();
    }
    let mut walks = Walks {
        fresh: Walk::over_fresh(again, lane),
        waiting: match state.waiting(now) {
            true => Walk::over_waiting(lane.from, now),
            false => Walk::over(VecDeque::new()),
        },
        returning: Walk::over(returning),
    };
    let mut choice = Choice { road: &road, claim, budget, findings, chosen: BTreeMap::new() };
    choice.choose(conn, &mut walks).await?;
    let Choice { findings, chosen, .. } = choice;
    let Walks { fresh, waiting, returning } = walks;

    claimed.again.extend(fresh.ready.iter().map(|due| (road.lane, due.row.seq)));
    let position = due_cursor(&waiting, lane.from, claim.admission.is_some());
    claimed.positions.push((road.lane, fresh_position(&fresh, lane, position)));
    // What is parked behind a key that is free already is due as soon as it is parked.
    claimed.more |= more || findings.follows_returning;
    claimed.more |= fresh.stopped || waiting.stopped || returning.stopped;
    let next_due = findings.next_due.into_iter().chain(state.next_due).min();
    let until = next_due.map(|due| due.since(now));
    claimed.next_due = claimed.next_due.into_iter().chain(until).min();
    Ok((chosen, findings))
}

struct Walks {
    fresh: Walk,
    waiting: Walk,
    returning: Walk,
}

impl Walks {
    fn of(&mut self, kind: Kind) -> &mut Walk {
        match kind {
            Kind::Fresh => &mut self.fresh,
            Kind::Waiting => &mut self.waiting,
            Kind::Returning => &mut self.returning,
        }
    }
}

/// A choice under way.
struct Choice<'a> {
    road: &'a Road<'a>,
    claim: &'a Claim,
    budget: &'a mut Budget,
    findings: Findings,
    chosen: BTreeMap<Seq, bool>,
}

impl Choice<'_> {
    /// Takes from the walks by turns until nothing fits or all are at their ends.
    async fn choose(&mut self, conn: &mut SqliteConnection, walks: &mut Walks) -> sqlx::Result<()> {
        let fresh = self.oldest(conn, &mut walks.fresh).await?;
        let waiting = self.oldest(conn, &mut walks.waiting).await?;
        let returning = self.oldest(conn, &mut walks.returning).await?;
        let mut turns = Turns::new(fresh < waiting.min(returning));
        'turns: loop {
            for kind in turns.order() {
                if self.take(conn, walks.of(kind), kind).await? {
                    turns.took(kind);
                    continue 'turns;
                }
            }
            return Ok(());
        }
    }

    async fn oldest(&mut self, conn: &mut SqliteConnection, walk: &mut Walk) -> sqlx::Result<Seq> {
        let next = walk.peek(self.road, conn, &mut self.findings, self.budget.events() == 0).await?;
        Ok(next.map_or(Seq::MAX, |due| due.row.seq))
    }

    /// Takes the next row of a walk that is wanted, if it fits. Only what fits is asked about.
    async fn take(&mut self, conn: &mut SqliteConnection, walk: &mut Walk, kind: Kind) -> sqlx::Result<bool> {
        loop {
            let full = self.budget.events() == 0;
            let Some(due) = walk.peek(self.road, conn, &mut self.findings, full).await? else {
                return Ok(false);
            };
            if !self.budget.fits(due.row.bytes) {
                walk.stop();
                return Ok(false);
            }
            let wanted = self.is_wanted(due);
            let Some(due) = walk.pop() else { return Ok(false) };
            if wanted {
                self.budget.take(due.row.bytes);
                self.chosen.insert(due.row.seq, due.held);
                return Ok(true);
            }
            self.findings.passed += 1;
            if kind == Kind::Returning {
                self.findings.refused.push(due.row.seq);
                self.findings.empty.push(due.hold);
            }
        }
    }

    fn is_wanted(&self, Due { row, .. }: &Due) -> bool {
        let admission = self.claim.admission.as_ref();
        admission.is_none_or(|admission| admission.admits(&row.glance(self.road.lane)))
    }
}

/// Where the next claim goes on among the fresh events.
fn fresh_position(fresh: &Walk, lane: &LaneClaim, position: Position) -> Position {
    let met = fresh.last.map_or(lane.from.seq, |(_, seq)| seq);
    if fresh.stopped {
        return Position { seq: met, met, ..position };
    }
    if lane.to < Seq::MAX {
        // Of what lies behind the end nothing is known.
        let seq = lane.from.seq.max(lane.to);
        return Position { seq, met: seq, ..position };
    }
    // What was parked by now was met on the way, so at the end everything was.
    Position { seq: met, met: Seq::MAX, ..position }
}

/// Where the next claim goes on among the waiting events: behind the last one met. At the end of what is due it goes back to the
/// start, unless rows may have been passed over.
fn due_cursor(waiting: &Walk, from: Position, passes_over: bool) -> Position {
    match waiting.last {
        _ if !waiting.stopped && !passes_over => Position::START,
        Some((due_at, due_seq)) => Position { due_at, due_seq, ..from },
        None => from,
    }
}
