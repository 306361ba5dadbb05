//! Tests the tables as the TypeScript library makes and fills them: the same key is the same lock, with the same fence counter.

use std::time::Duration;

use crate::support::postgres::Server;
use serde_json::Value;
use syncguard::*;

const NOW: &str = "floor(extract(epoch from clock_timestamp()) * 1000)::bigint";

/// The TypeScript library's set-up.
const THEIRS: &str = "
    CREATE TABLE syncguard_locks (key TEXT PRIMARY KEY, lock_id TEXT NOT NULL, expires_at_ms BIGINT NOT NULL,
      acquired_at_ms BIGINT NOT NULL, fence TEXT NOT NULL, user_key TEXT NOT NULL);
    CREATE UNIQUE INDEX idx_syncguard_locks_lock_id ON syncguard_locks(lock_id);
    CREATE INDEX idx_syncguard_locks_expires ON syncguard_locks(expires_at_ms);
    CREATE TABLE syncguard_fence_counters (fence_key TEXT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0, key_debug TEXT)";

fn stored() -> Value {
    let text = include_str!("../data/stored-state.json");
    serde_json::from_str::<Value>(text).expect("JSON")["postgres"].take()
}

fn rows(value: &Value) -> &Vec<Value> {
    value.as_array().expect("a list")
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().expect("a text")
}

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn store(server: &Server, schema: &str) -> PostgresBackend {
    let store = server.open(&ClientOptions::new().schema(schema));
    store.setup_schema(&Call::new()).expect("set-up");
    store
}

#[test]
fn our_tables_are_theirs() {
    let server = Server::start(&[]);
    let _ = store(&server, "public");
    let stored = stored();
    for column in rows(&stored["columns"]) {
        let found = server.sql(&format!(
            "SELECT ordinal_position, data_type, is_nullable, coalesce(column_default, '') FROM information_schema.columns \
             WHERE table_schema = 'public' AND table_name = '{}' AND column_name = '{}'",
            text(column, "table_name"),
            text(column, "column_name")
        ));
        let expected = format!(
            "{}|{}|{}|{}",
            column["ordinal_position"],
            text(column, "data_type"),
            text(column, "is_nullable"),
            column["column_default"].as_str().unwrap_or_default()
        );
        assert_eq!(found, expected, "{column}");
    }
    assert_eq!(
        server.sql("SELECT count(*) FROM information_schema.columns WHERE table_schema = 'public'"),
        // One is our own, which their statements leave as it is.
        (rows(&stored["columns"]).len() + 1).to_string()
    );
    for index in rows(&stored["indexes"]) {
        let name = text(index, "indexname");
        assert_eq!(
            server.sql(&format!(
                "SELECT indexdef FROM pg_indexes WHERE indexname = '{name}'"
            )),
            text(index, "indexdef")
        );
    }
    for constraint in rows(&stored["constraints"]) {
        let name = text(constraint, "conname");
        assert_eq!(
            server.sql(&format!(
                "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = '{name}'"
            )),
            text(constraint, "def")
        );
    }
    // New key columns compare bytes, whatever the database's language.
    let keys = "SELECT string_agg(DISTINCT collname, ',') FROM pg_attribute a JOIN pg_collation l ON l.oid = attcollation \
                WHERE attrelid IN ('syncguard_locks'::regclass, 'syncguard_fence_counters'::regclass) AND attname IN ('key', 'lock_id', 'fence_key')";
    assert_eq!(server.sql(keys), "C");
    for (name, hash) in stored["hashtext"].as_object().expect("a map") {
        assert_eq!(
            server.sql(&format!("SELECT hashtext({})", literal(name))),
            hash.to_string(),
            "{name}"
        );
    }
}

