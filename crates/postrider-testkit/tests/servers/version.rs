//! A server that is too old, found by a pool of the program's own.

use postrider::{Delivery, Error, Outbox, Store, postgres::PgStore};
use postrider_core::ConfigError;
use postrider_testkit::conformance::Failure;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::database::{Database, Kind};

/// A pool whose server says that it is an older one: a function of that name comes before the server's own.
async fn pool_of_an_old_server(database: &Database) -> Result<PgPool, Failure> {
    database
        .run(
            "CREATE SCHEMA old; \
             CREATE FUNCTION old.version() RETURNS text LANGUAGE sql AS $$ SELECT 'PostgreSQL 14.19 on a scope' $$",
        )
        .await?;
    let options: PgConnectOptions = database.url()?.parse()?;
    let options = options.options([("search_path", "old,pg_catalog,public")]);
    Ok(PgPoolOptions::new().connect_with(options).await?)
}

fn is_too_old(error: &Error) -> bool {
    matches!(error, Error::Config(ConfigError::Version { product: "PostgreSQL", found, .. }) if found == "14.19")
}

#[tokio::test]
async fn an_outbox_does_not_start_on_a_server_that_is_too_old_and_makes_no_tables_there()
-> Result<(), Failure> {
    let database = Database::new(Kind::Postgres).await?;
    let pool = pool_of_an_old_server(&database).await?;
    let outbox = || -> Result<_, Error> {
        Ok(Outbox::builder().store(PgStore::new(pool.clone())?).on("Tested", async |_: Delivery| ()))
    };
    let refused = [
        outbox()?.start().await.err(),
        outbox()?.migrate(false).start().await.err(),
        outbox()?.write_only().await.err(),
        outbox()?.migrate(false).write_only().await.err(),
        PgStore::new(pool.clone())?.migrate().await.err(),
    ];
    for error in refused {
        let error = error.ok_or("it started")?;
        assert!(is_too_old(&error), "{error:?}");
        assert!(error.to_string().contains("15.0 or later"), "{error}");
    }
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_class WHERE relname LIKE 'postrider%'")
        .fetch_one(&pool)
        .await?;
    assert_eq!(tables, 0);
    Ok(())
}
