//! Runs the shop's transactions, with both ways to write events.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider::{Error, Event, EventError, EventId, Outbox};
use sqlx::{Connection, SqliteConnection};

use super::{
    deck::Stories,
    ledger::{self, Ledger},
    story::{End, Owner, Step, Story},
};
use crate::failure::Failure;

/// How often a transaction is retried that meets a lock.
const TRIES: u32 = 10;

/// Why a transaction did not commit.
#[derive(Debug)]
enum ShopError {
    /// The shop cancels the transaction.
    Declined,
    Outbox(Error),
    Sql(sqlx::Error),
}

impl From<Error> for ShopError {
    fn from(error: Error) -> Self {
        Self::Outbox(error)
    }
}

impl From<EventError> for ShopError {
    fn from(error: EventError) -> Self {
        Self::Outbox(error.into())
    }
}

impl From<sqlx::Error> for ShopError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl ShopError {
    fn is_transient(&self) -> bool {
        match self {
            Self::Declined => false,
            Self::Outbox(Error::Store(error)) => error.is_transient(),
            Self::Outbox(_) => false,
            Self::Sql(sqlx::Error::PoolTimedOut) => true,
            // 5 busy, 6 locked; the low byte of an extended code.
            Self::Sql(error) => error
                .as_database_error()
                .and_then(|error| error.code()?.parse::<u32>().ok())
                .is_some_and(|code| matches!(code & 0xff, 5 | 6)),
        }
    }
}

impl From<ShopError> for Failure {
    fn from(error: ShopError) -> Self {
        match error {
            ShopError::Declined => Failure::bad("the shop declined an order that it meant to take"),
            ShopError::Outbox(error) => error.into(),
            ShopError::Sql(error) => error.into(),
        }
    }
}

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declined => f.write_str("declined"),
            Self::Outbox(error) => error.fmt(f),
            Self::Sql(error) => error.fmt(f),
        }
    }
}

/// Counts what this start wrote, for the live view; the conclusion reads the ledger.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) committed: AtomicU64,
    pub(crate) rolled_back: AtomicU64,
}

/// A writer. Several of them work at once.
#[derive(Clone)]
pub(crate) struct Clerk {
    pub(crate) outbox: Outbox,
    pub(crate) ledger: Ledger,
    pub(crate) stories: Arc<Mutex<Stories>>,
    pub(crate) tally: Arc<Tally>,
    /// Set when the shop closes.
    pub(crate) closed: Arc<AtomicBool>,
}

/// The events of one transaction.
struct Written {
    /// The events that commit with it.
    events: Vec<Event>,
    /// The event behind a savepoint that is rolled back.
    gift: Option<Event>,
}

impl Written {
    fn ids(&self) -> impl Iterator<Item = EventId> {
        self.events.iter().chain(&self.gift).map(|event| event.id().clone())
    }
}

impl Clerk {
    /// Works until no stories are left or the shop closes, pausing after each story.
    pub(crate) async fn work(self, pause: Duration) -> Result<(), Failure> {
        loop {
            let story = self.stories.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(story) = story else { return Ok(()) };
            for step in &story.steps {
                if self.closed.load(Relaxed) {
                    return Ok(());
                }
                self.take(&story, step).await?;
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Runs one transaction, again if it meets a lock, and records in the ledger what was rolled back.
    async fn take(&self, story: &Story, step: &Step) -> Result<(), Failure> {
        for _ in 1..TRIES {
            match self.try_to_take(story, step).await {
                Err(error) if error.is_transient() => tracing::warn!(%error, "the shop tries again"),
                result => return Ok(result?),
            }
        }
        Ok(self.try_to_take(story, step).await?)
    }

    async fn try_to_take(&self, story: &Story, step: &Step) -> Result<(), ShopError> {
        let written = Written {
            events: step.drafts.iter().map(|draft| draft.event(story)).collect::<Result<_, _>>()?,
            gift: match step.end {
                End::Without(gift) => Some(gift.event(story)?),
                _ => None,
            },
        };
        let result = match step.owner {
            Owner::Outbox => self.in_the_outboxs_transaction(story, step, &written).await,
            Owner::Shop => self.in_the_shops_transaction(story, step, &written).await,
        };
        let rolled_back: Vec<EventId> = match (step.end, result) {
            (End::Commit | End::Without(_), result) => {
                result?;
                written.gift.iter().map(|gift| gift.id().clone()).collect()
            }
            (End::Declined, Err(ShopError::Declined)) | (End::Swallowed, _) => written.ids().collect(),
            (End::Declined, result) => return result,
        };
        self.tally.committed.fetch_add(step.commits(), Relaxed);
        if !rolled_back.is_empty() {
            self.tally.rolled_back.fetch_add(rolled_back.len() as u64, Relaxed);
            self.ledger.rolled_back(&rolled_back, why(step.end)).await?;
        }
        Ok(())
    }

    /// The short way: `outbox.transaction` owns the commit.
    async fn in_the_outboxs_transaction(
        &self,
        story: &Story,
        step: &Step,
        written: &Written,
    ) -> Result<(), ShopError> {
        self.outbox
            .transaction(self.ledger.pool(), async |tx| {
                ledger::change_order(tx.conn(), story, step.state).await?;
                for event in &written.events {
                    tx.write(event).await?;
                    ledger::written(tx.conn(), event).await?;
                }
                if let Some(gift) = &written.gift {
                    execute(tx.conn(), "SAVEPOINT gift").await?;
                    tx.write(gift).await?;
                    ledger::written(tx.conn(), gift).await?;
                    execute(tx.conn(), "ROLLBACK TO gift").await?;
                    execute(tx.conn(), "RELEASE gift").await?;
                }
                end(tx.conn(), story, step).await
            })
            .await
    }

    /// The long way: the shop owns the transaction and passes receipts on as hints.
    async fn in_the_shops_transaction(
        &self,
        story: &Story,
        step: &Step,
        written: &Written,
    ) -> Result<(), ShopError> {
        let mut tx = self.ledger.pool().begin_with("BEGIN IMMEDIATE").await?;
        ledger::change_order(&mut tx, story, step.state).await?;
        let mut receipts = Vec::with_capacity(written.events.len());
        for event in &written.events {
            receipts.push(self.outbox.write(&mut tx, event).await?);
            ledger::written(&mut tx, event).await?;
        }
        if let Some(gift) = &written.gift {
            let mut inner = tx.begin().await?;
            self.outbox.write(&mut inner, gift).await?.rolled_back();
            ledger::written(&mut inner, gift).await?;
            inner.rollback().await?;
        }
        end(&mut tx, story, step).await?;
        tx.commit().await?;
        receipts.into_iter().for_each(postrider::Receipt::committed);
        Ok(())
    }
}

async fn execute(conn: &mut SqliteConnection, sql: &'static str) -> sqlx::Result<()> {
    sqlx::query(sql).execute(conn).await.map(drop)
}

/// The end of a transaction: `Ok` to commit.
async fn end(conn: &mut SqliteConnection, story: &Story, step: &Step) -> Result<(), ShopError> {
    match step.end {
        End::Commit | End::Without(_) => Ok(()),
        End::Declined => Err(ShopError::Declined),
        End::Swallowed => {
            let _ = ledger::break_transaction(conn, story).await;
            Ok(())
        }
    }
}

fn why(end: End) -> &'static str {
    match end {
        End::Commit => "",
        End::Declined => "declined",
        End::Swallowed => "swallowed error",
        End::Without(_) => "savepoint",
    }
}
