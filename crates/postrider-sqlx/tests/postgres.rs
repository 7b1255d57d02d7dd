//! What the PostgreSQL store does beyond the conformance suite: errors, tables, rights, the fence under a real wait, wake-ups.

#[path = "postgres/places.rs"]
mod places;
#[path = "postgres/support.rs"]
mod support;

use std::time::Duration;

use postrider_core::{
    CallerTx, Error, Event, OwnedTx, SchemaError, Store, StoreErrorKind, TxSource,
    store::{Change, HoldReason},
    tx::{OnDuplicate, Prefix},
};
use postrider_sqlx::PgStore;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use support::{Database, Owner, event, settlement, write};

fn texts(error: &Error) -> String {
    format!("{error} | {error:?}")
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_database_are_clear_and_show_no_password() {
    let url = support::server();
    let secret = url.split(':').nth(2).and_then(|rest| rest.split('@').next()).unwrap().to_owned();
    let wrong = url.replacen(&secret, "an-open-sesame", 1);
    let error = PgStore::connect(&wrong).await.unwrap_err();
    assert!(matches!(&error, Error::Store(error) if error.kind() == StoreErrorKind::Denied), "{error:?}");
    assert!(error.to_string().contains("check the user, the password"), "{error}");
    assert!(!texts(&error).contains("an-open-sesame"), "{error:?}");

    let error = PgStore::connect(&support::with_database(&url, "no_such_database")).await.unwrap_err();
    assert!(texts(&error).contains("no_such_database"), "{error:?}");
    assert!(!texts(&error).contains(&secret), "{error:?}");
}

#[tokio::test]
async fn a_store_shows_where_it_is_and_not_its_password() {
    let url = support::server();
    let secret = url.split(':').nth(2).and_then(|rest| rest.split('@').next()).unwrap().to_owned();
    let store = PgStore::connect(&url).await.unwrap();
    let shown = format!("{store:?}");
    assert!(shown.contains("127.0.0.1") && !shown.contains(&format!(":{secret}@")), "{shown}");
}

#[tokio::test]
async fn missing_tables_and_missing_columns_are_named() {
    let database = Database::new().await;
    let store = database.connect().await;
    let error = store.stats().await.unwrap_err();
    assert!(
        matches!(&error, Error::Schema(SchemaError::Missing { table }) if table.starts_with("postrider_")),
        "{error:?}"
    );
    store.migrate().await.unwrap();
    database.run("ALTER TABLE postrider_event DROP COLUMN last_error").await;
    let error = store.dead(0, 1).await.unwrap_err();
    assert!(texts(&error).contains("last_error"), "{error:?}");
}

#[tokio::test]
async fn many_that_migrate_at_once_make_one_schema() {
    let database = Database::new().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = database.connect().await;
        tasks.spawn(async move { store.migrate().await });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    assert_eq!(database.number("SELECT count(*) FROM postrider_lane").await, 64);
}

#[tokio::test]
async fn a_table_of_our_name_that_is_not_ours_is_left_alone() {
    for foreign in [
        "CREATE TABLE postrider_hold (x int)",
        "CREATE VIEW postrider_event AS SELECT 1 AS x",
        "CREATE TABLE postrider_meta (name text, value text); CREATE TABLE postrider_event (x int)",
        "CREATE TABLE postrider_meta (x int)",
    ] {
        let database = Database::new().await;
        database.run(foreign).await;
        let error = database.connect().await.migrate().await.unwrap_err();
        assert!(matches!(error, Error::Schema(SchemaError::Foreign { .. })), "{foreign}: {error:?}");
        let tables =
            database.number("SELECT count(*) FROM pg_class WHERE relname LIKE 'postrider_lane'").await;
        assert_eq!(tables, 0, "{foreign}");
    }
}

#[tokio::test]
async fn a_table_that_was_dropped_beside_the_others_is_named_and_nothing_is_changed() {
    let database = Database::new().await;
    let store = database.connect().await;
    store.migrate().await.unwrap();
    database.run("DROP TABLE postrider_event").await;
    for error in [store.migrate().await.unwrap_err(), store.rehearse(true).await.unwrap_err()] {
        let is_dropped = |table: &str| table == "postrider_event";
        assert!(
            matches!(&error, Error::Schema(SchemaError::Dropped { table }) if is_dropped(table)),
            "{error}"
        );
    }
    let tables = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'postrider%'";
    assert_eq!(database.number(tables).await, 6);
}

#[tokio::test]
async fn a_column_whose_type_somebody_changes_stops_no_verb() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut owner = Owner::lease(&store).await;
    for round in 0..4 {
        // Statements are prepared, on more than one connection.
        for _ in 0..6 {
            write(&store, &[event("k")]).await;
            assert_eq!(owner.deliver(&store).await, 1, "round {round}");
            owner.look_from_the_start();
        }
        let collation = if round % 2 == 0 { "\"C\"" } else { "\"default\"" };
        let alter = format!("ALTER TABLE postrider_event ALTER headers TYPE text COLLATE {collation}");
        database.run(&alter).await;
    }
}

