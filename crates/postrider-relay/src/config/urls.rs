//! Checks URLs without connecting. Error messages never repeat a URL, because it may contain a password.

use std::str::FromStr;

use postrider::sink::error_chain;
use sqlx::{mysql::MySqlConnectOptions, postgres::PgConnectOptions};
use tracing::subscriber::NoSubscriber;

use super::{Problem, SecretUrl, problem::listed};

/// The TLS parameters of PostgreSQL and MySQL URLs.
const POSTGRES_TLS: [&str; 9] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
];
const MYSQL_TLS: [&str; 8] =
    ["ssl-mode", "sslmode", "ssl-ca", "sslca", "ssl-cert", "sslcert", "ssl-key", "sslkey"];

/// Checks the URL of a source.
pub(super) fn check_database(source: &str, url: &SecretUrl, report: &mut impl FnMut(Problem)) {
    let text = url.expose();
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    let (read, tls) = match scheme {
        "postgres" | "postgresql" => {
            (silently(|| PgConnectOptions::from_str(text).err()), POSTGRES_TLS.as_slice())
        }
        "mysql" | "mariadb" => (silently(|| MySqlConnectOptions::from_str(text).err()), MYSQL_TLS.as_slice()),
        _ => {
            if let Err(error) = postrider::ConnectOptions::default().schema_sql(text) {
                report(Problem::new(format!("the source `{source}`: {error}")).within(url));
            }
            return;
        }
    };
    if let Some(error) = read {
        report(
            Problem::new(format!("the URL of the source `{source}` is invalid: {}", error_chain(&error)))
                .within(url)
                .hint("percent-encode / ? # @ : % in a password: %2F %3F %23 %40 %3A %25"),
        );
    }
    // The drivers ignore unknown parameters and would connect without what these ask for.
    for name in parameters(text).filter(|name| sounds_like_tls(name) && !tls.contains(name)) {
        report(
            Problem::new(format!("the URL of the source `{source}` has the unknown parameter `{name}`"))
                .within(url)
                .hint(format!("the TLS parameters are: {}", listed(tls.iter().copied()))),
        );
    }
}

/// Checks the URL of a sink, or several separated by commas where the sink accepts them.
pub(super) fn check_scheme(
    place: &str,
    url: &SecretUrl,
    several: bool,
    schemes: [&str; 2],
    report: &mut impl FnMut(Problem),
) {
    let begins_well = |url: &str| {
        let scheme = url.trim().split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| schemes.iter().any(|known| scheme.eq_ignore_ascii_case(known)))
    };
    let text = url.expose();
    if !(if several { text.split(',').all(begins_well) } else { begins_well(text) }) {
        let [plain, encrypted] = schemes;
        report(
            Problem::new(format!("the URL of {place} does not begin with `{plain}://` or `{encrypted}://`"))
                .within(url)
                .hint(format!("write a full URL, such as `{plain}://host:port`")),
        );
    }
}

/// Runs a driver's parser without its log, which shows unknown parameters with their values.
fn silently<T>(read: impl FnOnce() -> T) -> T {
    tracing::subscriber::with_default(NoSubscriber::default(), read)
}

fn parameters(url: &str) -> impl Iterator<Item = &str> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('#').next().unwrap_or_default().split('&');
    pairs.map(|pair| pair.split('=').next().unwrap_or_default())
}

