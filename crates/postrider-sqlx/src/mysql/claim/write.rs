//! What a claim writes down: followers are parked, delayed events wait, and keys that nothing is left of are free.
//!
//! Nobody else's lock stops a claim: what another session has locked is left as it is, and the claim names it to be met again.

use std::collections::{HashMap, HashSet};

use postrider_core::{
    select::{Selection, WriteBack},
    store::{Claimed, Lane, Lease, Seq},
    tx::Prefix,
};
use sqlx::{Connection, MySqlConnection};

use super::{
    super::{
        error,
        hold::{self, Key},
        lease::{self, Fence},
        statement::{LIST_MAX, Listed, filled, natural, set},
    },
    scan::Row,
};
use crate::connections::{LockedLanes, renewal::Locked};

/// The statements of this file. Each asks again for what was read before, because it may be over by now.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) followers: Listed,
    pub(in super::super) lock: Listed,
    pub(in super::super) park: Listed,
    pub(in super::super) unpark: Listed,
    pub(in super::super) turn: Listed,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let listed = |template: &str| Listed::of_values(template, prefix);
        Self {
            followers: listed(
                "SELECT e.seq FROM {p}event AS e FORCE INDEX (PRIMARY) JOIN {p}hold AS h FORCE INDEX (PRIMARY) ON h.lane = e.lane AND h.effective_key = e.effective_key
                 WHERE e.seq IN ({list}) AND FIND_IN_SET(e.lane, ?) AND e.status IN (0, 2) AND e.parked = 0
                   AND h.seq <> e.seq",
            ),
            lock: listed(
                "SELECT seq FROM {p}event FORCE INDEX (PRIMARY) WHERE seq IN ({list}) AND FIND_IN_SET(lane, ?) FOR UPDATE SKIP LOCKED",
            ),
            park: listed("UPDATE {p}event FORCE INDEX (PRIMARY) SET parked = 1, touched = 1 WHERE seq IN ({list}) AND FIND_IN_SET(lane, ?)"),
            unpark: listed(
                "UPDATE {p}event FORCE INDEX (PRIMARY) SET parked = 0 WHERE seq IN ({list}) AND FIND_IN_SET(lane, ?) AND parked = 1",
            ),
            turn: listed(
                "UPDATE {p}event FORCE INDEX (PRIMARY) SET status = 2, touched = 1
                 WHERE seq IN ({list}) AND FIND_IN_SET(lane, ?) AND status = 0 AND parked = 0",
            ),
        }
    }
}

/// What a claim has to write, with the keys of what is unparked.
#[derive(Debug)]
pub(super) struct Writes {
    back: WriteBack<Key>,
    unpark: Vec<(Key, Seq)>,
}

impl Writes {
    pub(super) fn of(selection: &mut Selection<Row, Key>) -> Self {
        let key = |row: &Row| Some((Key { lane: row.lane, key: row.key.clone()? }, row.seq));
        let unpark = selection.unwanted().filter_map(key).collect();
        Self { back: selection.write_back(), unpark }
    }
}

/// What became of it.
#[derive(Debug, Default)]
struct Written {
    /// Lanes that turned out to be somebody else's.
    lost: Vec<Lane>,
    /// Lanes that another session has locked.
    locked_lanes: Vec<Lane>,
    /// Followers whose key was freed in between, so that they are due; but they were met, and nobody would look at them again.
    missed: Vec<(Lane, Seq)>,
    /// Followers and delayed events that another session has locked.
    locked: Vec<(Lane, Seq)>,
}

/// What the writing works with.
pub(super) struct Writer<'a> {
    pub(super) sql: &'a Statements,
    pub(super) lease: &'a lease::Statements,
    pub(super) hold: &'a hold::Statements,
    pub(super) locked_lanes: &'a LockedLanes,
}

