//! Every statement that runs often walks an index, whatever is in the table, under the plan that is kept for all values.

use postrider_core::{Store, tx::Prefix};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::{
    PgStore, claim, operate, settle,
    statement::{Shape, Statement},
};

/// Rows of every kind, most of them of kinds that a claim must not walk over. A quarter of a million, because a test has to
/// fill them in; the same plans were seen by hand at a million.
const ROWS: &str = "
    INSERT INTO postrider_event (event_type, ordering_key, payload, status, parked, available_at)
    SELECT 'X', 'key' || i % 50000, '{}', (ARRAY[0, 0, 0, 3, 2, 2, 2, 2])[i % 8 + 1], i % 8 > 5,
           clock_timestamp() + (i % 100 - 50) * interval '1 second'
    FROM generate_series(1, 250000) AS i;
    INSERT INTO postrider_hold (lane, effective_key, seq, reason)
    SELECT DISTINCT ON (e.lane, e.ordering_key) e.lane, e.ordering_key, e.seq,
           CASE WHEN e.seq % 10 = 0 THEN 'returning' ELSE 'retry' END FROM postrider_event AS e;
    INSERT INTO postrider_done SELECT i, now(), now(), now(), now() - i * interval '1 second', 0, 0, 'd' || i, 'X', 'Y', NULL, NULL,
           NULL, 'Z', NULL, NULL, '', NULL FROM generate_series(1, 100000) AS i;
    ANALYZE";

fn server() -> String {
    std::env::var("POSTRIDER_TEST_POSTGRES_URL").expect(
        "POSTRIDER_TEST_POSTGRES_URL is not set: start the servers with `cargo xtask services up` and name them to this \
         shell with `eval $(cargo xtask services env)`",
    )
}

async fn run(conn: &mut PgConnection, sql: impl Into<String>) {
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(conn).await.unwrap();
}

async fn plan(conn: &mut PgConnection, statement: &Statement, values: &str) -> String {
    run(conn, format!("PREPARE asked AS {}", statement.text())).await;
    let explain = AssertSqlSafe(format!("EXPLAIN (COSTS OFF) EXECUTE asked{values}"));
    let rows = sqlx::raw_sql(explain).fetch_all(&mut *conn).await.unwrap();
    run(conn, "DEALLOCATE asked").await;
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// Checks that a plan goes through these steps, and walks through no table that can be large.
async fn check(conn: &mut PgConnection, statement: &Statement, values: &str, steps: &[&str]) {
    let plan = plan(conn, statement, values).await;
    for step in steps {
        assert!(plan.contains(step), "no {step:?} in the plan of {}\n{plan}", statement.text());
    }
    for table in ["event", "hold", "done"] {
        let walk = format!("Seq Scan on postrider_{table}");
        assert!(!plan.contains(&walk), "{walk} in the plan of {}\n{plan}", statement.text());
    }
}

#[tokio::test]
async fn every_verb_that_runs_often_walks_an_index() {
    let name = format!("plans_{}", std::process::id());
    let mut admin = PgConnection::connect(&server()).await.unwrap();
    run(&mut admin, format!("CREATE DATABASE {name}")).await;
    let (base, _) = server().rsplit_once('/').map(|(base, rest)| (base.to_owned(), rest.to_owned())).unwrap();
    let store = PgStore::connect(&format!("{base}/{name}")).await.unwrap();
    store.migrate().await.unwrap();
    let mut conn = store.pool().acquire().await.unwrap();
    run(&mut conn, ROWS).await;
    run(&mut conn, "SET plan_cache_mode = force_generic_plan").await;

    let shape = Shape { prefix: Prefix::default(), prepared: true, flood: false };
    let (claim, settle, operate) =
        (claim::Statements::new(&shape), settle::Statements::new(&shape), operate::Statements::new(&shape));
    let (fresh, waiting) = ("Index Scan using postrider_event_fresh", "postrider_event_waiting");
    let (row, parked, hold) = ("using postrider_event_pkey", "postrider_event_parked", "postrider_hold_pkey");
    let look = "('{1,2}', '{1,1}', '{1,1}', '{0,0}', '{9,9}', '{NULL,NULL}', '{0,0}', '{}', '{}', 500, 499, 16, 1000,
                 '{0,0}', NULL, '{}')";
    check(&mut conn, &claim.look, look, &[fresh, waiting, row, parked, hold, "postrider_hold_returning"])
        .await;
    let quick = "('{1,2}', '{1,1}', '{1,1}', '{0,0}', '{0,0}', 500, 500, '{}', 1000, NULL, '{}')";
    check(&mut conn, &claim.quick, quick, &[fresh, waiting, hold, "postrider_hold_returning"]).await;
    check(&mut conn, &claim.read, "('{1,2}')", &[row]).await;
    check(&mut conn, &claim.write.park, "('{1,2}', '{1}')", &[row]).await;
    check(&mut conn, &claim.write.turn, "('{1,2}', '{1}')", &[row]).await;
    check(&mut conn, &claim.write.unpark, "('{1,2}', '{1}')", &[row]).await;
    check(&mut conn, &claim.write.free, "('{1}', '{a}')", &[parked, hold]).await;

    let done = "('{1}', '{1}', '{1}', '{1,2}')";
    check(&mut conn, &settle.delete, done, &[row]).await;
    check(&mut conn, &settle.keep, done, &[row]).await;
    let change =
        "('{1}', '{1}', '{1}', '{1,2}', '{3}', '{1}', '{2}', '{1}', '{1}', '{e}', '{t}', '{k}', '{retry}')";
    check(&mut conn, &settle.delete_and_change, change, &[row]).await;
    check(&mut conn, &settle.keep_and_change, change, &[row]).await;
    check(&mut conn, &settle.free, "('{1}', '{a}', '{1}', '{t}')", &[parked, hold, row]).await;
    check(&mut conn, &settle.release, "('{1}', '{a}', '{1}', '{t}')", &[hold, row]).await;

    check(&mut conn, &operate.dead, "(0, 10)", &["postrider_event_dead"]).await;
    check(&mut conn, &operate.redrive, "('{a}')", &["postrider_event_id", hold]).await;
    check(&mut conn, &operate.discard, "('{a}')", &["postrider_event_id", hold]).await;
    check(&mut conn, &operate.purge, "(1, 10)", &["postrider_done_at", "Tid Scan"]).await;
    check(&mut conn, &operate.status, "('a')", &["postrider_event_id", "postrider_done_id"]).await;
    check(&mut conn, &operate.why, "('a')", &[hold, parked]).await;

    drop(conn);
    store.close().await;
    run(&mut admin, format!("DROP DATABASE {name} WITH (FORCE)")).await;
}
