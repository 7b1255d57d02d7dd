-- The conclusion, over the whole file. One statement, so that all of it is about the same moment.
WITH
first_delivery AS (
    SELECT event_id, min(n) AS n FROM shop_delivered GROUP BY event_id
),
-- Where each committed event is. One that was delivered and not yet settled (a kill does that) is delivered.
place AS (
    SELECT CASE
        WHEN delivery.n IS NOT NULL THEN 'delivered'
        WHEN event.seq IS NULL THEN 'lost'
        WHEN event.status = 3 THEN 'dead'
        WHEN hold.seq IS NOT NULL THEN 'held'
        ELSE 'pending'
    END AS name
    FROM shop_written AS written
    LEFT JOIN first_delivery AS delivery ON delivery.event_id = written.event_id
    LEFT JOIN postrider_event AS event ON event.event_id = written.event_id
    LEFT JOIN postrider_hold AS hold
        ON hold.lane = event.lane AND hold.effective_key = event.effective_key
        AND hold.reason = 'dead' AND hold.seq < event.seq
),
-- Numbers have no gaps, so an event that came sooner than its number has overtaken one of its key.
turn AS (
    SELECT written.number, row_number() OVER (PARTITION BY written.event_key ORDER BY delivery.n) AS came
    FROM first_delivery AS delivery
    JOIN shop_written AS written ON written.event_id = delivery.event_id
    WHERE written.event_key IS NOT NULL
)
SELECT
    count(*) AS committed,
    (SELECT count(*) FROM shop_rolled_back WHERE event_id NOT IN (SELECT event_id FROM shop_written)) AS rolled_back,
    count(*) FILTER (WHERE name = 'delivered') AS delivered,
    count(*) FILTER (WHERE name = 'dead') AS dead,
    count(*) FILTER (WHERE name = 'pending') AS pending,
    count(*) FILTER (WHERE name = 'held') AS held,
    (SELECT count(*) - count(DISTINCT event_id) FROM shop_delivered) AS duplicates,
    (SELECT count(*) FROM turn WHERE came < number) AS out_of_order,
    count(*) FILTER (WHERE name = 'lost') AS lost,
    (SELECT count(*) FROM first_delivery WHERE event_id NOT IN (SELECT event_id FROM shop_written)) AS phantom
FROM place
