//! Opening a store: at a server that falls silent at any point, and with a role whose statements may take next to no time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use postrider::{Error, Store, StoreErrorKind, postgres::PgStore};
use postrider_sqlx::profile::{Profile, ProfileStore};
use postrider_testkit::{
    conformance::Failure,
    proxy::{Direction, Proxy},
};
use tokio::task::{JoinSet, LocalSet};

use crate::{
    database::{Database, Kind, lazy_store},
    time::{TIMEOUT, until},
};

/// How long opening may take at a server that says nothing, on a busy machine. A store gives up after about five seconds.
const LONGEST: Duration = Duration::from_secs(20);

/// How long each answer takes, so that a test can see one go by before the next.
const ANSWER: Duration = Duration::from_millis(50);

/// FlowCatalyst's table, as far as both databases spell it alike.
const FLOWCATALYST: &str = "CREATE TABLE outbox_events (id VARCHAR(13) PRIMARY KEY, type VARCHAR(20) NOT NULL, message_group VARCHAR(255), \
     payload TEXT NOT NULL, status VARCHAR(20) NOT NULL DEFAULT 'PENDING', retry_count INT NOT NULL DEFAULT 0, \
     created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, processed_at TIMESTAMP NULL, error_message TEXT)";

/// What is opened.
#[derive(Debug, Clone, Copy)]
enum Table {
    Own,
    External,
}

/// Opens a store and tries what delivery does, as the relay does before it delivers.
async fn open(table: Table, url: &str) -> postrider::Result<()> {
    match table {
        Table::Own => postrider::connect(url).await?.store.rehearse(false).await,
        Table::External => {
            ProfileStore::connect(url, Profile::flowcatalyst_events()).await?.rehearse(false).await
        }
    }
}

/// Opens a store at a server that falls silent once it has answered with so many packets. True if it was open before.
async fn opened_at_a_server_that_falls_silent(
    database: &Database,
    table: Table,
    after: usize,
) -> Result<bool, Failure> {
    let proxy = Proxy::start(database.address()?).await?;
    proxy.delay(Direction::ToClient, ANSWER);
    let url = database.url_by(&proxy.address().to_string())?;
    if after == 0 {
        proxy.stall(Direction::ToClient);
    }
    let silence = async {
        let (mut answers, mut bytes) = (0, 0);
        let look = async || {
            let now = proxy.forwarded_bytes(Direction::ToClient);
            if now > bytes {
                (answers, bytes) = (answers + 1, now);
            }
            Ok((answers >= after).then(|| proxy.stall(Direction::ToClient)))
        };
        until("it has answered", TIMEOUT, look).await?;
        std::future::pending::<Result<(), Failure>>().await
    };
    let began = Instant::now();
    let opening = tokio::time::timeout(LONGEST, open(table, &url));
    let opened = tokio::select! {
        opened = opening => opened,
        failed = silence => return failed.map(|()| false),
    };
    let case = format!("{:?} {table:?} after {after} answers", database.kind);
    let opened = opened.map_err(|_| format!("{case}: still waiting after {:?}", began.elapsed()))?;
    match opened {
        Ok(()) => Ok(true),
        Err(Error::Store(error)) if error.kind() == StoreErrorKind::Unreachable => Ok(false),
        Err(error) => Err(format!("{case}: {error:?}").into()),
    }
}

async fn a_silent_server_is_unreachable(kind: Kind, table: Table) -> Result<(), Failure> {
    let database = Database::new(kind).await?;
    match table {
        Table::Own => lazy_store(kind, &database.url()?)?.migrate().await?,
        Table::External => {
            database.run(FLOWCATALYST).await?;
            ProfileStore::connect(&database.url()?, Profile::flowcatalyst_events()).await?.migrate().await?;
        }
    }
    let database = Arc::new(database);
    let all = async move {
        let mut cases = JoinSet::new();
        for after in (0..24).step_by(2) {
            let database = Arc::clone(&database);
            cases.spawn_local(async move {
                let opened = opened_at_a_server_that_falls_silent(&database, table, after).await?;
                assert!(after > 0 || !opened, "it was open although nothing was answered");
                Ok::<(), Failure>(())
            });
        }
        cases.join_all().await.into_iter().collect()
    };
    LocalSet::new().run_until(all).await
}

#[tokio::test]
async fn a_postgresql_server_that_falls_silent_while_a_store_is_opened_is_unreachable() -> Result<(), Failure>
{
    a_silent_server_is_unreachable(Kind::Postgres, Table::Own).await
}

#[tokio::test]
async fn a_mysql_server_that_falls_silent_while_a_store_is_opened_is_unreachable() -> Result<(), Failure> {
    a_silent_server_is_unreachable(Kind::Mysql, Table::Own).await
}

#[tokio::test]
async fn a_postgresql_server_that_falls_silent_while_an_external_table_is_opened_is_unreachable()
-> Result<(), Failure> {
    a_silent_server_is_unreachable(Kind::Postgres, Table::External).await
}

#[tokio::test]
async fn a_mysql_server_that_falls_silent_while_an_external_table_is_opened_is_unreachable()
-> Result<(), Failure> {
    a_silent_server_is_unreachable(Kind::Mysql, Table::External).await
}

/// The role's own limit is for the statements of others: ours have their own, from the first on.
#[tokio::test]
async fn a_role_whose_statements_may_take_next_to_no_time_can_open_a_store() -> Result<(), Failure> {
    let database = Database::new(Kind::Postgres).await?;
    lazy_store(Kind::Postgres, &database.url()?)?.migrate().await?;
    let role = format!("hasty_{}", database.name());
    database.add_user(&role).await?;
    // Every look at the catalog takes longer than that.
    database
        .run(&format!(
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}; ALTER ROLE {role} SET statement_timeout = '1ms'"
        ))
        .await?;
    let url = database.url_as(&role)?;
    let opened = async {
        for _ in 0..10 {
            let store = PgStore::connect(&url).await?;
            store.check().await?;
            store.close().await;
        }
        Ok::<(), Error>(())
    };
    let opened = opened.await;
    database.drop_user(&role).await?;
    Ok(opened?)
}
