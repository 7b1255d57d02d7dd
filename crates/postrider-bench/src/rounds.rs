//! Runs rounds in which Postrider and the bound take turns, so that other load meets both, and computes medians.

use std::{collections::BTreeMap, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use postrider_relay::{Failure, terminal::Terminal};

use super::figure::rounded;

/// How many rounds a benchmark has and whether each is printed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    count: usize,
    /// Whether each round is printed.
    each: bool,
    terminal: Terminal,
}

impl Rounds {
    pub(super) fn new(count: usize, each: bool, terminal: Terminal) -> Self {
        Self { count, each, terminal }
    }

    /// In every round, gives each of `who` this many turns, one after the other; the value of a round is their median. A first round warms up and
    /// does not count.
    pub(super) async fn by_turns<const N: usize>(
        self,
        bench: &'static str,
        unit: &'static str,
        turns_each: u64,
        who: [&'static str; N],
        mut turn: impl AsyncFnMut(&'static str) -> Result<f64, Failure>,
    ) -> Result<Turns, Failure> {
        let bar = bar(bench, "rounds", self.count as u64);
        let mut all = Turns::default();
        for round in 0..=self.count {
            let mut of_round = Turns::default();
            for _ in 0..turns_each {
                for name in who {
                    of_round.add(name, turn(name).await?);
                }
            }
            if round == 0 {
                continue;
            }
            let values = who.map(|name| (name, of_round.median(name)));
            values.iter().for_each(|(name, value)| all.add(name, *value));
            bar.inc(1);
            if self.each {
                let values = values.map(|(name, value)| format!("{name} {} {unit}", rounded(value)));
                bar.suspend(|| self.terminal.print(format!("{bench}, round {round}: {}", values.join(", "))));
            }
        }
        bar.finish_and_clear();
        Ok(all)
    }
}

/// The values of each round.
#[derive(Debug, Default)]
pub(super) struct Turns(BTreeMap<&'static str, Vec<f64>>);

impl Turns {
    fn add(&mut self, name: &'static str, value: f64) {
        self.0.entry(name).or_default().push(value);
    }

    fn of(&self, name: &str) -> impl Iterator<Item = f64> {
        self.0.get(name).into_iter().flatten().copied()
    }

    /// Adds, for each round, the rate of doing two things one after the other.
    pub(super) fn add_serial(&mut self, name: &'static str, one: &str, other: &str) {
        let pairs: Vec<(f64, f64)> = self.of(one).zip(self.of(other)).collect();
        pairs.into_iter().for_each(|(one, other)| self.add(name, 1.0 / (1.0 / one + 1.0 / other)));
    }

    /// The median over the rounds.
    pub(super) fn median(&self, name: &str) -> f64 {
        median(self.of(name))
    }

    /// The median of the rounds' ratios, each within its own round.
    pub(super) fn ratio(&self, name: &str, to: &str) -> f64 {
        median(self.of(name).zip(self.of(to)).map(|(ours, bound)| ours / bound))
    }
}

/// The median; of an even number of values, the lower of the two in the middle.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    percentile(values, 50)
}

/// The smallest value that at least `percent` percent of the values do not exceed.
pub(super) fn percentile(values: impl IntoIterator<Item = f64>, percent: usize) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// A count as a rate per second.
pub(super) fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// A progress bar on stderr, if it is a terminal.
pub(super) fn bar(bench: &'static str, phase: &'static str, length: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("  {msg:8}{prefix:8}{bar:32} {pos}/{len}  {per_sec}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(bench).with_prefix(phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_one_of_the_values_and_one_outlier_does_not_move_it() {
        assert_eq!(median([3.0, 1.0, 1000.0, 2.0, 4.0]), 3.0);
        assert_eq!(median([2.0, 1.0]), 1.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn a_percentile_is_exceeded_by_the_rest_only() {
        let hundred = || (1..=100).map(f64::from);
        assert_eq!((percentile(hundred(), 50), percentile(hundred(), 99)), (50.0, 99.0));
        assert_eq!(percentile([7.0], 99), 7.0);
    }

    #[test]
    fn a_ratio_is_that_of_a_round_and_not_that_of_the_medians() {
        let of = |name, values: [f64; 3]| (name, values.to_vec());
        let turns = Turns([of("ours", [1.0, 10.0, 100.0]), of("bound", [2.0, 5.0, 25.0])].into());
        assert_eq!((turns.median("ours"), turns.median("bound")), (10.0, 5.0));
        assert_eq!(turns.ratio("ours", "bound"), 2.0);
        assert!(turns.ratio("ours", "nobody").is_nan());
    }

    #[test]
    fn two_rates_in_series_are_slower_than_each_of_them() {
        let mut turns = Turns([("read", vec![30.0, 10.0]), ("delete", vec![60.0, 10.0])].into());
        turns.add_serial("both", "read", "delete");
        let both: Vec<f64> = turns.of("both").map(f64::round).collect();
        assert_eq!(both, [20.0, 5.0]);
    }

    #[tokio::test]
    async fn turns_are_taken_one_after_the_other_and_the_first_round_does_not_count() {
        let mut asked = Vec::new();
        let rounds = Rounds::new(2, false, Terminal::new(true));
        let turns = rounds
            .by_turns("test", "times", 3, ["ours", "bound"], async |name| {
                asked.push(name);
                Ok(asked.len() as f64)
            })
            .await
            .unwrap();
        assert_eq!(asked, ["ours", "bound"].repeat(9));
        assert_eq!(turns.0, [("ours", vec![9.0, 15.0]), ("bound", vec![10.0, 16.0])].into());
    }
}
