//! Postrider's SQL stores, through sqlx.
