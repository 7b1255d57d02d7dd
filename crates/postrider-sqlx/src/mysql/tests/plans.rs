//! Every statement that runs often walks an index, whatever is in the table.

use postrider_core::store::{ListScope, Listing, Seq};
use sqlx::{AssertSqlSafe, Row};

use super::{
    super::{
        list,
        statement::{Listed, Ready, Statement},
    },
    Database, execute,
};
use crate::MysqlStore;

/// Inserts rows of every kind, so many thousands, most of them of kinds that a claim must not walk over.
async fn fill(store: &MysqlStore, thousands: usize) {
    let digit = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
                  UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let rows = format!(
        "INSERT INTO postrider_event (touched, event_type, ordering_key, payload, status, parked, available_at)
         SELECT 1, 'X', CONCAT('key', n % 1000), '{{}}', CASE n % 8 WHEN 0 THEN 0 WHEN 1 THEN 3 ELSE 2 END, n % 8 > 4,
                TIMESTAMP'2020-01-01 00:00:00' + INTERVAL n SECOND
         FROM (SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n + 100000 * f.n AS n
               FROM {digit} AS a, {digit} AS b, {digit} AS c, {digit} AS d, {digit} AS e, {digit} AS f) AS numbers
         WHERE n < {thousands} * 1000;
         INSERT INTO postrider_hold (lane, effective_key, seq, reason)
         SELECT lane, effective_key, 1, IF(MIN(seq) % 2 = 0, 'retry', 'returning') FROM postrider_event GROUP BY lane, effective_key;
         ANALYZE TABLE postrider_event; ANALYZE TABLE postrider_hold"
    );
    sqlx::raw_sql(AssertSqlSafe(rows)).execute(store.pool()).await.unwrap();
}

/// One step of a plan.
#[derive(Debug)]
struct Step {
    table: String,
    access: String,
    key: String,
    rows: u64,
    extra: String,
}

async fn plan(store: &MysqlStore, statement: &Statement) -> Vec<Step> {
    let explain: Ready = sqlx::query(AssertSqlSafe(format!("EXPLAIN {}", statement.text())));
    // Values that fit all of them, each another, so that ranges are not empty; of the kind that each place takes.
    let before = statement.text().split('?').map(str::trim_end);
    let values = before.take(statement.text().matches('?').count()).enumerate();
    let explain = values.fold(explain, |query, (n, before)| {
        let n = 7 + n as u64;
        match before {
            before if before.ends_with("JSON_TABLE(") => {
                query.bind("[[1, 0, 0, 1, null], [2, 1, 0, 1, null]]")
            }
            before if before.ends_with("LIMIT") || before.ends_with("INTERVAL") => query.bind(n),
            _ => query.bind(n.to_string()),
        }
    });
    let mut conn = store.pool().acquire().await.unwrap();
    // MySQL 9 draws a tree unless it is told otherwise; MariaDB knows no such setting.
    let _ = sqlx::raw_sql("SET SESSION explain_format = 'TRADITIONAL'").execute(&mut *conn).await;
    let rows =
        explain.fetch_all(&mut *conn).await.unwrap_or_else(|error| panic!("{error}: {}", statement.text()));
    let text = |row: &sqlx::mysql::MySqlRow, column: &str| {
        row.try_get_unchecked::<Option<String>, _>(column).unwrap().unwrap_or_default()
    };
    rows.iter()
        .map(|row| Step {
            table: text(row, "table"),
            access: text(row, "type"),
            key: text(row, "key"),
            // A number in one database, a text in the other.
            rows: row.try_get("rows").unwrap_or_else(|_| text(row, "rows").parse().unwrap_or_default()),
            extra: text(row, "Extra"),
        })
        .collect()
}

/// Checks that a table is read by this index, without a sort, and that few rows of it are.
async fn check(store: &MysqlStore, statement: &Statement, table: &str, key: &str, rows_max: Seq) {
    let plan = plan(store, statement).await;
    let context = format!("{}\n{plan:#?}", statement.text());
    if plan.iter().any(|step| step.extra.contains("const table")) {
        return; // One row by a unique key: it was looked up while the plan was made.
    }
    let steps: Vec<&Step> = plan.iter().filter(|step| step.table == table).collect();
    assert!(!steps.is_empty(), "{table} is not read: {context}");
    for step in steps {
        assert_eq!(step.key, key, "{context}");
        assert!(!matches!(step.access.as_str(), "ALL" | "index"), "{context}");
        assert!(step.rows <= rows_max, "{context}");
        assert!(!step.extra.contains("filesort"), "{context}");
    }
}

fn few(listed: &Listed) -> &Statement {
    listed.of_len(2)
}

fn many(listed: &Listed) -> &Statement {
    listed.of_len(64)
}