#[tokio::test]
async fn newer_tables_are_left_to_newer_programs() {
    let database = Database::new().await;
    let store = database.migrated().await;
    database.run("UPDATE postrider_meta SET value = '99' WHERE name = 'schema_version'").await;
    assert!(matches!(store.migrate().await, Err(Error::Schema(SchemaError::Newer { found: 99, known: 1 }))));
}

#[tokio::test]
async fn the_printed_schema_is_what_migrate_makes() {
    let database = Database::new().await;
    let prefix = Prefix::new("shop_").unwrap();
    database.run(&PgStore::schema_sql(&prefix, 16)).await;
    let store = PgStore::builder().prefix(prefix).connect(&database.url()).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.features().lanes, 16);
    write(&store, &[event("k")]).await;
    assert_eq!(store.stats().await.unwrap().pending, 1);
}

#[tokio::test]
async fn the_number_of_lanes_changes_only_while_the_outbox_is_empty() {
    let database = Database::new().await;
    let lanes = |lanes| {
        let url = database.url();
        async move {
            let store = PgStore::builder().lanes(lanes).connect(&url).await.unwrap();
            store.migrate().await.map(|()| store.features().lanes)
        }
    };
    assert_eq!(lanes(8).await.unwrap(), 8);
    let store = database.migrated().await;
    assert_eq!(store.features().lanes, 8, "who wants no number takes what is there");
    assert_eq!(lanes(3).await.unwrap(), 3);
    assert_eq!(database.number("SELECT count(*) FROM postrider_lane").await, 3);
    write(&store, &[event("k")]).await;
    assert!(matches!(lanes(8).await, Err(Error::Schema(SchemaError::Lanes { found: 3, wanted: 8 }))));
    assert!(matches!(PgStore::builder().lanes(0).connect(&database.url()).await, Err(Error::Config(_))));
}

#[tokio::test]
async fn a_plain_insert_is_enough_and_falls_into_the_lane_of_its_key() {
    let database = Database::new().await;
    let store = database.migrated().await;
    database
        .run(
            "INSERT INTO postrider_event (event_type, payload) VALUES ('Plain', '{\"a\":\"\\\\\"}');
             INSERT INTO postrider_event (event_type, payload, aggregate_type, aggregate_id) VALUES ('Keyed', '1', 'Order', '7');
             INSERT INTO postrider_event (event_type, payload, lane_hint) VALUES ('Hinted', '2', 70)",
        )
        .await;
    write(&store, &[Event::json_text("Written", "3").aggregate("Order", 7).build().unwrap()]).await;
    let mut owner = Owner::lease(&store).await;
    let mut events = owner.claim(&store).await.events;
    events.sort_by_key(|event| event.seq);
    let payloads: Vec<_> = events
        .iter()
        .map(|event| event.event.as_ref().unwrap().payload().as_text().unwrap().to_owned())
        .collect();
    assert_eq!(payloads, ["{\"a\":\"\\\\\"}", "1", "2", "3"]);
    assert_eq!(events[1].lane, events[3].lane);
    assert_eq!(events[2].lane, 70 % 64);
}

