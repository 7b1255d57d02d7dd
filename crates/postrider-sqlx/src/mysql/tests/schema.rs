use std::{fs, path::Path};

use postrider_core::{Error, SchemaError, Store, tx::Prefix};
use sqlx::{AssertSqlSafe, Row};

use super::{Database, event, execute, lease, number, write};
use crate::MysqlStore;

/// How every table of a database was made.
async fn tables(store: &MysqlStore, prefix: &str) -> Vec<String> {
    let mut made = Vec::new();
    for table in ["meta", "event", "done", "lane", "member", "hold", "pause"] {
        let sql = format!("SHOW CREATE TABLE {prefix}{table}");
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(store.pool()).await.unwrap();
        let text = row.try_get_unchecked::<String, _>(1).unwrap();
        made.push(text.split(" AUTO_INCREMENT=").next().unwrap().to_owned());
    }
    made
}

#[tokio::test]
async fn the_printed_schema_applied_by_hand_is_the_migrated_one() {
    let (by_hand, migrated) = (Database::new().await, Database::new().await);
    let (by_hand, migrated) = (by_hand.store().await, migrated.migrated().await);
    let sql = MysqlStore::schema_sql(&Prefix::default(), 64);
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(by_hand.pool()).await.unwrap();
    assert_eq!(tables(&by_hand, "postrider_").await, tables(&migrated, "postrider_").await);
    by_hand.migrate().await.unwrap();
    assert_eq!(number(&by_hand, "SELECT COUNT(*) FROM postrider_lane").await, 64);
    assert_eq!(
        number(&by_hand, "SELECT CAST(value AS SIGNED) FROM postrider_meta WHERE name = 'schema_version'")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_can_migrate_at_once_and_again() {
    let database = Database::new().await;
    let url = database.url(None);
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { MysqlStore::connect(&url).await?.migrate().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let store = database.migrated().await;
    assert_eq!(number(&store, "SELECT COUNT(*) FROM postrider_lane").await, 64);
}

#[tokio::test]
async fn a_migration_that_ended_half_way_goes_on_with_its_lanes() {
    let database = Database::new().await;
    let store = database.store().await.with_lanes(8).unwrap();
    store.migrate().await.unwrap();
    execute(
        &store,
        "DROP TABLE postrider_hold; UPDATE postrider_meta SET value = '0' WHERE name = 'schema_version'",
    )
    .await;
    let other = database.migrated().await;
    assert_eq!((other.features().lanes, other.stats().await.unwrap().held_keys), (8, 0));
}

#[tokio::test]
async fn a_migration_that_ended_after_any_of_its_steps_can_be_repeated() {
    let sql = MysqlStore::schema_sql(&Prefix::default(), 8);
    let steps: Vec<&str> = sql.split_inclusive(";\n").collect();
    assert!(steps.len() >= 10, "{}", steps.len());
    for done in 0..=steps.len() {
        let database = Database::new().await;
        let store = database.store().await.with_lanes(8).unwrap();
        for step in steps.iter().take(done).filter(|step| !step.trim().is_empty()) {
            execute(&store, step).await;
        }
        store.migrate().await.unwrap_or_else(|error| panic!("after {done} steps: {error}"));
        write(&store, &[event("k")]).await;
        assert_eq!(store.stats().await.unwrap().pending, 1, "after {done} steps");
    }
}

#[tokio::test]
async fn a_session_that_is_not_strict_is_told_what_can_never_be_delivered_too() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let mut conn = store.pool().acquire().await.unwrap();
    sqlx::raw_sql("SET SESSION sql_mode = ''").execute(&mut *conn).await.unwrap();
    let long = "x".repeat(300);
    for column in [
        "event_id",
        "event_type",
        "aggregate_type",
        "aggregate_id",
        "ordering_key",
        "tenant_id",
        "content_type",
    ] {
        let more = if column == "event_type" { "" } else { ", event_type" };
        let value = if column == "event_type" { "" } else { ", 'X'" };
        let sql =
            format!("INSERT INTO postrider_event (payload, {column}{more}) VALUES ('{{}}', '{long}'{value})");
        assert!(sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *conn).await.is_err(), "{column} was cut");
    }
    // What has no default becomes empty in such a session.
    let sql = "INSERT INTO postrider_event (event_type, payload) VALUES ('X', '1'), (NULL, '2')";
    assert!(sqlx::raw_sql(sql).execute(&mut *conn).await.is_err());
    let large = AssertSqlSafe(format!(
        "INSERT INTO postrider_event (event_type, payload) VALUES ('X', REPEAT('x', {}))",
        1024 * 1024 + 1
    ));
    assert!(sqlx::raw_sql(large).execute(&mut *conn).await.is_err());
    assert_eq!(store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn tables_in_another_character_set_are_refused() {
    let database = Database::new().await;
    let store = database.migrated().await;
    execute(&store, "ALTER TABLE postrider_pause CONVERT TO CHARACTER SET latin1 COLLATE latin1_bin").await;
    for error in [store.migrate().await.unwrap_err(), store.rehearse(false).await.unwrap_err()] {
        assert!(error.to_string().contains("latin1_bin; it must be utf8mb4"), "{error}");
    }
}

#[tokio::test]
async fn a_rehearsal_names_the_right_that_is_missing_and_leaves_nothing_behind() {
    let database = Database::new().await;
    let store = database.store().await;
    let error = store.rehearse(false).await.unwrap_err();
    assert!(matches!(error, Error::Schema(SchemaError::Missing { .. })), "{error}");
    store.rehearse(true).await.unwrap();
    assert_eq!(
        number(&store, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()")
            .await,
        0
    );
    store.migrate().await.unwrap();
    store.rehearse(false).await.unwrap();
    let relay = format!("r{}", database.0);
    execute(
        &store,
        &format!(
            "CREATE USER '{relay}'@'%' IDENTIFIED BY 'x'; CREATE USER '{relay}'@'localhost' IDENTIFIED BY 'x'"
        ),
    )
    .await;
    for host in ["%", "localhost"] {
        let user = format!("{relay}@{host}");
        execute(&store, &MysqlStore::grants_sql(&Prefix::default(), &user, &user, &user)).await;
    }
    let relaying = MysqlStore::connect(&database.url(Some(&format!("{relay}:x")))).await.unwrap();
    relaying.rehearse(true).await.unwrap();
    for (table, right) in [
        ("lane", "UPDATE"),
        ("done", "INSERT"),
        ("event", "DELETE"),
        ("member", "INSERT"),
        ("pause", "INSERT"),
        ("pause", "DELETE"),
    ] {
        for host in ["%", "localhost"] {
            execute(&store, &format!("REVOKE {right} ON postrider_{table} FROM '{relay}'@'{host}'")).await;
        }
        let error = relaying.rehearse(true).await.unwrap_err().to_string();
        assert!(error.contains(&format!("GRANT {right} ON postrider_{table} TO '{relay}'@'")), "{error}");
        for host in ["%", "localhost"] {
            execute(&store, &format!("GRANT {right} ON postrider_{table} TO '{relay}'@'{host}'")).await;
        }
    }
    relaying.close().await;
    execute(&store, &format!("DROP USER '{relay}'@'%', '{relay}'@'localhost'")).await;
}

#[tokio::test]
async fn a_foreign_table_of_any_of_our_names_is_refused_and_nothing_is_changed() {
    for (create, table) in [
        ("CREATE TABLE postrider_event (id INT)", "postrider_event"),
        ("CREATE VIEW postrider_lane AS SELECT 1", "postrider_lane"),
        ("CREATE TABLE postrider_meta (id INT)", "postrider_meta"),
        ("CREATE TABLE postrider_meta (name TEXT, value TEXT)", "postrider_meta"),
    ] {
        let database = Database::new().await;
        let store = database.store().await;
        execute(&store, create).await;
        let error = store.migrate().await.unwrap_err();
        assert!(
            matches!(&error, Error::Schema(SchemaError::Foreign { table: found }) if found == table),
            "{create}: {error}"
        );
        let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()";
        assert_eq!(number(&store, tables).await, 1);
    }
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let database = Database::new().await;
    let store = database.migrated().await;
    execute(&store, "UPDATE postrider_meta SET value = '99' WHERE name = 'schema_version'").await;
    let error = store.migrate().await.unwrap_err();
    assert!(matches!(error, Error::Schema(SchemaError::Newer { found: 99, known: 1 })), "{error}");
}

#[tokio::test]
async fn a_table_that_was_dropped_beside_the_others_is_named_and_nothing_is_changed() {
    let database = Database::new().await;
    let store = database.migrated().await;
    execute(&store, "DROP TABLE postrider_event").await;
    let error = store.migrate().await.unwrap_err();
    assert!(
        matches!(&error, Error::Schema(SchemaError::Dropped { table }) if table == "postrider_event"),
        "{error}"
    );
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()";
    assert_eq!(number(&store, tables).await, 6);
}

#[tokio::test]
async fn the_number_of_lanes_changes_only_while_the_outbox_is_empty_and_nobody_delivers() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let narrow = database.store().await.with_lanes(4).unwrap();

    let leases = lease(&store, std::time::Duration::from_secs(60)).await;
    let refused = |error: &Error| matches!(error, Error::Schema(SchemaError::Lanes { found: 64, wanted: 4 }));
    assert!(refused(&narrow.migrate().await.unwrap_err()));
    store.release(&leases.iter().map(|lease| (*lease, 0)).collect::<Vec<_>>()).await.unwrap();
    write(&store, &[event("a")]).await;
    assert!(refused(&narrow.migrate().await.unwrap_err()));
    execute(&store, "DELETE FROM postrider_event").await;

    narrow.migrate().await.unwrap();
    assert_eq!(narrow.features().lanes, 4);
    let events: Vec<_> =
        (0..40).map(|n| event(&n.to_string()).to_builder().key(n.to_string()).build().unwrap()).collect();
    write(&narrow, &events).await;
    assert_eq!(number(&narrow, "SELECT CAST(MAX(lane) AS SIGNED) FROM postrider_event").await, 3);
    assert_eq!(number(&narrow, "SELECT COUNT(*) FROM postrider_lane").await, 4);
    // Anyone who asks for no number takes what there is.
    let adopted = database.migrated().await;
    assert_eq!(adopted.features().lanes, 4);
}

#[tokio::test]
async fn a_plain_insert_of_a_type_and_a_payload_is_enough_and_a_hint_chooses_the_lane() {
    let database = Database::new().await;
    let store = database.migrated().await;
    execute(
        &store,
        "SET time_zone = '+05:00'; INSERT INTO postrider_event (event_type, payload) VALUES ('Plain', '{}');
         SET time_zone = '+00:00';
         INSERT INTO postrider_event (event_type, payload, lane_hint) VALUES ('Hinted', '{}', 71);
         INSERT INTO postrider_event (event_type, payload, lane_hint, ordering_key) VALUES ('Keyed', '{}', 71, 'k');
         INSERT INTO postrider_event (event_type, payload, aggregate_type, aggregate_id) VALUES ('Of', '{}', 'Order', '7')",
    )
    .await;
    assert_eq!(
        number(&store, "SELECT CAST(lane AS SIGNED) FROM postrider_event WHERE event_type = 'Hinted'").await,
        7
    );
    let keyed = "SELECT lane = CRC32('k') % 64 FROM postrider_event WHERE event_type = 'Keyed'";
    assert_eq!(number(&store, keyed).await, 1);
    let of = "SELECT lane = CRC32('Order:7') % 64 FROM postrider_event WHERE event_type = 'Of'";
    assert_eq!(number(&store, of).await, 1);
    let young = "SELECT COUNT(*) FROM postrider_event
                 WHERE ABS(TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP(6))) < 60 AND available_at = created_at";
    assert_eq!(number(&store, young).await, 4);
}

/// A server in FIPS mode refuses them. What SQL is made of lies in these folders, external tables included.
#[test]
fn no_statement_uses_a_hash_that_a_server_may_refuse() {
    fn search(folder: &Path, found: &mut Vec<String>, files: &mut usize) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("tests") {
                search(&path, found, files);
            } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "sql") {
                *files += 1;
                let text = fs::read_to_string(&path).unwrap().to_ascii_uppercase();
                let hashes = ["MD5(", "SHA1(", "SHA("].into_iter().filter(|hash| text.contains(hash));
                found.extend(hashes.map(|hash| format!("{hash}…) in {}", path.display())));
            }
        }
    }
    let (source, mut found, mut files) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), Vec::new(), 0);
    for folder in ["mysql", "profile"] {
        search(&source.join(folder), &mut found, &mut files);
    }
    assert!(files > 40, "only {files} files were searched");
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn keys_and_ids_compare_as_bytes() {
    let database = Database::new().await;
    let store = database.migrated().await;
    write(&store, &["a", "A", "a ", "ä"].map(event)).await;
    assert_eq!(number(&store, "SELECT COUNT(DISTINCT event_id) FROM postrider_event").await, 4);
}
