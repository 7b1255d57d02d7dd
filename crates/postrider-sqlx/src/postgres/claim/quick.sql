-- The usual claim: fresh events, where nothing waits that is due and nothing comes back. {p} stands for the prefix, {key} for the key of
-- an event e.
--
-- $1 lanes, $2 epochs, $3 nonces, $4 from where each lane's forward read goes on, $5 up to where all lanes are read, $6 most rows of a lane,
-- $7 what is in flight beyond the first of $4, $8 the most bytes of an event that is read at once, $9 the snapshot since which everything that committed is
-- unmet, $10 up to which seq rows are late, $11 most late rows, $12 from where all lanes are read by number.
--
-- The first row, of kind 0, has the clock, the snapshot, where the database stands, how many of the lanes are held, when the first waiting
-- event is due, whether a key comes back, and whether a lane has rows over the ceiling; the others are late (6) and fresh events, in the columns of the careful
-- claim. What is the same for all of them or follows from the rest is left empty: each number that is sent costs half of what finding its row does.
--
-- Up to $12 each lane is sought. Beyond it no lane has met anything, and the rows of all are read as they lie: one walk, where 64 lanes are 64
-- searches. Anyone who has few of the lanes, or much that is parked between, says so by $12 = $5. Adding zero to the status keeps the walk on the
-- primary key, which knows the order, and late rows from an index that begins with the lane.
--
-- What is late is found as in the careful claim.
--
-- Holds are only asked for in lanes that have some. The first entry of an index in its own order tells whether there is any, whatever the
-- statistics say.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_snapshot()::text AS snapshot,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax
), lane AS MATERIALIZED (
    SELECT u.lane,
           CASE WHEN u.front > 0 THEN u.front
                ELSE coalesce((SELECT e.seq - 1 FROM {p}event AS e ORDER BY e.seq LIMIT 1), 9223372036854775807) END AS begins,
           CASE WHEN (SELECT true FROM {p}hold AS h ORDER BY h.lane, h.effective_key LIMIT 1)
                THEN (SELECT true FROM {p}hold AS h WHERE h.lane = u.lane ORDER BY h.effective_key LIMIT 1) END AS held
    FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[]) AS u (lane, epoch, nonce, front)
    JOIN {p}lane AS l ON l.lane = u.lane AND l.epoch = u.epoch AND l.nonce = u.nonce
), late AS MATERIALIZED (
    SELECT l.seq
    FROM (SELECT e.seq
          FROM pg_snapshot_xip($9::text::pg_snapshot) AS x (id) CROSS JOIN LATERAL (
              SELECT e.seq FROM {p}event AS e
              WHERE e.written_in = ANY (ARRAY[x.id]) AND (e.written_in, e.seq) <= (x.id, $10::bigint)
                AND e.status = 0 AND NOT e.parked AND e.lane = ANY ($1)
              ORDER BY e.written_in, e.seq LIMIT $11::bigint) AS e
          WHERE pg_visible_in_snapshot(x.id, (SELECT pg_current_snapshot()))
          UNION ALL
          SELECT e.seq
          FROM (SELECT e.seq FROM {p}event AS e
                WHERE e.written_in >= (SELECT pg_snapshot_xmax($9::text::pg_snapshot))
                  AND e.written_in < (SELECT pg_snapshot_xmax(pg_current_snapshot()))
                  AND e.seq <= $10 AND e.status = 0 AND NOT e.parked AND e.lane = ANY ($1)
                ORDER BY e.written_in, e.seq OFFSET 0) AS e) AS l
    ORDER BY l.seq LIMIT $11
), gate AS MATERIALIZED (
    SELECT (SELECT count(*) FROM lane) AS held, (SELECT count(*) FROM {p}lane) = cardinality($1) AS all_lanes,
           ARRAY (SELECT lane.lane FROM lane WHERE lane.held) AS lanes_with_holds,
           (SELECT min(e.available_at)
            FROM lane CROSS JOIN LATERAL (
                SELECT e.available_at FROM {p}event AS e
                WHERE e.lane = lane.lane AND e.status = 2 AND NOT e.parked
                ORDER BY e.available_at LIMIT 1) AS e
            WHERE (SELECT true FROM {p}event AS e WHERE e.status = 2 AND NOT e.parked
                   ORDER BY e.lane, e.available_at, e.seq LIMIT 1)) AS due_at,
           EXISTS (SELECT 1
                   FROM lane CROSS JOIN LATERAL (
                       SELECT 1 FROM {p}hold AS h
                       WHERE h.lane = lane.lane AND h.reason = 'returning' ORDER BY h.seq LIMIT 1) AS h
                   WHERE lane.held) AS unusual
)
SELECT 0 AS kind, NULL::integer AS lane, NULL::bigint AS seq, {standby} AS status, {life} AS available_at, clock.now AS created_at,
       clock.xmax AS head, gate.unusual, gate.held AS weight, clock.snapshot AS key, {wal_file} AS event_type,
       {wal_place} AS aggregate_type,
       CASE WHEN $5::bigint < 9223372036854775807
            THEN EXISTS (SELECT 1
                         FROM lane CROSS JOIN LATERAL (
                             SELECT 1 FROM {p}event AS e
                             WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked
                               AND e.seq > $5 AND e.seq > lane.begins AND {not_in_flight}
                             ORDER BY e.seq LIMIT 1) AS e)
            ELSE false END AS read,
       NULL::integer AS attempts, {table} AS event_id, NULL AS aggregate_id, NULL AS ordering_key, NULL AS tenant_id, NULL AS content_type,
       gate.due_at AS occurred_at, NULL::integer AS headers_size, NULL::integer AS payload_size, NULL AS headers, NULL AS payload,
       NULL::bytea AS payload_bytes
