-- Rights for three users, and no more than each of them needs. Run it in the database that the tables are in.

-- Who writes events: insert, find a duplicate, and read back what was written.
GRANT INSERT, SELECT ON {p}event TO {writer};

-- Who delivers them.
GRANT SELECT, INSERT, UPDATE, DELETE ON {p}event TO {relay};
GRANT SELECT, INSERT, DELETE ON {p}done TO {relay};
GRANT SELECT, INSERT, UPDATE, DELETE ON {p}hold TO {relay};
GRANT SELECT, UPDATE ON {p}lane TO {relay};
GRANT SELECT, INSERT, UPDATE, DELETE ON {p}member TO {relay};
GRANT SELECT ON {p}meta TO {relay};
-- A sink that rejects everything is told of by a pause, which ends by itself. A row is locked while it is read.
GRANT SELECT, INSERT, UPDATE, DELETE ON {p}pause TO {relay};

-- Who looks at them, tries dead letters again, discards them, pauses and resumes.
GRANT SELECT, UPDATE, DELETE ON {p}event TO {operator};
GRANT SELECT ON {p}done TO {operator};
GRANT SELECT, UPDATE ON {p}hold TO {operator};
GRANT SELECT, UPDATE ON {p}lane TO {operator}; -- a lane is locked while its dead letters are changed
GRANT SELECT ON {p}member TO {operator};
GRANT SELECT ON {p}meta TO {operator};
GRANT SELECT, INSERT, UPDATE, DELETE ON {p}pause TO {operator}; -- a row is locked while it is read
