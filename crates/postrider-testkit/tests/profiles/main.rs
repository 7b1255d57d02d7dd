//! Delivery from tables that somebody else designed: each system's own DDL, rows written with its own SQL, on PostgreSQL and MariaDB.

mod conformance;
mod custom;
mod debezium;
mod flowcatalyst;
mod outbox_java;
mod server;
mod spring_outbox;
