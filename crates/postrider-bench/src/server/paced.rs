//! Measures what delivery costs writers: producers at half of their maximum rate, with an engine beside them and without.

use std::time::{Duration, Instant};

use postrider::{Delivery, Outbox, postgres::PgStore};
use postrider_relay::Failure;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    super::{
        Scale,
        figure::Figure,
        files::event,
        rounds::{Rounds, per_second, percentile},
    },
    KEYS,
    database::{Database, PAYLOAD_BYTES},
};

/// Limits: the rate that producers keep, and the ratio of their transaction times.
const RATE_MIN: f64 = 0.98;
const P95_RATIO_MAX: f64 = 1.5;

const PRODUCERS: u64 = 4;

pub(super) async fn measure(
    database: &Database,
    store: &PgStore,
    scale: Scale,
    rounds: Rounds,
) -> Result<Vec<Figure>, Failure> {
    let time = Duration::from_millis(scale.pick(3000, 200));
    let alone = Outbox::builder().store(store.clone()).write_only().await?;
    let (mut pace, mut rates) = (Duration::ZERO, Vec::new());
    let turns = rounds
        .by_turns("paced", "p95 ms or tx/s", 1, ["most", "alone", "beside"], async |name| {
            database.refill(0).await?;
            match name {
                "most" => {
                    let (rate, _) = produce(&alone, store, time, None).await?;
                    pace = Duration::from_secs_f64(2.0 * PRODUCERS as f64 / rate);
                    Ok(rate)
                }
                "alone" => Ok(produce(&alone, store, time, Some(pace)).await?.1),
                _ => {
                    let engine = Outbox::builder()
                        .store(store.clone())
                        .on("OrderPlaced", async |_: Delivery| ())
                        .start()
                        .await?;
                    let produced = produce(&engine, store, time, Some(pace)).await;
                    engine.shutdown().await;
                    let (rate, p95) = produced?;
                    rates.push(rate * pace.as_secs_f64() / PRODUCERS as f64);
                    Ok(p95)
                }
            }
        })
        .await?;
    Ok(vec![
        // The first round does not count.
        Figure::new("paced_rate", super::super::rounds::median(rates.into_iter().skip(1))).at_least(RATE_MIN),
        Figure::new("paced_p95_ratio", turns.ratio("beside", "alone")).at_most(P95_RATIO_MAX),
        Figure::new("paced_p95_ms", turns.median("beside")),
        Figure::new("paced_most_per_s", turns.median("most")),
    ])
}

/// Lets all producers write one event per transaction at this interval. Returns transactions per second and the 95th percentile of a transaction
/// in milliseconds.
async fn produce(
    outbox: &Outbox,
    store: &PgStore,
    time: Duration,
    pace: Option<Duration>,
) -> Result<(f64, f64), Failure> {
    let started = Instant::now();
    let producer = |number: u64| {
        let (outbox, store) = (outbox.clone(), store.clone());
        tokio::spawn(async move {
            let mut took = Vec::new();
            let mut ticks = interval(pace.unwrap_or(Duration::from_nanos(1)));
            // A late producer catches up, or the rate would drop.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            while started.elapsed() < time {
                if pace.is_some() {
                    ticks.tick().await;
                }
                let event = event(0, PAYLOAD_BYTES)
                    .key(format!("key {}", (took.len() as u64 * PRODUCERS + number) % KEYS));
                let began = Instant::now();
                outbox.transaction(&store, async |tx| tx.write(event).await).await?;
                took.push(began.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<_, Failure>(took)
        })
    };
    let producers: Vec<_> = (0..PRODUCERS).map(producer).collect();
    let mut all = Vec::new();
    for producer in producers {
        all.extend(producer.await.map_err(|error| Failure::unreachable("a producer ended early", &error))??);
    }
    Ok((per_second(all.len() as u64, started.elapsed()), percentile(all, 95)))
}
