-- The shop's own tables, beside the outbox in the same file.

-- One row for each start of the demo.
CREATE TABLE shop_start (
    start      INTEGER PRIMARY KEY AUTOINCREMENT,
    seed       TEXT NOT NULL,
    started_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

-- The business: what the transactions are about.
CREATE TABLE shop_order (
    order_id TEXT PRIMARY KEY,
    customer INTEGER NOT NULL,
    cents    INTEGER NOT NULL,
    state    TEXT NOT NULL
) STRICT;

-- The ledger. A row here is inserted by the transaction that writes the event, so it is here if that committed.
CREATE TABLE shop_written (
    event_id   TEXT PRIMARY KEY,
    event_key  TEXT,
    number     INTEGER, -- 1, 2, 3 within its key
    event_type TEXT NOT NULL,
    outcome       TEXT NOT NULL,
    UNIQUE (event_key, number)
) STRICT;

-- Inserted after the rollback, in a transaction of its own: a kill in between loses a row, and does no harm.
CREATE TABLE shop_rolled_back (
    event_id TEXT PRIMARY KEY,
    why      TEXT NOT NULL
) STRICT;

-- One row for each time that the receiver took an event.
CREATE TABLE shop_delivered (
    n            INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id     TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    path         TEXT NOT NULL, -- hot or cold
    delivered_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) STRICT;

CREATE INDEX shop_delivered_event ON shop_delivered (event_id, n);
