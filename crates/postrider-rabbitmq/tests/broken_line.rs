//! An engine before a RabbitMQ whose connection breaks again and again.

mod support;

use postrider_testkit::conformance::{
    Checked,
    sink::{SinkHarness, scene::in_order, survives_a_broken_line},
};
use support::RabbitHarness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_dead_or_out_of_order_behind_a_line_that_breaks() -> Checked {
    let harness = RabbitHarness::fresh().await?;
    let events = survives_a_broken_line(harness.sink(), &harness.line).await?;
    in_order(&events, &harness.received().await?)
}
