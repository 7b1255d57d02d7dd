//! `postrider check`: what is wrong with a configuration, what it comes to, and whether everything that it names is there.

use std::{path::PathBuf, time::Duration};

use clap::Args as ClapArgs;
use postrider::{Health, sink::error_chain};
use serde_json::{Map, Value, json};

use crate::{
    Verdict,
    config::{self, Config, Effective, Overrides},
    failure::Failure,
    operations::Meters,
    relay,
    terminal::{Terminal, table},
};

/// How long a source or a sink may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Say what is wrong with a configuration, and what it comes to.
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, default_value = "postrider.yaml", value_name = "FILE")]
    config: PathBuf,
    /// Try every source and sink, and say which promises hold
    #[arg(long)]
    connect: bool,
    /// Print the documentation of all settings, and check nothing
    #[arg(long, exclusive = true)]
    reference: bool,
    /// One JSON object for programs
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Verdict, Failure> {
    let terminal = Terminal::new(args.json);
    if args.reference {
        terminal.say(config::reference().trim_end());
        return Ok(Verdict::Good);
    }
    let config = config::load(&args.config).map_err(Failure::configuration)?;
    let plans = relay::plans(config.clone(), &Meters::new()?)?;
    let mut answer = Map::new();
    answer.insert("configuration".to_owned(), json!(config));
    answer.insert("routes".to_owned(), routes_json(&config));
    terminal.say(shown(&config)?);
    terminal.say(routes_table(&config));
    let mut verdict = Verdict::Good;
    if args.connect {
        let mut found = table(["", "name", "answer", "promises"], &[]);
        let mut parts = Vec::new();
        for plan in &plans {
            let tried = tokio::time::timeout(ANSWER_TIMEOUT, relay::find(&plan.source)).await;
            let (ok, answer, promises) = match tried {
                Ok(Ok(found)) => (true, found.what, found.promises.unwrap_or_else(|| "all".to_owned())),
                Ok(Err(error)) => (false, error_chain(&error), String::new()),
                Err(_) => (false, format!("no answer in {ANSWER_TIMEOUT:?}"), String::new()),
            };
            parts.push(("source", plan.name.clone(), ok, answer, promises));
            for (name, sink) in plan.sinks.iter() {
                let (ok, answer) = match tokio::time::timeout(ANSWER_TIMEOUT, sink.health()).await {
                    Ok(Health::Up) => (true, "well".to_owned()),
                    Ok(Health::Unknown) => (true, "cannot be asked without sending".to_owned()),
                    Ok(Health::Down { error }) => (false, error),
                    Err(_) => (false, format!("no answer in {ANSWER_TIMEOUT:?}")),
                };
                parts.push(("sink", name.to_owned(), ok, answer, String::new()));
            }
        }
        for (kind, name, ok, answer, promises) in &parts {
            found.add_row([*kind, name, answer, promises]);
            if !ok {
                verdict = Verdict::Bad;
            }
        }
        let list = parts.iter().map(|(kind, name, ok, answer, promises)| {
            json!({ "kind": kind, "name": name, "well": ok, "answer": answer, "promises": promises })
        });
        answer.insert("connections".to_owned(), Value::Array(list.collect()));
        terminal.say(found);
    }
    terminal.say(terminal.paint(
        verdict,
        match verdict {
            Verdict::Good => "The configuration is good.",
            Verdict::Bad => {
                "The configuration is good, and something that it names does not answer as it should."
            }
        },
    ));
    answer.insert("good".to_owned(), Value::Bool(verdict == Verdict::Good));
    terminal.answer(answer);
    Ok(verdict)
}

/// The configuration as it was understood, in its own words, without secrets.
fn shown(config: &Config) -> Result<String, Failure> {
    serde_saphyr::to_string(config)
        .map_err(|error| Failure::unreachable("the configuration cannot be shown", &error))
}

fn each_route(config: &Config) -> impl Iterator<Item = (&str, &config::Route, Effective)> {
    config.sources.iter().flat_map(move |(name, source)| {
        source.routes.iter().map(move |route| {
            (name.as_str(), route, Effective::of(config, source, route, &Overrides::default()))
        })
    })
}

fn routes_table(config: &Config) -> comfy_table::Table {
    let mut routes =
        table(["source", "event type", "sink", "attempts", "backoff", "batch", "dead heads"], &[3, 5]);
    for (source, route, effective) in each_route(config) {
        let backoff = &effective.backoff;
        let growth = if backoff.enabled {
            format!("{} × {}", backoff.delay, backoff.multiplier)
        } else {
            backoff.delay.to_string()
        };
        routes.add_row([
            source.to_owned(),
            route.event_type.value.clone(),
            route.sink.value.clone(),
            effective.attempts.to_string(),
            growth,
            effective.batch.map_or_else(|| "the sink's".to_owned(), |batch| batch.to_string()),
            format!("{:?}", effective.dead_heads).to_lowercase(),
        ]);
    }
    routes
}

fn routes_json(config: &Config) -> Value {
    let routes = each_route(config).map(|(source, route, effective)| {
        json!({
            "source": source,
            "event_type": route.event_type,
            "aggregate_type": route.aggregate_type,
            "sink": route.sink,
            "effective": effective,
        })
    });
    Value::Array(routes.collect())
}