#[tokio::test]
async fn keys_that_differ_only_in_case_or_form_are_different_keys() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let keys = ["a", "A", "\u{e4}", "a\u{308}", "a "];
    write(&store, &keys.map(event)).await;
    let mut owner = Owner::lease(&store).await;
    let events = owner.claim(&store).await.events;
    for event in &events {
        let wait = Change::Wait {
            after: Duration::from_secs(60),
            attempts: 1,
            error: None,
            reason: HoldReason::Retry,
        };
        store.settle(owner.leases(), &[settlement(event, wait)], Duration::ZERO).await.unwrap();
    }
    assert_eq!(store.stats().await.unwrap().held_keys, keys.len() as u64);
}

#[tokio::test]
async fn each_role_can_do_its_part_with_the_printed_rights_and_no_more() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let role = |name: &str| format!("{name}_{}", database.name);
    let (writer, relay, operator) = (role("writer"), role("relay"), role("operator"));
    for role in [&writer, &relay, &operator] {
        database
            .run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA public TO {role}"))
            .await;
    }
    database.run(&PgStore::grants_sql(&Prefix::default(), &writer, &relay, &operator)).await;
    let as_role = |role: &str| {
        let url = database.url_of(role, "x");
        async move { PgStore::connect(&url).await.unwrap() }
    };

    let writing = as_role(&writer).await;
    write(&writing, &[event("k"), event("k")]).await;
    let one = event("k");
    write(&writing, std::slice::from_ref(&one)).await;
    let mut tx = TxSource::begin(&writing).await.unwrap();
    assert!(matches!(
        tx.insert(writing.target(), std::slice::from_ref(&one), OnDuplicate::Fail).await,
        Err(Error::DuplicateId { .. })
    ));
    assert_eq!(tx.read_back(writing.target(), &[one.id().clone()]).await.unwrap().len(), 1);
    // More than one statement takes, the duplicate in the last of them.
    let mut many: Vec<Event> = (0..5000).map(|_| event("k")).collect();
    many.push(one.clone());
    let inserted = tx.insert(writing.target(), &many, OnDuplicate::Fail).await;
    assert!(matches!(inserted, Err(Error::DuplicateId { .. })), "{inserted:?}");
    assert!(tx.read_back(writing.target(), &[many[0].id().clone()]).await.unwrap().is_empty());
    let error = writing.stats().await.unwrap_err();
    assert!(matches!(&error, Error::Store(error) if error.kind() == StoreErrorKind::Denied), "{error:?}");
    drop(tx);
    // A role that may not read the sequence cannot peek, which is no error.
    for _ in 0..2 {
        assert_eq!(writing.peek().await.unwrap(), None);
    }

    let relaying = as_role(&relay).await;
    relaying.migrate().await.unwrap();
    relaying.join("one", Duration::from_secs(5)).await.unwrap();
    let mut owner = Owner::lease(&relaying).await;
    let events = owner.claim(&relaying).await.events;
    assert_eq!(events.len(), 3);
    assert!(relaying.peek().await.unwrap().is_some_and(|peek| peek.last >= events[2].seq));
    let dead = Change::Dead { attempts: 1, error: "no".to_owned(), block: true };
    relaying.settle(owner.leases(), &[settlement(&events[0], dead)], Duration::from_secs(1)).await.unwrap();
    owner.again(&events[1..]);
    assert!(owner.claim(&relaying).await.events.is_empty());

    let operating = as_role(&operator).await;
    let letters = operating.dead(0, 10).await.unwrap();
    assert_eq!(operating.discard(&[letters[0].id.clone()]).await.unwrap(), 1);
    let events = owner.claim(&relaying).await.events;
    assert_eq!(events.len(), 2);
    let done: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
    assert_eq!(relaying.settle(owner.leases(), &done, Duration::from_secs(1)).await.unwrap().applied, 2);
    relaying.purge(Duration::ZERO, 10).await.unwrap();
    assert!(operating.stats().await.is_ok() && operating.why("k").await.is_ok());
    for store in [writing, relaying, operating, store] {
        store.close().await;
    }
    for role in [&writer, &relay, &operator] {
        database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}

