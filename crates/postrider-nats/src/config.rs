//! The configuration of the NATS sink.

use std::{ops::RangeInclusive, path::PathBuf};

use postrider_core::{
    ConfigError,
    format::{Destination, Format},
};
use postrider_net::{Address, Limits, Scheme, TlsFiles};
use secrecy::SecretString;

use crate::message;

/// The schemes of a server's URL.
pub const SCHEMES: &[Scheme] =
    &[Scheme { name: "nats", port: 4222, tls: false }, Scheme { name: "tls", port: 4222, tls: true }];

/// The valid sizes of a batch. The client holds the messages of several sends.
pub const BATCH_MAX: RangeInclusive<usize> = 1..=1_000;

/// Where events go, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NatsConfig {
    /// The servers and the credentials: a user with a password, or only a password, which is a token. The first server's credentials are
    /// used for all.
    pub servers: Vec<Address>,
    /// A credentials file, as `nsc` writes it, instead of credentials in the URL.
    pub credentials_file: Option<PathBuf>,
    /// The TLS files, used with `tls://`.
    pub tls: TlsFiles,
    /// Whether TLS begins before the server's first message, as `handshake_first` demands.
    pub tls_first: bool,
    /// The subject of an event.
    pub subject: Destination,
    /// The format of a message.
    pub format: Format,
    /// The batch size and timeouts.
    pub limits: Limits,
}

impl NatsConfig {
    /// Servers by their URLs, separated by commas: `nats://[user[:password]|token]@host[:port]`, or `tls://…`; and the template of the
    /// subject.
    pub fn new(urls: &str, subject: &str) -> Result<Self, ConfigError> {
        let servers = urls.split(',').map(|url| {
            let mut address = Address::parse("url", url.trim(), SCHEMES)?;
            // A lone name before the host is a token, and as secret as a password.
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
            limits: Limits::new(100),
        };
        config.check()?;
        Ok(config)
    }

    /// Sets the credentials file, as `nsc` writes it.
    pub fn credentials_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.credentials_file = Some(file.into());
        self
    }

    /// Sets the TLS files.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// Sets whether TLS begins before the server's first message.
    pub fn tls_first(mut self, first: bool) -> Self {
        self.tls_first = first;
        self
    }

    /// Sets the subject of an event.
    pub fn subject(mut self, subject: Destination) -> Self {
        self.subject = subject;
        self
    }

    /// Sets the format of a message.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    postrider_net::limit_setters!(100);

    /// Checks the configuration.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.limits.check(&BATCH_MAX)?;
        let mixed = self.servers.windows(2).any(|two| matches!(two, [a, b] if a.scheme.tls != b.scheme.tls));
        if self.servers.is_empty() || mixed {
            return Err(ConfigError::out_of_range("url", "a mixed list", "one URL or several of one kind"));
        }
        if let Some(address) = self.servers.iter().find(|address| address.path.is_some()) {
            return Err(ConfigError::out_of_range(
                "url",
                address,
                "without anything behind the host and the port",
            ));
        }
        for subject in self.subject.fixed() {
            message::check_subject(subject).map_err(|reason| {
                ConfigError::out_of_range("subject", format_args!("{subject:?}"), reason)
            })?;
        }
        Ok(())
    }
}
