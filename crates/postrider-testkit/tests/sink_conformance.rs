//! The sink conformance suite on sinks that send through a channel, and on broken ones, which it must catch.

#![allow(clippy::unwrap_used, reason = "clippy takes functions beside the tests for no tests")]

use std::{
    future::Future,
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use postrider_core::{
    BatchOrder, BoxFuture, Delivery, Event, EventBuilder, EventId, Outcome, Payload, Sink, SinkTraits,
};
use postrider_testkit::{
    conformance::{
        Checked, Failure,
        sink::{
            Payloads, Received, Receiver, SinkFeatures, SinkHarness, content, deadlines, dropping, failing,
            order, outcomes,
        },
    },
    sink_conformance,
};
use tokio::sync::{Notify, mpsc, oneshot};

/// What goes over the line: an event, and where to answer.
type Call = (Received, oneshot::Sender<Result<(), &'static str>>);

/// The receiver: a task at the other end of a channel.
struct Desk {
    state: Mutex<Receiver>,
    log: Mutex<Vec<Received>>,
    /// Calls that were taken and not answered.
    held: Mutex<Vec<Call>>,
    stalled: Notify,
}

impl Desk {
    fn log(&self) -> MutexGuard<'_, Vec<Received>> {
        self.log.lock().unwrap()
    }

    fn answer(&self, (received, reply): Call) {
        let answer = match &*self.state.lock().unwrap() {
            Receiver::Ignores(event) if received.payload != event.payload().as_bytes() => Ok(()),
            Receiver::Stalls | Receiver::Ignores(_) => {
                self.held.lock().unwrap().push((received, reply));
                self.stalled.notify_one();
                return;
            }
            Receiver::Refuses(event) if received.payload == event.payload().as_bytes() => Err("refused"),
            _ => Ok(()),
        };
        if answer.is_ok() {
            self.log().push(received);
        }
        let _ = reply.send(answer);
    }
}

/// The sink's end of the channel.
#[derive(Clone)]
struct Line {
    calls: mpsc::Sender<Call>,
    desk: Arc<Desk>,
}

impl Line {
    fn connect() -> Self {
        let (calls, mut incoming) = mpsc::channel(1);
        let desk = Arc::new(Desk {
            state: Mutex::new(Receiver::Well),
            log: Mutex::new(Vec::new()),
            held: Mutex::new(Vec::new()),
            stalled: Notify::new(),
        });
        let answering = desk.clone();
        tokio::spawn(async move {
            while let Some(call) = incoming.recv().await {
                answering.answer(call);
                tokio::task::yield_now().await;
            }
        });
        Self { calls, desk }
    }

    async fn send(&self, delivery: &Delivery) -> Outcome {
        if matches!(&*self.desk.state.lock().unwrap(), Receiver::Down) {
            return Outcome::unavailable("nobody listens");
        }
        let (reply, answer) = oneshot::channel();
        if self.calls.send((packed(delivery), reply)).await.is_err() {
            return Outcome::unavailable("the receiver is gone");
        }
        match answer.await {
            Ok(Ok(())) => Outcome::Delivered,
            Ok(Err(why)) => Outcome::rejected(why),
            Err(_) => Outcome::unknown("no answer"),
        }
    }
}

fn packed(event: &Event) -> Received {
    Received {
        id: Some(event.id().to_string()),
        event_type: Some(event.event_type().to_owned()),
        key: event.key().map(str::to_owned),
        headers: event.headers().clone(),
        payload: event.payload().as_bytes().to_vec(),
    }
}

/// One after the other; behind a failure of its key nothing is sent.
struct OneByOne(Line);

impl Sink for OneByOne {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: 16, order: BatchOrder::Prefix, ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut failed: Vec<Option<&str>> = Vec::new();
            let mut outcomes = Vec::new();
            for delivery in batch {
                let behind = delivery.key().is_some() && failed.contains(&delivery.key());
                outcomes.push(match behind {
                    true => Outcome::retry("behind a failed event"),
                    false => self.0.send(delivery).await,
                });
                if outcomes.last() != Some(&Outcome::Delivered) {
                    failed.push(delivery.key());
                }
            }
            outcomes
        })
    }
}

/// All at once.
struct AllAtOnce(Line);

