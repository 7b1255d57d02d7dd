//! What is wrong with a configuration though it can be read. All of it is told at once.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Config, Overrides, Problem, Route, SecretUrl, Sink, Source, Tls,
    problem::{listed, nearest},
    sink::{FormatName, KINDS, SinkKind},
    source::{Column, Profile, System},
    urls::{check_database, check_scheme},
};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

pub(super) fn check(config: &Config) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut say = |problem: Problem| problems.push(problem);
    if config.sources.is_empty() {
        say(Problem::new("there is no source").hint("name a database to deliver from under `sources`"));
    }
    for (name, sink) in &config.sinks {
        check_sink(name, sink, &mut say);
    }
    check_files(config, &mut say);
    for (name, source) in &config.sources {
        check_source(config, name, source, &mut say);
    }
    check_overrides("`defaults`", &config.defaults, &mut say);
    check_log(&config.log.level, &mut say);
    check_operations(config, &mut say);
    problems
}

/// A lone word that is no level is the name of a part of the program to the filter, and everything else is silent. Parts of ours
/// begin with our name, and most of others' have an underscore.
fn check_log(level: &str, say: &mut impl FnMut(Problem)) {
    let word = level.trim();
    let is_level = LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level))
        || matches!(word, "1" | "2" | "3" | "4" | "5");
    let names_a_part = word.starts_with("postrider") || word.contains(['=', ',', '_', ':', '[']);
    if !word.is_empty() && !is_level && !names_a_part {
        say(Problem::new(format!("`log.level` is `{level}`, which is no level")).hint(format!(
            "give one of: {}; or parts and levels, such as info,postrider_engine=debug",
            listed(LEVELS)
        )));
    }
}

fn check_operations(config: &Config, say: &mut impl FnMut(Problem)) {
    let operations = &config.operations;
    if operations.enabled && operations.token.is_none() && !operations.listen.ip().is_loopback() {
        let what = format!("`operations` would listen on {} without a token", operations.listen);
        say(Problem::new(what).hint("give it a `token`, or let it listen on 127.0.0.1"));
    }
    if let Some(traces) = &operations.traces {
        check_tls("`operations.traces`", &traces.endpoint, &traces.tls, ["http", "https"], say);
    }
}

fn check_sink(name: &str, sink: &Sink, say: &mut impl FnMut(Problem)) {
    match sink.kinds().as_slice() {
        [_] => {}
        [] => say(Problem::new(format!("the sink `{name}` does not say what it is"))
            .hint(format!("give it one of: {}", listed(KINDS)))),
        several => {
            let kinds = listed(several.iter().map(|kind| kind.name()));
            say(Problem::new(format!("the sink `{name}` is several at once: {kinds}"))
                .hint("give each a name of its own"));
        }
    }
    for (setting, value) in [("batch", sink.batch), ("concurrent", sink.concurrent)] {
        if value == Some(0) {
            say(Problem::new(format!("`{setting}` of the sink `{name}` is 0")).hint("it must be at least 1"));
        }
    }
    if sink.webhook.is_some() && sink.batch.is_some() {
        say(Problem::new(format!("the sink `{name}` is a webhook and has `batch`"))
            .hint("a webhook sends each event by itself: leave `batch` out, and say `concurrent` for how many at a time"));
    }
    check_format(name, sink, say);
    match sink.webhook.as_ref().map(|webhook| (webhook.secrets.is_empty(), webhook.unsigned)) {
        Some((true, false)) => say(Problem::new(format!("the sink `{name}` is a webhook without `secrets`"))
            .hint("give it a signing key, `secrets: [\"${NAME}\"]`, or say `unsigned: true`")),
        Some((false, true)) => {
            say(Problem::new(format!("the sink `{name}` has `secrets` and is `unsigned`"))
                .hint("leave one of them out"))
        }
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
            check_scheme(&place, url, sink.nats.is_some(), schemes, say);
        }
        check_tls(&place, url, tls, schemes, say);
    }
    let protocol = sink.kafka.as_ref().and_then(|kafka| kafka.properties.get("security.protocol"));
    let by_tls = protocol.is_some_and(|protocol| protocol.expose().to_ascii_lowercase().ends_with("ssl"));
    if by_tls && !cfg!(feature = "kafka-tls") {
        say(Problem::new(format!(
            "the sink `{name}` sets TLS to Kafka, and this program was built without it"
        ))
        .hint("build it with the default feature `kafka-tls`"));
    }
    if sink.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
        say(Problem::new(format!("`timeout` of the sink `{name}` is 0s")).hint("it must be more"));
    }
}

