//! The drivers, each behind the same few commands.
//!
//! Some of their transactions borrow a connection, which no struct of a test can hold beside them. So each lives in a task of its
//! own that does as it is told.

use std::future::Future;

use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection, TransactionManager};
use postrider_core::{CallerTx, Event, Result, Target, tx::OnDuplicate};
use postrider_testkit::conformance::Failure;
use sea_orm::{ConnectOptions, ConnectionTrait, DatabaseTransaction, TransactionTrait};
use tokio::sync::{mpsc, oneshot};

/// What a transaction is told, and where the answer goes.
pub(crate) enum Command {
    Insert(Vec<Event>, OnDuplicate, oneshot::Sender<Result<Vec<bool>>>),
    Run(String, oneshot::Sender<Result<(), Failure>>),
    Commit(oneshot::Sender<Result<(), Failure>>),
    Rollback(oneshot::Sender<Result<(), Failure>>),
}

pub(crate) type Commands = mpsc::UnboundedReceiver<Command>;

/// A way to a transaction.
pub(crate) trait Driver: Send + Sync + 'static {
    /// Connects, begins, does as it is told, and drops the transaction when nobody tells it anything any more.
    fn serve(
        url: String,
        target: Target,
        commands: Commands,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A transaction of any driver.
trait Hands: Send + Sized {
    fn insert(
        &mut self,
        target: &Target,
        events: &[Event],
        on_duplicate: OnDuplicate,
    ) -> impl Future<Output = Result<Vec<bool>>> + Send;
    fn run(&mut self, sql: &str) -> impl Future<Output = Result<(), Failure>> + Send;
    fn commit(self) -> impl Future<Output = Result<(), Failure>> + Send;
    fn rollback(self) -> impl Future<Output = Result<(), Failure>> + Send;
}

async fn obey(mut hands: impl Hands, target: Target, mut commands: Commands) -> Result<(), Failure> {
    while let Some(command) = commands.recv().await {
        match command {
            Command::Insert(events, on_duplicate, answer) => {
                let _ = answer.send(hands.insert(&target, &events, on_duplicate).await);
            }
            Command::Run(sql, answer) => {
                let _ = answer.send(hands.run(&sql).await);
            }
            Command::Commit(answer) => {
                let _ = answer.send(hands.commit().await);
                break;
            }
            Command::Rollback(answer) => {
                let _ = answer.send(hands.rollback().await);
                break;
            }
        }
    }
    Ok(())
}

/// A client of tokio-postgres, with the task that its connection needs.
pub(crate) async fn client(url: &str) -> Result<tokio_postgres::Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

pub(crate) fn pool(url: &str) -> Result<deadpool_postgres::Pool, Failure> {
    let manager = deadpool_postgres::Manager::new(url.parse()?, tokio_postgres::NoTls);
    Ok(deadpool_postgres::Pool::builder(manager).max_size(1).build()?)
}

pub(crate) struct TokioPostgres;

impl Driver for TokioPostgres {
    async fn serve(url: String, target: Target, commands: Commands) -> Result<(), Failure> {
        let mut client = client(&url).await?;
        obey(client.transaction().await?, target, commands).await
    }
}

impl Hands for tokio_postgres::Transaction<'_> {
    async fn insert(&mut self, target: &Target, events: &[Event], on: OnDuplicate) -> Result<Vec<bool>> {
        CallerTx::insert(&*self, target, events, on).await
    }

    async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        Ok(self.batch_execute(sql).await?)
    }

    async fn commit(self) -> Result<(), Failure> {
        Ok(self.commit().await?)
    }

    async fn rollback(self) -> Result<(), Failure> {
        Ok(self.rollback().await?)
    }
}

/// A bare client whose owner says BEGIN and COMMIT itself.
pub(crate) struct TokioPostgresClient;

impl Driver for TokioPostgresClient {
    async fn serve(url: String, target: Target, commands: Commands) -> Result<(), Failure> {
        let client = client(&url).await?;
        client.batch_execute("BEGIN").await?;
        obey(client, target, commands).await
    }
}

impl Hands for tokio_postgres::Client {
    async fn insert(&mut self, target: &Target, events: &[Event], on: OnDuplicate) -> Result<Vec<bool>> {
        CallerTx::insert(&*self, target, events, on).await
    }

    async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        Ok(self.batch_execute(sql).await?)
    }

    async fn commit(self) -> Result<(), Failure> {
        Ok(self.batch_execute("COMMIT").await?)
    }

    async fn rollback(self) -> Result<(), Failure> {
        Ok(self.batch_execute("ROLLBACK").await?)
    }
}

pub(crate) struct DeadpoolPostgres;

impl Driver for DeadpoolPostgres {
    async fn serve(url: String, target: Target, commands: Commands) -> Result<(), Failure> {
        let mut client = pool(&url)?.get().await?;
        obey(client.transaction().await?, target, commands).await
    }
}

impl Hands for deadpool_postgres::Transaction<'_> {
    async fn insert(&mut self, target: &Target, events: &[Event], on: OnDuplicate) -> Result<Vec<bool>> {
        CallerTx::insert(&*self, target, events, on).await
    }

    async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        Ok(self.batch_execute(sql).await?)
    }

    async fn commit(self) -> Result<(), Failure> {
        Ok(self.commit().await?)
    }

    async fn rollback(self) -> Result<(), Failure> {
        Ok(self.rollback().await?)
    }
}

pub(crate) struct DieselAsync;

type DieselTransactions = <AsyncPgConnection as AsyncConnection>::TransactionManager;

impl Driver for DieselAsync {
    async fn serve(url: String, target: Target, commands: Commands) -> Result<(), Failure> {
        let mut conn = AsyncPgConnection::establish(&url).await?;
        DieselTransactions::begin_transaction(&mut conn).await?;
        obey(conn, target, commands).await
    }
}

impl Hands for AsyncPgConnection {
    async fn insert(&mut self, target: &Target, events: &[Event], on: OnDuplicate) -> Result<Vec<bool>> {
        CallerTx::insert(self, target, events, on).await
    }

    async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        Ok(self.batch_execute(sql).await?)
    }

    async fn commit(mut self) -> Result<(), Failure> {
        Ok(DieselTransactions::commit_transaction(&mut self).await?)
    }

    async fn rollback(mut self) -> Result<(), Failure> {
        Ok(DieselTransactions::rollback_transaction(&mut self).await?)
    }
}

pub(crate) struct SeaOrm;

pub(crate) async fn sea_orm(url: &str) -> Result<sea_orm::DatabaseConnection, Failure> {
    let mut options = ConnectOptions::new(url);
    options.max_connections(1).sqlx_logging(false);
    Ok(sea_orm::Database::connect(options).await?)
}

impl Driver for SeaOrm {
    async fn serve(url: String, target: Target, commands: Commands) -> Result<(), Failure> {
        obey(sea_orm(&url).await?.begin().await?, target, commands).await
    }
}

impl Hands for DatabaseTransaction {
    async fn insert(&mut self, target: &Target, events: &[Event], on: OnDuplicate) -> Result<Vec<bool>> {
        CallerTx::insert(&*self, target, events, on).await
    }

    async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        self.execute_unprepared(sql).await?;
        Ok(())
    }

    async fn commit(self) -> Result<(), Failure> {
        Ok(self.commit().await?)
    }

    async fn rollback(self) -> Result<(), Failure> {
        Ok(self.rollback().await?)
    }
}
