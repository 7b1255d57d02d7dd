-- The usual claim: fresh events, where nothing waits that is due and nothing comes back. {p} stands for the prefix, {key} for the key of
-- an event e.
--
-- $1 lanes, $2 epochs, $3 nonces, $4 where each lane's read begins, $5 where its forward read stands, $6 up to where all lanes are read,
-- $7 most rows of a lane, $8 what is in flight behind $12, $9 the most bytes of an event that is read at once, $10 the snapshot of the last look behind
-- the forward read, or null, $11 the transactions in which claims have written since, $12 from where all lanes are read by number, $13 what
-- is in flight beyond it, $14 whether the lanes are read behind it, $15 from where the first lane is that has something behind its forward read,
-- $16 the snapshot of the last scan behind the forward read where this claim makes none, or null: what that could not see is marked (where the
-- first row says whether this is a usual claim), because an event that comes first may have committed with it, behind the forward read, $17 the
-- place from which a scan reads too much if a row lies there or before it, or null if it cannot.
--
-- The first row, of kind 0, has the clock, the snapshot, where the database stands, how many of the lanes are held, when the first waiting
-- event is due, whether a key comes back or much lies behind, and whether a lane has rows over the ceiling; the others are fresh events, in the columns of the careful look. What is the
-- same for all of them or follows from the rest is left empty: each number that is sent costs half of what finding its row does.
--
-- Behind $12 each lane is sought for what its own forward read has not met, which is next to nothing: what commits late. While looks behind
-- the forward read are on their way anyway ($14), that is left to them. Beyond $12 no lane has met anything, and the rows of all are read as
-- they lie: one walk, where 64 lanes are 64 searches. Whoever has few of the lanes, or much that is parked
-- between, says so by $12 = $6. Adding zero to the status keeps the walk on the primary key, which knows the order. The limit cuts nothing off:
-- with it a plan for all values seems as cheap as one for these, and is kept, where making one takes as long as running it (0.9 ms).
--
-- A look behind the forward read goes over what was delivered meanwhile, and nothing of that is removed yet. To pass it in the order of the
-- rows, which is that of their pages, takes a fraction of what 64 lanes take, one after the other. So the lanes begin at the first row that
-- there is over $15, where the first of them would, and at their forward read if there is none: a drained backlog of three million events
-- was passed lane by lane in 6.7 s. The same holds for a lane that has met nothing yet.
--
-- Holds are only asked for in lanes that have some. The first entry of an index in its own order tells whether there is any, whatever the
-- statistics say.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now,
           pg_current_snapshot()::text AS snapshot, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax, pg_snapshot_xmax(pg_current_snapshot()) AS ended_before
), scan AS MATERIALIZED (
    SELECT e.seq AS first FROM {p}event AS e WHERE e.seq > $15::bigint ORDER BY e.seq LIMIT 1
), lane AS MATERIALIZED (
    SELECT u.lane, u.front,
           CASE WHEN u.begins < u.front THEN greatest(u.begins, coalesce((SELECT scan.first - 1 FROM scan), u.front))
                WHEN u.begins > 0 THEN u.begins
                ELSE coalesce((SELECT e.seq - 1 FROM {p}event AS e ORDER BY e.seq LIMIT 1), 9223372036854775807) END AS begins,
           CASE WHEN (SELECT true FROM {p}hold AS h ORDER BY h.lane, h.effective_key LIMIT 1)
                THEN (SELECT true FROM {p}hold AS h WHERE h.lane = u.lane ORDER BY h.effective_key LIMIT 1) END AS held
    FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS u (lane, epoch, nonce, begins, front)
    JOIN {p}lane AS l ON l.lane = u.lane AND l.epoch = u.epoch AND l.nonce = u.nonce
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
           CASE WHEN $17::bigint IS NOT NULL AND coalesce((SELECT scan.first <= $17 FROM scan), false) THEN true
                ELSE EXISTS (SELECT 1
                             FROM lane CROSS JOIN LATERAL (
                                 SELECT 1 FROM {p}hold AS h
                                 WHERE h.lane = lane.lane AND h.reason = 'returning' ORDER BY h.seq LIMIT 1) AS h
                             WHERE lane.held) END AS unusual
)
SELECT 0 AS kind, NULL::integer AS lane, clock.xmin AS seq, NULL::smallint AS status, NULL::timestamptz AS available_at, clock.now AS created_at,
       clock.xmax AS head, gate.unusual, gate.held AS weight, clock.snapshot AS key, {wal_file} AS event_type,
       {wal_place} AS aggregate_type,
       CASE WHEN $6::bigint < 9223372036854775807
            THEN EXISTS (SELECT 1
                         FROM lane CROSS JOIN LATERAL (
                             SELECT 1 FROM {p}event AS e
                             WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked AND e.seq > $6 AND {not_in_flight_beyond}
                             ORDER BY e.seq LIMIT 1) AS e)
            ELSE false END AS read,
       NULL::integer AS attempts, {table} AS event_id, NULL AS aggregate_id, NULL AS ordering_key, NULL AS tenant_id, NULL AS content_type,
       gate.due_at AS occurred_at, NULL::integer AS headers_size, NULL::integer AS payload_size, NULL AS headers, NULL AS payload,
       NULL::bytea AS payload_bytes
FROM clock, gate
UNION ALL
SELECT NULL, e.lane, e.seq, NULL, e.available_at, e.created_at,
       CASE WHEN e.lane = ANY ((SELECT gate.lanes_with_holds FROM gate)::integer[])
            THEN (SELECT h.seq FROM {p}hold AS h WHERE h.lane = e.lane AND h.effective_key = {key}) END,
       e.unscanned, CASE WHEN NOT e.small THEN {weight} END, NULL, e.event_type, e.aggregate_type, NULL, e.attempts, e.event_id, e.aggregate_id,
       e.ordering_key, e.tenant_id, e.content_type, e.occurred_at, NULL, NULL,
       CASE WHEN e.small THEN e.headers END, CASE WHEN e.small THEN e.payload END, CASE WHEN e.small THEN e.payload_bytes END
FROM (
    SELECT e.*
    FROM lane CROSS JOIN LATERAL (
        SELECT e.*, {small} AS small, {unscanned} AS unscanned FROM {p}event AS e
        WHERE e.lane = lane.lane AND e.status = 0 AND NOT e.parked
          AND e.seq > lane.begins AND e.seq <= $12::bigint AND {not_in_flight} AND (e.seq > lane.front OR {late})
        ORDER BY e.seq LIMIT $7::bigint) AS e
    WHERE $14::boolean
    UNION ALL
    (SELECT e.*, {small}, {unscanned} FROM {p}event AS e
     WHERE e.seq > $12 AND e.seq <= $6 AND e.status + 0 = 0 AND NOT e.parked
       AND ((SELECT gate.all_lanes FROM gate) OR e.lane = ANY ($1)) AND {not_in_flight_beyond}
     ORDER BY e.seq LIMIT greatest($6 - $12, 0))
) AS e
WHERE (SELECT NOT gate.unusual AND (gate.due_at IS NULL OR gate.due_at > clock.now) FROM gate, clock)
