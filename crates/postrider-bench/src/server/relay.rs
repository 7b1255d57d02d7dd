//! Measures a relay process: its memory with a million pending events and no receiver, its time to the first delivery, and what it uses when
//! idle.
//!
//! Processor time includes that of the server on behalf of the relay, if the server runs on this machine.

use std::time::{Duration, Instant};

use postrider_relay::Failure;

use super::{
    super::{Scale, cpu::Both, figure::Figure, rounds::bar},
    database::Database,
    process::{Relay, free_port},
    sink::Receiver,
};

const BACKLOG_RSS_MIB_MAX: f64 = 256.0;
const IDLE_RSS_MIB_MAX: f64 = 40.0;
const IDLE_CPU_MAX: f64 = 0.01;
const FIRST_DELIVERY_S_MAX: f64 = 2.0;

/// How long a relay without a receiver is watched, and one without events.
const DOWN_FOR: Duration = Duration::from_secs(20);
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Settling time before an idle relay is watched.
const COME_TO_REST: Duration = Duration::from_secs(6);

pub(super) async fn measure(
    database: &Database,
    receiver: &dyn Receiver,
    scale: Scale,
) -> Result<Vec<Figure>, Failure> {
    let pending = scale.pick(1_000_000, 5000);
    let (down_for, idle_for) = match scale {
        Scale::Full => (DOWN_FOR, IDLE_FOR),
        Scale::Quick => (Duration::from_secs(2), Duration::from_secs(2)),
    };
    let bar = bar("relay", "steps", 4);
    database.refill(pending).await?;
    bar.inc(1);

    // A port that was just released has no listener.
    let nobody = format!("http://127.0.0.1:{}/", free_port()?);
    let relay = Relay::start(&database.url, &serde_json::json!({ "http": { "url": nobody } })).await?;
    relay.until("outbox_cold_enqueued_total").await?;
    tokio::time::sleep(down_for).await;
    let backlog = relay.resident()?;
    relay.stop().await?;
    bar.inc(1);

    let started = Instant::now();
    let relay = Relay::start(&database.url, &receiver.section()).await?;
    relay.until("outbox_dispatch_success_total").await?;
    let first_delivery = started.elapsed();
    relay.stop().await?;
    bar.inc(1);

    // Some clients allocate more with the first send.
    database.refill(1).await?;
    let relay = Relay::start(&database.url, &receiver.section()).await?;
    relay.until("outbox_dispatch_success_total").await?;
    tokio::time::sleep(COME_TO_REST.min(idle_for)).await;
    let mut both = Both::of(&relay, Some(&database.url)).await?;
    let (before, began) = (both.taken(&relay).await?, Instant::now());
    tokio::time::sleep(idle_for).await;
    let idle_cpu = (both.taken(&relay).await? - before) / began.elapsed().as_secs_f64();
    let idle = relay.resident()?;
    relay.stop().await?;
    bar.finish_and_clear();
    Ok(vec![
        Figure::new("backlog_rss_mib", backlog.now_mib).below(BACKLOG_RSS_MIB_MAX),
        Figure::new("backlog_rss_peak_mib", backlog.peak_mib),
        Figure::new("first_delivery_s", first_delivery.as_secs_f64()).below(FIRST_DELIVERY_S_MAX),
        Figure::new("idle_rss_mib", idle.now_mib).below(IDLE_RSS_MIB_MAX),
        Figure::new("idle_cpu", idle_cpu).below(IDLE_CPU_MAX),
    ])
}
