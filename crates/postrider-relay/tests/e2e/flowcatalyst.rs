//! FlowCatalyst's two tables, written with its own SQL, delivered to its two endpoints as its own processor would.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde_json::{Value, json};

use crate::{
    database::{Database, Kind},
    documents,
    endpoint::Endpoint,
    place::Folder,
    relay::Relay,
    time::until,
};

const GROUPS: usize = 6;
const ITEMS: usize = 50;

/// The one of each group that the server does not take: one in fifty, and never in all groups at once.
fn bad(group: usize) -> usize {
    5 + 4 * group
}

/// A job that fails however often it is sent.
const STUBBORN: (usize, usize) = (3, 10);

const EVENTS: &str = "/api/events/batch";
const JOBS: &str = "/api/dispatch/jobs/batch";
const TABLES: [(&str, &str, &str); 2] =
    [("outbox_events", "EVENT", EVENTS), ("outbox_dispatch_jobs", "DISPATCH_JOB", JOBS)];

fn ddl(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (
            id VARCHAR(13) PRIMARY KEY,
            type VARCHAR(20) NOT NULL,
            message_group VARCHAR(255),
            payload TEXT NOT NULL,
            status VARCHAR(20) NOT NULL,
            retry_count INT NOT NULL DEFAULT 0,
            created_at TIMESTAMP NOT NULL,
            processed_at TIMESTAMP NULL,
            error_message TEXT
        );
        CREATE INDEX idx_{table}_status ON {table}(status, message_group, created_at)"
    )
}

/// Ids fall while times rise: only the time is the order.
fn id(group: usize, n: usize) -> String {
    format!("{group:03}{:010}", 1_000_000 - n)
}

/// An item as a program of FlowCatalyst's writes it.
fn insert(table: &str, kind: &str, group: usize, n: usize) -> String {
    let id = id(group, n);
    let name = if group == 0 { "NULL".to_owned() } else { format!("'group-{group}'") };
    let bad = n == bad(group);
    let stubborn = kind == "DISPATCH_JOB" && (group, n) == STUBBORN;
    let payload = json!({ "id": id, "type": "order.created", "group": group, "n": n, "bad": bad, "stubborn": stubborn });
    format!(
        "INSERT INTO {table} (id, type, message_group, payload, status, created_at) VALUES \
         ('{id}', '{kind}', {name}, '{payload}', 'PENDING', '2026-01-01 {:02}:{:02}:{:02}');",
        10 + n / 3600,
        n / 60 % 60,
        n % 60
    )
}

/// The events endpoint takes a batch or none of it; the one for jobs says of each what became of it.
fn answer(path: &str, batch: &Value) -> (u16, String) {
    let bad = |item: &Value| item["bad"] == true;
    let items = batch.as_array().unwrap();
    match path {
        EVENTS if items.iter().any(bad) => (422, "an item is of no known customer".to_owned()),
        EVENTS => (202, String::new()),
        _ => {
            let result = |item: &Value| match (bad(item), item["stubborn"] == true) {
                (true, _) => json!({ "status": "BAD_REQUEST", "error": "no known customer" }),
                (_, true) => json!({ "status": "INTERNAL_ERROR", "error": "the customer is locked" }),
                _ => json!({ "status": "SUCCESS" }),
            };
            (200, json!({ "results": items.iter().map(result).collect::<Vec<_>>() }).to_string())
        }
    }
}

/// What `docs/relay/from-flowcatalyst.md` has, a little quicker, and with an endpoint that says what became of each job.
fn config(folder: &Folder, database: &Database, server: &Endpoint) -> PathBuf {
    let text = documents::yaml(include_str!("../../../../docs/relay/from-flowcatalyst.md"))
        .replace("${DATABASE_URL}", &database.url)
        .replace("${API_URL}", &server.url())
        .replace("${API_TOKEN}", "flow-token")
        // What a crash leaves claimed goes one by one, so this is what the test takes its time for.
        .replace("    profile:", "    claim_batch: 50\n    lease: 2s\n    poll: { max: 100ms }\n    profile:")
        .replace("path: /api/dispatch/jobs/batch,", "path: /api/dispatch/jobs/batch, item_results: true,");
    folder.write("postrider.yaml", &format!("{}{text}", documents::QUIET))
}

/// The items that the server took of a path, in the order in which it first took them, by group.
fn taken(server: &Endpoint, path: &str) -> BTreeMap<usize, Vec<usize>> {
    let mut seen = BTreeSet::new();
    let mut by_group = BTreeMap::<_, Vec<_>>::new();
    for request in server.answered().iter().filter(|request| request.path == path && request.status < 300) {
        for item in request
            .body
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["bad"] == false && item["stubborn"] == false)
        {
            let number = |name: &str| item[name].as_u64().unwrap() as usize;
            let (group, n) = (number("group"), number("n"));
            if seen.insert((group, n)) {
                by_group.entry(group).or_default().push(n);
            }
        }
    }
    by_group
}

