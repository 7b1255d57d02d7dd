//! Delivery from external outbox tables, in PostgreSQL, MySQL and MariaDB.
//!
//! A [`Profile`] says what such a table looks like and how that system's own program would write to it; the table is never created or
//! altered. One instance delivers at a time, under a lease in a small table of ours beside it; the others stand by. Nothing is
//! written through it: that is the table's own system's business. No other relay may run on the table.
//!
//! # Layout
//!
//! * `spec`, `named`, `name`: what a profile says, and those of known systems
//! * `shape`, `rights`: a profile on a table that was looked at
//! * `sql`, `db`: statements, and running them on either database
//! * `lane`: who may deliver
//! * `claim`, `look`, `window`, `take`, `event`: what is due
//! * `settle`: what became of it
//! * `recover`: claims that nobody will settle
//! * `mind`: what the active instance keeps in memory
//! * `operate`, `list`: what operators see and do; `pause`: what they have told to wait
//! * `guarantees`: which promises hold

mod claim;
mod db;
mod event;
mod guarantees;
mod lane;
mod list;
mod look;
mod mind;
mod name;
mod named;
mod operate;
mod pause;
mod recover;
mod rights;
mod settle;
mod shape;
mod spec;
mod sql;
mod store;
mod take;
mod window;

use std::{fmt, sync::Arc, time::Duration};

use postrider_core::{
    ConfigError, Result, Target,
    tx::{Dialect, LaneHints, Prefix},
};
use tokio::sync::Mutex;

use self::{
    db::{Db, Use},
    mind::Mind,
    shape::Shape,
    sql::Kind,
};
pub use self::{
    name::{Name, TableName},
    spec::{Field, NullKey, Profile, Statuses, Times, Value},
};
use crate::connections::{opening, retry::Tries};

/// A table that somebody else designed, to be delivered from. Cloning it copies a pointer.
#[derive(Clone)]
pub struct ProfileStore(Arc<Inner>);

struct Inner {
    db: Db,
    /// For messages; without the password.
    place: String,
    shape: Shape,
    target: Target,
    /// Held for as long as a verb runs: what is in memory and what is in the table change together.
    mind: Mutex<Mind>,
}

impl ProfileStore {
    /// Connects to `postgres://user:password@host:port/database` or `mysql://…`, and looks at the table. A table, a column or a right
    /// that is missing is an error that names it and says what to do.
    pub async fn connect(url: &str, profile: Profile) -> Result<Self> {
        let (db, place) = Db::open(url).await?;
        let kind = db.kind();
        let fail = |error| db.error(error, format!("cannot look at the table {} in {place}", profile.table));
        let look = async {
            let mut tx = db.begin(Use::Operating).await?;
            if let Some(refusal) = rights::unusable(kind, &mut tx).await? {
                return Ok(Err(refusal));
            }
            let shape = Shape::look(kind, profile.clone(), &mut tx).await?;
            tx.commit().await?;
            Ok(shape)
        };
        let shape = opening(look).await.map_err(fail)??;
        rights::check(&db, &place, &shape).await?;
        let target = Target {
            dialect: Dialect::Profile,
            prefix: Prefix::default(),
            insert_one: String::new(),
            prepared: true,
            hints: LaneHints::default(),
        };
        let store = Self(Arc::new(Inner { db, place, shape, target, mind: Mutex::default() }));
        tracing::info!(
            profile = profile.name,
            table = %profile.table,
            promises = store.guarantees(),
            "delivering from an external outbox table"
        );
        Ok(store)
    }

    /// Which promises hold on this table, and which are weakened, and how.
    pub fn guarantees(&self) -> String {
        guarantees::guarantees(&self.0.shape)
    }

    /// How the database would look for the next events, in its own words: whether the table has an index for it.
    pub async fn explain(&self) -> Result<String> {
        let Inner { db, place, shape, .. } = &*self.0;
        let plan = async {
            let mut tx = db.begin(Use::Operating).await?;
            let plan = tx.fetch(look::explained(shape)).await?;
            tx.commit().await?;
            sqlx::Result::Ok(plan.iter().filter_map(|row| row.text(0)).collect::<Vec<_>>().join("\n"))
        };
        plan.await.map_err(|error| db.error(error, format!("cannot explain a claim in {place}")))
    }

    /// The SQL of our own small tables beside it, to be read or applied by hand.
    pub fn schema_sql(&self) -> String {
        let Shape { kind, profile, .. } = &self.0.shape;
        lane_sql(*kind, profile)
    }

    /// For tests that let time pass by making everything stored older: does the same to what is kept in memory.
    #[doc(hidden)]
    pub async fn grow_older(&self, by: Duration) {
        self.0.mind.lock().await.grow_older(by);
    }

    /// For tests: how often what is pending was read ahead.
    #[doc(hidden)]
    pub async fn windows_read(&self) -> u64 {
        self.0.mind.lock().await.windows_read
    }

    /// Closes all connections. Call it when the engine has shut down.
    pub async fn close(&self) {
        self.0.db.close().await;
    }

    /// How a verb has ended, unless it is to be tried again: that is waited for.
    async fn ended<T>(
        &self,
        what: &'static str,
        tries: &mut Tries,
        done: sqlx::Result<T>,
    ) -> Option<Result<T>> {
        let Inner { db, place, .. } = &*self.0;
        match done {
            Err(error) if db.may_pass(&error) && tries.again(&error).await => None,
            done => Some(done.map_err(|error| db.error(error, format!("cannot {what} in {place}")))),
        }
    }
}

fn lane_sql(kind: Kind, profile: &Profile) -> String {
    let beside = kind.table(&profile.table);
    let tables = lane::tables(kind, profile).join(";\n");
    format!("-- Postrider's own small tables beside {beside}, which stays as it is.\n\n{tables};\n")
}

impl Profile {
    /// The SQL of our own small tables beside the table, for the kind of database that is named. Nobody is asked for anything.
    ///
    /// ```
    /// use postrider_sqlx::profile::Profile;
    /// let sql = Profile::debezium().schema_sql("postgres://relay@localhost/shop")?;
    /// assert!(sql.contains("CREATE TABLE IF NOT EXISTS \"postrider_profile_lane\""));
    /// # Ok::<(), postrider_core::ConfigError>(())
    /// ```
    pub fn schema_sql(&self, url: &str) -> Result<String, ConfigError> {
        Ok(lane_sql(Kind::of(url)?, self))
    }

    /// The `GRANT`s that one who delivers from the table and one who operates it need, and no more. Who writes to it is its own system's
    /// business. Nobody is asked for anything.
    ///
    /// ```
    /// use postrider_sqlx::profile::Profile;
    /// let sql = Profile::flowcatalyst_events().grants_sql("mysql://relay@localhost/flow", "relay", "operator@10.0.0.7")?;
    /// assert!(sql.contains("GRANT SELECT, UPDATE ON `outbox_events` TO 'relay'@'%';"));
    /// # Ok::<(), postrider_core::ConfigError>(())
    /// ```
    pub fn grants_sql(&self, url: &str, relay: &str, operator: &str) -> Result<String, ConfigError> {
        Ok(lane::grants(Kind::of(url)?, self, relay, operator))
    }
}

impl fmt::Debug for ProfileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileStore")
            .field("place", &self.0.place)
            .field("profile", &self.0.shape.profile.name)
            .field("table", &self.0.shape.profile.table)
            .finish_non_exhaustive()
    }
}
