//! The age of the oldest pending event of each source and of each sink.
//!
//! Every few seconds the oldest few hundred pending events of a source are read in the order of the outbox, so a longer backlog costs nothing
//! more. The first is the oldest of the source, and the first for a sink is the oldest of that sink. If none of them goes to a sink, `walk.rs`
//! reads on for it, a few pages each time; until it finds one, the age of the last event that it read is an upper bound and is shown.
//! These gauges are rendered here and not kept by the recorder, so that a source that is gone disappears at the next scrape.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postrider::{
    Store,
    sink::error_chain,
    store::{Oldest, OldestEvent, Seq},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::{
    text::label,
    walk::{Age, Page, Walk},
};
use crate::{config::Route, relay};

/// Events in a page.
const EVENTS_MAX: usize = 500;

/// The shortest interval between reads, and its ratio to the time that a read takes.
const EVERY: Duration = Duration::from_secs(5);
const REST_TIMES: u32 = 20;

/// Timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The lags of all sources. Cloning copies a pointer.
#[derive(Clone, Default)]
pub(crate) struct Lags(Arc<Mutex<BTreeMap<String, Lag>>>);

/// What is known of a source.
struct Lag {
    ages: Ages,
    seen_at: Instant,
    /// Whether the last read failed; then the last known age keeps growing.
    failing: bool,
}

/// The age of the oldest event of a source, unless too many dead ones precede it, and the ages of its sinks.
#[derive(Debug, Clone, Default, PartialEq)]
struct Ages {
    source: Option<Duration>,
    sinks: BTreeMap<String, Age>,
}

impl Ages {
    /// The ages that the oldest events show. If there are more events, nothing is known of a sink that none of these goes to.
    fn of(oldest: &Oldest, routes: &[Route]) -> Self {
        let mut sinks = BTreeMap::new();
        for event in &oldest.events {
            if let Some(sink) = sink_of(routes, event) {
                sinks.entry(sink.to_owned()).or_insert(Age::Exactly(event.age));
            }
        }
        if !oldest.more {
            for route in routes {
                sinks.entry(route.sink.value.clone()).or_insert(Age::Exactly(Duration::ZERO));
            }
        }
        let source = match oldest.events.first() {
            Some(event) => Some(event.age),
            None => (!oldest.more).then_some(Duration::ZERO),
        };
        Self { source, sinks }
    }
}

fn sink_of<'a>(routes: &'a [Route], event: &OldestEvent) -> Option<&'a str> {
    relay::winner(routes, &event.event_type, &event.aggregate_type).map(|route| route.sink.value.as_str())
}

/// Reads the oldest events of a source, and continues the search for each sink that none of them goes to. `None` if the store does not support it.
async fn read_ages(
    routes: &[Route],
    store: &Arc<dyn Store>,
    walks: &mut BTreeMap<String, Walk>,
) -> Result<Option<Ages>, String> {
    let Some(oldest) = read(store, 0).await? else { return Ok(None) };
    let mut ages = Ages::of(&oldest, routes);
    walks.retain(|sink, _| !ages.sinks.contains_key(sink));
    let last = oldest.events.last().map(|event| event.age);
    for sink in routes.iter().map(|route| &route.sink.value) {
        if ages.sinks.contains_key(sink) {
            continue;
        }
        let age = match oldest.read_to {
            Some(read_to) => {
                let walk = walks.entry(sink.clone()).or_insert_with(|| Walk::new(read_to, last));
                let is_of_sink = |event: &OldestEvent| sink_of(routes, event) == Some(sink);
                walk.go_on(read_to, |after| Box::pin(read(store, after)), is_of_sink).await?;
                walk.age()
            }
            None => last.map(Age::AtMost),
        };
        age.into_iter().for_each(|age| _ = ages.sinks.insert(sink.clone(), age));
    }
    Ok(Some(ages))
}

