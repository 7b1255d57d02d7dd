//! What a sink takes while it has nothing to send. In a file of its own: everything in this process is counted.

#![cfg(target_os = "linux")]

mod support;
#[path = "support/time.rs"]
mod time;

use std::{
    fs,
    time::{Duration, Instant},
};

use postrider_core::{Delivery, Event, Outcome, Sink, Source};
use postrider_kafka::{KafkaConfig, KafkaSink};
use postrider_testkit::conformance::{Checked, Failure};
use support::{Topic, broker};

/// How long the process is watched. It is the one thing here that only time can tell.
const WATCHED_FOR: Duration = Duration::from_secs(4);

/// Most of a core. A client that asks for reports ten times a second took 0.8 %.
const CORE_MAX: f64 = 0.004;

/// Seconds of processor time that all threads of this process have taken.
fn cpu() -> Result<f64, Failure> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir("/proc/self/task")?.flatten() {
        // A thread may have ended meanwhile.
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        nanoseconds += text.split(' ').next().and_then(|first| first.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(nanoseconds as f64 / 1e9)
}

#[tokio::test]
async fn a_sink_that_has_delivered_takes_next_to_nothing_while_it_is_idle() -> Checked {
    let topic = Topic::new(&[]).await?;
    let sink = KafkaSink::new(KafkaConfig::new(&broker()?, &topic.name)?)?;
    let event = Event::json_text("Tested", "{}").build()?;
    let delivery = Delivery { event, source: Source::Cold, attempt: 1, lane: 0 };
    assert_eq!(sink.send(&[delivery]).await, [Outcome::Delivered]);
    // What was started for the send comes to rest first.
    time::pass(WATCHED_FOR / 4).await;
    let (before, began) = (cpu()?, Instant::now());
    time::pass(WATCHED_FOR).await;
    let of_a_core = (cpu()? - before) / began.elapsed().as_secs_f64();
    assert!(of_a_core < CORE_MAX, "an idle sink takes {:.2} % of a core", of_a_core * 100.0);
    Ok(())
}
