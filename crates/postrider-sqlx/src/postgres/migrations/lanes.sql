-- What becomes of an event that is inserted, by any writer. The database computes its lane, so that all of them agree: a hash of the key,
-- which is the ordering_key or else the aggregate; without a key the hint, or else a hash of the id.
CREATE OR REPLACE FUNCTION {p}event_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.payload IS NULL) = (NEW.payload_bytes IS NULL)
       OR octet_length(NEW.payload) > {payload_max} OR octet_length(NEW.payload_bytes) > {payload_max}
       OR NEW.status <> 0 OR NEW.attempts <> 0 OR NEW.parked OR NEW.seq <= 0
       OR 0 IN (octet_length(NEW.event_id), octet_length(NEW.event_type), octet_length(NEW.aggregate_type),
                octet_length(NEW.aggregate_id), octet_length(NEW.ordering_key), octet_length(NEW.tenant_id),
                octet_length(NEW.content_type))
    THEN
        RAISE check_violation USING TABLE = TG_TABLE_NAME, MESSAGE = 'this event can never be delivered: ' || CASE
            WHEN (NEW.payload IS NULL) = (NEW.payload_bytes IS NULL) THEN 'set either payload or payload_bytes'
            WHEN coalesce(octet_length(NEW.payload), octet_length(NEW.payload_bytes)) > {payload_max}
                THEN 'its payload has more than {payload_max} bytes'
            WHEN NEW.status <> 0 OR NEW.attempts <> 0 OR NEW.parked
                THEN 'leave status, attempts and parked to their defaults'
            WHEN NEW.seq <= 0 THEN 'its seq is not above zero'
            ELSE 'its id, type, aggregate, key, tenant and content type may not be empty'
        END;
    END IF;
    NEW.lane := (coalesce(hashtext(coalesce(NEW.ordering_key, NEW.aggregate_type || ':' || NEW.aggregate_id)), NEW.lane_hint,
                          hashtext(NEW.event_id)) & 2147483647) % {n};
    NEW.written_in := pg_current_xact_id(); -- a restored row names a transaction of another server
    RETURN NEW;
END $$;

INSERT INTO {p}lane (lane) SELECT generate_series(0, {n} - 1) ON CONFLICT DO NOTHING;
DELETE FROM {p}lane WHERE lane >= {n};
