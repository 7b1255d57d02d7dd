//! The caller's transaction: the one thing that an event is written through.
//!
//! A driver is taught to Postrider by implementing [`CallerTx`] for its own transaction type. The marker `M` is a type
//! of the adapter's crate; it is what lets an adapter live in a crate that owns neither the trait nor the driver, and
//! callers never name it.

use std::{
    fmt,
    num::NonZeroUsize,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{
    BoxFuture, ConfigError, Error, Event, EventId, Result,
    store::{Lane, Seq},
};

/// The kind of database that an outbox is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// The in-memory store of the engine.
    Memory,
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    Mysql,
    /// A table that somebody else designed: it is delivered from, and written to by its own system only.
    Profile,
}

impl Dialect {
    /// Its name, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
            Self::Profile => "an external outbox table",
        }
    }
}

/// The prefix of Postrider's tables: a plain identifier, the only kind of name that enters SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    /// Longest prefix, in characters; databases cut names at 63 and the longest suffix needs room.
    pub const CHARS_MAX: usize = 40;

    /// Checks that `name` is a letter or underscore, then letters, digits and underscores.
    ///
    /// ```
    /// use postrider_core::tx::Prefix;
    /// assert!(Prefix::new("shop_outbox_").is_ok());
    /// assert!(Prefix::new("events; DROP TABLE x").is_err());
    /// ```
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        let mut bytes = name.bytes();
        let plain = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && name.len() <= Self::CHARS_MAX;
        if plain {
            Ok(Self(name.to_owned()))
        } else {
            Err(ConfigError::Identifier { value: name.to_owned() })
        }
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self("postrider_".to_owned())
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a driver adapter must know of the table that it inserts into.
#[derive(Debug, Clone)]
pub struct Target {
    /// The kind of database.
    pub dialect: Dialect,
    /// The prefix of the tables.
    pub prefix: Prefix,
    /// The statement that inserts one event; written out once, because it is the hot one.
    pub insert_one: String,
    /// Whether a statement may be prepared for longer than a transaction: not where a pooler hands each transaction to another
    /// connection.
    pub prepared: bool,
    /// Where events without a key go.
    pub hints: LaneHints,
}

/// The lanes that the writer's own process delivers: an event without a key is best put into one of them, because then it need not
/// wait for another process to hear of it. Where there are none, the table chooses. Clones share one list.
///
/// ```
/// use postrider_core::tx::LaneHints;
///
/// let hints = LaneHints::default();
/// assert_eq!(hints.next(), None);
/// hints.offer(vec![3, 8]);
/// assert_eq!([hints.next(), hints.next(), hints.next()], [Some(3), Some(8), Some(3)]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct LaneHints(Arc<Offered>);

#[derive(Debug, Default)]
struct Offered {
    lanes: RwLock<Vec<Lane>>,
    turn: AtomicUsize,
}

impl LaneHints {
    /// From now on these are the lanes.
    pub fn offer(&self, lanes: Vec<Lane>) {
        *self.0.lanes.write().unwrap_or_else(PoisonError::into_inner) = lanes;
    }

    /// One lane after the other.
    pub fn next(&self) -> Option<Lane> {
        let lanes = self.0.lanes.read().unwrap_or_else(PoisonError::into_inner);
        // A turn that there is no lane for is not counted: the first lane comes first.
        let count = NonZeroUsize::new(lanes.len())?;
        lanes.get(self.0.turn.fetch_add(1, Relaxed) % count).copied()
    }
}

impl Target {
    /// The lane that this event should go to; none if its key decides, or if the table may choose.
    pub fn lane_hint(&self, event: &Event) -> Option<Lane> {
        if event.key().is_some() { None } else { self.hints.next() }
    }

    /// An error unless this target is of the given kind.
    pub fn require(&self, dialect: Dialect, driver: &'static str) -> Result<()> {
        if self.dialect == dialect {
            Ok(())
        } else {
            Err(Error::WrongDatabase { driver, outbox: self.dialect.name() })
        }
    }
}

/// What an insert does with an id that the outbox has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDuplicate {
    /// Fails with [`Error::DuplicateId`].
    Fail,
    /// Leaves the event that is there and says so.
    Keep,
}

/// A transaction of the caller's, of any driver. Postrider never commits it and never rolls it back.
///
/// Not implemented for pools or for connections whose type already says that they are in no transaction.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction that an event can be written in",
    note = "an event is written in the transaction of the change that it tells of: begin one, and pass `&mut tx`",
    note = "`outbox.transaction(&pool, async |tx| ...)` begins and commits one for you"
)]
pub trait CallerTx<M>: Send {
    /// Inserts the events, in order, in one round trip where the driver can; all of them or none. Says for each whether
    /// it is new: false only with [`OnDuplicate::Keep`].
    fn insert<'a>(
        self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>>
    where
        Self: 'a;
}

/// The same for drivers that block.
pub trait BlockingCallerTx<M> {
    /// As [`CallerTx::insert`].
    fn insert(self, target: &Target, events: &[Event], on_duplicate: OnDuplicate) -> Result<Vec<bool>>;
}

/// Something that transactions can be begun on, so that Postrider owns their commit.
pub trait TxSource<M> {
    /// The transactions it gives.
    type Tx: OwnedTx;

    /// Begins one that will write.
    fn begin<'a>(self) -> BoxFuture<'a, Result<Self::Tx>>
    where
        Self: 'a;
}

/// Where one event of an open transaction lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its id.
    pub id: EventId,
    /// Its place in the order.
    pub seq: Seq,
    /// Its lane.
    pub lane: Lane,
}

/// A transaction that Postrider begins and commits. Dropping it rolls it back.
pub trait OwnedTx: Send + 'static {
    /// What business statements run on.
    type Conn: ?Sized;

    /// What business statements run on.
    fn conn(&mut self) -> &mut Self::Conn;

    /// As [`CallerTx::insert`].
    fn insert<'a>(
        &'a mut self,
        target: &'a Target,
        events: &'a [Event],
        on_duplicate: OnDuplicate,
    ) -> BoxFuture<'a, Result<Vec<bool>>>;

    /// Which of these events the transaction still holds: not those behind a savepoint that was rolled back.
    fn read_back<'a>(
        &'a mut self,
        target: &'a Target,
        ids: &'a [EventId],
    ) -> BoxFuture<'a, Result<Vec<Placed>>>;

    /// Commits.
    fn commit(self) -> BoxFuture<'static, Result<()>>;

    /// Rolls back.
    fn rollback(self) -> BoxFuture<'static, Result<()>>;
}
