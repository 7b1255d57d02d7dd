//! Defines every setting of an engine with its default and range.

use std::time::Duration;

use postrider_core::{ConfigError, event::limits::PAYLOAD_BYTES_MAX, store::LEASE_MAX};

/// Whether the events of one key are delivered in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyOrder {
    /// In order.
    #[default]
    Kept,
    /// In any order: every event stands alone and may take the hot path.
    Ignored,
}

/// What a dead event does to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDead {
    /// The key waits until an operator redrives or discards the event.
    #[default]
    Block,
    /// The key goes on without it.
    Skip,
}

/// The settings of an engine.
///
/// ```
/// use postrider_engine::Settings;
/// let defaults = Settings::default();
/// assert_eq!((defaults.workers, defaults.max_attempts), (4, 10));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Most concurrent deliveries to handlers. Default 4. Outside systems have limits of their own.
    pub workers: usize,
    /// Most hot events in memory, from their commit until they are settled. Default 1000.
    pub hot_queue: usize,
    /// Most cold events in memory, from their claim until they are settled. Default 1000.
    pub cold_queue: usize,
    /// Most bytes of events in memory, hot and cold together. Default 64 MiB.
    pub queue_bytes: usize,
    /// Most events that one claim reads. Default 200.
    pub claim_batch: usize,
    /// Most outcomes that one settle writes. Default 500.
    pub settle_batch: usize,
    /// How old an outcome may become before it is settled. Default 3 ms.
    pub settle_after: Duration,
    /// Shortest pause between polls. Default 20 ms.
    pub poll_min: Duration,
    /// Longest pause between polls, reached when nothing comes. Default 5 s.
    pub poll_max: Duration,
    /// Shortest time between two peeks at the last number that was drawn, which find events that nobody
    /// reported. The store may need more, and while nothing comes it is four times as long. Zero: only polls
    /// find them. Default 5 ms.
    pub peek: Duration,
    /// Whether the engine polls and follows wake-ups. Without it only hot events and `poll_once` deliver.
    /// Default true.
    pub poller: bool,
    /// How often a claim scans from the very start, whatever was read before. Default 60 s.
    pub full_look_every: Duration,
    /// How long a lease holds. It is renewed every third of that. Default 15 s.
    pub lease: Duration,
    /// Attempts before an event is dead. Default 10.
    pub max_attempts: u32,
    /// How long an event may fail while it is unknown whether it or its receiver is the cause, before it is dead;
    /// zero for no limit. Default 24 h.
    pub unavailable_for: Duration,
    /// How long a handler in this process may take for an event; zero for no limit. Default 5 min.
    pub handler_timeout: Duration,
    /// Most events of one key that wait in memory behind its head. Default 32.
    pub key_queue: usize,
    /// How long a shutdown may take. Events in memory are still sent for half of it, and running sends are
    /// waited for after that. Default 5 s.
    pub drain_timeout: Duration,
    /// How long delivered events are kept; zero deletes them at once. Default 1 h.
    pub retention: Duration,
    /// How often delivered events are purged. Default 5 s.
    pub purge_every: Duration,
    /// Most rows of one purge. Purges are repeated until none is left. Default 100.
    pub purge_batch: usize,
    /// Whether keys keep their order. Default kept.
    pub key_order: KeyOrder,
    /// What a dead event does to its key. Default block.
    pub on_dead: OnDead,
    /// The name of this instance, for people to read. Default host, process ID and a random number.
    pub instance: String,
    /// The seed of jitter and nonces. Default from the operating system. Set it to repeat a run.
    pub seed: u64,
}

/// Checks the largest payload that an outbox takes.
pub(crate) fn check_payload_max(bytes: usize) -> Result<usize, ConfigError> {
    within("payload_max", bytes, 1, PAYLOAD_BYTES_MAX)
}

impl Default for Settings {
    fn default() -> Self {
        let mut rng = postrider_core::rng::Rng::from_entropy();
        Self {
            workers: 4,
            hot_queue: 1000,
            cold_queue: 1000,
            queue_bytes: 64 * 1024 * 1024,
            claim_batch: 200,
            settle_batch: 500,
            settle_after: Duration::from_millis(3),
            poll_min: Duration::from_millis(20),
            poll_max: Duration::from_secs(5),
            peek: Duration::from_millis(5),
            poller: true,
            full_look_every: Duration::from_secs(60),
            lease: Duration::from_secs(15),
            max_attempts: 10,
            unavailable_for: Duration::from_secs(86_400),
            handler_timeout: Duration::from_secs(300),
            key_queue: 32,
            drain_timeout: Duration::from_secs(5),
            retention: Duration::from_secs(3600),
            purge_every: Duration::from_secs(5),
            purge_batch: 100,
            key_order: KeyOrder::Kept,
            on_dead: OnDead::Block,
            instance: instance_name(rng.next_u64()),
            seed: rng.next_u64(),
        }
    }
}

