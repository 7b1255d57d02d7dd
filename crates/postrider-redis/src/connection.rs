//! Connects to Redis: TCP, TLS if configured, then Redis's own handshake.
//!
//! The client's own TLS would use the process's default crypto provider; this one brings ring.

use std::{io, sync::Arc};

use postrider_core::{ConfigError, sink::error_chain};
use postrider_net::{Address, Connect};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, aio::MultiplexedConnection};
use secrecy::ExposeSecret;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

use crate::RedisConfig;

/// Connects to the server.
pub struct Connector {
    address: Address,
    database: i64,
    tls: Option<TlsConnector>,
}

impl Connector {
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, ConfigError> {
        let tls = if config.address.scheme.tls {
            Some(TlsConnector::from(Arc::new(config.tls.client_config()?)))
        } else {
            None
        };
        Ok(Self { address: config.address.clone(), database: config.database()?, tls })
    }

    async fn greet(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Connection, String> {
        let mut info = RedisConnectionInfo::default().set_db(self.database);
        if let Some(username) = &self.address.username {
            info = info.set_username(username);
        }
        if let Some(password) = &self.address.password {
            info = info.set_password(password.expose_secret());
        }
        // The caller limits the whole send, so a single response has no timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let greeted = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (commands, driver) = greeted.map_err(|error| error_chain(&error))?;
        Ok(Connection { commands, driver: tokio::spawn(driver) })
    }
}

/// A connection that many sends can use at once. Dropping it closes it.
pub struct Connection {
    commands: MultiplexedConnection,
    /// Moves the bytes, and ends with the connection.
    driver: JoinHandle<()>,
}

impl Connection {
    pub(crate) fn commands(&self) -> MultiplexedConnection {
        self.commands.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connect for Connector {
    type Connection = Connection;

    async fn connect(&self) -> Result<Connection, String> {
        let failed =
            |error: io::Error| format!("cannot connect to {}: {}", self.address, error_chain(&error));
        let stream = TcpStream::connect(self.address.host_and_port()).await.map_err(failed)?;
        // A batch is one write, so delaying its end gains nothing.
        stream.set_nodelay(true).map_err(failed)?;
        let greeted = match &self.tls {
            None => self.greet(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(self.address.host.clone());
                let name = name.map_err(|error| failed(io::Error::other(error)))?;
                self.greet(tls.connect(name, stream).await.map_err(failed)?).await
            }
        };
        greeted.map_err(|error| format!("handshake or authentication with {} failed: {error}", self.address))
    }

    fn is_open(connection: &Connection) -> bool {
        !connection.driver.is_finished()
    }
}
