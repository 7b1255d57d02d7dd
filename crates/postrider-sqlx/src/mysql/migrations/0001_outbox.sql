-- Postrider's tables, version 1, for MySQL and MariaDB, with {lanes} lanes.
-- Texts compare as bytes: each of the two has a collation of its own for that, and takes the other's for a comment.
-- Every statement can be repeated: a change of tables commits by itself, so a migration may have ended half-way.

-- The first table that is made, and version 0 until the last one is: it tells our tables from foreign ones.
CREATE TABLE IF NOT EXISTS {p}meta (
    name  VARCHAR(64)  NOT NULL PRIMARY KEY,
    value VARCHAR(255) NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {bytes};

INSERT IGNORE INTO {p}meta (name, value) VALUES ('schema_version', '0'), ('lanes', '{lanes}');

-- Events that are not delivered. INSERT INTO {p}event (event_type, payload) VALUES (...) is enough, from any language.
-- Times are in UTC, whatever the session's time zone.
CREATE TABLE IF NOT EXISTS {p}event (
    seq            BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    status         TINYINT UNSIGNED  NOT NULL DEFAULT 0, -- 0 new, 2 waiting, 3 dead
    parked         TINYINT UNSIGNED  NOT NULL DEFAULT 0,
    attempts       INT UNSIGNED      NOT NULL DEFAULT 0,
    -- 1 as soon as a delivery has written status, parked or attempts. A plain INSERT leaves all four to their defaults: see the second CHECK.
    touched        TINYINT UNSIGNED  NOT NULL DEFAULT 0,
    -- When it is due; of a dead one, since when it is dead.
    available_at   DATETIME(6)       NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    created_at     DATETIME(6)       NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    occurred_at    DATETIME(6)       NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    -- A character longer than any event can have: where the session is not strict, what is too long is cut without an error. What was cut
    -- here is still too long for the CHECK below, which every session obeys.
    event_id       VARCHAR(37)       NOT NULL DEFAULT (UUID()),
    event_type     VARCHAR(129)      NOT NULL,
    aggregate_type VARCHAR(65)       NOT NULL DEFAULT '__GLOBAL__',
    aggregate_id   VARCHAR(129),
    ordering_key   VARCHAR(256),
    lane_hint      INT UNSIGNED, -- where an event without a key goes
    tenant_id      VARCHAR(65),
    content_type   VARCHAR(129)      NOT NULL DEFAULT 'application/json',
    headers        MEDIUMTEXT,
    last_error     TEXT,
    payload        MEDIUMTEXT,
    payload_bytes  MEDIUMBLOB,
    -- The key that orders the event; null where nothing does.
    effective_key  VARCHAR(255)      AS (COALESCE(ordering_key, CONCAT(aggregate_type, ':', aggregate_id))) STORED,
    lane           SMALLINT UNSIGNED AS (MOD(COALESCE(CRC32(COALESCE(ordering_key, CONCAT(aggregate_type, ':', aggregate_id))), lane_hint, CRC32(event_id)), {lanes})) STORED,
    -- Where a claim finds it: 0 fresh, by seq; 1 parked, by key and seq; 2 waiting, by the time that it is due; 3 dead.
    place          TINYINT UNSIGNED  AS (IF(parked = 1, 1, status)) STORED,
    parked_key     VARCHAR(255)      AS (IF(parked = 1, COALESCE(ordering_key, CONCAT(aggregate_type, ':', aggregate_id)), NULL)) STORED,
    due_at         DATETIME(6)       AS (IF(parked = 0 AND status = 2, available_at, NULL)) STORED,
    UNIQUE KEY {p}event_id (event_id),
    -- One index for all of them, in which each place is a stretch of its own, because there are no partial indexes.
    KEY {p}event_place (place, lane, parked_key, due_at, seq),
    -- What can never be delivered is refused here, so that its writer is told.
    CONSTRAINT {p}event_limits CHECK (
        status IN (0, 2, 3) AND parked IN (0, 1) AND (payload IS NULL) <> (payload_bytes IS NULL)
        AND CHAR_LENGTH(event_id) BETWEEN 1 AND 36 AND CHAR_LENGTH(event_type) BETWEEN 1 AND 128
        AND CHAR_LENGTH(aggregate_type) BETWEEN 1 AND 64 AND CHAR_LENGTH(content_type) BETWEEN 1 AND 128
        AND COALESCE(CHAR_LENGTH(aggregate_id), 1) BETWEEN 1 AND 128 AND COALESCE(CHAR_LENGTH(ordering_key), 1) BETWEEN 1 AND 255
        AND COALESCE(CHAR_LENGTH(tenant_id), 1) BETWEEN 1 AND 64
        AND COALESCE(LENGTH(payload), LENGTH(payload_bytes)) <= 1048576),
    -- What only deliveries write, which say so. A trigger would tell an INSERT from an UPDATE, but needs rights that few accounts have.
    CONSTRAINT {p}event_keep_state_default CHECK (touched = 1 OR (status = 0 AND parked = 0 AND attempts = 0))
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE {bytes};

-- Delivered events, kept until their retention ends.
CREATE TABLE IF NOT EXISTS {p}done (
    seq            BIGINT UNSIGNED   NOT NULL PRIMARY KEY,
    lane           SMALLINT UNSIGNED NOT NULL,
    attempts       INT UNSIGNED      NOT NULL,
    available_at   DATETIME(6)       NOT NULL,
    created_at     DATETIME(6)       NOT NULL,
    occurred_at    DATETIME(6)       NOT NULL,
    done_at        DATETIME(6)       NOT NULL,
    event_id       VARCHAR(36)       NOT NULL,
    event_type     VARCHAR(128)      NOT NULL,
    aggregate_type VARCHAR(64)       NOT NULL,
    aggregate_id   VARCHAR(128),
    ordering_key   VARCHAR(255),
    tenant_id      VARCHAR(64),
    content_type   VARCHAR(255)      NOT NULL,
    headers        MEDIUMTEXT,
    last_error     TEXT,
    payload        MEDIUMTEXT,
    payload_bytes  MEDIUMBLOB,
    KEY {p}done_at (done_at),
    KEY {p}done_id (event_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC CHARACTER SET utf8mb4 COLLATE {bytes};

-- Who may deliver.
CREATE TABLE IF NOT EXISTS {p}lane (
    lane         SMALLINT UNSIGNED NOT NULL PRIMARY KEY,
    owner        VARCHAR(255),
    epoch        BIGINT UNSIGNED   NOT NULL DEFAULT 0,
    nonce        BIGINT UNSIGNED, -- null while nobody holds the lane: null is never a token
    leased_until DATETIME(6),
    lease_us     BIGINT, -- how long the lease was asked for: it cannot end later than that from now, whatever the clock did
    clean        TINYINT UNSIGNED  NOT NULL DEFAULT 1, -- whether the last owner gave it back
    sent_to      BIGINT UNSIGNED   NOT NULL DEFAULT 0  -- events up to this one may be under way
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {bytes};

INSERT IGNORE INTO {p}lane (lane) VALUES {lane_rows};

-- Instances, those without a lane included, and until when they are believed to be there.
CREATE TABLE IF NOT EXISTS {p}member (
    instance VARCHAR(255) NOT NULL PRIMARY KEY,
    until    DATETIME(6)  NOT NULL,
    lease_us BIGINT       NOT NULL
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {bytes};

-- Keys that wait for one event, their head.
CREATE TABLE IF NOT EXISTS {p}hold (
    lane          SMALLINT UNSIGNED NOT NULL,
    effective_key VARCHAR(255)      NOT NULL,
    seq           BIGINT UNSIGNED   NOT NULL,
    until         DATETIME(6),
    reason        VARCHAR(16)       NOT NULL,
    PRIMARY KEY (lane, effective_key),
    KEY {p}hold_reason (reason, seq)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {bytes};

-- What an operator has told to wait: the whole source (with an empty name), types by a pattern, a key, a sink.
CREATE TABLE IF NOT EXISTS {p}pause (
    kind   VARCHAR(16)  NOT NULL CHECK (kind IN ('source', 'type', 'key', 'sink', 'rejected', 'brake')),
    name   VARCHAR(255) NOT NULL,
    since  DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    reason TEXT         NOT NULL,
    PRIMARY KEY (kind, name)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE {bytes};

UPDATE {p}meta SET value = '1' WHERE name = 'schema_version' AND value = '0';
