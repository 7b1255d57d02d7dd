-- One look at all lanes of a claim, in one snapshot. {p} stands for the prefix, {key} for the key of an event e.
--
-- $1 lanes, $2 epochs, $3 nonces, $4 from where each lane is scanned behind its forward read, $5 where the read of fresh events ends, $6 and $7
-- where each lane's read of waiting events begins (microseconds of the epoch; null for the start), $8 what is in flight, $9 to be looked
-- at again, $10 most fresh rows of a lane, $11 how far over the first of them to look, $12 most waiting rows of a lane,
-- $13 the largest event that is read at once, or null for none, $14 where each lane's forward read stands, $15 the snapshot of the last scan
-- behind it, or null, $16 the transactions in which claims have written since, $17 most rows of a lane behind its forward read, $18 the
-- least of $4 where something lies behind, $19 the snapshot that a scan of several claims began with, or that of the last one that is over, or
-- null, $20 how far over the first row behind the forward reads to scan, or null if nothing lies there.
--
-- Kinds of rows: 0 the clock, the snapshot and where the database stands, 1 a lane that is held, 2 again, 3 fresh, 4 waiting, 5 coming back.
--
-- The fresh rows of a lane are found by its own cursor, and those of all lanes under a common ceiling: without it each lane
-- would give as many rows as the whole claim wants. The ceiling lies over the first row that any lane has, so a hole in the
-- numbers is one step. Nothing is sorted here: the rows of all lanes together are few, and the reader sorts them.
--
-- What lies behind the forward read has a ceiling of its own, over the first row there: little of it is late, but all of it is read. What the
-- last scan could see was met then. The transaction that wrote a row says which of them were not: one that committed late. A scan that goes on in further claims meets only what its first one
-- could see: of two events of a transaction that committed since, the first may lie behind it and the second before it.
--
-- A lane that is read from the very start is read from the first row that there is, and one that is scanned from the first row over $18. What
-- was delivered meanwhile lies before it until it is removed, and to pass that in the order of the rows took 0.4 s where 64 lanes, one after
-- the other, took 1.7 s (200,000 rows, 32 MB of buffers). Where there is no such row there is nothing to read, and no lane is searched.
--
-- What is in flight is left out by a hashed subquery: compared with an array, which a kept plan does one by one, a thousand of them
-- would cost more than the claim.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now,
           pg_current_snapshot()::text AS snapshot, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax, pg_snapshot_xmax(pg_current_snapshot()) AS ended_before
), scan AS MATERIALIZED (
    SELECT e.seq AS first, CASE WHEN e.seq > 9223372036854775807 - $20::bigint THEN 9223372036854775807 ELSE e.seq + $20 END AS ceiling
    FROM {p}event AS e
    WHERE $20 IS NOT NULL AND e.seq > $18::bigint ORDER BY e.seq LIMIT 1
), lane AS MATERIALIZED (
    SELECT u.lane, u.ends, u.front,
           CASE WHEN u.behind < u.front
                THEN greatest(u.behind, coalesce((SELECT scan.first - 1 FROM scan), u.front))
                ELSE u.front END AS behind,
           CASE WHEN u.front > 0 THEN u.front
                ELSE coalesce((SELECT e.seq - 1 FROM {p}event AS e ORDER BY e.seq LIMIT 1), 9223372036854775807) END AS begins,
           coalesce(timestamptz 'epoch' + u.due_at * interval '1 microsecond', '-infinity') AS due_at, u.due_seq
    FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                $14::bigint[]) AS u (lane, epoch, nonce, behind, ends, due_at, due_seq, front)
    JOIN {p}lane AS l ON l.lane = u.lane AND l.epoch = u.epoch AND l.nonce = u.nonce
), first AS MATERIALIZED (
    SELECT lane.lane, lane.ends, lane.front, e.seq
    FROM lane LEFT JOIN LATERAL (
        SELECT e.seq FROM {p}event AS e
        WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked
          AND e.seq > lane.begins AND e.seq <= lane.ends AND {not_in_flight}
        ORDER BY e.seq LIMIT 1) AS e ON true
), ceiling AS MATERIALIZED (
    -- No sum may be larger than a number can be. Not by least(), which leaves out what is null: no row, no ceiling.
    SELECT CASE WHEN min(first.seq) > 9223372036854775807 - $11::bigint THEN 9223372036854775807 ELSE min(first.seq) + $11 END AS seq
    FROM first
), met AS (
    SELECT 2 AS kind, e.*, false AS unscanned FROM {p}event AS e JOIN lane ON lane.lane = e.lane
    WHERE e.seq = ANY ($9::bigint[]) AND e.status IN (0, 2) AND NOT e.parked
    UNION ALL
    SELECT 3, e.*, false
    FROM lane CROSS JOIN LATERAL (
        SELECT e.* FROM {p}event AS e
        WHERE lane.behind < lane.front AND e.lane = lane.lane AND e.status = 0 AND NOT e.parked
          AND e.seq > lane.behind AND e.seq <= least(lane.front, (SELECT ceiling FROM scan)) AND {not_in_flight} AND {late}
        ORDER BY e.seq LIMIT $17::bigint) AS e
    UNION ALL
    SELECT 3, e.*
    FROM first CROSS JOIN LATERAL (
        SELECT e.*, {unscanned} AS unscanned FROM {p}event AS e
        WHERE e.lane = first.lane AND e.status = 0 AND NOT e.parked
          AND e.seq >= first.seq AND e.seq <= least(first.ends, (SELECT seq FROM ceiling)) AND {not_in_flight}
        ORDER BY e.seq LIMIT $10::bigint) AS e
    UNION ALL
    SELECT 4, e.*, false
    FROM lane CROSS JOIN LATERAL (
        SELECT e.* FROM {p}event AS e
        WHERE e.lane = lane.lane AND e.status = 2 AND NOT e.parked
          AND (e.available_at, e.seq) > (lane.due_at, lane.due_seq) AND e.available_at <= (SELECT now FROM clock)
          AND {not_in_flight}
        ORDER BY e.available_at, e.seq LIMIT $12::bigint) AS e
), judged AS (
    SELECT e.*, h.seq AS head, h.reason = 'returning' AS coming_back, {weight} AS weight,
           e.kind = 3 AND {weight} <= $13::bigint AND coalesce(h.seq, e.seq) = e.seq AS read
    FROM met AS e
    LEFT JOIN LATERAL (SELECT h.seq, h.reason FROM {p}hold AS h
                       WHERE h.lane = e.lane AND h.effective_key = {key} LIMIT 1) AS h ON true
)
SELECT e.kind, e.lane, e.seq, e.status, e.available_at, e.created_at, e.head, e.coming_back, e.weight, {key} AS key,
       e.event_type, e.aggregate_type, coalesce(e.read, false) AS read, e.attempts, e.event_id, e.aggregate_id, e.ordering_key,
       e.tenant_id, e.content_type, e.occurred_at, {sizes},
       CASE WHEN e.read THEN {headers} END AS headers,
       CASE WHEN e.read THEN {payload} END AS payload,
       CASE WHEN e.read THEN {payload_bytes} END AS payload_bytes, e.unscanned
