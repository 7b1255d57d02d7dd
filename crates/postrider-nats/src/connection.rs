//! Connects to NATS, and notices the end of a connection.
//!
//! The NATS client reconnects by itself and keeps messages meanwhile to send them later. A sink must leave nothing behind that arrives later, so
//! one client serves one connection, and the next connection gets a new client.

use std::time::Duration;

use async_nats::{
    ConnectOptions, Event, ServerAddr,
    connection::State,
    jetstream::{Context, context::ContextBuilder},
    rustls::ClientConfig,
};
use postrider_core::{ConfigError, sink::error_chain};
use postrider_net::{Address, Connect, files};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::watch;

use crate::NatsConfig;

/// The name of the connection in the server's list.
const NAME: &str = "postrider";

/// Connects to the servers.
pub struct Connector {
    servers: Vec<Address>,
    credentials: Option<SecretString>,
    tls: Option<ClientConfig>,
    tls_first: bool,
    connect_timeout: Duration,
    send_timeout: Duration,
}

impl Connector {
    pub(crate) fn new(config: &NatsConfig) -> Result<Self, ConfigError> {
        let encrypted = config.servers.iter().any(|address| address.scheme.tls);
        let tls = if encrypted { Some(config.tls.client_config()?) } else { None };
        let credentials = match &config.credentials_file {
            None => None,
            Some(file) => {
                let text = files::read_text(file, files::SECRET_BYTES_MAX)
                    .ok()
                    .filter(|text| ConnectOptions::with_credentials(text).is_ok());
                let text = text.ok_or_else(|| {
                    ConfigError::out_of_range(
                        "credentials_file",
                        file.display(),
                        "a file of credentials, as nsc writes them",
                    )
                })?;
                Some(SecretString::from(text))
            }
        };
        Ok(Self {
            servers: config.servers.clone(),
            credentials,
            tls,
            tls_first: config.tls_first,
            connect_timeout: config.limits.connect_timeout,
            send_timeout: config.limits.send_timeout,
        })
    }

    /// The credentials: a file, user and password, or a token.
    fn identity(&self) -> Result<ConnectOptions, String> {
        if let Some(credentials) = &self.credentials {
            return ConnectOptions::with_credentials(credentials.expose_secret())
                .map_err(|_| "the credentials are not understood".to_owned());
        }
        let first = self.servers.first();
        let password = first.and_then(|address| address.password.as_ref());
        let user = first.and_then(|address| address.username.clone());
        Ok(match (user, password.map(|password| password.expose_secret().to_owned())) {
            (None, None) => ConnectOptions::new(),
            (None, Some(token)) => ConnectOptions::with_token(token),
            (Some(user), password) => {
                ConnectOptions::with_user_and_password(user, password.unwrap_or_default())
            }
        })
    }

    fn names(&self) -> String {
        self.servers.iter().map(Address::to_string).collect::<Vec<_>>().join(", ")
    }

    fn servers(&self) -> Result<Vec<ServerAddr>, String> {
        let parsed = self.servers.iter().map(|address| address.to_string().parse());
        parsed.collect::<Result<_, _>>().map_err(|error| error_chain(&error))
    }
}

/// A connection that many sends can use at once.
pub struct Connection {
    jetstream: Context,
    over: watch::Receiver<bool>,
}

impl Connection {
    pub(crate) fn jetstream(&self) -> &Context {
        &self.jetstream
    }

    /// Signals the end of the connection.
    pub(crate) fn over(&self) -> Over {
        Over(self.over.clone())
    }
}

/// Signals the end of a connection.
pub(crate) struct Over(watch::Receiver<bool>);

impl Over {
    /// Waits for the end of the connection, or of its client.
    pub(crate) async fn wait(&mut self) {
        let _ = self.0.wait_for(|over| *over).await;
    }
}

impl Connect for Connector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let (ended, over) = watch::channel(false);
        let mut options = self
            .identity()?
            .name(NAME)
            .connection_timeout(self.connect_timeout)
            // One reconnect is the minimum that the client accepts. Nobody uses the connection that it makes.
            .max_reconnects(1)
            .event_callback(move |event| {
                if matches!(event, Event::Disconnected | Event::Closed) {
                    ended.send_replace(true);
                }
                async {}
            });
        if let Some(tls) = &self.tls {
            options = options.require_tls(true).tls_client_config(tls.clone());
            if self.tls_first {
                options = options.tls_first();
            }
        }
        let connected = options.connect(self.servers()?).await;
        let client = connected
            .map_err(|error| format!("cannot connect to {}: {}", self.names(), error_chain(&error)))?;
        let jetstream = ContextBuilder::new().timeout(self.send_timeout).build(client);
        Ok(Connection { jetstream, over })
    }

    fn is_open(connection: &Connection) -> bool {
        !*connection.over.borrow() && connection.jetstream.client().connection_state() == State::Connected
    }
}
