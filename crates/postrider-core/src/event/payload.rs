//! What an event carries: text or bytes, serialised once and shared.

use std::{fmt, sync::Arc};

/// The content type of JSON text.
pub const JSON: &str = "application/json";

/// The payload of an event. Cloning it copies a pointer.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// Text, as a rule JSON; stored in a text column.
    Text(Arc<str>),
    /// Bytes; stored in a binary column.
    Bytes(Arc<[u8]>),
}

impl Payload {
    /// The payload as bytes, whichever kind it is.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// The payload as text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl fmt::Debug for Payload {
    /// The kind and the size. Payloads are business data and stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.as_text().is_some() { "text" } else { "bytes" };
        write!(f, "<{kind}, {} bytes>", self.len())
    }
}
