-- The verbs that write. sql.rs puts quoted names in place of the words between at signs and cuts at the lines of dashes.
-- Every function and operator is named with its schema: the caller's search_path has no say in here.
-- The caller has set isolation, lock_timeout and enable_seqscan. What is only called for its effect is assigned to a variable:
-- an expression costs a fraction of a PERFORM, which is a query.
-- A changed body needs a new VERSION in sql.rs: releases of the library share a database during an upgrade.
CREATE OR REPLACE FUNCTION @ACQUIRE@(
  p_key pg_catalog.text, p_fence_key pg_catalog.text, p_user_key pg_catalog.text, p_lock_id pg_catalog.text,
  p_ttl_ms pg_catalog.int8, p_tolerance_ms pg_catalog.int8, p_max_fence pg_catalog.int8, p_max_clock_ms pg_catalog.int8, p_not_after_ms pg_catalog.int8,
  OUT o_granted pg_catalog.bool, OUT o_lock_id pg_catalog.text, OUT o_fence pg_catalog.text,
  OUT o_expires_at_ms pg_catalog.int8, OUT o_now_ms pg_catalog.int8, OUT o_late_ms pg_catalog.int8)
LANGUAGE plpgsql VOLATILE AS $syncguard$
DECLARE
  v_locked pg_catalog.bool;
  v_setting pg_catalog.text;
  v_held pg_catalog.bool;
  v_counter pg_catalog.int8;
  v_least_fence pg_catalog.int8;
BEGIN
  v_locked := pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(p_key)) IS NOT NULL;
  SELECT t.lock_id, t.fence, t.expires_at_ms INTO o_lock_id, o_fence, o_expires_at_ms
    FROM @LOCKS@ t WHERE t.key OPERATOR(pg_catalog.=) p_key FOR UPDATE;
  v_held := FOUND;
  -- Not before: the wait for the two locks may have been long.
  o_now_ms := pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000);
  -- Its sender has given it up by now, or the clock was set forward.
  IF o_now_ms OPERATOR(pg_catalog.>) p_not_after_ms THEN
    o_late_ms := o_now_ms;
    v_setting := pg_catalog.set_config('synchronous_commit', 'off', true);
    RETURN;
  END IF;
  -- Whatever is not certainly dead is taken.
  IF v_held AND (o_expires_at_ms OPERATOR(pg_catalog.>) (o_now_ms OPERATOR(pg_catalog.-) p_tolerance_ms)) IS NOT FALSE THEN
    o_granted := (o_lock_id OPERATOR(pg_catalog.=) p_lock_id) IS TRUE;
    IF NOT o_granted THEN
      -- The row lock is the only thing written, and a crash may take it back.
      v_setting := pg_catalog.set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN;
  END IF;
  IF pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off' THEN
    v_setting := pg_catalog.set_config('synchronous_commit', 'on', true);
  END IF;
  -- The latest time that may become a fence, or 0 where fences are counted.
  IF p_max_clock_ms OPERATOR(pg_catalog.>) 0::pg_catalog.int8 THEN
    IF o_now_ms OPERATOR(pg_catalog.>) p_max_clock_ms THEN
      RAISE EXCEPTION 'the clock is too far ahead for a fence' USING ERRCODE = 'SGF02';
    END IF;
    v_least_fence := o_now_ms;
  END IF;
  LOOP
    -- The limits are part of the condition: a counter outside them is not touched.
    UPDATE @FENCES@ f SET fence = GREATEST(v_least_fence, f.fence OPERATOR(pg_catalog.+) 1)
      WHERE f.fence_key OPERATOR(pg_catalog.=) p_fence_key
        AND f.fence OPERATOR(pg_catalog.>=) 0::pg_catalog.int8 AND f.fence OPERATOR(pg_catalog.<) p_max_fence
      RETURNING f.fence INTO v_counter;
    EXIT WHEN FOUND;
    INSERT INTO @FENCES@ (fence_key, fence, key_debug) VALUES (p_fence_key, 0, p_user_key) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'fence counter outside its limits' USING ERRCODE = 'SGF01';
    END IF;
  END LOOP;
  o_granted := true;
  o_lock_id := p_lock_id;
  o_fence := pg_catalog.lpad(v_counter::pg_catalog.text, 15, '0');
  o_expires_at_ms := o_now_ms OPERATOR(pg_catalog.+) p_ttl_ms;
  IF v_held THEN
    UPDATE @LOCKS@ t SET lock_id = o_lock_id, expires_at_ms = o_expires_at_ms, acquired_at_ms = o_now_ms,
        fence = o_fence, user_key = p_user_key
      WHERE t.key OPERATOR(pg_catalog.=) p_key;
  ELSE
    -- A row that appeared although we hold the key's advisory lock is an error, not to be overwritten.
    INSERT INTO @LOCKS@ (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key)
      VALUES (p_key, o_lock_id, o_expires_at_ms, o_now_ms, o_fence, p_user_key);
  END IF;
