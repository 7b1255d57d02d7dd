//! What is done to the processes.

use std::time::Duration;

use crate::{
    Failure,
    incidents::Scope,
    relays::SEATS,
    rng::Rng,
    stage::Stage,
    world::{CLEAN_END, LEASE},
};

pub(super) async fn fault(stage: &Stage, rng: &mut Rng) -> Result<(), Failure> {
    let seat = rng.below(SEATS);
    match rng.below(16) {
        0..=5 => kill(stage, seat, rng.seconds(0, 5)).await,
        6..=9 => stop(stage, seat, LEASE + rng.seconds(1, 10)).await,
        10 | 11 => stop(stage, seat, rng.seconds(1, 5)).await,
        12..=14 => end(stage, seat, rng.seconds(0, 3)).await,
        _ => kill_all(stage, rng.seconds(0, 3)).await,
    }
}

/// SIGKILL, and another relay after a while.
async fn kill(stage: &Stage, seat: usize, away: Duration) -> Result<(), Failure> {
    let mut taken = stage.relays.take(seat).await?;
    let open = stage.shared.incidents.begin("relay killed", vec![stage.relays.scope(seat)]);
    taken.kill()?;
    stage.hold(away).await;
    taken.start()?;
    let delivers = taken.delivers().await;
    stage.shared.incidents.end(open);
    delivers
}

/// All at once: nobody delivers until they are back.
async fn kill_all(stage: &Stage, away: Duration) -> Result<(), Failure> {
    let mut all = Vec::new();
    for seat in 0..SEATS {
        all.push(stage.relays.take(seat).await?);
    }
    let scopes = (0..SEATS).map(|seat| stage.relays.scope(seat)).chain([Scope::All]);
    let open = stage.shared.incidents.begin("all relays killed", scopes.collect());
    for taken in &mut all {
        taken.kill()?;
    }
    stage.hold(away).await;
    for taken in &mut all {
        taken.start()?;
    }
    let mut delivers = Ok(());
    for taken in &mut all {
        delivers = delivers.and(taken.delivers().await);
    }
    stage.shared.incidents.end(open);
    delivers
}

/// SIGSTOP and SIGCONT.
async fn stop(stage: &Stage, seat: usize, time: Duration) -> Result<(), Failure> {
    let taken = stage.relays.take(seat).await?;
    let what = if time > LEASE { "relay stopped past its lease" } else { "relay stopped for a moment" };
    let open = stage.shared.incidents.begin(what, vec![stage.relays.scope(seat)]);
    taken.signal("-STOP")?;
    stage.hold(time).await;
    let continued = taken.signal("-CONT");
    stage.shared.incidents.end(open);
    continued
}

/// SIGTERM, and another relay after a while. If the end was clean, nothing may come again because of it.
async fn end(stage: &Stage, seat: usize, away: Duration) -> Result<(), Failure> {
    let mut taken = stage.relays.take(seat).await?;
    let (scope, began) = (stage.relays.scope(seat), stage.shared.clock.now());
    let open = stage.shared.incidents.begin("relay ended in order", Vec::new());
    let ended = taken.end().await?;
    let took = stage.shared.clock.now() - began;
    if took > CLEAN_END || !ended.is_some_and(|status| status.success()) {
        stage.shared.incidents.concerns(&open, [scope]);
    }
    stage.hold(away).await;
    taken.start()?;
    let delivers = taken.delivers().await;
    stage.shared.incidents.end(open);
    delivers
}
