//! Postrider's engine: write, claim, deliver, settle; and the in-memory store.
