//! `postrider check`: what is wrong with a configuration, what it comes to, and whether everything that it names is there.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use postrider::sink::error_chain;
use serde_json::{Map, Value, json};

use super::{
    comes_to::ComesTo,
    health::{ANSWER_TIMEOUT, Answer},
};
use crate::{
    Verdict,
    config::{self, Config, Problem},
    failure::Failure,
    relay::{self, Found, Plan},
    terminal::{Terminal, table},
    traces,
};

/// Say what is wrong with a configuration, and what it comes to.
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, default_value = "postrider.yaml", value_name = "FILE")]
    config: PathBuf,
    /// Try what a relay does with every source, taking it back, ask every sink, and say which promises hold; the exit status is 3 if one does
    /// not answer as it should
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
    let config = config::load(&args.config).map_err(|problems| {
        terminal.answer(bad(problems.list.iter().map(Problem::told).collect()));
        Failure::configuration(problems)
    })?;
    let plans = plans_of(&config).inspect_err(|failure| terminal.answer(bad(vec![failure.to_json()])))?;
    let mut answer = Map::new();
    answer.insert("configuration".to_owned(), json!(config));
    let comes_to = ComesTo::of(&config, &plans)?;
    comes_to.answer(&mut answer);
    terminal.say(shown(&config)?);
    terminal.say(comes_to.sources());
    terminal.say(comes_to.routes());
    let mut verdict = Verdict::Good;
    if args.connect {
        let mut found = table(["", "name", "answer", "promises"], &[]);
        let mut parts = Vec::new();
        for plan in &plans {
            let tried = tokio::time::timeout(ANSWER_TIMEOUT, find(plan)).await;
            let (ok, answer, promises) = match tried {
                Ok(Ok(found)) => (true, found.what, found.promises.unwrap_or_else(|| "all".to_owned())),
                Ok(Err(error)) => (false, error_chain(&error), String::new()),
                Err(_) => (false, format!("no answer in {ANSWER_TIMEOUT:?}"), String::new()),
            };
            parts.push(("source", plan.name.clone(), ok, answer, promises));
            for (name, sink) in plan.sinks.iter() {
                let answer = Answer::of(sink).await;
                let ok = answer.is_well().unwrap_or(true);
                parts.push(("sink", name.to_owned(), ok, answer.told().to_owned(), String::new()));
            }
        }
        for (kind, name, ok, answer, promises) in &parts {
            found.add_row([*kind, name, answer, promises]);
            if !ok {
                verdict = Verdict::Unreachable;
            }
        }
        let list = parts.iter().map(|(kind, name, ok, answer, promises)| {
            json!({ "kind": kind, "name": name, "well": ok, "answer": answer, "promises": promises })
        });
        answer.insert("connections".to_owned(), Value::Array(list.collect()));
        terminal.say(found);
    }
    terminal.conclude(
        verdict,
        match verdict {
            Verdict::Good => "The configuration is good.",
            Verdict::Bad | Verdict::Unreachable => {
                "The configuration is good, and something that it names does not answer as it should."
            }
        },
    );
    answer.insert("good".to_owned(), Value::Bool(verdict == Verdict::Good));
    terminal.answer(answer);
    Ok(verdict)
}

fn plans_of(config: &Config) -> Result<Vec<Plan>, Failure> {
    traces::check(config.operations.traces.as_ref())?;
    relay::plans(config.clone(), &relay::Instruments::idle()?)
}

/// What is told of a configuration that cannot be used.
fn bad(problems: Vec<Value>) -> Map<String, Value> {
    let fields = [("problems", Value::Array(problems)), ("good", Value::Bool(false))];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Reaches a source, and tries what a relay would do there.
async fn find(plan: &Plan) -> postrider::Result<Found> {
    let found = relay::find(&plan.source).await?;
    found.store.rehearse(plan.source.migrate).await?;
    Ok(found)
}

/// The configuration as it was understood, in its own words, without secrets.
fn shown(config: &Config) -> Result<String, Failure> {
    let mut value = json!(config);
    leave_out_nulls(&mut value);
    serde_saphyr::to_string(&value)
        .map_err(|error| Failure::unreachable("the configuration cannot be shown", &error))
}

/// What is not set says nothing, and what holds then is in the tables below.
fn leave_out_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(leave_out_nulls);
    } else if let Value::Array(list) = value {
        list.iter_mut().for_each(leave_out_nulls);
    }
}
