//! A snapshot of transaction ids: which transactions a claim could see. Pure: it is parsed from what the server answered.

/// What `pg_current_snapshot()` answers: `xmin:xmax:xip,…`. The end is one more than the last transaction that was over, so a transaction that
/// ran may also have an id beyond it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    text: String,
    xmax: i64,
    /// Transactions below the end that were in progress, sorted.
    in_progress: Vec<i64>,
}

impl Snapshot {
    /// None if this is no snapshot.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (_, xmax, in_progress) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        let ids = in_progress.split(',').filter(|id| !id.is_empty()).map(|id| id.parse().ok());
        let mut in_progress = ids.collect::<Option<Vec<i64>>>()?;
        in_progress.sort_unstable();
        Some(Self { text: text.to_owned(), xmax, in_progress })
    }

    /// As the server spells it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// One more than the last transaction that was over.
    #[cfg(test)]
    pub(super) fn xmax(&self) -> i64 {
        self.xmax
    }

    /// Whether it shows what this transaction has written, if that has committed.
    pub(super) fn sees(&self, transaction: i64) -> bool {
        transaction < self.xmax && self.in_progress.binary_search(&transaction).is_err()
    }

    /// The transactions that were known to be in progress earlier and are over in this one.
    pub(super) fn ended_since(&self, earlier: &Self) -> impl Iterator<Item = i64> {
        earlier.in_progress.iter().copied().filter(|id| self.sees(*id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str) -> Snapshot {
        Snapshot::parse(text).unwrap()
    }

    #[test]
    fn a_snapshot_sees_what_was_over_and_nothing_beyond_its_end() {
        let snapshot = snapshot("10:20:10,15");
        assert!(snapshot.sees(9) && snapshot.sees(14) && snapshot.sees(19));
        assert!(!snapshot.sees(10) && !snapshot.sees(15) && !snapshot.sees(20) && !snapshot.sees(25));
    }

    #[test]
    fn what_was_in_progress_and_is_over_has_ended_since() {
        let (earlier, later) = (snapshot("10:20:10,15,17"), snapshot("15:30:15,25"));
        assert_eq!(later.ended_since(&earlier).collect::<Vec<_>>(), [10, 17]);
        assert_eq!(earlier.ended_since(&earlier).count(), 0);
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        assert_eq!(snapshot("7:7:").xmax(), 7);
        for text in ["", "1", "1:2", "a:b:", "1:2:x", "1:x:"] {
            assert_eq!(Snapshot::parse(text), None, "{text}");
        }
    }
}
