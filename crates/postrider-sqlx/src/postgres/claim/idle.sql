-- The claim of an idle outbox: nothing was left by the claim before. {p} stands for the prefix, {key} for the key of an event e.
--
-- $1 lanes, $2 epochs, $3 nonces, $4 what is in flight, $5 the most bytes of an event that is read at once, $6 the snapshot since which
-- everything that committed is unmet, $7 the most events.
--
-- The first row, of kind 0, has the clock, the snapshot, where the database stands, how many of the lanes are held, when the first waiting event
-- is due, and whether a key comes back. The others are fresh events, in the columns of the careful claim.
--
-- What committed since then is all that there can be, whatever its seq and whichever lane it is in. A statement this small costs what it takes to
-- start it: each branch that is named here is paid for by every claim, whether it runs or not.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, pg_current_snapshot()::text AS snapshot,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax
)
SELECT 0 AS kind, NULL::integer AS lane, NULL::bigint AS seq, {standby} AS status, {life} AS available_at, clock.now AS created_at,
       clock.xmax AS head,
       coalesce((SELECT true FROM {p}hold AS h WHERE h.reason = 'returning' ORDER BY h.lane, h.seq LIMIT 1), false) AS unusual,
       (SELECT count(*)
        FROM unnest($1::integer[], $2::bigint[], $3::bigint[]) AS u (lane, epoch, nonce)
        JOIN {p}lane AS l ON l.lane = u.lane AND l.epoch = u.epoch AND l.nonce = u.nonce) AS weight,
       clock.snapshot AS key, {wal_file} AS event_type, {wal_place} AS aggregate_type, NULL::boolean AS read,
       NULL::integer AS attempts, {table} AS event_id, NULL AS aggregate_id, NULL AS ordering_key, NULL AS tenant_id, NULL AS content_type,
       CASE WHEN (SELECT true FROM {p}event AS e WHERE e.status = 2 AND NOT e.parked ORDER BY e.lane, e.available_at, e.seq LIMIT 1)
            THEN (SELECT min(e.available_at)
                  FROM unnest($1) AS u (lane) CROSS JOIN LATERAL (
                      SELECT e.available_at FROM {p}event AS e
                      WHERE e.lane = u.lane AND e.status = 2 AND NOT e.parked
                      ORDER BY e.available_at LIMIT 1) AS e) END AS occurred_at,
       NULL::integer AS headers_size, NULL::integer AS payload_size, NULL AS headers, NULL AS payload, NULL::bytea AS payload_bytes
FROM clock
UNION ALL
SELECT NULL, e.lane, e.seq, NULL, e.available_at, e.created_at,
       (SELECT h.seq FROM {p}hold AS h WHERE h.lane = e.lane AND h.effective_key = {key}),
       NULL, CASE WHEN NOT e.small THEN {weight} END, NULL, e.event_type, e.aggregate_type, NULL, e.attempts, e.event_id, e.aggregate_id,
       e.ordering_key, e.tenant_id, e.content_type, e.occurred_at, NULL, NULL,
       CASE WHEN e.small THEN e.headers END, CASE WHEN e.small THEN e.payload END, CASE WHEN e.small THEN e.payload_bytes END
FROM (
    SELECT e.*
    FROM pg_snapshot_xip($6::text::pg_snapshot) AS x (id) CROSS JOIN LATERAL (
        SELECT e.*, {small} AS small FROM {p}event AS e
        WHERE e.written_in = ANY (ARRAY[x.id])
          AND e.status = 0 AND NOT e.parked AND e.lane = ANY ($1) AND e.seq <> ALL ($4::bigint[])
        ORDER BY e.written_in, e.seq LIMIT $7::bigint) AS e
    WHERE pg_visible_in_snapshot(x.id, (SELECT pg_current_snapshot()))
    UNION ALL
    (SELECT e.*, {small} FROM {p}event AS e
     WHERE e.written_in >= (SELECT pg_snapshot_xmax($6::text::pg_snapshot))
       AND e.written_in < (SELECT pg_snapshot_xmax(pg_current_snapshot()))
       AND e.status = 0 AND NOT e.parked AND e.lane = ANY ($1) AND e.seq <> ALL ($4)
     ORDER BY e.written_in, e.seq LIMIT $7)
    LIMIT $7
) AS e
