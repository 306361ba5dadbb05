-- New tables. Names and columns are those of the TypeScript library, whose tables are adopted as they are; the settings are
-- explained in docs/adr/015-postgres-table-settings.md.
CREATE TABLE @LOCKS@ (
  key pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
  lock_id pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
  expires_at_ms pg_catalog.int8 NOT NULL,
  acquired_at_ms pg_catalog.int8 NOT NULL,
  fence pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
  user_key pg_catalog.text NOT NULL,
  holder pg_catalog.text
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  vacuum_truncate = off);
CREATE UNIQUE INDEX @LOCK_ID_INDEX@ ON @LOCKS@ USING btree (lock_id)
----
CREATE INDEX @EXPIRES_INDEX@ ON @LOCKS@ USING btree (expires_at_ms)
----
CREATE TABLE @FENCES@ (
  fence_key pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
  fence pg_catalog.int8 NOT NULL DEFAULT 0,
  key_debug pg_catalog.text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)
----
ALTER TABLE @LOCKS@ ADD COLUMN holder pg_catalog.text
