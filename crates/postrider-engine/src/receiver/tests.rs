use super::*;
use crate::{
    brake::{EXHAUSTED_KEYS, REJECTED_KEYS},
    destination::destination_id,
    faulty_keys::FAILING_KEYS,
};

/// How long a notice has been listed.
const NEW: Option<Duration> = Some(Duration::ZERO);

fn attempt(destination: Option<&str>, key: u64, since: u64) -> Attempt {
    let destination = destination.map(destination_id);
    let sent_at = Instant::now();
    Attempt { destination, key, since, sent_at, events: 1, others_delivered: false, healthy: false }
}

fn rule_at(receiver: &mut Receiver, outcome: &Outcome, destination: &str, key: u64) -> Assessment {
    let attempt = attempt(Some(destination), key, receiver.delivered);
    receiver.assess(outcome, &attempt, Instant::now(), &mut Rng::seeded(1))
}

fn assess(receiver: &mut Receiver, outcome: &Outcome, key: u64, since: u64) -> Assessment {
    receiver.assess(outcome, &attempt(None, key, since), Instant::now(), &mut Rng::seeded(1))
}

fn gate(receiver: &mut Receiver, destination: &str) -> Readiness {
    receiver.gate(Some(destination_id(destination)), &mut Vec::new(), 0, Instant::now())
}

fn delivered(receiver: &mut Receiver, destination: Option<&str>, key: u64) {
    let now = Instant::now();
    receiver.note_delivered(std::iter::once((destination.map(destination_id), key)), now, now);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_at_an_outside_system_counts_only_if_another_key_was_delivered_since() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let failed = Outcome::retry("500");
    delivered(&mut sink, None, 2);
    let since = sink.sending(None, Instant::now());
    assert_eq!(assess(&mut sink, &failed, 1, since), Assessment::Excused(1));
    delivered(&mut sink, None, 1);
    assert_eq!(assess(&mut sink, &failed, 1, since), Assessment::Excused(1), "its own key says nothing");
    delivered(&mut sink, None, 2);
    assert_eq!(assess(&mut sink, &failed, 1, since), Assessment::Counts);
    delivered(&mut sink, None, 1);
    assert_eq!(
        assess(&mut sink, &failed, 1, since),
        Assessment::Counts,
        "another key was delivered before its own"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_delivered_elsewhere_says_nothing_of_a_destination() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let since = sink.sending(None, Instant::now());
    delivered(&mut sink, Some("/a"), 1);
    let failed = Outcome::retry("500");
    let at = |destination| attempt(Some(destination), 9, since);
    let rng = &mut Rng::seeded(1);
    assert_eq!(sink.assess(&failed, &at("/b"), Instant::now(), rng), Assessment::Excused(1));
    assert_eq!(sink.assess(&failed, &at("/a"), Instant::now(), rng), Assessment::Counts);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_down_stops_no_other_and_all_of_them_are_the_receiver() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    delivered(&mut sink, Some("/a"), 1);
    delivered(&mut sink, Some("/b"), 2);
    let down = Outcome::unavailable("503");
    assert!(matches!(rule_at(&mut sink, &down, "/a", 1), Assessment::DestinationDown { newly: true, .. }));
    assert!(sink.is_up() && sink.is_troubled());
    assert!(matches!(gate(&mut sink, "/a"), Readiness::Wait(_)));
    assert_eq!(gate(&mut sink, "/b"), Readiness::Ready);
    assert_eq!(gate(&mut sink, "/new"), Readiness::Ready);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(gate(&mut sink, "/a"), Readiness::Probe);
    delivered(&mut sink, Some("/a"), 1);
    assert_eq!(gate(&mut sink, "/a"), Readiness::Ready);
    for destination in ["/a", "/b"] {
        assert!(matches!(rule_at(&mut sink, &down, destination, 1), Assessment::DestinationDown { .. }));
    }
    assert!(matches!(rule_at(&mut sink, &down, "/new", 1), Assessment::ReceiverDown { newly: true, .. }));
    assert!(!sink.is_up());
}

#[tokio::test(start_paused = true)]
async fn destinations_without_end_share_one() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let down = Outcome::unavailable("503");
    delivered(&mut sink, Some("/works"), 1);
    for n in 0..1000 {
        rule_at(&mut sink, &down, &format!("/{n}"), n);
    }
    assert!(sink.is_up(), "one of them works");
    assert_eq!(gate(&mut sink, "/works"), Readiness::Ready);
    assert!(matches!(gate(&mut sink, "/another"), Readiness::Wait(_)));
}

