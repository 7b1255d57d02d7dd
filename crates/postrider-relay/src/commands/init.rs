//! `postrider init`: makes the tables of an outbox, or prints what makes them.

use clap::Args as ClapArgs;
use postrider::{Error, SchemaError};
use serde_json::{Map, Value, json};

use super::target::{Outbox, Target};
use crate::{
    Verdict,
    config::Source,
    failure::Failure,
    relay,
    terminal::{Terminal, count},
};

/// Make the tables of an outbox, or print the SQL that does.
///
/// What is there already stays as it is, so it can be repeated. In a table that somebody else designed nothing is changed: what is made
/// are the small tables beside it.
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// How many lanes new tables get: at most so many instances deliver at once
    #[arg(long, value_name = "NUMBER")]
    lanes: Option<u32>,
    /// Print the SQL of the tables, and ask no database for anything
    #[arg(long)]
    print: bool,
    /// Print the GRANTs of three roles, and ask no database for anything
    #[arg(long)]
    grants: bool,
    /// Who writes events, for --grants
    #[arg(long, value_name = "ROLE", default_value = "writer", requires = "grants")]
    writer: String,
    /// Who delivers them, for --grants
    #[arg(long, value_name = "ROLE", default_value = "relay", requires = "grants")]
    relay: String,
    /// Who looks after them, for --grants
    #[arg(long, value_name = "ROLE", default_value = "operator", requires = "grants")]
    operator: String,
    /// One JSON object for programs
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Verdict, Failure> {
    let terminal = Terminal::new(args.json);
    let mut answer = Map::new();
    for mut named in args.target.sources()? {
        named.source.lanes = args.lanes.or(named.source.lanes);
        let name = named.name.clone();
        let of_source = |failure: Failure| failure.of(&format!("the source `{name}`"));
        let told = if args.print || args.grants {
            print(terminal, &args, &named.source).map_err(of_source)?
        } else {
            let tables = tables(&relay::schema_sql(&named.source).map_err(|error| of_source(error.into()))?);
            let profile = named.source.profile.is_some();
            // An outbox that cannot be reached says which it is.
            make(terminal, named.connect().await?, tables, profile).await.map_err(of_source)?
        };
        answer.insert(name.clone(), told);
    }
    terminal.answer(answer);
    Ok(Verdict::Good)
}

/// Prints SQL that can be given to the database's own client as it is.
fn print(terminal: Terminal, args: &Args, source: &Source) -> Result<Value, Failure> {
    let mut told = Map::new();
    if args.print {
        let schema = relay::schema_sql(source)?;
        terminal.say(schema.trim_end());
        told.insert("schema".to_owned(), json!(schema));
    }
    if args.grants {
        let grants = relay::grants_sql(source, &args.writer, &args.relay, &args.operator)?;
        let said = grants
            .as_deref()
            .unwrap_or("-- SQLite has no users: whoever may write to the file may do everything.");
        terminal.say(said.trim_end());
        told.insert("grants".to_owned(), json!(grants));
    }
    Ok(Value::Object(told))
}

/// Makes what is missing, and says what there is now.
async fn make(
    terminal: Terminal,
    outbox: Outbox,
    tables: Vec<String>,
    profile: bool,
) -> Result<Value, Failure> {
    let (name, what) = (&outbox.name, &outbox.what);
    // A table of somebody else's says nothing of whether ours are beside it.
    let created = match outbox.store.stats().await {
        _ if profile => None,
        Ok(_) => Some(false),
        Err(Error::Schema(SchemaError::Missing { .. })) => Some(true),
        Err(error) => return Err(error.into()),
    };
    outbox.store.migrate().await?;
    let list = tables.join(", ");
    let lanes = outbox.store.features().lanes;
    terminal.say(match created {
        Some(true) => format!("{name}: created {list} in {what}, with {}", count(lanes.into(), "lane")),
        Some(false) => {
            format!(
                "{name}: the tables are there already in {what}, with {}, and up to date: {list}",
                count(lanes.into(), "lane")
            )
        }
        None => {
            format!("{name}: {what} is left as it is; beside it are {list}, made where they were missing")
        }
    });
    Ok(json!({ "database": what, "created": created, "tables": tables, "lanes": lanes }))
}

/// The tables that a schema makes, as it names them.
fn tables(schema: &str) -> Vec<String> {
    let created = schema.lines().filter_map(|line| line.trim_start().strip_prefix("CREATE TABLE "));
    let names = created.map(|rest| rest.strip_prefix("IF NOT EXISTS ").unwrap_or(rest));
    let names = names.filter_map(|rest| rest.split(" (").next());
    names.map(|name| name.replace(['"', '`'], "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_schema_are_named() {
        let schema = "CREATE TABLE a_event (\n seq int);\nCREATE TABLE IF NOT EXISTS \"Odd Schema\".\"lane\" (x int);\n-- CREATE TABLE no\n";
        assert_eq!(tables(schema), ["a_event", "Odd Schema.lane"]);
    }
}