#[tokio::test]
async fn a_settle_that_waits_while_its_lane_is_taken_over_writes_nothing() {
    let database = Database::new().await;
    let store = database.migrated().await;
    write(&store, &[event("k")]).await;
    let mut owner = Owner::lease(&store).await;
    let claimed = owner.claim(&store).await.events.remove(0);

    let changes = [
        Change::Done,
        Change::Dead { attempts: 1, error: String::new(), block: true },
        Change::Attempt { attempts: 1 },
    ];
    for change in changes {
        let mut successor = database.raw().await;
        let mut tx = successor.begin().await.unwrap();
        let take =
            format!("UPDATE postrider_lane SET epoch = epoch + 1, nonce = 7 WHERE lane = {}", claimed.lane);
        sqlx::raw_sql(AssertSqlSafe(take)).execute(&mut *tx).await.unwrap();
        let (settling, lease) = (store.clone(), owner.lease_of(claimed.lane));
        let batch = [settlement(&claimed, change)];
        let settle = tokio::spawn(async move { settling.settle(&[lease], &batch, Duration::ZERO).await });
        database.until_somebody_waits().await;
        tx.commit().await.unwrap();
        let settled = settle.await.unwrap().unwrap();
        assert_eq!((settled.applied, settled.lost), (0, vec![claimed.lane]));
        // The lane goes back to who had it, for the next kind of outcome.
        let token = lease.token;
        let back = format!(
            "UPDATE postrider_lane SET epoch = {}, nonce = {} WHERE lane = {}",
            token.epoch, token.nonce, claimed.lane
        );
        database.run(&back).await;
    }
    assert_eq!(
        database.number("SELECT count(*) FROM postrider_event WHERE status = 0 AND attempts = 0").await,
        1
    );
    assert_eq!(database.number("SELECT count(*) FROM postrider_hold").await, 0);
}