#[tokio::test(start_paused = true)]
async fn what_an_outside_system_was_not_sent_is_no_sign_of_life() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    for key in 0..FAILING_KEYS as u64 {
        assess(&mut sink, &Outcome::unknown("no answer"), key, 0);
    }
    assert!(!sink.is_up());
    // The rest of a batch whose first events were not answered.
    assert_eq!(assess(&mut sink, &Outcome::deferred(Duration::ZERO), 99, 0), Assessment::AsReported);
    assert!(!sink.is_up() && !sink.lets_through(Instant::now()));
    // A receiver that says when to come again has answered, and is obeyed.
    assert_eq!(assess(&mut sink, &Outcome::deferred(Duration::from_secs(1)), 99, 0), Assessment::AsReported);
    assert!(sink.is_up() && !sink.lets_through(Instant::now()));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(sink.lets_through(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn failures_of_several_keys_in_a_row_are_an_outage_and_those_of_one_key_are_not() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let unknown = Outcome::unknown("no answer");
    for n in 1..20 {
        assert_eq!(assess(&mut sink, &unknown, 1, 0), Assessment::Excused(n));
    }
    for key in 2..FAILING_KEYS as u64 {
        assert!(matches!(assess(&mut sink, &unknown, key, 0), Assessment::Excused(_)));
    }
    assert!(matches!(assess(&mut sink, &unknown, 99, 0), Assessment::ReceiverDown { newly: true, .. }));
    assert!(!sink.is_up());
}

#[tokio::test(start_paused = true)]
async fn an_event_that_alone_is_refused_neither_counts_nor_opens_the_breaker() {
    for traits in [SinkTraits::SINK, SinkTraits::HANDLER] {
        let mut receiver = Receiver::new(traits);
        let (since, refused) = (receiver.sending(None, Instant::now()), Outcome::unavailable("503"));
        delivered(&mut receiver, None, 2);
        assert!(matches!(assess(&mut receiver, &refused, 1, since), Assessment::Excused(_)));
        assert!(receiver.is_up());
        let since = receiver.sending(None, Instant::now());
        assert!(matches!(
            assess(&mut receiver, &refused, 1, since),
            Assessment::ReceiverDown { newly: true, .. }
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn failing_keys_cost_the_others_nothing_while_the_health_check_passes() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let failed = Outcome::retry("500");
    let rng = &mut Rng::seeded(1);
    for key in 0..1000 {
        assert!(sink.has_to_be_asked(&failed, &attempt(None, key, 0)));
        let attempt = Attempt { healthy: true, ..attempt(None, key, 0) };
        assert_eq!(sink.assess(&failed, &attempt, Instant::now(), rng), Assessment::Counts);
        assert!(sink.is_up());
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_rejects_everything_kills_ten_events_at_most_until_it_takes_one() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let rejected = Outcome::rejected("400");
    let dead =
        (0..1000).filter(|key| assess(&mut sink, &rejected, *key, 0) == Assessment::AsReported).count();
    assert!(dead < REJECTED_KEYS, "{dead}");
    assert!(!sink.is_up() && sink.rejects_everything());
    delivered(&mut sink, None, 1);
    assert!(sink.is_up() && !sink.rejects_everything());
    assert_eq!(sink.update_rejection_notice(None), None);
    assert_eq!(sink.update_rejection_notice(NEW), None, "another instance has said so");
    sink.notice_raised();
    assert_eq!(sink.update_rejection_notice(NEW), Some(RejectionNotice::Clear));
    delivered(&mut sink, None, 1);
    assert_eq!(
        sink.update_rejection_notice(Some(NOTICE_MAX)),
        Some(RejectionNotice::Clear),
        "that one is gone"
    );
    assert_eq!(assess(&mut sink, &rejected, 1, 0), Assessment::AsReported);
    // One key that is rejected time and again is that key's affair.
    assert!((0..1000).all(|_| assess(&mut sink, &rejected, 1, 0) == Assessment::AsReported));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_everything_though_it_is_well_kills_a_few_at_most_until_it_takes_one() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let dead = (0..1000).filter(|key| sink.allows_death(None, *key, Instant::now())).count();
    assert!(dead < EXHAUSTED_KEYS, "{dead}");
    assert_eq!(sink.update_rejection_notice(None), Some(RejectionNotice::Raise));
    delivered(&mut sink, None, 1);
    assert!(sink.allows_death(None, 1, Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn what_is_rejected_dies_if_an_operator_says_so() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let rejected = Outcome::rejected("400");
    (0..100).for_each(|key| _ = assess(&mut sink, &rejected, key, 0));
    assert_eq!(sink.update_rejection_notice(None), Some(RejectionNotice::Raise));
    sink.notice_raised();
    assert_eq!(sink.update_rejection_notice(NEW), None);
    sink.allow_rejections(true);
    assert!(sink.is_up());
    assert!((0..100).all(|key| assess(&mut sink, &rejected, key, 0) == Assessment::AsReported));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_with_a_destination_for_each_key_has_a_brake_too() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let rejected = Outcome::rejected("400");
    let assess = |key: u64| rule_at(&mut sink, &rejected, &format!("/{key}"), key);
    let dead = (0..200).map(assess).filter(|ruling| *ruling == Assessment::AsReported).count();
    assert!(dead < REJECTED_KEYS, "{dead}");
    assert!(!sink.is_up() && sink.rejects_everything());
    delivered(&mut sink, Some("/1"), 1);
    assert!(sink.is_up() && !sink.rejects_everything());
}

#[tokio::test(start_paused = true)]
async fn a_notice_from_before_is_taken_over_until_something_is_delivered() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    assert_eq!(sink.update_rejection_notice(NEW), None);
    assert!(sink.is_up(), "it is sent something");
    assert!(matches!(assess(&mut sink, &Outcome::rejected("400"), 1, 0), Assessment::ReceiverDown { .. }));
    assert_eq!(sink.update_rejection_notice(NEW), None);
    delivered(&mut sink, None, 1);
    assert_eq!(sink.update_rejection_notice(NEW), Some(RejectionNotice::Clear));
}

#[test]
fn what_failed_before_leaves_a_quarter_of_the_sends_to_the_rest() {
    let mut sink = Receiver::new(SinkTraits { concurrent: Some(10), ..SinkTraits::SINK });
    let sent = (0..100).take_while(|_| sink.has_room_for_failed(4).then(|| sink.sending_failed()).is_some());
    assert_eq!(sent.count(), 8);
    sink.failed_ended();
    assert!(sink.has_room_for_failed(4));
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_sends_become_more_and_larger_step_by_step() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    assess(&mut sink, &Outcome::unavailable("down"), 1, 0);
    let allowed: Vec<(usize, usize)> = (0..9)
        .map(|key| {
            delivered(&mut sink, None, key);
            (sink.concurrent(Instant::now()).unwrap(), sink.batch_now())
        })
        .collect();
    assert_eq!(allowed[..3], [(2, 2), (3, 4), (4, 8)]);
    assert_eq!(allowed[8], (10, 100));
}

#[test]
fn a_receiver_is_as_quick_as_it_was_the_last_time() {
    let mut handler = Receiver::new(SinkTraits::HANDLER);
    let within = Duration::from_micros(50);
    assert_eq!(handler.sent_within(within), 0, "nothing is known");
    handler.note_pace(100, Duration::from_micros(25));
    assert_eq!(handler.sent_within(within), 200);
    handler.note_pace(0, Duration::from_secs(1));
    assert_eq!(handler.sent_within(within), 200, "nothing was sent");
    handler.note_pace(1, Duration::from_millis(1));
    assert_eq!(handler.sent_within(within), 0);
    handler.note_pace(5, Duration::ZERO);
    assert_eq!(handler.sent_within(within), 0, "the clock stood still");
}

#[tokio::test(start_paused = true)]
async fn a_handler_in_this_process_is_always_alive() {
    let mut handler = Receiver::new(SinkTraits::HANDLER);
    for key in 0..50 {
        assert_eq!(assess(&mut handler, &Outcome::retry("no"), key, 0), Assessment::Counts);
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_to_come_later_never_counts_and_slows_down_nobody_else() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let later = Outcome::later("500", Duration::from_secs(3600));
    let since = sink.sending(None, Instant::now());
    assert_eq!(assess(&mut sink, &later, 1, since), Assessment::Excused(1));
    delivered(&mut sink, None, 2);
    assert_eq!(
        assess(&mut sink, &later, 1, since),
        Assessment::Excused(1),
        "others were delivered meanwhile"
    );
    let healthy = Attempt { healthy: true, ..attempt(None, 1, sink.delivered) };
    let now = Instant::now();
    assert_eq!(sink.assess(&later, &healthy, now, &mut Rng::seeded(1)), Assessment::Excused(1));
    assert!(sink.is_up() && !sink.is_troubled());
    assert_eq!(sink.opens_at(now), None);
}

#[tokio::test(start_paused = true)]
async fn a_destination_whose_first_answer_is_too_fast_is_obeyed() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let since = sink.sending(Some(destination_id("a")), Instant::now());
    let too_fast = Outcome::deferred(Duration::from_secs(1));
    let attempt = attempt(Some("a"), 1, since);
    sink.assess(&too_fast, &attempt, Instant::now(), &mut Rng::seeded(1));
    assert!(sink.is_troubled(), "each event has to be asked about");
    assert!(matches!(gate(&mut sink, "a"), Readiness::Wait(_)));
    assert_eq!(gate(&mut sink, "b"), Readiness::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_puts_off_every_event_is_down() {
    let mut sink = Receiver::new(SinkTraits::SINK);
    let later = Outcome::later("500", Duration::from_secs(5));
    let since = sink.sending(None, Instant::now());
    let rulings: Vec<_> = (0..FAILING_KEYS as u64).map(|key| assess(&mut sink, &later, key, since)).collect();
    assert!(matches!(rulings.last(), Some(Assessment::ReceiverDown { newly: true, .. })), "{rulings:?}");
}

#[tokio::test(start_paused = true)]
async fn a_relapse_of_a_receiver_that_took_one_event_in_between_is_an_outage() {
    for failure in [Outcome::retry("500"), Outcome::unknown("no answer"), Outcome::unavailable("503")] {
        for keys in [FAILING_KEYS as u64, 12] {
            let mut sink = Receiver::new(SinkTraits::SINK);
            (0..keys).for_each(|key| _ = assess(&mut sink, &failure, key, 0));
            delivered(&mut sink, None, 99);
            let since = sink.delivered;
            let first: Vec<Assessment> =
                (0..keys).map(|key| assess(&mut sink, &failure, key, since)).collect();
            assert!(first.iter().all(|ruling| matches!(ruling, Assessment::Excused(_))), "{first:?}");
            assert!(sink.is_up(), "{failure:?}: they failed by themselves before");
            (0..keys).for_each(|key| _ = assess(&mut sink, &failure, key, since));
            let third = assess(&mut sink, &failure, 0, since);
            assert!(
                matches!(third, Assessment::ReceiverDown { .. }) && !sink.is_up(),
                "{failure:?}: {third:?}"
            );
            assert!(sink.seen_at(None, 99).1, "it is out for others");
        }
    }
}
