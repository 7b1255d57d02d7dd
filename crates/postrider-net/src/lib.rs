//! What the sinks for outside systems share: the address of a server, TLS, connecting again, and the end of a send.
//!
//! # Layout
//!
//! * [`address`]: a URL taken apart, with its password out of sight
//! * [`deadline`]: when a send must answer, inside of its time-out
//! * [`destination`]: whether events go to several places
//! * [`files`]: small files that a configuration names
//! * [`tls`]: rustls with ring, from files; no provider is installed for the process
//! * [`link`]: one connection for many sends, made when it is needed and again when it is lost

pub mod address;
pub mod deadline;
pub mod destination;
pub mod files;
pub mod link;
pub mod tls;

pub use address::{Address, Scheme};
pub use deadline::Deadline;
pub use link::{Connect, Link, Linked};
pub use tls::TlsFiles;
