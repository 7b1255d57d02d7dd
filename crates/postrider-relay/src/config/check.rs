//! Checks a configuration that could be read, and reports all problems at once.

use std::collections::{BTreeMap, BTreeSet};

use postrider_net::TlsFiles;

use super::{
    Config, Overrides, Problem, Route, SecretUrl, Sink, Source,
    problem::{listed, nearest},
    sink::{FormatName, KINDS, SinkKind},
    source::{Column, Profile, System},
    urls::{check_database, check_scheme},
};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

pub(super) fn check(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut report = |problem: Problem| problems.push(problem);
    if config.sources.is_empty() {
        report(
            Problem::new("the configuration has no source")
                .hint("name a database to deliver from under `sources`"),
        );
    }
    for (name, sink) in &config.sinks {
        check_sink(name, sink, &mut report);
    }
    check_files(config, &mut report);
    for (name, source) in &config.sources {
        check_source(config, name, source, &mut report);
    }
    check_overrides("`defaults`", &config.defaults, &mut report);
    check_log(&config.log.level, &mut report);
    check_operations(config, &mut report);
    problems
}

/// The log filter takes an unknown word for a module name and would silence everything else. Our modules begin with `postrider`, and most
/// others contain an underscore, so any other lone word is a mistake.
fn check_log(level: &str, report: &mut impl FnMut(Problem)) {
    let word = level.trim();
    let is_level = LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level))
        || matches!(word, "1" | "2" | "3" | "4" | "5");
    let names_a_part = word.starts_with("postrider") || word.contains(['=', ',', '_', ':', '[']);
    if !word.is_empty() && !is_level && !names_a_part {
        report(Problem::new(format!("`log.level` is `{level}`, which is not a level")).hint(format!(
            "use one of: {}; or modules with levels, such as info,postrider_engine=debug",
            listed(LEVELS)
        )));
    }
}

fn check_operations(config: &Config, report: &mut impl FnMut(Problem)) {
    let operations = &config.operations;
    if operations.enabled && operations.token.is_none() && !operations.listen.ip().is_loopback() {
        let what = format!("`operations` would listen on {} without a token", operations.listen);
        report(
            Problem::new(what)
                .hint("binding beyond loopback requires a `token`; set one, or listen on 127.0.0.1"),
        );
    }
    if let Some(traces) = &operations.traces {
        check_tls("`operations.traces`", &traces.endpoint, &traces.tls, ["http", "https"], report);
    }
}

fn check_sink(name: &str, sink: &Sink, report: &mut impl FnMut(Problem)) {
    match sink.kinds().as_slice() {
        [_] => {}
        [] => report(
            Problem::new(format!("the sink `{name}` has no kind"))
                .hint(format!("give it one of: {}", listed(KINDS))),
        ),
        several => {
            let kinds = listed(several.iter().map(|kind| kind.name()));
            report(
                Problem::new(format!("the sink `{name}` has several kinds: {kinds}"))
                    .hint("make each of them a sink of its own"),
            );
        }
    }
    for (setting, value) in [("batch", sink.batch), ("concurrent", sink.concurrent)] {
        if value == Some(0) {
            report(
                Problem::new(format!("`{setting}` of the sink `{name}` is 0")).hint("it must be at least 1"),
            );
        }
    }
    if sink.webhook.is_some() && sink.batch.is_some() {
        report(Problem::new(format!("the sink `{name}` is a webhook and sets `batch`"))
            .hint("a webhook sends each event alone: remove `batch`, and set `concurrent` for the number of requests at a time"));
    }
    check_format(name, sink, report);
    match sink.webhook.as_ref().map(|webhook| (webhook.secrets.is_empty(), webhook.unsigned)) {
        Some((true, false)) => report(
            Problem::new(format!("the sink `{name}` is a webhook without `secrets`"))
                .hint("set a signing key, `secrets: [\"${NAME}\"]`, or `unsigned: true`"),
        ),
        Some((false, true)) => report(
            Problem::new(format!("the sink `{name}` sets `secrets` and `unsigned`"))
                .hint("remove one of them"),
        ),
        _ => {}
    }
    let tls = match sink.kinds().first() {
        Some(SinkKind::Http(http)) => Some((&http.url, &http.tls, ["http", "https"])),
        Some(SinkKind::Webhook(webhook)) => Some((&webhook.url, &webhook.tls, ["http", "https"])),
        Some(SinkKind::Rabbitmq(rabbitmq)) => Some((&rabbitmq.url, &rabbitmq.tls, ["amqp", "amqps"])),
        Some(SinkKind::Nats(nats)) => Some((&nats.url, &nats.tls, ["nats", "tls"])),
        Some(SinkKind::Redis(redis)) => Some((&redis.url, &redis.tls, ["redis", "rediss"])),
        Some(SinkKind::Kafka(_) | SinkKind::File(_) | SinkKind::Stdout) | None => None,
    };
    if let Some((url, tls, schemes)) = tls {
        let place = format!("the sink `{name}`");
        if sink.enabled {
            check_scheme(&place, url, sink.nats.is_some(), schemes, report);
        }
        check_tls(&place, url, tls, schemes, report);
    }
    let protocol = sink.kafka.as_ref().and_then(|kafka| kafka.properties.get("security.protocol"));
    let by_tls = protocol.is_some_and(|protocol| protocol.expose().to_ascii_lowercase().ends_with("ssl"));
    if by_tls && !cfg!(feature = "kafka-tls") {
        report(
            Problem::new(format!(
                "the sink `{name}` sets TLS to Kafka, and this program was built without it"
            ))
            .hint("build it with the default feature `kafka-tls`"),
        );
    }
    if sink.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
        report(Problem::new(format!("`timeout` of the sink `{name}` is 0s")).hint("it must be longer"));
    }
}

