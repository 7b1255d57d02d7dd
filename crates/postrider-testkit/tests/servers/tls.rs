//! What is asked of a connection, and what it becomes. This test has TLS; without it `postrider::connect` says so, and is tested for it.

use postrider::{Error, connect};
use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::{
    database::{Database, Kind},
    server::Server,
    time::{TIMEOUT, until},
};

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[tokio::test]
async fn a_server_without_tls_is_refused_when_tls_is_required_and_the_error_says_why() -> Result<(), Failure>
{
    for (kind, asked) in [(Kind::Postgres, "sslmode=require"), (Kind::Mysql, "ssl-mode=REQUIRED")] {
        let database = Database::new(kind).await?;
        let url = format!("{}?{asked}", database.url()?);
        let error = connect(&url).await.err().ok_or("it connected")?;
        assert!(chain(&error).contains("server does not support TLS"), "{}", chain(&error));
        assert!(!format!("{} {error:?}", chain(&error)).contains(database.password()?));
    }
    Ok(())
}

/// Runs a statement as the owner of the server.
async fn run(url: &str, sql: String) -> Result<(), Failure> {
    let mut conn = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

/// Has the server write a text to a file in its data folder, where only it can read it.
async fn put(url: &str, file: &str, text: &str) -> Result<(), Failure> {
    let lines = text.trim().lines().map(|line| format!("('{line}')")).collect::<Vec<_>>().join(", ");
    let mut conn = PgConnection::connect(url).await?;
    let folder: String = sqlx::raw_sql("SHOW data_directory").fetch_one(&mut conn).await?.try_get(0)?;
    // It takes no key that others can read, and lets others read what it writes itself.
    let copy = format!(
        "COPY (SELECT * FROM (VALUES {lines}) AS text) TO PROGRAM 'umask 077; cat > \"{folder}/{file}\"'"
    );
    sqlx::raw_sql(AssertSqlSafe(copy)).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

#[tokio::test]
// The newest PostgreSQL of the services is built without TLS; this one is Debian's.
async fn a_certificate_is_checked_against_the_root_that_is_named() -> Result<(), Failure> {
    let server = Server::borrow("postgres15")?;
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    put(&server.url, "server.crt", &signed.cert.pem()).await?;
    put(&server.url, "server.key", &signed.signing_key.serialize_pem()).await?;
    run(&server.url, "ALTER SYSTEM SET ssl = on".to_owned()).await?;
    run(&server.url, "SELECT pg_reload_conf()".to_owned()).await?;
    let root = std::env::temp_dir().join(format!("postrider-tls-{}.crt", std::process::id()));
    std::fs::write(&root, signed.cert.pem())?;

    let by_name = server.url.replacen("127.0.0.1", "localhost", 1);
    let trusting = format!("{by_name}?sslmode=verify-full&sslrootcert={}", root.display());
    let found = until("it serves by TLS", TIMEOUT, async || Ok(connect(&trusting).await.ok())).await;
    // Somebody else's root, and a name that the certificate does not have.
    let unknown = connect(&format!("{by_name}?sslmode=verify-full")).await;
    let renamed = connect(&trusting.replacen("localhost", "127.0.0.1", 1)).await;
    std::fs::remove_file(&root)?;
    assert_eq!(found?.product, "PostgreSQL");
    for error in [unknown.err(), renamed.err()] {
        let text = chain(&error.ok_or("it was trusted")?);
        assert!(text.to_lowercase().contains("certificate"), "{text}");
    }
    Ok(())
}
