//! Whether the server's log lets the sessions of the verbs write.
//!
//! A log that takes statements only refuses every write of a session that reads what is committed, as those of the verbs do.

use postrider_core::SchemaError;

/// What is asked. Each row is a name and a value.
pub(crate) const ASK: &str = "SHOW SESSION VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')";

/// Why nothing could be written; none if it can.
pub(crate) fn refusal(found: impl Iterator<Item = (Option<String>, Option<String>)>) -> Option<SchemaError> {
    let (mut logs, mut statements) = (false, false);
    for (name, value) in found {
        let is = |text: &Option<String>, other: &str| {
            text.as_deref().is_some_and(|text| text.eq_ignore_ascii_case(other))
        };
        logs |= is(&name, "log_bin") && is(&value, "ON");
        statements |= is(&name, "binlog_format") && is(&value, "STATEMENT");
    }
    (logs && statements).then(|| SchemaError::Setting {
        setting: "binlog_format",
        found: "STATEMENT".to_owned(),
        needed: "ROW or MIXED: sessions that read what is committed can write nothing otherwise; SET GLOBAL binlog_format = 'ROW', \
                 and in the server's configuration",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(log_bin: &str, format: &str) -> Option<String> {
        let pairs = [("log_bin", log_bin), ("binlog_format", format)];
        let found = pairs.map(|(name, value)| (Some(name.to_owned()), Some(value.to_owned())));
        refusal(found.into_iter()).map(|refusal| refusal.to_string())
    }

    #[test]
    fn a_log_of_statements_is_refused_with_what_to_do_and_no_other_is() {
        for format in ["STATEMENT", "statement"] {
            let told = with("ON", format).unwrap();
            assert!(told.contains("binlog_format is STATEMENT"), "{told}");
            assert!(told.contains("SET GLOBAL binlog_format = 'ROW'"), "{told}");
            assert_eq!(with("OFF", format), None);
        }
        assert_eq!((with("ON", "ROW"), with("ON", "MIXED")), (None, None));
        assert!(refusal(std::iter::empty()).is_none());
    }
}
