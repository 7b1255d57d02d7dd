//! Each role does its part under exactly the rights that are printed for it.

use std::sync::Arc;

use postrider::{Prefix, Store, mysql::MysqlStore, postgres::PgStore};
use postrider_testkit::conformance::{
    Failure,
    rights::{the_operator_can_operate, the_relay_can_deliver},
};

use crate::database::{Database, Kind, lazy_store};

/// Six events of different keys, and one that waits behind another.
fn events() -> String {
    let rows: Vec<String> = (0..7).map(|n| format!("('Tested', '{{}}', 'k{}')", n % 6)).collect();
    format!("INSERT INTO postrider_event (event_type, payload, ordering_key) VALUES {}", rows.join(", "))
}

async fn the_printed_rights_are_enough(kind: Kind) -> Result<(), Failure> {
    let database = Database::new(kind).await?;
    let owner = lazy_store(kind, &database.url()?)?;
    owner.migrate().await?;
    database.run(&events()).await?;
    let [writer, relay, operator] = ["w", "r", "o"].map(|role| format!("{role}_{}", database.name()));
    for role in [&writer, &relay, &operator] {
        database.add_user(role).await?;
    }
    let prefix = Prefix::default();
    match kind {
        Kind::Postgres => database.run(&PgStore::grants_sql(&prefix, &writer, &relay, &operator)).await?,
        Kind::Mysql => {
            for host in ["%", "localhost"] {
                let [writer, relay, operator] =
                    [&writer, &relay, &operator].map(|role| format!("{role}@{host}"));
                database.run(&MysqlStore::grants_sql(&prefix, &writer, &relay, &operator)).await?;
            }
        }
    }
    let as_role =
        |role: &str| -> Result<Arc<dyn Store>, Failure> { lazy_store(kind, &database.url_as(role)?) };
    let checked = async {
        the_relay_can_deliver(&as_role(&relay)?).await?;
        the_operator_can_operate(&as_role(&operator)?).await
    };
    let checked = checked.await;
    for role in [&writer, &relay, &operator] {
        database.drop_user(role).await?;
    }
    checked
}

#[tokio::test]
async fn the_rights_that_are_printed_for_postgresql_are_enough_for_every_verb() -> Result<(), Failure> {
    the_printed_rights_are_enough(Kind::Postgres).await
}

#[tokio::test]
async fn the_rights_that_are_printed_for_mysql_are_enough_for_every_verb() -> Result<(), Failure> {
    the_printed_rights_are_enough(Kind::Mysql).await
}
