//! A failover that loses a tail: the primary dies with events in flight that its streaming standby never heard of, the standby is promoted,
//! and new events have their numbers.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use postrider::{
    Delivery, Event, Outbox,
    postgres::PgStore,
    sink::error_chain,
    store::{Claim, LaneClaim, Lease, Position, Token},
};
use postrider_testkit::conformance::Failure;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::watch;

use crate::{server::Server, time::pass};

/// How long a step may take.
const STEP: Duration = Duration::from_secs(60);

/// How soon everything is to be delivered once the new primary serves.
const SOON: Duration = Duration::from_secs(30);

/// Keys that events are written for, and how many are in flight when the primary dies.
const KEYS: usize = 100;

pub(crate) fn prove() -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run())
}

async fn run() -> Result<(), Failure> {
    let primary = Server::borrow("postgres")?;
    execute(&primary.url, "CREATE DATABASE failover").await?;
    let url = at(&primary.url, None, "failover")?;
    let store = PgStore::builder().connections(6).connect(&url).await?;
    postrider::Store::migrate(&store).await?;
    let mut standby = Standby::follow(&primary.url).await?;

    let (open, gate) = watch::channel(false);
    let delivered: Arc<Mutex<Vec<String>>> = Arc::default();
    let (seen, waiting) = (delivered.clone(), gate.clone());
    let outbox = Outbox::builder()
        .store(store)
        .workers(2 * KEYS)
        .on("Tested", move |delivery: Delivery| {
            let (seen, mut waiting) = (seen.clone(), waiting.clone());
            async move {
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(delivery.id().to_string());
                let _ = waiting.wait_for(|open| *open).await;
            }
        })
        .start()
        .await?;
    let count = || delivered.lock().unwrap_or_else(PoisonError::into_inner).len();

    // The standby has what was delivered, and what is being sent.
    open.send_replace(true);
    let first = write(&url, "first", "k").await?;
    until("the first events are delivered", STEP, async || Ok(left(&url).await? == 0)).await?;
    open.send_replace(false);
    let kept = write(&url, "kept", "k").await?;
    until("they are under way", STEP, async || Ok(count() == 2 * KEYS)).await?;
    standby.catch_up(&primary.url).await?;
    refuses_claims(&at(&standby.url, None, "failover")?).await?;
    standby.stop_following().await?;
    let lost = write(&url, "lost", "x").await?;
    until("those that will be lost are under way", STEP, async || Ok(count() == 3 * KEYS)).await?;

    kill(&primary.url).await?;
    standby.take_place(&primary.url).await?;
    let began = Instant::now();
    let there = ids(&url, "postrider_event").await?;
    if there != kept {
        return Err(format!("the standby has {} of {} events", there.len(), kept.len()).into());
    }
    let new = write(&url, "new", "k").await?;
    open.send_replace(true);
    until("all that the new primary has is delivered", SOON, async || Ok(left(&url).await? == 0)).await?;
    println!("  delivered {:.1} s after the promotion", began.elapsed().as_secs_f64());

    let done = ids(&url, "postrider_done").await?;
    let missing: Vec<_> = first.iter().chain(&kept).chain(&new).filter(|id| !done.contains(*id)).collect();
    let sent: BTreeSet<String> =
        delivered.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
    let unsent: Vec<_> = kept.iter().chain(&new).filter(|id| !sent.contains(*id)).collect();
    if !missing.is_empty() || !unsent.is_empty() {
        return Err(format!("{} events are lost, {} were never sent", missing.len(), unsent.len()).into());
    }
    in_order(&delivered.lock().unwrap_or_else(PoisonError::into_inner))?;
    drop(lost);
    outbox.shutdown().await;
    standby.end();
    Ok(())
}

/// A claim on a standby, where a pooler may send whatever only reads: its snapshots do not say which transactions are open.
async fn refuses_claims(standby: &str) -> Result<(), Failure> {
    let store = PgStore::connect(standby).await?;
    let lease = Lease { lane: 0, token: Token { epoch: 1, nonce: 1 } };
    let claim = Claim::new(vec![LaneClaim::after(lease, Position::START)], 1);
    let refused = postrider::Store::claim(&store, &claim).await.map(|_| ());
    store.close().await;
    match refused {
        Err(error) if error_chain(&error).contains("claims are for the primary") => Ok(()),
        other => Err(format!("a claim on a standby came to {other:?}").into()),
    }
}

