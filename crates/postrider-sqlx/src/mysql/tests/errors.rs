use postrider_core::{
    CallerTx, Error, SchemaError, Store, StoreErrorKind,
    tx::{OnDuplicate, Prefix},
};

use super::{Database, event, execute, on_server, write};
use crate::MysqlStore;

fn kind(error: &Error) -> Option<StoreErrorKind> {
    match error {
        Error::Store(error) => Some(error.kind()),
        _ => None,
    }
}

#[tokio::test]
async fn a_wrong_password_a_missing_database_and_a_closed_port_are_told_without_the_password() {
    let database = Database::new().await;
    let wrong = database.url(Some("nobody:topsecret"));
    let error = MysqlStore::connect(&wrong).await.unwrap_err();
    assert_eq!(kind(&error), Some(StoreErrorKind::Denied), "{error:?}");
    let missing = database.url(None).replace(&database.0, "no_such_database");
    let error = MysqlStore::connect(&missing).await.unwrap_err();
    assert!(error.to_string().contains("the database does not exist"), "{error:?}");
    let closed = "mysql://user:topsecret@127.0.0.1:1/shop";
    let unreachable = MysqlStore::connect(closed).await.unwrap_err();
    assert_eq!(kind(&unreachable), Some(StoreErrorKind::Unreachable), "{unreachable:?}");
    for error in [error, unreachable] {
        assert!(!format!("{error} {error:?}").contains("topsecret"), "{error:?}");
    }
}

#[tokio::test]
async fn neither_the_store_nor_its_debug_form_shows_the_password() {
    let database = Database::new().await;
    let store = database.store().await;
    let url = database.url(None);
    let password = url.split(['@', ':']).nth(2).unwrap_or("no password").trim_start_matches('/').to_owned();
    let shown = format!("{store:?}");
    assert!(shown.contains(&database.0) && !shown.contains(&password), "{shown}");
}

#[tokio::test]
async fn a_verb_without_tables_says_which_is_missing() {
    let database = Database::new().await;
    let store = database.store().await;
    let error = store.stats().await.unwrap_err();
    let missing = |error: &Error| matches!(error, Error::Schema(SchemaError::Missing { table }) if table == "postrider_event");
    assert!(missing(&error), "{error}");
    let mut tx = store.pool().begin().await.unwrap();
    let error = (&mut tx).insert(store.target(), &[event("a")], OnDuplicate::Fail).await.unwrap_err();
    assert!(missing(&error), "{error}");
}

#[tokio::test]
async fn a_missing_column_is_an_error_that_says_so() {
    let database = Database::new().await;
    let store = database.migrated().await;
    execute(&store, "ALTER TABLE postrider_hold DROP COLUMN until").await;
    let error = store.why("k").await.unwrap_err();
    assert!(error.to_string().contains("a column is missing"), "{error:?}");
}

/// A writer can write and nothing else; a relay can deliver; an operator can look and redrive.
#[tokio::test]
async fn the_printed_rights_are_enough_for_each_role_and_no_more() {
    let database = Database::new().await;
    let store = database.migrated().await;
    let name = |role: &str| format!("{role}_{}", database.0.trim_start_matches("postrider_sqlx_"));
    let mut grants = MysqlStore::grants_sql(&Prefix::default(), "writer", "relay", "operator");
    for role in ["writer", "relay", "operator"] {
        // Under both names of the host: a server may have an anonymous user for one of them, which would come first.
        let (user, password) = (name(role), "IDENTIFIED BY 'topsecret'");
        on_server(format!("CREATE USER '{user}'@'%' {password}, '{user}'@'localhost' {password}")).await;
        grants = grants.replace(&format!("'{role}'@'%'"), &format!("'{user}'@'%', '{user}'@'localhost'"));
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(grants)).execute(store.pool()).await.unwrap();
    let of = async |role: &str| {
        MysqlStore::connect(&database.url(Some(&format!("{}:topsecret", name(role))))).await.unwrap()
    };

    let (writer, relay, operator) = (of("writer").await, of("relay").await, of("operator").await);
    write(&writer, &[event("a")]).await;
    let refused = writer.join("writer", std::time::Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(kind(&refused), Some(StoreErrorKind::Denied), "{refused:?}");
    relay.join("relay", std::time::Duration::from_secs(9)).await.unwrap();
    let leases = super::lease(&relay, std::time::Duration::from_secs(9)).await;
    super::fence::settle_one(&relay, &leases, super::fence::dead()).await;
    relay.purge(std::time::Duration::ZERO, 10).await.unwrap();
    assert_eq!(operator.dead(0, 10).await.unwrap().len(), 1);
    assert_eq!(operator.redrive(&["a".into()]).await.unwrap(), 1);
    operator.stats().await.unwrap();
    for role in ["writer", "relay", "operator"] {
        on_server(format!("DROP USER '{0}'@'%', '{0}'@'localhost'", name(role))).await;
    }
}
