//! Where the tables are, what a database must be like, and whether delivery can work there.

use postrider_core::{Error, SchemaError, Store, StoreErrorKind, tx::Prefix};
use postrider_sqlx::PgStore;

use super::support::{self, Database, Owner, event, write};

/// The URL with another search path, spelled as a URL wants it.
fn along(url: &str, path: &str) -> String {
    let path: String = path.bytes().map(|byte| format!("%{byte:02X}")).collect();
    // The parameter has a syntax of its own, in which a backslash stands before a blank.
    format!("{url}?options=-csearch_path%3D{}", path.replace("%20", "%5C%20"))
}

async fn open(url: &str) -> Result<PgStore, Error> {
    PgStore::builder().pooled(false).connections(2).connect(url).await
}

#[tokio::test]
async fn tables_are_found_along_the_search_path_and_a_second_set_is_refused() {
    let database = Database::new().await;
    database.run("CREATE SCHEMA one; CREATE SCHEMA two").await;
    let (first, both) = (along(&database.url(), "one"), along(&database.url(), "two, one"));
    open(&first).await.unwrap().migrate().await.unwrap();
    let store = open(&both).await.unwrap();
    store.migrate().await.unwrap();
    let sets = "SELECT count(*) FROM pg_class WHERE relname = 'postrider_event'";
    assert_eq!(database.number(sets).await, 1, "a second, empty set was made");
    // A pool of the program's own has no search path but its own.
    let pool = sqlx::PgPool::connect(&both).await.unwrap();
    PgStore::new(pool.clone()).unwrap().migrate().await.unwrap();
    assert_eq!(database.number(sets).await, 1);
    write(&store, &[event("k")]).await;
    assert_eq!(database.number("SELECT count(*) FROM one.postrider_event").await, 1);

    open(&along(&database.url(), "two")).await.unwrap().migrate().await.unwrap();
    assert_eq!(store.stats().await.unwrap().pending, 1, "who was there before stays where it is");
    let of_pool = PgStore::new(pool).unwrap();
    for error in [
        open(&both).await.unwrap_err(),
        of_pool.migrate().await.unwrap_err(),
        of_pool.check().await.unwrap_err(),
    ] {
        let Error::Schema(SchemaError::Twice { schemas, .. }) = &error else { panic!("{error}") };
        assert_eq!(*schemas, ["two", "one"]);
        assert!(error.to_string().contains("in the schemas two and one: drop those"), "{error}");
    }
}

#[tokio::test]
async fn a_search_path_that_leads_past_the_tables_is_told_where_they_are() {
    let database = Database::new().await;
    database.run("CREATE SCHEMA one; CREATE SCHEMA two").await;
    let past = open(&along(&database.url(), "two")).await.unwrap();
    let error = past.rehearse(false).await.unwrap_err();
    assert!(matches!(error, Error::Schema(SchemaError::Missing { .. })), "{error}");
    open(&along(&database.url(), "one")).await.unwrap().migrate().await.unwrap();
    let error = past.rehearse(false).await.unwrap_err().to_string();
    assert!(
        error.contains("the search path leads to no table postrider_meta; there is one in the schema one"),
        "{error}"
    );

    // Who may not make tables of its own is told the same when it would.
    let role = format!("past_{}", database.name);
    database
        .run(&format!("CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA two TO {role}"))
        .await;
    let url = database.url_of(&role, "x");
    let (past, nowhere) =
        (open(&along(&url, "two")).await.unwrap(), open(&along(&url, "one")).await.unwrap());
    for error in [
        past.migrate().await.unwrap_err(),
        past.rehearse(true).await.unwrap_err(),
        nowhere.migrate().await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Schema(SchemaError::Elsewhere { schemas, .. }) if schemas == &["one"]),
            "{error}"
        );
    }
    past.close().await;
    nowhere.close().await;
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_schema_can_have_any_name() {
    let database = Database::new().await;
    for quoted in ["\"MyApp\"", "\"Odd Schema\"", "\"a\"\"b\"", "\"select\""] {
        database.run(&format!("CREATE SCHEMA {quoted}")).await;
        let store = open(&along(&database.url(), quoted)).await.unwrap();
        store.migrate().await.unwrap_or_else(|error| panic!("{quoted}: {error:?}"));
        store.rehearse(false).await.unwrap();
        // Those who come later find them there.
        let store = open(&along(&database.url(), &format!("{quoted}, public"))).await.unwrap();
        store.migrate().await.unwrap();
        write(&store, &[event("k")]).await;
        let mut owner = Owner::lease(&store).await;
        assert_eq!(owner.claim(&store).await.events.len(), 1, "{quoted}");
        assert_eq!(database.number(&format!("SELECT count(*) FROM {quoted}.postrider_event")).await, 1);
        store.close().await;
        database.run(&format!("DROP SCHEMA {quoted} CASCADE")).await;
    }
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused_with_what_to_do() {
    for encoding in ["SQL_ASCII", "LATIN1"] {
        let name = format!("{}_{}_{}", encoding.to_lowercase(), std::process::id(), "of_sqlx");
        let create = format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        );
        support::run(&support::server(), &create).await;
        let store = open(&support::with_database(&support::server(), &name)).await.unwrap();
        for error in [
            store.migrate().await.unwrap_err(),
            store.check().await.unwrap_err(),
            store.rehearse(true).await.unwrap_err(),
        ] {
            let told = format!(
                "the database's server_encoding is {encoding}; it must be UTF8: make a database with"
            );
            assert!(error.to_string().contains(&told), "{error}");
        }
        store.close().await;
        support::run(&support::server(), &format!("DROP DATABASE {name}")).await;
    }
}

