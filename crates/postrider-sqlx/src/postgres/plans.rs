//! Every statement that runs often walks an index, whatever is in the table, under the plan that is kept for all values.

use std::time::Duration;

use postrider_core::{
    Store,
    rng::Rng,
    store::{Claim, LaneClaim, LeaseRequest, ListScope, Listing, Position},
    tx::Prefix,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::{
    PgStore, claim, list, operate, orphans, settle,
    statement::{Shape, Statement},
};

/// A million rows of every kind, most of them of kinds that a claim must not walk over. The trigger would refuse them, and computes the lane.
const ROWS: &str = "
    ALTER TABLE postrider_event DISABLE TRIGGER postrider_event_insert;
    INSERT INTO postrider_event (event_type, ordering_key, payload, status, parked, available_at, lane)
    SELECT 'X', 'key' || i % 50000, '{}', (ARRAY[0, 0, 0, 3, 2, 2, 2, 2])[i % 8 + 1], i % 8 > 5,
           clock_timestamp() + (i % 100 - 50) * interval '1 second', (hashtext('key' || i % 50000) & 2147483647) % 64
    FROM generate_series(1, 1000000) AS i;
    ALTER TABLE postrider_event ENABLE TRIGGER postrider_event_insert;
    INSERT INTO postrider_hold (lane, effective_key, seq, reason)
    SELECT DISTINCT ON (e.lane, e.ordering_key) e.lane, e.ordering_key, e.seq,
           CASE WHEN e.seq % 10 = 0 THEN 'returning' ELSE 'retry' END FROM postrider_event AS e;
    INSERT INTO postrider_done SELECT i, now(), now(), now(), now() - i * interval '1 second', 0, 0, 'd' || i, 'X', 'Y', NULL, NULL,
           NULL, 'Z', NULL, NULL, '', NULL FROM generate_series(1, 100000) AS i;
    ANALYZE";

const NEWEST: &str = "POSTRIDER_TEST_POSTGRES_URL";
const OLDEST: &str = "POSTRIDER_TEST_POSTGRES15_URL";

fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: start the servers with `cargo xtask services up` and name them to this shell with \
             `eval $(cargo xtask services env)`"
        )
    })
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

/// A store with tables of its own, which go away when it is closed.
struct Own {
    server: String,
    name: String,
    store: PgStore,
}

impl Own {
    async fn new(name: &str, connections: u32) -> Self {
        Self::on(NEWEST, name, connections).await
    }

    async fn on(variable: &str, name: &str, connections: u32) -> Self {
        let (server, name) = (server(variable), format!("{name}_{}", std::process::id()));
        let mut admin = PgConnection::connect(&server).await.unwrap();
        run(&mut admin, format!("CREATE DATABASE {name}")).await;
        let (base, _) = server.rsplit_once('/').unwrap();
        let store =
            PgStore::builder().connections(connections).connect(&format!("{base}/{name}")).await.unwrap();
        store.migrate().await.unwrap();
        Self { server, name, store }
    }

