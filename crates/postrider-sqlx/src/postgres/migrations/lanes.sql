-- Lanes. The database computes the lane of an event, so that every writer agrees: a hash of the key, which is the
-- ordering_key or else the aggregate; without a key the hint, or else a hash of the id.
ALTER TABLE {p}event ADD COLUMN lane integer NOT NULL GENERATED ALWAYS AS (
    CASE
        WHEN coalesce(ordering_key, aggregate_type || ':' || aggregate_id) IS NOT NULL
            THEN (hashtextextended(coalesce(ordering_key, aggregate_type || ':' || aggregate_id), 0)
                  & 9223372036854775807) % {n}
        WHEN lane_hint IS NOT NULL THEN (lane_hint & 2147483647) % {n}
        ELSE (hashtextextended(event_id, 0) & 9223372036854775807) % {n}
    END::integer) STORED;

-- What claims read: fresh events in order, and those that wait by their time. Neither holds what is dead or parked.
CREATE INDEX {p}event_fresh ON {p}event (lane, seq) WHERE status = 0 AND NOT parked;
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

INSERT INTO {p}lane (lane) SELECT generate_series(0, {n} - 1);
