-- Postrider's tables, version 1, for PostgreSQL, with {n} lanes.

CREATE TABLE {p}meta (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- Events that are not delivered. INSERT INTO {p}event (event_type, payload) VALUES (...) is enough, from any language.
-- What can never be delivered is refused here, so that its writer is told: lengths by the types, the rest by the trigger. A CHECK constraint
-- or a generated column is compiled anew by every statement; a trigger's function once for each session.
CREATE TABLE {p}event (
    -- The outermost transaction that inserted it, set by the trigger. The row's own xmin is another one if there was a savepoint, and a
    -- snapshot does not know it.
    written_in     xid8        NOT NULL DEFAULT pg_current_xact_id(),
    -- Without a cache: a session that kept numbers back would write small ones long after large ones were read.
    seq            bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    -- When it is due; of a dead one, since when it is dead. Before created_at, so that of two clocks that are read for one row this is
    -- never the later one.
    available_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    occurred_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts       integer     NOT NULL DEFAULT 0,
    lane           integer     NOT NULL, -- set by the trigger, whatever a writer says
    lane_hint      integer,    -- where an event without a key should go; no more than a wish
    status         smallint    NOT NULL DEFAULT 0, -- 0 new, 2 waiting, 3 dead
    parked         boolean     NOT NULL DEFAULT false,
    -- A UUID of version 7, which begins with the time: in an index of random ones every event would change a page of its own.
    event_id       varchar(36) COLLATE "C" NOT NULL DEFAULT overlay(gen_random_uuid()::text PLACING
                       overlay('0' || to_hex((date_part('epoch', clock_timestamp()) * 1000)::bigint) PLACING '-' FROM 9 FOR 0)
                       || '-7' FROM 1 FOR 15),
    event_type     varchar(128) COLLATE "C" NOT NULL,
    aggregate_type varchar(64)  COLLATE "C" NOT NULL DEFAULT '__GLOBAL__',
    aggregate_id   varchar(128) COLLATE "C",
    ordering_key   varchar(255) COLLATE "C",
    tenant_id      varchar(64)  COLLATE "C",
    content_type   varchar(128) COLLATE "C" NOT NULL DEFAULT 'application/json',
    headers        text,
    last_error     text,
    payload        text,
    payload_bytes  bytea
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- PostgreSQL 18 makes such a UUID itself, in a third of the time.
DO $$ BEGIN
    IF current_setting('server_version_num')::integer >= 180000 THEN
        ALTER TABLE {p}event ALTER event_id SET DEFAULT uuidv7();
    END IF;
END $$;

CREATE UNIQUE INDEX {p}event_id ON {p}event (event_id);
CREATE INDEX {p}event_dead ON {p}event (seq) WHERE status = 3;
-- What claims read: fresh events in order, and those that wait by their time. Neither holds what is dead or parked.
CREATE INDEX {p}event_fresh ON {p}event (lane, seq) WHERE status = 0 AND NOT parked;
-- Where claims find what has committed since the last one, whatever its seq.
CREATE INDEX {p}event_written ON {p}event (written_in, seq) WHERE status = 0 AND NOT parked;
CREATE INDEX {p}event_waiting ON {p}event (lane, available_at, seq) WHERE status = 2 AND NOT parked;
CREATE INDEX {p}event_parked
    ON {p}event (lane, (coalesce(ordering_key, aggregate_type || ':' || aggregate_id)), seq) WHERE parked;

CREATE TABLE {p}lane (
    lane         integer PRIMARY KEY,
    owner        text COLLATE "C",
    epoch        bigint  NOT NULL DEFAULT 0,
    nonce        bigint, -- null while nobody holds the lane: null is never a token
    leased_until timestamptz,
    lease_us     bigint, -- how long the lease was asked for: it cannot end later than that from now, whatever the clock did
    clean        boolean NOT NULL DEFAULT true, -- whether the last owner gave it back
    sent_to      bigint  NOT NULL DEFAULT 0     -- events up to this one may be under way
) WITH (fillfactor = 30);

{lanes}
CREATE TRIGGER {p}event_insert BEFORE INSERT ON {p}event FOR EACH ROW EXECUTE FUNCTION {p}event_insert();

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
    kind   text COLLATE "C" NOT NULL CHECK (kind IN ('source', 'type', 'key', 'sink', 'rejected', 'brake')),
    name   text COLLATE "C" NOT NULL,
    since  timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL DEFAULT '',
    PRIMARY KEY (kind, name)
);

INSERT INTO {p}meta (name, value) VALUES ('schema_version', '1'), ('lanes', '{n}');
