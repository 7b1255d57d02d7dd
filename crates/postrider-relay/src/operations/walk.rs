//! Searches the outbox for the oldest event of one sink behind those of others, a few pages at a time, so that a backlog of any size costs the
//! same.
//!
//! The search stays at the page of the event that it found and reads that page again the next time. Late commits and redriven events lie before
//! it, so a second search starts at the beginning now and then and ends where the first one is.

use std::time::Duration;

use postrider::{
    BoxFuture,
    store::{Oldest, OldestEvent, Seq},
};
use tokio::time::Instant;

/// Pages that one call reads.
const PAGES_MAX: usize = 8;

/// How often a second search starts.
const AGAIN_EVERY: Duration = Duration::from_secs(300);

/// The age of the oldest event of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// The exact age; zero if there is no event.
    Exactly(Duration),
    /// Not found yet; everything older than this was read.
    AtMost(Duration),
}

/// A page of the outbox, or the error. `None` if the store does not support it.
pub(super) type Page = Result<Option<Oldest>, String>;

/// The search for one sink.
#[derive(Debug)]
pub(super) struct Walk {
    first: Steps,
    second: Option<Steps>,
    began: Instant,
}

/// How far a search has come, and what it found.
#[derive(Debug)]
struct Steps {
    after: Seq,
    age: Option<Age>,
}

impl Walk {
    /// A search that starts behind what was read; `age` is that of the last event read.
    pub(super) fn new(after: Seq, last: Option<Duration>) -> Self {
        let first = Steps { after, age: last.map(Age::AtMost) };
        Self { first, second: None, began: Instant::now() }
    }

    /// The age of the oldest event; `None` before any event was read.
    pub(super) fn age(&self) -> Option<Age> {
        self.first.age
    }

    /// Continues for a few pages. A second search begins at `start`.
    pub(super) async fn go_on<'a>(
        &mut self,
        start: Seq,
        read: impl Fn(Seq) -> BoxFuture<'a, Page>,
        is_of_sink: impl Fn(&OldestEvent) -> bool,
    ) -> Result<(), String> {
        self.first.go_on(Seq::MAX, &read, &is_of_sink).await?;
        if self.second.is_none() && self.began.elapsed() >= AGAIN_EVERY {
            self.began = Instant::now();
            self.second = Some(Steps { after: start, age: None });
        }
        if let Some(mut second) = self.second.take() {
            let end = self.first.after;
            second.go_on(end, &read, &is_of_sink).await?;
            match second.age {
                Some(Age::Exactly(age)) if !age.is_zero() => self.first = second,
                _ if second.after < end => self.second = Some(second),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Steps {
    /// Continues until it finds an event of the sink, reaches `end` or the end of the outbox, or has read enough for now.
    async fn go_on<'a>(
        &mut self,
        end: Seq,
        read: &impl Fn(Seq) -> BoxFuture<'a, Page>,
        is_of_sink: &impl Fn(&OldestEvent) -> bool,
    ) -> Result<(), String> {
        for _ in 0..PAGES_MAX {
            if self.after >= end {
                return Ok(());
            }
            let Some(page) = read(self.after).await? else { return Ok(()) };
            if let Some(event) = page.events.iter().find(|event| is_of_sink(event)) {
                self.age = Some(Age::Exactly(event.age));
                return Ok(());
            }
            let Some(read_to) = page.read_to.filter(|_| page.more) else {
                self.age = Some(Age::Exactly(Duration::ZERO));
                return Ok(());
            };
            self.after = read_to;
            if let Some(last) = page.events.last() {
                self.age = Some(Age::AtMost(last.age));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    /// An outbox with these events, in pages of two: position, type and age in seconds.
    type Table = Mutex<Vec<(Seq, &'static str, u64)>>;

    fn page(table: &Table, after: Seq) -> Oldest {
        let table = table.lock().unwrap();
        let behind: Vec<_> = table.iter().filter(|(seq, ..)| *seq > after).collect();
        let event = |row: &&(Seq, &'static str, u64)| OldestEvent {
            event_type: row.1.to_owned(),
            aggregate_type: String::new(),
            age: Duration::from_secs(row.2),
        };
        let events = behind.iter().take(2).map(event).collect();
        let read_to = behind.iter().take(2).next_back().map_or(after, |(seq, ..)| *seq);
        Oldest { events, more: behind.len() > 2, read_to: Some(read_to) }
    }

    async fn go_on(walk: &mut Walk, table: &Table, pages: &AtomicUsize) -> Option<Age> {
        let read = |after| -> BoxFuture<'_, Page> {
            pages.fetch_add(1, Relaxed);
            Box::pin(std::future::ready(Ok(Some(page(table, after)))))
        };
        walk.go_on(0, read, |event| event.event_type == "Mine").await.unwrap();
        walk.age()
    }

    #[tokio::test(start_paused = true)]
    async fn a_backlog_of_others_is_read_a_few_pages_at_a_time_and_what_is_found_is_seen_again() {
        let secs = Duration::from_secs;
        let others = (1..=100).map(|seq| (seq, "Others", 1000 - seq));
        let table: Table = Mutex::new(others.chain([(101, "Mine", 7), (102, "Mine", 5)]).collect());
        let (mut walk, pages) = (Walk::new(0, Some(secs(1000))), AtomicUsize::new(0));
        assert_eq!(go_on(&mut walk, &table, &pages).await, Some(Age::AtMost(secs(984))));
        assert_eq!(pages.load(Relaxed), PAGES_MAX);
        while go_on(&mut walk, &table, &pages).await != Some(Age::Exactly(secs(7))) {
            assert!(pages.load(Relaxed) < 60, "{walk:?}");
        }
        pages.store(0, Relaxed);
        table.lock().unwrap().retain(|(seq, ..)| *seq != 101);
        assert_eq!(go_on(&mut walk, &table, &pages).await, Some(Age::Exactly(secs(5))));
        assert_eq!(pages.load(Relaxed), 1, "what was read is not read again");
        table.lock().unwrap().retain(|(seq, ..)| *seq != 102);
        assert_eq!(go_on(&mut walk, &table, &pages).await, Some(Age::Exactly(Duration::ZERO)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_comes_to_light_behind_the_walk_is_found_by_the_next_one() {
        let table: Table = Mutex::new((2..=40).map(|seq| (seq, "Others", 1000 - seq)).collect());
        let (mut walk, pages) = (Walk::new(0, None), AtomicUsize::new(0));
        while go_on(&mut walk, &table, &pages).await != Some(Age::Exactly(Duration::ZERO)) {
            assert!(pages.load(Relaxed) < 60, "{walk:?}");
        }
        table.lock().unwrap().insert(0, (1, "Mine", 999));
        assert_eq!(go_on(&mut walk, &table, &pages).await, Some(Age::Exactly(Duration::ZERO)));
        tokio::time::advance(AGAIN_EVERY).await;
        assert_eq!(go_on(&mut walk, &table, &pages).await, Some(Age::Exactly(Duration::from_secs(999))));
    }
}
