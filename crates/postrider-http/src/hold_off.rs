//! Reads `Retry-After` and applies it to the rest of a send.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use postrider_core::Outcome;
use reqwest::header::HeaderValue;

use crate::limits;

/// The value of `Retry-After`, in seconds or as a date, limited to [`limits::RETRY_AFTER_MAX`].
pub(crate) fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let after = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that is too large means a long time too.
        (!text.is_empty()).then(|| Duration::from_secs(text.parse().unwrap_or(u64::MAX)))?
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        date.duration_since(SystemTime::now()).unwrap_or_default()
    };
    Some(after.min(limits::RETRY_AFTER_MAX))
}

/// The pauses that paths demanded during one send. The engine decides about other sends, because one event may be the reason.
#[derive(Debug, Default)]
pub(crate) struct HoldOffs(HashMap<String, Duration>);

impl HoldOffs {
    /// Records a pause of a path.
    pub(crate) fn hold(&mut self, path: &str, pause: Duration) {
        self.0.insert(path.to_owned(), pause);
    }

    /// The outcome of an event whose path demands a pause: it waits, and nothing failed.
    pub(crate) fn outcome(&self, path: &str) -> Option<Outcome> {
        self.0.get(path).copied().map(Outcome::deferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Duration> {
        HeaderValue::from_str(text).ok().as_ref().and_then(retry_after)
    }

    #[test]
    fn it_is_read_as_seconds_and_as_a_date_and_has_a_limit() {
        assert_eq!(parse("0"), Some(Duration::ZERO));
        assert_eq!(parse(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(parse("99999999999999999999999999"), Some(limits::RETRY_AFTER_MAX));
        assert_eq!(parse("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
        assert!(parse(&date).is_some_and(|after| (95..=100).contains(&after.as_secs())), "{date}");
        assert_eq!(parse("Fri, 31 Dec 9999 23:59:59 GMT"), Some(limits::RETRY_AFTER_MAX));
        for nothing in ["", "soon", "-5", "1.5"] {
            assert_eq!(parse(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_path_that_asked_for_a_pause_holds_up_no_other() {
        let mut holds = HoldOffs::default();
        holds.hold("/a", Duration::from_secs(30));
        assert_eq!(holds.outcome("/a"), Some(Outcome::deferred(Duration::from_secs(30))));
        assert_eq!(holds.outcome("/b"), None);
    }
}
