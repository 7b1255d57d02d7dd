//! An event exists if and only if its transaction committed: the checks of the conformance suite that are about writing, for every
//! driver, directly and through PgBouncer in transaction mode.

mod support;

macro_rules! drivers {
    ($($module:ident: $driver:ident,)*) => {
        $(mod $module {
            mod direct {
                use crate::support::{drivers::$driver, harness::{Direct, DriverHarness}};
                postrider_testkit::writer_conformance!(DriverHarness<$driver, Direct>);
            }
            mod pooled {
                use crate::support::{drivers::$driver, harness::{DriverHarness, Pooled}};
                postrider_testkit::writer_conformance!(DriverHarness<$driver, Pooled>);
            }
        })*
    };
}

drivers! {
    tokio_postgres: TokioPostgres,
    tokio_postgres_client: TokioPostgresClient,
    deadpool_postgres: DeadpoolPostgres,
    diesel_async: DieselAsync,
    sea_orm: SeaOrm,
}
