//! All limits, with their units.

use std::time::Duration;

/// Default maximum number of events in one request.
pub const BATCH_EVENTS: usize = 100;
/// Default maximum number of webhooks at a time.
pub const CONCURRENT_REQUESTS: usize = 160;
/// Default timeout of a connection, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Default timeout of a request, connection and response included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an idle connection is kept.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(30);
/// The longest `Retry-After`; a longer one is cut to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);
/// The pause after a 429 without `Retry-After`.
pub const TOO_FAST_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a response that are read so that its connection can be reused.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a response with a result for each event. A longer one has no usable results.
pub const RESULTS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long to read the rest of a response whose status is enough.
pub const REST_OF_ANSWER: Duration = Duration::from_secs(1);
/// Characters of a response that an error quotes.
pub const ERROR_ANSWER_CHARS_MAX: usize = 500;
/// The shortest and the longest signing secret in bytes, as the Standard Webhooks specification demands.
pub const SIGNING_SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Signing secrets of one webhook: the newest, and those that it replaces.
pub const SIGNING_SECRETS_MAX: usize = 8;
