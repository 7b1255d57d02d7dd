//! One verb's connection, in a transaction where it needs one, and another try where the last one was lost.

use std::{future::Future, ops, sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, SqlSafeStr, Transaction, pool::PoolConnection};

use super::{
    connect::PLANNER,
    error::is_transient,
    warm::{Task, Warm},
};

/// How often a verb is tried in all, and how long to wait after the first try; doubled after each further one.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(20);

/// What a verb runs on. A verb that ends well says [`commit`](Session::commit); one that does not has changed nothing.
pub(super) enum Session {
    /// Each statement stands for itself.
    Plain { conn: PoolConnection<Postgres>, task: Task, pool: PgPool, warm: Arc<Warm> },
    /// All statements are one.
    Whole(Transaction<'static, Postgres>),
}

impl Session {
    /// Statements that stand for themselves.
    pub(super) async fn plain(pool: &PgPool, warm: &Arc<Warm>, task: Task) -> sqlx::Result<Self> {
        let conn = warm.take(pool, task).await?;
        Ok(Self::Plain { conn, task, pool: pool.clone(), warm: Arc::clone(warm) })
    }

    /// One transaction of several statements. The server ends it if one of them, or the client between them, takes longer than
    /// this: it may hold lanes that another is to take over.
    pub(super) async fn whole(pool: &PgPool, limit: Duration) -> sqlx::Result<Self> {
        Self::begin(pool, limit, format!("SET LOCAL statement_timeout = {}", millis(limit))).await
    }

    /// A transaction around a single statement, which may take its time.
    pub(super) async fn single(pool: &PgPool, limit: Duration) -> sqlx::Result<Self> {
        Self::begin(pool, limit, String::new()).await
    }

    async fn begin(pool: &PgPool, limit: Duration, more: String) -> sqlx::Result<Self> {
        let planner = PLANNER.map(|(name, value)| format!("SET LOCAL {name} = {value}")).join("; ");
        let idle = format!("SET LOCAL idle_in_transaction_session_timeout = {}", millis(limit));
        // Safe because nothing but constants and numbers go in.
        let begin = AssertSqlSafe(format!("BEGIN; {planner}; {idle}; {more}")).into_sql_str();
        Ok(Self::Whole(Transaction::begin(pool.acquire().await?, Some(begin)).await?))
    }

    pub(super) async fn commit(self) -> sqlx::Result<()> {
        match self {
            Self::Plain { conn, task, pool, warm } => {
                warm.keep(&pool, task, conn);
                Ok(())
            }
            Self::Whole(tx) => tx.commit().await,
        }
    }
}

impl ops::Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Plain { conn, .. } => conn,
            Self::Whole(tx) => tx,
        }
    }
}

impl ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Plain { conn, .. } => conn,
            Self::Whole(tx) => tx,
        }
    }
}

fn millis(limit: Duration) -> u128 {
    limit.as_millis().max(1)
}

/// Runs a whole verb, and again if it met a deadlock, a serialisation failure or a lost connection. A try that failed has
/// left nothing behind, or what it left is not changed by another.
pub(super) async fn patiently<T, F>(verb: impl Fn() -> F) -> sqlx::Result<T>
where
    F: Future<Output = sqlx::Result<T>>,
{
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match verb().await {
            Err(error) if is_transient(&error) && !matches!(error, sqlx::Error::PoolTimedOut) => {
                tracing::debug!(%error, ?pause, "the database could not do it now; trying again");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            other => return other,
        }
    }
    verb().await
}
