//! The simulator over many seeds. `POSTRIDER_SIM_SEEDS` runs another number of them, `POSTRIDER_SIM_SEED` replays one.

use postrider_testkit::sim::{self, Tally};

const SEEDS: u64 = 2000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_seed_keeps_every_promise() {
    let seeds = match number("POSTRIDER_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSTRIDER_SIM_SEEDS").unwrap_or(SEEDS),
    };
    let mut sum = Tally::default();
    for seed in seeds.clone() {
        let report = sim::run(seed);
        assert!(report.violations.is_empty(), "replay with POSTRIDER_SIM_SEED={seed}\n{report}");
        sum += report.tally;
    }
    println!("{} seeds: {sum:?}", seeds.end - seeds.start);
    if seeds.end - seeds.start >= SEEDS {
        // A simulation in which nothing goes wrong proves nothing.
        let seldom: Vec<_> = sum.counts().into_iter().filter(|(_, count)| *count <= 100).collect();
        assert!(seldom.is_empty(), "{seldom:?} of {sum:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history_to_the_letter() {
    for seed in 0..25 {
        assert_eq!(sim::run(seed).fingerprint, sim::run(seed).fingerprint, "seed {seed}");
    }
    assert_ne!(sim::run(1).fingerprint, sim::run(2).fingerprint);
}