    async fn close(self) {
        self.store.close().await;
        let mut admin = PgConnection::connect(&self.server).await.unwrap();
        run(&mut admin, format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

const LOOK: &str = "('{1,2}', '{1,1}', '{1,1}', '{1,1}', '{9,9}', '{NULL,NULL}', '{0,0}', '{}', '{}', 500, 499, 16, 1000, '100:200:150', '{90}', 0, 9, 500)";
const QUICK: &str = "('{1,2}', '{1,1}', '{1,1}', '{1,1}', 900, 500, '{}', 1000, '100:200:150', 9, 500, 500)";
const IDLE: &str = "('{1,2}', '{1,1}', '{1,1}', '{}', 1000, '100:200:150', 64)";

#[tokio::test]
async fn claims_follow_an_index_where_the_statistics_are_those_of_an_empty_table() {
    let own = Own::new("plans_of_nothing", 4).await;
    let mut conn = own.store.0.verbs.pool().acquire().await.unwrap();
    run(&mut conn, "SET statement_timeout = 0").await;
    run(&mut conn, "VACUUM ANALYZE postrider_event").await;
    // Nobody may look at the table before the plans are made.
    run(&mut conn, "ALTER TABLE postrider_event SET (autovacuum_enabled = false)").await;
    run(
        &mut conn,
        "INSERT INTO postrider_event (event_type, ordering_key, payload)
         SELECT 'X', 'key' || i % 1000, repeat('x', 1000) FROM generate_series(1, 20000) AS i",
    )
    .await;
    let claim = &own.store.0.claim.of(true);
    for mode in ["force_generic_plan", "force_custom_plan"] {
        run(&mut conn, format!("SET plan_cache_mode = {mode}")).await;
        let claims =
            [(claim.look.of(true), LOOK), (claim.quick.of(true), QUICK), (claim.idle.of(true), IDLE)];
        for (statement, values) in claims {
            let plan = plan(&mut conn, statement, values).await;
            assert!(plan.contains("using postrider_event_written"), "{plan}");
            for walk in ["Seq Scan on postrider_event", "Bitmap Heap Scan on postrider_event"] {
                assert!(!plan.contains(walk), "{walk} in the plan of {}\n{plan}", statement.text());
            }
            // What is sorted was all read before. What is late is few, and is sorted once.
            let sorted = plan.lines().filter(|line| line.trim_start().starts_with("Sort Key: e")).count();
            assert!(sorted <= 1, "{sorted} sorts in the plan of {}\n{plan}", statement.text());
            // A number without its lane would walk the whole of that index.
            let lines: Vec<_> = plan.lines().collect();
            for step in lines.windows(2).filter(|step| step[0].contains("using postrider_event_fresh")) {
                assert!(step[1].contains("Index Cond: ((lane = "), "{}\n{plan}", step[1]);
            }
        }
    }
    drop(conn);
    own.close().await;
}

/// What is late is sought by the transaction that inserted it, in both branches, and by nothing else: in the order of their numbers, the rows
/// that were skipped would be walked once for each transaction that has ended.
async fn check_late(conn: &mut PgConnection, own: &Own, case: &str) {
    let claim = &own.store.0.claim.of(true);
    // The front lies behind what was skipped.
    let (look, quick) =
        (LOOK.replace("0, 9, 500)", "0, 99990, 500)"), QUICK.replace("9, 500, 500)", "99990, 500, 500)"));
    for mode in ["force_generic_plan", "force_custom_plan"] {
        run(conn, format!("SET plan_cache_mode = {mode}")).await;
        let claims = [
            (claim.look.of(true), look.as_str()),
            (claim.quick.of(true), quick.as_str()),
            (claim.idle.of(true), IDLE),
        ];
        for (statement, values) in claims {
            let plan = plan(conn, statement, values).await;
            let steps = plan.matches("using postrider_event_written").count();
            assert_eq!(steps, 2, "{case}, {mode}:\n{plan}");
            let filters = plan.lines().filter(|line| line.trim_start().starts_with("Filter: "));
            for filter in filters {
                assert!(!filter.contains("written_in"), "{case}, {mode}:\n{plan}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_late_is_sought_by_its_transaction_whatever_the_statistics_say() {
    for variable in [NEWEST, OLDEST] {
        late_plans(Own::on(variable, "plans_of_the_late", 4).await).await;
    }
}

async fn late_plans(own: Own) {
    let mut conn = own.store.0.verbs.pool().acquire().await.unwrap();
    run(&mut conn, "SET statement_timeout = 0").await;
    run(&mut conn, "ALTER TABLE postrider_event SET (autovacuum_enabled = false)").await;
    check_late(&mut conn, &own, "a new table").await;
    run(&mut conn, "VACUUM ANALYZE postrider_event").await;
    check_late(&mut conn, &own, "an empty table").await;
    let insert = "INSERT INTO postrider_event (event_type, ordering_key, payload)
                  SELECT 'X', 'key' || i % 1000, 'x' FROM generate_series(1, 100000) AS i";
    run(&mut conn, insert).await;
    check_late(&mut conn, &own, "a backlog that the statistics do not know").await;
    run(&mut conn, "VACUUM ANALYZE postrider_event").await;
    check_late(&mut conn, &own, "a backlog of one transaction").await;
    for _ in 0..300 {
        run(&mut conn, "INSERT INTO postrider_event (event_type, payload) VALUES ('X', ''), ('X', '')").await;
    }
    run(&mut conn, "VACUUM ANALYZE postrider_event").await;
    check_late(&mut conn, &own, "events of many transactions").await;
    drop(conn);
    own.close().await;
}

/// How many pages a statement visits.
async fn pages(conn: &mut PgConnection, statement: &Statement, values: &str) -> u64 {
    run(conn, format!("PREPARE asked AS {}", statement.text())).await;
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE asked{values}");
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *conn).await.unwrap();
    run(conn, "DEALLOCATE asked").await;
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    // The first line of its kind is that of the whole plan.
    let buffers = lines.iter().find(|line| line.trim_start().starts_with("Buffers: shared")).unwrap();
    let counts = buffers.split([' ', '=']).collect::<Vec<_>>();
    let count = |of: &str| {
        let place = counts.iter().position(|word| *word == of);
        place.map_or(0, |place| counts[place + 1].parse::<u64>().unwrap())
    };
    count("hit") + count("read")
}

/// All that was delivered lies in the indexes until it is removed, which an old snapshot prevents. Claims pass it once, in the order of its
/// pages, and not lane by lane.
#[tokio::test]
async fn what_was_delivered_is_passed_once_by_a_claim_that_finds_nothing_behind_it() {
    const ROWS: usize = 200_000;
    let own = Own::new("plans_of_a_drain", 4).await;
    let mut conn = own.store.0.verbs.pool().acquire().await.unwrap();
    // To set it up takes longer than a verb may, where others are busy too.
    run(&mut conn, "SET statement_timeout = 0").await;
    run(&mut conn, "ALTER TABLE postrider_event SET (autovacuum_enabled = false)").await;
    run(&mut conn, "UPDATE postrider_lane SET epoch = 1, nonce = 1").await;
    let insert = "INSERT INTO postrider_event (event_type, ordering_key, payload)
                  SELECT 'X', 'key' || i % 10000, repeat('x', 100) FROM generate_series(1, ";
    run(&mut conn, format!("{insert}{ROWS}) AS i")).await;
    let mut old = own.store.0.pool.begin().await.unwrap();
    sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postrider_lane")
        .execute(&mut *old)
        .await
        .unwrap();
    run(&mut conn, "DELETE FROM postrider_event").await;
    let sizes =
        "SELECT (pg_relation_size('postrider_event') + pg_relation_size('postrider_event_pkey')) / 8192";
    let size: i64 = sqlx::raw_sql(sizes).fetch_one(&mut *conn).await.unwrap().get(0);
    // A few visits for each lane come on top.
    let most = u64::try_from(size).unwrap() * 3 / 2 + 2000;

    let list = |of: &str| format!("'{{{}}}'", vec![of; 64].join(","));
    let lanes = format!("'{{{}}}'", (0..64).map(|lane| lane.to_string()).collect::<Vec<_>>().join(","));
    let (one, zero, null) = (list("1"), list("0"), list("NULL"));
    let (end, front) = (list("9223372036854775807"), list(&ROWS.to_string()));
    let claim = &own.store.0.claim.of(true);
    // Behind the front, all that there is may be late; from the start, nothing was read before.
    let (all, none) = (format!("'1:1:', {ROWS}"), "NULL, 0".to_owned());
    let quick = |front: &str, late: &str| {
        let ends = "9223372036854775807";
        format!("({lanes}, {one}, {one}, {front}, {ends}, 16, '{{}}', 1000, {late}, 500, {ends})")
    };
    let look = |front: &str, late: &str| {
        let (since, to) = late.split_once(", ").unwrap();
        format!(
            "({lanes}, {one}, {one}, {front}, {end}, {null}, {zero}, '{{}}', '{{}}', 500, 499, 16, 1000, {since}, '{{}}', 0, {to}, 500)"
        )
    };
    let cases = [
        ("the usual claim, behind its front", claim.quick.of(true), quick(&front, &all)),
        ("the usual claim, from the start", claim.quick.of(true), quick(&zero, &none)),
        ("the careful claim, behind its front", claim.look.of(true), look(&front, &all)),
        ("the careful claim, from the start", claim.look.of(true), look(&zero, &none)),
    ];
    for (case, statement, values) in cases {
        let visited = pages(&mut conn, statement, &values).await;
        assert!(visited <= most, "{case}: {visited} pages visited, {size} in the table and its key");
    }
    old.rollback().await.unwrap();
    drop(conn);
    own.close().await;
}

#[tokio::test]
async fn an_event_that_was_delivered_is_found_by_its_id_where_there_are_no_statistics() {
    let own = Own::new("plans_of_the_done", 4).await;
    let mut conn = own.store.0.verbs.pool().acquire().await.unwrap();
    run(&mut conn, "ALTER TABLE postrider_done SET (autovacuum_enabled = false)").await;
    run(
        &mut conn,
        "INSERT INTO postrider_done SELECT i, now(), now(), now(), now() - i * interval '1 second', 0, 0, 'd' || i, 'X', 'Y', NULL, NULL,
                NULL, 'Z', NULL, NULL, repeat('x', 500), NULL FROM generate_series(1, 50000) AS i",
    )
    .await;
    let shape = Shape { prefix: Prefix::default(), prepared: true, flood: false };
    let one = Listing { id: Some("a".into()), ..Listing::newest(ListScope::Delivered, 1) };
    let page = list::statement(&shape, &one);
    for mode in ["force_generic_plan", "force_custom_plan"] {
        run(&mut conn, format!("SET plan_cache_mode = {mode}")).await;
        for (statement, values) in
            [(&own.store.0.operate.status, "('a')"), (&page, "(9, NULL, NULL, 1, 9, 'a')")]
        {
            check(&mut conn, statement, values, &["postrider_done_id"]).await;
            let plan = plan(&mut conn, statement, values).await;
            assert!(!plan.contains("using postrider_done_at"), "{plan}");
        }
    }
    drop(conn);
    own.close().await;
}

#[tokio::test]
async fn what_callers_do_on_the_pool_of_a_store_is_planned_as_the_server_has_it() {
    let own = Own::new("plans_of_callers", 4).await;
    let mut said = Vec::new();
    for pool in [own.store.pool(), &own.store.0.verbs.pool()] {
        said.push(sqlx::query_scalar::<_, String>("SHOW enable_seqscan").fetch_one(pool).await.unwrap());
    }
    assert_eq!(said, ["on", "off"]);
    let compiled: String = sqlx::query_scalar("SHOW jit").fetch_one(&own.store.0.verbs.pool()).await.unwrap();
    assert_eq!(compiled, "off");
    own.close().await;
}

/// Takes all lanes.
async fn lanes(store: &PgStore) -> Vec<LaneClaim> {
    let request = LeaseRequest {
        owner: "one".to_owned(),
        ttl: Duration::from_secs(60),
        nonces: Rng::from_entropy(),
        most: 64,
    };
    let leased = store.lease(&request).await.unwrap();
    leased.taken.iter().map(|taken| LaneClaim::after(taken.lease, Position::START)).collect()
}

/// Claims, and goes on from there next time. Returns the numbers of the events.
async fn claim(store: &PgStore, lanes: &mut [LaneClaim]) -> Vec<u64> {
    let claimed = store.claim(&Claim::new(lanes.to_vec(), 10)).await.unwrap();
    for lane in lanes {
        let reached = claimed.positions.iter().find(|(number, _)| *number == lane.lease.lane);
        lane.from = reached.map_or(lane.from, |(_, position)| *position);
    }
    claimed.events.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn an_idle_outbox_is_claimed_by_one_walk_over_all_lanes() {
    let own = Own::new("plans_of_an_idle_outbox", 1).await;
    let store = &own.store;
    let mut lanes = lanes(store).await;
    let mut events = Vec::new();
    for _ in 0..10 {
        let row = "INSERT INTO postrider_event (event_type, payload) VALUES ('X', '') RETURNING seq";
        let seq: i64 = sqlx::raw_sql(row).fetch_one(&store.0.verbs.pool()).await.unwrap().get(0);
        events.push(u64::try_from(seq).unwrap());
        let claimed = claim(store, &mut lanes).await;
        assert_eq!(claimed, [*events.last().unwrap()]);
        let gone = format!("DELETE FROM postrider_event WHERE seq = {seq}");
        sqlx::raw_sql(AssertSqlSafe(gone)).execute(&store.0.verbs.pool()).await.unwrap();
    }
    let asked = "SELECT coalesce(sum(generic_plans + custom_plans), 0)::bigint FROM pg_prepared_statements WHERE statement LIKE ";
    let count = async |of: &str| {
        let asked = AssertSqlSafe(format!("{asked} '%{of}%'"));
        sqlx::query_scalar::<_, i64>(asked).fetch_one(&store.0.verbs.pool()).await.unwrap()
    };
    let (idle, quick) = (count("The claim of an idle outbox").await, count("The usual claim").await);
    // The first claims do not know yet that there is nothing else.
    assert!(idle >= 8 && quick <= 1, "{idle} claims of an idle outbox, {quick} usual ones");
    own.close().await;
}

#[tokio::test]
async fn a_claim_of_some_of_the_lanes_makes_no_walk_over_what_others_have_delivered() {
    let own = Own::new("plans_of_some_lanes", 1).await;
    let store = &own.store;
    let mut lanes = lanes(store).await;
    lanes.truncate(8);
    for _ in 0..10 {
        claim(store, &mut lanes).await;
    }
    let asked = sqlx::query_scalar("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE $1");
    let asked = asked.bind("%The claim of an idle outbox%");
    let walks: i64 = asked.fetch_one(&store.0.verbs.pool()).await.unwrap();
    assert_eq!(walks, 0);
    own.close().await;
}

#[tokio::test]
async fn a_claim_of_a_full_table_is_planned_once() {
    let own = Own::new("plans_of_a_backlog", 1).await;
    let store = &own.store;
    let mut conn = store.0.verbs.pool().acquire().await.unwrap();
    let rows = "INSERT INTO postrider_event (event_type, ordering_key, payload)
                SELECT 'X', 'key' || i, repeat('x', 1000) FROM generate_series(1, 20000) AS i";
    run(&mut conn, rows).await;
    run(&mut conn, "VACUUM ANALYZE postrider_event").await;
    drop(conn);
    let mut lanes = lanes(store).await;
    for _ in 0..30 {
        assert_eq!(claim(store, &mut lanes).await.len(), 10);
    }
    let asked = "SELECT sum(custom_plans)::bigint, sum(generic_plans)::bigint FROM pg_prepared_statements WHERE statement LIKE '%postrider_event%'";
    let (custom, generic): (i64, i64) = sqlx::query_as(asked).fetch_one(&store.0.verbs.pool()).await.unwrap();
    assert_eq!(custom, 0, "{generic} executions used a plan that was kept");
    own.close().await;
}

#[tokio::test]
async fn a_flood_is_not_claimed_by_the_plans_of_quiet_times() {
    let own = Own::new("plans_of_a_flood", 1).await;
    let store = &own.store;
    let mut lanes = lanes(store).await;
    let mut kept = Vec::new();
    for flood in [false, true, true] {
        claim(store, &mut lanes).await;
        let asked = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%-- flood'";
        kept.push((
            flood,
            sqlx::query_scalar::<_, i64>(asked).fetch_one(&store.0.verbs.pool()).await.unwrap() > 0,
        ));
        if !flood {
            let rows = "INSERT INTO postrider_event (event_type, payload) SELECT 'X', '' FROM generate_series(1, 1000)";
            sqlx::raw_sql(rows).execute(&store.0.verbs.pool()).await.unwrap();
        }
    }
    // The first claim of a flood does not know of it.
    assert_eq!(kept, [(false, false), (true, false), (true, true)]);
    own.close().await;
}

#[tokio::test]
async fn every_verb_that_runs_often_walks_an_index() {
    let own = Own::new("plans", 4).await;
    let mut conn = own.store.0.verbs.pool().acquire().await.unwrap();
    run(&mut conn, "SET statement_timeout = 0").await;
    run(&mut conn, ROWS).await;
    run(&mut conn, "SET plan_cache_mode = force_generic_plan").await;

    let shape = Shape { prefix: Prefix::default(), prepared: true, flood: false };
    let (claim, settle, operate) =
        (claim::Statements::new(&shape), settle::Statements::new(&shape), operate::Statements::new(&shape));
    let (fresh, waiting) = ("Index Scan using postrider_event_fresh", "postrider_event_waiting");
    let written = "using postrider_event_written";
    let (row, parked, hold) = ("using postrider_event_pkey", "postrider_event_parked", "postrider_hold_pkey");
    check(
        &mut conn,
        claim.look.of(true),
        LOOK,
        &[fresh, waiting, written, row, parked, hold, "postrider_hold_returning"],
    )
    .await;
    check(
        &mut conn,
        claim.quick.of(true),
        QUICK,
        &[fresh, written, row, waiting, hold, "postrider_hold_returning"],
    )
    .await;
    check(&mut conn, claim.idle.of(true), IDLE, &[written, waiting, hold, "postrider_hold_returning"]).await;
    check(&mut conn, &claim.read, "('{1,2}')", &[row]).await;
    check(&mut conn, &claim.write.park, "('{1,2}', '{1}')", &[row]).await;
    check(&mut conn, &claim.write.turn, "('{1,2}', '{1}')", &[row]).await;
    check(&mut conn, &claim.write.unpark, "('{1,2}', '{1}')", &[row]).await;
    check(&mut conn, &claim.write.free, "('{1}', '{a}')", &[parked, hold]).await;

    let done = "('{1}', '{1}', '{1}', '{1,2}', '{a,b}')";
    check(&mut conn, &settle.delete, done, &[row]).await;
    check(&mut conn, &settle.keep, done, &[row]).await;
    let change = "('{1}', '{1}', '{1}', '{1,2}', '{a,b}', '{3}', '{1}', '{2}', '{1}', '{1}', '{e}', '{k}', '{retry}', '{c}')";
    check(&mut conn, &settle.delete_and_change, change, &[row]).await;
    check(&mut conn, &settle.keep_and_change, change, &[row]).await;
    // By number or by id: both find one row.
    let either = "using postrider_event_";
    check(&mut conn, &settle.locked, "('{1}', '{a}', '{1}', '{k}')", &[either, hold]).await;
    check(&mut conn, &settle.free, "('{1}', '{a}', '{1}', '{t}')", &[parked, hold, row]).await;
    check(&mut conn, &settle.release, "('{1}', '{a}', '{1}', '{t}')", &[hold, row]).await;

    check(&mut conn, &operate.dead, "(0, 10)", &["postrider_event_dead"]).await;
    check(&mut conn, &operate.redrive, "('{a}')", &["postrider_event_id", hold]).await;
    check(&mut conn, &operate.discard, "('{a}')", &["postrider_event_id", hold]).await;
    check(
        &mut conn,
        &operate.purge,
        "(1, 10)",
        &["postrider_done_at", "Index Cond: (done_at <=", "Tid Scan"],
    )
    .await;
    check(&mut conn, &operate.status, "('a')", &["postrider_event_id", "postrider_done_id"]).await;
    check(&mut conn, &operate.why, "('a')", &[hold, parked]).await;
    let orphans = orphans::Statements::new(&shape);
    check(&mut conn, &orphans.find, "(0, '', 10)", &[hold, "postrider_event_pkey"]).await;
    check(&mut conn, &orphans.free, "('{1}', '{a}', '{1}')", &[hold, "postrider_event_pkey"]).await;
    let scopes = [
        (ListScope::Undelivered, "Index Scan Backward using postrider_event_pkey"),
        (ListScope::Dead, "Index Scan Backward using postrider_event_dead"),
        (ListScope::Delivered, "Index Scan Backward using postrider_done_at"),
    ];
    for (scope, index) in scopes {
        let page = list::statement(&shape, &Listing::newest(scope, 10));
        check(&mut conn, &page, "(9, NULL, NULL, 10, 9)", &[index]).await;
    }
    for (scope, index) in
        [(ListScope::Undelivered, "postrider_event_id"), (ListScope::Delivered, "postrider_done_id")]
    {
        let one = Listing { id: Some("a".into()), ..Listing::newest(scope, 1) };
        check(&mut conn, &list::statement(&shape, &one), "(9, NULL, NULL, 1, 9, 'a')", &[index]).await;
    }
    let forward = "Index Scan using postrider_event_pkey";
    check(&mut conn, &list::oldest_statement(&shape), "(9, 500)", &[forward]).await;

    drop(conn);
    own.close().await;
}
