//! What a claim writes down: followers are parked, delayed events wait, and keys that nothing is left of are free.

use std::collections::{HashMap, HashSet};

use postrider_core::{
    select::{Selection, WriteBack},
    store::{Claimed, Lane, Lease, Seq},
    tx::Prefix,
};
use sqlx::{Connection, Row, SqliteConnection};

use super::{
    super::{
        lease,
        statement::{Statement, json, natural},
    },
    rows::Summary,
};

/// The statements of this file. Each asks again for what the snapshot said, because it may be over by now. The plus
/// before a lane keeps SQLite from walking the whole lane instead of the few rows that are named.
#[derive(Debug)]
pub(in super::super) struct Statements {
    pub(in super::super) park: Statement,
    pub(in super::super) turn: Statement,
    pub(in super::super) unpark: Statement,
    pub(in super::super) free: Statement,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let statement = |template| Statement::new(template, prefix);
        Self {
            park: statement(
                "UPDATE {p}event AS e SET parked = 1
                 WHERE e.seq IN (SELECT value FROM json_each(?1)) AND +e.lane = ?2
                   AND e.status IN (0, 2) AND e.parked = 0
                   AND EXISTS (SELECT 1 FROM {p}hold AS h
                               WHERE h.lane = e.lane AND h.effective_key = e.effective_key AND h.seq <> e.seq)
                 RETURNING seq",
            ),
            turn: statement(
                "UPDATE {p}event SET status = 2
                 WHERE seq IN (SELECT value FROM json_each(?1)) AND +lane = ?2 AND status = 0 AND parked = 0",
            ),
            unpark: statement(
                "UPDATE {p}event AS e SET parked = 0
                 WHERE e.seq IN (SELECT value FROM json_each(?1)) AND +e.lane = ?2 AND e.parked = 1
                   AND EXISTS (SELECT 1 FROM {p}hold AS h WHERE h.lane = e.lane
                               AND h.effective_key = e.effective_key AND h.reason = 'returning')",
            ),
            free: statement(
                "DELETE FROM {p}hold AS h
                 WHERE h.rowid IN (SELECT value FROM json_each(?1)) AND +h.lane = ?2 AND h.reason = 'returning'
                   AND NOT EXISTS (SELECT 1 FROM {p}event AS e WHERE e.lane = h.lane
                                   AND e.effective_key = h.effective_key AND e.parked = 1)",
            ),
        }
    }
}

/// What a claim has to write to one lane.
#[derive(Debug)]
pub(super) struct Writes {
    lease: Lease,
    /// Keys are named by the row ids of their holds.
    back: WriteBack<i64>,
}

impl Writes {
    pub(super) fn none(lease: Lease) -> Self {
        Self { lease, back: WriteBack::default() }
    }

    /// What a selection has to write, with the holds of freed keys by their heads.
    pub(super) fn of(
        lease: Lease,
        selection: &mut Selection<Summary, i64>,
        holds: &HashMap<Seq, i64>,
    ) -> Self {
        let mut back = selection.write_back();
        // With what was unparked the last row behind a key may be gone.
        let unwanted = selection.unwanted().filter_map(|row| row.facts.hold);
        back.free.extend(unwanted.filter_map(|hold| Some((lease.lane, *holds.get(&hold.head)?))));
        Self { lease, back }
    }

    pub(super) fn park(&mut self, seq: Seq) {
        self.back.park.push((self.lease.lane, seq));
    }

    pub(super) fn delay(&mut self, seq: Seq) {
        self.back.delay.push((self.lease.lane, seq));
    }

    fn is_empty(&self) -> bool {
        self.back.lanes().is_empty()
    }
}

/// Writes it, if there is anything, in one transaction and only for lanes that are still held.
pub(super) async fn write(
    sql: &Statements,
    leases: &lease::Statements,
    conn: &mut SqliteConnection,
    writes: &[Writes],
    claimed: &mut Claimed,
) -> sqlx::Result<()> {
    if writes.iter().all(Writes::is_empty) {
        return Ok(());
    }
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    let lost = lease::lost(leases, &mut tx, writes.iter().map(|of_lane| of_lane.lease)).await?;
    for of_lane in writes.iter().filter(|of_lane| !lost.contains(&of_lane.lease.lane)) {
        write_lane(sql, &mut tx, of_lane, claimed).await?;
    }
    tx.commit().await?;
    claimed.lost.extend(lost);
    Ok(())
}

