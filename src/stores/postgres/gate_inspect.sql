-- What is wrong with the gate, one row each: (kind, text). Run with search_path = pg_catalog, pg_temp.
-- $1 schema, $2 table, $3 the function as JSON: name, body, inputs, parameters.
-- The function runs with its callers' rights, so its owner and that of the table must be trusted: a superuser, this session's role, the
-- owner of the schema. inspect.sql has the same for the tables of locks.
WITH trusted AS MATERIALIZED (
  SELECT r.oid FROM pg_roles r LEFT JOIN pg_namespace n ON n.nspname = $1
  WHERE r.rolsuper OR r.rolname = current_user OR pg_has_role(r.oid, n.nspowner, 'MEMBER')
), rel AS MATERIALIZED (
  SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2
), fn AS MATERIALIZED (
  SELECT w.name, p.oid, p.proowner,
    p.prosrc = w.body AND l.lanname = 'plpgsql' AND p.prokind = 'f' AND p.provolatile = 'v' AND p.proconfig IS NULL
      AND NOT p.prosecdef AND NOT p.proretset AND NOT p.proisstrict AND (w.parameters = (
        SELECT string_agg(concat_ws(' ', a.mode, a.name, tn.nspname || '.' || t.typname), ', ' ORDER BY a.place)
        FROM unnest(p.proallargtypes, p.proargmodes, p.proargnames) WITH ORDINALITY AS a(type, mode, name, place)
        JOIN pg_type t ON t.oid = a.type JOIN pg_namespace tn ON tn.oid = t.typnamespace)) IS TRUE AS is_ours
  FROM json_to_recordset($3::json) AS w(name text, body text, inputs text, parameters text)
  LEFT JOIN (pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = $1)
    ON p.proname = w.name AND w.inputs = (
      SELECT string_agg(tn.nspname || '.' || t.typname, ', ' ORDER BY a.place)
      FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(type, place)
      JOIN pg_type t ON t.oid = a.type JOIN pg_namespace tn ON tn.oid = t.typnamespace)
  LEFT JOIN pg_language l ON l.oid = p.prolang
), part AS MATERIALIZED (
  SELECT 'pg_class'::regclass::oid AS class, rel.oid FROM rel
  UNION ALL
  SELECT 'pg_class'::regclass, i.indexrelid FROM rel JOIN pg_index i ON i.indrelid = rel.oid
  UNION ALL
  SELECT 'pg_attrdef'::regclass, f.oid FROM rel JOIN pg_attrdef f ON f.adrelid = rel.oid
  UNION ALL
  SELECT 'pg_constraint'::regclass, c.oid FROM rel JOIN pg_constraint c ON c.conrelid = rel.oid
), used AS MATERIALIZED (
  -- What defaults, constraints, indexes and column types of the table use. Postgres notes nothing down that is its own.
  SELECT d.refclassid AS class, d.refobjid AS oid FROM part JOIN pg_depend d ON d.classid = part.class AND d.objid = part.oid
), foreign_code AS (
  SELECT o.owner
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
  WHERE o.owner NOT IN (SELECT oid FROM trusted)
)
SELECT 'no-schema', format('there is no schema "%s"', $1) WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)
UNION ALL
SELECT 'no-gates', format('there is no table "%s"', $2) WHERE NOT EXISTS (SELECT FROM rel)
UNION ALL
SELECT 'no-function', format('there is no function "%s"', name) FROM fn WHERE oid IS NULL
UNION ALL
SELECT 'changed-function', format('function "%s" is not the one of this library', name) FROM fn WHERE oid IS NOT NULL AND NOT is_ours
UNION ALL
SELECT 'wrong', format('table "%s" is not an ordinary, logged table without triggers, rules, inheritance and row-level security', relname)
  FROM rel WHERE relkind <> 'r' OR relpersistence <> 'p' OR relrowsecurity OR relforcerowsecurity
    OR EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = rel.oid) OR EXISTS (SELECT FROM pg_rewrite w WHERE w.ev_class = rel.oid)
    OR EXISTS (SELECT FROM pg_inherits i WHERE rel.oid IN (i.inhrelid, i.inhparent))
UNION ALL
SELECT 'wrong', format('table "%s" has other columns than resource text and fence bigint, both NOT NULL', relname)
  FROM rel WHERE relkind = 'r' AND (
    SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, NULL), a.attnotnull, a.atthasdef), ', ' ORDER BY a.attnum)
    FROM pg_attribute a WHERE a.attrelid = rel.oid AND a.attnum > 0 AND NOT a.attisdropped
  ) IS DISTINCT FROM 'resource text t f, fence bigint t f'
UNION ALL
SELECT 'wrong', format('table "%s" has no unique index on resource alone, or a collation that takes two names for one', relname)
  FROM rel WHERE relkind = 'r' AND NOT EXISTS (
    SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = rel.oid AND a.attname = 'resource' AND a.attnum = i.indkey[0]
    JOIN pg_collation l ON l.oid = a.attcollation AND l.collisdeterministic
    WHERE i.indrelid = rel.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indnkeyatts = 1)
UNION ALL
SELECT DISTINCT 'wrong', format('table "%s" has a default, a constraint, an index or a column that runs code of the role "%s"', $2, pg_get_userbyid(owner))
  FROM foreign_code
UNION ALL
SELECT 'wrong', format('table "%s" belongs to the role "%s", which does not own the schema', relname, pg_get_userbyid(relowner))
  FROM rel WHERE relowner NOT IN (SELECT oid FROM trusted)
UNION ALL
SELECT 'wrong', format('function "%s" belongs to the role "%s", which does not own the schema and can replace what runs with the rights of callers', name, pg_get_userbyid(proowner))
  FROM fn WHERE proowner NOT IN (SELECT oid FROM trusted)
UNION ALL
SELECT 'wrong', format('another function %s(%s) may be taken for the gate', fn.name, pg_get_function_identity_arguments(p.oid))
  FROM fn JOIN pg_proc p ON p.proname = fn.name AND p.oid IS DISTINCT FROM fn.oid
  JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = $1
UNION ALL
SELECT 'standby', 'the server is a standby' WHERE pg_is_in_recovery()