#[test]
fn their_tables_are_adopted_as_they_are() {
    let server = Server::shared();
    server.sql(&format!(
        "CREATE SCHEMA theirs; SET search_path = theirs; {THEIRS}"
    ));
    let before = server.sql("SELECT string_agg(relname || relfilenode || coalesce(reloptions::text, ''), ',' ORDER BY relname) FROM pg_class WHERE relnamespace = 'theirs'::regnamespace AND relkind IN ('r', 'i')");
    let ours = store(&server, "theirs");
    ours.check(&Call::new()).expect("right");
    let after = server.sql("SELECT string_agg(relname || relfilenode || coalesce(reloptions::text, ''), ',' ORDER BY relname) FROM pg_class WHERE relnamespace = 'theirs'::regnamespace AND relkind IN ('r', 'i')");
    assert_eq!(before, after, "nothing was changed");

    // Each state of theirs, moved to now.
    for step in rows(&stored()["lifecycle"]) {
        server.sql("TRUNCATE theirs.syncguard_locks, theirs.syncguard_fence_counters");
        for row in rows(&step["rows"]["locks"]) {
            server.sql(&format!(
                "INSERT INTO theirs.syncguard_locks VALUES ({}, '{}', {NOW} + 30000, {NOW}, '{}', {})",
                literal(text(row, "key")),
                text(row, "lock_id"),
                text(row, "fence"),
                literal(text(row, "user_key"))
            ));
        }
        for row in rows(&step["rows"]["fences"]) {
            server.sql(&format!(
                "INSERT INTO theirs.syncguard_fence_counters VALUES ({}, {}, {})",
                literal(text(row, "fence_key")),
                text(row, "fence"),
                literal(text(row, "key_debug"))
            ));
        }
        for row in rows(&step["rows"]["locks"]) {
            their_lock_is_ours(&ours, row, &step["result"]);
        }
        for row in rows(&step["rows"]["fences"]) {
            their_counter_goes_on(&server, &ours, row);
        }
    }
}

/// What they hold is held for us, with their fence, and can be extended and released.
fn their_lock_is_ours(ours: &PostgresBackend, row: &Value, result: &Value) {
    let name = key(text(row, "user_key"));
    let id = LockId::parse(text(row, "lock_id")).expect("their id");
    assert!(ours.is_locked(&name, &Call::new()).expect("an answer"));
    let found = ours
        .find(LookupBy::LockId(&id), &Call::new())
        .expect("an answer")
        .expect("their lock");
    assert_eq!(
        (found.key.as_str(), found.fence.to_string().as_str()),
        (name.as_str(), text(row, "fence"))
    );
    if let Some(info) = result.get("keyHash") {
        assert_eq!(found.info().key_hash, info.as_str().expect("a hash"));
        assert_eq!(found.info().lock_id_hash, text(result, "lockIdHash"));
    }
    assert!(matches!(
        ours.extend(
            &id,
            Ttl::new(Duration::from_secs(60)).expect("a ttl"),
            &Call::new()
        ),
        Ok(ExtendOutcome::Extended(_))
    ));
    assert!(
        ours.release(&id, &Call::new())
            .expect("an answer")
            .is_released()
    );
}

/// The next grant counts on from theirs, and its rows are what they would write.
fn their_counter_goes_on(server: &Server, ours: &PostgresBackend, row: &Value) {
    let name = key(text(row, "key_debug"));
    let mine = LockId::random().expect("an id");
    match ours
        .acquire(
            &name,
            &mine,
            Ttl::new(Duration::from_secs(30)).expect("a ttl"),
            &Call::new(),
        )
        .expect("an answer")
    {
        AcquireOutcome::Acquired(grant) => {
            assert_eq!(
                grant.fence.get(),
                text(row, "fence").parse::<u64>().expect("a number") + 1
            );
            let written = server.sql(&format!(
                "SELECT key, expires_at_ms - acquired_at_ms, fence, user_key FROM theirs.syncguard_locks WHERE lock_id = '{}'",
                mine.as_str()
            ));
            assert_eq!(
                written,
                format!("{0}|30000|{1}|{0}", name.as_str(), grant.fence)
            );
        }
        other => panic!("{other:?}"),
    }
    let counters = server.sql(&format!(
        "SELECT count(*) FROM theirs.syncguard_fence_counters WHERE key_debug = {}",
        literal(name.as_str())
    ));
    assert_eq!(counters, "1", "one counter for both");
}

/// The fence of what was granted, which is released.
fn next_fence(store: &PostgresBackend, granted: Result<AcquireOutcome, LockError>) -> u64 {
    match granted.expect("an answer") {
        AcquireOutcome::Acquired(grant) => {
            let released = store
                .release(&grant.lock_id, &Call::new())
                .expect("an answer");
            assert!(released.is_released());
            grant.fence.get()
        }
        other => panic!("{other:?}"),
    }
}

