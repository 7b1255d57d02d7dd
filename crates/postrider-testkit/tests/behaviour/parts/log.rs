//! What was logged on this thread, so that tests can read it.

use std::{
    fmt::{Debug, Write},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{DefaultGuard, Interest},
};

#[derive(Clone, Default)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
    spans: Arc<AtomicU64>,
}

impl Log {
    /// Listens to this thread until the guard is dropped.
    pub(crate) fn listen() -> (Self, DefaultGuard) {
        // Where some threads have a subscriber and others have none, a place that logs may stay switched off for all that begin to listen at the
        // same moment. One that is there for all threads keeps it on, and throws away what it is given.
        static EVERYWHERE: Once = Once::new();
        EVERYWHERE.call_once(|| tracing::subscriber::set_global_default(Nobody).unwrap());
        let log = Self::default();
        let guard = tracing::subscriber::set_default(log.clone());
        (log, guard)
    }

    /// How many lines of this level hold this text.
    pub(crate) fn count(&self, level: Level, text: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|(of, line)| *of == level && line.contains(text)).count()
    }
}

/// Listens to every thread and keeps nothing.
struct Nobody;

impl Subscriber for Nobody {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(self.spans.fetch_add(1, Relaxed) + 1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.lines.lock().unwrap().push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
