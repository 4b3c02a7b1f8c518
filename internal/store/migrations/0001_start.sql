-- One text for SQLite and PostgreSQL. Times are BIGINT, microseconds since
-- 1970 in UTC, 0 for never; digests are hexadecimal; lists and maps are JSON;
-- what is sealed is base64 of a nonce and an AEAD box (seal.go).

-- +goose Up

-- The one row that orders everything: whoever raises a number in it holds the
-- row until its transaction ends, so that numbers and commits have one order.
CREATE TABLE meta (
    id          BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    database_id TEXT   NOT NULL, -- random, made once
    epoch       BIGINT NOT NULL, -- raised when a restored database is accepted
    revision    BIGINT NOT NULL, -- newest row of changes
    seq         BIGINT NOT NULL, -- newest row ever of revocations
    dropped_seq BIGINT NOT NULL, -- highest row ever dropped from revocations
    key_check   TEXT   NOT NULL, -- sealed: tells a wrong key at the start
    lease       BIGINT NOT NULL, -- microseconds: what the last control gave to replicas
    checked_at  BIGINT NOT NULL
);

CREATE TABLE changes (
    revision BIGINT NOT NULL PRIMARY KEY,
    kind     TEXT   NOT NULL,
    key      TEXT   NOT NULL
);

CREATE TABLE servers (
    id               TEXT   NOT NULL PRIMARY KEY,
    name             TEXT   NOT NULL UNIQUE,
    enabled          BIGINT NOT NULL,
    mcp              TEXT   NOT NULL,
    rpc              TEXT   NOT NULL,
    ca               TEXT   NOT NULL,
    legacy           BIGINT NOT NULL,
    modern           BIGINT NOT NULL,
    allowed_origins  TEXT   NOT NULL,
    labels           TEXT   NOT NULL,
    max_body         BIGINT NOT NULL, -- bytes
    call_limit       BIGINT NOT NULL, -- microseconds
    batches          BIGINT NOT NULL,
    literal_denials  BIGINT NOT NULL,
    header_names     TEXT   NOT NULL,
    headers_revision BIGINT NOT NULL,
    revision         BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    updated_at       BIGINT NOT NULL,
    headers          TEXT   NOT NULL  -- sealed names and values; '' for none
);

CREATE TABLE access_tokens (
    id           TEXT   NOT NULL PRIMARY KEY,
    server_id    TEXT   NOT NULL REFERENCES servers (id) ON DELETE CASCADE,
    name         TEXT   NOT NULL,
    digest       TEXT   NOT NULL UNIQUE, -- SHA-256 of the whole token
    scopes       TEXT   NOT NULL,
    narrowed     BIGINT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL
);
CREATE INDEX access_tokens_by_server ON access_tokens (server_id, created_at, id);
CREATE INDEX access_tokens_by_expiry ON access_tokens (expires_at) WHERE expires_at > 0;

CREATE TABLE revocations (
    seq        BIGINT NOT NULL PRIMARY KEY,
    kind       BIGINT NOT NULL,
    key        TEXT   NOT NULL,
    server_id  TEXT   NOT NULL, -- may be gone, so no reference
    until_time BIGINT NOT NULL
);
CREATE INDEX revocations_by_key ON revocations (kind, key);
CREATE INDEX revocations_by_time ON revocations (until_time);

CREATE TABLE sealed_keys (
    kind       TEXT   NOT NULL,
    id         BIGINT NOT NULL,
    sealed     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);

CREATE TABLE decision_ring (
    id     BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    newest BIGINT NOT NULL
);
INSERT INTO decision_ring (id, newest) VALUES (1, 0);

CREATE TABLE decisions (
    n          BIGINT NOT NULL PRIMARY KEY,
    request_id TEXT   NOT NULL,
    decided_at BIGINT NOT NULL,
    record     TEXT   NOT NULL  -- JSON
);
CREATE INDEX decisions_by_request ON decisions (request_id, n);
