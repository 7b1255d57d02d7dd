//! The W3C trace context that travels in an event's headers.

use std::{collections::BTreeMap, fmt};

use crate::EventError;

/// The header that names the trace and the span.
pub const TRACEPARENT: &str = "traceparent";
/// The header with what vendors add to it.
pub const TRACESTATE: &str = "tracestate";

/// A W3C trace context: `traceparent` and, where there is one, `tracestate`.
///
/// ```
/// use postrider_core::TraceContext;
/// let context = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None)?;
/// assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
/// # Ok::<(), postrider_core::EventError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceContext {
    /// Checks the form of `traceparent` and keeps both.
    pub fn new(traceparent: &str, tracestate: Option<&str>) -> Result<Self, EventError> {
        if !is_traceparent(traceparent) {
            return Err(EventError::TraceContext { value: traceparent.to_owned() });
        }
        Ok(Self { traceparent: traceparent.to_owned(), tracestate: tracestate.map(str::to_owned) })
    }

    /// The context that `headers` carry. One that is malformed is none, as the W3C asks.
    pub fn from_headers(headers: &BTreeMap<String, String>) -> Option<Self> {
        Self::new(headers.get(TRACEPARENT)?, headers.get(TRACESTATE).map(String::as_str)).ok()
    }

    /// Puts the context into `headers`.
    pub fn write_to(&self, headers: &mut BTreeMap<String, String>) {
        headers.insert(TRACEPARENT.to_owned(), self.traceparent.clone());
        match &self.tracestate {
            Some(state) => headers.insert(TRACESTATE.to_owned(), state.clone()),
            None => headers.remove(TRACESTATE),
        };
    }

    /// The whole `traceparent`.
    pub fn traceparent(&self) -> &str {
        &self.traceparent
    }

    /// The `tracestate`, where there is one.
    pub fn tracestate(&self) -> Option<&str> {
        self.tracestate.as_deref()
    }

    /// The 32 hexadecimal digits that name the trace.
    pub fn trace_id(&self) -> &str {
        self.traceparent.get(3..35).unwrap_or_default()
    }

    /// The 16 hexadecimal digits that name the span.
    pub fn span_id(&self) -> &str {
        self.traceparent.get(36..52).unwrap_or_default()
    }

    /// Whether its spans are recorded.
    pub fn is_sampled(&self) -> bool {
        let flags = self.traceparent.get(53..55).and_then(|flags| u8::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & 1 == 1)
    }

    /// The context of a further span of this trace, whose parent is this one's span.
    ///
    /// ```
    /// use postrider_core::TraceContext;
    /// let context = TraceContext::new("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None)?;
    /// let child = context.child(0x1234);
    /// assert_eq!(child.traceparent(), "00-0af7651916cd43dd8448eb211c80319c-0000000000001234-01");
    /// assert!(child.is_sampled());
    /// # Ok::<(), postrider_core::EventError>(())
    /// ```
    #[must_use]
    pub fn child(&self, span_id: u64) -> Self {
        // Zero would be no span.
        let span_id = span_id.max(1);
        let flags = self.traceparent.get(53..55).unwrap_or("00");
        let traceparent = format!("00-{}-{span_id:016x}-{flags}", self.trace_id());
        Self { traceparent, tracestate: self.tracestate.clone() }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.traceparent)
    }
}

/// Version, trace, parent and flags: lower-case hexadecimal, not version ff, no all-zero ids.
fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [version, trace, parent, flags] = parts.as_slice() else { return false };
    let hex = |part: &str, digits: usize| {
        part.len() == digits && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    hex(version, 2)
        && *version != "ff"
        && hex(trace, 32)
        && trace.bytes().any(|b| b != b'0')
        && hex(parent, 16)
        && parent.bytes().any(|b| b != b'0')
        && hex(flags, 2)
}
