//! The limits that every sink with a connection has: the size of a batch, and the time that connecting and sending may take.

use std::{ops::RangeInclusive, time::Duration};

use postrider_core::{BatchOrder, ConfigError, SinkTraits};

/// Limits of a sink. [`limit_setters!`](crate::limit_setters) gives its configuration a setter for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of events in one `send`.
    pub batch_max: usize,
    /// How long a connection may take until it is ready. Default 10 s.
    pub connect_timeout: Duration,
    /// How long a `send` may take until its outcome is unknown. Default 120 s.
    pub send_timeout: Duration,
}

impl Limits {
    /// The default timeouts, and this batch size.
    pub fn new(batch_max: usize) -> Self {
        Self { batch_max, connect_timeout: Duration::from_secs(10), send_timeout: Duration::from_secs(120) }
    }

    /// Checks the timeouts, and that the batch size lies in `batch`.
    pub fn check(&self, batch: &RangeInclusive<usize>) -> Result<(), ConfigError> {
        if !batch.contains(&self.batch_max) {
            let allowed = format!("from {} to {}", batch.start(), batch.end());
            return Err(ConfigError::out_of_range("batch_max", self.batch_max, allowed));
        }
        for (setting, timeout) in
            [("connect_timeout", self.connect_timeout), ("send_timeout", self.send_timeout)]
        {
            if timeout.is_zero() {
                return Err(ConfigError::out_of_range(
                    setting,
                    format_args!("{timeout:?}"),
                    "longer than 0s",
                ));
            }
        }
        Ok(())
    }

    /// The traits of a sink with these limits and this order within a batch.
    pub fn traits(&self, order: BatchOrder) -> SinkTraits {
        SinkTraits {
            batch_max: self.batch_max,
            order,
            send_timeout: Some(self.send_timeout),
            ..SinkTraits::SINK
        }
    }
}

/// Setters for the field `limits` of a sink's configuration, inside of its `impl`. The argument is the default batch size.
///
/// ```
/// use postrider_net::Limits;
///
/// struct Config {
///     limits: Limits,
/// }
///
/// impl Config {
///     postrider_net::limit_setters!(100);
/// }
///
/// let config = Config { limits: Limits::new(100) }.batch_max(20);
/// assert_eq!(config.limits.batch_max, 20);
/// ```
#[macro_export]
macro_rules! limit_setters {
    ($batch_max:literal) => {
        #[doc = concat!("Maximum number of events in one `send`. Default ", $batch_max, ".")]
        pub fn batch_max(mut self, events: usize) -> Self {
            self.limits.batch_max = events;
            self
        }

        /// How long a connection may take until it is ready. Default 10 s.
        pub fn connect_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.limits.connect_timeout = timeout;
            self
        }

        /// How long a `send` may take until its outcome is unknown. Default 120 s.
        pub fn send_timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.limits.send_timeout = timeout;
            self
        }
    };
}