#[tokio::test]
async fn a_rehearsal_leaves_nothing_behind_and_says_what_cannot_work() {
    let database = Database::new().await;
    let store = database.connect().await;
    store.rehearse(true).await.unwrap();
    let tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'postrider%'";
    assert_eq!(database.number(tables).await, 0);
    assert!(matches!(store.rehearse(false).await, Err(Error::Schema(SchemaError::Missing { .. }))));
    store.migrate().await.unwrap();
    for migrate in [false, true] {
        store.rehearse(migrate).await.unwrap();
    }
    assert_eq!(database.number("SELECT count(*) FROM postrider_member").await, 0);

    // A column that somebody took away.
    database.run("ALTER TABLE postrider_event RENAME headers TO titles").await;
    let error = format!("{:?}", store.rehearse(true).await.unwrap_err());
    assert!(error.contains("headers"), "{error}");
    database.run("ALTER TABLE postrider_event RENAME titles TO headers").await;

    database.run(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name)).await;
    let read_only = database.connect().await;
    let error = read_only.rehearse(true).await.unwrap_err();
    assert!(matches!(&error, Error::Store(error) if error.kind() == StoreErrorKind::ReadOnly), "{error:?}");
}

#[tokio::test]
async fn a_rehearsal_names_the_right_that_is_missing() {
    let database = Database::new().await;
    database.migrated().await;
    let relay = format!("relay_{}", database.name);
    database
        .run(&format!("CREATE ROLE {relay} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA public TO {relay}"))
        .await;
    let store = open(&database.url_of(&relay, "x")).await.unwrap();
    let grants = PgStore::grants_sql(&Prefix::default(), &relay, &relay, &relay);
    database.run(&grants).await;
    store.rehearse(true).await.unwrap();
    for (table, right) in [
        ("event", "DELETE"),
        ("done", "INSERT"),
        ("lane", "UPDATE"),
        ("member", "INSERT"),
        ("meta", "SELECT"),
        ("pause", "INSERT"),
        ("pause", "DELETE"),
    ] {
        database.run(&format!("REVOKE {right} ON postrider_{table} FROM {relay}")).await;
        let error = store.rehearse(false).await.unwrap_err().to_string();
        assert!(error.contains(&format!("`GRANT {right} ON postrider_{table} TO {relay}`")), "{error}");
        database.run(&format!("GRANT {right} ON postrider_{table} TO {relay}")).await;
    }
    store.close().await;
    database.run(&format!("DROP OWNED BY {relay}; DROP ROLE {relay}")).await;
}

#[tokio::test]
async fn every_kind_of_insert_falls_into_the_lane_of_its_key() {
    let database = Database::new().await;
    let store = database.migrated().await;
    write(&store, &[event("k")]).await;
    database
        .run(
            "INSERT INTO postrider_event (event_type, ordering_key, payload, lane_hint) VALUES ('X', 'k', '1', 7);
             INSERT INTO postrider_event (event_type, ordering_key, payload) SELECT 'X', 'k', '2';
             INSERT INTO postrider_event (event_type, ordering_key, payload, lane) VALUES ('X', 'k', '3', 5);",
        )
        .await;
    let mut conn = database.raw().await;
    let mut copy = conn
        .copy_in_raw("COPY postrider_event (event_type, ordering_key, payload) FROM STDIN")
        .await
        .unwrap();
    copy.send("X\tk\t4\n".as_bytes()).await.unwrap();
    copy.finish().await.unwrap();
    assert_eq!(database.number("SELECT count(DISTINCT lane) FROM postrider_event").await, 1);
    assert_eq!(database.number("SELECT count(*) FROM postrider_event").await, 5);
}

#[cfg(feature = "profiles")]
#[tokio::test]
async fn an_external_table_can_be_in_any_encoding_but_none() {
    use postrider_sqlx::{Profile, ProfileStore};
    for (encoding, readable) in [("LATIN1", true), ("SQL_ASCII", false)] {
        let name = format!("{}_{}_of_profile", encoding.to_lowercase(), std::process::id());
        let create = format!(
            "CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        );
        support::run(&support::server(), &create).await;
        let url = support::with_database(&support::server(), &name);
        support::run(
            &url,
            "CREATE TABLE outbox_events (id VARCHAR(13) PRIMARY KEY, type VARCHAR(20) NOT NULL, message_group VARCHAR(255),
                 payload TEXT NOT NULL, status VARCHAR(20) NOT NULL DEFAULT 'PENDING', retry_count INT NOT NULL DEFAULT 0,
                 created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, processed_at TIMESTAMP NULL, error_message TEXT)",
        )
        .await;
        match ProfileStore::connect(&url, Profile::flowcatalyst_events()).await {
            Ok(store) => {
                assert!(readable, "{encoding}");
                store.rehearse(true).await.unwrap();
                let error = store.rehearse(false).await.unwrap_err();
                assert!(matches!(error, Error::Schema(SchemaError::Missing { .. })), "{error}");
                store.close().await;
            }
            Err(error) => {
                assert!(!readable && error.to_string().contains("server_encoding is SQL_ASCII"), "{error}");
            }
        }
        support::run(&support::server(), &format!("DROP DATABASE {name} WITH (FORCE)")).await;
    }
}
