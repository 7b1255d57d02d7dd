//! Delivery from external outbox tables: each system's own DDL, rows written with its own SQL, on PostgreSQL and MariaDB.

mod conformance;
mod custom;
mod debezium;
mod defaults;
mod flowcatalyst;
mod instances;
mod outage;
mod outbox_java;
mod plans;
mod recovery;
mod rights;
mod rules;
mod server;
mod spring_outbox;
mod systems;
mod texts;
