//! `postrider init`.

use serde_json::{Value, json};

use crate::{
    place::{Folder, Receiver, insert, postrider, said},
    server::{BOTH, Database, Kind},
};

fn answer(args: &[&str]) -> Value {
    let output = postrider(&[&["init", "--json"], args].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(!said(&output).contains("sesame"));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = postrider(&[&["init"], args].concat());
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn init_makes_the_tables_of_a_file_once_and_says_so() {
    let folder = Folder::new();
    let path = folder.path("shop.db").display().to_string();
    let first = &answer(&["--url", &path])["outbox"];
    assert_eq!((&first["created"], &first["lanes"]), (&json!(true), &json!(1)), "{first}");
    assert!(first["tables"].as_array().unwrap().contains(&json!("postrider_event")), "{first}");
    let mut database = folder.database().await;
    insert(&mut database, "OrderPlaced", "Order:1", "1").await;
    assert_eq!(answer(&["--url", &path])["outbox"]["created"], false);
    let text = said(&postrider(&["init", "--url", &path]));
    assert!(
        text.contains("outbox: SQLite 3.") && text.contains(" has the tables already, with 1 lane"),
        "{text}"
    );
    assert!(printed(&["--url", &path, "--grants"]).starts_with("-- SQLite has no users"));
    // Printing makes nothing.
    let other = folder.path("other.db").display().to_string();
    assert!(printed(&["--url", &other, "--print", "--prefix", "my_"]).contains("CREATE TABLE my_event ("));
    assert!(!folder.path("other.db").exists());
}

#[test]
fn what_is_printed_begins_with_what_it_is_for_each_database_and_says_nothing_of_templates() {
    let own = |url: &str| printed(&["--url", url, "--print", "--prefix", "my_", "--grants"]);
    let folder = Folder::new();
    let theirs = |url: &str| {
        let text = format!(
            "sources: {{ flow: {{ url: \"{url}\", profile: {{ system: flowcatalyst }}, routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
             sinks: {{ out: {{ stdout: {{}} }} }}\n"
        );
        let file = folder.write("relay.yaml", &text);
        printed(&["--config", file.to_str().unwrap(), "--print", "--grants"])
    };
    let (postgres, mysql) = ("postgres://relay@127.0.0.1:1/shop", "mysql://relay@127.0.0.1:1/shop");
    for (sql, begins) in [
        (own("shop.db"), "-- Postrider's tables, version 1, for SQLite.\n"),
        (own(postgres), "-- Postrider's tables, version 1, for PostgreSQL, with 64 lanes.\n"),
        (own(mysql), "-- Postrider's tables, version 1, for MySQL and MariaDB, with 64 lanes.\n"),
        (
            theirs(postgres),
            "-- Postrider's own small tables beside \"outbox_events\", which stays as it is.\n",
        ),
        (theirs(mysql), "-- Postrider's own small tables beside `outbox_events`, which stays as it is.\n"),
    ] {
        let first = sql.lines().position(|line| line.starts_with("--")).unwrap();
        assert!(format!("{}\n", sql.lines().nth(first).unwrap()) == begins, "{sql}");
        assert!(!sql.contains("stands for") && !sql.contains('{'), "{sql}");
        let comments = sql.lines().filter(|line| line.starts_with("--"));
        let lost = comments.filter(|line| line.contains("my_ ") || line.contains("/*"));
        assert_eq!(lost.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}

#[test]
fn a_prefix_beside_a_configuration_is_refused_and_not_ignored() {
    let folder = Folder::new();
    let database = folder.path("shop.db");
    let text = format!(
        "sources: {{ shop: {{ url: \"{}\", routes: [{{ event_type: \"*\", sink: out }}] }} }}\nsinks: {{ out: {{ stdout: {{}} }} }}\n",
        database.display()
    );
    let file = folder.write("relay.yaml", &text);
    for (args, told) in [
        (["--config", file.to_str().unwrap()], "'--prefix <PREFIX>' cannot be used with '--config <FILE>'"),
        (["--source", "shop"], "'--prefix <PREFIX>' cannot be used with '--source <NAME>'"),
    ] {
        let output = postrider(&[&["init", "--prefix", "my_"], args.as_slice()].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(told), "{}", said(&output));
    }
    let output = postrider(&["init", "--prefix", "my_"]);
    assert!(output.status.code() == Some(2) && said(&output).contains("--url <URL>"), "{}", said(&output));
    assert!(!database.exists(), "nothing was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn init_makes_the_tables_of_a_server_with_the_prefix_and_the_lanes_that_are_wanted() {
    for kind in BOTH {
        let mut database = Database::new(kind).await;
        let url = database.url.clone();
        let first = &answer(&["--url", &url, "--prefix", "shop_", "--lanes", "8"])["outbox"];
        assert_eq!((&first["created"], &first["lanes"]), (&json!(true), &json!(8)), "{kind:?} {first}");
        let again = &answer(&["--url", &url, "--prefix", "shop_"])["outbox"];
        assert_eq!((&again["created"], &again["lanes"]), (&json!(false), &json!(8)), "{kind:?} {again}");
        database.run("INSERT INTO shop_event (event_type, payload) VALUES ('OrderPlaced', '1')").await;
        // What is in use does not change its lanes.
        let refused = postrider(&["init", "--url", &url, "--prefix", "shop_", "--lanes", "16"]);
        assert_eq!(refused.status.code(), Some(3), "{}", said(&refused));

        // What is printed makes the same tables.
        let other = Database::new(kind).await;
        let (name, url) = (other.name.clone(), other.url.clone());
        let mut other = other;
        other.run(&printed(&["--url", &url, "--print", "--lanes", "8"])).await;
        assert_eq!(answer(&["--url", &url])["outbox"]["created"], false);
        let columns = async |database: &mut Database, schema: &str, prefix: &str| {
            let sql = format!(
                "SELECT CAST(count(*) AS CHAR(20)) FROM information_schema.columns \
                 WHERE table_schema = '{schema}' AND table_name LIKE '{prefix}%'"
            );
            database.one(&sql).await
        };
        let schema = database.name.clone();
        assert_eq!(
            columns(&mut database, &schema, "shop").await,
            columns(&mut other, &name, "postrider").await
        );
        other.drop(&[]).await;
        database.drop(&[]).await;
    }
}

/// FlowCatalyst's table, as far as both databases spell it alike.
const FLOWCATALYST: &str = "CREATE TABLE outbox_events (id VARCHAR(13) PRIMARY KEY, type VARCHAR(20) NOT NULL, message_group VARCHAR(255), \
     payload TEXT NOT NULL, status VARCHAR(20) NOT NULL DEFAULT 'PENDING', retry_count INT NOT NULL DEFAULT 0, \
     created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, processed_at TIMESTAMP NULL, error_message TEXT)";

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_rights_are_enough_to_deliver_from_somebody_elses_table() {
    for kind in BOTH {
        let (folder, receiver) = (Folder::new(), Receiver::start().await);
        let mut database = Database::new(kind).await;
        database.run(FLOWCATALYST).await;
        database
            .run("INSERT INTO outbox_events (id, type, payload) VALUES ('a', 'EVENT', '{\"n\":1}')")
            .await;
        let (relay, operator) = (format!("r{}", database.name), format!("o{}", database.name));
        for user in [&relay, &operator] {
            database.user(user).await;
        }
        let config = |url: String| {
            let text = format!(
                "sources: {{ flow: {{ url: \"{}\", profile: {{ system: flowcatalyst }}, routes: [{{ event_type: \"*\", sink: out }}] }} }}\n\
                 sinks: {{ out: {{ http: {{ url: \"{}\" }} }} }}\n",
                url, receiver.url
            );
            folder.write("relay.yaml", &text).to_str().unwrap().to_owned()
        };
        let file = config(database.url_of(None));
        let made = &answer(&["--config", &file])["flow"];
        let names = ["lane", "dead", "pause"].map(|name| format!("postrider_profile_{name}"));
        assert_eq!(made["tables"], json!(names), "{made}");
        let text = said(&postrider(&["init", "--config", &file]));
        assert!(text.contains("flow: flowcatalyst table is unchanged"), "{text}");
        let hosts: &[&str] = if kind == Kind::Mysql { &["", "@localhost"] } else { &[""] };
        for host in hosts {
            let grants = printed(&[
                "--config",
                &file,
                "--grants",
                "--relay",
                &format!("{relay}{host}"),
                "--operator",
                &format!("{operator}{host}"),
            ]);
            database.run(&grants).await;
        }
        let file = config(database.url_of(Some(&format!("{relay}:sesame"))));
        let output = postrider(&["run", "--once", "--config", &file]);
        assert!(output.status.success(), "{kind:?} {}", said(&output));
        assert_eq!(receiver.payloads(), [json!({ "n": 1 })]);
        assert_eq!(database.one("SELECT status FROM outbox_events").await, "COMPLETED");
        database.run("UPDATE outbox_events SET status = 'FAILED'").await;
        let file = config(database.url_of(Some(&format!("{operator}:sesame"))));
        for args in [["dead", "redrive", "--all"].as_slice(), &["status"]] {
            let output = postrider(&[args, &["--config", &file]].concat());
            assert!(output.status.success(), "{kind:?} {args:?} {}", said(&output));
        }
        assert_eq!(database.one("SELECT status FROM outbox_events").await, "PENDING");
        database.drop(&[&relay, &operator]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_a_schema_that_needs_quotes_is_delivered_from() {
    for kind in BOTH {
        let (folder, receiver) = (Folder::new(), Receiver::start().await);
        let mut database = Database::new(kind).await;
        let odd = format!("Odd \"{}", database.name);
        let quoted = match kind {
            Kind::Postgres => format!("\"{}\"", odd.replace('"', "\"\"")),
            Kind::Mysql => format!("`{odd}`"),
        };
        database.run(&format!("CREATE SCHEMA {quoted}")).await;
        database.run(&FLOWCATALYST.replace("outbox_events", &format!("{quoted}.outbox_events"))).await;
        database
            .run(&format!(
                "INSERT INTO {quoted}.outbox_events (id, type, payload) VALUES ('a', 'EVENT', '{{\"n\":1}}')"
            ))
            .await;
        let name = odd.replace('"', "\"\"");
        let text = format!(
            "sources:\n  flow:\n    url: \"{}\"\n    profile: {{ system: flowcatalyst, table: '\"{name}\".outbox_events', beside: '\"{name}\".ours_' }}\n\
             \x20   routes: [{{ event_type: \"*\", sink: out }}]\nsinks: {{ out: {{ http: {{ url: \"{}\" }} }} }}\n",
            database.url, receiver.url
        );
        let file = folder.write("relay.yaml", &text).to_str().unwrap().to_owned();
        let sql = printed(&["--config", &file, "--print", "--grants"]);
        assert!(sql.contains(&format!("CREATE TABLE IF NOT EXISTS {quoted}.")), "{sql}");
        let made = &answer(&["--config", &file])["flow"]["tables"];
        assert_eq!(made.as_array().map(Vec::len), Some(3), "{made}");
        let checked = postrider(&["check", "--connect", "--config", &file]);
        assert!(checked.status.success(), "{kind:?} {}", said(&checked));
        let run = postrider(&["run", "--once", "--config", &file]);
        assert!(run.status.success(), "{kind:?} {}", said(&run));
        assert_eq!(receiver.payloads(), [json!({ "n": 1 })], "{kind:?}");
        assert_eq!(database.one(&format!("SELECT status FROM {quoted}.outbox_events")).await, "COMPLETED");
        let cascade = if kind == Kind::Postgres { " CASCADE" } else { "" };
        database.run(&format!("DROP SCHEMA {quoted}{cascade}")).await;
        database.drop(&[]).await;
    }
}
