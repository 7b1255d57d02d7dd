//! The limits of an event, each with its unit in its name, and the checks that keep them.

use super::EventError;

/// Longest event id, in characters.
pub const ID_CHARS_MAX: usize = 36;
/// Longest event type, in characters.
pub const EVENT_TYPE_CHARS_MAX: usize = 128;
/// Longest aggregate type, in characters.
pub const AGGREGATE_TYPE_CHARS_MAX: usize = 64;
/// Longest aggregate id, in characters.
pub const AGGREGATE_ID_CHARS_MAX: usize = 128;
/// Longest ordering key, in characters.
pub const KEY_CHARS_MAX: usize = 255;
/// Longest tenant id, in characters.
pub const TENANT_ID_CHARS_MAX: usize = 64;
/// Longest content type, in characters.
pub const CONTENT_TYPE_CHARS_MAX: usize = 128;
/// All header names and values together, in bytes.
pub const HEADERS_BYTES_MAX: usize = 64 * 1024;
/// Largest payload, in bytes. An outbox can be configured to take less, never more.
pub const PAYLOAD_BYTES_MAX: usize = 1_048_576;
/// What an event weighs in a queue beside its payload and headers, in bytes.
pub const EVENT_FLAT_BYTES: usize = 256;
/// Longest error text that is stored with an event, in characters.
pub const ERROR_CHARS_MAX: usize = 4000;

/// Cuts an error text to [`ERROR_CHARS_MAX`] characters and takes out NUL, which some databases refuse:
/// a settle must never fail because of what a handler said.
pub fn clean_error(text: &str) -> String {
    text.chars().filter(|&c| c != '\0').take(ERROR_CHARS_MAX).collect()
}

/// A text that must have something in it, no NUL, and at most `limit` characters.
pub(super) fn check_text(field: &'static str, text: &str, limit: usize) -> Result<(), EventError> {
    if text.trim().is_empty() {
        return Err(EventError::Blank { field });
    }
    check_optional(field, text, limit)
}

/// A text that may be empty, without NUL, and at most `limit` characters long.
pub(super) fn check_optional(field: &'static str, text: &str, limit: usize) -> Result<(), EventError> {
    if text.contains('\0') {
        return Err(EventError::Nul { field });
    }
    // Bytes are never fewer than characters, so most texts need no counting.
    let size = if text.len() <= limit { text.len() } else { text.chars().count() };
    check_size(field, size, limit, "characters")
}

pub(super) fn check_size(
    field: &'static str,
    size: usize,
    limit: usize,
    unit: &'static str,
) -> Result<(), EventError> {
    if size > limit { Err(EventError::TooLong { field, size, limit, unit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_is_cut_to_4000_characters_and_stays_valid_utf_8() {
        // S3-9.3c
        let text = "é\0".repeat(10_000);
        let clean = clean_error(&text);
        assert_eq!(clean.chars().count(), ERROR_CHARS_MAX);
        assert!(!clean.contains('\0'));
    }
}