fn sounds_like_tls(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // Anything longer or stranger than a name may be part of a password.
    let plain =
        name.len() <= 40 && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'));
    plain && (name.contains("ssl") || name.contains("tls"))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::fmt::MakeWriter;

    use crate::config::{Problem, parse};

    fn problems(url: &str, sink: &str) -> Vec<Problem> {
        let text = format!(
            "sources:\n  shop:\n    url: \"{url}\"\n    routes: [{{ event_type: a, sink: out }}]\nsinks:\n  out: {{ {sink} }}\n"
        );
        parse(&text, HashMap::new()).err().unwrap_or_default()
    }

    #[test]
    fn a_url_that_names_no_database_is_told_with_its_line_and_without_its_password() {
        for (url, words) in [
            ("postgress://u:canary@h/db", "names no database that can be opened here"),
            ("postgres://u:canary@h:99999/db", "is invalid"),
            ("postgres://u:cana#ry@h/db", "is invalid"),
            ("mysql://u:canary@h/db?ssl-mode=verify-full", "ssl_mode"),
            ("mysql://u:canary@h/db?useSSL=true&requireSSL=true", "the unknown parameter `useSSL`"),
            ("mariadb://u:canary@h/db?ssl_mode=VERIFY_CA", "the unknown parameter `ssl_mode`"),
            ("postgres://u:canary@h/db?sslca=x", "the unknown parameter `sslca`"),
        ] {
            let problems = problems(url, "stdout: {}");
            let first = problems.first().unwrap_or_else(|| panic!("{url} was taken"));
            assert_eq!(first.at, Some((3, 10)), "{first:?}");
            assert!(first.what.contains(words), "{first:?}");
            assert!(!format!("{problems:?}").contains("cana"), "{problems:?}");
        }
    }

    #[test]
    fn what_the_drivers_read_is_taken() {
        for url in [
            "shop.db",
            "sqlite:shop.db",
            "postgres://u:p@h:5432/db?sslmode=verify-full&sslrootcert=a&sslcert=b&sslkey=c&application_name=x",
            "mysql://u:p@h/db?ssl-mode=VERIFY_IDENTITY&ssl-ca=a&ssl-cert=b&ssl-key=c&charset=utf8mb4",
            "mariadb://u:p%23@h/db",
        ] {
            let problems = problems(url, "stdout: {}");
            assert!(problems.is_empty(), "{url}: {problems:?}");
        }
    }

    #[test]
    fn a_comma_parts_the_urls_of_nats_and_no_others() {
        for sink in [
            "http: { url: \"https://h/hook?ids=a,b\" }",
            "webhook: { url: \"https://h/a,b\", unsigned: true }",
            "rabbitmq: { url: \"amqp://u:p,w@h\", exchange: e, routing_key: k }",
            "redis: { url: \"redis://:pa,ss@h\", stream: s }",
            "nats: { url: \"nats://a, nats://b\", subject: s }",
        ] {
            let problems = problems("shop.db", sink);
            assert!(problems.is_empty(), "{sink}: {problems:?}");
        }
        let [problem] = &problems("shop.db", "nats: { url: \"nats://a,b\", subject: s }")[..] else {
            panic!()
        };
        assert!(problem.what.contains("`nats://` or `tls://`"), "{problem:?}");
    }

    #[test]
    fn what_is_switched_off_may_have_a_url_that_is_none() {
        let text = "sources:\n  shop: { url: shop.db, routes: [{ event_type: a, sink: out }] }\n  \
                    later: { enabled: false, url: \"postgres://h:port/db\", routes: [{ event_type: a, sink: out }] }\n\
                    sinks:\n  out: { stdout: {} }\n  then: { enabled: false, redis: { url: none, stream: s } }\n";
        let problems = parse(text, HashMap::new()).err().unwrap_or_default();
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn a_driver_logs_nothing_of_a_url_that_is_read() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            problems("postgres://u:p@h/db?sslpassword=canary&pgbouncer=true", "stdout: {}");
        });
        let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(said, "");
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Log {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_sink_whose_url_is_of_another_kind_is_named_with_its_line() {
        for (sink, words) in [
            ("http: { url: \"canary:8080\" }", "`http://` or `https://`"),
            ("webhook: { url: \"//canary\", unsigned: true }", "`http://` or `https://`"),
            ("rabbitmq: { url: \"http://canary\", exchange: e, routing_key: k }", "`amqp://` or `amqps://`"),
            ("redis: { url: \"canary\", stream: s }", "`redis://` or `rediss://`"),
        ] {
            let problems = problems("shop.db", sink);
            let [problem] = problems.as_slice() else { panic!("{sink}: {problems:?}") };
            assert!(problem.what.contains("the sink `out`") && problem.what.contains(words), "{problem:?}");
            assert!(
                problem.at.is_some_and(|at| at.0 == 6) && !problem.what.contains("canary"),
                "{problem:?}"
            );
        }
    }
}
