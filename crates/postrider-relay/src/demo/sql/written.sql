-- Counts the events of the key up inside the transaction that writes them. SQLite has one writer, so no two get a number.
INSERT INTO shop_written (event_id, event_key, number, event_type, outcome)
VALUES (
    ?1,
    ?2,
    CASE WHEN ?2 IS NOT NULL THEN (SELECT coalesce(max(number), 0) + 1 FROM shop_written WHERE event_key = ?2) END,
    ?3,
    ?4
)