fn count(server: &Endpoint) -> usize {
    TABLES.iter().map(|(_, _, path)| taken(server, path).values().map(Vec::len).sum::<usize>()).sum()
}

/// Shuts the server's gate once it has taken so many, and waits until a request stands before it.
async fn hold_after(server: &Endpoint, items: usize) {
    until("some items were taken", async || count(server) >= items).await;
    server.hold(true);
    until("a request waits", async || server.waiting() > 0).await;
}

async fn items_are_completed_or_failed_and_groups_keep_their_order(kind: Kind) {
    let (folder, database) = (Folder::new(), Database::new(kind).await);
    let mut server = Endpoint::start(answer);
    for (table, item_type, _) in TABLES {
        database.run(&ddl(table)).await;
        let items = (0..ITEMS).flat_map(|n| (0..GROUPS).map(move |group| insert(table, item_type, group, n)));
        database.run(&format!("BEGIN; {} COMMIT", items.collect::<String>())).await;
    }
    let file = config(&folder, &database, &server);

    let relay = Relay::start(&folder, &file);
    hold_after(&server, 50).await;
    let claimed =
        "SELECT CASE WHEN COUNT(*) > 0 THEN 'some' END FROM outbox_events WHERE status = 'PROCESSING'";
    database.until(claimed, &["some"]).await;
    relay.kill();
    server.hold(false);

    let mut relay = Relay::start(&folder, &file);
    let before = count(&server);
    hold_after(&server, before + 100).await;
    server.go_away();
    relay.until_logged("unavailable").await;
    server.hold(false);
    server.come_back();

    for (table, _, _) in TABLES {
        let open = format!(
            "SELECT CASE WHEN COUNT(*) = 0 THEN 'none' END FROM {table} WHERE status IN ('PENDING', 'PROCESSING')"
        );
        database.until(&open, &["none"]).await;
    }
    assert!(relay.stop().await.success());

    for (table, _, path) in TABLES {
        // What is refused is not sent again; what fails is sent four times, and the last of them is no retry.
        let refusal = if path == EVENTS { "422 Unprocessable Entity" } else { "no known customer" };
        let mut expected: Vec<_> = (0..GROUPS).map(|group| (id(group, bad(group)), "0", refusal)).collect();
        if path == JOBS {
            expected.push((id(STUBBORN.0, STUBBORN.1), "3", "the customer is locked"));
        }
        expected.sort();
        let failed =
            format!("SELECT id, retry_count, error_message FROM {table} WHERE status = 'FAILED' ORDER BY id");
        let failed = database.lines(&failed).await;
        assert_eq!(failed.len(), expected.len(), "{kind:?} {table}: {failed:?}");
        for (line, (id, retries, error)) in failed.iter().zip(expected) {
            assert!(
                line.starts_with(&format!("{id}|{retries}|")) && line.contains(error),
                "{kind:?} {table}: {line}"
            );
        }
        let odd = format!(
            "SELECT id, status, retry_count, error_message FROM {table} WHERE status NOT IN ('COMPLETED', 'FAILED')
             OR (status = 'COMPLETED' AND (processed_at IS NULL OR error_message IS NOT NULL OR retry_count > 3))"
        );
        assert_eq!(database.lines(&odd).await, Vec::<String>::new(), "{kind:?}");
        let taken = taken(&server, path);
        for group in 0..GROUPS {
            let expected: Vec<_> = (0..ITEMS)
                .filter(|n| *n != bad(group) && (path == EVENTS || (group, *n) != STUBBORN))
                .collect();
            assert_eq!(taken.get(&group), Some(&expected), "{kind:?} {table}: group {group}");
        }
    }
    let answered = server.answered();
    assert!(answered.iter().all(|request| request.headers["authorization"] == "Bearer flow-token"));
    let sizes: Vec<_> = answered.iter().map(|request| request.body.as_array().unwrap().len()).collect();
    assert!(sizes.iter().all(|size| *size <= 100) && sizes.iter().any(|size| *size > GROUPS), "{sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flowcatalysts_items_end_as_its_rules_say_on_postgresql() {
    items_are_completed_or_failed_and_groups_keep_their_order(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flowcatalysts_items_end_as_its_rules_say_on_mariadb() {
    items_are_completed_or_failed_and_groups_keep_their_order(Kind::Mysql).await;
}
