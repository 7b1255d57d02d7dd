//! Creating, upgrading, printing and refusing tables.

mod support;

use std::time::Duration;

use postrider_core::{Error, SchemaError, Store, StoreErrorKind, rng::Rng, store::LeaseRequest, tx::Prefix};
use postrider_sqlx::SqliteStore;
use support::{Folder, execute, number, shell};

fn kind(error: &Error) -> Option<StoreErrorKind> {
    match error {
        Error::Store(error) => Some(error.kind()),
        _ => None,
    }
}

#[tokio::test]
async fn the_printed_schema_applied_by_hand_is_the_migrated_one() {
    // S2-2
    let folder = Folder::new();
    for prefix in [Prefix::default(), Prefix::new("shop_").unwrap()] {
        let (by_hand, migrated) =
            (folder.file(&format!("{prefix}hand")), folder.file(&format!("{prefix}own")));
        shell(&by_hand, &SqliteStore::schema_sql(&prefix));
        let store = SqliteStore::connect_with_prefix(&migrated, prefix.clone()).await.unwrap();
        store.migrate().await.unwrap();

        let master = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name";
        assert_eq!(shell(&by_hand, master), shell(&migrated, master));
        for table in ["lane", "meta"] {
            let rows = format!("SELECT * FROM {prefix}{table}");
            assert_eq!(shell(&by_hand, &rows), shell(&migrated, &rows));
        }
        // And the tables that were made by hand are known as ours.
        SqliteStore::connect_with_prefix(&by_hand, prefix).await.unwrap().migrate().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_can_migrate_at_once_and_again() {
    let folder = Folder::new();
    let file = folder.file("outbox.db");
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let file = file.clone();
            tokio::spawn(async move { SqliteStore::connect(&file).await?.migrate().await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let store = SqliteStore::connect(&file).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM postrider_lane").await, 1);
}

#[tokio::test]
async fn two_outboxes_with_different_prefixes_live_in_one_database() {
    let store = support::in_memory().await;
    let other = SqliteStore::with_prefix(store.pool().clone(), Prefix::new("other_").unwrap());
    other.migrate().await.unwrap();
    support::write(&other, [support::event("a")]).await;
    assert_eq!(other.stats().await.unwrap().pending, 1);
    assert_eq!(store.stats().await.unwrap().pending, 0);
}

#[tokio::test]
async fn a_foreign_table_of_any_of_our_names_is_refused_and_nothing_is_changed() {
    for (create, table) in [
        ("CREATE TABLE postrider_event (id)", "postrider_event"),
        ("CREATE TABLE postrider_hold (id)", "postrider_hold"),
        ("CREATE TABLE Postrider_Done (id)", "Postrider_Done"),
        ("CREATE VIEW postrider_lane AS SELECT 1", "postrider_lane"),
        ("CREATE TABLE postrider_meta (id)", "postrider_meta"),
        ("CREATE TABLE postrider_meta (name, value)", "postrider_meta"),
        (
            "CREATE TABLE postrider_meta (name, value); INSERT INTO postrider_meta VALUES ('schema_version', 'x')",
            "postrider_meta",
        ),
    ] {
        let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
        execute(&store, create).await;
        let error = store.migrate().await.unwrap_err();
        assert!(
            matches!(&error, Error::Schema(SchemaError::Foreign { table: found }) if found == table),
            "{create}: {error}"
        );
        assert_eq!(number(&store, "SELECT count(*) FROM sqlite_master").await, 1);
    }
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused_and_not_changed() {
    let store = support::in_memory().await;
    execute(&store, "UPDATE postrider_meta SET value = '99' WHERE name = 'schema_version'").await;
    let error = store.migrate().await.unwrap_err();
    assert!(matches!(error, Error::Schema(SchemaError::Newer { found: 99, known: 1 })), "{error}");
    assert_eq!(
        number(&store, "SELECT value + 0 FROM postrider_meta WHERE name = 'schema_version'").await,
        99
    );
}

#[tokio::test]
async fn a_table_that_was_dropped_beside_the_others_is_named_and_nothing_is_changed() {
    let store = support::in_memory().await;
    execute(&store, "DROP TABLE postrider_event").await;
    let tables = number(&store, "SELECT count(*) FROM sqlite_master").await;
    for error in [store.migrate().await.unwrap_err(), store.rehearse(true).await.unwrap_err()] {
        let is_dropped = |table: &str| table == "postrider_event";
        assert!(
            matches!(&error, Error::Schema(SchemaError::Dropped { table }) if is_dropped(table)),
            "{error}"
        );
    }
    assert_eq!(number(&store, "SELECT count(*) FROM sqlite_master").await, tables);
}

#[tokio::test]
async fn a_verb_without_tables_says_which_is_missing() {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    let error = store.stats().await.unwrap_err();
    assert!(
        matches!(&error, Error::Schema(SchemaError::Missing { table }) if table.starts_with("postrider_")),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_that_is_no_database_is_called_corrupt_and_named() {
    let folder = Folder::new();
    let file = folder.file("letter.txt");
    std::fs::write(&file, "Dear Sir or Madam, ".repeat(100)).unwrap();
    let error = SqliteStore::connect(&file).await.unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Corrupt));
    assert!(error.to_string().contains(&file), "{error}");
}

#[tokio::test]
async fn a_missing_folder_is_not_created() {
    let folder = Folder::new();
    let file = folder.file("missing/outbox.db");
    let error = SqliteStore::connect(&format!("sqlite://{file}")).await.unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Unreachable));
    assert!(error.to_string().contains(&file), "{error}");
}

#[tokio::test]
async fn a_read_only_file_can_be_looked_at_and_not_written() {
    let folder = Folder::new();
    let file = folder.file("outbox.db");
    let url = format!("sqlite://{file}?mode=ro");
    let writer = SqliteStore::connect(&file).await.unwrap();
    let reader = SqliteStore::connect(&url).await.unwrap();
    let too_early = reader.migrate().await.unwrap_err();
    writer.migrate().await.unwrap();

    reader.migrate().await.unwrap();
    assert_eq!(reader.stats().await.unwrap().pending, 0);
    let request =
        LeaseRequest { owner: String::new(), ttl: Duration::ZERO, nonces: Rng::seeded(1), most: usize::MAX };
    for error in [too_early, reader.lease(&request).await.unwrap_err()] {
        assert_eq!(kind(&error), Some(StoreErrorKind::ReadOnly));
        assert!(error.to_string().contains(&file), "{error}");
    }
}

#[tokio::test]
async fn a_lock_that_stays_is_called_busy() {
    let folder = Folder::new();
    let file = folder.file("outbox.db");
    let store = SqliteStore::connect(&file).await.unwrap();
    store.migrate().await.unwrap();
    // A pool of the program's own, whose connections do not wait by themselves.
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file);
    let impatient = sqlx::SqlitePool::connect_with(options.busy_timeout(Duration::ZERO)).await.unwrap();

    let lock = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = SqliteStore::new(impatient).redrive(&["a".into()]).await.unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Busy));
    lock.rollback().await.unwrap();
}

