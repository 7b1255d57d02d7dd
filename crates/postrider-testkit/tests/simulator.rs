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
        sum.committed += report.tally.committed;
        sum.rolled_back += report.tally.rolled_back;
        sum.duplicates += report.tally.duplicates;
        sum.failures += report.tally.failures;
        sum.dead += report.tally.dead;
        sum.crashes += report.tally.crashes;
        sum.faults += report.tally.faults;
        sum.hot += report.tally.hot;
        sum.jumps += report.tally.jumps;
        sum.kills += report.tally.kills;
    }
    println!("{} seeds: {sum:?}", seeds.end - seeds.start);
    if seeds.end - seeds.start >= SEEDS {
        // A simulation in which nothing goes wrong proves nothing.
        let all = [
            sum.jumps,
            sum.kills,
            sum.rolled_back,
            sum.duplicates,
            sum.failures,
            sum.dead,
            sum.crashes,
            sum.faults,
            sum.hot as usize,
        ];
        assert!(all.iter().all(|&count| count > 100), "{sum:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history_to_the_letter() {
    for seed in 0..25 {
        assert_eq!(sim::run(seed).fingerprint, sim::run(seed).fingerprint, "seed {seed}");
    }
    assert_ne!(sim::run(1).fingerprint, sim::run(2).fingerprint);
}
