//! Every statement that runs often walks an index, whatever is in the table and whether SQLite has statistics or not.

use postrider_core::{
    Store,
    store::{ListScope, Listing},
    tx::Prefix,
};
use sqlx::{AssertSqlSafe, Row};

use super::{SqliteStore, claim, list, operate, orphans, settle, statement::Statement};

/// Tens of thousands of rows of every kind, most of them of kinds that a claim must not walk over.
const ROWS: &str = "
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
    INSERT INTO postrider_event (event_type, ordering_key, payload, available_at)
    SELECT 'X', 'key' || (i % 1000), '{}', 1700000000000000 + i FROM n;
    UPDATE postrider_event SET status = CASE seq % 8 WHEN 0 THEN 0 WHEN 1 THEN 3 ELSE 2 END, parked = seq % 8 > 4;
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
    INSERT INTO postrider_hold SELECT 0, 'key' || i, i, NULL, iif(i % 10, 'retry', 'returning') FROM n;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
    INSERT INTO postrider_done SELECT i, 0, 0, 0, 0, 0, i, 'd' || i, 'X', 'Y', NULL, NULL, NULL, 'Z', NULL, NULL, '', NULL
    FROM n;";

async fn filled() -> SqliteStore {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    store.migrate().await.unwrap();
    sqlx::raw_sql(ROWS).execute(store.pool()).await.unwrap();
    store
}

async fn plan(store: &SqliteStore, statement: &Statement) -> String {
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", statement.text()));
    let rows = sqlx::query(explain).bind("[1,2,3]").fetch_all(store.pool()).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
}

/// Checks that the plan goes through these steps, and that it walks through no table and sorts nothing large.
async fn check(store: &SqliteStore, statement: &Statement, steps: &[&str]) {
    let plan = plan(store, statement).await;
    let context = format!("{}\n{plan}", statement.text());
    for step in steps {
        assert!(plan.contains(step), "no {step:?} in the plan of {context}");
    }
    for line in plan.lines().filter(|line| line.contains("SCAN")) {
        // Lists, subqueries that have been searched for, and indexes that are counted.
        let harmless = ["VIRTUAL TABLE", "CONSTANT ROW", "USING COVERING INDEX"];
        let subqueries =
            ["SCAN page", "SCAN freed_key", "SCAN fresh", "SCAN waiting", "SCAN parked", "SCAN s"];
        let harmless = harmless.iter().any(|known| line.contains(known)) || subqueries.contains(&line);
        assert!(harmless, "{line:?} in {context}");
    }
}

async fn check_all(store: &SqliteStore) {
    let prefix = Prefix::default();
    let (claim, settle, operate) = (
        claim::Statements::new(&prefix),
        settle::Statements::new(&prefix),
        operate::Statements::new(&prefix),
    );

    let hold = "SEARCH h USING INDEX sqlite_autoindex_postrider_hold_1 (lane=? AND effective_key=?)";
    let row = "rowid=?)";
    let fresh = "event_fresh (lane=? AND rowid>?)";
    check(store, &claim.quick, &[fresh, hold, "hold_returning (lane=?)", "event_waiting (lane=?)"]).await;
    check(store, &claim.state, &["hold_returning (lane=?)", "event_waiting (lane=? AND available_at>?)"])
        .await;
    // What a walk skips is found in the index alone.
    let alone = "SEARCH postrider_event USING COVERING INDEX postrider_event";
    check(store, &claim.rows.fresh, &[alone, "_fresh (lane=? AND rowid>? AND rowid<?)", row, hold]).await;
    check(store, &claim.rows.tied, &["event_waiting (lane=? AND available_at=? AND rowid>?)", hold]).await;
    check(
        store,
        &claim.rows.waiting,
        &["event_waiting (lane=? AND available_at>? AND available_at<?)", hold],
    )
    .await;
    for statement in [&claim.quick, &claim.rows.fresh, &claim.rows.tied, &claim.rows.waiting] {
        assert!(!plan(store, statement).await.contains("B-TREE"), "it sorts: {}", statement.text());
    }
    check(store, &claim.rows.recheck, &[row, hold]).await;
    let parked = "event_parked (lane=? AND effective_key=?)";
    check(store, &claim.rows.returning, &["hold_returning (lane=?)", parked, row]).await;
    check(store, &claim.read, &[row]).await;
    check(store, &claim.write.park, &[row, hold.trim_start_matches("SEARCH h ")]).await;
    check(store, &claim.write.turn, &[row]).await;
    check(store, &claim.write.unpark, &[row, hold.trim_start_matches("SEARCH h ")]).await;
    check(store, &claim.write.free, &[row, parked]).await;

    for statement in [&settle.quick, &settle.keep, &settle.remove, &settle.survivors, &settle.change] {
        check(store, statement, &[row]).await;
    }
    check(store, &settle.free, &[parked, row]).await;
    check(store, &settle.release, &[row]).await;

    check(store, &operate.dead, &["event_dead (seq>?)"]).await;
    for statement in [&operate.redrive, &operate.discard, &operate.redrive_holds, &operate.discard_holds] {
        check(store, statement, &["postrider_event_id (event_id=?)"]).await;
    }
    let orphans = orphans::Statements::new(&prefix);
    check(store, &orphans.find, &["sqlite_autoindex_postrider_hold_1", row]).await;
    check(store, &orphans.free, &["(lane=? AND effective_key=?)", row]).await;
    assert!(!plan(store, &orphans.find).await.contains("B-TREE"), "it sorts");
    check(store, &operate.purge, &["done_at (done_at<?)"]).await;
    let counted = ["event_fresh", "event_waiting", "event_parked", "event_dead"];
    check(store, &operate.stats, &counted).await;
    check(store, &operate.status, &["postrider_event_id (event_id=?)"]).await;
    check(store, &operate.done, &["done_id (event_id=?)"]).await;
    check(store, &operate.why, &["(lane=? AND effective_key=?)", parked]).await;
    for (scope, index) in [
        (ListScope::Undelivered, "INTEGER PRIMARY KEY (rowid<?)"),
        (ListScope::Dead, "event_dead (seq<?)"),
        (ListScope::Delivered, "done_at (done_at<?)"),
    ] {
        let page = list::statement(&prefix, &Listing::newest(scope, 10));
        check(store, &page, &[index]).await;
        assert!(!plan(store, &page).await.contains("B-TREE"), "it sorts: {}", page.text());
    }
    for (scope, index) in [
        (ListScope::Undelivered, "postrider_event_id (event_id=?)"),
        (ListScope::Delivered, "done_id (event_id=?)"),
    ] {
        let one = Listing { id: Some("a".into()), ..Listing::newest(scope, 1) };
        check(store, &list::statement(&prefix, &one), &[index]).await;
    }
    check(store, &list::oldest_statement(&prefix), &["INTEGER PRIMARY KEY (rowid>?)"]).await;
}

#[tokio::test]
async fn every_verb_walks_an_index_without_statistics() {
    // S3-5.1b
    check_all(&filled().await).await;
}

#[tokio::test]
async fn every_verb_walks_an_index_with_statistics() {
    let store = filled().await;
    sqlx::raw_sql("ANALYZE").execute(store.pool()).await.unwrap();
    check_all(&store).await;
}