/// Ids are `round-key-number`; those of one key are first sent in the order of their rounds.
fn in_order(sent: &[String]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    let firsts: Vec<&String> = sent.iter().filter(|id| seen.insert(id.as_str())).collect();
    for key in 0..KEYS {
        let of_key: Vec<&str> = firsts
            .iter()
            .filter(|id| id.ends_with(&format!("-{key}")))
            .filter_map(|id| id.split('-').next())
            .filter(|round| *round != "lost")
            .collect();
        if of_key != ["first", "kept", "new"] {
            return Err(format!("the events of key {key} were first sent as {of_key:?}").into());
        }
    }
    Ok(())
}

/// Writes one event of each of so many keys, and gives their ids.
async fn write(url: &str, round: &str, keys: &str) -> Result<BTreeSet<String>, Failure> {
    let mut conn = PgConnection::connect(url).await?;
    let mut ids = BTreeSet::new();
    for key in 0..KEYS {
        let event = Event::json_text("Tested", "{}")
            .id(format!("{round}-{key}"))
            .key(format!("{keys}{key}"))
            .build()?;
        let insert = "INSERT INTO postrider_event (event_id, event_type, ordering_key, payload) VALUES ($1, $2, $3, '{}')";
        let insert = sqlx::query(insert).bind(event.id().to_string()).bind("Tested");
        insert.bind(event.key().map(str::to_owned)).execute(&mut conn).await?;
        ids.insert(event.id().to_string());
    }
    conn.close().await?;
    Ok(ids)
}

async fn left(url: &str) -> Result<i64, Failure> {
    let mut conn = PgConnection::connect(url).await?;
    let count = sqlx::query_scalar("SELECT count(*) FROM postrider_event").fetch_one(&mut conn).await?;
    conn.close().await?;
    Ok(count)
}

async fn ids(url: &str, table: &str) -> Result<BTreeSet<String>, Failure> {
    let mut conn = PgConnection::connect(url).await?;
    let sql = AssertSqlSafe(format!("SELECT event_id FROM {table}"));
    let ids: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut conn).await?;
    conn.close().await?;
    Ok(ids.into_iter().collect())
}

async fn execute(url: &str, sql: &str) -> Result<(), Failure> {
    let mut conn = PgConnection::connect(url).await?;
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

async fn ask(url: &str, sql: &str) -> Result<String, Failure> {
    let mut conn = PgConnection::connect(url).await?;
    let told = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut conn).await?;
    conn.close().await?;
    Ok(told)
}

async fn until(
    what: &str,
    limit: Duration,
    mut holds: impl AsyncFnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + limit;
    loop {
        // A server that is away is asked again.
        let last = holds().await;
        if matches!(last, Ok(true)) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!("it did not come about within {limit:?} that {what}: {last:?}").into());
        }
        pass(Duration::from_millis(20)).await;
    }
}

/// The URL with another port, and another database.
fn at(url: &str, port: Option<u16>, database: &str) -> Result<String, Failure> {
    let (server, _) = url.rsplit_once('/').ok_or("a URL names a database")?;
    let (host, own) = server.rsplit_once(':').ok_or("a URL names a port")?;
    Ok(format!("{host}:{}/{database}", port.map_or(own.to_owned(), |port| port.to_string())))
}

fn port_of(url: &str) -> Result<u16, Failure> {
    let (server, _) = url.rsplit_once('/').ok_or("a URL names a database")?;
    Ok(server.rsplit_once(':').ok_or("a URL names a port")?.1.parse()?)
}