impl Sink for AllAtOnce {
    fn traits(&self) -> SinkTraits {
        SinkTraits { batch_max: 7, send_timeout: None, ..SinkTraits::SINK }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        let line = |delivery: &Delivery| (self.0.clone(), delivery.clone());
        let sends: Vec<_> = batch.iter().map(line).collect();
        Box::pin(async move {
            let sends = sends.into_iter().map(|(line, delivery)| async move { line.send(&delivery).await });
            let sending: Vec<_> = sends.map(tokio::spawn).collect();
            let mut outcomes = Vec::new();
            for send in sending {
                outcomes.push(send.await.unwrap());
            }
            outcomes
        })
    }
}

/// A handler: one event at a time.
struct Handler(Line);

impl Sink for Handler {
    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            match batch {
                [delivery] => vec![self.0.send(delivery).await],
                _ => Vec::new(),
            }
        })
    }
}

/// Takes JSON and nothing else, and carries the payload alone.
struct JsonOnly(Line);

impl Sink for JsonOnly {
    fn traits(&self) -> SinkTraits {
        OneByOne(self.0.clone()).traits()
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let is_json = |delivery: &Delivery| delivery.content_type() == "application/json";
            let inner = OneByOne(self.0.clone());
            let good: Vec<_> = batch.iter().filter(|delivery| is_json(delivery)).cloned().collect();
            let mut outcomes = inner.send(&good).await.into_iter();
            let outcome = |delivery| match is_json(delivery) {
                true => outcomes.next().unwrap(),
                false => Outcome::rejected("not JSON"),
            };
            batch.iter().map(outcome).collect()
        })
    }
}

/// How long a hasty sink has for a send, and when it ends it by itself.
const HASTE: Duration = Duration::from_millis(500);
const END: Duration = Duration::from_millis(250);

/// All at once, in a hurry; what becomes of them at the end differs.
struct Hasty {
    line: Line,
    end: fn(Line, Vec<Delivery>) -> BoxFuture<'static, Vec<Outcome>>,
}

impl Sink for Hasty {
    fn traits(&self) -> SinkTraits {
        SinkTraits { send_timeout: Some(HASTE), ..AllAtOnce(self.line.clone()).traits() }
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        (self.end)(self.line.clone(), batch.to_vec())
    }
}

/// Ends each event that is not answered, with this outcome.
fn ends_each(line: Line, batch: Vec<Delivery>, unanswered: Outcome) -> BoxFuture<'static, Vec<Outcome>> {
    let sends = batch.into_iter().map(move |delivery| {
        let (line, unanswered) = (line.clone(), unanswered.clone());
        async move { tokio::time::timeout(END, line.send(&delivery)).await.unwrap_or(unanswered) }
    });
    let sending: Vec<_> = sends.map(tokio::spawn).collect();
    Box::pin(async move {
        let mut outcomes = Vec::new();
        for send in sending {
            outcomes.push(send.await.unwrap());
        }
        outcomes
    })
}

/// A kind of sink.
trait Kind: Send + Sync + 'static {
    const FEATURES: SinkFeatures = SinkFeatures::ALL;

    fn sink(line: Line) -> Arc<dyn Sink>;

    fn hasty(_: Line) -> Option<Arc<dyn Sink>> {
        None
    }
}

macro_rules! kinds {
    ($($name:ident = $sink:expr;)*) => {$(
        struct $name;
        impl Kind for $name {
            fn sink(line: Line) -> Arc<dyn Sink> {
                let make: fn(Line) -> Arc<dyn Sink> = $sink;
                make(line)
            }
        }
    )*};
}

struct Harness<K> {
    line: Line,
    sink: Arc<dyn Sink>,
    kind: PhantomData<K>,
}

impl<K: Kind> SinkHarness for Harness<K> {
    const FEATURES: SinkFeatures = K::FEATURES;

    async fn fresh() -> Result<Self, Failure> {
        let line = Line::connect();
        Ok(Self { sink: K::sink(line.clone()), line, kind: PhantomData })
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    fn hasty(&self) -> Option<Arc<dyn Sink>> {
        K::hasty(self.line.clone())
    }

    async fn received(&self) -> Result<Vec<Received>, Failure> {
        Ok(self.line.desk.log().clone())
    }

    async fn set_receiver(&self, receiver: Receiver) -> Result<(), Failure> {
        *self.line.desk.state.lock().unwrap() = receiver;
        self.line.desk.held.lock().unwrap().clear();
        Ok(())
    }

    async fn stalled(&self) -> Result<(), Failure> {
        self.line.desk.stalled.notified().await;
        Ok(())
    }
}

kinds! {
    InOrder = |line| Arc::new(OneByOne(line));
    Independent = |line| Arc::new(AllAtOnce(line));
    OneAtATime = |line| Arc::new(Handler(line));
}

struct Json;

impl Kind for Json {
    const FEATURES: SinkFeatures = SinkFeatures {
        payloads: Payloads::Json,
        id: false,
        event_type: false,
        stall: false,
        ..SinkFeatures::ALL
    };

