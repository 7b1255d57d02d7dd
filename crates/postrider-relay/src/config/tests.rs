use std::collections::HashMap;

use super::*;
use crate::config::load::parse;

const SHOP: &str = r#"
defaults:
  attempts: 4
  backoff: { delay: 10s, multiplier: 3, max: none, jitter: false }
sources:
  shop:
    url: postgres://shop:${PASSWORD}@localhost/shop
    defaults: { batch: 50 }
    routes:
      - { event_type: OrderPlaced, sink: orders, attempts: 7, backoff: { delay: 1s } }
      - { event_type: "*", sink: orders }
sinks:
  orders:
    kafka: { brokers: "localhost:9092", topic: "{event_type}", properties: { sasl.password: "${PASSWORD}" } }
"#;

fn with(variables: &[(&str, &str)]) -> HashMap<String, String> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn read(text: &str) -> Result<Config, Vec<Problem>> {
    parse(text, with(&[("PASSWORD", "canary")]))
}

fn only_problem(text: &str) -> Problem {
    let mut problems = read(text).expect_err("this should be refused");
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

#[test]
fn a_file_is_read_and_what_is_not_said_is_inherited_field_by_field() {
    // S4-43
    let config = read(SHOP).unwrap();
    let source = &config.sources["shop"];
    let [placed, other] = source.routes.as_slice() else { panic!("two routes") };
    let placed = Effective::of(&config, source, placed, &BuiltIn::own());
    assert_eq!((placed.attempts, placed.batch), (7, Some(50)));
    assert_eq!(
        serde_json::to_value(&placed.backoff).unwrap(),
        serde_json::json!({
            "enabled": true, "delay": "1s", "multiplier": 3.0, "max": "none", "jitter": false
        })
    );
    let other = Effective::of(&config, source, other, &BuiltIn::own());
    assert_eq!((other.attempts, other.backoff.delay.to_string()), (4, "10s".to_owned()));
}

#[test]
fn the_effective_configuration_shows_no_secret() {
    let config = read(SHOP).unwrap();
    assert_eq!(config.sources["shop"].url.expose(), "postgres://shop:canary@localhost/shop");
    for shown in [format!("{config:?}"), serde_json::to_string(&config).unwrap()] {
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[test]
fn an_unknown_setting_is_named_with_its_line_and_the_one_that_was_meant() {
    let problem = only_problem(&SHOP.replace("attempts: 4", "atempts: 4"));
    assert_eq!(problem.at, Some((3, 3)));
    assert_eq!(problem.what, "there is no setting `atempts`");
    assert_eq!(problem.hint.as_deref(), Some("did you mean `attempts`?"));
}

#[test]
fn a_missing_setting_a_wrong_value_and_a_missing_variable_are_named_with_their_line() {
    let missing = only_problem(&SHOP.replace("topic: \"{event_type}\", ", ""));
    assert!(missing.what.contains("`topic` is missing") && missing.at.is_some(), "{missing:?}");
    let wrong = only_problem(&SHOP.replace("delay: 10s", "delay: 10"));
    assert!(wrong.what.contains("500ms") && wrong.at.map(|at| at.0) == Some(4), "{wrong:?}");
    let unset = parse(SHOP, HashMap::new()).unwrap_err().remove(0);
    assert!(unset.what.contains("PASSWORD is not set") && unset.at.map(|at| at.0) == Some(7), "{unset:?}");
}

#[test]
fn what_is_wrong_beside_a_variable_is_named_as_it_stands_in_the_file() {
    let around = |setting: &str| {
        format!(
            "sources:\n  shop: {{ url: shop.db, routes: [{{ event_type: a, sink: a }}], {setting} }}\nsinks: {{ a: {{ stdout: {{}} }} }}\n"
        )
    };
    let problem = only_problem(&around("retenton: \"${PASSWORD}\""));
    assert_eq!(problem.what, "there is no setting `retenton`");
    assert_eq!(problem.hint.as_deref(), Some("did you mean `retention`?"));
    let problem = only_problem(&format!("# ${{PASSWORD}}\n{}", around("prefix: \"${PASSWORD}\", lease: 15")));
    assert!(problem.what.contains("500ms"), "{problem:?}");
    // What a variable brings in is not shown.
    let problem = only_problem(&around("lease: \"${PASSWORD}\""));
    assert!(!format!("{problem:?}").contains("canary"), "{problem:?}");
}

#[test]
fn a_route_to_a_sink_that_is_not_there_is_named_with_its_line() {
    let problem = only_problem(&SHOP.replace("OrderPlaced, sink: orders", "OrderPlaced, sink: order"));
    assert_eq!(problem.what, "there is no sink `order`");
    assert_eq!(
        (problem.at.map(|at| at.0), problem.hint.as_deref()),
        (Some(10), Some("did you mean `orders`?"))
    );
}

#[test]
fn a_retention_that_a_profile_would_ignore_is_told() {
    let of = |system: &str, retention: &str| {
        let profile = match system {
            "custom" => "{ system: custom, table: t, columns: { id: id, payload: payload } }".to_owned(),
            system => format!("{{ system: {system} }}"),
        };
        read(&format!(
            "sources: {{ flow: {{ url: \"postgres://h/d\", profile: {profile}, retention: {retention}, routes: [{{ event_type: \"*\", sink: a }}] }} }}\n\
             sinks: {{ a: {{ stdout: {{}} }} }}\n"
        ))
    };
    for system in
        ["flowcatalyst", "flowcatalyst-dispatch-jobs", "outbox-java", "outbox-java-unlocked", "custom"]
    {
        for retention in ["0s", "1h"] {
            let problems = of(system, retention).unwrap_err();
            let told = problems.first().map(|problem| problem.what.as_str()).unwrap_or_default();
            assert!(
                told.contains("`retention`") && told.contains(system),
                "{system} {retention}: {problems:?}"
            );
        }
    }
    assert!(of("debezium", "1h").is_err() && of("debezium", "0s").is_ok());
    assert!(of("spring-outbox", "0s").is_ok() && of("spring-outbox", "1h").is_ok());
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    // S4-36
    let text = "sources: { shop: { url: shop.db, routes: [] } }\nsinks: { a: {}, b: { stdout: {}, file: { path: x } } }\n";
    let problems = read(text).unwrap_err();
    let told = problems.iter().map(|problem| problem.what.as_str()).collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            "the sink `a` has no kind",
            "the sink `b` has several kinds: file, stdout",
            "the source `shop` has no routes",
        ]
    );
}

#[test]
fn numbers_out_of_their_range_are_refused() {
    for (setting, word) in
        [("batch: 0", "batch"), ("attempts: 0", "attempts"), ("backoff: { multiplier: 0.5 }", "multiplier")]
    {
        let problem = only_problem(&SHOP.replace("attempts: 7, backoff: { delay: 1s }", setting));
        assert!(problem.what.contains(&format!("`{word}`")), "{problem:?}");
    }
}

#[test]
fn an_endpoint_outside_of_loopback_needs_a_token() {
    let open = format!("operations: {{ listen: \"0.0.0.0:9465\" }}\n{SHOP}");
    assert!(only_problem(&open).what.contains("without a token"));
    assert!(read(&open.replace(":9465\" }", ":9465\", token: x }")).is_ok());
    assert!(read(&format!("operations: {{ listen: \"[::1]:9465\" }}\n{SHOP}")).is_ok());
}

#[test]
fn tls_to_kafka_is_refused_by_a_program_that_was_built_without_it() {
    let by_tls = SHOP.replace("sasl.password:", "security.protocol: SASL_SSL, sasl.password:");
    match cfg!(feature = "kafka-tls") {
        true => assert!(read(&by_tls).is_ok()),
        false => assert!(only_problem(&by_tls).hint.unwrap().contains("kafka-tls")),
    }
}

#[test]
fn tls_for_a_url_that_goes_without_it_is_refused() {
    let with = |sink: &str| SHOP.replace("sinks:\n", &format!("sinks:\n  other: {{ {sink} }}\n"));
    for (kind, plain, encrypted, more) in [
        ("http", "http://h", "https://h", ""),
        ("webhook", "http://h", "https://h", ", secrets: [whsec_x]"),
        ("rabbitmq", "AMQP://h", "amqps://h", ""),
        ("nats", "tls://h,nats://i", "tls://h,tls://i", ", subject: s"),
        ("redis", "redis://h", "rediss://h", ", stream: s"),
    ] {
        let sink =
            |url: &str| with(&format!("{kind}: {{ url: \"{url}\", tls: {{ ca_file: ca.pem }}{more} }}"));
        let problem = only_problem(&sink(plain));
        assert!(problem.what.contains("the sink `other` sets `tls`"), "{problem:?}");
        let hint = problem.hint.unwrap();
        assert!(hint.contains(encrypted.split("://").next().unwrap()), "{hint}");
        assert!(read(&sink(encrypted)).is_ok(), "{kind}");
    }
    let traces = |url: &str| {
        format!("operations: {{ traces: {{ endpoint: \"{url}\", tls: {{ ca_file: ca.pem }} }} }}\n{SHOP}")
    };
    assert!(only_problem(&traces("http://h:4318")).what.contains("`operations.traces` sets `tls`"));
    assert!(read(&traces("https://h:4318")).is_ok());
}

#[test]
fn a_webhook_goes_unsigned_only_if_that_is_said() {
    let with = |more: &str| {
        SHOP.replace("sinks:\n", &format!("sinks:\n  hook: {{ webhook: {{ url: \"https://h\"{more} }} }}\n"))
    };
    let silent = only_problem(&with(""));
    assert_eq!(silent.what, "the sink `hook` is a webhook without `secrets`");
    assert!(silent.hint.unwrap().contains("unsigned: true"));
    assert!(only_problem(&with(", unsigned: true, secrets: [whsec_x]")).what.contains("`unsigned`"));
    assert!(read(&with(", unsigned: true")).is_ok());
    assert!(read(&with(", secrets: [whsec_x]")).is_ok());
}

#[test]
fn two_sinks_of_one_file_must_agree_on_sync() {
    let with = |sync: bool| {
        let files =
            format!("sinks:\n  a: {{ file: {{ path: x }} }}\n  b: {{ file: {{ path: x, sync: {sync} }} }}\n");
        SHOP.replace("sinks:\n", &files)
    };
    assert!(read(&with(true)).is_ok());
    let problem = only_problem(&with(false));
    assert!(problem.what.contains("`a` and `b`") && problem.what.contains("`sync`"), "{problem:?}");
}

#[test]
fn the_smallest_file_is_enough() {
    // S4-51
    let config = read(
        "sources: { shop: { url: shop.db, routes: [{ event_type: \"*\", sink: out }] } }\nsinks: { out: { stdout: {} } }",
    );
    let config = config.unwrap();
    assert!(config.operations.listen.ip().is_loopback());
    assert!(config.sources["shop"].enabled && config.sinks["out"].enabled);
}

#[test]
fn a_profile_that_contradicts_itself_is_refused() {
    let with =
        |profile: &str| SHOP.replace("    defaults: { batch: 50 }\n", &format!("    profile: {profile}\n"));
    assert!(read(&with("{ system: flowcatalyst }")).is_ok());
    assert!(read(&with("{ system: custom, table: t, columns: { id: a, payload: b } }")).is_ok());
    for (profile, word) in [
        ("{ system: custom, columns: { id: a, payload: b } }", "`table`"),
        ("{ system: custom, table: t, columns: { id: a } }", "`payload`"),
        ("{ system: debezium, statuses: { fresh: a, done: b, dead: c } }", "statuses"),
        ("{ system: custom, table: t, columns: { id: a, payload: b, status: s } }", "`statuses`"),
    ] {
        assert!(only_problem(&with(profile)).what.contains(word), "{profile}");
    }
    assert!(only_problem(&with("{ system: flowcatalist }")).hint.unwrap().contains("flowcatalyst"));
}

/// A file of the documentation.
fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/relay").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_example_in_the_documentation_is_good_without_any_variable() {
    let config = parse(&document("postrider.example.yaml"), HashMap::new());
    let config = config.unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!(config.sources.keys().collect::<Vec<_>>(), ["flow", "shop"]);
    assert!(config.sinks.values().all(|sink| sink.kinds().len() == 1));
}