/// Sinks of one file write to it together.
fn check_files(config: &Config, say: &mut impl FnMut(Problem)) {
    let mut known = BTreeMap::new();
    let files = config.sinks.iter().filter_map(|(name, sink)| Some((name, sink.file.as_ref()?)));
    for (name, file) in files {
        let (first, sync) = *known.entry(&file.path).or_insert((name, file.sync));
        if sync != file.sync {
            say(Problem::new(format!(
                "the sinks `{first}` and `{name}` write to one file, and differ in `sync`"
            ))
            .hint("say the same of both, or name two files"));
        }
    }
}

/// Whoever names certificates expects them to be used: a URL that goes without TLS would send everything in the clear, and say nothing.
fn check_tls(
    place: &str,
    url: &SecretUrl,
    tls: &Tls,
    [plain, encrypted]: [&str; 2],
    say: &mut impl FnMut(Problem),
) {
    let is_plain = |url: &str| {
        url.trim().split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case(plain))
    };
    if *tls != Tls::default() && url.expose().split(',').any(is_plain) {
        say(Problem::new(format!(
            "{place} has `tls`, and its URL goes without: it begins with `{plain}://`"
        ))
        .hint(format!("say `{encrypted}://`, or leave `tls` out")));
    }
}

/// A setting that a kind of sink has no use for is refused: whoever wrote it expects something of it.
fn check_format(name: &str, sink: &Sink, say: &mut impl FnMut(Problem)) {
    let [kind] = sink.kinds()[..] else { return };
    match (kind, sink.format) {
        (SinkKind::File(_) | SinkKind::Stdout, format) if format != FormatName::Raw => {
            say(Problem::new(format!("the sink `{name}` is a `{}` and has a `format`", kind.name()))
                .hint("it writes lines of JSON of its own: leave `format` out"));
        }
        (SinkKind::Http(_), FormatName::CloudEventsBinary) => {
            say(Problem::new(format!("the format of the sink `{name}` is `cloud-events-binary`"))
                .hint("a batch has no headers for each event: say `cloud-events-structured`, or make it a `webhook`"));
        }
        _ => {}
    }
    if sink.cloud_events_source.is_some() && sink.format == FormatName::Raw {
        say(Problem::new(format!("the sink `{name}` has a `cloud_events_source` and its format is `raw`"))
            .hint("say `format: cloud-events-structured`, or leave `cloud_events_source` out"));
    }
}

fn check_source(config: &Config, name: &str, source: &Source, say: &mut impl FnMut(Problem)) {
    if source.enabled {
        check_database(name, &source.url, say);
    }
    if source.routes.is_empty() {
        say(Problem::new(format!("the source `{name}` has no routes"))
            .hint("say where its events go: routes: [{ event_type: \"*\", sink: NAME }]"));
    }
    let mut seen = BTreeSet::new();
    for route in &source.routes {
        check_route(config, name, route, say);
        let aggregate_type = route.aggregate_type.as_ref().map_or("*", |found| found.value.as_str());
        if !seen.insert((route.event_type.value.as_str(), aggregate_type)) {
            say(Problem::new(format!(
                "the source `{name}` has two routes for the event type `{}` of the aggregate type `{aggregate_type}`",
                route.event_type.value
            ))
            .at(&route.event_type)
            .hint("an event has one sink: leave one of them out"));
        }
    }
    check_overrides(&format!("`defaults` of the source `{name}`"), &source.defaults, say);
    if let Some(prefix) = &source.prefix
        && let Err(error) = postrider::Prefix::new(&prefix.value)
    {
        say(Problem::new(format!("`prefix` of the source `{name}`: {error}")).at(prefix));
    }
    if let Some(profile) = &source.profile {
        check_profile(name, source, profile, say);
    }
}