    fn sink(line: Line) -> Arc<dyn Sink> {
        Arc::new(JsonOnly(line))
    }
}

macro_rules! hasty_kinds {
    ($($name:ident = $end:expr;)*) => {$(
        struct $name;
        impl Kind for $name {
            fn sink(line: Line) -> Arc<dyn Sink> {
                Arc::new(AllAtOnce(line))
            }

            fn hasty(line: Line) -> Option<Arc<dyn Sink>> {
                Some(Arc::new(Hasty { line, end: $end }))
            }
        }
    )*};
}

hasty_kinds! {
    EndsEachInTime = |line, batch| ends_each(line, batch, Outcome::unknown("no answer"));
    NeverEnds = |line, batch| Box::pin(async move { AllAtOnce(line).send(&batch).await });
    ForgetsAtTheEnd = |line, batch| Box::pin(async move {
        let sending = tokio::time::timeout(END, async { AllAtOnce(line).send(&batch).await }).await;
        sending.unwrap_or_else(|_| vec![Outcome::unknown("no answer"); batch.len()])
    });
    DeliversAtTheEnd = |line, batch| ends_each(line, batch, Outcome::Delivered);
}

mod a_prefix_sink {
    use super::*;
    sink_conformance!(Harness<InOrder>);
}

mod an_independent_sink {
    use super::*;
    sink_conformance!(Harness<Independent>);
}

mod a_hasty_sink {
    use super::*;
    sink_conformance!(Harness<EndsEachInTime>);
}

mod a_handler {
    use super::*;
    sink_conformance!(Harness<OneAtATime>);
}

mod a_sink_for_json {
    use super::*;
    sink_conformance!(Harness<Json>);
}

/// A sink of which something is wrong: what it is given is changed, or what it says.
struct Wrong {
    line: Line,
    before: fn(Vec<Delivery>) -> Vec<Delivery>,
    after: fn(Vec<Outcome>, &[Delivery]) -> Vec<Outcome>,
}

impl Sink for Wrong {
    fn traits(&self) -> SinkTraits {
        OneByOne(self.line.clone()).traits()
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let given = (self.before)(batch.to_vec());
            (self.after)(OneByOne(self.line.clone()).send(&given).await, batch)
        })
    }
}

fn says(after: fn(Vec<Outcome>, &[Delivery]) -> Vec<Outcome>, line: Line) -> Arc<dyn Sink> {
    Arc::new(Wrong { line, before: |batch| batch, after })
}

/// Sends something else than it was given.
fn sends(before: fn(Vec<Delivery>) -> Vec<Delivery>, line: Line) -> Arc<dyn Sink> {
    Arc::new(Wrong { line, before, after: |outcomes, _| outcomes })
}

fn changed(delivery: &Delivery, change: impl Fn(EventBuilder) -> EventBuilder) -> Delivery {
    Delivery { event: change(delivery.event.to_builder()).build().unwrap(), ..delivery.clone() }
}

