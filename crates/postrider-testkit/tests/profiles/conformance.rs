//! The conformance suite on external outbox tables, as far as they have room for what it asks.

use std::{
    fmt::Write as _,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use postrider_core::{Event, EventId, Result, Store, event::Due, tx::OnDuplicate};
use postrider_sqlx::profile::{Field, Profile, ProfileStore, Statuses};
use postrider_testkit::{
    conformance::{Checked, Failure, StoreHarness},
    delivery_conformance,
};

use super::server::{Database, Kind};

/// A external outbox table under test.
pub(super) trait Table: Send + Sync + 'static {
    const KIND: Kind;
    const NAME: &'static str;
    /// Columns that hold times.
    const TIMES: &'static [&'static str];

    fn ddl() -> String;

    fn profile() -> Result<Profile, Failure>;

    /// The columns and values that its own system would insert an event with.
    fn row(event: &Event, at: &str, due: &str) -> Vec<(&'static str, String)>;
}

/// A text as it stands in SQL.
fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

fn text_or_null(value: Option<&str>) -> String {
    value.map_or("NULL".to_owned(), text)
}

fn payload(event: &Event) -> String {
    // Some of these tables take JSON only, so bytes are a text of their length.
    let bytes = || format!("\"{}\"", "x".repeat(event.payload().as_bytes().len()));
    text(&event.payload().as_text().map_or_else(bytes, str::to_owned))
}

fn headers(event: &Event) -> String {
    let pairs: Vec<String> =
        event.headers().iter().map(|(name, value)| format!("{name:?}:{value:?}")).collect();
    text(&format!("{{{}}}", pairs.join(",")))
}

pub(super) struct Harness<T> {
    store: ProfileStore,
    database: Option<Database>,
    written: AtomicI64,
    _table: PhantomData<T>,
}

impl<T: Table> Harness<T> {
    fn database(&self) -> Result<&Database, Failure> {
        self.database.as_ref().ok_or_else(|| "the database is gone".into())
    }

    /// So many microseconds from now, rounded down where times have whole seconds.
    fn time(micros: i64) -> String {
        match T::KIND {
            Kind::Postgres => format!("(now() + {micros} * interval '1 microsecond')"),
            Kind::Mysql => format!("(UTC_TIMESTAMP(6) + INTERVAL {micros} MICROSECOND)"),
        }
    }

    fn insert_sql(&self, event: &Event) -> String {
        // Statements of one test come later by so many microseconds each, whatever the clock says.
        let at = Self::time(self.written.fetch_add(1, Relaxed) - 1_000_000);
        let due = match event.due() {
            Due::AtOnce => at.clone(),
            Due::After(delay) => Self::time(i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)),
            Due::At(time) => match T::KIND {
                Kind::Postgres => format!("to_timestamp({}::numeric / 1000000)", time.as_micros()),
                Kind::Mysql => {
                    format!("(TIMESTAMP('1970-01-01') + INTERVAL {} MICROSECOND)", time.as_micros())
                }
            },
        };
        let (columns, values): (Vec<_>, Vec<_>) = T::row(event, &at, &due).into_iter().unzip();
        format!("INSERT INTO {} ({}) VALUES ({});", T::NAME, columns.join(", "), values.join(", "))
    }
}

impl<T> Drop for Harness<T> {
    fn drop(&mut self) {
        self.database.take().into_iter().for_each(Database::drop_later);
    }
}

fn writes_nothing<R>() -> Result<R, Failure> {
    Err("nothing is written through a profile".into())
}

impl<T: Table> Harness<T> {
    async fn make_older(&self, micros: i64) -> Result<(), Failure> {
        let by = match T::KIND {
            Kind::Postgres => format!("interval '{micros} microseconds'"),
            Kind::Mysql => format!("INTERVAL {micros} MICROSECOND"),
        };
        let older: Vec<String> =
            T::TIMES.iter().map(|column| format!("{column} = {column} - {by}")).collect();
        let mut sql = format!("UPDATE postrider_profile_lane SET leased_until = leased_until - {by};");
        if !older.is_empty() {
            write!(sql, "UPDATE {} SET {};", T::NAME, older.join(", "))?;
        }
        self.database()?.run(&sql).await
    }
}

impl<T: Table> StoreHarness for Harness<T> {
    const PEEKS: bool = false;

    /// Statements that are to be run as one.
    type Tx = String;

