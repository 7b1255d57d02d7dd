//! `CallerTx` for the transactions and connections of sqlx.

/// Implements `CallerTx` for a type of sqlx's by how events are inserted on it.
macro_rules! caller_tx {
    ($(#[$doc:meta])* $conn:ty, |$tx:ident, $target:ident, $events:ident, $on_duplicate:ident| $insert:expr) => {
        $(#[$doc])*
        impl CallerTx<Sqlx> for &mut $conn {
            fn insert<'a>(
                self,
                $target: &'a Target,
                $events: &'a [Event],
                $on_duplicate: OnDuplicate,
            ) -> BoxFuture<'a, Result<Vec<bool>>>
            where
                Self: 'a,
            {
                let $tx = self;
                Box::pin(async move { $insert })
            }
        }
    };
}
pub(crate) use caller_tx;
