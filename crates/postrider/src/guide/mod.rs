//! The guide: how to write events, how to handle them, and what happens when something fails.
//!
//! | chapter | what it answers |
//! | --- | --- |
//! | [`writing`] | How do I write an event in my transaction? What is refused? |
//! | [`handling`] | What may a handler return? How do I write a sink? What runs around a delivery? |
//! | [`ordering`] | Which events are delivered in order? What is a key? |
//! | [`retries`] | When is an event tried again, when is it dead, and what then? |
//! | [`relay`] | How do I deliver to Kafka or HTTP without code, or from a program in another language? |
//! | [`testing`] | How do I test code that writes events? |
//!
//! The examples of these chapters run in the tests. Most of them use a [store in memory](crate::memory), which needs no database; put
//! `SqliteStore`, `PgStore` or `MysqlStore` in its place.
//!
//! # Five terms
//!
//! * An **event** is a row that you insert in your own transaction: a type, a payload, and perhaps a key.
//! * The **outbox** is the table of such rows.
//! * The **engine** runs in your process or in the relay. It *claims* rows (reads those that are due), *delivers* them to handlers and sinks, and
//!   *settles* them (writes back what became of them).
//! * A **key** orders events. Events of one key are delivered one after the other, in the order in which they were committed.
//! * A **lease** gives one engine the right to deliver a share of the keys. If its process dies, another engine takes over when the lease ends.
//!
//! # What is promised
//!
//! Delivery is at least once. An event exists if and only if its transaction committed, and it is delivered or becomes a visible dead letter.
//! Duplicates carry the same event ID: consumers deduplicate on it.

pub mod handling;
pub mod ordering;
pub mod relay;
pub mod retries;
pub mod testing;
pub mod writing;
