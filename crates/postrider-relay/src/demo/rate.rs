//! The rate of a growing number, and a small chart of it.

use std::{collections::VecDeque, time::Duration};

/// The period that a rate is measured over.
const WINDOW: Duration = Duration::from_secs(1);

/// Samples in the chart.
const PICTURE: usize = 24;

/// A number that only grows, sampled now and then.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// Time and value.
    samples: VecDeque<(Duration, u64)>,
}

impl Rate {
    pub(crate) fn sample(&mut self, at: Duration, total: u64) {
        self.samples.push_back((at, total));
        while self.samples.len() > PICTURE + 1 {
            self.samples.pop_front();
        }
    }

    /// Growth per second, over about the last second.
    pub(crate) fn per_second(&self) -> f64 {
        let Some(&(now, total)) = self.samples.back() else { return 0.0 };
        let Some(&(then, before)) =
            self.samples.iter().rev().find(|(at, _)| now - *at >= WINDOW).or(self.samples.front())
        else {
            return 0.0;
        };
        let seconds = (now - then).as_secs_f64();
        if seconds > 0.0 { (total - before) as f64 / seconds } else { 0.0 }
    }

    /// One character for each sample, as high as its growth.
    pub(crate) fn picture(&self) -> String {
        const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let growth = || self.samples.iter().zip(self.samples.iter().skip(1)).map(|((_, a), (_, b))| b - a);
        let most = growth().max().unwrap_or(0).max(1);
        growth().filter_map(|grown| HEIGHTS.get((grown * 7).div_ceil(most) as usize)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(totals: &[u64]) -> Rate {
        let mut rate = Rate::default();
        for (n, &total) in totals.iter().enumerate() {
            rate.sample(Duration::from_millis(250 * n as u64), total);
        }
        rate
    }

    #[test]
    fn a_rate_is_that_of_the_last_second() {
        assert_eq!(sampled(&[0, 1000, 1000, 1010, 1020, 1030]).per_second(), 30.0);
        assert_eq!(sampled(&[0, 10]).per_second(), 40.0);
        assert_eq!(sampled(&[5]).per_second(), 0.0);
        assert_eq!(Rate::default().per_second(), 0.0);
    }

    #[test]
    fn the_picture_is_as_high_as_the_growth() {
        assert_eq!(sampled(&[0, 0, 1, 101, 151, 151]).picture(), "▁▂█▅▁");
        assert_eq!(sampled(&[0; 100]).picture().chars().count(), PICTURE);
    }
}