#[tokio::test]
async fn a_new_file_is_in_wal_mode_and_memory_has_one_connection() {
    let folder = Folder::new();
    let store = SqliteStore::connect(&format!("sqlite:{}", folder.file("outbox.db"))).await.unwrap();
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(store.pool()).await.unwrap();
    assert_eq!(mode, "wal");
    assert_eq!(number(&store, "PRAGMA synchronous").await, 1);
    assert_eq!(number(&store, "PRAGMA busy_timeout").await, 5000);
    assert_eq!(store.pool().options().get_max_connections(), 4);

    let memory = support::in_memory().await;
    assert_eq!(memory.pool().options().get_max_connections(), 1);
    assert_eq!(memory.pool().options().get_max_lifetime(), None);
    assert_eq!(memory.pool().options().get_idle_timeout(), None);
}

#[tokio::test]
async fn a_file_whose_texts_are_utf_16_is_refused_with_what_to_do() {
    let folder = Folder::new();
    for encoding in ["UTF-16", "UTF-16le", "UTF-16be"] {
        let file = folder.file(encoding);
        shell(&file, &format!("PRAGMA encoding = '{encoding}'; CREATE TABLE shop (id INTEGER)"));
        let store = SqliteStore::connect(&file).await.unwrap();
        for refused in [store.check().await, store.migrate().await, store.rehearse(true).await] {
            let error = refused.unwrap_err();
            assert!(
                matches!(&error, Error::Schema(SchemaError::Setting { setting: "encoding", found, .. }) if found.starts_with("UTF-16")),
                "{error:?}"
            );
            assert!(error.to_string().contains("`PRAGMA encoding = 'UTF-8'`"), "{error}");
        }
        assert_eq!(shell(&file, "SELECT count(*) FROM sqlite_master"), "1\n", "nothing was made there");
    }
}
