//! Measures plain INSERTs without notification: each in its own transaction on its own connection, 50 a second, delivered by a relay with
//! default settings.
//!
//! Time runs from the return of the INSERT until the sink, a server that answers at once, has read the request. Processor time is that of the
//! relay and of the server's connections except the one that inserts; SQLite has no server.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, http::StatusCode};
use postrider_relay::Failure;
use serde_json::json;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    Scale,
    cpu::Both,
    figure::Figure,
    files::Files,
    rounds::{bar, percentile},
    server::process::Relay,
};

/// Limits for PostgreSQL, in milliseconds and cores.
const P50_MS_MAX: f64 = 5.0;
const P99_MS_MAX: f64 = 15.0;
const CPU_MAX: f64 = 0.03;
const IDLE_CPU_MAX: f64 = 0.01;

/// The interval of 50 events a second.
const TICK: Duration = Duration::from_millis(20);

/// Events before those that count.
const FIRST: u64 = 100;

/// Timeout of an event.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// Settling time after the last event, before the idle relay is watched.
const COME_TO_REST: Duration = Duration::from_secs(6);
const IDLE_FOR: Duration = Duration::from_secs(30);

/// The connection that inserts.
enum Writer {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
    Sqlite(SqliteConnection),
}

impl Writer {
    async fn connect(url: &str) -> Result<Self, Failure> {
        Ok(match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) => Self::Postgres(PgConnection::connect(url).await?),
            Some(("mysql" | "mariadb", _)) => Self::Mysql(MySqlConnection::connect(url).await?),
            _ => Self::Sqlite(SqliteConnection::connect(url).await?),
        })
    }

    /// The server's thread that serves the connection, where the server shows it.
    async fn thread(&mut self) -> Result<Option<i64>, Failure> {
        Ok(match self {
            Self::Postgres(conn) => {
                sqlx::query_scalar("SELECT pg_backend_pid()::bigint").fetch_optional(conn).await?
            }
            Self::Mysql(conn) => {
                let own = "SELECT CAST(tid AS SIGNED) FROM information_schema.processlist WHERE id = CONNECTION_ID()";
                sqlx::query_scalar(own).fetch_optional(conn).await.unwrap_or_default()
            }
            Self::Sqlite(_) => None,
        })
    }

    async fn insert(&mut self, number: u64) -> Result<(), Failure> {
        let payload = json!({ "number": number }).to_string();
        match self {
            Self::Postgres(conn) => {
                let sql = "INSERT INTO postrider_event (event_type, payload) VALUES ('OrderPlaced', $1)";
                sqlx::query(sql).bind(payload).execute(conn).await?;
            }
            Self::Mysql(conn) => {
                let sql = "INSERT INTO postrider_event (event_type, payload) VALUES ('OrderPlaced', ?)";
                sqlx::query(sql).bind(payload).execute(conn).await?;
            }
            Self::Sqlite(conn) => {
                let sql = "INSERT INTO postrider_event (event_type, payload) VALUES ('OrderPlaced', ?)";
                sqlx::query(sql).bind(payload).execute(conn).await?;
            }
        }
        Ok(())
    }
}

pub(super) async fn on_file(scale: Scale) -> Result<Vec<Figure>, Failure> {
    let files = Files::create()?;
    let store = files.open("plain").await?;
    postrider::Store::migrate(&store).await?;
    let file = store.pool().connect_options().get_filename().display().to_string();
    let measured = measure(&format!("sqlite://{file}"), scale).await;
    super::files::close(store).await;
    measured
}

/// Measures the empty outbox at this URL.
pub(super) async fn measure(url: &str, scale: Scale) -> Result<Vec<Figure>, Failure> {
    let (first, count) = (scale.pick(FIRST, 5), scale.pick(1500, 10));
    let (come_to_rest, idle_for) = match scale {
        Scale::Full => (COME_TO_REST, IDLE_FOR),
        Scale::Quick => (Duration::ZERO, Duration::from_secs(1)),
    };
    let bar = bar("plain", "events", first + count);
    let mut sink = Arrivals::listen().await?;
    let relay = Relay::start(url, &json!({ "http": { "url": sink.url } })).await?;
    let mut writer = Writer::connect(url).await?;
    let mut both = Both::of(&relay, Some(url)).await?.without(writer.thread().await?);

    let (mut took, mut before) = (Vec::new(), (0.0, Instant::now()));
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0..first + count {
        ticks.tick().await;
        if number == first {
            before = (both.taken(&relay).await?, Instant::now());
        }
        writer.insert(number).await?;
        let returned = Instant::now();
        let arrived = sink.arrival(number).await?;
        if number >= first {
            took.push(arrived.saturating_duration_since(returned).as_secs_f64() * 1e3);
        }
        bar.inc(1);
    }
    let cpu = (both.taken(&relay).await? - before.0) / before.1.elapsed().as_secs_f64();

    tokio::time::sleep(come_to_rest).await;
    let before = (both.taken(&relay).await?, Instant::now());
    tokio::time::sleep(idle_for).await;
    let idle_cpu = (both.taken(&relay).await? - before.0) / before.1.elapsed().as_secs_f64();
    relay.stop().await?;
    bar.finish_and_clear();

    let is_promised = matches!(writer, Writer::Postgres(_));
    let most = |figure: Figure, limit: f64| if is_promised { figure.below(limit) } else { figure };
    let server = f64::from(u8::from(both.counts_server()));
    Ok(vec![
        most(Figure::new("plain_insert_ms_p50", percentile(took.clone(), 50)), P50_MS_MAX),
        most(Figure::new("plain_insert_ms_p99", percentile(took, 99)), P99_MS_MAX),
        most(Figure::new("plain_insert_cpu", cpu), CPU_MAX),
        most(Figure::new("idle_cpu", idle_cpu), IDLE_CPU_MAX),
        Figure::new("plain_server_counted", server),
    ])
}

/// A server that records when it has read which event.
struct Arrivals {
    url: String,
    arrivals: mpsc::UnboundedReceiver<(u64, Instant)>,
    server: tokio::task::JoinHandle<()>,
}

impl Arrivals {
    async fn listen() -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| Failure::unreachable("no server can be started", &error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(cannot)?;
        let url = format!("http://{}/", listener.local_addr().map_err(cannot)?);
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let arrived = Arc::new(arrived);
        let answer = move |body: Bytes| {
            let now = Instant::now();
            let payloads: Vec<serde_json::Value> = serde_json::from_slice(&body).unwrap_or_default();
            for number in payloads.iter().filter_map(|payload| payload.get("number")?.as_u64()) {
                // The receiving end is gone once enough events have arrived.
                let _ = arrived.send((number, now));
            }
            std::future::ready(StatusCode::NO_CONTENT)
        };
        let router = Router::new().fallback(answer);
        let server = tokio::spawn(async move {
            // It ends with the process, or when connections fail: then events do not arrive.
            _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, arrivals, server })
    }

    /// Waits for an event, whatever arrives before it, and returns its time.
    async fn arrival(&mut self, number: u64) -> Result<Instant, Failure> {
        loop {
            match timeout(ARRIVES_WITHIN, self.arrivals.recv()).await {
                Ok(Some((arrived, at))) if arrived == number => return Ok(at),
                Ok(Some(_)) => {}
                _ => return Err(Failure::bad(format!("an event did not come in {ARRIVES_WITHIN:?}"))),
            }
        }
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.server.abort();
    }
}
