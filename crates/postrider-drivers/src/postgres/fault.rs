//! What PostgreSQL's states mean to Postrider. The one place that knows them.

use std::error::Error as StdError;

use postrider_core::{Error, SchemaError, StoreError, StoreErrorKind};

/// No transaction is under way.
const NO_TRANSACTION: &str = "25P01";
/// A table is missing.
const NO_TABLE: &str = "42P01";

/// What a driver says of a statement that failed.
#[derive(Debug)]
pub struct Fault {
    /// The five characters that PostgreSQL calls SQLSTATE, if it was PostgreSQL that refused and the driver gives them.
    pub state: Option<String>,
    /// PostgreSQL's own words.
    pub message: String,
    /// Whether the connection is gone.
    pub lost: bool,
    /// The driver's error.
    pub source: Box<dyn StdError + Send + Sync>,
}

impl Fault {
    /// Whether it says that there is no transaction.
    pub fn is_no_transaction(&self) -> bool {
        self.state.as_deref() == Some(NO_TRANSACTION)
    }

    /// As one of ours; `what` says what failed, and where.
    pub fn into_error(self, what: String) -> Error {
        let missing = self.state.as_deref().and_then(|state| missing_table(state, &self.message));
        if let Some(table) = missing {
            return SchemaError::Missing { table }.into();
        }
        let kind = match &self.state {
            Some(state) => kind_of_state(state),
            None if self.lost => StoreErrorKind::Unreachable,
            None => StoreErrorKind::Other,
        };
        StoreError::new(kind, what, self.source).into()
    }
}

/// What kind of failure a state stands for.
pub fn kind_of_state(state: &str) -> StoreErrorKind {
    match state {
        // Serialisation failure, deadlock, lock not available, a statement that ran into its time limit.
        "40001" | "40P01" | "55P03" | "57014" => StoreErrorKind::Busy,
        // Disk full, out of memory, an error of the file system: nothing that was asked for is to blame.
        "53100" | "53200" | "53400" | "58030" => StoreErrorKind::Busy,
        // Shutting down, crashed, starting up, an idle transaction that was ended, too many connections.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "53300" => StoreErrorKind::Unreachable,
        "25006" => StoreErrorKind::ReadOnly,
        "28000" | "28P01" | "42501" => StoreErrorKind::Denied,
        "XX001" | "XX002" => StoreErrorKind::Corrupt,
        _ if state.starts_with("08") => StoreErrorKind::Unreachable,
        _ => StoreErrorKind::Other,
    }
}

/// The table that is missing, if that is what the state says: it stands between the first quotes of the message.
pub fn missing_table(state: &str, message: &str) -> Option<String> {
    if state != NO_TABLE {
        return None;
    }
    message.split('"').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_table_is_named() {
        let message = "relation \"postrider_event\" does not exist";
        assert_eq!(missing_table("42P01", message).as_deref(), Some("postrider_event"));
        assert_eq!(missing_table("42703", message), None);
    }

    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        assert_eq!(kind_of_state("40P01"), StoreErrorKind::Busy);
        assert_eq!(kind_of_state("08006"), StoreErrorKind::Unreachable);
        assert_eq!(kind_of_state("28P01"), StoreErrorKind::Denied);
        assert_eq!(kind_of_state("42601"), StoreErrorKind::Other);
    }
}
