//! Several instances on one table: who lost the lane writes nothing, and who stands by takes over.

use std::{sync::Arc, time::Duration};

use postrider_core::{
    Store,
    rng::Rng,
    store::{Change, ClaimedEvent, LeaseRequest},
};
use postrider_sqlx::profile::{Profile, ProfileStore};
use postrider_testkit::{
    conformance::{
        Checked, Failure, Owner,
        scene::{RETENTION, claimed_ids, dead, retry, settlement},
    },
    proxy::{Direction, Proxy},
};

use super::{
    flowcatalyst,
    server::{BOTH, Came, Database, Kind, deliver, hang},
    systems::{System, everywhere},
};

const BYTES: usize = 1 << 20;

async fn instance(database: &Database, system: &System) -> Result<Arc<dyn Store>, Failure> {
    let store = ProfileStore::connect(&database.url, system.profile()?).await?;
    store.migrate().await?;
    Ok(Arc::new(store))
}

async fn end_leases(database: &Database) -> Checked {
    let by = if database.kind == Kind::Postgres { "interval '2 hours'" } else { "INTERVAL 2 HOUR" };
    database.run(&format!("UPDATE postrider_profile_lane SET leased_until = leased_until - {by}")).await
}

/// Nothing that this owner says about these events is written.
async fn assert_fenced(
    owner: &Owner,
    store: &Arc<dyn Store>,
    events: &[ClaimedEvent],
    rows: impl AsyncFn() -> Result<Vec<String>, Failure>,
) -> Checked {
    let before = rows().await?;
    for change in [Change::Done, retry(1), dead(false), Change::Attempt { attempts: 1 }] {
        let settlements: Vec<_> = events.iter().map(|event| settlement(event, change.clone())).collect();
        let settled = owner.settle(store, &settlements, RETENTION).await?;
        assert_eq!((settled.applied, settled.lost.as_slice()), (0, [0].as_slice()));
        assert_eq!(rows().await?, before);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_lost_the_lane_settles_nothing_in_any_table() -> Checked {
    for (system, kind) in everywhere() {
        let database = system.database(kind).await?;
        let rows = async || database.lines(&format!("SELECT * FROM {} ORDER BY 1", system.table)).await;
        let [zombie_store, store] = [instance(&database, system).await?, instance(&database, system).await?];
        let mut zombie = Owner::lease(&zombie_store, "zombie").await?;
        let events = zombie.claim(&zombie_store, 5, BYTES, &[]).await?.events;
        assert_eq!(events.len(), 5, "{} on {kind:?}", system.name);
        end_leases(&database).await?;
        let mut owner = Owner::lease(&store, "owner").await?;
        assert_eq!(owner.leases().len(), 1, "{} on {kind:?}", system.name);
        assert_fenced(&zombie, &zombie_store, &events, &rows).await?;

        // Nor once the same rows are claimed by the one who has the lane, and its claims and its renewals see that they are nobody's.
        let taken = owner.claim(&store, 5, BYTES, &[]).await?.events;
        assert_eq!(claimed_ids(&taken), claimed_ids(&events), "{} on {kind:?}", system.name);
        assert!(taken.iter().all(|event| event.attempts == 0), "a take-over counts no attempt");
        assert_fenced(&zombie, &zombie_store, &events, &rows).await?;
        assert_eq!(zombie.claim(&zombie_store, 5, BYTES, &[]).await?.lost, [0]);
        assert!(zombie_store.renew(zombie.leases(), Duration::from_secs(60)).await?.held.is_empty());
        let done: Vec<_> = taken.iter().map(|event| settlement(event, Change::Done)).collect();
        assert_eq!(owner.settle(&store, &done, RETENTION).await?.applied, 5, "{} on {kind:?}", system.name);
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_is_not_written_over_a_row_that_another_program_has_claimed() -> Checked {
    let changes = [
        (
            "flowcatalyst",
            "UPDATE outbox_events SET processed_at = '2026-01-01 09:00:00' WHERE status = 'PROCESSING'",
        ),
        ("outbox-java", "UPDATE outbox_event SET locked_by = 'java' WHERE locked_by IS NOT NULL"),
        ("spring-outbox", "UPDATE outbox_events SET status = 'PENDING' WHERE status = 'IN_PROCESS'"),
    ];
    for (system, kind) in everywhere() {
        let Some((_, change)) = changes.iter().find(|(name, _)| *name == system.name) else { continue };
        let database = system.database(kind).await?;
        let rows = async || database.lines(&format!("SELECT * FROM {} ORDER BY 1", system.table)).await;
        let store = instance(&database, system).await?;
        let mut owner = Owner::lease(&store, "owner").await?;
        let events = owner.claim(&store, 3, BYTES, &[]).await?.events;
        database.run(change).await?;
        let before = rows().await?;
        let done: Vec<_> = events.iter().map(|event| settlement(event, Change::Done)).collect();
        let settled = owner.settle(&store, &done, RETENTION).await?;
        assert_eq!(
            (events.len(), settled.applied, settled.lost.len()),
            (3, 0, 0),
            "{} on {kind:?}",
            system.name
        );
        assert_eq!(rows().await?, before, "{} on {kind:?}", system.name);
        database.drop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_stands_by_delivers_nothing_until_the_active_one_is_gone() -> Checked {
    for kind in BOTH {
        let database =
            Database::new(kind, &(flowcatalyst::DDL.to_owned() + &flowcatalyst::items("outbox_events")))
                .await?;
        let active = hang(&database.url, Profile::flowcatalyst_events()).await?;
        let claimed =
            "SELECT CASE WHEN COUNT(*) > 0 THEN 'some' END FROM outbox_events WHERE status = 'PROCESSING'";
        database.until(claimed, &["some"]).await?;
        let came = Came::default();
        let (store, standby) = deliver(&database.url, Profile::flowcatalyst_events(), 4, &came).await?;
        // Longer than the lease of four seconds, which the active one renews.
        let epoch = "SELECT CONCAT(epoch, '') FROM postrider_profile_lane";
        let renewed = format!(
            "SELECT CASE WHEN leased_until > '{}' THEN 'later' ELSE 'not yet' END FROM postrider_profile_lane",
            later(&database, "5 SECOND").await?
        );
        database.until(&renewed, &["later"]).await?;
        assert_eq!(database.lines(epoch).await?, ["1"], "{kind:?}: nobody else took the lane");
        assert!(came.lock().unwrap().is_empty(), "{kind:?}");
        drop(active); // without a shutdown
        let count = "SELECT CONCAT(status, ' ', COUNT(*)) FROM outbox_events GROUP BY status ORDER BY status";
        database.until(count, &["COMPLETED 57", "FAILED 3"]).await?;
        // On a busy host it may have lost a lease of four seconds to itself.
        assert_ne!(database.lines(epoch).await?, ["1"], "{kind:?}: the one who stood by took it");
        assert!(standby.shutdown().await.released);
        store.close().await;
        database.drop().await?;
    }
    Ok(())
}

/// When the present lease ends, and so much later.
async fn later(database: &Database, by: &str) -> Result<String, Failure> {
    let by =
        if database.kind == Kind::Postgres { format!("interval '{by}'") } else { format!("INTERVAL {by}") };
    let lines = database.lines(&format!("SELECT leased_until + {by} FROM postrider_profile_lane")).await?;
    lines.into_iter().next().ok_or_else(|| "there is a lane".into())
}

/// The commit of a claim is held up by a lock until its connection is cut: it succeeds, and nobody hears of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_commit_was_not_answered_costs_no_order() -> Checked {
    let lock = u64::from(std::process::id()) << 20;
    let hold_commits = format!(
        "CREATE FUNCTION hold_commit() RETURNS trigger AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared({lock}); RETURN NULL; END $$
           LANGUAGE plpgsql;
         CREATE CONSTRAINT TRIGGER hold_commit AFTER UPDATE ON outbox_events DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION hold_commit();"
    );
    let sql = flowcatalyst::DDL.to_owned() + &hold_commits + &flowcatalyst::items("outbox_events");
    let database = Database::new(Kind::Postgres, &sql).await?;
    let (_, at) = database.url.split_once('@').ok_or("a URL names a host")?;
    let (server, _) = at.split_once('/').ok_or("a URL names a database")?;
    let proxy = Proxy::start(server).await?;
    let url = database.url.replace(server, &proxy.address().to_string());
    let store = ProfileStore::connect(&url, Profile::flowcatalyst_events()).await?;
    store.migrate().await?;
    let store: Arc<dyn Store> = Arc::new(store);
    let mut owner = Owner::lease(&store, "owner").await?;
    database.run(&format!("SELECT pg_advisory_lock({lock})")).await?;
    let claim =
        tokio::spawn(
            async move { (owner.claim(&store, 3, BYTES, &[]).await.map_err(|e| e.to_string()), store) },
        );
    let waiting = format!(
        "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = {}",
        lock as u32
    );
    database.until(&waiting, &["1"]).await?;
    proxy.cut();
    database.run(&format!("SELECT pg_advisory_unlock({lock})")).await?;
    let (claimed, store) = claim.await?;
    let ids: Vec<String> = claimed?
        .events
        .iter()
        .filter_map(|event| event.event.as_ref().ok())
        .map(|event| event.id().to_string())
        .collect();
    let mut first: Vec<String> = ['A', 'B', 'N'].iter().map(|group| format!("{group}000000000050")).collect();
    first.sort();
    let mut sorted = ids.clone();
    sorted.sort();
    assert_eq!(sorted, first, "the first of each group, and not those behind them");
    let marked =
        database.lines("SELECT id FROM outbox_events WHERE status = 'PROCESSING' ORDER BY id").await?;
    assert_eq!(marked, first, "what nobody heard of is claimed once");
    drop(store);
    database.drop().await
}

/// A process that is stopped, or whose network is, in the middle of a claim has the lane's row locked. The server ends that; nobody else would, until TCP
/// gives up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_falls_silent_in_the_middle_of_a_claim_does_not_keep_its_successor_from_the_lane()
-> Checked {
    for kind in BOTH {
        an_instance_falls_silent_in_the_middle_of_a_claim(kind).await?;
    }
    Ok(())
}

async fn an_instance_falls_silent_in_the_middle_of_a_claim(kind: Kind) -> Checked {
    let lease = Duration::from_secs(6);
    let sql = flowcatalyst::DDL.to_owned() + &flowcatalyst::items("outbox_events");
    let database = Database::new(kind, &sql).await?;
    let (_, at) = database.url.split_once('@').ok_or("a URL names a host")?;
    let (server, _) = at.split_once('/').ok_or("a URL names a database")?;
    let proxy = Proxy::start(server).await?;
    let url = database.url.replace(server, &proxy.address().to_string());
    let [silent, successor] =
        [&url, &database.url].map(|url| ProfileStore::connect(url, Profile::flowcatalyst_events()));
    let (silent, successor): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(silent.await?), Arc::new(successor.await?));
    successor.migrate().await?;
    let request = |name: &str| LeaseRequest {
        owner: name.to_owned(),
        ttl: lease,
        nonces: Rng::from_entropy(),
        most: 1,
    };
    let mut owner = Owner::holding(silent.lease(&request("silent")).await?.leases());
    assert_eq!(owner.leases().len(), 1);
    // Its answers take their time, so that it is seen between two statements.
    proxy.delay(Direction::ToClient, Duration::from_millis(200));
    let claim = tokio::spawn(async move { owner.claim(&silent, 3, BYTES, &[]).await.is_ok() });
    let fenced = async || match kind {
        Kind::Postgres => {
            let idle = "SELECT count(*)::text FROM pg_stat_activity
                        WHERE state = 'idle in transaction' AND query LIKE '%postrider_profile_lane%FOR SHARE%'";
            database.lines(idle).await.is_ok_and(|count| count != ["0"])
        }
        // What is known of transactions there is old while somebody asks for it all the time.
        Kind::Mysql => {
            database.lines("SELECT source FROM postrider_profile_lane FOR UPDATE NOWAIT").await.is_err()
        }
    };
    while !fenced().await {
        tokio::task::yield_now().await;
    }
    proxy.silence();
    let took_over = async {
        while successor.lease(&request("successor")).await?.taken.is_empty() {
            tokio::task::yield_now().await;
        }
        Checked::Ok(())
    };
    tokio::time::timeout(3 * lease, took_over)
        .await
        .map_err(|_| format!("nobody could take the lane over on {kind:?}"))??;
    assert!(!claim.await?, "{kind:?}: a claim of which nobody heard succeeded");
    database.drop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_slow_connection_leaves_no_time_for_is_written_by_the_next_settle() -> Checked {
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    for kind in BOTH {
        let sql = flowcatalyst::DDL.to_owned() + &flowcatalyst::items("outbox_events");
        let database = Database::new(kind, &sql).await?;
        let server = database.url.rsplit('@').next().and_then(|place| place.split('/').next());
        let server = server.ok_or("no server in the URL")?;
        let proxy = Proxy::start(server).await?;
        let url = database.url.replace(server, &proxy.address().to_string());
        let store = ProfileStore::connect(&url, Profile::flowcatalyst_events()).await?;
        store.migrate().await?;
        let store: Arc<dyn Store> = Arc::new(store);
        // So a settle may take 1.8 s.
        let request = LeaseRequest {
            owner: "slow".to_owned(),
            ttl: Duration::from_secs(6),
            nonces: Rng::from_entropy(),
            most: 1,
        };
        let mut owner = Owner::holding(store.lease(&request).await?.leases());
        let events = owner.claim(&store, 31, BYTES, &[]).await?.events;
        let settle = |events: &[ClaimedEvent]| {
            let outcomes: Vec<_> = events.iter().map(|event| settlement(event, retry(1))).collect();
            let (owner, store) = (&owner, &store);
            async move { owner.settle(store, &outcomes, RETENTION).await }
        };
        let (first, rest) = events.split_at(1);
        assert_eq!((settle(first).await?.applied, rest.len()), (1, 30));
        proxy.delay(Direction::ToClient, ROUND_TRIP);
        let settled = settle(rest).await?;
        assert!((1..30).contains(&settled.applied), "{kind:?}: {settled:?}");
        assert_eq!((settled.applied + settled.locked.len() as u64, settled.lost.len()), (30, 0));
        proxy.delay(Direction::ToClient, Duration::ZERO);
        let left: Vec<_> = rest.iter().filter(|event| settled.locked.contains(&event.seq)).cloned().collect();
        assert_eq!(settle(&left).await?.applied, left.len() as u64);
        database.drop().await?;
    }
    Ok(())
}