#[tokio::test]
async fn claims_walk_the_index_of_places_and_nothing_else() {
    let database = Database::new().await;
    let store = database.migrated().await;
    fill(&store, 5).await;
    let (read, place) = (&store.0.claim.read, "postrider_event_place");
    // Five thousand rows, of which an eighth is fresh: a lane has about ten.
    for fresh in [&read.fresh, &read.fresh_unheld, &read.fresh_places] {
        check(&store, few(fresh), "e", place, 40).await;
        check(&store, many(fresh), "e", place, 64 * 40).await;
    }
    check(&store, few(&read.fresh), "h", "PRIMARY", 1).await;
    check(&store, few(&read.waiting), "e", place, 200).await;
    check(&store, few(&read.parked), "e", place, 40).await;
    check(&store, few(&read.again), "e", "PRIMARY", 2).await;
    check(&store, few(&read.fresh_among), "e", "PRIMARY", 2).await;
    check(&store, few(&read.cargo), "e", "PRIMARY", 2).await;
    check(&store, &read.returning, "postrider_hold", "postrider_hold_reason", 1000).await;
    check(&store, few(&read.first_due), "e", place, 200).await;
    let places = plan(&store, many(&read.fresh_places)).await;
    assert!(places.iter().all(|step| step.extra.contains("Using index")), "{places:#?}");
}

#[tokio::test]
async fn claims_walk_the_index_of_places_at_a_million_rows() {
    let database = Database::new().await;
    let store = database.migrated().await;
    fill(&store, 1000).await;
    let (read, place) = (&store.0.claim.read, "postrider_event_place");
    // An eighth is fresh: a lane has about two thousand. An estimate may be twice as high.
    for fresh in [&read.fresh, &read.fresh_unheld, &read.fresh_places] {
        check(&store, few(fresh), "e", place, 8000).await;
        check(&store, many(fresh), "e", place, 64 * 4000).await;
    }
    check(&store, few(&read.waiting), "e", place, 40_000).await;
    check(&store, few(&read.parked), "e", place, 8000).await;
    check(&store, few(&read.again), "e", "PRIMARY", 2).await;
    check(&store, few(&read.cargo), "e", "PRIMARY", 2).await;
}

#[tokio::test]
async fn what_locks_rows_finds_them_by_their_keys() {
    let database = Database::new().await;
    let store = database.migrated().await;
    // A few rows only: that is when a planner would rather read the whole table, and wait for everybody's locks.
    execute(
        &store,
        "INSERT INTO postrider_event (event_type, payload) VALUES ('a', ''), ('b', ''), ('c', '');
         INSERT INTO postrider_hold (lane, effective_key, seq, reason) VALUES (1, 'a', 1, ''), (2, 'b', 2, ''), (3, 'c', 3, '')",
    )
    .await;
    let inner = &store.0;
    for statement in
        [&inner.settle.remove, &inner.claim.write.park, &inner.claim.write.unpark, &inner.claim.write.turn]
    {
        let text = few(statement).text().to_owned();
        let table = if text.contains("AS e") { "e" } else { "postrider_event" };
        check(&store, few(statement), table, "PRIMARY", 2).await;
        check(&store, many(statement), table, "PRIMARY", 64).await;
    }
    check(&store, many(&inner.lease.lock), "postrider_lane", "PRIMARY", 64).await;
    for statement in [&inner.hold.release, &inner.hold.remove] {
        check(&store, statement, "h", "PRIMARY", 1).await;
    }
    check(&store, &inner.settle.change, "e", "PRIMARY", 1).await;
    check(&store, few(&inner.operate.discard), "e", "PRIMARY", 2).await;
    check(&store, few(&inner.operate.redrive), "postrider_event", "PRIMARY", 2).await;
}

#[tokio::test]
async fn operators_find_events_by_an_index() {
    let database = Database::new().await;
    let store = database.migrated().await;
    fill(&store, 5).await;
    let operate = &store.0.operate;
    check(&store, few(&operate.find), "postrider_event", "postrider_event_id", 2).await;
    check(&store, &operate.status, "postrider_event", "postrider_event_id", 1).await;
    check(&store, &operate.done, "postrider_done", "postrider_done_id", 1).await;
    check(&store, &operate.why, "h", "PRIMARY", 1).await;
    check(&store, &store.0.orphans.find, "e", "PRIMARY", 1).await;
    check(&store, &store.0.hold.orphaned, "h", "PRIMARY", 1).await;
    for (id, index) in [(Some("a".into()), "postrider_done_id"), (None, "postrider_done_at")] {
        let page = Listing { id, ..Listing::newest(ListScope::Delivered, 10) };
        let page = list::statement(&store.0.target.prefix, &page);
        let steps = plan(&store, &page).await;
        assert!(steps.iter().all(|step| step.key == index), "{}\n{steps:#?}", page.text());
    }
    let oldest = list::oldest_statement(&store.0.target.prefix);
    let steps = plan(&store, &oldest).await;
    assert!(steps.iter().all(|step| step.key == "PRIMARY"), "{}\n{steps:#?}", oldest.text());
}