kinds! {
    LosesAnOutcome = |line| says(|mut outcomes, _| { outcomes.pop(); outcomes }, line);
    InventsAnOutcome = |line| says(|mut outcomes, _| { outcomes.push(Outcome::Delivered); outcomes }, line);
    TurnsOutcomesRound = |line| says(|mut outcomes, _| { outcomes.reverse(); outcomes }, line);
    AlwaysDelivered = |line| says(|_, batch| vec![Outcome::Delivered; batch.len()], line);
    RetriesWhenDown = |line| says(
        |outcomes, _| outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Unavailable { error } => Outcome::retry(error),
            outcome => outcome,
        }).collect(),
        line,
    );
    DownWhenRefused = |line| says(
        |outcomes, _| outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Rejected { error } => Outcome::unavailable(error),
            outcome => outcome,
        }).collect(),
        line,
    );
    Reorders = |line| sends(|mut batch| { batch.reverse(); batch }, line);
    DropsTheTail = |line| Arc::new(Wrong {
        line,
        before: |mut batch| { batch.truncate(10); batch },
        after: |_, batch| vec![Outcome::Delivered; batch.len()],
    });
    SendsTwice = |line| Arc::new(Wrong {
        line,
        before: |batch| batch.iter().flat_map(|delivery| [delivery.clone(), delivery.clone()]).collect(),
        after: |outcomes, _| outcomes.into_iter().step_by(2).collect(),
    });
    NewIdEachTime = |line| sends(
        |batch| batch.iter().map(|delivery| changed(delivery, |event| event.id(EventId::ulid()))).collect(),
        line,
    );
    LosesHeaders = |line| sends(
        |batch| batch.iter().map(|delivery| {
            let event = Event::bytes(delivery.event_type(), delivery.content_type(), delivery.payload().as_bytes());
            let event = event.id(delivery.id().clone());
            let event = match delivery.key() { Some(key) => event.key(key), None => event };
            Delivery { event: event.build().unwrap(), ..delivery.clone() }
        }).collect(),
        line,
    );
    MendsText = |line| sends(
        |batch| batch.iter().map(|delivery| {
            let text = String::from_utf8_lossy(delivery.payload().as_bytes()).replace("\r\n", "\n");
            changed(delivery, |event| event.payload(Payload::Text(text.replace('\0', "").into()), "text/plain"))
        }).collect(),
        line,
    );
    CutsLargePayloads = |line| sends(
        |batch| batch.iter().map(|delivery| {
            let cut: Vec<u8> = delivery.payload().as_bytes().iter().take(65_536).copied().collect();
            changed(delivery, |event| event.payload(Payload::Bytes(cut.clone().into()), "text/plain"))
        }).collect(),
        line,
    );
    FailsOnNothing = |line| sends(|batch| { assert!(!batch.is_empty(), "an empty batch"); batch }, line);
    GoesOnAfterAFailure = |line| Arc::new(GoesOn(line));
    AcknowledgesFirst = |line| Arc::new(Early::new(line));
    BreaksWhenDropped = |line| Arc::new(Fragile { line, whole: Mutex::new(true) });
}

/// Says that it keeps the order, and sends what stands behind a failure.
struct GoesOn(Line);

impl Sink for GoesOn {
    fn traits(&self) -> SinkTraits {
        OneByOne(self.0.clone()).traits()
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut outcomes = Vec::new();
            for delivery in batch {
                outcomes.push(self.0.send(delivery).await);
            }
            outcomes
        })
    }
}

/// Keeps the last batch in memory, says that it was delivered, and sends it with the next one.
struct Early {
    line: Line,
    kept: Mutex<Vec<Delivery>>,
}

impl Early {
    fn new(line: Line) -> Self {
        Self { line, kept: Mutex::new(Vec::new()) }
    }
}

impl Sink for Early {
    fn traits(&self) -> SinkTraits {
        OneByOne(self.line.clone()).traits()
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let kept = std::mem::replace(&mut *self.kept.lock().unwrap(), batch.to_vec());
            OneByOne(self.line.clone()).send(&kept).await;
            vec![Outcome::Delivered; batch.len()]
        })
    }
}

/// Has a connection that half a call leaves unusable.
struct Fragile {
    line: Line,
    whole: Mutex<bool>,
}

impl Sink for Fragile {
    fn traits(&self) -> SinkTraits {
        OneByOne(self.line.clone()).traits()
    }

    fn send<'a>(&'a self, batch: &'a [Delivery]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            if !std::mem::replace(&mut *self.whole.lock().unwrap(), false) {
                return vec![Outcome::retry("the connection is broken"); batch.len()];
            }
            let outcomes = OneByOne(self.line.clone()).send(batch).await;
            *self.whole.lock().unwrap() = true;
            outcomes
        })
    }
}

/// Whether a check finds a fault.
async fn catches(check: impl Future<Output = Checked> + Send + 'static) -> bool {
    !matches!(tokio::spawn(check).await, Ok(Ok(())))
}

macro_rules! caught {
    ($($test:ident: $kind:ident by $($module:ident::$check:ident),+;)*) => {$(
        #[tokio::test]
        async fn $test() {
            $(assert!(
                catches($module::$check::<Harness<$kind>>()).await,
                concat!(stringify!($check), " lets it pass")
            );)+
        }
    )*};
}

mod is_caught {
    use super::*;

