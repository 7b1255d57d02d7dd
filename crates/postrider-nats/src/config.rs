//! What can be set.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use postrider_core::{
    ConfigError,
    format::{Destination, Format},
};
use postrider_net::{Address, Scheme, TlsFiles};
use secrecy::SecretString;

use crate::message;

/// Ways to write the URL of a NATS server.
pub const SCHEMES: &[Scheme] =
    &[Scheme { name: "nats", port: 4222, tls: false }, Scheme { name: "tls", port: 4222, tls: true }];

/// How many events one `send` may take. The client holds the messages of several sends.
pub const BATCH_MAX: RangeInclusive<usize> = 1..=1_000;

/// Where events go, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NatsConfig {
    /// The servers, and who signs in: a user with a password, or a password alone, which is a token. What the first one says of that
    /// holds for all.
    pub servers: Vec<Address>,
    /// A file of credentials, as `nsc` writes them, instead of a user or a token in the URL.
    pub credentials_file: Option<PathBuf>,
    /// The files that TLS needs; used with a URL of `tls://` alone.
    pub tls: TlsFiles,
    /// Whether TLS begins before the server says anything, as a server with `handshake_first` wants it.
    pub tls_first: bool,
    /// The subject that an event goes to.
    pub subject: Destination,
    /// How an event is put into a message.
    pub format: Format,
    /// Most events in one `send`.
    pub batch_max: usize,
    /// How long a connection may take until it is ready.
    pub connect_timeout: Duration,
    /// How long a `send` may take before its outcome is unknown.
    pub send_timeout: Duration,
}

impl NatsConfig {
    /// Servers by their URLs, with commas between them: `nats://[user[:password]|token]@host[:port]`, or `tls://…`; and the template
    /// of a subject.
    pub fn new(urls: &str, subject: &str) -> Result<Self, ConfigError> {
        let servers = urls.split(',').map(|url| {
            let mut address = Address::parse("url", url.trim(), SCHEMES)?;
            // What stands alone before the host is a token, and as secret as a password.
            if address.password.is_none() {
                address.password = address.username.take().map(SecretString::from);
            }
            Ok(address)
        });
        let config = Self {
            servers: servers.collect::<Result<_, ConfigError>>()?,
            credentials_file: None,
            tls: TlsFiles::default(),
            tls_first: false,
            subject: Destination::new(subject)?,
            format: Format::default(),
            batch_max: 100,
            connect_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(120),
        };
        config.check()?;
        Ok(config)
    }

    /// A file of credentials, as `nsc` writes them.
    pub fn credentials_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.credentials_file = Some(file.into());
        self
    }

    /// The files that TLS needs.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// Whether TLS begins before the server says anything.
    pub fn tls_first(mut self, first: bool) -> Self {
        self.tls_first = first;
        self
    }

    /// The subject that an event goes to.
    pub fn subject(mut self, subject: Destination) -> Self {
        self.subject = subject;
        self
    }

    /// How an event is put into a message.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Most events in one `send`; 100 if it is not set.
    pub fn batch_max(mut self, events: usize) -> Self {
        self.batch_max = events;
        self
    }

    /// How long a connection may take until it is ready; 10 s if it is not set.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long a `send` may take before its outcome is unknown; 120 s if it is not set.
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.send_timeout = limit;
        self
    }

    /// What is wrong with it, if something is.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !BATCH_MAX.contains(&self.batch_max) {
            let allowed = format!("from {} to {}", BATCH_MAX.start(), BATCH_MAX.end());
            return Err(wrong("batch_max", self.batch_max, allowed));
        }
        for (setting, limit) in
            [("connect_timeout", self.connect_timeout), ("send_timeout", self.send_timeout)]
        {
            if limit.is_zero() {
                return Err(wrong(setting, format_args!("{limit:?}"), "longer than nothing"));
            }
        }
        let mixed = self.servers.windows(2).any(|two| matches!(two, [a, b] if a.scheme.tls != b.scheme.tls));
        if self.servers.is_empty() || mixed {
            return Err(wrong("url", "a mixed list", "one URL or several of one kind"));
        }
        if let Some(address) = self.servers.iter().find(|address| address.path.is_some()) {
            return Err(wrong("url", address, "without anything behind the host and the port"));
        }
        for subject in self.subject.fixed() {
            message::check_subject(subject)
                .map_err(|reason| wrong("subject", format_args!("{subject:?}"), reason))?;
        }
        Ok(())
    }
}

pub(crate) fn wrong(
    setting: &'static str,
    value: impl std::fmt::Display,
    allowed: impl Into<String>,
) -> ConfigError {
    ConfigError::OutOfRange { setting, value: value.to_string(), allowed: allowed.into() }
}
