//! Logs to stderr, as lines for people or as JSON. Logging never blocks, because a thread of its own writes the lines.

use std::{
    fmt,
    io::{IsTerminal, stderr},
    time::Duration,
};

use tracing_subscriber::{
    EnvFilter,
    field::RecordFields,
    filter::ParseError,
    fmt::{
        FormatFields, SubscriberBuilder,
        format::{DefaultFields, Format, Writer},
    },
};

use super::log_queue::{LineWriter, LogQueue};
use crate::{
    LOG_VARIABLE,
    config::{Log, LogFormat},
    failure::Failure,
    terminal::plain,
};

/// Directives that keep payloads out of the log at every level: lapin logs each unroutable message with its body, and traces frames with theirs.
/// The engine logs the outcome of an event without its payload.
const NO_PAYLOADS: [&str; 3] = ["lapin::returned_messages=off", "lapin::frames=off", "lapin::channels=error"];

/// Lines that wait to be written to stderr.
static QUEUE: LogQueue = LogQueue::new();

/// Starts the thread that writes log lines and those of [`write()`] to stderr.
pub(crate) fn open() -> std::io::Result<()> {
    QUEUE.start(stderr())
}

/// Writes a line to stderr, after everything that was logged before.
pub(crate) fn write(line: &str) {
    QUEUE.push(format!("{line}\n").as_bytes());
}

/// Starts the log with the configured level and format; the environment overrides the level.
pub(crate) fn start(log: &Log) -> Result<(), Failure> {
    let builder = lines().with_env_filter(wanted("`log.level`", &log.level)?);
    let started = match log.format {
        LogFormat::Text => builder.fmt_fields(PlainFields).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|error| Failure::usage(format!("cannot start the log: {error}")))
}

/// Starts the log of a command without a configuration for it.
pub(crate) fn start_at(default: &str) -> Result<(), Failure> {
    let filter = wanted(LOG_VARIABLE, default)?;
    lines().with_env_filter(filter).fmt_fields(PlainFields).init();
    Ok(())
}

/// Waits until the log is written, but no longer than `limit`, because nobody may be reading it.
pub(crate) fn flush(limit: Duration) {
    QUEUE.flush(limit);
}

/// Lines to stderr, in colours on a terminal. Write errors are not reported: the report would go to stderr too, and would panic in the code
/// that logs.
fn lines() -> SubscriberBuilder<DefaultFields, Format, EnvFilter, fn() -> LineWriter> {
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && stderr().is_terminal();
    let writer: fn() -> LineWriter = || LineWriter(&QUEUE);
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::default())
        .with_writer(writer)
        .with_ansi(colours)
        .log_internal_errors(false)
}

/// Formats the fields of text lines. IDs, keys and responses may contain control characters; escaping them keeps a line one line and the
/// terminal safe. JSON escapes them anyway.
#[derive(Debug, Clone, Copy)]
struct PlainFields;

impl<'writer> FormatFields<'writer> for PlainFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&plain(&text))
    }
}

/// The filter of the environment, or the default.
fn wanted(setting: &str, default: &str) -> Result<EnvFilter, Failure> {
    let wanted = std::env::var(LOG_VARIABLE).ok().filter(|wanted| !wanted.trim().is_empty());
    let setting = if wanted.is_some() { LOG_VARIABLE } else { setting };
    filter(wanted.as_deref().unwrap_or(default)).map_err(|error| {
        Failure::usage(format!("{setting} is not a valid log filter: {error}"))
            .hint("use a level such as info, or modules with levels such as postrider_engine=debug")
    })
}

fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    let filter = EnvFilter::builder().parse(text)?;
    NO_PAYLOADS.iter().try_fold(filter, |filter, directive| Ok(filter.add_directive(directive.parse()?)))
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    /// A writer that keeps what was logged.
    #[derive(Debug, Clone, Default)]
    struct Logged(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Logged {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Logged {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }

        fn say(&self, subscriber: impl tracing::Subscriber + Send + Sync) -> String {
            tracing::subscriber::with_default(subscriber, || {
                let evil = "a\u{1b}]0;owned\u{7}\u{9b}2J\r\nb";
                let _span = tracing::error_span!("deliver", key = %evil).entered();
                tracing::error!(event_id = %evil, error = evil, cause = ?evil, "cannot deliver {evil}");
            });
            self.take()
        }
    }

    #[test]
    fn what_others_wrote_stays_on_its_line_and_moves_no_cursor() {
        let logged = Logged::default();
        let builder = || {
            let logged = logged.clone();
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || logged.clone())
        };
        let text = logged.say(builder().fmt_fields(PlainFields).finish());
        assert!(text.contains("event_id=a\\u{1b}]0;owned\\u{7}\\u{9b}2J\\r\\nb"), "{text:?}");
        assert_eq!(text.matches(char::is_control).collect::<Vec<_>>(), ["\n"], "{text:?}");
        let json = logged.say(builder().json().finish());
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(line["fields"]["event_id"], "a\u{1b}]0;owned\u{7}\u{9b}2J\r\nb");
        assert!(!json.trim_end().contains(['\u{1b}', '\u{7}', '\r', '\n']), "{json:?}");
    }

    #[test]
    fn colours_are_kept_where_they_are_wanted() {
        let logged = Logged::default();
        let writer = logged.clone();
        let coloured = tracing_subscriber::fmt().with_ansi(true).with_writer(move || writer.clone());
        let text = logged.say(coloured.fmt_fields(PlainFields).finish());
        assert!(text.contains("\u{1b}[31mERROR") && !text.contains("\u{1b}]0;"), "{text:?}");
    }

    #[test]
    fn what_logs_payloads_is_off_whatever_is_asked_for() {
        for text in ["error", "trace", "lapin=trace", "warn,lapin::returned_messages=warn"] {
            let shown = filter(text).unwrap().to_string();
            for directive in NO_PAYLOADS {
                let (part, _) = directive.split_once('=').unwrap();
                assert!(shown.contains(directive) && shown.matches(part).count() == 1, "{text}: {shown}");
            }
        }
    }
}
