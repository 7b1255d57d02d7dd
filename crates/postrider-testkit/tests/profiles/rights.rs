//! Each role does its part on an external table under exactly the rights that are printed for it.

use std::sync::Arc;

use postrider_core::{Store, sink::error_chain};
use postrider_sqlx::profile::ProfileStore;
use postrider_testkit::conformance::{
    Checked,
    rights::{the_operator_can_operate, the_relay_can_deliver},
};

use crate::{server::Kind, systems::everywhere};

#[tokio::test]
async fn the_printed_rights_are_enough_for_every_verb_on_every_table() -> Checked {
    for (system, kind) in everywhere() {
        let database = system.database(kind).await?;
        let owner = ProfileStore::connect(&database.url, system.profile()?).await?;
        owner.migrate().await?;
        owner.close().await;
        let (relay, operator) = (database.add_user("relay").await?, database.add_user("operator").await?);
        for host in database.hosts() {
            let [relay, operator] = [&relay, &operator].map(|user| format!("{}{host}", user.name));
            database.run(&system.profile()?.grants_sql(&database.url, &relay, &operator)?).await?;
        }
        let checked = async {
            let store: Arc<dyn Store> = Arc::new(ProfileStore::connect(&relay.url, system.profile()?).await?);
            the_relay_can_deliver(&store).await?;
            let store: Arc<dyn Store> =
                Arc::new(ProfileStore::connect(&operator.url, system.profile()?).await?);
            the_operator_can_operate(&store).await
        };
        let checked = checked.await.map_err(|error| format!("{} on {kind:?}: {error}", system.name));
        for user in [relay, operator] {
            database.drop_user(&user).await?;
        }
        database.drop().await?;
        checked?;
    }
    Ok(())
}

/// The rights that are granted to this user, each with its table and how the user is written.
fn rights_of(user: &str, grants: &str) -> Vec<(String, String, String)> {
    let lines = grants.lines().filter_map(|line| line.strip_prefix("GRANT ")?.strip_suffix(';'));
    let parts = lines.filter_map(|line| {
        let (rights, rest) = line.split_once(" ON ")?;
        let (table, to) = rest.split_once(" TO ")?;
        to.contains(user).then_some((rights, table, to))
    });
    let each = parts.flat_map(|(rights, table, to)| {
        rights.split(", ").map(move |right| (right.to_owned(), table.to_owned(), to.to_owned()))
    });
    each.collect()
}

#[tokio::test]
async fn a_rehearsal_misses_every_right_that_is_printed_for_the_relay() -> Checked {
    for (system, kind) in everywhere() {
        let database = system.database(kind).await?;
        let owner = ProfileStore::connect(&database.url, system.profile()?).await?;
        owner.migrate().await?;
        owner.close().await;
        let relay = database.add_user("relay").await?;
        let mut rights = Vec::new();
        for host in database.hosts() {
            let user = format!("{}{host}", relay.name);
            let grants = system.profile()?.grants_sql(&database.url, &user, &user)?;
            let (grants, _) = grants.split_once("-- Who looks").ok_or("the operator's come last")?;
            database.run(grants).await?;
            rights.push(rights_of(&relay.name, grants));
        }
        let store = ProfileStore::connect(&relay.url, system.profile()?).await?;
        store.rehearse(true).await.map_err(|error| format!("{} on {kind:?}: {error}", system.name))?;
        let mut unmissed = Vec::new();
        for n in 0..rights[0].len() {
            for (right, table, to) in rights.iter().map(|rights| &rights[n]) {
                database.run(&format!("REVOKE {right} ON {table} FROM {to}")).await?;
            }
            let (right, table, _) = &rights[0][n];
            let told = store.rehearse(false).await.map_err(|error| error.to_string()).err();
            if !told.as_ref().is_some_and(|told| told.contains(&format!("the right to {right}"))) {
                unmissed.push(format!("{right} on {table}: {told:?}"));
            }
            for (right, table, to) in rights.iter().map(|rights| &rights[n]) {
                database.run(&format!("GRANT {right} ON {table} TO {to}")).await?;
            }
        }
        store.close().await;
        database.drop_user(&relay).await?;
        database.drop().await?;
        assert!(unmissed.is_empty(), "{} on {kind:?}: {unmissed:#?}", system.name);
    }
    Ok(())
}

#[tokio::test]
async fn a_rehearsal_misses_the_right_to_create_our_tables_and_the_schema_that_they_are_to_be_in() -> Checked
{
    for (system, kind) in everywhere() {
        let database = system.database(kind).await?;
        let relay = database.add_user("relay").await?;
        for host in database.hosts() {
            let to = match kind {
                Kind::Postgres => relay.name.clone(),
                Kind::Mysql => format!("'{}'@'{}'", relay.name, host.trim_start_matches('@')),
            };
            database.run(&format!("GRANT SELECT, UPDATE, DELETE ON {} TO {to}", system.table)).await?;
        }
        let store = ProfileStore::connect(&relay.url, system.profile()?).await?;
        let told = store.rehearse(true).await.map_err(|error| error_chain(&error)).err().unwrap_or_default();
        let reason = if kind == Kind::Mysql { "the right to CREATE" } else { "permission denied" };
        let right = told.contains(reason);
        store.close().await;
        let nowhere = system.profile()?.beside("no_such_schema.ours_")?;
        let store = ProfileStore::connect(&database.url, nowhere).await?;
        let missing =
            store.rehearse(true).await.map_err(|error| error_chain(&error)).err().unwrap_or_default();
        store.close().await;
        database.drop_user(&relay).await?;
        database.drop().await?;
        assert!(right, "{} on {kind:?}: {told}", system.name);
        assert!(missing.contains("no_such_schema"), "{} on {kind:?}: {missing}", system.name);
    }
    Ok(())
}
