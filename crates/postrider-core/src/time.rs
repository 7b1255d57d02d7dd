//! Points in time, to the microsecond, in UTC.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A point in time: microseconds since the Unix epoch.
///
/// Databases keep microseconds, so an event that was read back has the very time that it was written with.
///
/// ```
/// use postrider_core::Timestamp;
/// let t = Timestamp::from_micros(1_700_000_000_123_456);
/// assert_eq!(t.to_string(), "2023-11-14T22:13:20.123456Z");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// The host's clock, now.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// The time that lies `micros` microseconds after the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This time, `duration` later; the furthest time there is where that would overflow.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// This time, `duration` earlier.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::EPOCH.plus(after),
            Err(before) => Self::EPOCH.minus(before.duration()),
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let span = Duration::from_micros(time.0.unsigned_abs());
        if time.0 >= 0 { UNIX_EPOCH + span } else { UNIX_EPOCH - span }
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, micros) = (self.0.div_euclid(86_400_000_000), self.0.rem_euclid(86_400_000_000));
        let (year, month, day) = civil_from_days(days);
        let seconds = micros / 1_000_000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            micros % 1_000_000
        )
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Year, month and day of a number of days since 1970-01-01 in the proleptic Gregorian calendar
/// (eras of 400 years that begin on 1 March, so that the leap day is the last of its year).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_printed_as_rfc_3339_on_leap_days_and_before_the_epoch() {
        assert_eq!(Timestamp::from_micros(951_782_400_000_000).to_string(), "2000-02-29T00:00:00.000000Z");
        assert_eq!(Timestamp::from_micros(-1).to_string(), "1969-12-31T23:59:59.999999Z");
        assert_eq!(Timestamp::from_micros(4_107_542_400_000_000).to_string(), "2100-03-01T00:00:00.000000Z");
    }

    #[test]
    fn a_system_time_survives_the_round_trip_to_the_microsecond() {
        for micros in [0, 1, -1, 1_700_000_000_123_456, -5_000_000_000_001] {
            let time = Timestamp::from_micros(micros);
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }

    #[test]
    fn adding_the_longest_duration_saturates() {
        assert_eq!(Timestamp::now().plus(Duration::MAX).as_micros(), i64::MAX);
    }
}
