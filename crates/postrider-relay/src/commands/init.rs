//! `postrider init`: creates the tables of an outbox, or prints the SQL that does.

use clap::Args as ClapArgs;
use postrider::{Error, SchemaError};
use serde_json::{Map, Value, json};

use super::target::{Outbox, Target};
use crate::{
    Conclusion,
    config::Source,
    failure::Failure,
    relay,
    terminal::{Terminal, count},
};

/// Create the tables of an outbox, or print the SQL that creates them
///
/// Existing tables stay as they are, so it can be repeated. An external outbox table is never changed; only small tables beside it are created.
///
/// Example: postrider init --print | psql shop
#[derive(ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Number of lanes of new tables: at most this many instances deliver at once
    #[arg(long, value_name = "NUMBER")]
    lanes: Option<u32>,
    /// Print the SQL of the tables without connecting to a database
    #[arg(long)]
    print: bool,
    /// Print the GRANTs of three roles without connecting to a database
    #[arg(long)]
    grants: bool,
    /// The role that writes events, for --grants
    #[arg(long, value_name = "ROLE", default_value = "writer", requires = "grants")]
    writer: String,
    /// The role that delivers events, for --grants
    #[arg(long, value_name = "ROLE", default_value = "relay", requires = "grants")]
    relay: String,
    /// The role of operators, for --grants
    #[arg(long, value_name = "ROLE", default_value = "operator", requires = "grants")]
    operator: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<Conclusion, Failure> {
    let terminal = Terminal::new(args.json);
    let mut answer = Map::new();
    for mut named in args.target.sources()? {
        named.source.lanes = args.lanes.or(named.source.lanes);
        let name = named.name.clone();
        let of_source = |failure: Failure| failure.of(&format!("the source `{name}`"));
        let result = if args.print || args.grants {
            print(terminal, &args, &named.source).map_err(of_source)?
        } else {
            let tables = tables(&relay::schema_sql(&named.source).map_err(|error| of_source(error.into()))?);
            let profile = named.source.profile.is_some();
            // `connect` names the source in its own errors.
            make(terminal, named.connect().await?, tables, profile).await.map_err(of_source)?
        };
        answer.insert(name.clone(), result);
    }
    terminal.print_json(answer);
    Ok(Conclusion::Good)
}

/// Prints SQL for the database's own client.
fn print(terminal: Terminal, args: &Args, source: &Source) -> Result<Value, Failure> {
    let mut printed = Map::new();
    if args.print {
        let schema = relay::schema_sql(source)?;
        terminal.print(schema.trim_end());
        printed.insert("schema".to_owned(), json!(schema));
    }
    if args.grants {
        let grants = relay::grants_sql(source, &args.writer, &args.relay, &args.operator)?;
        let grants_text = grants
            .as_deref()
            .unwrap_or("-- SQLite has no users: anyone who may write to the file may do everything.");
        terminal.print(grants_text.trim_end());
        printed.insert("grants".to_owned(), json!(grants));
    }
    Ok(Value::Object(printed))
}

/// Creates the tables that are missing and prints which tables exist now.
async fn make(
    terminal: Terminal,
    outbox: Outbox,
    tables: Vec<String>,
    profile: bool,
) -> Result<Value, Failure> {
    let (name, what) = (&outbox.name, &outbox.what);
    // An external table does not show whether the tables beside it exist.
    let created = match outbox.store.stats().await {
        _ if profile => None,
        Ok(_) => Some(false),
        Err(Error::Schema(SchemaError::Missing { .. })) => Some(true),
        Err(error) => return Err(error.into()),
    };
    outbox.store.migrate().await?;
    let list = tables.join(", ");
    let lanes = outbox.store.features().lanes;
    terminal.print(match created {
        Some(true) => format!("{name}: created {list} in {what}, with {}", count(lanes.into(), "lane")),
        Some(false) => {
            format!(
                "{name}: {what} has the tables already, with {}, and they are up to date: {list}",
                count(lanes.into(), "lane")
            )
        }
        None => {
            format!("{name}: {what} is unchanged; the tables beside it exist now: {list}")
        }
    });
    Ok(json!({ "database": what, "created": created, "tables": tables, "lanes": lanes }))
}

/// The names of the tables that a schema creates.
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
