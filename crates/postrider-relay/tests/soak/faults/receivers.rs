//! What receivers do, and the ways to them.

use std::time::Duration;

use postrider_testkit::proxy::{Direction, Proxy};

use crate::{
    Failure,
    board::Mode,
    incidents::Scope,
    rng::Rng,
    stage::Stage,
    world::{BATCH, Destination, FEED},
};

pub(super) async fn webhook_fault(stage: &Stage, rng: &mut Rng) -> Result<(), Failure> {
    let destinations: Vec<Destination> = if rng.once_in(6) {
        Destination::tenants().collect()
    } else {
        vec![Destination::tenant(rng.below(usize::MAX))]
    };
    let (mode, what) = rng.pick([
        (Mode::Unavailable, "webhook answers 503"),
        (Mode::Failing, "webhook answers 500"),
        (Mode::HangsBefore, "webhook hangs"),
        (Mode::HangsAfter, "webhook takes and hangs"),
        (Mode::Limited, "webhook answers 429"),
        (Mode::Rejects, "webhook answers 400"),
    ]);
    misbehave(stage, &destinations, mode, what, rng.seconds(5, 25)).await
}

pub(super) async fn batch_fault(stage: &Stage, rng: &mut Rng) -> Result<(), Failure> {
    let time = rng.seconds(5, 20);
    let (mode, what) = match rng.below(7) {
        0 => (Mode::Unavailable, "batches answered with 503"),
        1 => (Mode::Failing, "batches answered with 500"),
        2 => (Mode::HangsBefore, "batches hang"),
        3 => (Mode::HangsAfter, "batches taken and hang"),
        4 => (Mode::Limited, "batches answered with 429"),
        5 => return away(stage, &stage.batch_proxy, BATCH, "batch receiver cut and away", time).await,
        _ => return stall(stage, &stage.batch_proxy, BATCH, "way to the batch receiver stalled", time).await,
    };
    misbehave(stage, &[BATCH], mode, what, time).await
}

pub(super) async fn feed_fault(stage: &Stage, rng: &mut Rng) -> Result<(), Failure> {
    let (proxy, time) = (&stage.feed_proxy, rng.seconds(5, 25));
    match rng.below(3) {
        0 => {
            stage.shared.incidents.moment("Redis cut", vec![Scope::Destination(FEED)]);
            proxy.cut();
            Ok(())
        }
        1 => away(stage, proxy, FEED, "Redis cut and away", time).await,
        _ => stall(stage, proxy, FEED, "way to Redis stalled", time).await,
    }
}

async fn misbehave(
    stage: &Stage,
    destinations: &[Destination],
    mode: Mode,
    what: &'static str,
    time: Duration,
) -> Result<(), Failure> {
    let scopes = destinations.iter().map(|destination| Scope::Destination(*destination)).collect();
    let open = stage.shared.incidents.begin(what, scopes);
    let set = |mode| destinations.iter().for_each(|destination| stage.shared.board.set(*destination, mode));
    set(mode);
    stage.hold(time).await;
    set(Mode::Well);
    stage.shared.incidents.end(open);
    Ok(())
}

/// Connections end, and new ones are refused.
async fn away(
    stage: &Stage,
    proxy: &Proxy,
    destination: Destination,
    what: &'static str,
    time: Duration,
) -> Result<(), Failure> {
    let open = stage.shared.incidents.begin(what, vec![Scope::Destination(destination)]);
    proxy.refuse();
    proxy.cut();
    stage.hold(time).await;
    proxy.admit();
    stage.shared.incidents.end(open);
    Ok(())
}

/// Requests arrive and their answers do not, until they all do.
async fn stall(
    stage: &Stage,
    proxy: &Proxy,
    destination: Destination,
    what: &'static str,
    time: Duration,
) -> Result<(), Failure> {
    let open = stage.shared.incidents.begin(what, vec![Scope::Destination(destination)]);
    proxy.stall(Direction::ToClient);
    stage.hold(time).await;
    proxy.flow(Direction::ToClient);
    stage.shared.incidents.end(open);
    Ok(())
}