fn check_route(config: &Config, source: &str, route: &Route, say: &mut impl FnMut(Problem)) {
    let sink = &route.sink;
    if !config.sinks.contains_key(&sink.value) {
        let known = config.sinks.keys().map(String::as_str);
        let hint = match nearest(&sink.value, known.clone()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("sinks that there are: {}", listed(known)),
        };
        say(Problem::new(format!("there is no sink `{}`", sink.value)).at(sink).hint(hint));
    }
    let writes_lines = |sink: &Sink| sink.file.is_some() || sink.stdout.is_some();
    if route.topic.is_some() && config.sinks.get(&sink.value).is_some_and(writes_lines) {
        say(Problem::new(format!(
            "a route of `{source}` has a `topic`, and its sink `{}` has none",
            sink.value
        ))
        .at(sink)
        .hint("a file and standard output are one place each: leave `topic` out"));
    }
    for (what, pattern) in
        [("event_type", Some(&route.event_type)), ("aggregate_type", route.aggregate_type.as_ref())]
    {
        if let Some(pattern) = pattern.filter(|pattern| pattern.value.trim().is_empty()) {
            say(Problem::new(format!("`{what}` of a route of `{source}` is empty"))
                .at(pattern)
                .hint("give it a name, or `*` for any"));
        }
    }
    check_overrides(
        &format!("the route of `{}` in the source `{source}`", route.event_type.value),
        &route.overrides(),
        say,
    );
}

fn check_overrides(place: &str, overrides: &Overrides, say: &mut impl FnMut(Problem)) {
    if overrides.batch == Some(0) {
        say(Problem::new(format!("`batch` in {place} is 0")).hint("it must be at least 1"));
    }
    if overrides.attempts == Some(0) {
        say(Problem::new(format!("`attempts` in {place} is 0"))
            .hint("the first delivery is an attempt: it must be at least 1"));
    }
    let multiplier = overrides.backoff.as_ref().and_then(|backoff| backoff.multiplier);
    if let Some(multiplier) = multiplier.filter(|multiplier| !(1.0..=1000.0).contains(multiplier)) {
        say(Problem::new(format!("`multiplier` in {place} is {multiplier}"))
            .hint("it must be from 1 to 1000"));
    }
}

/// What happens to delivered rows of a system, whatever `retention` says; none where it has a say.
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

fn check_profile(name: &str, source: &Source, profile: &Profile, say: &mut impl FnMut(Problem)) {
    for (setting, given, instead) in [
        (
            "prefix",
            source.prefix.is_some(),
            "; what stands beside somebody else's is named by `profile.beside`",
        ),
        ("lanes", source.lanes.is_some(), "; from others' one instance delivers at a time"),
        ("pooled", source.pooled.is_some(), "; others' are delivered from without a pooler"),
    ] {
        if given {
            say(Problem::new(format!("the source `{name}` has a `profile` and `{setting}`"))
                .hint(format!("`{setting}` is for Postrider's own tables{instead}")));
        }
    }
    if let Some(retention) = source.retention
        && let Some(instead) = ignored_retention(profile.system, retention.0.is_zero())
    {
        say(Problem::new(format!(
            "the source `{name}` has a `profile` of {} and `retention`",
            profile.system.name()
        ))
        .hint(format!("{instead}: leave `retention` out")));
    }
    if let Some(both) = profile.without.iter().find(|column| profile.columns.contains_key(column)) {
        let both = both.name();
        say(Problem::new(format!(
            "the profile of the source `{name}` has a column for `{both}` and is without it"
        ))
        .hint(format!("leave `{both}` out of `columns` or out of `without`")));
    }
    let custom = profile.system == System::Custom;
    let missing = |column| custom && !profile.columns.contains_key(&column);
    if custom && profile.table.is_none() {
        say(Problem::new(format!("the profile of the source `{name}` is custom and names no `table`")));
    }
    for (column, called) in [(Column::Id, "id"), (Column::Payload, "payload")] {
        if missing(column) {
            say(Problem::new(format!(
                "the profile of the source `{name}` is custom and names no column for `{called}`"
            ))
            .hint(format!("columns: {{ {called}: NAME }}")));
        }
    }
    if profile.statuses.is_some() && !custom {
        say(Problem::new(format!("the profile of the source `{name}` spells statuses of a known system"))
            .hint("leave `statuses` out, or make it `system: custom`"));
    }
    if custom && profile.statuses.is_some() != profile.columns.contains_key(&Column::Status) {
        say(Problem::new(format!(
            "the profile of the source `{name}` has only one of `statuses` and a column for `status`"
        ))
        .hint("give both, or neither: then delivered rows are deleted"));
    }
}
