//! `Retry-After`: paths that asked for a pause get one. Nothing is sent to them until it is over.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use postrider_core::Outcome;
use reqwest::header::HeaderValue;
use tokio::time::Instant;

use crate::limits;

/// What `Retry-After` says, as seconds or as a date, cut to [`limits::RETRY_AFTER_MAX`].
pub(crate) fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    let after = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long time too.
        (!text.is_empty()).then(|| Duration::from_secs(text.parse().unwrap_or(u64::MAX)))?
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        date.duration_since(SystemTime::now()).unwrap_or_default()
    };
    Some(after.min(limits::RETRY_AFTER_MAX))
}

/// The pauses that paths of one endpoint have asked for: when each is over.
#[derive(Debug, Default)]
pub(crate) struct HoldOffs(Mutex<HashMap<String, Instant>>);

impl HoldOffs {
    fn pauses(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A path asked for a pause.
    pub(crate) fn hold(&self, path: &str, pause: Duration) {
        let now = Instant::now();
        let mut pauses = self.pauses();
        if pauses.len() >= limits::HELD_PATHS_MAX {
            pauses.retain(|_, until| *until > now);
        }
        // What does not fit is asked again, and says it again.
        if pauses.len() < limits::HELD_PATHS_MAX {
            pauses.insert(path.to_owned(), now + pause);
        }
    }

    /// What becomes of an event whose path has asked for a pause that is not over: it waits, and that is no failure of anybody.
    pub(crate) fn outcome(&self, path: &str) -> Option<Outcome> {
        let mut pauses = self.pauses();
        let left = pauses.get(path)?.saturating_duration_since(Instant::now());
        if left.is_zero() {
            pauses.remove(path);
            return None;
        }
        Some(Outcome::deferred(left))
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

    #[tokio::test(start_paused = true)]
    async fn a_path_is_left_alone_until_its_pause_is_over() {
        let holds = HoldOffs::default();
        holds.hold("/a", Duration::from_secs(30));
        assert_eq!(holds.outcome("/a"), Some(Outcome::deferred(Duration::from_secs(30))));
        assert_eq!(holds.outcome("/b"), None);
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(holds.outcome("/a"), Some(Outcome::deferred(Duration::from_secs(1))));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(holds.outcome("/a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_paths_are_remembered_and_old_ones_make_room() {
        let holds = HoldOffs::default();
        for number in 0..2 * limits::HELD_PATHS_MAX {
            holds.hold(&number.to_string(), Duration::from_secs(30));
        }
        assert_eq!(holds.pauses().len(), limits::HELD_PATHS_MAX);
        tokio::time::advance(Duration::from_secs(31)).await;
        holds.hold("new", Duration::from_secs(30));
        assert_eq!(holds.pauses().len(), 1);
        assert!(holds.outcome("new").is_some());
    }
}