impl Writer<'_> {
    /// Writes it, if there is anything. Lanes are waited for, since it is mostly a settle of ours that has them, but not for long: a
    /// lane that another session keeps locked is gone around.
    pub(super) async fn write(
        &self,
        conn: &mut MySqlConnection,
        writes: &Writes,
        leases: impl Iterator<Item = Lease>,
        claimed: &mut Claimed,
    ) -> sqlx::Result<()> {
        let concerned = writes.back.lanes();
        if concerned.is_empty() {
            return Ok(());
        }
        let leases = lease::in_order(leases.filter(|lease| concerned.contains(&lease.lane)));
        let straight = match self.locked_lanes.are_likely() {
            true => None,
            false => unless_locked(self.write_in(conn, writes, &leases, Locked::Wait).await)?,
        };
        let written = match straight {
            Some(written) => written,
            None => {
                let written = unless_locked(self.write_in(conn, writes, &leases, Locked::Skip).await)?;
                let nothing = || Written { locked: writes.back.to_recheck().collect(), ..Written::default() };
                written.unwrap_or_else(nothing)
            }
        };
        self.locked_lanes.note(&written.locked_lanes);
        claimed.more |= !written.missed.is_empty();
        claimed.again.extend(written.missed.into_iter().chain(written.locked));
        claimed.lost.extend(written.lost);
        Ok(())
    }

    /// Writes it in one transaction, and only for lanes that are still held.
    async fn write_in(
        &self,
        conn: &mut MySqlConnection,
        writes: &Writes,
        leases: &[Lease],
        locked: Locked,
    ) -> sqlx::Result<Written> {
        let mut tx = conn.begin().await?;
        let Fence { lost, locked: locked_lanes, .. } = match locked {
            Locked::Wait => lease::fence(self.lease, &mut tx, leases).await?,
            Locked::Skip => lease::fence_around(self.lease, &mut tx, leases).await?,
        };
        let is_held = |lane: Lane| !lost.contains(&lane) && !locked_lanes.contains(&lane);
        let lanes = set(leases.iter().map(|lease| lease.lane).filter(|lane| is_held(*lane)));
        let rows = |rows: &[(Lane, Seq)]| -> Vec<(Lane, Seq)> {
            rows.iter().copied().filter(|(lane, _)| is_held(*lane)).collect()
        };
        let left = writes.back.to_recheck().filter(|(lane, _)| locked_lanes.contains(lane)).collect();
        let mut written = Written { locked: left, ..Written::default() };
        self.park(&mut tx, rows(&writes.back.park), &lanes, &mut written).await?;
        self.change(&self.sql.turn, &mut tx, rows(&writes.back.delay), &lanes, &mut written).await?;
        let unwanted: Vec<&(Key, Seq)> = writes.unpark.iter().filter(|(key, _)| is_held(key.lane)).collect();
        self.unpark(&mut tx, &unwanted, &lanes).await?;
        // After the parking, which may just have put somebody behind one of them.
        let empty = writes.back.free.iter().map(|(_, key)| key).filter(|key| is_held(key.lane));
        let empty: Vec<Key> = empty.cloned().collect();
        hold::remove_empty(self.hold, &mut tx, &empty).await?;
        tx.commit().await?;
        Ok(Written { lost, locked_lanes, ..written })
    }

    async fn park(
        &self,
        conn: &mut MySqlConnection,
        rows: Vec<(Lane, Seq)>,
        lanes: &str,
        written: &mut Written,
    ) -> sqlx::Result<()> {
        let followers = self.choose(&self.sql.followers, conn, &seqs_of(&rows), lanes).await?;
        let (followers, missed): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(_, seq)| followers.contains(seq));
        written.missed = missed;
        self.change(&self.sql.park, conn, followers, lanes, written).await
    }

    /// Unparks rows. Behind one that is locked the later ones of its key stay parked too: unparked, they would be read before it.
    async fn unpark(
        &self,
        conn: &mut MySqlConnection,
        rows: &[&(Key, Seq)],
        lanes: &str,
    ) -> sqlx::Result<()> {
        let seqs: Vec<Seq> = rows.iter().map(|(_, seq)| *seq).collect();
        let unlocked = self.choose(&self.sql.lock, conn, &seqs, lanes).await?;
        let mut first_locked: HashMap<&Key, Seq> = HashMap::new();
        for (key, seq) in rows.iter().filter(|(_, seq)| !unlocked.contains(seq)) {
            let first = first_locked.entry(key).or_insert(*seq);
            *first = (*first).min(*seq);
        }
        let is_before = |(key, seq): &&&(Key, Seq)| first_locked.get(key).is_none_or(|first| seq < first);
        let seqs: Vec<Seq> = rows.iter().filter(is_before).map(|(_, seq)| *seq).collect();
        self.update(&self.sql.unpark, conn, &seqs, lanes).await
    }

    /// Changes rows, but for those that another session has locked.
    async fn change(
        &self,
        statement: &Listed,
        conn: &mut MySqlConnection,
        rows: Vec<(Lane, Seq)>,
        lanes: &str,
        written: &mut Written,
    ) -> sqlx::Result<()> {
        let unlocked = self.choose(&self.sql.lock, conn, &seqs_of(&rows), lanes).await?;
        let (unlocked, locked): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|(_, seq)| unlocked.contains(seq));
        written.locked.extend(locked);
        self.update(statement, conn, &seqs_of(&unlocked), lanes).await
    }

    /// Those of these rows that a statement answers with.
    async fn choose(
        &self,
        statement: &Listed,
        conn: &mut MySqlConnection,
        seqs: &[Seq],
        lanes: &str,
    ) -> sqlx::Result<HashSet<Seq>> {
        let mut chosen = HashSet::with_capacity(seqs.len());
        for seqs in seqs.chunks(LIST_MAX) {
            let query = filled(seqs).fold(statement.query(seqs.len()), |query, seq| query.bind(seq));
            for row in query.bind(lanes.to_owned()).fetch_all(&mut *conn).await? {
                chosen.insert(natural::<Seq>(&row, "seq")?);
            }
        }
        Ok(chosen)
    }

    async fn update(
        &self,
        statement: &Listed,
        conn: &mut MySqlConnection,
        seqs: &[Seq],
        lanes: &str,
    ) -> sqlx::Result<()> {
        for seqs in seqs.chunks(LIST_MAX) {
            let query = filled(seqs).fold(statement.query(seqs.len()), |query, seq| query.bind(seq));
            query.bind(lanes.to_owned()).execute(&mut *conn).await?;
        }
        Ok(())
    }
}

fn seqs_of(rows: &[(Lane, Seq)]) -> Vec<Seq> {
    rows.iter().map(|(_, seq)| *seq).collect()
}

/// None where another session had a lock for longer than it was to be waited for.
fn unless_locked(written: sqlx::Result<Written>) -> sqlx::Result<Option<Written>> {
    match written {
        Err(error) if error::is_locked(&error) => Ok(None),
        written => written.map(Some),
    }
}
