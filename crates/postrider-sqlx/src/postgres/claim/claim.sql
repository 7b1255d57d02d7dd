-- One look at all lanes of a claim, in one snapshot. {p} stands for the prefix, {key} for the key of an event e.
--
-- $1 lanes, $2 epochs, $3 nonces, $4 where each lane's read of fresh events begins, $5 where it ends, $6 and $7 where each
-- lane's read of waiting events begins (microseconds of the epoch; null for the start), $8 what is in flight, $9 to be looked
-- at again, $10 most fresh rows of a lane, $11 how far over the first of them to look, $12 most waiting rows of a lane,
-- $13 the largest event that is read at once, or null for none, $14 where each lane's forward read stands, $15 the snapshot of the last look
-- behind it, or null, $16 the transactions in which claims have written since.
--
-- Kinds of rows: 0 the clock and the snapshot, 1 a lane that is held, 2 again, 3 fresh, 4 waiting, 5 coming back.
--
-- The fresh rows of a lane are found by its own cursor, and those of all lanes under a common ceiling: without it each lane
-- would give as many rows as the whole claim wants. The ceiling lies over the first row that any lane has, so a hole in the
-- numbers is one step. Nothing is sorted here: the rows of all lanes together are few, and whoever asked for them sorts them.
--
-- A lane that is read from the very start is read from the first row that there is. While an old snapshot is held open, all that was
-- delivered meanwhile lies before it, and to pass that in the order of the rows took 0.4 s where 64 lanes, one after the other, took 1.7 s
-- (200,000 rows, 32 MB of buffers).
--
-- What is in flight is left out by a hashed subquery: compared with an array, which a kept plan does one by one, a thousand of them
-- would cost more than the claim.
--
-- What lies behind the forward read and was seen by the last look was met then. The transaction that wrote a row says which of
-- them were not: one that committed late.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, statement_timestamp() AS at,
           pg_current_snapshot()::text AS snapshot, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax
), lane AS MATERIALIZED (
    SELECT u.lane, u.ends, u.front,
           CASE WHEN u.begins > 0 THEN u.begins
                ELSE coalesce((SELECT e.seq - 1 FROM {p}event AS e ORDER BY e.seq LIMIT 1), 0) END AS begins,
           coalesce(timestamptz 'epoch' + u.due_at * interval '1 microsecond', '-infinity') AS due_at, u.due_seq
    FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                $14::bigint[]) AS u (lane, epoch, nonce, begins, ends, due_at, due_seq, front)
    JOIN {p}lane AS l ON l.lane = u.lane AND l.epoch = u.epoch AND l.nonce = u.nonce
), first AS MATERIALIZED (
    SELECT lane.lane, lane.ends, lane.front, e.seq
    FROM lane LEFT JOIN LATERAL (
        SELECT e.seq FROM {p}event AS e
        WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked
          AND e.seq > lane.begins AND e.seq <= lane.ends AND {not_in_flight}
          AND (e.seq > lane.front OR {late})
        ORDER BY e.seq LIMIT 1) AS e ON true
), ceiling AS MATERIALIZED (
    SELECT min(first.seq) + $11::bigint AS seq FROM first
), met AS (
    SELECT 2 AS kind, e.* FROM {p}event AS e JOIN lane ON lane.lane = e.lane
    WHERE e.seq = ANY ($9::bigint[]) AND e.status IN (0, 2) AND NOT e.parked
    UNION ALL
    SELECT 3, e.*
    FROM first CROSS JOIN LATERAL (
        SELECT e.* FROM {p}event AS e
        WHERE e.lane = first.lane AND e.status = 0 AND NOT e.parked
          AND e.seq >= first.seq AND e.seq <= least(first.ends, (SELECT seq FROM ceiling)) AND {not_in_flight}
          AND (e.seq > first.front OR {late})
        ORDER BY e.seq LIMIT $10::bigint) AS e
    UNION ALL
    SELECT 4, e.*
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
       CASE WHEN e.read THEN {payload_bytes} END AS payload_bytes
FROM judged AS e
UNION ALL
SELECT 0, NULL, clock.xmin, NULL, clock.at, clock.now, clock.xmax, NULL, (SELECT seq FROM ceiling), clock.snapshot,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM clock
UNION ALL
SELECT 1, lane.lane, lane.seq, NULL, due.available_at, NULL, beyond.seq, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM first AS lane LEFT JOIN LATERAL (
    SELECT e.available_at FROM {p}event AS e
    WHERE e.lane = lane.lane AND e.status = 2 AND NOT e.parked AND e.available_at > (SELECT now FROM clock)
    ORDER BY e.available_at LIMIT 1) AS due ON true
LEFT JOIN LATERAL (
    SELECT e.seq FROM {p}event AS e
    WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked
      AND e.seq > (SELECT seq FROM ceiling) AND e.seq <= lane.ends AND {not_in_flight} AND (e.seq > lane.front OR {late})
    ORDER BY e.seq LIMIT 1) AS beyond ON true
UNION ALL
SELECT 5, h.lane, e.seq, e.status, e.available_at, NULL, h.seq, NULL, {weight}, h.effective_key, e.event_type, e.aggregate_type,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM (SELECT h.lane, h.effective_key, h.seq
      FROM lane CROSS JOIN LATERAL (
          SELECT h.lane, h.effective_key, h.seq FROM {p}hold AS h
          WHERE h.lane = lane.lane AND h.reason = 'returning' ORDER BY h.seq LIMIT {keys} + 1) AS h
      ORDER BY h.seq LIMIT {keys} + 1) AS h
LEFT JOIN LATERAL (
    SELECT e.* FROM {p}event AS e
    WHERE e.lane = h.lane AND {key} = h.effective_key AND e.parked
    ORDER BY e.seq LIMIT {of_a_key} + 1) AS e ON true