    async fn fresh() -> Result<Self, Failure> {
        let database = Database::new(T::KIND, &T::ddl()).await?;
        let store = ProfileStore::connect(&database.url, T::profile()?).await?;
        store.migrate().await?;
        Ok(Self { store, database: Some(database), written: AtomicI64::new(0), _table: PhantomData })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn pass(&self, time: Duration) -> Result<(), Failure> {
        self.make_older(i64::try_from(time.as_micros())?).await?;
        self.store.grow_older(time).await;
        Ok(())
    }

    /// Of what the store keeps in memory nothing is told: the engine's next claim is.
    async fn set_back(&self, by: Duration) -> Result<(), Failure> {
        self.make_older(-i64::try_from(by.as_micros())?).await
    }

    async fn begin(&self) -> Result<Self::Tx, Failure> {
        Ok(String::new())
    }

    async fn insert(&self, tx: &mut String, events: &[Event], _: OnDuplicate) -> Result<Vec<bool>> {
        events.iter().for_each(|event| tx.push_str(&self.insert_sql(event)));
        Ok(vec![true; events.len()])
    }

    async fn commit(&self, tx: String) -> Result<(), Failure> {
        if tx.is_empty() {
            return Ok(());
        }
        self.database()?.run(&format!("BEGIN; {tx} COMMIT;")).await
    }

    async fn lock_row(&self, event: &Event) -> Result<bool, Failure> {
        let row = T::row(event, "", "");
        let (column, id) = row.first().ok_or("a table has columns")?;
        let lock = format!("BEGIN; SELECT 1 FROM {} WHERE {column} = {id} FOR UPDATE;", T::NAME);
        self.database()?.run(&lock).await?;
        Ok(true)
    }

    async fn unlock_row(&self) -> Result<(), Failure> {
        self.database()?.run("ROLLBACK").await
    }

    async fn insert_undecodable(&self) -> Result<EventId, Failure> {
        let id = EventId::ulid();
        // Longer than any type may be.
        let event = Event::json_text("Broken", "{}").id(id.as_str()).build()?;
        let sql = self.insert_sql(&event).replace("'Broken'", &text(&"x".repeat(200)));
        self.database()?.run(&sql).await?;
        Ok(id)
    }

    async fn put(&self, _: &mut String, _: &str) -> Result<(), Failure> {
        writes_nothing()
    }

    async fn has(&self, _: &str) -> Result<bool, Failure> {
        writes_nothing()
    }

    async fn fail_statement(&self, _: &mut String) -> Result<(), Failure> {
        writes_nothing()
    }

    async fn savepoint(&self, _: &mut String) -> Result<(), Failure> {
        writes_nothing()
    }

    async fn rollback_to_savepoint(&self, _: &mut String) -> Result<(), Failure> {
        writes_nothing()
    }

    async fn rollback(&self, _: String) -> Checked {
        Ok(())
    }
}

/// A module for each table and database.
macro_rules! suites {
    ($($module:ident: $table:ident on $kind:ident;)*) => {
        $(mod $module {
            use super::*;
            delivery_conformance!(Harness<$table<{ Kind::$kind as u8 }>>);
        })*
    };
}

const fn kind(number: u8) -> Kind {
    if number == Kind::Postgres as u8 { Kind::Postgres } else { Kind::Mysql }
}

suites! {
    flowcatalyst_on_postgres: FlowCatalyst on Postgres;
    flowcatalyst_on_mariadb: FlowCatalyst on Mysql;
    outbox_java_on_postgres: OutboxJava on Postgres;
    debezium_on_postgres: Debezium on Postgres;
    debezium_on_mariadb: Debezium on Mysql;
    custom_on_postgres: Custom on Postgres;
    custom_on_mariadb: Custom on Mysql;
}

/// FlowCatalyst's table, with room for ids and types of the suite's length.
pub(super) struct FlowCatalyst<const K: u8>;

impl<const K: u8> Table for FlowCatalyst<K> {
    const KIND: Kind = kind(K);
    const NAME: &'static str = "outbox_events";
    const TIMES: &'static [&'static str] = &["created_at"];

    fn ddl() -> String {
        super::flowcatalyst::DDL
            .replace("VARCHAR(13)", "VARCHAR(36)")
            .replace("type VARCHAR(20)", "type VARCHAR(255)")
    }

    fn profile() -> Result<Profile, Failure> {
        Ok(Profile::flowcatalyst_events().null_key(postrider_sqlx::profile::NullKey::Unordered))
    }

    fn row(event: &Event, at: &str, _due: &str) -> Vec<(&'static str, String)> {
        vec![
            ("id", text(event.id().as_str())),
            ("type", text(event.event_type())),
            ("message_group", text_or_null(event.key())),
            ("payload", payload(event)),
            ("status", text("PENDING")),
            ("created_at", at.to_owned()),
        ]
    }
}

