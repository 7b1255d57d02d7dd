//! What the sinks that hold a connection share: the address of a server, TLS, and connecting again.
//!
//! # Layout
//!
//! * [`address`]: a URL taken apart, with its password out of sight
//! * [`files`]: small files that a configuration names
//! * [`tls`]: rustls with ring, from files; no provider is installed for the process
//! * [`link`]: one connection for many sends, made when it is needed and again when it is lost

pub mod address;
pub mod files;
pub mod link;
pub mod tls;

pub use address::{Address, Scheme};
pub use link::{Connect, Link, Linked};
pub use tls::TlsFiles;