#[tokio::test]
async fn a_bare_connection_is_asked_whether_it_is_in_a_transaction() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut conn = database.raw().await;
    let events = [event("k")];
    let refused = (&mut conn).insert(store.target(), &events, OnDuplicate::Fail).await;
    assert!(matches!(refused, Err(Error::NotInTransaction { driver: "sqlx (PostgreSQL)" })), "{refused:?}");
    sqlx::raw_sql("BEGIN").execute(&mut conn).await.unwrap();
    assert_eq!((&mut conn).insert(store.target(), &events, OnDuplicate::Fail).await.unwrap(), [true]);
    sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.unwrap();
    assert_eq!(store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn a_commit_that_would_roll_back_is_an_error() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut tx = TxSource::begin(&store).await.unwrap();
    tx.insert(store.target(), &[event("k")], OnDuplicate::Fail).await.unwrap();
    assert!(sqlx::raw_sql("SELECT no_such_column").execute(tx.conn()).await.is_err());
    let error = tx.commit().await.unwrap_err();
    assert!(texts(&error).contains("cannot commit"), "{error:?}");
    assert_eq!(store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn a_notification_is_heard_by_others_and_not_by_oneself() {
    let database = Database::new().await;
    let (one, two) = (database.migrated().await, database.connect().await);
    // The first answer says that somebody listens now.
    one.notified().await.unwrap();
    two.notified().await.unwrap();
    let (first, second) = (one.clone(), two.clone());
    let heard = tokio::spawn(async move { second.notified().await });
    let own = tokio::spawn(async move { first.notified().await });
    (0..100).for_each(|_| one.notify_others());
    tokio::time::timeout(Duration::from_secs(10), heard).await.unwrap().unwrap().unwrap();
    assert!(!own.is_finished());
    two.notify_others();
    tokio::time::timeout(Duration::from_secs(10), own).await.unwrap().unwrap().unwrap();
}

/// Without force, a database is dropped only if nobody is connected to it.
#[tokio::test]
async fn a_store_that_was_closed_leaves_no_connection_whether_somebody_listens_or_not() {
    for listens in [false, true] {
        let database = Database::new().await;
        let store = database.migrated().await;
        store.notified().await.unwrap();
        let listening = listens.then(|| {
            let store = store.clone();
            tokio::spawn(async move { store.notified().await })
        });
        tokio::task::yield_now().await;
        store.close().await;
        support::run(&support::server(), &format!("DROP DATABASE {}", database.name)).await;
        if let Some(listening) = listening {
            assert!(listening.await.unwrap().is_err());
        }
    }
}

#[tokio::test]
async fn verbs_survive_that_all_connections_are_cut() {
    let database = Database::new().await;
    let store = database.migrated().await;
    write(&store, &[event("k")]).await;
    let mut owner = Owner::lease(&store).await;
    for _ in 0..5 {
        database
            .run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            .await;
        assert!(owner.claim(&store).await.lost.is_empty());
        assert_eq!(store.renew(owner.leases(), Duration::from_secs(60)).await.unwrap().held.len(), 64);
    }
}

/// Writers that hold their transactions open for different times, and one who claims all the while: nothing is skipped, and
/// nothing comes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_commit_in_any_order_are_all_met_once() {
    const WRITERS: usize = 8;
    const EACH: usize = 60;
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let mut conn = database.raw().await;
        let target = store.target().clone();
        writers.spawn(async move {
            for n in 0..EACH {
                let mut tx = conn.begin().await.unwrap();
                let events = [event("hot"), event(&format!("{writer}"))];
                (&mut tx).insert(&target, &events, OnDuplicate::Fail).await.unwrap();
                // Others overtake this one meanwhile.
                let rest = AssertSqlSafe(format!(
                    "SELECT pg_sleep({})",
                    ((writer * 7 + n * 3) % 11) as f64 / 1000.0
                ));
                sqlx::raw_sql(rest).execute(&mut *tx).await.unwrap();
                tx.commit().await.unwrap();
            }
        });
    }
    let mut owner = Owner::lease(&store).await;
    let mut seqs = Vec::new();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while seqs.len() < WRITERS * EACH * 2 && std::time::Instant::now() < deadline {
        let events = owner.claim(&store).await.events;
        let done: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
        seqs.extend(events.iter().map(|event| event.seq));
        if !done.is_empty() {
            store.settle(owner.leases(), &done, Duration::ZERO).await.unwrap();
        }
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    let met = seqs.len();
    seqs.sort_unstable();
    seqs.dedup();
    assert_eq!((met, seqs.len()), (WRITERS * EACH * 2, WRITERS * EACH * 2));
    assert_eq!(database.number("SELECT count(*) FROM postrider_event").await, 0);
}

#[tokio::test]
async fn an_event_of_a_transaction_that_stays_open_comes_once_and_first_when_it_commits() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut conn: PgConnection = database.raw().await;
    let mut tx = conn.begin().await.unwrap();
    (&mut tx).insert(store.target(), &[event("k")], OnDuplicate::Fail).await.unwrap();
    let late: i64 =
        sqlx::query("SELECT max(seq) FROM postrider_event").fetch_one(&mut *tx).await.unwrap().get(0);
    let mut owner = Owner::lease(&store).await;
    for _ in 0..5 {
        write(&store, &[event("k")]).await;
        assert_eq!(owner.deliver(&store).await, 1);
    }
    write(&store, &[event("k")]).await;
    tx.commit().await.unwrap();
    let seqs: Vec<i64> = owner.claim(&store).await.events.iter().map(|event| event.seq as i64).collect();
    assert_eq!(seqs, [late, late + 6]);
    assert!(owner.claim(&store).await.events.is_empty());
}

#[tokio::test]
async fn lanes_that_another_session_has_locked_are_left_out_and_not_lost() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut psql = database.raw().await;
    let lock = "BEGIN; SELECT FROM postrider_lane WHERE lane IN (3, 5) FOR UPDATE; SELECT FROM postrider_member FOR UPDATE";
    store.join("test", Duration::from_secs(3)).await.unwrap();
    sqlx::raw_sql(lock).execute(&mut psql).await.unwrap();
    let request = postrider_core::store::LeaseRequest {
        owner: "test".to_owned(),
        ttl: Duration::from_secs(3),
        nonces: postrider_core::rng::Rng::from_entropy(),
        most: 64,
    };
    let leased = store.lease(&request).await.unwrap();
    assert_eq!((leased.taken.len(), leased.locked), (62, 2));
    assert_eq!(
        store.join("test", Duration::from_secs(3)).await.unwrap(),
        1,
        "nobody waits for a member's row"
    );
    sqlx::raw_sql("ROLLBACK").execute(&mut psql).await.unwrap();
    let leases = [leased.leases(), store.lease(&request).await.unwrap().leases()].concat();
    assert_eq!(leases.len(), 64);

    sqlx::raw_sql("BEGIN; SELECT FROM postrider_lane WHERE lane = 7 FOR UPDATE")
        .execute(&mut psql)
        .await
        .unwrap();
    let renewed = store.renew(&leases, Duration::from_secs(3)).await.unwrap();
    assert_eq!((renewed.held.len(), renewed.locked), (63, vec![7]));
    sqlx::raw_sql("ROLLBACK").execute(&mut psql).await.unwrap();
    assert_eq!(store.renew(&leases, Duration::from_secs(3)).await.unwrap().held.len(), 64);
}

