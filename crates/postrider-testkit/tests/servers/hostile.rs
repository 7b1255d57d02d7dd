//! A MariaDB server whose defaults are against us: what our sessions need they set themselves.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use postrider::{Backoff, Delivery, Event, Outbox, Outcome, Store, mysql::MysqlStore};
use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, mysql::MySqlConnectOptions};

use crate::{
    server::Server,
    time::{TIMEOUT, until},
};

/// What every session begins with, unless it says otherwise.
const HOSTILE: &str = "SET GLOBAL tx_isolation = 'SERIALIZABLE'; SET GLOBAL autocommit = 0; SET GLOBAL completion_type = 'CHAIN'; \
     SET GLOBAL sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,PAD_CHAR_TO_FULL_LENGTH'; \
     SET GLOBAL time_zone = '+05:45'; SET GLOBAL max_statement_time = 0.02; SET GLOBAL innodb_lock_wait_timeout = 1; \
     SET GLOBAL lock_wait_timeout = 1; SET GLOBAL idle_transaction_timeout = 1; SET GLOBAL sql_select_limit = 1; \
     SET GLOBAL sql_safe_updates = 1; SET GLOBAL character_set_server = 'latin1'";

#[tokio::test]
async fn everything_is_delivered_from_a_mariadb_whose_defaults_are_against_us() -> Result<(), Failure> {
    let server = Server::borrow("mariadb")?;
    let mut admin = MySqlConnection::connect(&server.url).await?;
    sqlx::raw_sql("CREATE DATABASE hostile CHARACTER SET utf8mb4").execute(&mut admin).await?;
    sqlx::raw_sql(AssertSqlSafe(HOSTILE)).execute(&mut admin).await?;
    let options: MySqlConnectOptions = server.url.parse()?;
    // The program's own sessions are its own to set.
    let pool = sqlx::mysql::MySqlPoolOptions::new()
        .after_connect(|conn, _| {
            Box::pin(async move {
                let calm = "SET autocommit = 1, completion_type = 0, sql_mode = DEFAULT, max_statement_time = 0, \
                            sql_select_limit = 1000000, sql_safe_updates = 0, tx_isolation = 'REPEATABLE-READ'";
                sqlx::raw_sql(calm).execute(conn).await?;
                Ok(())
            })
        })
        .connect_lazy_with(options.database("hostile"));
    let store = MysqlStore::new(pool);
    store.migrate().await?;

    let orders: Arc<Mutex<BTreeMap<String, Vec<String>>>> = Arc::default();
    let seen = Arc::clone(&orders);
    let outbox = Outbox::builder()
        .store(store.clone())
        .retry(Backoff::fixed(Duration::from_millis(50)))
        .on("Tested", move |delivery: Delivery| {
            let (key, text) =
                (delivery.key().unwrap_or_default(), delivery.payload().as_text().unwrap_or_default());
            // The head of every key fails at first: its followers are parked, and come back.
            let fails = delivery.attempt < 3 && text == "0";
            if !fails {
                seen.lock().unwrap().entry(key.to_owned()).or_default().push(text.to_owned());
            }
            std::future::ready(if fails {
                Outcome::retry("at first: 'ä' \\ \"ö\"")
            } else {
                Outcome::Delivered
            })
        })
        .start()
        .await?;
    for n in 0..10 {
        let events = (0..8).map(|key| Event::json_text("Tested", n.to_string()).key(format!("k\\{key}'ü")));
        let mut tx = store.pool().begin().await?;
        let receipts = outbox.write_all(&mut tx, events).await?;
        tx.commit().await?;
        receipts.committed();
    }
    let all = async || Ok((outbox.stats().await?.done == 80).then_some(()));
    until("all is delivered and settled", TIMEOUT, all).await?;
    let in_order: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    for (key, seen) in &*orders.lock().unwrap() {
        assert_eq!(*seen, in_order, "{key}");
    }
    // A peek leaves no transaction open, whose lock would keep everybody from altering the table.
    assert!(store.peek().await?.is_some());
    sqlx::raw_sql("ALTER TABLE postrider_event COMMENT = 'altered'").execute(store.pool()).await?;
    outbox.shutdown().await;
    Ok(())
}