END
$syncguard$
----
CREATE OR REPLACE FUNCTION @EXTEND@(
  p_lock_id pg_catalog.text, p_ttl_ms pg_catalog.int8, p_tolerance_ms pg_catalog.int8, p_not_after_ms pg_catalog.int8,
  OUT o_found pg_catalog.bool, OUT o_expires_at_ms pg_catalog.int8, OUT o_late_ms pg_catalog.int8)
LANGUAGE plpgsql VOLATILE AS $syncguard$
DECLARE
  v_locked pg_catalog.bool;
  v_setting pg_catalog.text;
  v_key pg_catalog.text;
  v_now_ms pg_catalog.int8;
BEGIN
  SELECT t.key INTO v_key FROM @LOCKS@ t WHERE t.lock_id OPERATOR(pg_catalog.=) p_lock_id;
  o_found := FOUND;
  IF NOT o_found THEN
    RETURN;
  END IF;
  v_locked := pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(v_key)) IS NOT NULL;
  -- The key may have changed hands since it was found.
  SELECT t.expires_at_ms INTO o_expires_at_ms
    FROM @LOCKS@ t WHERE t.key OPERATOR(pg_catalog.=) v_key AND t.lock_id OPERATOR(pg_catalog.=) p_lock_id FOR UPDATE;
  o_found := FOUND;
  v_now_ms := pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000);
  -- Its sender has given it up by now, or the clock was set forward.
  IF v_now_ms OPERATOR(pg_catalog.>) p_not_after_ms THEN
    o_late_ms := v_now_ms;
    v_setting := pg_catalog.set_config('synchronous_commit', 'off', true);
    RETURN;
  END IF;
  IF NOT o_found OR (o_expires_at_ms OPERATOR(pg_catalog.>) (v_now_ms OPERATOR(pg_catalog.-) p_tolerance_ms)) IS NOT TRUE THEN
    o_expires_at_ms := NULL;
    v_setting := pg_catalog.set_config('synchronous_commit', 'off', true);
    RETURN;
  END IF;
  IF pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off' THEN
    v_setting := pg_catalog.set_config('synchronous_commit', 'on', true);
  END IF;
  o_expires_at_ms := v_now_ms OPERATOR(pg_catalog.+) p_ttl_ms;
  UPDATE @LOCKS@ t SET expires_at_ms = o_expires_at_ms
    WHERE t.key OPERATOR(pg_catalog.=) v_key AND t.lock_id OPERATOR(pg_catalog.=) p_lock_id;
END
$syncguard$
----
CREATE OR REPLACE FUNCTION @RELEASE@(
  p_lock_id pg_catalog.text, p_tolerance_ms pg_catalog.int8,
  OUT o_found pg_catalog.bool, OUT o_released pg_catalog.bool)
LANGUAGE plpgsql VOLATILE AS $syncguard$
DECLARE
  v_locked pg_catalog.bool;
  v_setting pg_catalog.text;
  v_key pg_catalog.text;
  v_expires_at_ms pg_catalog.int8;
  v_now_ms pg_catalog.int8;
BEGIN
  o_released := false;
  SELECT t.key INTO v_key FROM @LOCKS@ t WHERE t.lock_id OPERATOR(pg_catalog.=) p_lock_id;
  o_found := FOUND;
  IF NOT o_found THEN
    RETURN;
  END IF;
  v_locked := pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext(v_key)) IS NOT NULL;
  -- The key may have changed hands since it was found.
  SELECT t.expires_at_ms INTO v_expires_at_ms
    FROM @LOCKS@ t WHERE t.key OPERATOR(pg_catalog.=) v_key AND t.lock_id OPERATOR(pg_catalog.=) p_lock_id FOR UPDATE;
  o_found := FOUND;
  v_now_ms := pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000);
  -- A release lost in a crash only waits for the TTL. A role that wants its standbys up to date keeps that.
  IF pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.<>) 'remote_apply' THEN
    v_setting := pg_catalog.set_config('synchronous_commit', 'off', true);
  END IF;
  IF o_found AND (v_expires_at_ms OPERATOR(pg_catalog.>) (v_now_ms OPERATOR(pg_catalog.-) p_tolerance_ms)) IS TRUE THEN
    DELETE FROM @LOCKS@ t
      WHERE t.key OPERATOR(pg_catalog.=) v_key AND t.lock_id OPERATOR(pg_catalog.=) p_lock_id;
    o_released := true;
    -- A client that waits for the key has the shared lock: only then is a notification sent.
    IF NOT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtext('@CHANNEL@'), pg_catalog.hashtext(v_key)) THEN
      PERFORM pg_catalog.pg_notify('@CHANNEL@', pg_catalog.hashtext(v_key)::pg_catalog.text);
    END IF;
  END IF;
END
$syncguard$