/// What a role or a database says about sessions is not what ours begin with; neither is what it says about time.
#[tokio::test]
async fn sessions_have_the_limits_of_the_lease_and_the_isolation_that_claims_need() {
    let database = Database::new().await;
    database
        .run(&format!(
            "ALTER DATABASE {0} SET default_transaction_isolation = 'serializable';
             ALTER DATABASE {0} SET statement_timeout = '17s'; ALTER DATABASE {0} SET lock_timeout = 0",
            database.name
        ))
        .await;
    let store = database.migrated().await;
    for (lease, statement) in [(15, 4000), (6, 1600)] {
        store.join("test", Duration::from_secs(lease)).await.unwrap();
        // What a trigger says is what the verb runs under.
        database
            .run(
                "CREATE OR REPLACE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     RAISE 'runs with % at %', (SELECT setting FROM pg_settings WHERE name = 'statement_timeout'),
                         current_setting('transaction_isolation'); END $$;
                 CREATE TRIGGER told BEFORE UPDATE ON postrider_member FOR EACH ROW EXECUTE FUNCTION told()",
            )
            .await;
        let error = texts(&store.join("test", Duration::from_secs(lease)).await.unwrap_err());
        assert!(error.contains(&format!("runs with {statement} at read committed")), "{error}");
        database.run("DROP TRIGGER told ON postrider_member").await;
    }
}

#[tokio::test]
async fn a_verb_that_waits_for_a_lock_gives_up_within_a_third_of_the_lease_and_the_next_one_succeeds() {
    let database = Database::new().await;
    let store = database.migrated().await;
    store.join("test", Duration::from_secs(3)).await.unwrap();
    let mut psql = database.raw().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE postrider_lane").execute(&mut psql).await.unwrap();
    let began = std::time::Instant::now();
    let error = store.renew(&[], Duration::from_secs(3)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(texts(&error).contains("lock timeout"), "{error:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut psql).await.unwrap();
    store.renew(&[], Duration::from_secs(3)).await.unwrap();
}

/// Ids are compared whole, also where they have more bytes than PostgreSQL gives to a name.
#[tokio::test]
async fn a_settle_names_a_row_by_an_id_of_any_length() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let long = |last: char| format!("{}{last}", "é".repeat(35));
    let of_id = |id: String| Event::json_text("Tested", "{}").id(id).build().unwrap();
    write(&store, &[of_id(long('1')), of_id(long('3')), event("k")]).await;
    let mut owner = Owner::lease(&store).await;
    let events = owner.claim(&store).await.events;
    let mut done: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
    assert_eq!(done.len(), 3);
    let right = done[0].event_id.clone();
    done[0].event_id = long('2').into();
    // In any order.
    done.reverse();
    assert_eq!(store.settle(owner.leases(), &done, Duration::ZERO).await.unwrap().applied, 2);
    let mut first = done.pop().unwrap();
    first.event_id = right;
    assert_eq!(store.settle(owner.leases(), &[first], Duration::ZERO).await.unwrap().applied, 1);
}

#[tokio::test]
async fn a_store_whose_tables_were_dropped_and_restored_peeks_again() {
    let database = Database::new().await;
    let store = database.migrated().await;
    assert!(store.peek().await.unwrap().is_some());
    database.run("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
    assert!(store.peek().await.is_err(), "there is nothing to peek at");
    store.migrate().await.unwrap();
    assert!(store.peek().await.unwrap().is_some());
}
