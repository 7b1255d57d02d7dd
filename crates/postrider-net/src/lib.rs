//! What the sinks with a connection share: addresses, TLS, limits, reconnecting, and the end of a send.
//!
//! # Layout
//!
//! * [`address`]: a URL as address and credentials
//! * [`deadline`]: when a send must end, inside of its timeout
//! * [`destination`]: destinations that differ from event to event
//! * [`files`]: small files that a configuration names
//! * [`health`], [`limits`]: the health check, and the limits of a sink
//! * [`tls`]: rustls with ring, from files; no crypto provider is installed for the process
//! * [`link`]: one connection for many sends, made when it is needed and again when it is lost

pub mod address;
pub mod deadline;
pub mod destination;
pub mod files;
pub mod health;
pub mod limits;
pub mod link;
pub mod tls;

pub use address::{Address, Scheme};
pub use deadline::Deadline;
pub use limits::Limits;
pub use link::{Connect, Link, Linked};
pub use tls::TlsFiles;
