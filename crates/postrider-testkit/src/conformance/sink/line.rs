//! The line between a sink and a real server: what the suite asks of a receiver, done to the connection by a proxy.

use std::{
    env, io,
    ops::Deref,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{Failure, Receiver};
use crate::proxy::{Direction, Proxy};

/// The URL of a server for tests, from the environment. None is a failure and not a reason to skip a test.
pub fn server_url(variable: &str) -> Result<String, Failure> {
    env::var(variable).map_err(|_| {
        format!(
            "{variable} is not set: start the servers with `cargo xtask services up` and name them to this shell with \
             `eval $(cargo xtask services env)`"
        )
        .into()
    })
}

/// A name that no other test has.
pub fn fresh_name() -> String {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    format!("postrider-test-{}-{}", std::process::id(), NUMBERS.fetch_add(1, Relaxed))
}

/// The way to a server that is named by `host:port`.
pub struct Line(Proxy);

impl Line {
    /// A new way to a server.
    pub async fn to(server: impl Into<String>) -> io::Result<Self> {
        Ok(Self(Proxy::start(server).await?))
    }

    /// Makes the line do what the receiver is to do, as far as a line can: it refuses or ignores no single event.
    pub fn set(&self, receiver: &Receiver) {
        match receiver {
            Receiver::Down => {
                self.refuse();
                self.cut();
            }
            Receiver::Stalls => self.stall(Direction::ToServer),
            Receiver::Well | Receiver::Refuses(_) | Receiver::Ignores(_) => {
                // What a stall held back is never to arrive.
                if self.held_bytes(Direction::ToServer) > 0 {
                    self.cut();
                }
                self.flow(Direction::ToServer);
                self.admit();
            }
        }
    }

    /// Comes back once something is held back.
    pub async fn stalled(&self) -> Result<(), Failure> {
        while self.held_bytes(Direction::ToServer) == 0 {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

impl Deref for Line {
    type Target = Proxy;
    fn deref(&self) -> &Proxy {
        &self.0
    }
}