async fn write_lane(
    sql: &Statements,
    conn: &mut SqliteConnection,
    Writes { lease, back }: &Writes,
    claimed: &mut Claimed,
) -> sqlx::Result<()> {
    let lane = lease.lane;
    let seqs = |rows: &[(Lane, Seq)]| json(&rows.iter().map(|(_, seq)| *seq).collect::<Vec<_>>());
    if !back.park.is_empty() {
        let park = sql.park.query().bind(seqs(&back.park)?).bind(lane);
        let rows = park.fetch_all(&mut *conn).await?;
        let parked: HashSet<Seq> =
            rows.iter().map(|row| row.try_get(0).map(natural)).collect::<sqlx::Result<_>>()?;
        // Their key was freed in between, so they are due; but they were met, and no later claim meets them again.
        let missed = back.park.iter().filter(|(_, seq)| !parked.contains(seq));
        let known = claimed.again.len();
        claimed.again.extend(missed);
        claimed.more |= claimed.again.len() > known;
    }
    if !back.delay.is_empty() {
        sql.turn.query().bind(seqs(&back.delay)?).bind(lane).execute(&mut *conn).await?;
    }
    if !back.unpark.is_empty() {
        sql.unpark.query().bind(seqs(&back.unpark)?).bind(lane).execute(&mut *conn).await?;
    }
    if !back.free.is_empty() {
        // Last: the parking may just have put a row behind one of them, and the unparking taken the last one away.
        let holds: Vec<i64> = back.free.iter().map(|(_, hold)| *hold).collect();
        sql.free.query().bind(json(&holds)?).bind(lane).execute(&mut *conn).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::{
        Store,
        rng::Rng,
        store::{LeaseRequest, Token},
    };

    use super::{super::super::SqliteStore, *};

    const ROWS: &str = "
        INSERT INTO postrider_event (seq, event_type, ordering_key, payload) VALUES
            (1, 'X', 'held', ''), (2, 'X', 'gone', ''), (3, 'X', 'filled', ''), (4, 'X', NULL, '');
        INSERT INTO postrider_hold (rowid, lane, effective_key, seq, reason) VALUES
            (1, 0, 'held', 9, 'retry'), (2, 0, 'filled', 9, 'returning'), (3, 0, 'empty', 9, 'returning'),
            (4, 0, 'again', 9, 'retry');";

    async fn leased() -> (SqliteStore, Lease) {
        let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
        store.migrate().await.unwrap();
        sqlx::raw_sql(ROWS).execute(store.pool()).await.unwrap();
        let request = LeaseRequest {
            owner: String::new(),
            ttl: Duration::from_secs(9),
            nonces: Rng::seeded(1),
            most: usize::MAX,
        };
        let lease = store.lease(&request).await.unwrap().leases()[0];
        (store, lease)
    }

    async fn written(store: &SqliteStore, lease: Lease) -> Claimed {
        let mut of_lane = Writes::none(lease);
        [1, 2, 3].into_iter().for_each(|seq| of_lane.park(seq));
        of_lane.delay(4);
        of_lane.back.free = vec![(0, 2), (0, 3), (0, 4)];
        let writes = [of_lane];
        let mut claimed = Claimed::default();
        let mut conn = store.pool().acquire().await.unwrap();
        write(&store.0.claim.write, &store.0.lease, &mut conn, &writes, &mut claimed).await.unwrap();
        claimed
    }

    async fn number(store: &SqliteStore, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap()
    }

    #[tokio::test]
    async fn a_follower_whose_key_was_freed_in_between_is_looked_at_again() {
        let (store, lease) = leased().await;
        let claimed = written(&store, lease).await;
        assert_eq!((claimed.again.as_slice(), claimed.more), ([(0, 2)].as_slice(), true));
        assert_eq!(number(&store, "SELECT sum(seq) FROM postrider_event WHERE parked = 1").await, 4);
        assert_eq!(number(&store, "SELECT seq FROM postrider_event WHERE status = 2").await, 4);
        // Only the hold that is still on its way out, with nothing behind it, is gone.
        let left = "SELECT count(*) FROM postrider_hold WHERE effective_key IN ('held', 'filled', 'again')";
        assert_eq!(number(&store, left).await, 3);
        assert_eq!(number(&store, "SELECT count(*) FROM postrider_hold").await, 3);
    }

    #[tokio::test]
    async fn a_row_that_is_not_wanted_stays_parked_if_its_key_was_held_anew_in_between() {
        let (store, lease) = leased().await;
        let parked = "INSERT INTO postrider_event (seq, event_type, ordering_key, payload)
                      VALUES (5, 'X', 'again', ''), (6, 'X', 'filled', '');
                      UPDATE postrider_event SET parked = 1 WHERE seq IN (5, 6)";
        sqlx::raw_sql(parked).execute(store.pool()).await.unwrap();
        let mut of_lane = Writes::none(lease);
        (of_lane.back.unpark, of_lane.back.free) = (vec![(0, 5), (0, 6)], vec![(0, 2), (0, 4)]);
        let mut conn = store.pool().acquire().await.unwrap();
        let (sql, leases) = (&store.0.claim.write, &store.0.lease);
        write(sql, leases, &mut conn, &[of_lane], &mut Claimed::default()).await.unwrap();
        drop(conn);
        assert_eq!(number(&store, "SELECT seq FROM postrider_event WHERE parked = 1").await, 5);
        // Nothing is left behind the key that came back, and it is free; the other waits for its new head.
        let left =
            "SELECT sum(effective_key = 'again') * 10 + sum(effective_key = 'filled') FROM postrider_hold";
        assert_eq!(number(&store, left).await, 10);
    }

    #[tokio::test]
    async fn nothing_is_written_for_a_lane_that_was_lost_in_between() {
        let (store, lease) = leased().await;
        let token = Token { nonce: lease.token.nonce ^ 1, ..lease.token };
        let claimed = written(&store, Lease { token, ..lease }).await;
        assert_eq!(claimed.lost, [0]);
        assert_eq!(number(&store, "SELECT sum(parked) + sum(status) FROM postrider_event").await, 0);
        assert_eq!(number(&store, "SELECT count(*) FROM postrider_hold").await, 4);
    }
}
