-- Postrider's tables, version 1, for SQLite.

-- Events that are not delivered. INSERT INTO {p}event (event_type, payload) VALUES (...) is enough, from any language.
-- What a claim looks at comes before what it weighs, so that judging a row does not read its payload.
CREATE TABLE {p}event (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT CHECK (seq > 0),
    lane           INTEGER NOT NULL DEFAULT 0 CHECK (lane = 0), -- SQLite has one
    status         INTEGER NOT NULL DEFAULT 0 CHECK (status IN (0, 2, 3)), -- 0 new, 2 waiting, 3 dead
    parked         INTEGER NOT NULL DEFAULT 0 CHECK (parked IN (0, 1)),
    attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    -- When it is due; of a dead one, since when it is dead.
    available_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) * 1000),
    created_at     INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) * 1000),
    occurred_at    INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) * 1000),
    event_id       TEXT    NOT NULL DEFAULT (lower(hex(randomblob(16)))),
    event_type     TEXT    NOT NULL,
    aggregate_type TEXT    NOT NULL DEFAULT '__GLOBAL__',
    aggregate_id   TEXT,
    ordering_key   TEXT,
    -- The key that orders the event; null where nothing does.
    effective_key  TEXT    AS (coalesce(ordering_key, aggregate_type || ':' || aggregate_id)) VIRTUAL,
    tenant_id      TEXT,
    content_type   TEXT    NOT NULL DEFAULT 'application/json',
    headers        TEXT,
    last_error     TEXT,
    payload        TEXT,
    payload_bytes  BLOB,
    -- What can never be delivered is refused here, so that its writer is told.
    CHECK ((payload IS NULL) <> (payload_bytes IS NULL)
           AND length(event_id) BETWEEN 1 AND 36 AND length(event_type) BETWEEN 1 AND 128
           AND length(aggregate_type) BETWEEN 1 AND 64 AND length(content_type) BETWEEN 1 AND 128
           AND ifnull(length(aggregate_id), 1) BETWEEN 1 AND 128 AND ifnull(length(ordering_key), 1) BETWEEN 1 AND 255
           AND ifnull(length(tenant_id), 1) BETWEEN 1 AND 64
           AND coalesce(length(payload_bytes), length(CAST(payload AS BLOB))) <= 1048576)
) STRICT;

CREATE UNIQUE INDEX {p}event_id ON {p}event (event_id);
-- Every index ends in the rowid, which is seq; naming it once more would only cost room.
CREATE INDEX {p}event_fresh ON {p}event (lane) WHERE status = 0 AND parked = 0;
CREATE INDEX {p}event_waiting ON {p}event (lane, available_at) WHERE status = 2 AND parked = 0;
CREATE INDEX {p}event_parked ON {p}event (lane, effective_key) WHERE parked = 1;
CREATE INDEX {p}event_dead ON {p}event (seq) WHERE status = 3;

-- What only deliveries write. A CHECK would refuse it to them too.
CREATE TRIGGER {p}event_insert BEFORE INSERT ON {p}event
WHEN NEW.status <> 0 OR NEW.attempts <> 0 OR NEW.parked <> 0
BEGIN
    SELECT RAISE(ABORT, 'this event can never be delivered: leave status, attempts and parked to their defaults');
END;

-- Delivered events, kept until their retention ends.
CREATE TABLE {p}done (
    seq            INTEGER PRIMARY KEY,
    lane           INTEGER NOT NULL,
    attempts       INTEGER NOT NULL,
    available_at   INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    occurred_at    INTEGER NOT NULL,
    done_at        INTEGER NOT NULL,
    event_id       TEXT    NOT NULL,
    event_type     TEXT    NOT NULL,
    aggregate_type TEXT    NOT NULL,
    aggregate_id   TEXT,
    ordering_key   TEXT,
    tenant_id      TEXT,
    content_type   TEXT    NOT NULL,
    headers        TEXT,
    last_error     TEXT,
    payload        TEXT,
    payload_bytes  BLOB
) STRICT;

CREATE INDEX {p}done_at ON {p}done (done_at);
CREATE INDEX {p}done_id ON {p}done (event_id);

-- Who may deliver. SQLite has one lane.
CREATE TABLE {p}lane (
    lane         INTEGER PRIMARY KEY,
    owner        TEXT,
    epoch        INTEGER NOT NULL DEFAULT 0,
    nonce        INTEGER, -- null while nobody holds the lane: null is never a token
    leased_until INTEGER,
    lease_us     INTEGER, -- how long the lease was asked for: it cannot end later than that from now, whatever the clock did
    clean        INTEGER NOT NULL DEFAULT 1, -- whether the last owner gave it back
    sent_to      INTEGER NOT NULL DEFAULT 0  -- events up to this one may be under way
) STRICT;

INSERT INTO {p}lane (lane) VALUES (0);

-- Instances, those without a lane included, and until when they are believed to be there.
CREATE TABLE {p}member (
    instance TEXT    PRIMARY KEY,
    until    INTEGER NOT NULL,
    lease_us INTEGER NOT NULL
) STRICT;

-- Keys that wait for one event, their head.
CREATE TABLE {p}hold (
    lane          INTEGER NOT NULL,
    effective_key TEXT    NOT NULL,
    seq           INTEGER NOT NULL,
    until         INTEGER,
    reason        TEXT    NOT NULL,
    PRIMARY KEY (lane, effective_key)
) STRICT;

CREATE INDEX {p}hold_returning ON {p}hold (lane, seq) WHERE reason = 'returning';

-- What an operator has told to wait: the whole source (with an empty name), types by a pattern, a key, a sink.
CREATE TABLE {p}pause (
    kind   TEXT    NOT NULL CHECK (kind IN ('source', 'type', 'key', 'sink', 'rejected', 'brake')),
    name   TEXT    NOT NULL,
    since  INTEGER NOT NULL,
    reason TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
) STRICT;

CREATE TABLE {p}meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

INSERT INTO {p}meta (name, value) VALUES ('schema_version', '1'), ('lanes', '1');