/// Four functions, a column and an index, and nothing else.
fn set_up_adds_what_the_page_says(server: &Server, theirs: &PostgresBackend, page: &str) {
    let says = "It adds four functions, a column `holder` to the lock table, and the index on `expires_at_ms`";
    assert!(page.contains(says));
    let columns = || {
        server.sql(
            "SELECT string_agg(attname, ' ' ORDER BY attrelid::regclass::text = 'app.syncguard_locks', attnum) FROM pg_attribute \
             WHERE attrelid IN ('app.syncguard_locks'::regclass, 'app.syncguard_fence_counters'::regclass) AND attnum > 0",
        )
    };
    let before = columns();
    theirs.setup_schema(&Call::new()).expect("the owner");
    assert_eq!(columns(), format!("{before} holder"));
    let functions = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'app'::regnamespace";
    assert_eq!(server.sql(functions), "4");
    let indexes = "SELECT count(*) FROM pg_indexes WHERE indexname = 'idx_syncguard_locks_expires'";
    assert_eq!(server.sql(indexes), "1");
}

/// What docs/postgres.md says under "A database that the TypeScript library made".
#[test]
fn a_database_of_theirs_needs_one_set_up_by_the_owner_of_its_tables() {
    let server = Server::start(&[]);
    server.sql(&format!(
        "CREATE ROLE their_app LOGIN; CREATE ROLE worker LOGIN; CREATE SCHEMA app; GRANT CREATE, USAGE ON SCHEMA app TO their_app; \
         SET ROLE their_app; SET search_path = app; {THEIRS}; DROP INDEX idx_syncguard_locks_expires; \
         INSERT INTO syncguard_fence_counters VALUES ('fence:k', 41, 'k'); \
         ALTER TABLE syncguard_fence_counters DROP COLUMN key_debug"
    ));
    let options = ClientOptions::new().schema("app");
    let open = |role: &str| PostgresBackend::open(&server.url_of(role), &options).expect("a store");
    let (theirs, worker, superuser) = (open("their_app"), open("worker"), open("postgres"));
    let page = include_str!("../../docs/postgres.md");
    let schema = |sql: &str| {
        sql.replace("syncguard_locks", "app.syncguard_locks")
            .replace("syncguard_fence_counters", "app.syncguard_fence_counters")
    };
    let take = |store: &PostgresBackend| {
        let ttl = Ttl::new(Duration::from_secs(30)).expect("a ttl");
        store.acquire(
            &key("k"),
            &LockId::random().expect("an id"),
            ttl,
            &Call::new(),
        )
    };

    let error = take(&theirs).expect_err("no functions");
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    assert!(error.message().contains("setup_schema()"), "{error}");

    let error = theirs.setup_schema(&Call::new()).expect_err("no key_debug");
    assert!(error.message().contains("key_debug"), "{error}");
    let add = "ALTER TABLE syncguard_fence_counters ADD COLUMN key_debug TEXT";
    assert!(page.contains(add));
    server.sql(&schema(add));

    for store in [&worker, &superuser] {
        let error = store.setup_schema(&Call::new()).expect_err("not the owner");
        let told = error.message();
        assert!(told.contains("belongs to the role \"their_app\""), "{told}");
    }
    set_up_adds_what_the_page_says(&server, &theirs, page);
    server.sql(
        "GRANT USAGE ON SCHEMA app TO worker; GRANT SELECT, INSERT, UPDATE, DELETE ON app.syncguard_locks TO worker; \
         GRANT SELECT, INSERT, UPDATE ON app.syncguard_fence_counters TO worker",
    );
    worker.check(&Call::new()).expect("set up, and allowed");
    let next = |store: &PostgresBackend| next_fence(store, take(store));
    assert_eq!(next(&worker), 42, "their counter goes on");

    // Their collation stays; the statements of the page change it, and nothing else.
    let collations = || {
        server.sql(
            "SELECT string_agg(DISTINCT collname, ',') FROM pg_attribute a JOIN pg_collation l ON l.oid = attcollation \
             WHERE attrelid IN ('app.syncguard_locks'::regclass, 'app.syncguard_fence_counters'::regclass) \
             AND attname IN ('key', 'lock_id', 'fence_key')",
        )
    };
    assert_eq!(collations(), "default");
    let changes: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("ALTER TABLE") && line.contains("COLLATE"))
        .collect();
    assert_eq!(changes.len(), 2);
    for change in changes {
        server.sql(&schema(change));
    }
    assert_eq!(collations(), "C");
    worker.check(&Call::new()).expect("as before");
    assert_eq!(next(&worker), 43);
}

