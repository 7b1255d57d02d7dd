//! Where an event without a key lies when several instances deliver: with the one that wrote it, as long as that keeps up.

use std::sync::Arc;

use postrider::{Outbox, Source, metrics::Snapshot};

use crate::parts::{Gate, Recorder, Site, Tally, eventually, keyed, plain, secs};

const LANES: u32 = 8;

/// Two instances on one store, each with half of the lanes.
struct Pair {
    site: Site,
    outboxes: [Outbox; 2],
    seen: [Recorder; 2],
}

impl Pair {
    async fn start(gate: &Arc<Gate>) -> Self {
        let site = Site::memory(LANES);
        let (seen, tallies) = ([(); 2].map(|()| Recorder::default()), [(); 2].map(|()| Tally::default()));
        let mut outboxes = Vec::new();
        for (recorder, tally) in seen.iter().zip(&tallies) {
            let outbox = site
                .outbox()
                .on("Tested", recorder.delivers())
                .on("A", recorder.waits_at(gate))
                .metrics(tally.metrics())
                .hot_queue(4)
                .cold_queue(4)
                .lease(secs(3))
                .start()
                .await
                .unwrap();
            outboxes.push(outbox);
        }
        let half = |now: Snapshot| now.lanes_owned == u64::from(LANES) / 2;
        eventually("each has half of the lanes", async || tallies.iter().all(|tally| half(tally.now())))
            .await;
        Self { site, outboxes: outboxes.try_into().ok().unwrap(), seen }
    }

    fn counts(&self) -> [usize; 2] {
        self.seen.each_ref().map(Recorder::count)
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_without_a_key_is_delivered_by_the_process_that_wrote_it() {
    let gate = Arc::new(Gate::shut());
    gate.let_through();
    let pair = Pair::start(&gate).await;
    let [one, two] = &pair.outboxes;
    for _ in 0..20 {
        let id = pair.site.write_hot(one, plain("A")).await;
        pair.site.until_done(&id).await;
    }
    assert_eq!(pair.counts(), [20, 0]);
    assert!(pair.seen[0].seen().iter().all(|delivery| delivery.source == Source::Hot));
    // One that is read from the table is read by the same.
    for _ in 0..20 {
        let id = pair.site.write(two, plain("A")).await;
        pair.site.until_done(&id).await;
    }
    assert_eq!(pair.counts(), [20, 20]);
    assert!(pair.seen[1].seen().iter().all(|delivery| delivery.source == Source::Cold));
}

#[tokio::test(start_paused = true)]
async fn a_key_decides_its_lane_whoever_writes() {
    let gate = Arc::new(Gate::shut());
    let pair = Pair::start(&gate).await;
    for n in 0..20 {
        pair.site.write(&pair.outboxes[n % 2], keyed("k", n)).await;
    }
    pair.site.until_all_done(20).await;
    let [one, two] = pair.counts();
    assert!(one == 0 || two == 0, "a key has one lane, and that one owner: {one} and {two}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_keep_up_leaves_events_without_a_key_to_the_others() {
    let gate = Arc::new(Gate::shut());
    let pair = Pair::start(&gate).await;
    // The first is stuck: its workers, its hot queue and its lanes are full, and it writes on.
    for _ in 0..60 {
        pair.site.write_hot(&pair.outboxes[0], plain("A")).await;
    }
    eventually("the other has a share in it", async || pair.counts()[1] > 0).await;
    gate.let_through();
    pair.site.until_all_done(60).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_delivers_no_more_leaves_the_choice_to_the_table() {
    let gate = Arc::new(Gate::shut());
    gate.let_through();
    let pair = Pair::start(&gate).await;
    pair.outboxes[0].shutdown().await;
    for _ in 0..20 {
        pair.site.write(&pair.outboxes[0], plain("A")).await;
    }
    pair.site.until_all_done(20).await;
    assert_eq!(pair.counts(), [0, 20]);
    let lanes: std::collections::BTreeSet<u32> =
        pair.seen[1].seen().iter().map(|delivery| delivery.lane).collect();
    assert!(lanes.len() > 1, "all of them went to one lane: {lanes:?}");
}
