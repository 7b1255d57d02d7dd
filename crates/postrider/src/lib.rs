//! A transactional outbox: write events inside your own database transaction, have them delivered in order.