/// A client of another kind has the texts of `syncguard::format` and nothing else.
#[test]
fn a_client_made_of_the_published_statements_shares_locks() {
    let server = Server::shared();
    let sql = format::postgres::PostgresStatements::new("published", None, None).expect("names");
    server.sql("CREATE SCHEMA published");
    server.sql(&sql.setup().join(";\n"));
    let ours = server.open(&ClientOptions::new().schema("published"));
    ours.setup_schema(&Call::new())
        .expect("nothing is missing or different");
    let id = LockId::random().expect("an id");
    let names = KeySpace::table();
    let lock = names.lock(&key("job")).expect("a name");
    let mut theirs = server.session();
    theirs.run(&format!("PREPARE take AS {}", sql.acquire()));
    theirs.run(&format!("PREPARE look AS {}", sql.find_by_key()));
    theirs.run(&format!("PREPARE give AS {}", sql.release()));
    let answer = theirs.run(&format!(
        "EXECUTE take('{lock}', '{}', 'job', '{}', 60000, {TIME_TOLERANCE_MS}, {MAX_FENCE}, 0, {})",
        names.fence(&lock).expect("a name"),
        id.as_str(),
        i64::MAX,
    ));
    assert!(answer.concat().contains("000000000000001"), "{answer:?}");
    assert!(
        ours.is_locked(&key("job"), &Call::new())
            .expect("an answer")
    );
    let released = ours.release(&id, &Call::new()).expect("an answer");
    assert_eq!(released, ReleaseOutcome::Released);
    let next = LockId::random().expect("an id");
    let ttl = Ttl::new(Duration::from_secs(60)).expect("a ttl");
    match ours.acquire(&key("job"), &next, ttl, &Call::new()) {
        Ok(AcquireOutcome::Acquired(grant)) => assert_eq!(grant.fence.get(), 2),
        other => panic!("not granted: {other:?}"),
    }
    let row = theirs.run("EXECUTE look('job')").concat();
    assert!(row.contains(next.as_str()), "{row}");
    theirs.run(&format!(
        "EXECUTE give('{}', {TIME_TOLERANCE_MS})",
        next.as_str()
    ));
    assert!(
        !ours
            .is_locked(&key("job"), &Call::new())
            .expect("an answer")
    );
}

/// A database that an older version set up has neither the column nor the function for what holders say of themselves.
#[test]
fn without_the_column_the_former_function_is_used_until_the_set_up() {
    let server = Server::start(&[]);
    let _ = store(&server, "public");
    server.sql(
        "DROP FUNCTION syncguard_v1_acquire_held; ALTER TABLE syncguard_locks DROP COLUMN holder",
    );
    let client = Client::from_backend(server.open(&ClientOptions::new()));
    let shown = |key: &str| {
        let found = client.get_by_key_raw(key).expect("an answer");
        found.expect("a lock").holder
    };
    let older = client.lock("older").expect("a lock");
    assert_eq!(shown("older"), None);
    let warnings = client.check().expect("a report").warnings;
    assert!(
        warnings.iter().any(|w| w.contains("column holder")),
        "{warnings:?}"
    );

    // A set-up waits only briefly behind a caller that uses the table: others wait behind it. What locks need is there, and mended.
    let mut reader = server.session();
    reader.run("BEGIN; SELECT count(*) FROM syncguard_locks");
    server.sql("DROP FUNCTION syncguard_v1_release");
    client.setup_schema().expect("what locks need");
    let warnings = client.check().expect("a report").warnings;
    assert!(
        warnings.iter().any(|w| w.contains("column holder")),
        "{warnings:?}"
    );
    let _during = client.lock_with("during", &LockOptions::new().holder("unseen"));
    assert_eq!(shown("during"), None);
    reader.run("COMMIT");
    client.setup_schema().expect("set-up");
    let warnings = client.check().expect("a report").warnings;
    assert!(
        !warnings.iter().any(|w| w.contains("holder")),
        "{warnings:?}"
    );
    assert_eq!(shown("older"), None);
    older.release().expect("an answer").expect_released();
    let _newer = client.lock_with("older", &LockOptions::new().holder("newer"));
    assert_eq!(shown("older").as_deref(), Some("newer"));
}