/// Sinks with the same file must agree on `sync`, because they share one writer.
fn check_files(config: &Config, report: &mut impl FnMut(Problem)) {
    let mut known = BTreeMap::new();
    let files = config.sinks.iter().filter_map(|(name, sink)| Some((name, sink.file.as_ref()?)));
    for (name, file) in files {
        let (first, sync) = *known.entry(&file.path).or_insert((name, file.sync));
        if sync != file.sync {
            report(
                Problem::new(format!(
                    "the sinks `{first}` and `{name}` write to the same file with different `sync`"
                ))
                .hint("set the same `sync` for both, or use two files"),
            );
        }
    }
}

/// Refuses `tls` with a URL of a plain scheme, which would send everything unencrypted.
fn check_tls(
    place: &str,
    url: &SecretUrl,
    tls: &TlsFiles,
    [plain, encrypted]: [&str; 2],
    report: &mut impl FnMut(Problem),
) {
    let is_plain = |url: &str| {
        url.trim().split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case(plain))
    };
    if *tls != TlsFiles::default() && url.expose().split(',').any(is_plain) {
        report(
            Problem::new(format!(
                "{place} sets `tls`, but its URL begins with `{plain}://` and is not encrypted"
            ))
            .hint(format!("use `{encrypted}://`, or remove `tls`")),
        );
    }
}

/// Refuses settings that the kind of sink would ignore.
fn check_format(name: &str, sink: &Sink, report: &mut impl FnMut(Problem)) {
    let [kind] = sink.kinds()[..] else { return };
    match (kind, sink.format) {
        (SinkKind::File(_) | SinkKind::Stdout, format) if format != FormatName::Raw => {
            report(
                Problem::new(format!("the sink `{name}` is a `{}` and sets `format`", kind.name()))
                    .hint("it always writes lines of JSON: remove `format`"),
            );
        }
        (SinkKind::Http(_), FormatName::CloudEventsBinary) => {
            report(Problem::new(format!("the sink `{name}` has the format `cloud-events-binary`")).hint(
                "a batch has no headers for single events: use `cloud-events-structured`, or a `webhook`",
            ));
        }
        _ => {}
    }
    if sink.cloud_events_source.is_some() && sink.format == FormatName::Raw {
        report(
            Problem::new(format!("the sink `{name}` sets `cloud_events_source`, but its format is `raw`"))
                .hint("set `format: cloud-events-structured`, or remove `cloud_events_source`"),
        );
    }
}

fn check_source(config: &Config, name: &str, source: &Source, report: &mut impl FnMut(Problem)) {
    if source.enabled {
        check_database(name, &source.url, report);
    }
    if source.routes.is_empty() {
        report(
            Problem::new(format!("the source `{name}` has no routes"))
                .hint("add one: routes: [{ event_type: \"*\", sink: NAME }]"),
        );
    }
    let mut seen = BTreeSet::new();
    for route in &source.routes {
        check_route(config, name, route, report);
        let aggregate_type = route.aggregate_type.as_ref().map_or("*", |found| found.value.as_str());
        if !seen.insert((route.event_type.value.as_str(), aggregate_type)) {
            report(Problem::new(format!(
                "the source `{name}` has two routes for the event type `{}` and the aggregate type `{aggregate_type}`",
                route.event_type.value
            ))
            .at(&route.event_type)
            .hint("an event goes to one sink: remove one of the routes"));
        }
    }
    check_overrides(&format!("`defaults` of the source `{name}`"), &source.defaults, report);
    if let Some(prefix) = &source.prefix
        && let Err(error) = postrider::Prefix::new(&prefix.value)
    {
        report(Problem::new(format!("`prefix` of the source `{name}`: {error}")).at(prefix));
    }
    if let Some(profile) = &source.profile {
        check_profile(name, source, profile, report);
    }
}

