-- What is wrong with the tables and functions, one row each: (kind, text). Run with search_path = pg_catalog, pg_temp.
-- $1 schema, $2 lock table, $3 fence table, $4 the functions as JSON: name, body, inputs, parameters (sql.rs writes both lists).
-- A trusted role can do what it likes with the locks anyway: a superuser, this session's role, the owner of the schema.
WITH trusted AS MATERIALIZED (
  SELECT r.oid FROM pg_roles r LEFT JOIN pg_namespace n ON n.nspname = $1
  WHERE r.rolsuper OR r.rolname = current_user OR pg_has_role(r.oid, n.nspowner, 'MEMBER')
), rel AS MATERIALIZED (
  SELECT s.role, s.name, c.oid, c.relowner, c.relkind, c.relpersistence, c.relrowsecurity OR c.relforcerowsecurity AS hides_rows,
    EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = c.oid) AS has_rules,
    -- A foreign key has triggers too, on both tables.
    EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid) AS has_triggers,
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
), named AS MATERIALIZED (
  SELECT w.name, w.body, w.inputs, w.parameters, p.*
  FROM json_to_recordset($4::json) AS w(name text, body text, inputs text, parameters text)
  JOIN pg_namespace n ON n.nspname = $1
  JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname = w.name
), fn AS MATERIALIZED (
  -- The one function that a call with these inputs reaches: others of the same name do not matter.
  SELECT w.name, w.optional, p.oid, p.proowner,
    p.prosrc = p.body AND l.lanname = 'plpgsql' AND p.prokind = 'f' AND p.provolatile = 'v' AND p.proconfig IS NULL
      AND NOT p.prosecdef AND NOT p.proretset AND NOT p.proisstrict AND (p.parameters = (
        SELECT string_agg(concat_ws(' ', a.mode, a.name, tn.nspname || '.' || t.typname), ', ' ORDER BY a.place)
        FROM unnest(p.proallargtypes, p.proargmodes, p.proargnames) WITH ORDINALITY AS a(type, mode, name, place)
        JOIN pg_type t ON t.oid = a.type JOIN pg_namespace tn ON tn.oid = t.typnamespace)) IS TRUE AS is_ours
  FROM json_to_recordset($4::json) AS w(name text, optional bool)
  LEFT JOIN named p ON p.name = w.name AND p.inputs = (
    SELECT string_agg(tn.nspname || '.' || t.typname, ', ' ORDER BY a.place)
    FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(type, place)
    JOIN pg_type t ON t.oid = a.type JOIN pg_namespace tn ON tn.oid = t.typnamespace)
  LEFT JOIN pg_language l ON l.oid = p.prolang
), part AS MATERIALIZED (
  SELECT rel.name, rel.relowner, 'pg_class'::regclass::oid AS class, rel.oid FROM rel
  UNION ALL
  SELECT rel.name, rel.relowner, 'pg_class'::regclass, i.indexrelid FROM rel JOIN pg_index i ON i.indrelid = rel.oid
  UNION ALL
  SELECT rel.name, rel.relowner, 'pg_attrdef'::regclass, f.oid FROM rel JOIN pg_attrdef f ON f.adrelid = rel.oid
  UNION ALL
  SELECT rel.name, rel.relowner, 'pg_constraint'::regclass, c.oid FROM rel JOIN pg_constraint c ON c.conrelid = rel.oid
), used AS MATERIALIZED (
  -- What defaults, constraints, indexes and column types of a table use. Postgres notes nothing down that is its own.
  SELECT part.name, part.relowner, d.refclassid AS class, d.refobjid AS oid
  FROM part JOIN pg_depend d ON d.classid = part.class AND d.objid = part.oid
), foreign_code AS (
  SELECT used.name, o.owner
  FROM used JOIN LATERAL (
    SELECT p.proowner FROM pg_proc p WHERE used.class = 'pg_proc'::regclass AND p.oid = used.oid
    UNION ALL
    SELECT unnest(ARRAY[r.oprowner, p.proowner]) FROM pg_operator r LEFT JOIN pg_proc p ON p.oid = r.oprcode
      WHERE used.class = 'pg_operator'::regclass AND r.oid = used.oid
    UNION ALL
    SELECT t.typowner FROM pg_type t WHERE used.class = 'pg_type'::regclass AND t.oid = used.oid
    UNION ALL
    SELECT c.opcowner FROM pg_opclass c WHERE used.class = 'pg_opclass'::regclass AND c.oid = used.oid
    UNION ALL
    SELECT f.opfowner FROM pg_opfamily f WHERE used.class = 'pg_opfamily'::regclass AND f.oid = used.oid
  ) AS o(owner) ON true
  WHERE o.owner <> used.relowner AND o.owner NOT IN (SELECT oid FROM trusted)
), foreign_owner AS MATERIALIZED (
  SELECT role, name, relowner AS owner,
    -- A role that made all of it is one that sets up for others.
    NOT EXISTS (SELECT FROM rel o WHERE o.relowner IS DISTINCT FROM rel.relowner)
      AND NOT EXISTS (SELECT FROM fn WHERE fn.proowner IS DISTINCT FROM rel.relowner AND (fn.oid IS NOT NULL OR NOT fn.optional)) AS owns_all
  FROM rel WHERE relkind = 'r' AND relowner NOT IN (SELECT oid FROM trusted)
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
SELECT 'wrong', format('table "%s" belongs to the role "%s", which owns neither the schema nor all of the tables and functions', name, pg_get_userbyid(owner))
  FROM foreign_owner WHERE NOT owns_all
UNION ALL
SELECT DISTINCT 'wrong', format('table "%s" has a default, a constraint, an index or a column that runs code of the role "%s"', name, pg_get_userbyid(owner))
  FROM foreign_code
UNION ALL
SELECT 'wrong', format('table "%s" has triggers or foreign keys', name) FROM rel WHERE relkind = 'r' AND has_triggers
UNION ALL
SELECT 'wrong', format('table "%s" has rules', name) FROM rel WHERE relkind = 'r' AND has_rules
UNION ALL
SELECT 'wrong', format('table "%s" takes part in inheritance or partitioning', name) FROM rel WHERE relkind = 'r' AND inherits
UNION ALL
SELECT 'wrong', format('table "%s" has row-level security, which hides locks', name) FROM rel WHERE relkind = 'r' AND hides_rows
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
SELECT 'no-function', format('there is no function "%s"', name) FROM fn WHERE oid IS NULL AND NOT optional
UNION ALL
SELECT CASE WHEN h.is_text IS NULL THEN CASE WHEN may.alter THEN 'no-holder' ELSE 'no-holder-right' END
    WHEN NOT h.is_text THEN 'no-holder-right'
    ELSE CASE WHEN may.create THEN 'no-holder-function' ELSE 'no-holder-right' END END,
  CASE WHEN h.is_text IS FALSE
    THEN format('column holder of table "%s" is not a text that may be NULL: what holders say of themselves is not stored', h.name)
    ELSE format('table "%s" lacks the column holder, or its function: what holders say of themselves is not stored; setup_schema() by the owner of the table adds them', h.name) END
  FROM (SELECT rel.name, rel.oid, rel.relowner, (SELECT a.atttypid = 'text'::regtype AND NOT a.attnotnull FROM pg_attribute a
      WHERE a.attrelid = rel.oid AND a.attname = 'holder' AND NOT a.attisdropped) AS is_text
    FROM rel WHERE role = 'locks' AND relkind = 'r') AS h
  CROSS JOIN LATERAL (SELECT n.may AS create, n.may AND pg_has_role(h.relowner, 'USAGE') AS alter
    FROM (SELECT has_schema_privilege(oid, 'CREATE') AS may FROM pg_namespace WHERE nspname = $1) AS n) AS may
  WHERE h.is_text IS NOT TRUE OR EXISTS (SELECT FROM fn WHERE optional AND oid IS NULL)
UNION ALL
SELECT 'changed-function', format('function "%s" is not the one of this library', name) FROM fn WHERE oid IS NOT NULL AND NOT is_ours
UNION ALL
SELECT 'foreign-function', format('function "%s" belongs to the role "%s", which owns neither the schema nor the tables, and would run with our rights', name, pg_get_userbyid(proowner))
  FROM fn WHERE proowner NOT IN (SELECT oid FROM trusted) AND NOT EXISTS (SELECT FROM rel WHERE relowner = proowner AND role = 'locks')
UNION ALL
SELECT DISTINCT 'foreign-function', format('another function "%s" has default or variadic parameters, which can make a call ambiguous', name)
  FROM named WHERE (pronargdefaults > 0 OR provariadic <> 0) AND oid NOT IN (SELECT oid FROM fn WHERE oid IS NOT NULL)
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
SELECT DISTINCT 'unsafe', format('the role "%s" owns the tables and functions but not the schema "%s": it can grant and steal every lock; if it is not the role that set them up, drop them', pg_get_userbyid(owner), $1)
  FROM foreign_owner WHERE owns_all
UNION ALL
SELECT 'standby', 'the server is a standby' WHERE pg_is_in_recovery()
UNION ALL
SELECT 'old', 'the server is older than Postgres 13' WHERE current_setting('server_version_num')::int < 130000
UNION ALL
SELECT 'unsafe', format('%s = off: after a crash of the server fences may repeat', s)
  FROM unnest(ARRAY['fsync', 'full_page_writes']) AS s WHERE current_setting(s) = 'off'
UNION ALL
SELECT 'unsafe', 'autovacuum = off: dead rows of released locks will slow every call down' WHERE current_setting('autovacuum') = 'off'