/// outbox-java's table; events of one aggregate id are one key.
pub(super) struct OutboxJava<const K: u8>;

impl<const K: u8> Table for OutboxJava<K> {
    const KIND: Kind = kind(K);
    const NAME: &'static str = "outbox_event";
    const TIMES: &'static [&'static str] = &["created_at", "available_at", "done_at", "locked_at"];

    fn ddl() -> String {
        super::outbox_java::ddl(Self::KIND, true)
            .replace("event_type VARCHAR(128)", "event_type VARCHAR(255)")
    }

    fn profile() -> Result<Profile, Failure> {
        Ok(Profile::outbox_java().column(Field::Key, "aggregate_id")?.skip_recent(Duration::ZERO))
    }

    fn row(event: &Event, at: &str, due: &str) -> Vec<(&'static str, String)> {
        vec![
            ("event_id", text(event.id().as_str())),
            ("event_type", text(event.event_type())),
            ("aggregate_type", text(event.aggregate_type())),
            ("aggregate_id", text_or_null(event.key())),
            ("headers", headers(event)),
            ("payload", payload(event)),
            ("status", "0".to_owned()),
            ("available_at", due.to_owned()),
            ("created_at", at.to_owned()),
        ]
    }
}

/// The table of Debezium's router, keyed by the aggregate's id alone, which may be null here.
pub(super) struct Debezium<const K: u8>;

impl<const K: u8> Table for Debezium<K> {
    const KIND: Kind = kind(K);
    const NAME: &'static str = "outboxevent";
    const TIMES: &'static [&'static str] = &[];

    fn ddl() -> String {
        "CREATE TABLE outboxevent (id varchar(36) NOT NULL PRIMARY KEY, aggregatetype varchar(255) NOT NULL,
           aggregateid varchar(255), type varchar(255) NOT NULL, payload text)"
            .to_owned()
    }

    fn profile() -> Result<Profile, Failure> {
        Ok(Profile::debezium().column(Field::Key, "aggregateid")?)
    }

    fn row(event: &Event, _at: &str, _due: &str) -> Vec<(&'static str, String)> {
        vec![
            ("id", text(event.id().as_str())),
            ("aggregatetype", text(event.aggregate_type())),
            ("aggregateid", text_or_null(event.key())),
            ("type", text(event.event_type())),
            ("payload", payload(event)),
        ]
    }
}

/// A table with a column for everything but the mark of a claim.
pub(super) struct Custom<const K: u8>;

impl<const K: u8> Table for Custom<K> {
    const KIND: Kind = kind(K);
    const NAME: &'static str = "messages";
    const TIMES: &'static [&'static str] = &["written_at", "due_at", "sent_at"];

    fn ddl() -> String {
        let time = if Self::KIND == Kind::Postgres { "timestamptz" } else { "datetime(6)" };
        format!(
            "CREATE TABLE messages (message_id varchar(36) PRIMARY KEY, kind varchar(255) NOT NULL, thing varchar(64), customer varchar(255),
               notes text, body text NOT NULL, state varchar(9) NOT NULL, tries int NOT NULL DEFAULT 0, due_at {time}, written_at {time} NOT NULL,
               sent_at {time}, trouble text);
             CREATE INDEX messages_state ON messages (state, written_at)"
        )
    }

    fn profile() -> Result<Profile, Failure> {
        let statuses = Statuses {
            fresh: "new".into(),
            retry: "again".into(),
            claimed: None,
            done: "sent".into(),
            dead: "broken".into(),
        };
        Ok(Profile::custom("messages", "message_id", "body")?
            .column(Field::EventType, "kind")?
            .column(Field::AggregateType, "thing")?
            .column(Field::Key, "customer")?
            .column(Field::Headers, "notes")?
            .column(Field::Attempts, "tries")?
            .column(Field::AvailableAt, "due_at")?
            .column(Field::CreatedAt, "written_at")?
            .column(Field::DoneAt, "sent_at")?
            .column(Field::Error, "trouble")?
            .status("state", statuses)?)
    }

    fn row(event: &Event, at: &str, due: &str) -> Vec<(&'static str, String)> {
        vec![
            ("message_id", text(event.id().as_str())),
            ("kind", text(event.event_type())),
            ("thing", text(event.aggregate_type())),
            ("customer", text_or_null(event.key())),
            ("notes", headers(event)),
            ("body", payload(event)),
            ("state", text("new")),
            ("due_at", due.to_owned()),
            ("written_at", at.to_owned()),
        ]
    }
}
