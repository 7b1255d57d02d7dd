//! The simulator over many seeds. `POSTRIDER_SIM_SEEDS` runs another number of them, `POSTRIDER_SIM_FIRST` begins at another one than 0,
//! `POSTRIDER_SIM_SEED` replays one. A run goes on after a seed that breaks a promise, until it has found a few of them.

#![allow(
    clippy::print_stdout,
    clippy::panic,
    reason = "a test says what it found, and by a panic that it found nothing"
)]

use postrider_testkit::sim::{self, Tally};

const SEEDS: u64 = 2000;

/// A run ends when so many seeds have broken a promise.
const MOST_FAILING: usize = 5;

/// Everything that can happen has to happen more often than this, in so many seeds.
const SELDOM: usize = 50;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_seed_keeps_every_promise() {
    let seeds = match number("POSTRIDER_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("POSTRIDER_SIM_FIRST").unwrap_or(0);
            first..first + number("POSTRIDER_SIM_SEEDS").unwrap_or(SEEDS)
        }
    };
    let mut sum = Tally::default();
    let mut failing = Vec::new();
    for seed in seeds.clone() {
        let report = sim::run(seed);
        if !report.violations.is_empty() {
            println!("replay with POSTRIDER_SIM_SEED={seed}\n{report}");
            failing.push(seed);
        }
        if failing.len() == MOST_FAILING {
            break;
        }
        sum += report.tally;
    }
    assert!(failing.is_empty(), "these seeds break a promise, see their histories above: {failing:?}");
    println!("{} seeds: {sum:?}", seeds.end - seeds.start);
    if seeds.end - seeds.start >= SEEDS {
        // A simulation in which nothing goes wrong proves nothing.
        let seldom: Vec<_> = sum.counts().into_iter().filter(|(_, count)| *count <= SELDOM).collect();
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

/// Mutations of the engine and its stores. A simulator that misses one of them within its seeds proves nothing about
/// that promise.
mod mutants {
    use postrider_engine::mutations::{self, Mutation};
    use postrider_testkit::sim;

    /// Runs seeds until this promise is broken.
    fn breaks(promise: &str, mutation: Mutation) {
        let breaks = |seed: &u64| {
            let report = mutations::with(mutation, || sim::run(*seed));
            report.violations.iter().any(|violation| violation.starts_with(promise))
        };
        match (0..super::SEEDS).find(breaks) {
            Some(seed) => println!("{mutation:?} breaks {promise:?} at seed {seed}"),
            None => panic!("{mutation:?} breaks {promise:?} in none of {} seeds", super::SEEDS),
        }
    }

    /// Runs seeds until an event that has nothing to do with what goes wrong in a trial is delivered too late.
    fn is_late_in(trial: &str, mutation: Mutation) {
        let in_trial = format!(", {trial} at ");
        let breaks = |seed: &u64| {
            let report = mutations::with(mutation, || sim::run(*seed));
            let late = |violation: &String| violation.starts_with("in time") && violation.contains(&in_trial);
            report.violations.iter().any(late)
        };
        match (0..super::SEEDS).find(breaks) {
            Some(seed) => println!("{mutation:?} makes others wait in {trial} at seed {seed}"),
            None => panic!("{mutation:?} makes nobody wait in {trial}, in none of {} seeds", super::SEEDS),
        }
    }

    #[test]
    fn a_store_without_a_fence_is_found() {
        breaks("fenced", Mutation::NoFence);
    }

    #[test]
    fn a_fence_that_is_compared_and_not_locked_is_found() {
        breaks("fenced", Mutation::FenceNotLocked);
    }

    #[test]
    fn a_claim_by_row_is_found() {
        breaks("ordered", Mutation::ClaimByRow);
    }

    #[test]
    fn holds_that_are_only_in_memory_are_found() {
        breaks("ordered", Mutation::HoldsInMemory);
    }

    #[test]
    fn a_receipt_that_delivers_by_itself_is_found() {
        breaks("atomic", Mutation::ReceiptDelivers);
    }

    #[test]
    fn a_tracker_that_forgets_before_older_claims_return_is_found() {
        breaks("explained", Mutation::TrackerForgets);
    }

    #[test]
    fn an_engine_that_suspects_nobody_is_found() {
        breaks("confined", Mutation::NoSuspects);
    }

    #[test]
    fn attempts_that_count_during_an_outage_are_found() {
        breaks("attempts", Mutation::OutageCounts);
    }

    #[test]
    fn two_events_of_a_key_in_one_batch_are_found() {
        breaks("one batch", Mutation::KeyNotBusy);
    }

    #[test]
    fn events_that_fail_because_one_before_them_did_are_found() {
        breaks("ordered", Mutation::FollowersFailToo);
    }

    #[test]
    fn a_key_that_is_forgotten_when_it_was_skipped_is_found() {
        breaks("ordered", Mutation::SkippedKeysForgotten);
    }

    #[test]
    fn a_backlog_that_is_never_read_again_is_found() {
        breaks("stuck", Mutation::BacklogUnread);
    }

    #[test]
    fn a_pause_that_claims_obey_and_memory_does_not_is_found() {
        breaks("paused", Mutation::PausedInMemorySent);
    }

    #[test]
    fn a_scan_for_late_commits_that_starts_over_is_found() {
        breaks("in time", Mutation::ScanStartsOver);
    }

    #[test]
    fn a_scan_for_late_commits_that_sees_what_came_since_it_began_is_found() {
        breaks("ordered", Mutation::ScanSeesMore);
    }

    #[test]
    fn a_settle_that_names_a_row_by_its_number_alone_is_found() {
        breaks("at least once", Mutation::SettleBySeqAlone);
    }

    #[test]
    fn a_settle_that_a_locked_row_blocks_is_found() {
        breaks("stuck", Mutation::LockedRowBlocks);
    }

    #[test]
    fn a_refused_settle_that_is_repeated_whole_is_found() {
        breaks("stuck", Mutation::RefusedSettleRepeatedWhole);
    }

    #[test]
    fn positions_that_outlive_a_database_that_went_back_are_found() {
        breaks("stuck", Mutation::PositionsSurviveRewind);
    }

    #[test]
    fn an_attempt_that_makes_its_event_new_is_found() {
        breaks("stuck", Mutation::CountedAttemptIsNew);
    }

    #[test]
    fn a_probe_that_does_not_rotate_is_found() {
        breaks("stuck", Mutation::RefusedProbeRepeated);
    }

    #[test]
    fn followers_without_a_bound_are_found() {
        breaks("in time", Mutation::FollowersUnbounded);
    }

    #[test]
    fn a_destination_that_is_taken_for_the_whole_receiver_is_found() {
        breaks("in time", Mutation::OneDestinationIsAll);
    }

    #[test]
    fn a_destination_that_hangs_and_takes_all_sends_is_found() {
        breaks("in time", Mutation::HangingDestinationTakesAll);
    }

    #[test]
    fn a_receiver_that_is_not_heard_when_it_says_too_fast_is_found() {
        breaks("too fast", Mutation::TooFastIgnored);
    }

    #[test]
    fn a_batch_that_fails_for_each_of_its_events_is_found() {
        breaks("attempts", Mutation::BatchFailureCountsEach);
    }

    #[test]
    fn rejections_without_a_brake_are_found() {
        breaks("braked", Mutation::RejectionsUnbraked);
    }

    #[test]
    fn a_handler_without_a_time_out_is_found() {
        is_late_in("Hangs", Mutation::NoHandlerTimeout);
    }

    #[test]
    fn a_breaker_that_failing_keys_open_beside_a_health_check_that_passes_is_found() {
        is_late_in("FailingKeys", Mutation::HealthCheckIgnored);
    }

    #[test]
    fn suspects_that_stop_everybody_are_found() {
        is_late_in("Suspects", Mutation::SuspectsBlockEverything);
    }

    #[test]
    fn lanes_that_one_slow_send_keeps_from_being_released_to_one_that_joins_are_found() {
        is_late_in("Join", Mutation::LanesFrozen);
    }

    #[test]
    fn lanes_that_one_slow_send_keeps_from_being_released_at_a_stop_are_found() {
        is_late_in("Stop", Mutation::LanesFrozen);
    }

    #[test]
    fn sends_that_do_not_ramp_up_after_an_outage_are_found() {
        breaks("ramp", Mutation::NoRamp);
    }

    #[test]
    fn an_event_that_is_refused_alone_for_ever_is_found() {
        breaks("given up", Mutation::UnavailableForIgnored);
    }

    #[test]
    fn used_up_attempts_without_a_brake_are_found() {
        breaks("braked", Mutation::ExhaustionUnbraked);
    }

    #[test]
    fn a_send_without_a_deadline_is_found() {
        breaks("stuck", Mutation::SendsWithoutDeadline);
    }

    #[test]
    fn a_verb_that_is_waited_for_for_ever_is_found() {
        is_late_in("HungVerbs", Mutation::StoreCallsWithoutLimit);
    }

    #[test]
    fn peeks_that_are_ignored_are_found() {
        is_late_in("Peeks", Mutation::PeeksIgnored);
    }

    #[test]
    fn an_engine_that_is_ready_regardless_is_found() {
        breaks("ready", Mutation::ReadyRegardless);
    }
}