/// Ends a server at once, as a power cut would, and for good.
async fn kill(url: &str) -> Result<(), Failure> {
    let data =
        PathBuf::from(ask(url, "SELECT setting FROM pg_settings WHERE name = 'data_directory'").await?);
    let pid = fs::read_to_string(data.join("postmaster.pid"))?;
    let pid = pid.lines().next().ok_or("the server has no process")?.trim().to_owned();
    Command::new("kill").args(["-QUIT", &pid]).status()?;
    until("the primary is gone", STEP, async || Ok(PgConnection::connect(url).await.is_err())).await
}

/// A server that follows another.
struct Standby {
    programs: PathBuf,
    folder: PathBuf,
    owner: (u32, u32),
    url: String,
    server: Option<Child>,
}

impl Standby {
    /// Copies a primary, and follows it.
    async fn follow(primary: &str) -> Result<Self, Failure> {
        let setting = |name: &str| format!("SELECT setting FROM pg_settings WHERE name = '{name}'");
        let programs = ask(primary, "SELECT setting FROM pg_config WHERE name = 'BINDIR'").await?;
        let data = fs::metadata(ask(primary, &setting("data_directory")).await?)?;
        let folder = env::temp_dir().join(format!("postrider-standby-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        chown(&folder, Some(data.uid()), Some(data.gid()))?;
        let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let url = at(primary, Some(free), "postgres")?;
        let owner = (data.uid(), data.gid());
        let mut standby = Self { programs: programs.into(), folder, owner, url, server: None };
        let mut copy = standby.command("pg_basebackup");
        copy.args(["-R", "--no-sync", "-X", "stream", "-c", "fast", "-d", primary, "-D"]).arg(standby.data());
        if !copy.status()?.success() {
            return Err("the primary cannot be copied".into());
        }
        standby.start(free).await?;
        Ok(standby)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.uid(self.owner.0).gid(self.owner.1).current_dir(Path::new("/"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    async fn start(&mut self, port: u16) -> Result<(), Failure> {
        let mut server = self.command("postgres");
        server.arg("-D").arg(self.data());
        let socket = format!("unix_socket_directories={}", self.folder.display());
        let port = format!("port={port}");
        for setting in
            [&*port, &*socket, "listen_addresses=127.0.0.1", "max_connections=300", "shared_buffers=32MB"]
        {
            server.arg("-c").arg(setting);
        }
        self.server = Some(server.spawn()?);
        let url = self.url.clone();
        until("the standby serves", STEP, async || Ok(ask(&url, "SELECT 'up'").await? == "up")).await
    }

    /// Waits until it has all that the primary has.
    async fn catch_up(&self, primary: &str) -> Result<(), Failure> {
        let written = ask(primary, "SELECT pg_current_wal_flush_lsn()::text").await?;
        let has = format!("SELECT (pg_last_wal_replay_lsn() >= '{written}')::text");
        until("the standby has caught up", STEP, async || Ok(ask(&self.url, &has).await? == "true")).await
    }

    /// What the primary writes from now on does not arrive.
    async fn stop_following(&self) -> Result<(), Failure> {
        execute(&self.url, "ALTER SYSTEM SET primary_conninfo = ''").await?;
        execute(&self.url, "SELECT pg_reload_conf()").await?;
        let receivers = "SELECT count(*)::text FROM pg_stat_wal_receiver";
        until("nothing is received", STEP, async || Ok(ask(&self.url, receivers).await? == "0")).await
    }

    /// Serves where the primary did, and is one.
    async fn take_place(&mut self, primary: &str) -> Result<(), Failure> {
        self.end_server("-INT");
        self.url = primary.to_owned();
        self.start(port_of(primary)?).await?;
        execute(&self.url, "SELECT pg_promote()").await?;
        let promoted = "SELECT pg_is_in_recovery()::text";
        until("the standby is promoted", STEP, async || Ok(ask(&self.url, promoted).await? == "false")).await
    }

    fn end_server(&mut self, signal: &str) {
        if let Some(mut server) = self.server.take() {
            let _ = Command::new("kill").args([signal, &server.id().to_string()]).status();
            let _ = server.wait();
        }
    }

    fn end(mut self) {
        self.end_server("-QUIT");
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.end_server("-QUIT");
    }
}
