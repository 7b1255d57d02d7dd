//! Events that were written, and what is asserted of them.

use std::fmt::{Display, Write};

use postrider_core::{Event, Payload};

use super::json::Json;

/// Longest payload that a message shows whole, in characters.
const SHOWN_CHARS_MAX: usize = 500;

/// Events that were written. Each `with_…` keeps those that fit and fails if none is left; [`once`](Written::once) and
/// [`times`](Written::times) count what is left.
///
/// So `assert_written("OrderPlaced").with_key("Order:42").once()` says that one was written for order 42, whatever else was;
/// `assert_written("OrderPlaced").once().with_key("Order:42")` says that only one was written, and for order 42.
///
/// A failure lists everything that was written, payloads included.
#[derive(Debug, Clone)]
pub struct Written {
    /// What was asserted so far, in words.
    what: String,
    left: Vec<Event>,
    all: Vec<Event>,
}

impl Written {
    #[track_caller]
    pub(super) fn of_type(event_type: &str, all: Vec<Event>) -> Self {
        let left: Vec<_> = all.iter().filter(|event| event.event_type() == event_type).cloned().collect();
        let this = Self { what: event_type.to_owned(), left, all };
        assert!(!this.left.is_empty(), "{}", this.none());
        this
    }

    /// The events that are left, in the order of writing.
    pub fn events(&self) -> &[Event] {
        &self.left
    }

    /// Exactly one is left.
    #[track_caller]
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Exactly so many are left.
    #[track_caller]
    pub fn times(self, times: usize) -> Self {
        let (what, left) = (&self.what, self.left.len());
        assert!(
            left == times,
            "{what} was written {}, not {}\n{}",
            in_words(left),
            in_words(times),
            list(&self.all)
        );
        self
    }

    /// With this ordering key; an aggregate's is `type:id`.
    #[track_caller]
    pub fn with_key(self, key: &str) -> Self {
        self.keep(format!("the key {key:?}"), |event| event.key() == Some(key))
    }

    /// Without an ordering key.
    #[track_caller]
    pub fn without_key(self) -> Self {
        self.keep("no key".to_owned(), |event| event.key().is_none())
    }

    /// With this tenant.
    #[track_caller]
    pub fn with_tenant(self, tenant: &str) -> Self {
        self.keep(format!("the tenant {tenant:?}"), |event| event.tenant_id() == Some(tenant))
    }

    /// With this header.
    #[track_caller]
    pub fn with_header(self, name: &str, value: &str) -> Self {
        self.keep(format!("the header {name}: {value:?}"), |event| {
            event.headers().get(name).is_some_and(|found| found == value)
        })
    }

    /// With a JSON payload that has at least this in it: text, or a `serde_json::Value`. Objects may have more members than
    /// are named here; lists and plain values are compared as they are.
    #[track_caller]
    pub fn with_json(self, subset: impl Display) -> Self {
        let subset = subset.to_string();
        let wanted = Json::parse(&subset);
        assert!(
            wanted.is_ok(),
            "the expectation is not JSON ({}): {subset}",
            wanted.err().unwrap_or_default()
        );
        let missing = |event: &Event| match (&wanted, read(event)) {
            (Ok(wanted), Ok(found)) => wanted.missing_in(&found, "$"),
            (_, Err(why)) => Some(format!("the payload is not JSON: {why}")),
            (Err(_), _) => None,
        };
        let differences: Vec<_> = self.left.iter().filter_map(missing).collect();
        let mut this = self.kept(format!("a payload with {subset}"), |event| missing(event).is_none());
        if this.left.is_empty() {
            let _ = write!(this.what, " ({})", differences.join("; "));
        }
        this.not_empty()
    }

    /// With this payload, byte by byte.
    #[track_caller]
    pub fn with_payload(self, payload: impl AsRef<[u8]>) -> Self {
        let payload = payload.as_ref();
        self.keep(format!("the payload {}", shown(payload)), |event| event.payload().as_bytes() == payload)
    }

    /// For which this is true.
    #[track_caller]
    pub fn with(self, fits: impl Fn(&Event) -> bool) -> Self {
        self.keep("what the closure wants".to_owned(), fits)
    }

    #[track_caller]
    fn keep(self, what: String, fits: impl Fn(&Event) -> bool) -> Self {
        self.kept(what, fits).not_empty()
    }

    fn kept(mut self, what: String, fits: impl Fn(&Event) -> bool) -> Self {
        let joint = if self.what.contains(" with ") { "and" } else { "with" };
        let _ = write!(self.what, " {joint} {what}");
        self.left.retain(fits);
        self
    }

    #[track_caller]
    fn not_empty(self) -> Self {
        assert!(!self.left.is_empty(), "{}", self.none());
        self
    }

    fn none(&self) -> String {
        format!("no {} was written\n{}", self.what, list(&self.all))
    }
}

fn read(event: &Event) -> Result<Json, String> {
    let text = std::str::from_utf8(event.payload().as_bytes()).map_err(|_| "it is not text".to_owned())?;
    Json::parse(text)
}

fn in_words(times: usize) -> String {
    match times {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    }
}

/// Everything that was written, one event a line.
pub(super) fn list(events: &[Event]) -> String {
    let mut text = match events.len() {
        0 => "nothing was written".to_owned(),
        1 => "one event was written:".to_owned(),
        count => format!("{count} events were written:"),
    };
    for event in events {
        let _ = write!(text, "\n  {}, ", event.event_type());
        let _ = match event.key() {
            Some(key) => write!(text, "key {key:?}"),
            None => write!(text, "no key"),
        };
        if let Some(tenant) = event.tenant_id() {
            let _ = write!(text, ", tenant {tenant:?}");
        }
        for (name, value) in event.headers() {
            let _ = write!(text, ", header {name}: {value:?}");
        }
        let payload: &Payload = event.payload();
        let _ = write!(text, ", {} bytes: {}", payload.len(), shown(payload.as_bytes()));
    }
    text
}

/// A payload for people to read. It is their own test's, so it may be shown.
fn shown(payload: &[u8]) -> String {
    let (text, rest) = match std::str::from_utf8(payload) {
        Ok(text) => (
            text.chars().take(SHOWN_CHARS_MAX).collect::<String>(),
            text.chars().nth(SHOWN_CHARS_MAX).is_some(),
        ),
        Err(_) => {
            let bytes = payload.iter().take(SHOWN_CHARS_MAX / 2);
            (bytes.map(|byte| format!("{byte:02x}")).collect(), payload.len() > SHOWN_CHARS_MAX / 2)
        }
    };
    if rest { format!("{text}…") } else { text }
}