/// The TypeScript library knows nothing of the column: a row that it takes over keeps the text of the former holder.
#[test]
fn a_row_that_they_take_over_does_not_show_the_former_holder() {
    let server = Server::start(&[]);
    server.sql(THEIRS);
    let client = Client::from_backend(server.open(&ClientOptions::new()));
    client.setup_schema().expect("set-up");
    let guard = client.lock_with("k", &LockOptions::new().holder("ours"));
    let guard = guard.expect("a lock");
    let theirs = LockId::random().expect("an id");
    server.sql(&format!(
        "INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) \
         VALUES ('k', '{theirs}', {NOW} + 60000, {NOW}, '000000000000002', 'k') ON CONFLICT (key) DO UPDATE \
         SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms, fence = excluded.fence",
        theirs = theirs.as_str()
    ));
    assert!(
        server
            .sql("SELECT holder FROM syncguard_locks")
            .ends_with(" ours")
    );
    let found = client
        .get_by_key_raw("k")
        .expect("an answer")
        .expect("a lock");
    assert_eq!((found.lock_id, found.holder), (theirs, None));
    let soon = LockOptions::new().acquire_timeout(Duration::ZERO);
    let refused = client.lock_with("k", &soon).expect_err("it is held");
    assert_eq!(refused.holder_text(), None);
    drop(guard);
}

/// A grant of `key` by the statements of the TypeScript library, in words of our own: they count.
fn their_grant(server: &Server, key: &str, lock_id: &LockId) -> u64 {
    let id = lock_id.as_str();
    let said = server.sql(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock(hashtext('{key}')); SELECT 1 FROM syncguard_locks WHERE key = '{key}' FOR UPDATE; \
         INSERT INTO syncguard_fence_counters (fence_key, fence, key_debug) VALUES ('fence:{key}', 0, '{key}') ON CONFLICT DO NOTHING; \
         WITH counted AS (UPDATE syncguard_fence_counters SET fence = fence + 1 WHERE fence_key = 'fence:{key}' RETURNING fence), \
           at AS (SELECT floor(extract(epoch from now()) * 1000)::bigint AS ms) \
         INSERT INTO syncguard_locks (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key) \
           SELECT '{key}', '{id}', ms + 60000, ms, lpad(fence::text, 15, '0'), '{key}' FROM counted, at \
         ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms, \
           acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence; COMMIT; \
         SELECT 'fence ' || fence FROM syncguard_locks WHERE key = '{key}'"
    ));
    let (_, fence) = said.split_once("fence ").expect("a fence");
    assert_eq!(fence.trim().len(), 15, "{said}");
    fence.trim().parse().expect("a number")
}

/// Their statements count on from a fence of the clock, and ours from theirs: always one plain number.
#[test]
fn their_acquire_and_ours_by_the_clock_go_on_from_each_other() {
    let server = Server::start(&[]);
    let counting = store(&server, "public");
    let clock = ClientOptions::new()
        .schema("public")
        .fences(FenceSource::Clock);
    let by_clock = server.open(&clock);
    let set = |n: u64| server.sql(&format!("UPDATE syncguard_fence_counters SET fence = {n}"));
    let theirs = || {
        let id = LockId::random().expect("an id");
        let fence = their_grant(&server, "job", &id);
        let released = counting.release(&id, &Call::new());
        assert!(released.expect("an answer").is_released());
        fence
    };
    let ours = |store: &PostgresBackend| {
        let id = LockId::random().expect("an id");
        let ttl = Ttl::new(Duration::from_secs(60)).expect("a ttl");
        let granted = store.acquire(&key("job"), &id, ttl, &Call::new());
        let stored = store.find(LookupBy::LockId(&id), &Call::new());
        let stored = stored.expect("an answer").expect("the lock");
        let is_behind = stored.fence.get() < stored.acquired_at_ms.unsigned_abs();
        let of_the_clock = store.capabilities().fence_source == FenceSource::Clock;
        assert!(!(of_the_clock && is_behind), "{}", stored.fence);
        next_fence(store, granted)
    };
    assert_eq!(theirs(), 1);
    let first = ours(&by_clock);
    assert!(first > 1_700_000_000_000);
    assert_eq!(theirs(), first + 1);
    assert_eq!(ours(&counting), first + 2);
    assert!(ours(&by_clock) > first + 2);
    for ahead in [4_000_000_000_000, 899_999_999_999_990] {
        set(ahead);
        assert_eq!(ours(&by_clock), ahead + 1);
        assert_eq!(theirs(), ahead + 2);
        assert_eq!(ours(&by_clock), ahead + 3);
    }
}
