-- Columns and keys follow the Postgres tables. A lease runs from `written_boot_ms`, its last grant or renewal, to
-- `expires_boot_ms`, both on the machine's boot-time clock (lease_end.rs). The wall-clock columns are shown.
CREATE TABLE IF NOT EXISTS syncguard_locks (
    key TEXT NOT NULL PRIMARY KEY,
    lock_id TEXT NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    acquired_at_ms INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    user_key TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    expires_boot_ms INTEGER NOT NULL,
    -- NULL in rows of an older version.
    written_boot_ms INTEGER,
    -- What the holder says of itself, behind its lock id and a space. NULL in rows of an older version.
    holder TEXT
) WITHOUT ROWID;

CREATE UNIQUE INDEX IF NOT EXISTS idx_syncguard_locks_lock_id ON syncguard_locks (lock_id);
CREATE INDEX IF NOT EXISTS idx_syncguard_locks_expires ON syncguard_locks (boot_id, expires_boot_ms);

-- Never deleted from: a counter that starts anew would repeat a fence.
CREATE TABLE IF NOT EXISTS syncguard_fence_counters (
    fence_key TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL
) WITHOUT ROWID;
