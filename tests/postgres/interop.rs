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
        rows(&stored["columns"]).len().to_string()
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
    theirs.setup_schema(&Call::new()).expect("the owner");
    assert_eq!(
        server
            .sql("SELECT count(*) FROM pg_indexes WHERE indexname = 'idx_syncguard_locks_expires'"),
        "1"
    );
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