#[test]
fn the_reference_in_the_documentation_is_that_of_these_types() {
    let (written, made) = (document("configuration.md"), reference());
    assert!(
        written.trim_end().ends_with(made.trim_end()),
        "docs/relay/configuration.md is not what `postrider check --reference` prints; below its introduction it should be:\n{made}"
    );
}

#[test]
fn what_cannot_be_read_is_told_in_the_words_of_whoever_wrote_it() {
    let shop = |setting: &str| {
        format!(
            "sources:\n  shop:\n    url: shop.db\n    {setting}\n    routes: [{{ event_type: a, sink: out }}]\nsinks:\n  out: {{ stdout: {{}} }}\n"
        )
    };
    for (text, at, what, hint) in [
        (shop("claim_batch: many"), Some((4, 18)), "expected a whole number", ""),
        (shop("claim_batch: 1.5"), Some((4, 18)), "expected a whole number", ""),
        (shop("migrate: maybe"), Some((4, 14)), "expected `true` or `false`", ""),
        (shop("defaults: { backoff: { multiplier: x } }"), Some((4, 40)), "expected a number", ""),
        (shop("poll: 5s"), Some((4, 11)), "expected settings with names", "name: value"),
        (
            shop("").replace("[{ event_type: a, sink: out }]", "out"),
            Some((5, 13)),
            "expected a list",
            "[a, b]",
        ),
        (shop("") + "  out: { stdout: {} }\n", Some((8, 3)), "`out` occurs twice", "remove one"),
        (shop("") + "---\nsources: {}\n", Some((9, 1)), "a second YAML document begins here", "---"),
        ("sources:\n\tshop:\n".to_owned(), Some((2, 2)), "tabs", "spaces"),
        (shop("").replace("event_type: a", "event_type: *"), Some((5, 28)), "alias", "quote "),
        (
            format!("operations: {{ listen: 9465 }}\n{}", shop("")),
            Some((1, 23)),
            "socket address",
            "127.0.0.1:9465",
        ),
        (String::new(), None, "the configuration is empty", "--reference"),
        ("# later\n\n".to_owned(), None, "the configuration is empty", "--reference"),
        (format!("log: {{ level: warning }}\n{}", shop("")), None, "`log.level` is `warning`", "warn"),
    ] {
        let problem = only_problem(&text);
        assert_eq!(problem.at, at, "{problem:?}");
        assert!(problem.what.contains(what), "{problem:?}");
        assert!(problem.hint.as_deref().unwrap_or_default().contains(hint), "{problem:?}");
    }
    for level in ["info,postrider_engine=debug", "postrider_engine", "postrider", "INFO", "4", ""] {
        assert!(read(&format!("log: {{ level: \"{level}\" }}\n{}", shop(""))).is_ok(), "{level}");
    }
}
