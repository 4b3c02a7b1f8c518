-- +goose Up

-- How long a replica keeps an entry, by its own clock; 0: as long as any.
ALTER TABLE revocations ADD COLUMN life BIGINT NOT NULL DEFAULT 0; -- microseconds

-- The revision at which a server was last disabled: its streams end although it
-- may be enabled again before a replica hears of either.
ALTER TABLE servers ADD COLUMN stopped_revision BIGINT NOT NULL DEFAULT 0;

-- 1 once control has begun a journal of this database, outside of it: who has
-- the database without it cannot tell whether it is the newest.
ALTER TABLE meta ADD COLUMN journaled BIGINT NOT NULL DEFAULT 0;

-- Who may hold a lease: a replica stands here before it is given its first
-- one, and goes when its last one is over.
CREATE TABLE replicas (
    name      TEXT   NOT NULL PRIMARY KEY,
    lease     BIGINT NOT NULL, -- microseconds: the longest it was given
    own       BIGINT NOT NULL, -- 1: lives inside a control's process, and ends with it
    joined_at BIGINT NOT NULL
);

-- Releases without the table only kept how long their leases were.
INSERT INTO replicas (name, lease, own, joined_at)
    SELECT 'replicas of an earlier release', lease, 0, 0 FROM meta WHERE lease > 0;
ALTER TABLE meta DROP COLUMN lease;
