-- One read of all lanes of a claim, in one snapshot. {p} stands for the prefix, {key} for the key of an event e.
--
-- $1 lanes, $2 epochs, $3 nonces, $4 from where each lane's forward read goes on, or null where it has no turn, $5 where the read of fresh
-- events ends, $6 and $7 where each lane's read of waiting events begins (microseconds of the epoch; null for the start), $8 what is in flight,
-- $9 to be read again, $10 most fresh rows of a lane, $11 how far over the first of them to read, $12 most waiting rows of a lane,
-- $13 the largest event that is read at once, or null for none, $14 the snapshot since which everything that committed is unmet, or null,
-- $15 the transactions of a scan that goes on, $16 beyond which seq, $17 up to which seq rows are late, $18 most late rows.
--
-- Kinds of rows: 0 the clock, the snapshot and where the database stands, 1 a lane that is held, 2 again, 3 fresh, 4 waiting, 5 coming back,
-- 6 late.
--
-- The fresh rows of a lane are found by its own cursor, and those of all lanes under a common ceiling: without it each lane
-- would give as many rows as the whole claim wants. The ceiling lies over the first row that any lane has, so a hole in the
-- numbers is one step. Nothing is sorted here: the rows of all lanes together are few, and the reader sorts them.
--
-- What is late is found by the transaction that inserted it: one that the snapshot of the claim before names as in progress and that is over, or one
-- beyond the end of that snapshot. A visible row with a larger number than this snapshot's end was restored from another server. All
-- transactions beyond the end are one walk over what was written since, and most of that lies in front of the forward reads, which the index tells.
--
-- Late rows are sought by their transaction, spelled so that no other index can give them in that order: by the primary key everything that was
-- skipped would be walked once for each transaction.
--
-- Late rows are then read by the primary key: adding zero to the status keeps them from an index that begins with the lane.
--
-- A lane that is read from the very start is read from the first row that there is. What was delivered lies before it until it is
-- removed, and to pass that in the order of the rows took 0.4 s where 64 lanes, one after the other, took 1.7 s (200,000 rows, 32 MB of
-- buffers). Where there is no such row there is nothing to read, and no lane is searched.
--
-- What is in flight is left out by a hashed subquery: compared with an array, which a kept plan does one by one, a thousand of them
-- would cost more than the claim.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_snapshot()::text AS snapshot,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax
), lane AS MATERIALIZED (
    SELECT u.lane, u.ends, u.front,
           CASE WHEN u.front > 0 THEN u.front
                ELSE coalesce((SELECT e.seq - 1 FROM {p}event AS e ORDER BY e.seq LIMIT 1), 9223372036854775807) END AS begins,
           coalesce(timestamptz 'epoch' + u.due_at * interval '1 microsecond', '-infinity') AS due_at, u.due_seq
    FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                $7::bigint[]) AS u (lane, epoch, nonce, front, ends, due_at, due_seq)
    JOIN {p}lane AS l ON l.lane = u.lane AND l.epoch = u.epoch AND l.nonce = u.nonce
), ended AS MATERIALIZED (
    SELECT x.id FROM pg_snapshot_xip($14::text::pg_snapshot) AS x (id) WHERE pg_visible_in_snapshot(x.id, (SELECT pg_current_snapshot()))
    UNION ALL
    SELECT x.id::text::xid8 FROM unnest($15::bigint[]) AS x (id)
), held AS MATERIALIZED (
    SELECT ARRAY (SELECT lane.lane FROM lane) AS lanes
), late AS MATERIALIZED (
    SELECT l.seq
    FROM (SELECT e.seq
          FROM ended CROSS JOIN LATERAL (
              SELECT e.seq FROM {p}event AS e
              WHERE e.written_in = ANY (ARRAY[ended.id])
                AND (e.written_in, e.seq) > (ended.id, $16::bigint) AND (e.written_in, e.seq) <= (ended.id, $17::bigint)
                AND e.status = 0 AND NOT e.parked
                AND e.lane = ANY ((SELECT held.lanes FROM held)::integer[]) AND {not_in_flight}
              ORDER BY e.written_in, e.seq LIMIT $18::bigint) AS e
          UNION ALL
          SELECT e.seq
          FROM (SELECT e.seq FROM {p}event AS e
                WHERE e.written_in >= (SELECT pg_snapshot_xmax($14::text::pg_snapshot))
                  AND e.written_in < (SELECT pg_snapshot_xmax(pg_current_snapshot()))
                  AND e.seq <= $17 AND e.status = 0 AND NOT e.parked
                  AND e.lane = ANY ((SELECT held.lanes FROM held)::integer[]) AND {not_in_flight}
                ORDER BY e.written_in, e.seq OFFSET 0) AS e) AS l
    ORDER BY l.seq LIMIT $18
), first AS MATERIALIZED (
    SELECT lane.lane, lane.ends, e.seq, lane.begins
    FROM lane LEFT JOIN LATERAL (
        SELECT e.seq FROM {p}event AS e
        WHERE lane.front IS NOT NULL AND e.lane = lane.lane AND e.status = 0 AND NOT e.parked
          AND e.seq > lane.begins AND e.seq <= lane.ends AND {not_in_flight}
        ORDER BY e.seq LIMIT 1) AS e ON true
), ceiling AS MATERIALIZED (
    -- No sum may be larger than a number can be. Not by least(), which leaves out what is null: no row, no ceiling.
    SELECT CASE WHEN min(first.seq) > 9223372036854775807 - $11::bigint THEN 9223372036854775807 ELSE min(first.seq) + $11 END AS seq
    FROM first
), met AS (
    SELECT 2 AS kind, e.* FROM {p}event AS e JOIN lane ON lane.lane = e.lane
    WHERE e.seq = ANY ($9::bigint[]) AND e.status IN (0, 2) AND NOT e.parked
    UNION ALL
    SELECT 6, e.* FROM {p}event AS e JOIN lane ON lane.lane = e.lane
    WHERE e.seq = ANY (ARRAY (SELECT late.seq FROM late)) AND e.status + 0 = 0 AND NOT e.parked
    UNION ALL
    SELECT 3, e.*
    FROM first CROSS JOIN LATERAL (
        SELECT e.* FROM {p}event AS e
        WHERE e.lane = first.lane AND e.status = 0 AND NOT e.parked
          AND e.seq >= first.seq AND e.seq <= least(first.ends, (SELECT seq FROM ceiling)) AND {not_in_flight}
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
           e.kind IN (3, 6) AND {weight} <= $13::bigint AND coalesce(h.seq, e.seq) = e.seq AS read
    FROM met AS e
    LEFT JOIN LATERAL (SELECT h.seq, h.reason FROM {p}hold AS h
                       WHERE h.lane = e.lane AND h.effective_key = {key} LIMIT 1) AS h ON true
)
SELECT e.kind, e.lane, e.seq, e.status, e.available_at, e.created_at, e.head, e.coming_back, e.weight, {key} AS key,
       e.event_type, e.aggregate_type, coalesce(e.read, false) AS read, e.attempts, e.event_id, e.aggregate_id, e.ordering_key,
       e.tenant_id, e.content_type, e.occurred_at, {sizes},
       CASE WHEN e.read THEN {headers} END AS headers,
       CASE WHEN e.read THEN {payload} END AS payload,
       CASE WHEN e.read THEN {payload_bytes} END AS payload_bytes, e.written_in::text::bigint AS written_in
FROM judged AS e
UNION ALL
SELECT 0, NULL, NULL, {standby}, {life}, clock.now, clock.xmax, NULL, (SELECT seq FROM ceiling), clock.snapshot,
       {wal_file}, {wal_place}, NULL, NULL, {table}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM clock
UNION ALL
SELECT 1, lane.lane, NULL, NULL, due.available_at, NULL, beyond.seq, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM first AS lane LEFT JOIN LATERAL (
    SELECT e.available_at FROM {p}event AS e
    WHERE e.lane = lane.lane AND e.status = 2 AND NOT e.parked AND e.available_at > (SELECT now FROM clock)
    ORDER BY e.available_at LIMIT 1) AS due ON true
LEFT JOIN LATERAL (
    SELECT e.seq FROM {p}event AS e
    WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked
      AND e.seq > (SELECT seq FROM ceiling) AND e.seq > lane.begins AND e.seq <= lane.ends AND {not_in_flight}
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