fn check_route(config: &Config, source: &str, route: &Route, report: &mut impl FnMut(Problem)) {
    let sink = &route.sink;
    if !config.sinks.contains_key(&sink.value) {
        let known = config.sinks.keys().map(String::as_str);
        let hint = match nearest(&sink.value, known.clone()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the sinks are: {}", listed(known)),
        };
        report(Problem::new(format!("there is no sink `{}`", sink.value)).at(sink).hint(hint));
    }
    let writes_lines = |sink: &Sink| sink.file.is_some() || sink.stdout.is_some();
    if route.topic.is_some() && config.sinks.get(&sink.value).is_some_and(writes_lines) {
        report(
            Problem::new(format!(
                "a route of `{source}` sets `topic`, which its sink `{}` does not have",
                sink.value
            ))
            .at(sink)
            .hint("files and standard output have no topics: remove `topic`"),
        );
    }
    for (what, pattern) in
        [("event_type", Some(&route.event_type)), ("aggregate_type", route.aggregate_type.as_ref())]
    {
        if let Some(pattern) = pattern.filter(|pattern| pattern.value.trim().is_empty()) {
            report(
                Problem::new(format!("`{what}` of a route of `{source}` is empty"))
                    .at(pattern)
                    .hint("set a name, or `*` for any"),
            );
        }
    }
    check_overrides(
        &format!("the route of `{}` in the source `{source}`", route.event_type.value),
        &route.overrides(),
        report,
    );
}

fn check_overrides(place: &str, overrides: &Overrides, report: &mut impl FnMut(Problem)) {
    if overrides.batch == Some(0) {
        report(Problem::new(format!("`batch` in {place} is 0")).hint("it must be at least 1"));
    }
    if overrides.attempts == Some(0) {
        report(
            Problem::new(format!("`attempts` in {place} is 0"))
                .hint("the first delivery counts as an attempt: it must be at least 1"),
        );
    }
    let multiplier = overrides.backoff.as_ref().and_then(|backoff| backoff.multiplier);
    if let Some(multiplier) = multiplier.filter(|multiplier| !(1.0..=1000.0).contains(multiplier)) {
        report(
            Problem::new(format!("`multiplier` in {place} is {multiplier}"))
                .hint("it must be from 1 to 1000"),
        );
    }
}

/// What a system does with delivered rows regardless of `retention`; `None` if `retention` applies.
fn ignored_retention(system: System, is_zero: bool) -> Option<&'static str> {
    match system {
        System::SpringOutbox => None,
        System::Debezium if is_zero => None,
        System::Debezium => {
            Some("delivered rows are deleted at once, as its own connector does not need them")
        }
        System::Flowcatalyst
        | System::FlowcatalystDispatchJobs
        | System::OutboxJava
        | System::OutboxJavaUnlocked
        | System::Custom => Some("delivered rows stay in the table, and its own system deletes them"),
    }
}

fn check_profile(name: &str, source: &Source, profile: &Profile, report: &mut impl FnMut(Problem)) {
    for (setting, given, instead) in [
        (
            "prefix",
            source.prefix.is_some(),
            "; the small tables beside an external one are named by `profile.beside`",
        ),
        ("lanes", source.lanes.is_some(), "; one instance at a time delivers from an external table"),
        ("pooled", source.pooled.is_some(), "; external tables are delivered from without a pooler"),
    ] {
        if given {
            report(
                Problem::new(format!("the source `{name}` sets both `profile` and `{setting}`"))
                    .hint(format!("`{setting}` applies to Postrider's own tables only{instead}")),
            );
        }
    }
    if let Some(retention) = source.retention
        && let Some(instead) = ignored_retention(profile.system, retention.0.is_zero())
    {
        report(
            Problem::new(format!(
                "the source `{name}` sets `retention` with a `profile` of {}",
                profile.system.name()
            ))
            .hint(format!("{instead}: remove `retention`")),
        );
    }
    if let Some(both) = profile.without.iter().find(|column| profile.columns.contains_key(column)) {
        let both = both.name();
        report(
            Problem::new(format!(
                "the profile of the source `{name}` names a column for `{both}` and lists it under `without`"
            ))
            .hint(format!("remove `{both}` from `columns` or from `without`")),
        );
    }
    let custom = profile.system == System::Custom;
    let missing = |column| custom && !profile.columns.contains_key(&column);
    if custom && profile.table.is_none() {
        report(Problem::new(format!("the custom profile of the source `{name}` names no `table`")));
    }
    for (column, called) in [(Column::Id, "id"), (Column::Payload, "payload")] {
        if missing(column) {
            report(
                Problem::new(format!(
                    "the custom profile of the source `{name}` names no column for `{called}`"
                ))
                .hint(format!("columns: {{ {called}: NAME }}")),
            );
        }
    }
    if profile.statuses.is_some() && !custom {
        report(
            Problem::new(format!("the profile of the source `{name}` sets `statuses` for a known system"))
                .hint("remove `statuses`, or use `system: custom`"),
        );
    }
    if custom && profile.statuses.is_some() != profile.columns.contains_key(&Column::Status) {
        report(
            Problem::new(format!(
                "the profile of the source `{name}` sets only one of `statuses` and a column for `status`"
            ))
            .hint("set both, or neither: without them delivered rows are deleted"),
        );
    }
}
