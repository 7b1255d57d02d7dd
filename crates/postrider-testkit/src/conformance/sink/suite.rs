//! The list of all checks, as a macro.

/// Makes one test of each check of the [sink conformance suite](crate::conformance::sink), for the given
/// [`SinkHarness`](crate::conformance::sink::SinkHarness).
///
/// Several harnesses in one file go into modules of their own.
#[macro_export]
macro_rules! sink_conformance {
    ($harness:ty) => {
        $crate::sink_conformance! { @checks $harness;
            outcomes {
                a_sink_says_what_it_can_do_and_keeps_to_it
                an_event_alone_arrives
                a_batch_of_the_declared_size_arrives_whole
                an_empty_batch_is_harmless
                outcomes_stand_in_the_order_of_the_batch
                batches_that_are_sent_at_once_all_arrive
            }
            content {
                an_event_arrives_with_its_id_type_key_and_headers
                an_event_without_a_key_arrives
                json_arrives_unchanged
                text_arrives_unchanged_or_is_rejected
                bytes_arrive_unchanged_or_are_rejected
                an_empty_payload_arrives_or_is_rejected
                the_largest_payload_arrives_whole_or_is_rejected
                what_the_protocol_cannot_say_is_rejected_and_not_changed
                an_event_that_is_sent_again_carries_the_same_id
            }
            order {
                the_events_of_a_key_arrive_in_order
                after_a_failure_no_later_event_of_its_key_was_applied
                a_refused_event_has_failed_and_its_receiver_is_not_down
                a_refused_event_does_not_hold_up_other_keys
            }
            failing {
                a_receiver_that_is_down_is_unavailable_and_nothing_is_delivered
                a_receiver_that_comes_back_is_found_again
                what_was_not_answered_is_not_said_to_be_delivered
            }
            dropping {
                a_dropped_send_loses_nothing_that_was_acknowledged
                a_dropped_send_takes_nothing_from_others
            }
            deadlines {
                a_send_without_an_answer_ends_before_its_time_out
                a_send_that_is_answered_in_part_says_what_was_delivered
            }
        }
    };
    (@checks $harness:ty; $($module:ident { $($check:ident)* })*) => {
        $(
            mod $module {
                #[allow(unused_imports)]
                use super::*;
                $(
                    #[tokio::test]
                    async fn $check() -> $crate::conformance::Checked {
                        $crate::conformance::sink::$module::$check::<$harness>().await
                    }
                )*
            }
        )*
    };
}
