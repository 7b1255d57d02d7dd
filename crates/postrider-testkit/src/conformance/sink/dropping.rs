//! A send whose future is dropped, as it is when the engine stops or a time-out strikes.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use postrider_core::BatchOrder;

use super::{
    Checked, SinkHarness,
    scene::{SEND_MAX, Scene, send},
};

/// At how many points a send is dropped.
const POINTS: usize = 8;

/// Wherever a send is dropped, what was acknowledged before has arrived, the sink can be used, and what is sent again arrives
/// in order.
pub async fn a_dropped_send_loses_nothing_that_was_acknowledged<H: SinkHarness>() -> Checked {
    for point in 0..POINTS {
        let mut scene = Scene::<H>::fresh().await?;
        let before = scene.events_of(["a", "b", "a"])?;
        scene.deliver(&before).await?;
        let dropped = match (scene.traits.order, scene.traits.batch_max) {
            (BatchOrder::Prefix, 3..) => scene.events_of(["a", "b", "a"])?.to_vec(),
            (BatchOrder::Independent, 2..) => scene.events_of(["a", "b"])?.to_vec(),
            _ => scene.events_of(["a"])?.to_vec(),
        };
        let sending = poll_times(send(scene.sink.clone(), dropped.clone()), point);
        let ended = tokio::time::timeout(SEND_MAX, sending).await.map_err(|_| "a send does not go on")?;
        if let Some(outcomes) = ended {
            scene.note(&dropped, &outcomes);
        }
        scene.received().await?;
        scene.deliver(&dropped).await?;
        scene.arrived_in_order(&[before.as_slice(), &dropped].concat()).await?;
    }
    Ok(())
}

/// A send that is dropped takes nothing from another that is under way at the same time.
pub async fn a_dropped_send_takes_nothing_from_others<H: SinkHarness>() -> Checked {
    let mut scene = Scene::<H>::fresh().await?;
    let mut kept = Vec::new();
    for point in 0..POINTS {
        let [dropped, other] = scene.events_of(["dropped", "kept"])?;
        let dropped = poll_times(send(scene.sink.clone(), vec![dropped]), point);
        let both = async { tokio::join!(dropped, scene.deliver(std::slice::from_ref(&other))) };
        let (_, delivered) =
            tokio::time::timeout(SEND_MAX, both).await.map_err(|_| "a send does not go on")?;
        delivered?;
        kept.push(other);
    }
    scene.arrived_in_order(&kept).await
}

/// Polls a future so many times and drops it; what it gave, if it ended before.
async fn poll_times<F: Future>(future: F, mut times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| {
        let Some(left) = times.checked_sub(1) else { return Poll::Ready(None) };
        times = left;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if times == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