FROM judged AS e
UNION ALL
SELECT 0, NULL, clock.xmin, NULL, NULL, clock.now, clock.xmax, NULL, (SELECT seq FROM ceiling), clock.snapshot,
       {wal_file}, {wal_place}, NULL, NULL, {table}, (SELECT ceiling::text FROM scan), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM clock
UNION ALL
SELECT 1, lane.lane, lane.seq, NULL, due.available_at, NULL, beyond.seq, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM first AS lane LEFT JOIN LATERAL (
    SELECT e.available_at FROM {p}event AS e
    WHERE e.lane = lane.lane AND e.status = 2 AND NOT e.parked AND e.available_at > (SELECT now FROM clock)
    ORDER BY e.available_at LIMIT 1) AS due ON true
LEFT JOIN LATERAL (
    SELECT e.seq FROM {p}event AS e
    WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked
      AND e.seq > (SELECT seq FROM ceiling) AND e.seq > lane.front AND e.seq <= lane.ends AND {not_in_flight}
    ORDER BY e.seq LIMIT 1) AS beyond ON true
UNION ALL
SELECT 5, h.lane, e.seq, e.status, e.available_at, NULL, h.seq, NULL, {weight}, h.effective_key, e.event_type, e.aggregate_type,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM (SELECT h.lane, h.effective_key, h.seq
      FROM lane CROSS JOIN LATERAL (
          SELECT h.lane, h.effective_key, h.seq FROM {p}hold AS h
          WHERE h.lane = lane.lane AND h.reason = 'returning' ORDER BY h.seq LIMIT {keys} + 1) AS h
      ORDER BY h.seq LIMIT {keys} + 1) AS h
LEFT JOIN LATERAL (
    SELECT e.* FROM {p}event AS e
    WHERE e.lane = h.lane AND {key} = h.effective_key AND e.parked
    ORDER BY e.seq LIMIT {of_a_key} + 1) AS e ON true
