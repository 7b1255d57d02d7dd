//! Every limit, with its unit.

use std::time::Duration;

/// Most events in one request, unless it is set otherwise.
pub const BATCH_EVENTS: usize = 100;
/// Most webhooks under way at a time, unless it is set otherwise.
pub const CONCURRENT_REQUESTS: usize = 160;
/// How long connecting may take, TLS included, unless it is set otherwise.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take, connecting and the answer included, unless it is set otherwise.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection that nobody uses is kept.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(30);
/// The longest `Retry-After` that is obeyed; a longer one is cut to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);
/// How long a path is left alone that says it is asked too fast, and not for how long.
pub const TOO_FAST_PAUSE: Duration = Duration::from_secs(1);
/// Most of an answer that is read, in bytes, so that its connection can be used again.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Most of an answer with a result for each event that is read, in bytes. One that is longer says nothing.
pub const RESULTS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long is waited for the rest of an answer whose status has said all that is needed.
pub const REST_OF_ANSWER: Duration = Duration::from_secs(1);
/// Most of an answer that goes into an error, in characters.
pub const ERROR_ANSWER_CHARS_MAX: usize = 500;
/// The shortest and the longest signing secret, in bytes, as Standard Webhooks say.
pub const SIGNING_SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Most signing secrets of one webhook: the newest, and those that it replaces.
pub const SIGNING_SECRETS_MAX: usize = 8;
