//! Whether the database has gone back in time: a failover or a crash that lost its last transactions, or a restored backup.
//!
//! Every claim reads where the database stands. It stands behind an earlier claim only if it has lost what that one has seen. Numbers that
//! were given to lost events are then given again, and nothing that was remembered of the old ones is true.

use std::{error::Error, fmt};

use postrider_core::Timestamp;
use sqlx::{Row, postgres::PgRow};

use super::super::{
    row::column,
    statement::{Shape, Statement, optional_time},
};

/// A statement that also tells where the database stands, spelled twice: a standby cannot say where its log ends, and some servers refuse to say that
/// or when they crashed. The server
/// asks for the right to call a function wherever one is named in a plan that it keeps, whether it is called or not.
#[derive(Debug)]
pub(in super::super) struct Placed {
    with_log: Statement,
    without_log: Statement,
}

impl Placed {
    pub(super) fn new(template: &str, shape: &Shape) -> Self {
        let of_log = |value| format!("CASE WHEN NOT pg_is_in_recovery() THEN {value} END");
        let spell = |file: &str, place: &str, life: &str| {
            let table = "(SELECT l.tableoid::text FROM {p}lane AS l ORDER BY l.lane LIMIT 1)";
            let sql = template.replace("{wal_file}", file).replace("{wal_place}", place);
            let sql = sql.replace("{table}", table).replace("{standby}", STANDBY).replace("{life}", life);
            Statement::new(&sql, shape)
        };
        Self {
            with_log: spell(
                &of_log("pg_walfile_name(pg_current_wal_insert_lsn())"),
                &of_log("pg_current_wal_insert_lsn()::text"),
                LIFE,
            ),
            without_log: spell("NULL", "NULL", "NULL::timestamptz"),
        }
    }

    /// The one for a server that says where its log ends, or for one that does not.
    pub(in super::super) fn of(&self, reads_log: bool) -> &Statement {
        if reads_log { &self.with_log } else { &self.without_log }
    }
}

/// Whether the server is a standby, as a number.
const STANDBY: &str = "(current_setting('in_hot_standby') = 'on')::integer::smallint";

/// When the server's statistics were set back: a crash does that, and nothing else but somebody's wish.
const LIFE: &str = "(SELECT b.stats_reset FROM pg_stat_bgwriter AS b)";

/// Fails where the position of the log may not be asked for.
pub(super) const PROBE: &str = "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_insert_lsn()) END, stats_reset FROM pg_stat_bgwriter";

/// Where a database stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// Its timeline, which every promotion changes, and the end of its log.
    log: Option<(u32, u64)>,
    /// One more than the last transaction that is over.
    xmax: i64,
    /// The table of the lanes: one that was dropped and restored is another.
    table: Option<u32>,
    /// Since when the server has not crashed.
    life: Option<Timestamp>,
}

impl Place {
    pub(super) fn of(row: &PgRow) -> sqlx::Result<Self> {
        let file: Option<&str> = row.try_get(column::EVENT_TYPE)?;
        let end: Option<&str> = row.try_get(column::AGGREGATE_TYPE)?;
        let table: Option<&str> = row.try_get(column::EVENT_ID)?;
        let xmax = row.try_get(column::HEAD)?;
        let log = file.and_then(timeline).zip(end.and_then(log_position));
        let life = optional_time(row, column::AVAILABLE_AT)?;
        Ok(Self { log, xmax, table: table.and_then(|table| table.parse().ok()), life })
    }

    #[cfg(test)]
    pub(super) fn of_transactions(xmax: i64) -> Self {
        Self { xmax, ..Self::default() }
    }

    /// How it lies behind `known`, which was read before this one was asked for.
    pub(super) fn went_back_from(&self, known: &Self) -> Option<WentBack> {
        match (known.log, self.log) {
            (Some((was, _)), Some((is, _))) if was != is => return Some(WentBack::Timeline { was, is }),
            (Some((_, was)), Some((_, is))) if is < was => return Some(WentBack::Log { was, is }),
            _ => {}
        }
        if self.xmax < known.xmax {
            return Some(WentBack::Transactions { was: known.xmax, is: self.xmax });
        }
        if known.table.zip(self.table).is_some_and(|(was, is)| was != is) {
            return Some(WentBack::Tables);
        }
        known.life.zip(self.life).filter(|(was, is)| was != is).map(|_| WentBack::Crash)
    }

