//! The lists of all checks, as macros.

/// Makes one test of each check of the [store conformance suite](crate::conformance), for the given
/// [`StoreHarness`](crate::conformance::StoreHarness).
///
/// Several harnesses in one file go into modules of their own.
#[macro_export]
macro_rules! store_conformance {
    ($harness:ty) => {
        $crate::writer_conformance!($harness);
        $crate::delivery_conformance!($harness);
    };
    (@checks $harness:ty; $($module:ident { $($check:ident)* })*) => {
        $(
            mod $module {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[tokio::test]
                    async fn $check() -> $crate::conformance::Checked {
                        $crate::conformance::$module::$check::<$harness>().await
                    }
                )*
            }
        )*
    };
}

/// The part of the [store conformance suite](crate::conformance) that is about delivering, for a
/// [`StoreHarness`](crate::conformance::StoreHarness) of a table that others write to by means of their own. What its table has no room for
/// ([`Keeps`](postrider_core::store::Keeps)) is not asked of it.
#[macro_export]
macro_rules! delivery_conformance {
    ($harness:ty) => {
        $crate::store_conformance! { @checks $harness;
            undecodable {
                a_row_that_is_no_event_comes_as_such_and_its_neighbours_come_too
                a_row_that_is_no_event_can_go_dead
            }
            claiming {
                events_come_in_order_within_their_lane
                the_events_of_a_key_share_a_lane
                a_claim_goes_on_where_the_last_one_ended_and_marks_nothing
                a_claim_returns_no_more_than_its_limit_and_says_that_there_is_more
                a_limit_holds_over_all_lanes_together
                a_claim_stops_at_its_bytes_without_letting_small_events_overtake
                the_first_event_comes_whatever_its_size
                what_is_in_flight_is_skipped_and_not_counted
                what_was_given_back_is_returned_again
                given_back_events_beyond_the_limit_are_not_lost
                given_back_events_that_are_gone_are_ignored
                a_given_back_follower_is_parked
                due_retries_and_fresh_events_do_not_starve_each_other
                an_unused_half_goes_to_the_others
                a_claim_with_a_foreign_token_loses_the_lane
                an_empty_store_has_nothing_due
            }
            late {
                an_unwanted_event_that_commits_late_keeps_nothing_back
                thousands_of_unwanted_events_that_commit_late_keep_nothing_back
                what_committed_late_comes_first_behind_thousands_that_are_not_wanted
                thousands_that_commit_late_all_come_and_so_does_what_is_new
                what_committed_late_comes_first_though_its_transaction_began_last
                two_events_of_a_transaction_that_commits_amid_a_scan_come_in_order
                two_events_of_a_transaction_that_commits_amid_a_backlog_come_in_order
            }
            late_commits {
                keys_of_lanes_that_were_taken_over_come_in_order
                a_large_transaction_that_commits_late_comes_within_the_limits_of_each_claim
                what_commits_late_and_is_not_wanted_is_met_once_and_keeps_nothing_back
            }
            admitting {
                what_is_not_wanted_is_skipped_and_not_met_again
                a_look_from_an_earlier_position_finds_what_was_skipped
                what_is_not_wanted_takes_no_place_and_is_not_more
                what_does_not_fit_is_asked_about_by_the_next_claim
                a_look_ends_where_it_is_told_to
                what_was_given_back_is_looked_at_beyond_the_end_of_a_look
                waiting_rows_that_are_not_wanted_are_met_once
                waiting_rows_that_become_due_later_are_met
                a_returning_row_that_is_not_wanted_is_unparked
                all_returning_rows_that_are_not_wanted_are_unparked
                what_was_unparked_comes_to_a_walk_though_more_is_parked_behind_it
                nothing_comes_back_from_parking_to_a_walk
                what_committed_late_is_found_though_a_walk_met_it
                a_given_back_row_is_asked_about_once_by_a_walk
                a_returning_row_that_waited_waits_again
                a_given_back_row_that_is_not_wanted_is_not_kept
                a_given_back_row_that_waits_is_asked_about_once
                only_what_would_come_is_asked_about
                a_row_is_shown_as_it_was_stored
                a_waiting_row_is_shown_with_its_time
                the_rows_of_a_key_are_asked_about_in_order
                thousands_that_are_not_wanted_do_not_keep_back_the_rest
            }
            waiting {
                a_delayed_event_comes_at_its_time_and_not_before
                an_event_is_due_at_its_point_in_time
                a_delayed_event_that_was_met_waits_without_holding_its_key
                a_claim_says_when_the_next_event_is_due
                a_delayed_event_behind_a_held_key_keeps_its_time
                a_waiting_follower_that_becomes_due_is_parked
                waiting_events_come_in_the_order_of_their_times
                claims_go_round_the_waiting_events
                a_failed_event_without_a_key_waits_alone
                a_waiting_event_in_flight_is_skipped
                a_due_event_that_was_given_back_comes_once
                a_given_back_event_that_waits_is_left_waiting
            }
            holding {
                followers_of_a_failed_head_are_parked_and_other_keys_go_on
                the_head_comes_back_at_its_time_and_is_held
                followers_come_back_in_order_when_the_head_is_delivered
                a_hundred_followers_come_back_in_batches_and_none_is_lost
                three_hundred_freed_keys_all_come_back
                freed_keys_come_back_behind_many_that_are_in_memory
                new_events_of_a_returning_key_stay_behind
                an_event_that_arrives_as_its_key_becomes_free_is_not_stranded
                a_hold_of_nothing_is_taken_away_by_a_claim
                a_follower_that_fails_on_its_way_back_becomes_the_head
                a_returning_event_in_flight_is_skipped_and_its_hold_stays
                a_deferred_head_holds_its_key_without_an_attempt
                a_dead_head_that_blocks_keeps_its_followers
                a_dead_head_that_is_skipped_frees_its_key
                a_first_failure_that_is_skipped_holds_nothing
                a_failed_event_of_an_outbox_without_order_holds_nothing
                the_delivery_of_another_event_does_not_free_the_key
                followers_that_were_never_met_come_back_before_later_ones_that_were
                followers_that_were_given_back_come_back_before_later_ones
            }
            settling {
                a_delivered_event_is_done_and_never_comes_again
                nothing_is_left_of_a_delivered_event_without_retention
                a_failed_event_waits_with_its_attempts_and_its_error
                a_wait_without_an_error_keeps_the_last_one
                a_dead_event_keeps_its_attempts_and_its_error
                settling_done_twice_changes_nothing_the_second_time
                settling_a_wait_twice_changes_nothing_the_second_time
                an_event_can_be_put_off_again_and_again
                an_attempt_that_is_counted_beforehand_is_followed_by_a_wait
                an_attempt_that_is_counted_after_its_outcome_changes_nothing
                settling_dead_twice_changes_nothing_the_second_time
                a_delivered_event_is_never_changed_again
                a_dead_event_is_changed_by_no_settle
                one_settle_writes_outcomes_of_all_kinds
                five_hundred_outcomes_go_through_in_one_settle
                an_endless_error_text_is_cut_and_cleaned
                the_longest_wait_is_stored
                a_row_of_that_number_with_another_id_is_left_alone
            }
            holes {
                a_hole_in_the_numbers_holds_nothing_up
            }
            going_back {
                a_claim_says_once_that_the_database_went_back_in_time
            }
            locking {
                a_settle_goes_around_a_locked_row
                a_locked_head_is_not_freed
                a_settle_goes_around_a_locked_lane
                a_claim_does_not_wait_for_a_locked_row
                a_claim_goes_around_a_locked_row_that_is_delayed
                a_claim_goes_around_a_locked_follower
                a_claim_goes_around_a_locked_row_that_comes_back_unwanted
                a_claim_goes_around_a_locked_lane
                a_release_goes_around_a_locked_lane
            }
            fencing {
                an_owner_that_was_replaced_settles_nothing
                an_expired_lease_that_nobody_took_can_still_settle
                a_released_lane_lets_no_token_pass
                half_a_token_does_not_pass
                a_settle_over_two_lanes_is_all_or_nothing
                a_claim_by_an_owner_that_was_replaced_writes_nothing
            }
            leasing {
                every_lane_of_a_fresh_store_is_leased_once
                a_held_lane_is_not_taken_by_anybody
                a_lease_that_ran_out_is_taken_with_a_new_token
                a_renewal_holds_a_lane_from_then_on
                an_expired_lease_that_nobody_took_can_be_renewed
                a_lease_that_ends_too_late_is_taken_one_lease_later
                an_owner_that_renews_after_the_clock_was_set_back_keeps_its_lanes
                an_instance_that_is_gone_is_forgotten_though_the_clock_was_set_back
                a_released_lane_is_free_at_once
                a_release_with_an_old_token_does_nothing
                one_lane_of_several_is_released_alone
            }
            orphans {
                a_key_whose_dead_head_was_deleted_goes_on_in_order
                a_key_whose_waiting_head_was_deleted_goes_on_in_order
                a_key_whose_lone_head_was_deleted_is_free
                a_key_whose_head_is_there_is_not_freed
                orphaned_keys_are_found_among_others_page_by_page
            }
            operating {
                migrating_again_changes_nothing
                dead_letters_are_listed_in_order_and_in_pages
                a_redriven_event_is_due_again_before_its_followers
                a_redriven_event_that_was_skipped_comes_again
                a_discarded_event_is_gone_and_its_followers_come
                redrive_and_discard_touch_dead_events_only
                what_was_never_written_is_absent
                stats_count_one_event_of_each_kind
                stats_tell_what_is_due_from_what_waits
                status_names_each_state_on_the_way
                a_purge_takes_old_delivered_events_in_batches
                instances_that_are_alive_are_told_with_their_lanes
            }
            pausing {
                what_is_paused_is_listed_with_its_time_and_its_reason
                pausing_twice_keeps_the_first_pause
                of_many_who_pause_the_same_at_once_one_begins_it
                resuming_ends_one_pause_and_says_what_it_was
                a_sink_its_rejections_and_its_brake_are_told_apart
                names_are_told_apart_by_their_bytes
                a_name_that_nothing_can_have_is_refused
                there_is_an_end_to_how_much_can_be_paused
                a_pause_changes_no_event_and_outlives_a_migration
            }
            peeking {
                a_peek_moves_with_a_plain_insert
                a_peek_stands_still_while_nothing_is_written
                a_peek_moves_with_what_is_written_after_everything_was_delivered
                a_peek_that_waits_ends_with_the_next_number_or_with_its_time
            }
            listing {
                events_are_listed_in_pages_both_ways
                a_list_tells_shelves_keys_and_types_apart
                a_delayed_event_is_listed_with_its_time_before_a_claim_has_met_it
                events_are_counted_by_type
                the_oldest_pending_events_are_told_with_their_types_and_ages
            }
        }
    };
}

