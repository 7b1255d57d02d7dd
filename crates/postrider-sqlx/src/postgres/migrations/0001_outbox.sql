-- Postrider's tables, version 1, for PostgreSQL, with {n} lanes.

CREATE TABLE {p}meta (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- Events that are not delivered. INSERT INTO {p}event (event_type, payload) VALUES (...) is enough, from any language.
CREATE TABLE {p}event (
    -- Without a cache: a session that kept numbers back would write small ones long after large ones were read.
    seq            bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    -- The outermost transaction that wrote it. The row's own xmin is another one if there was a savepoint, and a snapshot does not know it.
    written_in     xid8        NOT NULL DEFAULT pg_current_xact_id(),
    -- When it is due; of a dead one, since when it is dead. Before created_at, so that of two clocks that are read for one row this is
    -- never the later one.
    available_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    occurred_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts       integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    lane_hint      integer,    -- where an event without a key should go; no more than a wish
    status         smallint    NOT NULL DEFAULT 0 CHECK (status IN (0, 2, 3)), -- 0 new, 2 waiting, 3 dead
    parked         boolean     NOT NULL DEFAULT false,
    -- A UUID of version 7, which begins with the time: in an index of random ones every event would change a page of its own.
    event_id       text COLLATE "C" NOT NULL DEFAULT overlay(gen_random_uuid()::text PLACING
                       overlay(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') PLACING '-' FROM 9 FOR 0)
                       || '-7' FROM 1 FOR 15),
    event_type     text COLLATE "C" NOT NULL,
    aggregate_type text COLLATE "C" NOT NULL DEFAULT '__GLOBAL__',
    aggregate_id   text COLLATE "C",
    ordering_key   text COLLATE "C",
    tenant_id      text COLLATE "C",
    content_type   text COLLATE "C" NOT NULL DEFAULT 'application/json',
    headers        text,
    last_error     text,
    payload        text,
    payload_bytes  bytea,
    CONSTRAINT {p}event_payload CHECK ((payload IS NULL) <> (payload_bytes IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE UNIQUE INDEX {p}event_id ON {p}event (event_id);
CREATE INDEX {p}event_dead ON {p}event (seq) WHERE status = 3;

{lanes}
-- Delivered events, kept until their retention ends. Nothing is unique here: a settle must not fail over what a restored
-- backup left behind.
CREATE TABLE {p}done (
    seq            bigint      NOT NULL,
    available_at   timestamptz NOT NULL,
    created_at     timestamptz NOT NULL,
    occurred_at    timestamptz NOT NULL,
    done_at        timestamptz NOT NULL,
    attempts       integer     NOT NULL,
    lane           integer     NOT NULL,
    event_id       text COLLATE "C" NOT NULL,
    event_type     text COLLATE "C" NOT NULL,
    aggregate_type text COLLATE "C" NOT NULL,
    aggregate_id   text COLLATE "C",
    ordering_key   text COLLATE "C",
    tenant_id      text COLLATE "C",
    content_type   text COLLATE "C" NOT NULL,
    headers        text,
    last_error     text,
    payload        text,
    payload_bytes  bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE INDEX {p}done_at ON {p}done (done_at);
CREATE INDEX {p}done_id ON {p}done (event_id);

-- Instances, those without a lane included, and until when they are believed to be there.
CREATE TABLE {p}member (
    instance text COLLATE "C" PRIMARY KEY,
    until    timestamptz NOT NULL,
    lease_us bigint      NOT NULL
);

-- Keys that wait for one event, their head.
CREATE TABLE {p}hold (
    lane          integer NOT NULL,
    effective_key text COLLATE "C" NOT NULL,
    seq           bigint  NOT NULL,
    until         timestamptz,
    reason        text COLLATE "C" NOT NULL,
    PRIMARY KEY (lane, effective_key)
) WITH (fillfactor = 70);

CREATE INDEX {p}hold_returning ON {p}hold (lane, seq) WHERE reason = 'returning';

-- What an operator has told to wait: the whole source (with an empty name), types by a pattern, a key, a sink.
CREATE TABLE {p}pause (
    kind   text COLLATE "C" NOT NULL CHECK (kind IN ('source', 'type', 'key', 'sink')),
    name   text COLLATE "C" NOT NULL,
    since  timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
);

INSERT INTO {p}meta (name, value) VALUES ('schema_version', '1'), ('lanes', '{n}');
