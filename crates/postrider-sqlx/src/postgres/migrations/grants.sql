-- Rights for three roles, and no more than each of them needs. Run it as the owner of the tables.

-- Who writes events: insert, find a duplicate, and read back what was written.
GRANT INSERT (event_id, event_type, aggregate_type, aggregate_id, ordering_key, lane_hint, tenant_id, content_type, headers,
              payload, payload_bytes, occurred_at, available_at, created_at) ON {p}event TO {writer};
GRANT SELECT (event_id, seq, lane) ON {p}event TO {writer};

-- Who delivers them.
GRANT SELECT, UPDATE, DELETE ON {p}event TO {relay};
GRANT SELECT, INSERT, DELETE ON {p}done TO {relay};
GRANT SELECT, UPDATE ON {p}lane TO {relay};
GRANT SELECT, INSERT, UPDATE, DELETE ON {p}hold, {p}member TO {relay};
GRANT SELECT ON {p}meta TO {relay};
-- A sink that rejects everything is told of by a pause, which ends by itself.
GRANT SELECT, INSERT, DELETE ON {p}pause TO {relay};
-- Without it, events that nobody told of are found by polling alone.
GRANT SELECT ON SEQUENCE {p}event_seq_seq TO {relay};

-- Who looks at them, tries dead letters again, discards them, pauses and resumes.
GRANT SELECT, UPDATE, DELETE ON {p}event TO {operator};
GRANT SELECT, UPDATE ON {p}hold TO {operator};
GRANT SELECT, DELETE ON {p}done TO {operator};
GRANT SELECT, INSERT, DELETE ON {p}pause TO {operator};
GRANT SELECT ON {p}lane, {p}member, {p}meta TO {operator};