/// The part of the [store conformance suite](crate::conformance) that is about writing, for a
/// [`StoreHarness`](crate::conformance::StoreHarness) of another driver's transactions on a store that is proved already.
#[macro_export]
macro_rules! writer_conformance {
    ($harness:ty) => {
        $crate::store_conformance! { @checks $harness;
            atomicity {
                a_committed_event_and_its_business_row_are_seen_together
                nothing_of_a_rolled_back_transaction_is_left
                a_dropped_transaction_is_rolled_back
                what_a_savepoint_rolled_back_is_gone_and_the_rest_stays
                a_swallowed_statement_error_takes_event_and_business_row_alike
                a_batch_is_claimed_in_the_order_it_was_written
                an_empty_batch_is_written_as_nothing
                a_duplicate_id_is_an_error_of_its_own_and_leaves_the_transaction_usable
                a_batch_with_a_duplicate_in_it_writes_none_of_its_events
                an_id_is_a_duplicate_within_its_own_transaction_too
                a_write_that_keeps_duplicates_says_which_events_are_new
                an_event_begins_as_new_with_no_attempts
                a_transaction_that_commits_late_is_not_skipped
                what_commits_late_behind_a_savepoint_is_not_skipped
                what_committed_late_comes_before_what_was_inserted_after_it
                what_committed_late_behind_a_savepoint_comes_before_what_was_inserted_after_it
            }
            round_trip {
                every_field_of_a_text_event_comes_back_as_written
                every_field_of_a_binary_event_comes_back_as_written
                an_event_of_a_type_and_a_payload_comes_back_with_its_defaults
                empty_payloads_and_plain_text_come_back_as_written
                values_at_their_limits_are_stored_whole
                a_batch_of_unlike_events_comes_back_as_written
            }
            refusing {
                a_plain_insert_at_every_limit_is_delivered
                a_plain_insert_of_a_text_that_is_too_long_is_refused
                a_plain_insert_of_an_empty_text_is_refused
                a_plain_insert_without_exactly_one_payload_in_its_limit_is_refused
                a_plain_insert_of_a_status_that_there_is_not_is_refused
                a_plain_insert_of_what_deliveries_write_is_refused
                a_plain_insert_of_a_number_that_no_event_has_is_refused
            }
        }
    };
}