impl Settings {
    /// Returns an error that names the first setting out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        within("workers", self.workers, 1, 10_000)?;
        within("hot_queue", self.hot_queue, 1, 1_000_000)?;
        within("cold_queue", self.cold_queue, 1, 1_000_000)?;
        within("queue_bytes", self.queue_bytes, 1, usize::MAX)?;
        within("claim_batch", self.claim_batch, 1, 100_000)?;
        within("settle_batch", self.settle_batch, 1, 100_000)?;
        within("purge_batch", self.purge_batch, 1, 1_000_000)?;
        within("max_attempts", self.max_attempts, 1, u32::MAX)?;
        let longest = Duration::from_secs(366 * 86_400);
        between("poll_min", self.poll_min, Duration::from_millis(1), longest)?;
        between("poll_max", self.poll_max, self.poll_min, longest)?;
        between("peek", self.peek, Duration::ZERO, longest)?;
        between("full_look_every", self.full_look_every, self.poll_min, longest)?;
        between("lease", self.lease, Duration::from_millis(100), LEASE_MAX)?;
        between("settle_after", self.settle_after, Duration::ZERO, Duration::from_secs(1))?;
        within("key_queue", self.key_queue, 1, 1_000_000)?;
        between("unavailable_for", self.unavailable_for, Duration::ZERO, 100 * longest)?;
        between("handler_timeout", self.handler_timeout, Duration::ZERO, longest)?;
        between("drain_timeout", self.drain_timeout, Duration::ZERO, longest)?;
        between("retention", self.retention, Duration::ZERO, 100 * longest)?;
        between("purge_every", self.purge_every, Duration::from_millis(1), longest)?;
        if self.instance.trim().is_empty() || self.instance.len() > 128 || self.instance.contains('\0') {
            return Err(ConfigError::OutOfRange {
                setting: "instance",
                value: format!("{:?}", self.instance),
                allowed: "1 to 128 characters without NUL".to_owned(),
            });
        }
        Ok(())
    }
}

pub(crate) fn within<T: PartialOrd + std::fmt::Display>(
    setting: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<T, ConfigError> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(ConfigError::OutOfRange {
        setting,
        value: value.to_string(),
        allowed: format!("at least {least} and at most {most}"),
    })
}

fn between(
    setting: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
) -> Result<(), ConfigError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(ConfigError::OutOfRange {
        setting,
        value: format!("{value:?}"),
        allowed: format!("at least {least:?} and at most {most:?}"),
    })
}

fn instance_name(random: u64) -> String {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|host| host.trim().chars().filter(|c| !c.is_control()).take(64).collect::<String>())
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| "localhost".to_owned());
    format!("{host}-{}-{:08x}", std::process::id(), random as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_the_documented_one() {
        // S0-15.1, S3-10.1, S3-11.1, S3-14.2: the design's table of defaults.
        let Settings {
            workers,
            hot_queue,
            cold_queue,
            queue_bytes,
            claim_batch,
            poll_min,
            poll_max,
            peek,
            poller,
            lease,
            max_attempts,
            drain_timeout,
            unavailable_for,
            handler_timeout,
            key_queue,
            retention,
            purge_every,
            purge_batch,
            key_order,
            on_dead,
            ..
        } = Settings::default();
        assert_eq!((workers, hot_queue, cold_queue, queue_bytes), (4, 1000, 1000, 64 << 20));
        assert_eq!((claim_batch, max_attempts, poller), (200, 10, true));
        assert_eq!((poll_min.as_millis(), poll_max.as_millis(), peek.as_millis()), (20, 5000, 5));
        assert_eq!((lease.as_secs(), drain_timeout.as_secs()), (15, 5));
        assert_eq!((unavailable_for.as_secs(), handler_timeout.as_secs(), key_queue), (86_400, 300, 32));
        assert_eq!((retention.as_secs(), purge_every.as_secs(), purge_batch), (3600, 5, 100));
        assert_eq!((key_order, on_dead), (KeyOrder::Kept, OnDead::Block));
    }

    #[test]
    fn two_instances_never_share_a_name_by_default() {
        assert_ne!(Settings::default().instance, Settings::default().instance);
    }

    #[test]
    fn a_setting_outside_of_its_range_is_named_with_its_value_and_what_is_allowed() {
        type Change = fn(&mut Settings);
        let wrong: [(Change, &str); 6] = [
            (|s| s.workers = 0, "workers is 0; it must be at least 1"),
            (|s| s.hot_queue = 0, "hot_queue is 0"),
            (|s| s.cold_queue = 0, "cold_queue is 0"),
            (|s| s.max_attempts = 0, "max_attempts is 0"),
            (|s| s.poll_max = Duration::from_millis(1), "poll_max is 1ms; it must be at least 20ms"),
            (|s| s.lease = Duration::ZERO, "lease is 0ns"),
        ];
        for (change, message) in wrong {
            let mut settings = Settings::default();
            change(&mut settings);
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        assert!(Settings::default().check().is_ok());
    }
}