impl Lags {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Lag>> {
        // Every write is a single operation, so a poisoned lock holds valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a source again and again while polled.
    pub(crate) async fn follow(&self, source: &str, routes: &[Route], store: &Arc<dyn Store>) {
        let (mut failing, mut walks) = (false, BTreeMap::new());
        loop {
            let began = Instant::now();
            match read_ages(routes, store, &mut walks).await {
                Ok(Some(ages)) => {
                    failing = false;
                    let lag = Lag { ages, seen_at: Instant::now(), failing };
                    self.lock().insert(source.to_owned(), lag);
                }
                Ok(None) => return debug!("the store does not report the age of its events"),
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        warn!(source, error, "reading the age of the oldest event failed");
                    }
                    self.lock().entry(source.to_owned()).and_modify(|lag| lag.failing = true);
                }
            }
            sleep(EVERY.max(began.elapsed() * REST_TIMES)).await;
        }
    }

    /// Removes a source.
    pub(crate) fn remove(&self, source: &str) {
        self.lock().remove(source);
    }

    /// Renders the gauges for a scrape.
    pub(super) fn render(&self) -> String {
        let (mut sources, mut sinks, mut bounds) = (String::new(), String::new(), String::new());
        for (source, Lag { ages, seen_at, failing }) in &*self.lock() {
            let since = if *failing { seen_at.elapsed() } else { Duration::ZERO };
            let grown = |age: Duration| if age.is_zero() { age } else { age + since };
            let source = label("source", source);
            // Writing into a string cannot fail.
            if let Some(age) = ages.source {
                _ = writeln!(sources, "outbox_oldest_lag_ms{{{source}}} {}", grown(age).as_millis());
            }
            for (sink, age) in &ages.sinks {
                let (age, is_bound) = match age {
                    Age::Exactly(age) => (age, 0),
                    Age::AtMost(age) => (age, 1),
                };
                let (sink, age) = (label("sink", sink), grown(*age).as_secs_f64());
                _ = writeln!(sinks, "postrider_oldest_pending_seconds{{{source},{sink}}} {age}");
                _ = writeln!(bounds, "postrider_oldest_pending_is_bound{{{source},{sink}}} {is_bound}");
            }
        }
        let described = |name: &str, about: &str, lines: String| match lines.is_empty() {
            true => lines,
            false => format!("# HELP {name} {about}\n# TYPE {name} gauge\n{lines}"),
        };
        described("outbox_oldest_lag_ms", "age of the oldest pending event", sources)
            + &described(
                "postrider_oldest_pending_seconds",
                "age of the oldest pending event of a sink, zero if there is none",
                sinks,
            )
            + &described(
                "postrider_oldest_pending_is_bound",
                "1 while the oldest pending event of a sink is not found yet behind those of others; the shown age is an upper bound",
                bounds,
            )
    }
}

/// The oldest events of a source after a position, or the error.
async fn read(store: &Arc<dyn Store>, after: Seq) -> Page {
    match timeout(READ_TIMEOUT, store.oldest(after, EVENTS_MAX)).await {
        Ok(page) => page.map_err(|error| error_chain(&error)),
        Err(_) => Err(format!("it took longer than {READ_TIMEOUT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Vec<Route> {
        let text =
            r#"[{ "event_type": "Order*", "sink": "orders" }, { "event_type": "*", "sink": "audit" }]"#;
        serde_json::from_str(text).unwrap()
    }

    fn oldest(events: &[(&str, u64)], more: bool) -> Oldest {
        let event = |(event_type, age): &(&str, u64)| OldestEvent {
            event_type: (*event_type).to_owned(),
            aggregate_type: "Order".to_owned(),
            age: Duration::from_secs(*age),
        };
        Oldest { events: events.iter().map(event).collect(), more, read_to: None }
    }

    fn shown(oldest: &Oldest) -> (u64, Vec<(String, u64)>) {
        let Ages { source, sinks } = Ages::of(oldest, &routes());
        let exactly = |age| match age {
            Age::Exactly(age) => age.as_secs(),
            Age::AtMost(_) => panic!("a bound"),
        };
        (source.unwrap().as_secs(), sinks.into_iter().map(|(sink, age)| (sink, exactly(age))).collect())
    }

    #[test]
    fn the_first_event_that_goes_to_a_sink_is_its_oldest() {
        let [audit, orders] = ["audit", "orders"].map(str::to_owned);
        let all = oldest(&[("OrderPlaced", 9), ("OrderPaid", 8), ("Visit", 7)], false);
        assert_eq!(shown(&all), (9, vec![(audit.clone(), 7), (orders.clone(), 9)]));
        assert_eq!(shown(&oldest(&[], false)), (0, vec![(audit, 0), (orders.clone(), 0)]));
        let more = oldest(&[("OrderPlaced", 9)], true);
        assert_eq!(shown(&more), (9, vec![(orders, 9)]), "of the other sink nothing is known");
    }

    #[test]
    fn what_lies_behind_too_many_dead_events_is_not_taken_for_nothing() {
        let lags = Lags::default();
        let ages = Ages::of(&oldest(&[], true), &routes());
        lags.lock().insert("shop".to_owned(), Lag { ages, seen_at: Instant::now(), failing: false });
        assert_eq!(lags.render(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_database_does_not_answer_what_was_the_oldest_grows_older() {
        let lags = Lags::default();
        let ages = Ages::of(&oldest(&[("OrderPlaced", 9)], false), &routes());
        lags.lock().insert("shop".to_owned(), Lag { ages, seen_at: Instant::now(), failing: false });
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(
            lags.render().contains("\noutbox_oldest_lag_ms{source=\"shop\"} 9000\n"),
            "{}",
            lags.render()
        );
        lags.lock().values_mut().for_each(|lag| lag.failing = true);
        let text = lags.render();
        assert!(text.contains("\noutbox_oldest_lag_ms{source=\"shop\"} 69000\n"), "{text}");
        let sinks = "\npostrider_oldest_pending_seconds{source=\"shop\",sink=\"audit\"} 0\n\
                     postrider_oldest_pending_seconds{source=\"shop\",sink=\"orders\"} 69\n";
        assert!(text.contains(sinks), "{text}");
        lags.remove("shop");
        assert_eq!(lags.render(), "");
    }
}
