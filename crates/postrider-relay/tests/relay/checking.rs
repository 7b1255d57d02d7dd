//! `postrider check`, and what the other commands say.

use serde_json::Value;

use crate::{
    place::{Folder, Receiver, insert, postrider, said},
    server::{BOTH, Database, Kind},
};

const SHOP: &str = "sources:\n  shop:\n    url: DATABASE\n    routes: [{ event_type: \"*\", sink: out }]\nsinks:\n  out:\n    http: { url: \"URL\", token: canary }\n";

fn shop(folder: &Folder, url: &str) -> String {
    let text = SHOP.replace("DATABASE", &folder.path("shop.db").display().to_string()).replace("URL", url);
    folder.write("relay.yaml", &text).to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_told_with_file_line_and_hint_and_exit_status_2() {
    let folder = Folder::new();
    let file = folder.write("relay.yaml", &SHOP.replace("routes:", "ruotes:"));
    let output = postrider(&["check", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let text = said(&output);
    assert!(text.contains("relay.yaml:4:5: there is no setting `ruotes`"), "{text}");
    assert!(text.contains("did you mean `routes`?"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_configuration_comes_to_is_printed_without_secrets() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    folder.database().await;
    let file = shop(&folder, &receiver.url);
    let output = postrider(&["check", "--config", &file]);
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("(hidden)") && !text.contains("canary"), "{text}");
    let output = postrider(&["check", "--config", &file, "--connect", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["good"], true, "{answer}");
    assert!(!said(&output).contains("canary"));
    let kinds: Vec<_> =
        answer["connections"].as_array().unwrap().iter().map(|part| part["kind"].clone()).collect();
    assert_eq!(kinds, ["source", "sink"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_not_there_could_not_be_reached_which_is_exit_status_3() {
    let folder = Folder::new();
    folder.database().await;
    let output =
        postrider(&["check", "--config", &shop(&folder, "http://127.0.0.1:1"), "--connect", "--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["good"], false, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_why_and_dead_speak_of_what_is_in_the_table() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "{").await;
    insert(&mut database, "OrderPaid", "Order:1", "2").await;
    let file = shop(&folder, &receiver.url);
    let run = postrider(&["run", "--once", "--config", &file]);
    assert_eq!(run.status.code(), Some(1), "a dead letter is no good conclusion: {}", said(&run));
    let json = |args: &[&str]| -> Value {
        let output = postrider(&[args, &["--json", "--config", &file]].concat());
        assert!(output.status.success(), "{}", said(&output));
        assert!(output.stderr.is_empty(), "{args:?} says nothing for people: {}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let status = json(&["status"]);
    assert_eq!((&status["shop"]["dead"], &status["shop"]["parked"]), (&1.into(), &1.into()), "{status}");
    let dead = json(&["dead", "list"]);
    let letter = &dead["dead"][0];
    assert_eq!((&letter["key"], &letter["blocks"]), (&"Order:1".into(), &true.into()), "{dead}");
    let id = letter["id"].as_str().unwrap();
    assert!(letter["died_at"].as_str() > letter["created_at"].as_str(), "{dead}");
    for one in [["dead", "show", id].as_slice(), &["dead", "show", "--id", id]] {
        assert_eq!(json(one), *letter);
    }
    assert_eq!(json(&["why", "--id", id])["status"], "dead");
    let key = json(&["why", "--key", "Order:1"]);
    assert_eq!((&key["reason"], &key["id"], &key["parked"]), (&"dead".into(), &id.into(), &1.into()));
    let text = said(&postrider(&["why", "--key", "Order:1", "--config", &file]));
    assert!(text.contains(&format!("waits for {id}, which is dead: ")), "{text}");
    assert!(text.contains("; 1 event waits behind it"), "{text}");
    for few in [["dead", "discard", id].as_slice(), &["dead", "discard", "--id", id]] {
        assert_eq!(json(few)["would_discard"], 1);
    }
    let text = said(&postrider(&["dead", "discard", "--all", "--config", &file]));
    assert!(text.contains("1 dead letter would be deleted"), "{text}");
    assert_eq!(json(&["dead", "redrive", "--id", id])["redriven"], 1);
    assert_eq!(json(&["status"])["shop"]["dead"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_when_a_delayed_event_is_due_that_nobody_has_claimed_yet() {
    let folder = Folder::new();
    let mut database = folder.database().await;
    for key in ["Order:1", "Order:2"] {
        insert(&mut database, "OrderPlaced", key, "1").await;
    }
    let due = "UPDATE postrider_event SET event_id = ordering_key, \
               available_at = iif(ordering_key = 'Order:1', 4102444800000000, available_at)";
    sqlx::query(due).execute(&mut database).await.unwrap();
    let file = shop(&folder, "http://127.0.0.1:1");
    let why = |args: &[&str]| said(&postrider(&[&["why", "--config", &file], args].concat()));
    for args in [["--id", "Order:1"], ["--key", "Order:1"]] {
        let text = why(&args);
        assert!(text.contains("Order:1 waits until 2100-01-01T00:00:00"), "{text}");
    }
    let text = why(&["--id", "Order:2"]);
    assert!(text.contains("waits for its first attempt"), "{text}");
    let answer = postrider(&["why", "--id", "Order:1", "--config", &file, "--json"]);
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(answer["status"], "waiting", "{answer}");
    assert!(answer["available_at"].as_str().is_some_and(|at| at.starts_with("2100-01-01T")), "{answer}");
    assert_eq!(answer["attempts"], 0, "{answer}");
}

#[test]
fn a_url_with_a_password_is_in_no_output() {
    let output = postrider(&["status", "--url", "postgres://shop:canary@127.0.0.1:1/shop"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!said(&output).contains("canary"), "{}", said(&output));
}

#[test]
fn a_program_is_told_what_is_wrong_with_a_configuration() {
    let folder = Folder::new();
    for (text, line, what) in [
        (SHOP.replace("routes:", "ruotes:"), Value::from(4), "ruotes"),
        (SHOP.replace("DATABASE", "oracle://shop").replace("URL", "http://h"), Value::from(3), "oracle"),
        // Found only when the parts are put together.
        (SHOP.replace("DATABASE", "shop.db").replace("URL", "http://h:99999"), Value::Null, "port"),
    ] {
        let file = folder.write("relay.yaml", &text);
        let output = postrider(&["check", "--json", "--config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["good"], false, "{answer}");
        let problem = &answer["problems"][0];
        assert_eq!(problem["line"], line, "{answer}");
        assert!(problem["what"].as_str().unwrap().contains(what), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_missing_and_not_to_be_made_are_not_well_and_weaker_promises_are_named() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    let text = std::fs::read_to_string(shop(&folder, &receiver.url)).unwrap();
    let check = |more: &str| {
        let file = folder.write("relay.yaml", &text.replace("    routes:", &format!("{more}    routes:")));
        let output = postrider(&["check", "--connect", "--json", "--config", file.to_str().unwrap()]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), answer["connections"][0].clone())
    };
    let (status, source) = check("    migrate: false\n");
    assert_eq!((status, &source["well"]), (3, &false.into()), "{source}");
    let (status, source) = check("");
    assert_eq!((status, &source["promises"]), (0, &"all".into()), "they will be made: {source}");
    folder.database().await;
    let (status, source) = check("    migrate: false\n    order: ignored\n");
    assert_eq!(status, 0, "{source}");
    assert!(source["promises"].as_str().unwrap().contains("not kept"), "{source}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_reached_hides_no_other_from_status() {
    let folder = Folder::new();
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    let file = shop(&folder, "http://127.0.0.1:1");
    let gone = "sources:\n  gone: { url: \"postgres://shop:canary@127.0.0.1:1/shop\", routes: [{ event_type: X, sink: out }] }\n";
    let text = std::fs::read_to_string(&file).unwrap().replace("sources:\n", gone);
    let file = folder.write("relay.yaml", &text);
    let output = postrider(&["status", "--json", "--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["shop"]["pending"], 1, "{answer}");
    assert!(answer["gone"]["error"]["what"].as_str().unwrap().contains("gone"), "{answer}");
    assert!(!said(&output).contains("canary"), "{}", said(&output));
}

/// Neither a check is good nor does a run succeed, and both say why.
fn refused(kind: Kind, file: &str, reason: &str) {
    let checked = postrider(&["check", "--connect", "--json", "--config", file]);
    assert_eq!(checked.status.code(), Some(3), "{kind:?} {}", said(&checked));
    let answer: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let told = answer["connections"][0]["answer"].as_str().unwrap().to_owned();
    assert!(told.contains(reason), "{kind:?} {told}");
    let run = postrider(&["run", "--once", "--config", file]);
    assert_eq!(run.status.code(), Some(3), "{kind:?} {}", said(&run));
    assert!(said(&run).contains(reason), "{kind:?} {}", said(&run));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_can_work_a_check_is_not_good_and_a_run_to_the_end_ends_with_the_reason() {
    for kind in BOTH {
        let (folder, receiver) = (Folder::new(), Receiver::start().await);
        let mut database = Database::new(kind).await;
        let relay = format!("r{}", database.name);
        database.user(&relay).await;
        let config = |url: String, more: &str| {
            let text = format!(
                "sources: {{ shop: {{ url: \"{url}\"{more}, routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
                 sinks: {{ out: {{ http: {{ url: \"{}\" }} }} }}\n",
                receiver.url
            );
            folder.write("relay.yaml", &text).to_str().unwrap().to_owned()
        };
        // No tables. Those of other tests are in other schemas of the same database, and are told of.
        refused(kind, &config(database.url_of(None), ", migrate: false"), "postrider_meta");
        if kind == Kind::Postgres {
            let url = database.url_of(None);
            let (place, _) = url.split_once("?options=").unwrap_or((&url, ""));
            let nowhere = format!("{place}?options=-csearch_path%3Dno_such_schema");
            // The tables of other tests, in other schemas of the same database, may be told of.
            refused(kind, &config(nowhere, ""), "the search path");
        }
        let own = config(database.url_of(None), "");
        assert!(postrider(&["check", "--connect", "--config", &own]).status.success(), "they will be made");
        assert!(postrider(&["init", "--config", &own]).status.success());
        // No right to them but to look.
        let hosts: &[&str] = if kind == Kind::Mysql { &["", "@localhost"] } else { &[""] };
        for host in hosts {
            let user = match (kind, *host) {
                (Kind::Postgres, _) => relay.clone(),
                (Kind::Mysql, "") => format!("'{relay}'@'%'"),
                (Kind::Mysql, _) => format!("'{relay}'@'localhost'"),
            };
            for table in ["meta", "event", "done", "lane", "member", "hold", "pause"] {
                database.run(&format!("GRANT SELECT ON postrider_{table} TO {user}")).await;
            }
        }
        let theirs = config(database.url_of(Some(&format!("{relay}:sesame"))), "");
        refused(kind, &theirs, "ON postrider_event TO ");
        for host in hosts {
            let relay = format!("{relay}{host}");
            let grants = postrider(&[
                "init",
                "--config",
                &own,
                "--grants",
                "--relay",
                &relay,
                "--writer",
                &relay,
                "--operator",
                &relay,
            ]);
            database.run(&String::from_utf8(grants.stdout).unwrap()).await;
        }
        let checked = postrider(&["check", "--connect", "--config", &theirs]);
        assert!(checked.status.success(), "{kind:?} {}", said(&checked));
        let run = postrider(&["run", "--once", "--config", &theirs]);
        assert!(run.status.success(), "{kind:?} {}", said(&run));
        if kind == Kind::Postgres {
            let frozen = format!("{}%20-cdefault_transaction_read_only%3Don", database.url_of(None));
            refused(kind, &config(frozen, ""), "read-only");
        }
        database.drop(&[&relay]).await;
    }
}

/// FlowCatalyst's and spring-outbox's tables, as far as both databases spell them alike.
const EXTERNAL: [(&str, &str); 2] = [
    (
        "flowcatalyst",
        "CREATE TABLE TABLE_NAME (id VARCHAR(13) PRIMARY KEY, type VARCHAR(20) NOT NULL, message_group VARCHAR(255), \
         payload TEXT NOT NULL, status VARCHAR(20) NOT NULL DEFAULT 'PENDING', retry_count INT NOT NULL DEFAULT 0, \
         created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, processed_at TIMESTAMP NULL, error_message TEXT)",
    ),
    (
        "spring-outbox",
        "CREATE TABLE TABLE_NAME (id VARCHAR(36) PRIMARY KEY, event_type VARCHAR(255) NOT NULL, payload TEXT NOT NULL, \
         status VARCHAR(20) NOT NULL, retry_count INT NOT NULL DEFAULT 0, next_retry_at TIMESTAMP NULL, \
         created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP NULL)",
    ),
];

/// The same for external outbox tables: a right to them or to ours that is missing, a missing schema, a read-only database.
#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_can_work_on_somebody_elses_table_a_check_is_not_good_and_a_run_ends_with_the_reason() {
    for kind in BOTH {
        let (folder, receiver) = (Folder::new(), Receiver::start().await);
        let mut database = Database::new(kind).await;
        for (system, create) in EXTERNAL {
            database.run(&create.replace("TABLE_NAME", &system.replace('-', "_"))).await;
        }
        let relay = format!("r{}", database.name);
        database.user(&relay).await;
        let config = |url: String, system: &str, more: &str| {
            let table = system.replace('-', "_");
            let text = format!(
                "sources: {{ shop: {{ url: \"{url}\", profile: {{ system: {system}, table: {table}{more} }}, routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
                 sinks: {{ out: {{ http: {{ url: \"{}\" }} }} }}\n",
                receiver.url
            );
            folder.write("relay.yaml", &text).to_str().unwrap().to_owned()
        };
        let (own, their) = (database.url_of(None), database.url_of(Some(&format!("{relay}:sesame"))));
        let theirs = |system: &str| config(their.clone(), system, "");
        let accounts = match kind {
            Kind::Postgres => vec![relay.clone()],
            Kind::Mysql => vec![format!("'{relay}'@'%'"), format!("'{relay}'@'localhost'")],
        };
        // The table is theirs to read and write, and tables of ours can be neither made nor are there.
        for account in &accounts {
            for (system, _) in EXTERNAL {
                let table = system.replace('-', "_");
                database.run(&format!("GRANT SELECT, UPDATE ON {table} TO {account}")).await;
            }
        }
        refused(
            kind,
            &theirs("flowcatalyst"),
            if kind == Kind::Mysql { "CREATE" } else { "permission denied" },
        );
        refused(kind, &theirs("spring-outbox"), "the right to DELETE was not granted");
        // MySQL would have to be read-only for all.
        if kind == Kind::Postgres {
            let frozen = format!("{own}%20-cdefault_transaction_read_only%3Don");
            refused(kind, &config(frozen, "flowcatalyst", ""), "read-only");
        }
        let nowhere = config(own.clone(), "flowcatalyst", ", beside: no_such_schema.ours_");
        refused(kind, &nowhere, "no_such_schema");
        let good = config(own.clone(), "flowcatalyst", "");
        for args in [["check", "--connect"], ["run", "--once"]] {
            let output = postrider(&[&args, ["--config", &good].as_slice()].concat());
            assert!(output.status.success(), "{kind:?} {args:?} {}", said(&output));
        }
        database.drop(&[&relay]).await;
    }
}

/// A server that accepts connections and says nothing: a run to the end ends with that.
#[test]
fn a_run_to_the_end_ends_where_a_server_says_nothing() {
    let folder = Folder::new();
    for scheme in ["postgres", "mysql"] {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!(
            "sources: {{ shop: {{ url: \"{scheme}://shop:canary@{}/shop\", routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
             sinks: {{ out: {{ stdout: {{}} }} }}\n",
            silent.local_addr().unwrap()
        );
        let file = folder.write("relay.yaml", &text);
        let output = postrider(&["run", "--once", "--config", file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3), "{scheme} {}", said(&output));
        assert!(said(&output).contains("cannot be reached"), "{scheme} {}", said(&output));
        assert!(!said(&output).contains("canary"), "{scheme} {}", said(&output));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_may_not_be_written_to_is_not_good() {
    let (folder, receiver) = (Folder::new(), Receiver::start().await);
    folder.database().await;
    let text = std::fs::read_to_string(shop(&folder, &receiver.url)).unwrap();
    let url = format!("\"sqlite://{}?mode=ro\"", folder.path("shop.db").display());
    let file = folder.write("relay.yaml", &text.replace(&folder.path("shop.db").display().to_string(), &url));
    for args in [["check", "--connect"], ["run", "--once"]] {
        let output = postrider(&[&args, ["--config", file.to_str().unwrap()].as_slice()].concat());
        assert_eq!(output.status.code(), Some(3), "{args:?} {}", said(&output));
        assert!(said(&output).contains("read-only"), "{args:?} {}", said(&output));
    }
}
