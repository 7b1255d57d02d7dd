//! `postrider::connect` on real servers: what answers is told, and passwords are not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on says so by a panic"
)]

use postrider::{Error, StoreErrorKind, connect};

type Tested = Result<(), Box<dyn std::error::Error>>;

/// A server that is not there is a failed test, never one that was left out.
fn server(variable: &str) -> Result<String, String> {
    std::env::var(variable).map_err(|_| {
        format!(
            "{variable} is not set: start the servers with `cargo xtask services up` and name them to this shell with \
             `eval $(cargo xtask services env)`"
        )
    })
}

fn first_number(version: &str) -> u32 {
    version.split('.').next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn each_server_is_found_by_its_scheme_and_says_what_it_is() -> Tested {
    let newest = connect(&server("POSTRIDER_TEST_POSTGRES_URL")?).await?;
    assert_eq!((newest.product, newest.lanes()), ("PostgreSQL", 64));
    assert!(first_number(&newest.version) > 15, "{newest}");
    let pooled = connect(&server("POSTRIDER_TEST_PGBOUNCER_URL")?).await?;
    assert_eq!(pooled.to_string(), newest.to_string());
    assert!(!pooled.store.target().prepared && newest.store.target().prepared);

    let other_name = server("POSTRIDER_TEST_POSTGRES15_URL")?.replacen("postgres://", "postgresql://", 1);
    let oldest = connect(&other_name).await?;
    assert_eq!((oldest.product, first_number(&oldest.version)), ("PostgreSQL", 15));

    let url = server("POSTRIDER_TEST_MYSQL_URL")?;
    for scheme in ["mysql://", "mariadb://"] {
        let found = connect(&url.replacen("mysql://", scheme, 1)).await?;
        assert!(matches!(found.product, "MySQL" | "MariaDB"), "{found}");
        assert_eq!(found.lanes(), 64);
    }
    Ok(())
}

#[tokio::test]
async fn tls_that_cannot_be_had_is_an_error_that_says_what_to_do() -> Tested {
    let asked = [
        ("POSTRIDER_TEST_POSTGRES_URL", "sslmode=require"),
        ("POSTRIDER_TEST_MYSQL_URL", "ssl-mode=REQUIRED"),
    ];
    for (variable, parameter) in asked {
        let error =
            connect(&format!("{}?{parameter}", server(variable)?)).await.err().ok_or("it connected")?;
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        if cfg!(any(feature = "tls-rustls", feature = "tls-rustls-native-roots")) {
            assert!(source.contains("server does not support TLS"), "{error}: {source}");
        } else {
            assert!(
                error.to_string().contains("cargo add postrider --features tls-rustls"),
                "{error}: {source}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn passwords_are_in_no_error_and_in_no_debug_form() -> Tested {
    for variable in ["POSTRIDER_TEST_POSTGRES_URL", "POSTRIDER_TEST_MYSQL_URL"] {
        let url = server(variable)?;
        let (_, credentials) = url.split_once("://").ok_or("no scheme")?;
        let secret = credentials.split(['@', ':']).nth(1).ok_or("no password")?;
        let found = connect(&url).await?;
        assert!(!format!("{found:?}").contains(secret));

        let wrong = url.replacen(secret, "an-open-sesame", 1);
        let error = connect(&wrong).await.err().ok_or("a wrong password was let in")?;
        assert!(matches!(&error, Error::Store(error) if error.kind() == StoreErrorKind::Denied), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("an-open-sesame"));

        let (scheme, _) = url.split_once(':').ok_or("no scheme")?;
        let malformed = format!("{scheme}:/u:an-open-sesame@h/d");
        let error = connect(&malformed).await.err().ok_or("half a scheme was taken")?;
        assert!(!format!("{error} {error:?}").contains("an-open-sesame"));
    }
    Ok(())
}