    /// The later of both, part by part: of two claims that run at the same time the first may answer last.
    pub(super) fn or_later(self, other: Self) -> Self {
        Self {
            log: self.log.max(other.log),
            xmax: self.xmax.max(other.xmax),
            table: self.table.or(other.table),
            life: self.life.or(other.life),
        }
    }
}

/// The timeline is the first third of a log file's name.
fn timeline(file: &str) -> Option<u32> {
    u32::from_str_radix(file.get(..8)?, 16).ok()
}

/// A place in the log is two halves of a number.
fn log_position(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some((u64::from_str_radix(high, 16).ok()? << 32) | u64::from_str_radix(low, 16).ok()?)
}

/// How a database shows that it has gone back in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum WentBack {
    /// Another server was promoted, or a backup restored up to a time.
    Timeline { was: u32, is: u32 },
    /// The log ends before a place that was read.
    Log { was: u64, is: u64 },
    /// Fewer transactions were begun than were seen.
    Transactions { was: i64, is: i64 },
    /// The tables are others.
    Tables,
    /// The server has crashed. Transactions that it had not written to the disk are gone, and their ids are given again; with
    /// `synchronous_commit` off, so are the numbers of events.
    Crash,
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeline { was, is } => write!(f, "its timeline was {was} and is {is}"),
            Self::Log { was, is } => {
                let half = |place: &u64| (place >> 32, place & 0xffff_ffff);
                let ((was_high, was_low), (is_high, is_low)) = (half(was), half(is));
                write!(f, "its log ended at {was_high:X}/{was_low:X} and ends at {is_high:X}/{is_low:X}")
            }
            Self::Transactions { was, is } => {
                write!(f, "its next transaction was number {was} and is number {is}")
            }
            Self::Tables => f.write_str("its tables were dropped and made again"),
            Self::Crash => f.write_str("it crashed, and what it had not written to the disk is lost"),
        }
    }
}

impl Error for WentBack {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(timeline: u32, log: u64, xmax: i64) -> Place {
        Place { log: Some((timeline, log)), xmax, table: Some(7), life: Some(Timestamp::EPOCH) }
    }

    #[test]
    fn a_place_is_read_as_the_server_spells_it() {
        assert_eq!(timeline("0000002A0000000100000003"), Some(42));
        assert_eq!(log_position("1A/20"), Some(0x1a_0000_0020));
        assert_eq!([timeline("what"), log_position("1A20").map(|_| 0)], [None, None]);
    }

    #[test]
    fn a_database_that_goes_on_has_not_gone_back() {
        let known = at(1, 100, 10);
        for now in [known, at(1, 101, 10), at(1, 100, 11)] {
            assert_eq!(now.went_back_from(&known), None);
        }
        assert_eq!(known.went_back_from(&Place::default()), None);
    }

    #[test]
    fn another_timeline_an_earlier_log_fewer_transactions_and_other_tables_are_a_step_back() {
        let known = at(1, 100, 10);
        assert_eq!(at(2, 500, 50).went_back_from(&known), Some(WentBack::Timeline { was: 1, is: 2 }));
        assert_eq!(at(1, 99, 50).went_back_from(&known), Some(WentBack::Log { was: 100, is: 99 }));
        assert_eq!(at(1, 500, 9).went_back_from(&known), Some(WentBack::Transactions { was: 10, is: 9 }));
        let others = Place { table: Some(8), ..at(1, 500, 50) };
        assert_eq!(others.went_back_from(&known), Some(WentBack::Tables));
        let crashed = Place { life: Some(Timestamp::from_micros(1)), ..at(1, 500, 50) };
        assert_eq!(crashed.went_back_from(&known), Some(WentBack::Crash));
    }

    #[test]
    fn a_server_that_does_not_say_where_its_log_ends_is_judged_by_its_transactions() {
        let silent = |xmax| Place { xmax, ..Place::default() };
        assert_eq!(silent(10).went_back_from(&at(1, 100, 10)), None);
        assert_eq!(at(1, 1, 10).went_back_from(&silent(10)), None);
        let back = silent(9).went_back_from(&at(1, 100, 10));
        assert_eq!(back, Some(WentBack::Transactions { was: 10, is: 9 }));
        // What was known before is not forgotten over it.
        assert_eq!(at(1, 100, 10).or_later(silent(12)), at(1, 100, 12));
    }
}
