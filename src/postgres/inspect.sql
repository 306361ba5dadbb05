-- What is wrong with the tables and functions, one row each: (kind, text). Run with search_path = pg_catalog.
-- $1 schema, $2 lock table, $3 fence table, $4 $5 $6 names and $7 $8 $9 bodies of the functions.
WITH rel AS (
  SELECT s.role, s.name, c.oid, c.relkind, c.relpersistence, c.relrowsecurity,
    EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = c.oid) AS has_rules,
    EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal) AS has_triggers,
    EXISTS (SELECT FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent)) AS inherits
  FROM (VALUES ('locks', $2), ('fences', $3)) AS s(role, name)
  LEFT JOIN pg_namespace n ON n.nspname = $1
  LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.name
), col AS (
  SELECT rel.oid, rel.name AS rel, w.name, w.type, w.filled, a.attnum, a.attnotnull, a.atttypid, a.attcollation
  FROM rel
  JOIN (VALUES ('locks', 'key', 'text', true), ('locks', 'lock_id', 'text', true), ('locks', 'expires_at_ms', 'bigint', true),
      ('locks', 'acquired_at_ms', 'bigint', true), ('locks', 'fence', 'text', true), ('locks', 'user_key', 'text', true),
      ('fences', 'fence_key', 'text', true), ('fences', 'fence', 'bigint', true), ('fences', 'key_debug', 'text', false)
    ) AS w(role, name, type, filled) ON w.role = rel.role
  LEFT JOIN pg_attribute a ON a.attrelid = rel.oid AND a.attname = w.name AND a.attnum > 0 AND NOT a.attisdropped
  WHERE rel.relkind = 'r'
), fn AS (
  SELECT w.name, w.body, p.oid, p.prosrc
  FROM (VALUES ($4, $7), ($5, $8), ($6, $9)) AS w(name, body)
  LEFT JOIN pg_namespace n ON n.nspname = $1
  LEFT JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = w.name
)
SELECT 'no-schema', format('there is no schema "%s"', $1) WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)
UNION ALL
SELECT 'no-' || role, format('there is no table "%s"', name) FROM rel WHERE oid IS NULL
UNION ALL
SELECT 'wrong', format('"%s" is not an ordinary table', name) FROM rel WHERE relkind <> 'r'
UNION ALL
SELECT 'wrong', format('table "%s" is UNLOGGED or temporary: a crash would empty it and repeat fences', name)
  FROM rel WHERE relkind = 'r' AND relpersistence <> 'p'
UNION ALL
SELECT 'wrong', format('table "%s" has triggers', name) FROM rel WHERE relkind = 'r' AND has_triggers
UNION ALL
SELECT 'wrong', format('table "%s" has rules', name) FROM rel WHERE relkind = 'r' AND has_rules
UNION ALL
SELECT 'wrong', format('table "%s" takes part in inheritance or partitioning', name) FROM rel WHERE relkind = 'r' AND inherits
UNION ALL
SELECT 'wrong', format('table "%s" has row-level security, which hides locks', name) FROM rel WHERE relkind = 'r' AND relrowsecurity
UNION ALL
SELECT 'wrong', format('table "%s" lacks the column %s', rel, name) FROM col WHERE attnum IS NULL
UNION ALL
SELECT 'wrong', format('column %s of table "%s" is %s instead of %s', name, rel, format_type(atttypid, NULL), type)
  FROM col WHERE format_type(atttypid, NULL) <> type
UNION ALL
SELECT 'wrong', format('column %s of table "%s" may be NULL', name, rel) FROM col WHERE filled AND NOT attnotnull
UNION ALL
SELECT 'wrong', format('column %s of table "%s" has a nondeterministic collation: different keys would be one lock', name, rel)
  FROM col JOIN pg_collation l ON l.oid = attcollation WHERE NOT l.collisdeterministic
UNION ALL
SELECT 'wrong', format('column %s of table "%s" is not ours and needs a value', a.attname, rel.name)
  FROM rel JOIN pg_attribute a ON a.attrelid = rel.oid
  WHERE rel.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
    AND NOT EXISTS (SELECT FROM col WHERE col.oid = rel.oid AND col.attnum = a.attnum)
UNION ALL
SELECT 'wrong', format('table "%s" has no unique index on %s alone', rel, name)
  FROM col WHERE name IN ('key', 'lock_id', 'fence_key') AND attnum IS NOT NULL AND NOT EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = col.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = col.attnum)
UNION ALL
SELECT 'no-expiry-index', format('table "%s" has no index on expires_at_ms: purge_expired() reads the whole table', rel)
  FROM col WHERE name = 'expires_at_ms' AND attnum IS NOT NULL AND NOT EXISTS (
    SELECT FROM pg_index i WHERE i.indrelid = col.oid AND i.indisvalid AND i.indpred IS NULL AND i.indkey[0] = col.attnum)
UNION ALL
SELECT 'no-function', format('there is no function "%s"', name) FROM fn WHERE oid IS NULL
UNION ALL
SELECT 'changed-function', format('function "%s" is not the one of this library', name)
  FROM fn GROUP BY name HAVING count(oid) > 0 AND NOT bool_or(prosrc = body)
UNION ALL
SELECT 'denied', format('EXECUTE on function "%s"', name) FROM fn WHERE NOT has_function_privilege(oid, 'EXECUTE')
UNION ALL
SELECT 'denied', format('USAGE on schema "%s"', $1) FROM pg_namespace WHERE nspname = $1 AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL
SELECT 'denied', format('%s on table "%s"', w.right, rel.name)
  FROM rel JOIN (VALUES ('locks', 'SELECT'), ('locks', 'INSERT'), ('locks', 'UPDATE'), ('locks', 'DELETE'),
      ('fences', 'SELECT'), ('fences', 'INSERT'), ('fences', 'UPDATE')) AS w(role, "right") ON w.role = rel.role
  WHERE rel.relkind = 'r' AND NOT has_table_privilege(rel.oid, w.right)
UNION ALL
SELECT 'standby', 'the server is a standby' WHERE pg_is_in_recovery()
UNION ALL
SELECT 'old', 'the server is older than Postgres 13' WHERE current_setting('server_version_num')::int < 130000
UNION ALL
SELECT 'unsafe', format('%s = off: after a crash of the server fences may repeat', s)
  FROM unnest(ARRAY['fsync', 'full_page_writes']) AS s WHERE current_setting(s) = 'off'
UNION ALL
SELECT 'unsafe', 'autovacuum = off: dead rows of released locks will slow every call down' WHERE current_setting('autovacuum') = 'off'