    caught! {
        a_sink_that_loses_an_outcome: LosesAnOutcome by
            outcomes::an_event_alone_arrives, outcomes::a_batch_of_the_declared_size_arrives_whole;
        a_sink_that_invents_an_outcome: InventsAnOutcome by
            outcomes::an_event_alone_arrives, outcomes::an_empty_batch_is_harmless;
        a_sink_whose_outcomes_stand_in_the_wrong_order: TurnsOutcomesRound by
            outcomes::outcomes_stand_in_the_order_of_the_batch;
        a_sink_that_reorders: Reorders by order::the_events_of_a_key_arrive_in_order;
        a_sink_that_drops_the_tail_and_says_delivered: DropsTheTail by
            outcomes::a_batch_of_the_declared_size_arrives_whole;
        a_sink_that_says_delivered_whatever_happens: AlwaysDelivered by
            failing::a_receiver_that_is_down_is_unavailable_and_nothing_is_delivered,
            outcomes::outcomes_stand_in_the_order_of_the_batch,
            order::a_refused_event_has_failed_and_its_receiver_is_not_down,
            order::a_refused_event_does_not_hold_up_other_keys;
        a_sink_that_takes_an_outage_for_a_failure: RetriesWhenDown by
            failing::a_receiver_that_is_down_is_unavailable_and_nothing_is_delivered,
            failing::a_receiver_that_comes_back_is_found_again;
        a_sink_that_takes_a_failure_for_an_outage: DownWhenRefused by
            order::a_refused_event_has_failed_and_its_receiver_is_not_down;
        a_sink_that_goes_on_after_a_failure: GoesOnAfterAFailure by
            order::after_a_failure_no_later_event_of_its_key_was_applied;
        a_sink_that_sends_twice: SendsTwice by
            outcomes::an_event_alone_arrives, outcomes::batches_that_are_sent_at_once_all_arrive;
        a_sink_that_gives_a_new_id_each_time: NewIdEachTime by
            content::an_event_arrives_with_its_id_type_key_and_headers,
            content::an_event_that_is_sent_again_carries_the_same_id;
        a_sink_that_loses_headers: LosesHeaders by
            content::an_event_arrives_with_its_id_type_key_and_headers,
            content::what_the_protocol_cannot_say_is_rejected_and_not_changed;
        a_sink_that_mends_text: MendsText by
            content::text_arrives_unchanged_or_is_rejected, content::bytes_arrive_unchanged_or_are_rejected;
        a_sink_that_cuts_large_payloads: CutsLargePayloads by
            content::the_largest_payload_arrives_whole_or_is_rejected;
        a_sink_that_fails_on_an_empty_batch: FailsOnNothing by outcomes::an_empty_batch_is_harmless;
        a_sink_that_acknowledges_before_it_sends: AcknowledgesFirst by
            outcomes::an_event_alone_arrives, dropping::a_dropped_send_loses_nothing_that_was_acknowledged;
        a_sink_that_a_dropped_send_breaks: BreaksWhenDropped by
            dropping::a_dropped_send_loses_nothing_that_was_acknowledged,
            dropping::a_dropped_send_takes_nothing_from_others,
            failing::what_was_not_answered_is_not_said_to_be_delivered;
        a_sink_that_does_not_end_a_send: NeverEnds by
            deadlines::a_send_without_an_answer_ends_before_its_time_out,
            deadlines::a_send_that_is_answered_in_part_says_what_was_delivered;
        a_sink_that_forgets_what_was_delivered_at_the_end_of_a_send: ForgetsAtTheEnd by
            deadlines::a_send_that_is_answered_in_part_says_what_was_delivered;
        a_sink_that_says_delivered_at_the_end_of_a_send: DeliversAtTheEnd by
            deadlines::a_send_without_an_answer_ends_before_its_time_out,
            deadlines::a_send_that_is_answered_in_part_says_what_was_delivered;
    }
}

#[test]
fn every_check_of_the_suite_is_in_the_list_of_the_macro() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance/sink");
    let list = std::fs::read_to_string(folder.join("suite.rs")).unwrap();
    let mut checks = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        for name in lines.filter_map(|line| line.split_once("<H").map(|(name, _)| name)) {
            assert!(list.lines().any(|line| line.trim() == name), "{name} is not in suite.rs");
            checks += 1;
        }
    }
    assert!(checks > 20, "only {checks} checks were found");
}
