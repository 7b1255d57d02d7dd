//! What a claim writes down: followers are parked, delayed events wait, and keys that nothing is left of are free.

use std::collections::HashSet;

use postrider_core::{
    store::{Claimed, Lane, Lease, Seq},
    tx::Prefix,
};
use sqlx::{Connection, MySqlConnection};

use super::{
    super::{
        hold::{self, Key},
        lease,
        statement::{LIST_MAX, Listed, filled, natural, set},
    },
    scan::{Met, Verdict},
};

/// The statements of this file. Each asks again for what was read before, because it may be over by now.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) followers: Listed,
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
            park: listed("UPDATE {p}event FORCE INDEX (PRIMARY) SET parked = 1 WHERE seq IN ({list}) AND FIND_IN_SET(lane, ?)"),
            unpark: listed(
                "UPDATE {p}event FORCE INDEX (PRIMARY) SET parked = 0 WHERE seq IN ({list}) AND FIND_IN_SET(lane, ?) AND parked = 1",
            ),
            turn: listed(
                "UPDATE {p}event FORCE INDEX (PRIMARY) SET status = 2
                 WHERE seq IN ({list}) AND FIND_IN_SET(lane, ?) AND status = 0 AND parked = 0",
            ),
        }
    }
}

/// What a claim found to be written.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) followers: Vec<(Lane, Seq)>,
    pub(super) delayed: Vec<(Lane, Seq)>,
    /// Parked rows of keys that are free again, and that are not wanted.
    pub(super) unwanted: Vec<(Lane, Seq)>,
    /// Keys that nothing is parked behind.
    pub(super) empty: Vec<Key>,
}

impl Findings {
    pub(super) fn add(&mut self, met: &Met) {
        let place = (met.row.lane, met.row.seq);
        match met.verdict {
            Verdict::Park { .. } => self.followers.push(place),
            Verdict::Turn => self.delayed.push(place),
            Verdict::Return { .. } | Verdict::Pass | Verdict::PassOver => {}
        }
    }

    /// The lanes that are written to.
    fn lanes(&self) -> HashSet<Lane> {
        let rows = [&self.followers, &self.delayed, &self.unwanted].into_iter().flatten();
        rows.map(|(lane, _)| *lane).chain(self.empty.iter().map(|key| key.lane)).collect()
    }
}

/// What the writing works with.
pub(super) struct Writer<'a> {
    pub(super) sql: &'a Statements,
    pub(super) lease: &'a lease::Statements,
    pub(super) hold: &'a hold::Statements,
}

impl Writer<'_> {
    /// Writes what was found, if anything was, in one transaction and only for lanes that are still held.
    pub(super) async fn write(
        &self,
        conn: &mut MySqlConnection,
        findings: &Findings,
        leases: impl Iterator<Item = Lease>,
        claimed: &mut Claimed,
    ) -> sqlx::Result<()> {
        let concerned = findings.lanes();
        if concerned.is_empty() {
            return Ok(());
        }
        let leases = lease::in_order(leases.filter(|lease| concerned.contains(&lease.lane)));
        let mut tx = conn.begin().await?;
        let lost = lease::fence(self.lease, &mut tx, &leases).await?.lost;
        let is_held = |lane: &Lane| !lost.contains(lane);
        let lanes = set(concerned.iter().copied().filter(is_held));
        let seqs = |rows: &[(Lane, Seq)]| -> Vec<Seq> {
            rows.iter().filter(|(lane, _)| is_held(lane)).map(|(_, seq)| *seq).collect()
        };
        self.park(&mut tx, findings, &seqs(&findings.followers), &lanes, claimed).await?;
        self.change(&self.sql.turn, &mut tx, &seqs(&findings.delayed), &lanes).await?;
        self.change(&self.sql.unpark, &mut tx, &seqs(&findings.unwanted), &lanes).await?;
        // After the parking, which may just have put somebody behind one of them.
        let empty: Vec<Key> = findings.empty.iter().filter(|key| is_held(&key.lane)).cloned().collect();
        hold::remove_empty(self.hold, &mut tx, &empty).await?;
        tx.commit().await?;
        claimed.lost.extend(lost);
        Ok(())
    }

    async fn park(
        &self,
        conn: &mut MySqlConnection,
        findings: &Findings,
        seqs: &[Seq],
        lanes: &str,
        claimed: &mut Claimed,
    ) -> sqlx::Result<()> {
        let mut parked = HashSet::new();
        for seqs in seqs.chunks(LIST_MAX) {
            let query = filled(seqs).fold(self.sql.followers.query(seqs.len()), |query, seq| query.bind(seq));
            for row in query.bind(lanes.to_owned()).fetch_all(&mut *conn).await? {
                parked.insert(natural::<Seq>(&row, "seq")?);
            }
        }
        let followers: Vec<Seq> = parked.iter().copied().collect();
        self.change(&self.sql.park, conn, &followers, lanes).await?;
        // The key of the others was freed in between, so they are due; but they were met, and nobody would look at them again.
        let asked: HashSet<Seq> = seqs.iter().copied().collect();
        let missed =
            findings.followers.iter().filter(|(_, seq)| asked.contains(seq) && !parked.contains(seq));
        let known = claimed.again.len();
        claimed.again.extend(missed);
        claimed.more |= claimed.again.len() > known;
        Ok(())
    }

    async fn change(
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