FROM clock, gate
UNION ALL
SELECT e.kind, e.lane, e.seq, NULL, e.available_at, e.created_at,
       CASE WHEN e.lane = ANY ((SELECT gate.lanes_with_holds FROM gate)::integer[])
            THEN (SELECT h.seq FROM {p}hold AS h WHERE h.lane = e.lane AND h.effective_key = {key}) END,
       NULL, CASE WHEN NOT e.small THEN {weight} END, NULL, e.event_type, e.aggregate_type, NULL, e.attempts, e.event_id, e.aggregate_id,
       e.ordering_key, e.tenant_id, e.content_type, e.occurred_at, NULL, NULL,
       CASE WHEN e.small THEN e.headers END, CASE WHEN e.small THEN e.payload END, CASE WHEN e.small THEN e.payload_bytes END
FROM (
    SELECT 6 AS kind, e.*, {small} AS small FROM {p}event AS e
    WHERE e.seq = ANY (ARRAY (SELECT late.seq FROM late)) AND e.status + 0 = 0 AND NOT e.parked
    UNION ALL
    SELECT NULL, e.*
    FROM lane CROSS JOIN LATERAL (
        SELECT e.*, {small} AS small FROM {p}event AS e
        WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked
          AND e.seq > lane.begins AND e.seq <= $12::bigint AND {not_in_flight}
        ORDER BY e.seq LIMIT $6::bigint) AS e
    WHERE $12 > (SELECT min(lane.begins) FROM lane)
    UNION ALL
    (SELECT NULL, e.*, {small} FROM {p}event AS e
     WHERE e.seq > $12 AND e.seq <= $5 AND e.status + 0 = 0 AND NOT e.parked
       AND ((SELECT gate.all_lanes FROM gate) OR e.lane = ANY ($1)) AND {not_in_flight}
     ORDER BY e.seq)
) AS e
WHERE (SELECT NOT gate.unusual AND (gate.due_at IS NULL OR gate.due_at > clock.now) FROM gate, clock)
