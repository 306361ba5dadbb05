-- The gate: a table and a function. sql.rs puts quoted names in place of the words between at signs and cuts at the line of dashes.
CREATE TABLE @GATES@ (
  resource pg_catalog.text COLLATE pg_catalog."C" PRIMARY KEY,
  fence pg_catalog.int8 NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)
----
CREATE OR REPLACE FUNCTION @PASS@(
  p_resource pg_catalog.text, p_fence pg_catalog.int8,
  OUT o_fence pg_catalog.int8)
LANGUAGE plpgsql VOLATILE AS $syncguard$
DECLARE
  v_newest pg_catalog.int8;
BEGIN
  IF (pg_catalog.octet_length(p_resource) OPERATOR(pg_catalog.>) 0) IS NOT TRUE
      OR pg_catalog.octet_length(p_resource) OPERATOR(pg_catalog.>) 512 THEN
    RAISE EXCEPTION 'syncguard_pass: the name of the resource is empty or longer than 512 bytes' USING ERRCODE = 'SGG02';
  END IF;
  IF (p_fence OPERATOR(pg_catalog.>) 0::pg_catalog.int8 AND p_fence OPERATOR(pg_catalog.<=) 900000000000000::pg_catalog.int8) IS NOT TRUE THEN
    RAISE EXCEPTION 'syncguard_pass: the fence is not a number from 1 to 900000000000000' USING ERRCODE = 'SGG02';
  END IF;
  LOOP
    -- The row stays locked to the end of the caller's transaction: a newer holder waits for it, and an older one finds the newer fence.
    SELECT g.fence INTO v_newest FROM @GATES@ g WHERE g.resource OPERATOR(pg_catalog.=) p_resource FOR UPDATE;
    IF FOUND THEN
      IF v_newest OPERATOR(pg_catalog.>) p_fence THEN
        RAISE EXCEPTION 'syncguard_pass: refused, a newer holder has written: its fence is %, this one is %', v_newest, p_fence
          USING ERRCODE = 'SGG01', HINT = 'Roll back and stop: the lock was lost.';
      END IF;
      IF v_newest OPERATOR(pg_catalog.<) p_fence THEN
        UPDATE @GATES@ g SET fence = p_fence WHERE g.resource OPERATOR(pg_catalog.=) p_resource;
      END IF;
      o_fence := p_fence;
      RETURN;
    END IF;
    INSERT INTO @GATES@ (resource, fence) VALUES (p_resource, p_fence) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      o_fence := p_fence;
      RETURN;
    END IF;
  END LOOP;
END
$syncguard$
