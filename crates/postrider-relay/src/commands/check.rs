//! `postrider check`: validates a configuration, shows its effective settings, and tries its databases and sinks.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use postrider::sink::error_chain;
use serde_json::{Map, Value, json};

use super::{
    effective_report::EffectiveReport,
    health::{ANSWER_TIMEOUT, Answer},
};
use crate::{
    Conclusion,
    config::{self, Config, Problem},
    failure::Failure,
    relay::{self, Found, Plan},
    terminal::{Terminal, table},
    traces,
};

/// Validate a configuration and show its effective settings
///
/// Example: postrider check --config shop.yaml --connect
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The configuration file
    #[arg(short, long, default_value = "postrider.yaml", value_name = "FILE")]
    config: PathBuf,
    /// Also try every source, with what a relay does there and undoing it, ask every sink for its health, and show which promises hold. The
    /// exit status is 3 if one of them fails
    #[arg(long)]
    connect: bool,
    /// Print the reference of all settings instead
    #[arg(long, exclusive = true)]
    reference: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    if args.reference {
        terminal.print(config::reference().trim_end());
        return Ok(Conclusion::Good);
    }
    let config = config::load(&args.config).map_err(|problems| {
        terminal.print_json(bad(problems.list.iter().map(Problem::to_json).collect()));
        Failure::configuration(problems)
    })?;
    let plans = plans_of(&config).inspect_err(|failure| terminal.print_json(bad(vec![failure.to_json()])))?;
    let mut answer = Map::new();
    answer.insert("configuration".to_owned(), json!(config));
    let report = EffectiveReport::of(&config, &plans)?;
    report.add_to(&mut answer);
    terminal.print(shown(&config)?);
    terminal.print(report.sources());
    terminal.print(report.routes());
    let mut conclusion = Conclusion::Good;
    if args.connect {
        let mut found = table(["", "name", "answer", "promises"], &[]);
        let mut parts = Vec::new();
        for plan in &plans {
            let tried = tokio::time::timeout(ANSWER_TIMEOUT, find(plan)).await;
            let (ok, answer, promises) = match tried {
                Ok(Ok(found)) => (true, found.what, found.promises.unwrap_or_else(|| "all".to_owned())),
                Ok(Err(error)) => (false, error_chain(&error), String::new()),
                Err(_) => (false, format!("no answer within {ANSWER_TIMEOUT:?}"), String::new()),
            };
            parts.push(("source", plan.name.clone(), ok, answer, promises));
            for (name, sink) in plan.sinks.iter() {
                let answer = Answer::of(sink).await;
                let ok = answer.is_well().unwrap_or(true);
                parts.push(("sink", name.to_owned(), ok, answer.describe().to_owned(), String::new()));
            }
        }
        for (kind, name, ok, answer, promises) in &parts {
            found.add_row([*kind, name, answer, promises]);
            if !ok {
                conclusion = Conclusion::Unreachable;
            }
        }
        let list = parts.iter().map(|(kind, name, ok, answer, promises)| {
            json!({ "kind": kind, "name": name, "well": ok, "answer": answer, "promises": promises })
        });
        answer.insert("connections".to_owned(), Value::Array(list.collect()));
        terminal.print(found);
    }
    terminal.print_conclusion(
        conclusion,
        match conclusion {
            Conclusion::Good => "The configuration is valid.",
            Conclusion::Bad | Conclusion::Unreachable => {
                "The configuration is valid, but a source or a sink failed its check."
            }
        },
    );
    answer.insert("good".to_owned(), Value::Bool(conclusion == Conclusion::Good));
    terminal.print_json(answer);
    Ok(conclusion)
}

fn plans_of(config: &Config) -> Result<Vec<Plan>, Failure> {
    traces::check(config.operations.traces.as_ref())?;
    relay::plans(config.clone(), &relay::Instruments::idle()?)
}

/// The answer for an invalid configuration.
fn bad(problems: Vec<Value>) -> Map<String, Value> {
    let fields = [("problems", Value::Array(problems)), ("good", Value::Bool(false))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Connects to a source and tries what a relay would do there.
async fn find(plan: &Plan) -> postrider::Result<Found> {
    let found = relay::find(&plan.source).await?;
    found.store.rehearse(plan.source.migrate).await?;
    Ok(found)
}

/// The configuration as it was read, in YAML, without secrets.
fn shown(config: &Config) -> Result<String, Failure> {
    let mut value = json!(config);
    leave_out_nulls(&mut value);
    serde_saphyr::to_string(&value)
        .map_err(|error| Failure::unreachable("the configuration cannot be printed", &error))
}

/// Removes what is not set; the effective values are in the tables.
fn leave_out_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(leave_out_nulls);
    } else if let Value::Array(list) = value {
        list.iter_mut().for_each(leave_out_nulls);
    }
}
