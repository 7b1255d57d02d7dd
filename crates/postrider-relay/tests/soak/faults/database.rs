//! What is done to the database and to the ways there.

use std::time::Duration;

use postrider_testkit::proxy::{Direction, Proxy};
use sqlx::{Connection, Executor};

use crate::{
    Failure,
    incidents::Scope,
    ledger::Number,
    relays::{SEATS, application},
    rng::Rng,
    stage::Stage,
    time::pass,
    writers,
};

const LANES: usize = 64;

/// How often, and how soon again, rows to lock are looked for: most are gone after milliseconds.
const LOCK_TRIES: usize = 50;
const LOCK_AGAIN: Duration = Duration::from_millis(20);

const BOTH: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

pub(super) async fn fault(stage: &Stage, rng: &mut Rng) -> Result<(), Failure> {
    let seat = rng.below(SEATS);
    match rng.below(18) {
        0..=2 => lock_rows(stage, rng.seconds(10, 20)).await,
        3 | 4 => lock_lanes(stage, rng, Duration::from_secs(20)).await,
        5..=7 => terminate(stage, seat, rng.once_in(2)).await,
        8 => terminate_all(stage).await,
        9..=11 => {
            stall(stage, seat, rng.pick([&BOTH[..], &BOTH[..1], &BOTH[1..]]), rng.seconds(10, 40)).await
        }
        12 | 13 => cut(stage, seat, rng.once_in(2)).await,
        14 => stall_all(stage, rng.seconds(3, 12)).await,
        15 => terminate_writers(stage).await,
        _ => snapshot(stage, rng.seconds(30, 90)).await,
    }
}

/// Somebody else locks rows of events that wait.
async fn lock_rows(stage: &Stage, time: Duration) -> Result<(), Failure> {
    let mut conn = stage.database.connect("soak-locker").await?;
    let open = stage.shared.incidents.begin("rows locked", Vec::new());
    conn.execute("BEGIN").await?;
    let mut locked = 0;
    for _ in 0..LOCK_TRIES {
        let sql = "SELECT event_id FROM postrider_event WHERE status <> 3 LIMIT 20 FOR UPDATE SKIP LOCKED";
        let ids: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut conn).await?;
        locked += ids.len();
        let numbers = ids.iter().filter_map(|id| id.strip_prefix('e')?.parse::<Number>().ok());
        let scopes: Vec<Scope> = {
            let book = stage.shared.ledger.lock();
            numbers
                .map(|number| match book.event(number).map(|event| event.key) {
                    Some(key) if key != 0 => Scope::Key(key),
                    _ => Scope::Event(number),
                })
                .collect()
        };
        stage.shared.incidents.concerns(&open, scopes);
        if locked >= 10 {
            break;
        }
        pass(LOCK_AGAIN).await;
    }
    stage.hold(time).await;
    let undone = conn.execute("ROLLBACK").await;
    stage.shared.incidents.end(open);
    undone?;
    Ok(conn.close().await?)
}

/// Somebody else locks the rows of lanes for longer than a lease.
async fn lock_lanes(stage: &Stage, rng: &mut Rng, time: Duration) -> Result<(), Failure> {
    let lanes: Vec<i32> = (0..8).filter_map(|_| i32::try_from(rng.below(LANES)).ok()).collect();
    let mut conn = stage.database.connect("soak-locker").await?;
    let scopes = lanes.iter().filter_map(|lane| u8::try_from(*lane).ok()).map(Scope::Lane).collect();
    let open = stage.shared.incidents.begin("lanes locked", scopes);
    conn.execute("BEGIN; SET LOCAL lock_timeout = '5s'").await?;
    let sql = "SELECT lane FROM postrider_lane WHERE lane = ANY($1) ORDER BY lane FOR UPDATE";
    let locked = sqlx::query(sql).bind(&lanes).fetch_all(&mut conn).await;
    if locked.is_ok() {
        stage.hold(time).await;
    }
    let undone = conn.execute("ROLLBACK").await;
    stage.shared.incidents.end(open);
    locked?;
    undone?;
    Ok(conn.close().await?)
}

async fn terminate(stage: &Stage, seat: usize, all: bool) -> Result<(), Failure> {
    let open = stage.shared.incidents.begin("sessions of a relay ended", vec![stage.relays.scope(seat)]);
    let ended = stage.database.terminate(&application(seat), all).await;
    stage.shared.incidents.end(open);
    ended.map(|_| ())
}

async fn terminate_all(stage: &Stage) -> Result<(), Failure> {
    let scopes = (0..SEATS).map(|seat| stage.relays.scope(seat)).collect();
    let open = stage.shared.incidents.begin("sessions of all relays ended", scopes);
    let ended = stage.database.terminate("soak-relay-%", true).await;
    stage.shared.incidents.end(open);
    ended.map(|_| ())
}

/// Commits of writers may go without an answer. That concerns nobody else.
async fn terminate_writers(stage: &Stage) -> Result<(), Failure> {
    stage.shared.incidents.moment("sessions of writers ended", Vec::new());
    stage.database.terminate(writers::APPLICATION, false).await.map(|_| ())
}

/// Nothing passes between a relay and the database.
async fn stall(stage: &Stage, seat: usize, directions: &[Direction], time: Duration) -> Result<(), Failure> {
    let proxy = stage.relays.proxy(seat)?;
    let open = stage.shared.incidents.begin("way to the database stalled", vec![stage.relays.scope(seat)]);
    directions.iter().for_each(|direction| proxy.stall(*direction));
    stage.hold(time).await;
    stage.shared.incidents.concerns(&open, [stage.relays.scope(seat)]);
    directions.iter().for_each(|direction| proxy.flow(*direction));
    stage.shared.incidents.end(open);
    Ok(())
}

async fn stall_all(stage: &Stage, time: Duration) -> Result<(), Failure> {
    let scopes = (0..SEATS).map(|seat| stage.relays.scope(seat)).chain([Scope::All]).collect();
    let open = stage.shared.incidents.begin("all ways to the database stalled", scopes);
    let each = |what: fn(&Proxy, Direction)| {
        stage.relays.proxies().for_each(|proxy| BOTH.iter().for_each(|direction| what(proxy, *direction)));
    };
    each(Proxy::stall);
    stage.hold(time).await;
    let scopes: Vec<Scope> = (0..SEATS).map(|seat| stage.relays.scope(seat)).collect();
    stage.shared.incidents.concerns(&open, scopes);
    each(Proxy::flow);
    stage.shared.incidents.end(open);
    Ok(())
}

/// Connections end, or pass nothing on for ever.
async fn cut(stage: &Stage, seat: usize, silently: bool) -> Result<(), Failure> {
    let proxy = stage.relays.proxy(seat)?;
    let what =
        if silently { "connections to the database fell silent" } else { "connections to the database cut" };
    let open = stage.shared.incidents.begin(what, vec![stage.relays.scope(seat)]);
    if silently {
        proxy.silence();
        stage.hold(Duration::from_secs(10)).await;
    } else {
        proxy.cut();
    }
    stage.shared.incidents.end(open);
    Ok(())
}

/// An old snapshot is held open. Nobody may notice.
async fn snapshot(stage: &Stage, time: Duration) -> Result<(), Failure> {
    let mut conn = stage.database.connect("soak-snapshot").await?;
    conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM postrider_event").await?;
    let open = stage.shared.incidents.begin("old snapshot held open", Vec::new());
    stage.hold(time).await;
    let undone = conn.execute("ROLLBACK").await;
    stage.shared.incidents.end(open);
    undone?;
    Ok(conn.close().await?)
}
