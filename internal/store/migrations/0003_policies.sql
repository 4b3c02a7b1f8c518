-- +goose Up

-- Bundles that were accepted. The one with the highest n decides; some older
-- ones are kept to explain decisions that they made.
CREATE TABLE policies (
    n           BIGINT NOT NULL PRIMARY KEY, -- revision of the settings at which it was accepted
    revision    TEXT   NOT NULL, -- policies.Bundle.Revision
    origin      TEXT   NOT NULL, -- where it came from, for people
    version     BIGINT NOT NULL, -- of a signed bundle, never lowered; 0: not signed
    files       TEXT   NOT NULL, -- JSON: path to base64
    accepted_at BIGINT NOT NULL
);
CREATE INDEX policies_by_revision ON policies (revision, n);

ALTER TABLE servers ADD COLUMN grants TEXT NOT NULL DEFAULT '';           -- JSON array; '' for none
ALTER TABLE servers ADD COLUMN policy_data TEXT NOT NULL DEFAULT '';      -- JSON object; '' for none
ALTER TABLE servers ADD COLUMN record_arguments TEXT NOT NULL DEFAULT ''; -- JSON: {"mask": [...], "keep_seconds": n}; '' for off
ALTER TABLE servers ADD COLUMN tool_changes TEXT NOT NULL DEFAULT 'alarm'; -- alarm or deny

-- Tool definitions as they were first listed, or approved since.
CREATE TABLE tools (
    server_id  TEXT   NOT NULL REFERENCES servers (id) ON DELETE CASCADE,
    name       TEXT   NOT NULL,
    approved   TEXT   NOT NULL, -- hexadecimal SHA-256 of the definition
    seen       TEXT   NOT NULL, -- the last one listed; differs while it waits for approval
    first_at   BIGINT NOT NULL,
    changed_at BIGINT NOT NULL, -- since when it waits for approval; 0: it does not
    approved_text TEXT NOT NULL, -- the definitions themselves, for people; '' when too long
    seen_text     TEXT NOT NULL,
    PRIMARY KEY (server_id, name)
);

-- Decisions by the id that their records have. How large the ring is counts in
-- bytes too: size is that of record and arguments.
ALTER TABLE decisions RENAME COLUMN request_id TO decision_id;
ALTER TABLE decisions ADD COLUMN server_id TEXT NOT NULL DEFAULT ''; -- '' for none
ALTER TABLE decisions ADD COLUMN size BIGINT NOT NULL DEFAULT 0;
ALTER TABLE decision_ring ADD COLUMN size BIGINT NOT NULL DEFAULT 0; -- of all

-- Argument values of recorded decisions, apart: they leave before the record.
ALTER TABLE decisions ADD COLUMN arguments TEXT NOT NULL DEFAULT '';        -- JSON; '' for none
ALTER TABLE decisions ADD COLUMN arguments_until BIGINT NOT NULL DEFAULT 0;
CREATE INDEX decisions_by_arguments ON decisions (arguments_until) WHERE arguments_until > 0;
